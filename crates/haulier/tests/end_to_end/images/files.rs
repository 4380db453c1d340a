//! The same transforms on a site's own files.

use haulier_image::Format;

use crate::support::client::Request;
use crate::support::images::{jpeg, picture, png, upload};
use crate::support::site::Site;

fn site(images: &str) -> Site {
    Site::new()
        .file("photo.jpg", jpeg(640, 480, 0))
        .file("media/logo.png", png(100, 50))
        .file("notes.txt", "words")
        .file("fake.jpg", "words")
        .config("[site.test.cache]\n\"/media/*\" = \"1y immutable\"")
        .config(images)
}

#[test]
fn an_image_of_the_site_takes_the_parameters_and_is_itself_without_them() {
    let haulier = site("[site.test.images]\nroot = \".\"").start();
    assert!(haulier.get("/photo.jpg").expect(200).body == jpeg(640, 480, 0));
    assert_eq!(picture(haulier.get("/photo.jpg?w=100")), (Format::Jpeg, 100, 75));
    assert_eq!(
        picture(haulier.get("/photo.jpg?v=3&w=100")),
        (Format::Jpeg, 100, 75),
        "v is somebody else's"
    );
    assert!(haulier.get("/photo.jpg?v=3").expect(200).body == jpeg(640, 480, 0));
    let logo = haulier.get("/media/logo.png?w=50&f=webp").expect(200);
    assert_eq!(logo.field("Cache-Control"), Some("public, max-age=31536000, immutable"));
    assert_eq!(picture(logo), (Format::WebP, 50, 25));
    haulier.get("/photo.jpg?w=ten").expect(400);
    haulier.get("/fake.jpg?w=10").expect(415);
    assert_eq!(haulier.get("/notes.txt?w=10").expect(200).text(), "words");
    haulier.get("/missing.jpg?w=10").expect(404);
    haulier.ask(&Request::post("/upload", "x")).expect(404);
}

#[test]
fn a_file_that_changes_has_new_variants() {
    let site = site("[site.test.images]\nroot = \".\"");
    let path = site.root().join("photo.jpg");
    let haulier = site.start();
    let before = haulier.get("/photo.jpg?w=100").expect(200);
    std::fs::write(&path, jpeg(640, 480, 77)).expect("the directory is ours");
    crate::support::wait_until("the new picture", || {
        let after = haulier.get("/photo.jpg?w=100").expect(200);
        after.body != before.body && after.field("ETag") != before.field("ETag")
    });
}

#[test]
fn only_the_folder_that_is_named_takes_parameters() {
    let haulier = site("[site.test.images]\nroot = \"media\"").start();
    assert_eq!(picture(haulier.get("/media/logo.png?w=50")), (Format::Png, 50, 25));
    assert!(haulier.get("/photo.jpg?w=100").expect(200).body == jpeg(640, 480, 0));
}

#[test]
fn a_site_with_files_may_keep_uploads_too() {
    let store = crate::support::readable_directory();
    let images = format!("[site.test.images]\nstore = {:?}\nroot = \".\"", store.path());
    let haulier = site(&images).file("index.html", "home").start();
    let id = upload(&haulier, &jpeg(64, 48, 0));
    assert_eq!(picture(haulier.get(&format!("/{id}?w=32"))), (Format::Jpeg, 32, 24));
    assert_eq!(haulier.get("/").expect(200).text(), "home");
    assert_eq!(picture(haulier.get("/photo.jpg?w=100")), (Format::Jpeg, 100, 75));
}

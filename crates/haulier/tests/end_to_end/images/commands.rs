//! `haulier image` and `haulier serve --images`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use haulier_image::Format;

use crate::support::client::Request;
use crate::support::haulier::Haulier;
use crate::support::images::{Images, Service, jpeg, md5, picture, png, seen, upload};
use crate::support::readable_directory;

fn image(arguments: &[&str]) -> Output {
    let mut command = Haulier::command();
    command
        .arg("image")
        .args(arguments)
        .env_remove("HAULIER_IMAGE_TOKEN")
        .env_remove("HAULIER_IMAGE_SIGN");
    command.output().expect("the binary starts")
}

#[track_caller]
fn done(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

#[track_caller]
fn failed(output: &Output, with: &str) {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(with), "{text}");
}

fn serve(directory: &Path) -> Haulier {
    let mut command = Haulier::command();
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--images"])
        .arg(directory);
    Haulier::start(command, Vec::new())
}

#[test]
fn images_are_put_looked_at_and_deleted() {
    let haulier = Images::new().with("token = \"the token\"").start();
    let to = format!("http://{}/", haulier.address());
    let directory = readable_directory();
    let (one, two) = (directory.path().join("one.jpg"), directory.path().join("two.bin"));
    fs::write(&one, jpeg(64, 48, 0)).expect("a file");
    fs::write(&two, png(20, 10)).expect("a file");
    let paths = [one.to_str().expect("text"), two.to_str().expect("text")];
    let told = done(&image(&["put", paths[0], paths[1], "--to", &to]));
    let id = md5(&jpeg(64, 48, 0));
    assert_eq!(told.lines().count(), 2);
    assert!(told.starts_with(&format!("{id}  {to}{id}\n")), "{told}");
    assert_eq!(picture(haulier.get(&format!("/{id}?w=32"))), (Format::Jpeg, 32, 24));
    let info = done(&image(&["info", &id, "--to", &to]));
    assert!(info.starts_with("JPEG, 64 × 48 pixels, "), "{info}");
    failed(&image(&["rm", &id, "--to", &to]), "takes the token");
    failed(
        &image(&["rm", &id, "--to", &to, "--token", "wrong"]),
        "not that of the site",
    );
    done(&image(&["rm", &id, "--to", &to, "--token", "the token"]));
    failed(&image(&["info", &id, "--to", &to]), "no such image");
    failed(
        &image(&["rm", &id, "--to", &to, "--token", "the token"]),
        "no such image",
    );
    fs::write(&one, "words").expect("a file");
    failed(&image(&["put", paths[0], "--to", &to]), "not an image");
    failed(
        &image(&["put", paths[1], "--to", "http://127.0.0.1:1/"]),
        "cannot connect",
    );
}

#[test]
fn addresses_are_written_and_signed() {
    let id = md5(b"x");
    let url = |arguments: &[&str]| done(&image(&[&["url", &id], arguments].concat()));
    assert_eq!(url(&[]), format!("http://127.0.0.1:4869/{id}\n"));
    assert_eq!(url(&["thumb"]), format!("http://127.0.0.1:4869/{id}?t=thumb\n"));
    let key = "a key with enough letters";
    let haulier = Images::new().with(&format!("sign = {key:?}")).start();
    let to = format!("http://{}/", haulier.address());
    let picture = jpeg(64, 48, 0);
    haulier
        .ask(&Request::post("/upload", picture.clone()).with("Content-Type", "image/jpeg"))
        .expect(201);
    let signed = done(&image(&[
        "url",
        &md5(&picture),
        "w=32",
        "--to",
        &to,
        "--sign",
        key,
        "--expires",
        "1h",
    ]));
    let target = signed
        .trim()
        .strip_prefix(to.trim_end_matches('/'))
        .expect("the service's");
    assert!(target.contains("&expires=") && target.contains("&s="), "{target}");
    assert_eq!(seen(&haulier.get(target).expect(200).body), (Format::Jpeg, 32, 24));
    haulier.get(&target.replace("w=32", "w=33")).expect(403);
}

/// A tree as zimg 3.2 leaves it.
fn zimg_tree(root: &Path, images: &[Vec<u8>]) {
    for image in images {
        let id = md5(image);
        let number = |digits: &str| u32::from_str_radix(digits, 16).expect("digits") / 4;
        let folder = root.join(format!("{}/{}/{id}", number(&id[..3]), number(&id[3..6])));
        fs::create_dir_all(&folder).expect("folders");
        fs::write(folder.join("0*0"), image).expect("the original");
        fs::write(folder.join("100*100_p1_g1_-1*-1_r0_q75.jpeg"), "a variant").expect("a variant");
    }
}

#[test]
fn the_images_of_a_zimg_are_taken_over_and_damaged_ones_are_named() {
    let directory = readable_directory();
    let (tree, store) = (directory.path().join("img"), directory.path().join("store"));
    let images: Vec<Vec<u8>> = (0..5).map(|seed| jpeg(40, 30, seed)).collect();
    zimg_tree(&tree, &images[..4]);
    let arguments = [
        "import",
        tree.to_str().expect("text"),
        "--into",
        store.to_str().expect("text"),
    ];
    let told = done(&image(&arguments));
    assert!(
        told.starts_with("4 images taken over") && told.contains("0 were there already, 0 left out"),
        "{told}"
    );
    zimg_tree(&tree, &images[4..]);
    let again = done(&image(&arguments));
    assert!(
        again.starts_with("1 images taken over") && again.contains("4 were there already"),
        "{again}"
    );
    let damaged = jpeg(40, 30, 9);
    zimg_tree(&tree, std::slice::from_ref(&damaged));
    let id = md5(&damaged);
    let found = Command::new("find")
        .arg(&tree)
        .args(["-path", &format!("*{id}/0[*]0")])
        .output()
        .expect("find");
    fs::write(String::from_utf8_lossy(&found.stdout).trim(), "cut").expect("the file");
    failed(&image(&arguments), "is not what its name says");
    failed(
        &image(&["import", "/var/empty/nothing", "--into", store.to_str().expect("text")]),
        "nothing",
    );
    let haulier = serve(&store);
    for image in &images {
        assert!(haulier.get(&format!("/{}?p=0", md5(image))).expect(200).body == *image);
    }
    haulier.get(&format!("/{id}?p=0")).expect(404);
}

#[test]
fn in_development_an_image_says_where_it_came_from_and_what_took_how_long() {
    let directory = readable_directory();
    let haulier = serve(&directory.path().join("store"));
    let id = upload(&haulier, &jpeg(640, 480, 0));
    let told = |target: &str| {
        let answer = haulier.get(target).expect(200);
        let value = answer.field("Server-Timing").expect("its times").to_owned();
        // The numbers are what they are.
        let names = value
            .split(", ")
            .map(|entry| entry.split(";dur=").next().expect("a name"));
        (names.collect::<Vec<_>>().join(" "), value)
    };
    let target = format!("/{id}?w=100");
    let (names, value) = told(&target);
    assert_eq!(names, "cache;desc=miss fetch queue decode resize encode", "{value}");
    assert_eq!(value.matches(";dur=").count(), 6, "{value}");
    for _ in 0..2 {
        assert_eq!(told(&target).1, "cache;desc=memory");
    }
    let original = format!("/{id}?p=0");
    assert_eq!(told(&original).0, "cache;desc=miss fetch");
    let missing = haulier.get(&format!("/{}?w=10", md5(b"nothing"))).expect(404);
    assert_eq!(missing.field("Server-Timing"), None);
    let production = Images::new().start();
    let id = upload(&production, &jpeg(64, 48, 0));
    let answer = production.get(&format!("/{id}?w=32")).expect(200);
    assert_eq!(answer.field("Server-Timing"), None);
}

#[test]
fn serve_keeps_images_in_a_directory_as_zimg_did() {
    let directory = readable_directory();
    let store = directory.path().join("pictures");
    let haulier = serve(&store);
    let picture = jpeg(64, 48, 0);
    let answer = haulier
        .ask(&Request::post("/upload", picture.clone()).with("Content-Type", "jpeg"))
        .expect(200);
    let id = md5(&picture);
    assert!(answer.text().contains(&id));
    let small = haulier.get(&format!("/{id}?w=32")).expect(200);
    assert_eq!(seen(&small.body), (Format::Jpeg, 32, 24));
    assert_eq!(small.field("Cache-Control"), Some("no-cache"));
    assert!(haulier.get("/").expect(200).text().contains("Drop a picture"));
    assert!(
        haulier
            .get(&format!("/admin?md5={id}&t=1"))
            .expect(200)
            .text()
            .contains("Successful")
    );
    drop(haulier);
    let haulier = serve(&store);
    haulier.get(&format!("/{id}?w=32")).expect(404);
}

#[test]
fn check_asks_the_stores() {
    let directory = readable_directory();
    let config = directory.path().join("haulier.toml");
    let check = |text: &str| {
        let text = format!("[server]\nhttp = \"127.0.0.1:0\"\nadmin = \"off\"\n{text}");
        fs::write(&config, text).expect("a file");
        let mut command = Haulier::command();
        command.arg("check").arg("--live").arg("-c").arg(&config);
        command.output().expect("the binary starts")
    };
    let good = check(&format!(
        "[site.img.images]\nstore = {:?}\n",
        directory.path().join("store")
    ));
    assert!(good.status.success(), "{good:?}");
    let table = "[store.bucket]\nendpoint = \"http://127.0.0.1:1\"\nregion = \"x\"\nkey = \"k\"\nsecret = \"s\"\n";
    let bad = check(&format!("[site.img.images]\nstore = \"s3://bucket\"\n{table}"));
    let told = String::from_utf8_lossy(&bad.stderr).into_owned() + &String::from_utf8_lossy(&bad.stdout);
    assert!(
        !bad.status.success() && told.contains("s3://bucket does not answer"),
        "{told}"
    );
    if let Some(s3) = Service::s3() {
        let good = check(&format!(
            "[site.img.images]\nstore = \"s3://bucket\"\n{}",
            s3.s3_table()
        ));
        assert!(good.status.success(), "{good:?}");
    }
}

#[test]
fn a_store_is_verified_and_mended_from_another_place() {
    let directory = readable_directory();
    let (store, backup) = (directory.path().join("store"), directory.path().join("backup"));
    let images: Vec<Vec<u8>> = (0..4).map(|seed| jpeg(40, 30, seed)).collect();
    let path = |root: &Path, image: &[u8]| {
        let id = md5(image);
        root.join(format!("{}/{}/{id}", &id[..2], &id[2..4]))
    };
    for root in [&store, &backup] {
        for image in &images {
            let path = path(root, image);
            fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
            fs::write(path, image).expect("a file");
        }
    }
    let (named, from) = (store.to_str().expect("text"), backup.to_str().expect("text"));
    let bytes: usize = images.iter().map(Vec::len).sum();
    let told = done(&image(&["verify", named]));
    assert_eq!(told, format!("{named}: 4 images compared ({bytes} bytes), 0 damaged\n"));
    fs::write(path(&store, &images[0]), "").expect("it is ours");
    fs::write(path(&store, &images[1]), &images[2]).expect("it is ours");
    // Nobody has it any more.
    fs::write(path(&backup, &images[1]), &images[2]).expect("it is ours");
    let output = image(&["verify", named]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let empty = format!("damaged {}: 0 bytes with the MD5 {}", md5(&images[0]), md5(b""));
    assert!(text.contains(&empty), "{text}");
    assert!(text.contains(&format!("damaged {}: ", md5(&images[1]))), "{text}");
    assert!(text.ends_with("2 damaged\n"), "{text}");
    assert!(fs::read(path(&store, &images[0])).expect("it stays").is_empty());
    let output = image(&["verify", named, "--repair", "--from", from]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "one could not be mended: {text}");
    assert!(text.contains(&format!("repaired {}: ", md5(&images[0]))), "{text}");
    assert!(text.ends_with("2 damaged, 1 repaired\n"), "{text}");
    assert!(fs::read(path(&store, &images[0])).expect("it is back") == images[0]);
    fs::write(path(&backup, &images[1]), &images[1]).expect("it is ours");
    let told = done(&image(&["verify", named, "--repair", "--from", from]));
    assert!(told.ends_with("1 damaged, 1 repaired\n"), "{told}");
    assert!(done(&image(&["verify", named])).ends_with("0 damaged\n"));
    failed(&image(&["verify", "/nowhere/at/all"]), "/nowhere/at/all: No such file");
}

#[test]
fn the_stores_of_a_configuration_mend_each_other() {
    let directory = readable_directory();
    let (one, two) = (directory.path().join("one"), directory.path().join("two"));
    let picture = jpeg(40, 30, 0);
    let id = md5(&picture);
    for (root, content) in [(&one, &b"rotten"[..]), (&two, &picture[..])] {
        let folder = root.join(format!("{}/{}", &id[..2], &id[2..4]));
        fs::create_dir_all(&folder).expect("folders");
        fs::write(folder.join(&id), content).expect("a file");
    }
    let config = directory.path().join("haulier.toml");
    let text = format!(
        "[site.a]\nhosts = [\"a.test\"]\nimages = {{ store = {one:?} }}\n\
         [site.b]\nhosts = [\"b.test\"]\nimages = {{ store = {two:?} }}\n"
    );
    fs::write(&config, text).expect("a file");
    let config = config.to_str().expect("text");
    let output = image(&["verify", "-c", config]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(text.matches("images compared").count(), 2, "{text}");
    assert!(done(&image(&["verify", "-c", config, "--site", "b"])).ends_with("0 damaged\n"));
    let told = done(&image(&["verify", "-c", config, "--repair"]));
    let place = two.display();
    assert!(
        told.contains(&format!(
            "repaired {id}: 6 bytes with the MD5 {}, now as in {place}",
            md5(b"rotten")
        )),
        "{told}"
    );
    failed(&image(&["verify", "-c", config, "--site", "c"]), "no site `c`");
}

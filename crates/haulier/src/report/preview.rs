use super::*;
#[test]
fn preview() {
    let dir = Path::new("/tmp/report-preview");
    std::fs::create_dir_all(dir).unwrap();
    let mut noise = samples::pair();
    noise.noise = Some(haulier_client::bench::result::Noise {
        target: 0,
        floor: [(haulier_client::bench::result::Metric::RequestsPerSecond, 1.02)].into(),
    });
    for (name, run) in [
        ("pair", noise),
        ("single", samples::single(5123.4)),
        ("many", samples::many(8)),
        ("sweep", samples::sweep()),
    ] {
        let book = Book::of_run(run);
        write(&book, &dir.join(format!("{name}.html"))).unwrap();
        write(&book, &dir.join(format!("{name}.json"))).unwrap();
        write(&book, &dir.join(format!("{name}.md"))).unwrap();
        std::fs::write(dir.join(format!("{name}.txt")), terminal::text(&book)).unwrap();
    }
}

//! Measures variants per second of CPU: `thumbnails WIDTH ROUNDS [OPTION=VALUE…] FILE…`, one line of JSON per file.
//!
//! All work happens in this process and on one thread, from memory to memory, for the comparison with other libraries.
//! `experiments/zimg/engine.py` runs it.

use std::process::ExitCode;

use haulier_image::{Defaults, Limits, Request, native, render};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [query, rounds, output, files @ ..] = &arguments[..] else {
        eprintln!("usage: thumbnails QUERY ROUNDS OUTPUT-DIRECTORY FILE…");
        return ExitCode::from(2);
    };
    match run(query, rounds, output, files) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(query: &str, rounds: &str, output: &str, files: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let Request::Transform(transform) = native::parse(query, &Defaults::default(), &[])? else {
        return Err("the query asks for no variant".into());
    };
    let limits = Limits {
        pixels: 100_000_000,
        ..Limits::default()
    };
    let rounds: u32 = rounds.parse()?;
    for file in files {
        let bytes = std::fs::read(file)?;
        let mut made = render(&bytes, &transform, &limits)?;
        let before = cpu();
        for _ in 0..rounds {
            made = render(&bytes, &transform, &limits)?;
        }
        let seconds = (cpu() - before) / f64::from(rounds);
        let name = std::path::Path::new(file)
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy();
        std::fs::write(format!("{output}/{name}.{}", made.format), &made.bytes)?;
        println!(
            "{{\"file\": {file:?}, \"cpu_ms\": {:.3}, \"bytes\": {}, \"read_us\": {}, \"steps_us\": {}, \"write_us\": {}}}",
            seconds * 1000.0,
            made.bytes.len(),
            made.times.read.as_micros(),
            made.times.steps.as_micros(),
            made.times.write.as_micros(),
        );
    }
    Ok(())
}

/// CPU time of this process, seconds.
fn cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

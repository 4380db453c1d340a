//! haulier: parse, run, exit code.

mod account;
mod admin;
mod announce;
mod app;
mod assemble;
mod cli;
mod command;
mod config;
mod images;
mod lifecycle;
mod log;
mod machine;
mod php_discovery;
mod port_holder;
mod prelude;
mod privileges;

use std::process::ExitCode;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Images are decoded in processes of our own program that give up all rights: nothing else may come before.
    if std::env::args_os().nth(1).is_some_and(|first| first == haulier_image::worker::SUBCOMMAND) {
        return haulier_image::worker::main();
    }
    command::run().into()
}

//! haulier: parse, run, exit code.

mod account;
mod admin;
mod announce;
mod app;
mod assemble;
mod certificates;
mod cli;
mod command;
mod config;
mod error_chain;
mod expiry;
mod images;
mod init;
mod leftovers;
mod lifecycle;
mod log;
mod machine;
mod outcome;
mod own_workers;
mod php_discovery;
mod port_holder;
mod prelude;
mod privileges;
mod purpose;
mod quantity;
mod sweeper;

use std::process::ExitCode;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Before the arguments are parsed: these processes start often and take none.
    let first = std::env::args_os().nth(1).unwrap_or_default();
    if first == haulier_image::worker::SUBCOMMAND {
        return haulier_image::worker::main();
    }
    if first == haulier_php::spawner::SUBCOMMAND {
        return haulier_php::spawner::main();
    }
    if first == sweeper::SUBCOMMAND {
        return sweeper::main();
    }
    command::run().into()
}

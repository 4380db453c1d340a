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
mod init;
mod lifecycle;
mod log;
mod machine;
mod markup;
mod php_discovery;
mod port_holder;
mod prelude;
mod privileges;
mod quantity;
#[allow(dead_code, reason = "the bench report draws with the rest of it")]
mod svg;

use std::process::ExitCode;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    command::run().into()
}

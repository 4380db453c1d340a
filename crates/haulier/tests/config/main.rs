//! Configurations, right and wrong, and the command line, through the real program.

mod broken;
mod command_line;
mod config_command;
mod docs;
mod other_php;
mod program;
mod shown;
mod tree;
mod understood;

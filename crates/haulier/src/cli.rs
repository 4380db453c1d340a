//! The argument grammar, and nothing else.

pub(crate) mod bench;
pub(crate) mod get;
pub(crate) mod image;
pub(crate) mod report;
#[cfg(test)]
mod shown;

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::listen_address;

/// Version, commit where the build knew it, and features.
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    env!("HAULIER_COMMIT"),
    env!("HAULIER_FEATURES")
);

/// Serves PHP sites over HTTP.
#[derive(Debug, Parser)]
#[command(name = "haulier", version = VERSION, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) console: Console,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// The amount and the colours of messages.
#[derive(Debug, Clone, Args)]
pub(crate) struct Console {
    /// Print no start lines, and no access log on standard error
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Print more; twice prints everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    pub(crate) verbose: u8,
    /// Use colours: on a terminal, always or never; NO_COLOR turns them off
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
}

/// The choice of colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Everywhere
    Always,
    /// Nowhere
    Never,
}

/// All commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a project without configuration (development)
    Serve(ServeArgs),
    /// Serve the sites of a configuration (production, foreground)
    Run(RunArgs),
    /// Check the configuration and the machine
    Check(CheckArgs),
    /// Show what the running haulier does
    Status(StatusArgs),
    /// Apply a changed configuration to the running haulier, without losing a request
    Reload(ReloadArgs),
    /// Stop the running haulier after its current requests
    Stop(StopArgs),
    /// Print the configuration in force, with the line that each value came from
    Config(ConfigArgs),
    /// Make the browsers of this machine trust the certificates of `serve --https`
    Trust(TrustArgs),
    /// Print completions for a shell
    Completions(CompletionsArgs),
    /// Write the manual pages, for a package
    #[command(hide = true)]
    Man(ManArgs),
    /// Download files: resume, verify, and use more connections where they help
    Get(Box<get::GetArgs>),
    /// Work with an image service: put, url, info, rm, import, verify
    Image(image::ImageArgs),
    /// Measure servers and compare them
    Bench(Box<bench::BenchArgs>),
}

/// Arguments of `serve`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServeArgs {
    /// The project directory [default: the current one]
    #[arg(value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Address to listen on [default: 127.0.0.1:8080, for images alone :4869, or the next free port]
    #[arg(short, long, value_name = "ADDR:PORT", value_parser = parse_listen)]
    pub(crate) listen: Option<SocketAddr>,
    /// Listen on every address of this machine
    #[arg(long)]
    pub(crate) public: bool,
    /// Serve HTTPS with a certificate of this machine's own authority (see `haulier trust`)
    #[arg(long)]
    pub(crate) https: bool,
    /// Number of PHP processes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) workers: Option<u64>,
    /// The php-cgi program
    #[arg(long, value_name = "PATH")]
    pub(crate) php: Option<PathBuf>,
    /// Keep this script booted between requests, without a name the one that the project is made for
    #[arg(long, value_name = "SCRIPT", num_args = 0..=1, conflicts_with = "no_worker")]
    #[expect(clippy::option_option, reason = "without the flag, without a script, with one")]
    pub(crate) worker: Option<Option<PathBuf>>,
    /// Boot the application for every request, even if the project is made to stay booted
    #[arg(long)]
    pub(crate) no_worker: bool,
    /// Type of the project, instead of detecting it
    #[arg(long, value_name = "NAME")]
    pub(crate) app: Option<String>,
    /// The document root
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Run an image service with its store in this directory; without a project directory nothing else is served
    #[arg(long, value_name = "DIR", conflicts_with = "write")]
    pub(crate) images: Option<PathBuf>,
    /// Open the page in a browser
    #[arg(long)]
    pub(crate) open: bool,
    /// Write the detected settings to a haulier.toml
    #[arg(long)]
    pub(crate) write: bool,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The configuration [default: ./haulier.toml, then /etc/haulier/haulier.toml]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Replace the haulier that serves now, without losing a request
    #[arg(long)]
    pub(crate) take_over: bool,
}

/// Arguments of `reload`.
#[derive(Debug, Args)]
pub(crate) struct ReloadArgs {
    /// Start fresh PHP workers in every pool, with an empty opcache
    #[arg(long)]
    pub(crate) php: bool,
    /// The control socket [default: that of the haulier running here]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

/// Arguments of `stop`.
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Close all connections at once
    #[arg(long)]
    pub(crate) now: bool,
    /// The control socket [default: that of the haulier running here]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The configuration [default: ./haulier.toml, then /etc/haulier/haulier.toml]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Also start or call every pool, and ask image stores and the certificate authority
    #[arg(long)]
    pub(crate) live: bool,
}

/// Arguments of `config`.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// The configuration [default: ./haulier.toml, then /etc/haulier/haulier.toml]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the JSON Schema of a configuration
    #[arg(long, conflicts_with_all = ["json", "config"])]
    pub(crate) schema: bool,
}

/// Arguments of `trust`.
#[derive(Debug, Args)]
pub(crate) struct TrustArgs {
    /// Remove the authority again
    #[arg(long, visible_alias = "uninstall")]
    pub(crate) undo: bool,
    /// Directory of the authority: `state` of `[tls]` [default: /var/lib/haulier as root, else ~/.local/state/haulier]
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Directory for haulier.1 and a page for each command
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

/// Arguments of `status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Update every second
    #[arg(long)]
    pub(crate) watch: bool,
    /// Print JSON for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// The control socket [default: that of the haulier running here]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

impl Console {
    /// Returns true if lines on standard output have colours.
    pub(crate) fn colors_stdout(&self) -> bool {
        self.colors(io::stdout().is_terminal())
    }

    /// Returns true if lines on standard error have colours.
    pub(crate) fn colors_stderr(&self) -> bool {
        self.colors(io::stderr().is_terminal())
    }

    fn colors(&self, terminal: bool) -> bool {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        match self.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => terminal && !refused,
        }
    }
}

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    listen_address::parse(text)
        .ok_or_else(|| "expected an address and a port, such as 127.0.0.1:8080 or :8080".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
    }
}

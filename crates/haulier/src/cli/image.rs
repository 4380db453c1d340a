//! Arguments of `haulier image`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use haulier_client::url::Url;
use haulier_settings::value;
use haulier_store::{Key, Location};

/// The default address of `haulier serve --images`.
const SERVICE: &str = "http://127.0.0.1:4869/";

/// Arguments of `image`.
#[derive(Debug, Args)]
pub(crate) struct ImageArgs {
    #[command(subcommand)]
    pub(crate) command: ImageCommand,
}

/// The commands for images.
#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Upload files, and print the id and the address of each
    Put(PutArgs),
    /// Print the address of an image or of a variant, signed if there is a key
    Url(UrlArgs),
    /// Print the format, size and quality of an image
    Info(InfoArgs),
    /// Delete images
    Rm(RmArgs),
    /// Import the images of a zimg 2 or 3; continues where it was stopped
    Import(ImportArgs),
    /// Compare every image of a store with its id; with --repair, replace damaged ones from other places
    Verify(VerifyArgs),
}

/// Arguments of `image put`.
#[derive(Debug, Args)]
pub(crate) struct PutArgs {
    /// JPEG, PNG, GIF, WebP
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) service: Service,
}

/// Arguments of `image url`.
#[derive(Debug, Args)]
pub(crate) struct UrlArgs {
    /// The id of the image
    #[arg(value_name = "ID", value_parser = parse_id)]
    pub(crate) id: Key,
    /// A query such as w=400&h=300&f=auto, or the name of a preset
    #[arg(value_name = "WANTED")]
    pub(crate) wanted: Option<String>,
    /// Key of signed addresses, the `sign` of the site
    #[arg(long, value_name = "KEY", env = "HAULIER_IMAGE_SIGN", hide_env_values = true)]
    pub(crate) sign: Option<String>,
    /// Lifetime of a signed address, such as 1h
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "sign")]
    pub(crate) expires: Option<Duration>,
    #[command(flatten)]
    pub(crate) service: Service,
}

/// Arguments of `image info`.
#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// The id of the image
    #[arg(value_name = "ID", value_parser = parse_id)]
    pub(crate) id: Key,
    #[command(flatten)]
    pub(crate) service: Service,
}

/// Arguments of `image rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The ids of the images
    #[arg(value_name = "ID", required = true, value_parser = parse_id)]
    pub(crate) ids: Vec<Key>,
    /// The `token` of the site
    #[arg(long, value_name = "TOKEN", env = "HAULIER_IMAGE_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    #[command(flatten)]
    pub(crate) service: Service,
}

/// Arguments of `image import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// zimg's `img_path`
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// The store to write to: a directory, s3://bucket/prefix, gs://… or az://…
    #[arg(long, value_name = "STORE", value_parser = parse_location)]
    pub(crate) into: Location,
}

/// Arguments of `image verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The store: a directory, s3://bucket/prefix, gs://… or az://… [default: the stores of the configuration]
    #[arg(value_name = "STORE", value_parser = parse_location, conflicts_with_all = ["config", "site"])]
    pub(crate) store: Option<Location>,
    /// The configuration [default: ./haulier.toml, then /etc/haulier/haulier.toml]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Only the store of this site
    #[arg(long, value_name = "NAME")]
    pub(crate) site: Option<String>,
    /// Replace damaged images by the right bytes from --from, from caches of originals, and from other stores of the
    /// configuration
    #[arg(long)]
    pub(crate) repair: bool,
    /// Another place that may have the right bytes, such as a backup; may be given several times
    #[arg(long, value_name = "STORE", value_parser = parse_location, requires = "repair")]
    pub(crate) from: Vec<Location>,
}

/// The service that the command talks to.
#[derive(Debug, Args)]
pub(crate) struct Service {
    /// Address of the image service
    #[arg(long = "to", value_name = "URL", default_value = SERVICE, value_parser = parse_url)]
    pub(crate) url: Url,
}

fn parse_url(text: &str) -> Result<Url, String> {
    Url::parse(text).map_err(|error| error.to_string())
}

fn parse_id(text: &str) -> Result<Key, String> {
    let is_id = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let key = text.to_ascii_lowercase().parse().ok();
    key.filter(|_| is_id)
        .ok_or_else(|| "an id is 32 hexadecimal digits".to_owned())
}

fn parse_time(text: &str) -> Result<Duration, String> {
    value::duration(text).ok_or_else(|| "expected a number and a unit, such as 30m or 1h".to_owned())
}

fn parse_location(text: &str) -> Result<Location, String> {
    text.parse()
        .map_err(|error: haulier_store::BadLocation| error.to_string())
}

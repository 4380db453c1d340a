//! `haulier image`: images of an image service, from the command line.

mod import;
mod service;
mod verify;

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use haulier_image::Format;
use haulier_store::Key;
use serde_json::Value;

use self::service::{Client, ServiceAnswer, ServiceError};
use crate::cli::Console;
use crate::cli::image::{ImageArgs, ImageCommand, InfoArgs, PutArgs, RmArgs, UrlArgs};
use crate::error_chain::with_sources;
use crate::outcome::CommandOutcome;

/// An error message of one line.
type CommandResult<T> = Result<T, String>;

pub(super) fn run(arguments: &ImageArgs, console: &Console) -> CommandOutcome {
    let done = match &arguments.command {
        ImageCommand::Put(arguments) => put(arguments),
        ImageCommand::Url(arguments) => url(arguments),
        ImageCommand::Info(arguments) => info(arguments),
        ImageCommand::Rm(arguments) => rm(arguments),
        ImageCommand::Import(arguments) => import::run(arguments),
        ImageCommand::Verify(arguments) => verify::run(arguments, console),
    };
    match done {
        Ok(true) => CommandOutcome::Done,
        Ok(false) => CommandOutcome::Failed,
        Err(why) => {
            eprintln!("error: {why}");
            CommandOutcome::Failed
        }
    }
}

/// Uploads all files, also after one was refused.
fn put(arguments: &PutArgs) -> CommandResult<bool> {
    let client = Client::new(&arguments.service.url)?;
    let mut is_complete = true;
    for file in &arguments.files {
        match put_one(&client, file) {
            Ok(id) => println!("{id}  {}", client.address(&format!("/{id}"))),
            Err(why) => {
                eprintln!("error: {}: {why}", file.display());
                is_complete = false;
            }
        }
    }
    Ok(is_complete)
}

fn put_one(client: &Client, file: &Path) -> CommandResult<String> {
    let content = fs::read(file).map_err(|error| error.to_string())?;
    let format = Format::of_bytes(&content).ok_or("not an image of a known format")?;
    let answer = client.post("/upload", format.media_type(), content).map_err(said)?;
    let told = answer.json().ok_or_else(|| unexpected(&answer))?;
    match told["info"]["md5"].as_str() {
        Some(id) if told["ret"] == Value::Bool(true) => Ok(id.to_owned()),
        _ => Err(refusal(&answer, &told)),
    }
}

fn url(arguments: &UrlArgs) -> CommandResult<bool> {
    let mut target = format!("/{}", arguments.id);
    let mut parts = Vec::new();
    if let Some(wanted) = &arguments.wanted {
        // A name alone is a preset.
        parts.push(match wanted.contains('=') {
            true => wanted.trim_start_matches('?').to_owned(),
            false => format!("t={wanted}"),
        });
    }
    if let Some(holds) = arguments.expires {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        parts.push(format!("expires={}", (now + holds).as_secs()));
    }
    if !parts.is_empty() {
        target = format!("{target}?{}", parts.join("&"));
    }
    if let Some(key) = &arguments.sign {
        target = haulier_server::sign(key.as_bytes(), &target);
    }
    let address = arguments.service.url.join(&target).map_err(|error| error.to_string())?;
    println!("{address}");
    Ok(true)
}

fn info(arguments: &InfoArgs) -> CommandResult<bool> {
    let client = Client::new(&arguments.service.url)?;
    let answer = client.get(&format!("/info?md5={}", arguments.id)).map_err(said)?;
    let told = answer.json().ok_or_else(|| unexpected(&answer))?;
    if told["ret"] != Value::Bool(true) {
        return Err(refusal(&answer, &told));
    }
    let info = &told["info"];
    let format = info["format"].as_str().unwrap_or("image");
    println!(
        "{format}, {} × {} pixels, {} bytes, quality {}",
        info["width"], info["height"], info["size"], info["quality"]
    );
    Ok(true)
}

fn rm(arguments: &RmArgs) -> CommandResult<bool> {
    let token = arguments
        .token
        .as_deref()
        .ok_or("deleting takes the token of the site: --token, or HAULIER_IMAGE_TOKEN")?;
    let client = Client::new(&arguments.service.url)?;
    let mut is_complete = true;
    for id in &arguments.ids {
        if let Err(why) = rm_one(&client, id, token) {
            eprintln!("error: {id}: {why}");
            is_complete = false;
        }
    }
    Ok(is_complete)
}

fn rm_one(client: &Client, id: &Key, token: &str) -> CommandResult<()> {
    let answer = client.delete(&format!("/{id}"), token).map_err(said)?;
    match answer.status {
        204 => Ok(()),
        401 => Err("the token is not that of the site".to_owned()),
        403 => Err("deleting is off: set `token` in the `images` of its site".to_owned()),
        404 => Err("there is no such image".to_owned()),
        status => Err(format!("the service answered {status}")),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn said(error: ServiceError) -> String {
    with_sources(&error)
}

fn unexpected(answer: &ServiceAnswer) -> String {
    format!("the answer ({}) is not that of an image service", answer.status)
}

fn refusal(answer: &ServiceAnswer, told: &Value) -> String {
    match told["error"]["message"].as_str() {
        Some(message) => message.trim_end_matches('.').to_owned(),
        None => unexpected(answer),
    }
}

//! Resolves `[site.NAME.sendfile]` and `[site.NAME.offload]`: downloads that leave PHP at once.

use std::path::{Path, PathBuf};

use haulier_server::{OffloadSettings, OffloadTable, SendfileSettings};
use haulier_settings::{Diagnostic, Pairs, Placed, Report};

use super::tables::SiteTable;

/// The directories of files that scripts may name: by default the project.
pub(super) fn sendfile(table: &SiteTable, project: Option<&Path>, report: &mut Report) -> SendfileSettings {
    let roots = match &table.sendfile.roots {
        Some(written) => written.iter().map(|root| directory(table, root, report)).collect(),
        None => project.map(Path::to_owned).into_iter().collect(),
    };
    let map = table.sendfile.map.as_ref().map(|pairs| map(table, pairs, report));
    SendfileSettings {
        roots,
        map: map.unwrap_or_default(),
    }
}

/// A missing directory is only a warning: an application may make it later.
fn directory(table: &SiteTable, written: &Placed<String>, report: &mut Report) -> PathBuf {
    let path = table.heading.directory.join(&written.value);
    if path.exists() && !path.is_dir() {
        let title = format!("sendfile root {} is a file", path.display());
        report.push(Diagnostic::error("sendfile::root", title).at(
            written.place.as_ref(),
            "expected a directory: files beneath it may be sent",
        ));
    } else if !path.is_dir() {
        let title = format!("sendfile root {} does not exist (yet?)", path.display());
        report.push(Diagnostic::warning("sendfile::root", title).at(written.place.as_ref(), "named here"));
    }
    std::path::absolute(&path).unwrap_or(path)
}

fn map(table: &SiteTable, pairs: &Pairs, report: &mut Report) -> Vec<(String, PathBuf)> {
    let mut map = Vec::new();
    for (prefix, written) in pairs {
        if !prefix.value.starts_with('/') {
            let title = format!("not a prefix of X-Accel-Redirect: \"{}\"", prefix.value);
            report.push(Diagnostic::error("config::value", title).at(
                prefix.place.as_ref(),
                "expected a path as in a URL, such as \"/protected/\"",
            ));
            continue;
        }
        map.push((prefix.value.clone(), directory(table, written, report)));
    }
    map
}

/// The bodies that are taken off PHP: none without types and extensions.
pub(super) fn offload(table: &OffloadTable, report: &mut Report) -> Option<OffloadSettings> {
    let types = table
        .types
        .iter()
        .flatten()
        .filter_map(|written| media_type(written, report))
        .collect();
    let extensions = table
        .extensions
        .iter()
        .flatten()
        .filter_map(|written| extension(written, report))
        .collect();
    if table.types.is_none() && table.extensions.is_none() {
        if let Some(min_size) = table.min_size.as_ref() {
            report.push(
                Diagnostic::warning("config::offload", "nothing is offloaded")
                    .at(min_size.place.as_ref(), "of no use alone")
                    .help("name what is: `types = [\"video/*\"]`, or `extensions = [\"zip\"]`"),
            );
        }
        return None;
    }
    let min_size = table.min_size.get();
    Some(OffloadSettings {
        types,
        extensions,
        min_size,
    })
}

fn media_type(written: &Placed<String>, report: &mut Report) -> Option<String> {
    let kind = written.value.trim().to_ascii_lowercase();
    let star = kind.find('*');
    let is_type = kind.contains('/')
        && !kind.contains([' ', ';', ','])
        && star.is_none_or(|at| kind.ends_with("/*") && at + 1 == kind.len());
    if !is_type {
        let title = format!("not a media type: \"{}\"", written.value);
        report.push(Diagnostic::error("config::value", title).at(
            written.place.as_ref(),
            "expected such as \"application/pdf\" or \"video/*\"",
        ));
        return None;
    }
    Some(kind)
}

/// The extension of `zip`, `.zip` and `*.zip`.
fn extension(written: &Placed<String>, report: &mut Report) -> Option<String> {
    let value = written
        .value
        .trim_start_matches('*')
        .trim_start_matches('.')
        .to_ascii_lowercase();
    if value.is_empty()
        || !value
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_+".contains(&byte))
    {
        let title = format!("not an extension: \"{}\"", written.value);
        report.push(
            Diagnostic::error("config::value", title).at(written.place.as_ref(), "expected such as \"zip\" or \"mp4\""),
        );
        return None;
    }
    if value.starts_with("php") || value == "phtml" {
        let title = format!("offload of \"{value}\" takes every page a script makes");
        report.push(
            Diagnostic::warning("config::offload", title)
                .at(
                    written.place.as_ref(),
                    "the extension of scripts, not of what they send",
                )
                .help("pages are not compressed then; `types = [\"video/*\"]` goes by what is sent"),
        );
    }
    Some(value)
}

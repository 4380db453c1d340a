//! What `[compress]` and `[site.NAME.compress]` mean: a site's word counts before the general one.

use std::ops::RangeInclusive;

use haulier_proto::accept::Coding;
use haulier_server::CompressSettings;
use haulier_settings::{Diagnostic, Placed, Report};

use super::tables::SiteCompressTable;
use super::value::value_or;

/// What a table says, where it says nothing as `general` does.
pub(super) fn resolve(table: &SiteCompressTable, general: &CompressSettings, report: &mut Report) -> CompressSettings {
    let [zstd, br, gzip] = general.explicit;
    CompressSettings {
        level: value_or(table.level.as_ref(), general.level),
        algorithms: match &table.algorithms {
            Some(names) => names.iter().filter_map(|name| coding(name, report)).collect(),
            None => general.algorithms.clone(),
        },
        min_size: value_or(table.min_size.as_ref(), general.min_size),
        types: match &table.types {
            Some(types) => Some(types.iter().filter_map(|one| media_type(one, report)).collect()),
            None => general.types.clone(),
        },
        explicit: [
            level("zstd", table.zstd.as_ref(), 1..=19, report).or(zstd),
            level("br", table.br.as_ref(), 0..=11, report).or(br),
            level("gzip", table.gzip.as_ref(), 1..=12, report).or(gzip),
        ],
        no_secrets: value_or(table.no_secrets.as_ref(), general.no_secrets),
    }
}

fn coding(name: &Placed<String>, report: &mut Report) -> Option<Coding> {
    let found = Coding::PLAIN.into_iter().find(|coding| coding.as_str() == name.value);
    if found.is_none() {
        let title = format!("not a content coding: \"{}\"", name.value);
        report.push(
            Diagnostic::error("config::value", title)
                .at(name.place.as_ref(), "expected \"zstd\", \"br\" or \"gzip\"")
                .help("to send everything as it is, write `level = \"off\"`"),
        );
    }
    found
}

/// A type, or a pattern with one star.
fn media_type(written: &Placed<String>, report: &mut Report) -> Option<String> {
    let text = written.value.trim().to_ascii_lowercase();
    let has_slash = text.contains('/') || text.starts_with("*+");
    if !has_slash || text.contains(';') || text.matches('*').count() > 1 || text.contains(' ') {
        let title = format!("not a media type: \"{}\"", written.value);
        report.push(Diagnostic::error("config::value", title).at(
            written.place.as_ref(),
            "expected a type such as \"text/html\", or with one star: \"text/*\", \"*+json\"",
        ));
        return None;
    }
    Some(text)
}

fn level(name: &str, written: Option<&Placed<u64>>, range: RangeInclusive<u8>, report: &mut Report) -> Option<u8> {
    let written = written?;
    let level = u8::try_from(written.value).ok().filter(|level| range.contains(level));
    if level.is_none() {
        let (least, most) = range.into_inner();
        let error = Diagnostic::error("config::value", format!("`{name}` must be between {least} and {most}"));
        let error = error.at(written.place.as_ref(), "no such level");
        report.push(if name == "zstd" {
            error.help("from level 20 on zstd asks for windows that browsers refuse (RFC 9659)")
        } else {
            error
        });
    }
    level
}

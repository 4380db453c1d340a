//! Resolves `[compress]` and `[site.NAME.compress]`: the setting of a site replaces the general one.

use std::ops::RangeInclusive;

use haulier_proto::accept::Coding;
use haulier_server::{CompressSettings, CompressTable, SiteCompressTable};
use haulier_settings::{Diagnostic, Placed, Report};

use super::value::value_or;

/// The general settings.
pub(super) fn resolve(table: &CompressTable, report: &mut Report) -> CompressSettings {
    let usual = CompressSettings::from(table);
    CompressSettings {
        algorithms: codings(table.algorithms.as_deref(), &usual, report),
        types: media_types(table.types.as_deref(), &usual, report),
        explicit: levels([&table.zstd, &table.br, &table.gzip], &usual, report),
        ..usual
    }
}

/// The settings of a site: its own, else the general ones.
pub(super) fn resolve_site(
    table: &SiteCompressTable,
    general: &CompressSettings,
    report: &mut Report,
) -> CompressSettings {
    CompressSettings {
        level: value_or(table.level.as_ref(), general.level),
        algorithms: codings(table.algorithms.as_deref(), general, report),
        min_size: value_or(table.min_size.as_ref(), general.min_size),
        types: media_types(table.types.as_deref(), general, report),
        explicit: levels([&table.zstd, &table.br, &table.gzip], general, report),
        no_secrets: value_or(table.no_secrets.as_ref(), general.no_secrets),
    }
}

fn codings(written: Option<&[Placed<String>]>, usual: &CompressSettings, report: &mut Report) -> Vec<Coding> {
    match written {
        Some(names) => names.iter().filter_map(|name| coding(name, report)).collect(),
        None => usual.algorithms.clone(),
    }
}

fn media_types(
    written: Option<&[Placed<String>]>,
    usual: &CompressSettings,
    report: &mut Report,
) -> Option<Vec<String>> {
    match written {
        Some(types) => Some(types.iter().filter_map(|one| media_type(one, report)).collect()),
        None => usual.types.clone(),
    }
}

fn levels(
    [zstd, br, gzip]: [&Option<Placed<u64>>; 3],
    usual: &CompressSettings,
    report: &mut Report,
) -> [Option<u8>; 3] {
    [
        level("zstd", zstd.as_ref(), 1..=19, report).or(usual.explicit[0]),
        level("br", br.as_ref(), 0..=11, report).or(usual.explicit[1]),
        level("gzip", gzip.as_ref(), 1..=12, report).or(usual.explicit[2]),
    ]
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

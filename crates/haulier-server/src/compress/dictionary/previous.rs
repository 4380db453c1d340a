//! Static files as dictionaries of their successors: `app.js` of the last deployment for that of the next.
//!
//! The server keeps a copy of the file it sent (`store`), and the client keeps it anyway. A client that sends its hash
//! receives only the difference. The content hash in a file name changes with every version, so the announced pattern
//! has a wildcard there.

use haulier_proto::dictionary;
use haulier_proto::field::Fields;

use crate::compress::site_coding::SiteCoding;
use crate::compress::store::MOST_DICTIONARY;
use crate::compress::vary::vary_by;

/// Least letters and digits of a content hash in a name.
const HASH: usize = 8;

/// Announces in the fields of a file that it is a dictionary of later versions, if it may be one. `path` is the
/// requested path, `name` that of the file: they differ for an index.
pub(crate) fn announce(site: &SiteCoding, path: &[u8], name: &[u8], size: u64, fields: &mut Fields) -> bool {
    let is_named = site
        .dictionary_files
        .iter()
        .any(|glob| glob.matches(path) || glob.matches(name));
    if !is_named || site.copies.is_none() || size > MOST_DICTIONARY {
        return false;
    }
    let Some(value) = std::str::from_utf8(path)
        .ok()
        // The path is decoded, and would have to be encoded again.
        .filter(|path| !path.contains('%'))
        .and_then(|path| dictionary::use_as(&versions(path), false))
    else {
        return false;
    };
    fields.set("Use-As-Dictionary", value);
    vary_by(fields, "Available-Dictionary");
    true
}

/// A pattern for the paths of all versions of a file: `/a/app.3f9ab12c.js` gives `/a/app.*.js`.
fn versions(path: &str) -> String {
    let (directory, name) = path.split_at(path.rfind('/').map_or(0, |at| at + 1));
    let extension = name.rfind('.').unwrap_or(name.len());
    let mut pattern = directory.to_owned();
    let mut begin = 0;
    let separators = name.match_indices(['.', '-']).map(|(at, _)| at);
    for end in separators.chain([name.len()]) {
        let part = &name[begin..end];
        // The first part identifies the file; without it the pattern would match any.
        let is_hash = begin > 0 && end <= extension && is_hash(part);
        pattern.push_str(if is_hash { "*" } else { part });
        pattern.push_str(name.get(end..=end).unwrap_or_default());
        begin = end + 1;
    }
    pattern
}

fn is_hash(part: &str) -> bool {
    part.len() >= HASH
        && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && part.bytes().any(|byte| byte.is_ascii_digit())
        && part.bytes().any(|byte| byte.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_replaces_the_hash_in_a_name() {
        for (path, pattern) in [
            ("/app.js", "/app.js"),
            ("/a/app.3f9ab12c.js", "/a/app.*.js"),
            ("/a/index-BxY12abc.css", "/a/index-*.css"),
            ("/a/main.a1b2c3d4e5.chunk.css", "/a/main.*.chunk.css"),
            ("/a1b2c3d4e5.js", "/a1b2c3d4e5.js"),
            ("/jquery-3.7.1.min.js", "/jquery-3.7.1.min.js"),
            ("/bootstrap-icons.css", "/bootstrap-icons.css"),
            ("/report-20260101.js", "/report-20260101.js"),
            ("/a1b2c3d4e5/style.css", "/a1b2c3d4e5/style.css"),
            ("/noextension", "/noextension"),
            ("/x.", "/x."),
        ] {
            assert_eq!(versions(path), pattern);
        }
    }
}

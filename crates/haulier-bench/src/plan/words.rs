//! Every setting of a plan, with default and description, as `config::words` has those of a configuration.

use haulier_settings::{Language, Table, word};

/// Plans of `haulier bench run`.
pub(super) static LANGUAGE: Language = Language {
    name: "plan",
    tables: TABLES,
    foreign: None,
};

pub(super) static TOP: Table = Table {
    name: "",
    words: &[
        word("plan", "", "Title, preparation and cores."),
        word("values", "", "Names of your own for `@NAME@`."),
        word(
            "server",
            "",
            "`[server.NAME]`: a server that is started, measured and ended.",
        ),
        word(
            "table",
            "",
            "`[[table]]`: one run of `haulier bench` over several servers.",
        ),
        word(
            "script",
            "",
            "`[[script]]`: a program of your own that measures and prints tables.",
        ),
    ],
};

pub(super) static PLAN: Table = Table {
    name: "plan",
    words: &[
        word("title", "the file's name", "The heading of the page."),
        word(
            "about",
            "\"\"",
            "The question and its reason; empty lines separate paragraphs.",
        ),
        word(
            "prepare",
            "[]",
            "Command lines that run before anything else, such as one that makes a document root.",
        ),
        word("env", "{}", "Environment of all processes."),
        word(
            "server_cores",
            "all",
            "The cores that servers may use, such as \"0\" or \"0-3,6\".",
        ),
        word("client_cores", "all", "The cores of the load generator and of scripts."),
        word(
            "versions",
            "{}",
            "Further programs that the report lists, and the command lines that print their versions.",
        ),
        word(
            "show",
            "all",
            "Columns of every `[[table]]` that does not choose its own.",
        ),
        word(
            "alone",
            "false",
            "Wait until no other plan with this setting runs on the machine.",
        ),
    ],
};

/// `[values]`: its names are the user's.
pub(super) static VALUES: Table = Table {
    name: "values",
    words: &[],
};

pub(super) static SERVER: Table = Table {
    name: "server.NAME",
    words: &[
        word("like", "none", "Another server, whose settings this one inherits."),
        word("about", "the name", "Its name in tables."),
        word(
            "needs",
            "[]",
            "Programs and files that it needs; if one is missing, the server is left out.",
        ),
        word(
            "run",
            "required",
            "Command lines, started in this order; they must stay in the foreground.",
        ),
        word("files", "{}", "Files in `@RUN@`, and their templates."),
        word(
            "append",
            "{}",
            "Templates that are appended to the file of the same name.",
        ),
        word("values", "{}", "Names of its own for `@NAME@`."),
        word("env", "{}", "Environment, in addition to that of the plan."),
        word(
            "url",
            "\"http://127.0.0.1:@PORT@\"",
            "Its address, to which paths are appended.",
        ),
        word(
            "ready",
            "the port takes connections",
            "A path that must answer with a status below 500.",
        ),
        word(
            "setup",
            "[]",
            "Command lines that run once it is ready and before it is measured, such as one that fills it.",
        ),
        word("patience", "\"15s\"", "Longest time to become ready, and to end."),
        word(
            "version",
            "none",
            "A command line whose first line of output is the version.",
        ),
    ],
};

pub(super) static TABLE: Table = Table {
    name: "[table]",
    words: &[
        word("title", "the flags", "The heading above the table."),
        word("about", "\"\"", "Paragraphs below the heading."),
        word("flags", "\"\"", "Flags of `haulier bench`."),
        word("path", "none", "The path that is requested from every server."),
        word("servers", "all", "The servers for `path`."),
        word("targets", "none", "Name → `SERVER/PATH`, in place of `path`."),
        word(
            "expect",
            "none",
            "Text that every answer must contain; a target without it is left out.",
        ),
        word(
            "body",
            "none",
            "File that every answer must equal; a target with another body is left out.",
        ),
        word(
            "show",
            "those of the plan",
            "Columns of the table, by the names of figures; `CPU/request ratio` is the first target's figure divided by that of the line.",
        ),
        word(
            "goals",
            "[]",
            "Goals of the first target, such as `CPU/request <= 0.75 of the best other` or `failed <= 0`.",
        ),
    ],
};

pub(super) static SCRIPT: Table = Table {
    name: "[script]",
    words: &[
        word("title", "the command", "The heading above its tables."),
        word("about", "\"\"", "Paragraphs below the heading."),
        word(
            "run",
            "required",
            "A command line: it reads JSON on standard input and writes JSON to standard output.",
        ),
        word(
            "servers",
            "[]",
            "Servers that run meanwhile; the script gets their addresses.",
        ),
        word("patience", "\"30m\"", "Longest time."),
    ],
};

/// All tables, in the order of the reference page.
pub(super) static TABLES: &[&Table] = &[&TOP, &PLAN, &VALUES, &SERVER, &TABLE, &SCRIPT];

#[cfg(test)]
mod tests {
    use super::*;
    use haulier_settings::Word;

    fn reference() -> String {
        let mut page = String::new();
        for table in TABLES
            .iter()
            .filter(|table| !table.words.is_empty() && !table.name.is_empty())
        {
            let header = "| Setting | Default | Meaning |\n|---|---|---|";
            page.push_str(&format!("### `[{}]`\n\n{header}\n", table.name));
            for word in table.words {
                page.push_str(&format!("| `{}` | {} | {} |\n", word.name, code(word), word.about));
            }
            page.push('\n');
        }
        page
    }

    /// Defaults that can be written as such are set as code.
    fn code(word: &Word) -> String {
        match word.default.starts_with(['"', '[', '{']) {
            true => format!("`{}`", word.default),
            false => word.default.to_owned(),
        }
    }

    #[test]
    fn the_reference_page_lists_exactly_these_settings() {
        let page = include_str!("../../../../docs/plans.md");
        let (_, rest) = page
            .split_once("<!-- reference -->\n\n")
            .expect("the page marks where its reference begins");
        let (written, _) = rest.split_once("<!-- end -->").expect("and where it ends");
        assert_eq!(
            written,
            reference(),
            "docs/plans.md and words.rs differ; the page should hold the text above"
        );
    }
}

//! Every setting of a plan, declared once.

use haulier_settings::declare::Declared;
use haulier_settings::{Language, SettingsTable, settings_table, word};

/// Plans of `haulier bench run`.
pub(super) static LANGUAGE: Language = Language {
    name: "plan",
    tables: TABLES,
    foreign: None,
};

pub(super) static TOP: SettingsTable = SettingsTable {
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

settings_table! {
    /// `[plan]`
    pub(super) struct PlanTable = "plan";

    /// The heading of the page.
    title: Text else "the file's name";
    /// The question and its reason; empty lines separate paragraphs.
    about: Text = "";
    /// Command lines that run before anything else, such as one that makes a document root.
    prepare: TextOrTexts = [];
    /// Environment of all processes.
    env: Pairs = {};
    /// The cores that servers may use, such as "0" or "0-3,6".
    server_cores: Text else "all";
    /// The cores of the load generator and of scripts.
    client_cores: Text else "all";
    /// Further programs that the report lists, and the command lines that print their versions.
    versions: Pairs = {};
    /// Columns of every `[[table]]` that does not choose its own.
    show: TextOrTexts else "all";
    /// Wait until no other plan with this setting runs on the machine.
    alone: Flag = false;
}

/// `[values]`: the names in it are the user's.
static VALUES: SettingsTable = SettingsTable {
    name: "values",
    words: &[],
};

settings_table! {
    /// `[server.NAME]`
    pub(super) struct ServerTable = "server.NAME";

    /// Another server, whose settings this one inherits.
    like: Text else "none";
    /// Its name in tables.
    about: Text else "the name";
    /// Programs and files that it needs; if one is missing, the server is left out.
    needs: TextOrTexts = [];
    /// Command lines, started in this order; they must stay in the foreground.
    run: TextOrTexts else "required";
    /// Files in `@RUN@`, and their templates.
    files: Pairs = {};
    /// Templates that are appended to the file of the same name.
    append: Pairs = {};
    /// Names of its own for `@NAME@`.
    values: Pairs = {};
    /// Environment, in addition to that of the plan.
    env: Pairs = {};
    /// Its address, to which paths are appended.
    url: Text = "http://127.0.0.1:@PORT@";
    /// A path that must answer with a status below 500.
    ready: Text else "the port takes connections";
    /// Command lines that run once it is ready and before it is measured, such as one that fills it.
    setup: TextOrTexts = [];
    /// Longest time to become ready, and to end.
    patience: Deadline = "15s";
    /// A command line whose first line of output is the version.
    version: Text else "none";
}

settings_table! {
    /// `[[table]]`
    pub(super) struct MeasuredTable = "[table]";

    /// The heading above the table.
    title: Text else "the flags";
    /// Paragraphs below the heading.
    about: Text = "";
    /// Flags of `haulier bench`.
    flags: Text = "";
    /// The path that is requested from every server.
    path: Text else "none";
    /// The servers for `path`.
    servers: TextOrTexts else "all";
    /// Name → `SERVER/PATH`, in place of `path`.
    targets: Pairs else "none";
    /// Text that every answer must contain; a target without it is left out.
    expect: Text else "none";
    /// File that every answer must equal; a target with another body is left out.
    body: Text else "none";
    /// Columns of the table, by the names of figures; `CPU/request ratio` is the first target's figure divided by
    /// that of the line.
    show: TextOrTexts else "those of the plan";
    /// Goals of the first target, such as `CPU/request <= 0.75 of the best other` or `failed <= 0`.
    goals: TextOrTexts = [];
}

settings_table! {
    /// `[[script]]`
    pub(super) struct ScriptTable = "[script]";

    /// The heading above its tables.
    title: Text else "the command";
    /// Paragraphs below the heading.
    about: Text = "";
    /// A command line: it reads JSON on standard input and writes JSON to standard output.
    run: Text else "required";
    /// Servers that run meanwhile; the script gets their addresses.
    servers: TextOrTexts = [];
    /// Longest time.
    patience: Deadline = "30m";
}

/// All tables, in the order of the reference page.
static TABLES: &[&SettingsTable] = &[
    &TOP,
    PlanTable::TABLE,
    &VALUES,
    ServerTable::TABLE,
    MeasuredTable::TABLE,
    ScriptTable::TABLE,
];

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
                page.push_str(&format!("| `{}` | {} | {} |\n", word.name, code(word), word.about()));
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
            "docs/plans.md and tables.rs differ; the page should hold the text above"
        );
    }
}

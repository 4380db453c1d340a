//! A plan as meant: parsed and checked before a server starts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use haulier_settings::reader::nearest;
use haulier_settings::{Diagnostic, Pairs, Placed, Report, SourceFile, SourcePlace, UnreadableFile};

use super::command_line::{self, CommandLine, CommandLineError};
use super::file::{self, File, PartTable};
use super::tables::{MeasuredTable, ScriptTable, ServerTable};
use super::template;
use crate::report::goal::{Goal, GoalError};
use crate::report::quantity::TableColumn;

/// Values for every text.
const EVERYWHERE: [&str; 9] = [
    "PLAN",
    "PLACE",
    "HAULIER",
    "USER",
    "CORES",
    "FDS",
    "CONNECTIONS",
    "PHP_CGI",
    "PHP_VERSION",
];
/// Further values for the texts of a server; names that begin with `PORT_` are further free ports.
const IN_A_SERVER: [&str; 2] = ["RUN", "PORT"];
/// `PORT_ADMIN` and the like.
pub(super) const FURTHER_PORT: &str = "PORT_";

/// A name of the user's with its text.
type Pair = (Placed<String>, Placed<String>);

/// A plan that can be run.
#[derive(Debug)]
pub struct Plan {
    pub path: PathBuf,
    pub title: String,
    /// Paragraphs.
    pub about: String,
    pub prepare: Vec<CommandLine>,
    pub values: Named,
    pub env: Named,
    pub servers: Vec<ServerPlan>,
    pub parts: Vec<PlanPart>,
    /// Empty for all.
    pub server_cores: Vec<usize>,
    pub client_cores: Vec<usize>,
    /// Names of programs, and the command lines that print their versions.
    pub versions: Vec<(String, CommandLine)>,
    /// True if no other such plan may run at the same time.
    pub is_alone: bool,
}

/// Checks flags of `haulier bench`, and returns a message on the mistake. The command line owns their grammar.
pub type FlagCheck = fn(&[String]) -> Result<(), String>;

/// Names with texts, in which `@NAME@` is not filled in yet.
pub type Named = Vec<(String, String)>;

/// A server to start.
#[derive(Debug)]
pub struct ServerPlan {
    pub name: String,
    pub about: String,
    pub needs: Vec<String>,
    pub run: Vec<CommandLine>,
    /// Names of files in `@RUN@`, and their templates.
    pub files: Named,
    pub values: Named,
    pub env: Named,
    pub url: String,
    pub ready: Option<String>,
    pub setup: Vec<CommandLine>,
    pub patience: Duration,
    pub version: Option<CommandLine>,
}

/// A section of the page, measured by a table or a script.
#[derive(Debug)]
pub enum PlanPart {
    Table(TablePlan),
    Script(ScriptPlan),
}

impl PlanPart {
    /// Its heading.
    pub fn title(&self) -> &str {
        match self {
            Self::Table(table) => &table.title,
            Self::Script(script) => &script.title,
        }
    }
}

/// One run of `haulier bench`.
#[derive(Debug)]
pub struct TablePlan {
    pub title: String,
    pub about: String,
    pub flags: Vec<String>,
    pub targets: Vec<TargetPlan>,
    pub expect: Option<String>,
    /// The file that every answer must equal.
    pub body: Option<String>,
    /// Columns of the table, by name; empty for all.
    pub show: Vec<String>,
    pub goals: Vec<Goal>,
}

/// A path of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetPlan {
    pub name: String,
    /// Index into the servers of the plan.
    pub server: usize,
    pub path: String,
}

/// A program that measures.
#[derive(Debug)]
pub struct ScriptPlan {
    pub title: String,
    pub about: String,
    pub run: CommandLine,
    /// Indices into the servers of the plan.
    pub servers: Vec<usize>,
    pub patience: Duration,
}

impl Plan {
    /// Reads and checks a plan and its templates. It may be run if `report` has no error.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn load(path: &Path, check: FlagCheck, report: &mut Report) -> Result<Self, UnreadableFile> {
        let file = file::load(path, report)?;
        Ok(Resolver::new(path, &file, check, report).plan())
    }
}

struct Resolver<'a> {
    path: &'a Path,
    file: &'a File,
    check: FlagCheck,
    report: &'a mut Report,
    /// Values for texts outside of servers.
    known: Vec<String>,
}

impl<'a> Resolver<'a> {
    fn new(path: &'a Path, file: &'a File, check: FlagCheck, report: &'a mut Report) -> Self {
        let known = EVERYWHERE.iter().map(|&name| name.to_owned()).collect();
        Self {
            path,
            file,
            check,
            report,
            known,
        }
    }

    fn plan(mut self) -> Plan {
        let file = self.file;
        let values = self.values(&file.values);
        self.known.extend(values.iter().map(|(name, _)| name.clone()));
        let env = self.named(listed(&file.plan.env), &[]);
        let tables: Vec<ServerTable> = file.servers.iter().map(|table| self.inherited(table)).collect();
        let servers = tables.iter().map(|table| self.server(table)).collect();
        self.columns(file.plan.show.as_deref().unwrap_or_default());
        let parts: Vec<PlanPart> = file.parts.iter().filter_map(|part| self.part(part)).collect();
        if parts.is_empty() && self.report.errors() == 0 {
            let error = Diagnostic::error("plan::required", "the plan measures nothing");
            self.report.push(error.help("add a `[[table]]` or a `[[script]]`"));
        }
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Plan {
            path: self.path.to_owned(),
            title: text_or(file.plan.title.as_ref(), stem),
            about: file.plan.about.get(),
            prepare: self.command_lines(file.plan.prepare.as_deref().unwrap_or_default(), &[]),
            values,
            env,
            servers,
            parts,
            server_cores: self.cores(file.plan.server_cores.as_ref()),
            client_cores: self.cores(file.plan.client_cores.as_ref()),
            versions: self.versions(listed(&file.plan.versions)),
            is_alone: file.plan.alone.get(),
        }
    }

    fn versions(&mut self, pairs: &[Pair]) -> Vec<(String, CommandLine)> {
        let command = |(name, line): &Pair| Some((name.value.clone(), self.command_line(line, &[])?));
        pairs.iter().filter_map(command).collect()
    }

    /// Checks `[values]`; each value may use those before it.
    fn values(&mut self, pairs: &[Pair]) -> Named {
        let mut own: Vec<String> = Vec::new();
        for (name, value) in pairs {
            let text = format!("@{}@", name.value);
            let is_name = template::names_in(&text)
                .next()
                .is_some_and(|(found, _)| found == name.value);
            if !is_name {
                let error = Diagnostic::error("config::name", format!("not a name for a value: `{}`", name.value));
                let error = error.at(name.place.as_ref(), "capitals, digits and `_`, beginning with a letter");
                self.report.push(error.help("it is used as `@NAME@`"));
            }
            let before: Vec<&str> = own.iter().map(String::as_str).collect();
            self.check_names(value, &before);
            own.push(name.value.clone());
        }
        plain(pairs)
    }

    fn named(&mut self, pairs: &[Pair], beside: &[&str]) -> Named {
        for (_, value) in pairs {
            self.check_names(value, beside);
        }
        plain(pairs)
    }

    /// Reports names without a value.
    fn check_names(&mut self, text: &Placed<String>, beside: &[&str]) {
        let unknown: Vec<String> = template::names_in(&text.value)
            .map(|(name, _)| name)
            .filter(|name| !self.knows(name, beside))
            .map(str::to_owned)
            .collect();
        for name in unknown {
            let error = Diagnostic::error("config::variable", format!("`@{name}@` has no value"));
            let label = self.meant(&name, beside);
            self.report
                .push(error.at(text.place.as_ref(), label).help("give it one in `[values]`"));
        }
    }

    fn knows(&self, name: &str, beside: &[&str]) -> bool {
        let further_port = name.starts_with(FURTHER_PORT) && beside.contains(&"PORT");
        further_port || beside.contains(&name) || self.known.iter().any(|known| known == name)
    }

    fn meant(&self, name: &str, beside: &[&str]) -> String {
        if IN_A_SERVER.contains(&name) && !beside.contains(&name) {
            return "only servers have this value".to_owned();
        }
        let known = self.known.iter().map(String::as_str).chain(beside.iter().copied());
        match nearest_value(name, known) {
            Some(near) => format!("did you mean `@{near}@`?"),
            None => "needed here".to_owned(),
        }
    }

    /// A server with the settings of the servers that it is `like`, except for their names.
    fn inherited(&mut self, table: &ServerTable) -> ServerTable {
        let (mut merged, mut line) = (table.clone(), vec![table.heading.name.value.clone()]);
        let mut next = table.like.clone();
        while let Some(like) = next.take() {
            let Some(base) = self
                .file
                .servers
                .iter()
                .find(|server| server.heading.name.value == like.value)
            else {
                self.no_such_server(&like);
                break;
            };
            if line.contains(&like.value) {
                let error = Diagnostic::error(
                    "config::value",
                    format!("server {} is `like` itself", table.heading.name.value),
                );
                self.report.push(error.at(like.place.as_ref(), "this closes the loop"));
                break;
            }
            line.push(like.value.clone());
            next.clone_from(&base.like);
            merged = merge(merged, base);
        }
        merged
    }

    fn no_such_server(&mut self, name: &Placed<String>) {
        let error = Diagnostic::error("plan::reference", format!("there is no server `{}`", name.value));
        let names: Vec<&str> = self
            .file
            .servers
            .iter()
            .map(|server| server.heading.name.value.as_str())
            .collect();
        let label = match nearest(&name.value, names.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "no such server".to_owned(),
        };
        let help = match names.is_empty() {
            true => "add a table `[server.NAME]`".to_owned(),
            false => format!("servers of this plan: {}", names.join(", ")),
        };
        self.report.push(error.at(name.place.as_ref(), label).help(help));
    }

    fn server(&mut self, table: &ServerTable) -> ServerPlan {
        let own: Vec<&str> = listed(&table.values)
            .iter()
            .map(|(name, _)| name.value.as_str())
            .collect();
        let beside: Vec<&str> = IN_A_SERVER.into_iter().chain(own.iter().copied()).collect();
        let run = self.command_lines(table.run.as_deref().unwrap_or_default(), &beside);
        if run.is_empty() && table.run.as_ref().is_none_or(Vec::is_empty) {
            let error = Diagnostic::error(
                "plan::required",
                format!("server {} has no `run`", table.heading.name.value),
            );
            self.report
                .push(error.at(table.heading.name.place.as_ref(), "it starts no program"));
        }
        let checked = table.url.iter().chain(&table.ready);
        for text in checked.chain(table.needs.iter().flatten()) {
            self.check_names(text, &beside);
        }
        if let Some(about) = &table.about {
            self.check_target_name(about);
        }
        ServerPlan {
            name: table.heading.name.value.clone(),
            about: text_or(table.about.as_ref(), table.heading.name.value.clone()),
            needs: table.needs.iter().flatten().map(|need| need.value.clone()).collect(),
            run,
            files: self.files(table, &beside),
            values: self.named(listed(&table.values), &beside),
            env: self.named(listed(&table.env), &beside),
            url: table.url.get(),
            ready: table.ready.as_ref().map(|path| path.value.clone()),
            setup: self.command_lines(table.setup.as_deref().unwrap_or_default(), &beside),
            patience: table.patience.get(),
            version: table.version.as_ref().and_then(|line| self.command_line(line, &beside)),
        }
    }

    fn files(&mut self, table: &ServerTable, beside: &[&str]) -> Named {
        let mut files = Named::new();
        for (name, template) in listed(&table.files) {
            if name.value.contains('/') || name.value.starts_with('.') || name.value.is_empty() {
                let error = Diagnostic::error("config::value", format!("not a name of a file: `{}`", name.value));
                self.report
                    .push(error.at(name.place.as_ref(), "it is a file in `@RUN@`"));
            }
            if let Some(text) = self.template(template, beside) {
                // The last one of a name counts: the server's own comes after the inherited ones.
                files.retain(|(known, _)| *known != name.value);
                files.push((name.value.clone(), text));
            }
        }
        for (name, template) in listed(&table.append) {
            let Some(more) = self.template(template, beside) else {
                continue;
            };
            match files.iter_mut().find(|(known, _)| *known == name.value) {
                Some((_, text)) => text.push_str(&more),
                None => {
                    let title = format!("server {} has no file `{}`", table.heading.name.value, name.value);
                    let error = Diagnostic::error("plan::reference", title);
                    self.report.push(error.at(name.place.as_ref(), "`files` must name it"));
                }
            }
        }
        files
    }

    /// Reads a template; reports unknown names with their places in it.
    fn template(&mut self, path: &Placed<String>, beside: &[&str]) -> Option<String> {
        let full = self.path.parent().unwrap_or(Path::new("")).join(&path.value);
        let text = match std::fs::read_to_string(&full) {
            Ok(text) => text,
            Err(error) => {
                let title = format!("cannot read {}: {error}", full.display());
                let error = Diagnostic::error("plan::unreadable", title).at(path.place.as_ref(), "named here");
                self.report.push(error.help("paths are relative to the plan"));
                return None;
            }
        };
        let unknown: Vec<_> = template::names_in(&text)
            .filter(|(name, _)| !self.knows(name, beside))
            .map(|(name, span)| (name.to_owned(), span))
            .collect();
        if !unknown.is_empty() {
            let source = self.report.sources.len();
            self.report.sources.push(SourceFile { path: full, text });
            for (name, span) in unknown {
                let error = Diagnostic::error("config::variable", format!("`@{name}@` has no value"));
                let label = self.meant(&name, beside);
                let error = error.at(Some(&SourcePlace { source, span }), label);
                let error = error.beside(path.place.as_ref(), "the template is used here");
                self.report
                    .push(error.help("give it one in `[values]`, or in `values` of the server"));
            }
            return None;
        }
        Some(text)
    }

    fn command_lines(&mut self, lines: &[Placed<String>], beside: &[&str]) -> Vec<CommandLine> {
        lines
            .iter()
            .filter_map(|line| self.command_line(line, beside))
            .collect()
    }

    fn command_line(&mut self, line: &Placed<String>, beside: &[&str]) -> Option<CommandLine> {
        self.check_names(line, beside);
        match CommandLine::parse(&line.value) {
            Ok(command) => Some(command),
            Err(why) => {
                self.not_a_command(line, why);
                None
            }
        }
    }

    fn not_a_command(&mut self, line: &Placed<String>, why: CommandLineError) {
        let error = Diagnostic::error("config::value", format!("not a command line: {why}"));
        self.report.push(error.at(
            line.place.as_ref(),
            "words are separated by blanks; quote a word that contains one",
        ));
    }

    fn part(&mut self, part: &PartTable) -> Option<PlanPart> {
        match part {
            PartTable::Table(table) => Some(PlanPart::Table(self.table(table))),
            PartTable::Script(script) => self.script(script).map(PlanPart::Script),
        }
    }

    fn table(&mut self, table: &MeasuredTable) -> TablePlan {
        let line = table.flags.get();
        let flags = match command_line::words(&line) {
            Ok(flags) => flags,
            Err(why) => {
                if let Some(flags) = &*table.flags {
                    self.not_a_command(flags, why);
                }
                Vec::new()
            }
        };
        self.check_flags(table.flags.as_ref(), &flags);
        if let Some(body) = &table.body {
            self.check_names(body, &[]);
        }
        let targets = self.targets(table);
        TablePlan {
            title: text_or(table.title.as_ref(), line),
            about: table.about.get(),
            flags,
            expect: table.expect.as_ref().map(|text| text.value.clone()),
            body: table.body.as_ref().map(|path| path.value.clone()),
            show: match &table.show {
                Some(own) => self.columns(own),
                None => plain_texts(self.file.plan.show.as_deref()),
            },
            goals: self.goals(table.goals.as_deref().unwrap_or_default(), &targets),
            targets,
        }
    }

    fn columns(&mut self, names: &[Placed<String>]) -> Vec<String> {
        for name in names.iter().filter(|name| TableColumn::find(&name.value).is_none()) {
            self.no_such_figure(name, &name.value);
        }
        plain_texts(Some(names))
    }

    fn no_such_figure(&mut self, at: &Placed<String>, written: &str) {
        let names = TableColumn::names();
        let error = Diagnostic::error("plan::reference", format!("there is no figure `{written}`"));
        self.report
            .push(match nearest(written, names.iter().map(String::as_str)) {
                Some(near) => error.at(at.place.as_ref(), format!("did you mean `{near}`?")),
                None => {
                    let error = error.at(at.place.as_ref(), "no such figure");
                    error.help(format!("figures: {}", names.join("; ")))
                }
            });
    }

    fn goals(&mut self, lines: &[Placed<String>], targets: &[TargetPlan]) -> Vec<Goal> {
        let mut goals = Vec::new();
        for line in lines {
            match Goal::parse(&line.value) {
                Ok(goal) => {
                    self.check_goal(line, &goal, targets);
                    goals.push(goal);
                }
                Err(GoalError::NoFigure(name)) => self.no_such_figure(line, &name),
                Err(why) => {
                    let error = Diagnostic::error("config::value", format!("not a goal: {why}"));
                    let label = "such as `failed <= 0`, `time, p99 <= 5 ms` or `CPU/request <= 0.75 of the best other`";
                    self.report.push(error.at(line.place.as_ref(), label));
                }
            }
        }
        goals
    }

    fn check_goal(&mut self, line: &Placed<String>, goal: &Goal, targets: &[TargetPlan]) {
        let Some(named) = goal.named_target() else { return };
        if targets.iter().any(|target| target.name == named) {
            return;
        }
        let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
        let error = Diagnostic::error("plan::reference", format!("this table has no target `{named}`"));
        let help = format!("targets of this table: {}", names.join(", "));
        self.report.push(
            error
                .at(line.place.as_ref(), "a goal compares targets of its table")
                .help(help),
        );
    }

    /// Reports mistakes in the flags.
    fn check_flags(&mut self, written: Option<&Placed<String>>, flags: &[String]) {
        if let Err(why) = (self.check)(flags) {
            let error =
                Diagnostic::error("plan::flags", why).at(written.and_then(|flags| flags.place.as_ref()), "these flags");
            self.report.push(error.help("`haulier bench --help` lists them"));
        }
    }

    fn targets(&mut self, table: &MeasuredTable) -> Vec<TargetPlan> {
        let targets = match (&table.path, &table.targets) {
            (Some(path), None) => self.targets_of_path(path, table.servers.as_deref()),
            (None, Some(pairs)) => pairs.iter().filter_map(|(name, at)| self.target(name, at)).collect(),
            (Some(path), Some(_)) => {
                let error = Diagnostic::error("config::value", "`path` and `targets` exclude each other");
                self.report.push(error.at(path.place.as_ref(), "leave out one of them"));
                return Vec::new();
            }
            (None, None) => {
                let error = Diagnostic::error("plan::required", "this table has neither `path` nor `targets`");
                self.report
                    .push(error.at(table.heading.name.place.as_ref(), "add `path` or `targets`"));
                return Vec::new();
            }
        };
        if let (Some(servers), Some(_)) = (
            table.servers.as_ref().and_then(|servers| servers.first()),
            &table.targets,
        ) {
            let error = Diagnostic::error("config::value", "`servers` belongs to `path`");
            self.report
                .push(error.at(servers.place.as_ref(), "`targets` names its servers itself"));
        }
        if targets.is_empty() && self.report.errors() == 0 {
            let error = Diagnostic::error("plan::required", "this table has no target");
            self.report
                .push(error.at(table.heading.name.place.as_ref(), "the plan has no server"));
        }
        targets
    }

    fn targets_of_path(&mut self, path: &Placed<String>, servers: Option<&[Placed<String>]>) -> Vec<TargetPlan> {
        self.check_path(path, &path.value);
        let indices = match servers {
            Some(names) => names.iter().filter_map(|name| self.find_server(name)).collect(),
            None => (0..self.file.servers.len()).collect::<Vec<_>>(),
        };
        let target = |server: usize| {
            let table = &self.file.servers[server];
            TargetPlan {
                name: text_or(table.about.as_ref(), table.heading.name.value.clone()),
                server,
                path: path.value.clone(),
            }
        };
        indices.into_iter().map(target).collect()
    }

    /// `SERVER/PATH`
    fn target(&mut self, name: &Placed<String>, at: &Placed<String>) -> Option<TargetPlan> {
        let (server, path) = match at.value.find('/') {
            Some(slash) => at.value.split_at(slash),
            None => (at.value.as_str(), ""),
        };
        self.check_path(at, path);
        self.check_target_name(name);
        Some(TargetPlan {
            name: name.value.clone(),
            server: self.find_server(&at.with(server.to_owned()))?,
            path: path.to_owned(),
        })
    }

    /// Checks a target's name, which becomes a part of `NAME=URL`.
    fn check_target_name(&mut self, name: &Placed<String>) {
        if name.value.is_empty() || name.value.contains(['=', ':', '/', '?']) {
            let error = Diagnostic::error("config::name", format!("not a name for a target: `{}`", name.value));
            self.report
                .push(error.at(name.place.as_ref(), "without `=`, `:`, `/` and `?`"));
        }
    }

    fn check_path(&mut self, at: &Placed<String>, path: &str) {
        if !path.starts_with('/') || path.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            let error = Diagnostic::error("config::value", format!("not a path: \"{}\"", at.value));
            self.report
                .push(error.at(at.place.as_ref(), "a path begins with `/` and has no blanks"));
        }
    }

    fn find_server(&mut self, name: &Placed<String>) -> Option<usize> {
        let found = self
            .file
            .servers
            .iter()
            .position(|server| server.heading.name.value == name.value);
        if found.is_none() {
            self.no_such_server(name);
        }
        found
    }

    fn script(&mut self, script: &ScriptTable) -> Option<ScriptPlan> {
        let Some(line) = &script.run else {
            let error = Diagnostic::error("plan::required", "this script has no `run`");
            self.report
                .push(error.at(script.heading.name.place.as_ref(), "add `run`"));
            return None;
        };
        let names = script.servers.iter().flatten();
        let servers = names.filter_map(|name| self.find_server(name)).collect();
        Some(ScriptPlan {
            title: text_or(script.title.as_ref(), line.value.clone()),
            about: script.about.get(),
            run: self.command_line(line, &[])?,
            servers,
            patience: script.patience.get(),
        })
    }

    /// `0-3,6`
    fn cores(&mut self, written: Option<&Placed<String>>) -> Vec<usize> {
        let Some(written) = written else { return Vec::new() };
        parse_cores(&written.value).unwrap_or_else(|| {
            let error = Diagnostic::error("config::value", format!("not a list of cores: \"{}\"", written.value));
            self.report
                .push(error.at(written.place.as_ref(), "such as \"0\" or \"0-3,6\""));
            Vec::new()
        })
    }
}

/// Settings of `table`, completed by those of `base`. Pairs of `table` come last, so that they win.
fn merge(table: ServerTable, base: &ServerTable) -> ServerTable {
    let base = base.clone();
    let both = |first: Option<Pairs>, then: Option<Pairs>| Some(first.into_iter().chain(then).flatten().collect());
    ServerTable {
        needs: table.needs.or(base.needs),
        run: table.run.or(base.run),
        files: both(base.files, table.files),
        append: both(base.append, table.append),
        values: both(base.values, table.values),
        env: both(base.env, table.env),
        url: if table.url.is_some() { table.url } else { base.url },
        ready: table.ready.or(base.ready),
        setup: table.setup.or(base.setup),
        patience: if table.patience.is_some() {
            table.patience
        } else {
            base.patience
        },
        version: table.version.or(base.version),
        heading: table.heading,
        about: table.about,
        like: table.like,
    }
}

/// The pairs of a table, none if it is not written.
fn listed(pairs: &Option<Pairs>) -> &[Pair] {
    pairs.as_deref().unwrap_or_default()
}

fn parse_cores(text: &str) -> Option<Vec<usize>> {
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= 1024 {
            return None;
        }
        cores.extend(first..=last);
    }
    Some(cores)
}

/// Like [`nearest`], for names in capitals.
fn nearest_value<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let known: Vec<&str> = known.collect();
    let lower: Vec<String> = known.iter().map(|name| name.to_ascii_lowercase()).collect();
    let near = nearest(name, lower.iter().map(String::as_str))?;
    known.into_iter().find(|name| name.eq_ignore_ascii_case(near))
}

fn text_or(written: Option<&Placed<String>>, default: String) -> String {
    written.map_or(default, |text| text.value.clone())
}

fn plain_texts(texts: Option<&[Placed<String>]>) -> Vec<String> {
    texts
        .unwrap_or_default()
        .iter()
        .map(|text| text.value.clone())
        .collect()
}

fn plain(pairs: &[Pair]) -> Named {
    let pair = |(name, value): &Pair| (name.value.clone(), value.value.clone());
    pairs.iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(files: &[(&str, &str)]) -> (Plan, Report) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).expect("the folder is ours");
        }
        let mut report = Report::default();
        let plan = Plan::load(&folder.path().join("plan.toml"), |_| Ok(()), &mut report).expect("it can be read");
        (plan, report)
    }

    #[track_caller]
    fn well(files: &[(&str, &str)]) -> Plan {
        let (plan, report) = load(files);
        assert_eq!(report.errors(), 0, "{}", report.render(false));
        plan
    }

    const TWO: &str = r#"
[values]
ROOT_DIR = "@PLACE@/docroot"
[server.base]
run = "nginx -c '@RUN@/nginx.conf'"
files = { "nginx.conf" = "nginx.conf" }
values = { MORE = "gzip off;" }
patience = "5s"
[server.zipped]
like = "base"
about = "nginx, gzip"
values = { MORE = "gzip on;" }
append = { "nginx.conf" = "more.conf" }
[[table]]
title = "all"
path = "/index.html"
flags = "-c 3 -H 'A: b'"
[[script]]
run = "python3 '@PLAN@/x.py'"
servers = "zipped"
[[table]]
targets = { "the second" = "zipped/a?b=c" }
"#;

    #[test]
    fn a_server_that_is_like_another_says_only_what_differs() {
        let plan = well(&[
            ("plan.toml", TWO),
            ("nginx.conf", "root @ROOT_DIR@; @MORE@ listen @PORT@ @PORT_TLS@;"),
            ("more.conf", "# @RUN@"),
        ]);
        let [base, zipped] = plan.servers.as_slice() else {
            panic!("two servers")
        };
        assert_eq!(base.about, "base");
        assert_eq!(zipped.about, "nginx, gzip");
        assert_eq!(zipped.patience, Duration::from_secs(5));
        assert_eq!(zipped.run[0].0, ["nginx", "-c", "@RUN@/nginx.conf"]);
        assert!(zipped.files[0].1.ends_with("listen @PORT@ @PORT_TLS@;# @RUN@"));
        assert_eq!(zipped.values.last().expect("its own comes last").1, "gzip on;");
    }

    #[test]
    fn parts_stay_in_the_order_of_the_file() {
        let plan = well(&[("plan.toml", TWO), ("nginx.conf", ""), ("more.conf", "")]);
        let [PlanPart::Table(first), PlanPart::Script(script), PlanPart::Table(last)] = plan.parts.as_slice() else {
            panic!("{:?}", plan.parts)
        };
        assert_eq!(plan.title, "plan");
        assert_eq!(first.flags, ["-c", "3", "-H", "A: b"]);
        assert_eq!(first.targets.len(), 2);
        assert_eq!(first.targets[1].name, "nginx, gzip");
        assert_eq!(script.servers, [1]);
        let target = &last.targets[0];
        assert_eq!(
            (target.name.as_str(), target.server, target.path.as_str()),
            ("the second", 1, "/a?b=c")
        );
    }

    #[test]
    fn lists_of_cores_have_ranges() {
        assert_eq!(parse_cores("0-2,5"), Some(vec![0, 1, 2, 5]));
        for wrong in ["", "a", "2-1", "0-", "99999"] {
            assert_eq!(parse_cores(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_circle_of_servers_ends() {
        let (_, report) = load(&[(
            "plan.toml",
            "[server.a]\nlike = \"b\"\n[server.b]\nlike = \"a\"\n[[table]]\npath = \"/\"\n",
        )]);
        assert!(report.render(false).contains("is `like` itself"));
    }
}

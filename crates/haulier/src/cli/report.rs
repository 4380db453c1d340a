//! Arguments of `haulier bench report` and `haulier bench run`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// The further commands of `bench`.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Show a stored run, or compare several
    Report(ReportArgs),
    /// Run plans: start servers, measure them, end them, write a report
    Run(PlanArgs),
}

/// Arguments of `bench report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Stored runs: JSON of `haulier bench`, or its reports; several are compared
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Write the report here: HTML, Markdown (.md) or JSON (.json), any number of them [default: text on standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Vec<PathBuf>,
    /// Title of the report
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,
}

/// Arguments of `bench run`.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Plans, as TOML; each becomes a page of the report
    #[arg(value_name = "PLAN.toml", required = true)]
    pub(crate) plans: Vec<PathBuf>,
    /// Write the report here: HTML, Markdown (.md) or JSON (.json), any number of them; text always goes to standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Vec<PathBuf>,
    /// Title of the report
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,
    /// Only parts whose title contains this
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Vec<String>,
    /// Rounds of every table, in place of the plan's number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: Option<u32>,
    /// Keep the figures in this file: parts that are not measured now stay as they are there
    #[arg(long, value_name = "FILE.json")]
    pub(crate) keep: Option<PathBuf>,
    /// Run everything once and short, to test the plan; the figures mean nothing
    #[arg(long, conflicts_with = "keep")]
    pub(crate) quick: bool,
    /// Only check the plans
    #[arg(long, conflicts_with_all = ["output", "only", "quick", "rounds", "keep"])]
    pub(crate) check: bool,
}

//! The first lines: findings in words, figures, and facts of the server.

use std::fmt::Write;
use std::time::Duration;

use haulier_php::WorkerActivity;

use super::time::time_of_day;
use crate::admin::state::CertificateState;
use crate::admin::view::{PoolView, View};
use crate::expiry::SOON;
use crate::quantity::{count, counted, rate, size, span};
use haulier_proto::text::Escaped;

/// Findings about the server, the worst first.
#[derive(Debug)]
pub(super) struct Judgement {
    findings: Vec<ServerFinding>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ServerFinding {
    grade: Grade,
    text: String,
    /// A second line; may be empty.
    detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Grade {
    /// Worth a look.
    Attention,
    /// Clients suffer.
    Trouble,
}

/// Findings shown below the first.
const SHOWN: usize = 6;
/// A shorter wait of the first request in a queue is not reported.
const SHORT_WAIT: Duration = Duration::from_secs(1);

/// Checks pools, failures, certificates and the spool.
pub(super) fn judge(view: &View) -> Judgement {
    let mut findings: Vec<ServerFinding> = view.pools.iter().flat_map(of_pool).collect();
    findings.extend(of_failures(view));
    findings.extend(view.state.certificates.iter().filter_map(of_certificate));
    if view.state.spool.full_total > 0 {
        let times = counted(view.state.spool.full_total, "response", "responses");
        let text = format!("The spool was full for {times}");
        findings.push(attention(text, "scripts had to wait for their clients"));
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.grade));
    Judgement { findings }
}

fn attention(text: String, detail: impl Into<String>) -> ServerFinding {
    ServerFinding {
        grade: Grade::Attention,
        text,
        detail: detail.into(),
    }
}

fn trouble(text: String, detail: impl Into<String>) -> ServerFinding {
    ServerFinding {
        grade: Grade::Trouble,
        ..attention(text, detail)
    }
}

fn of_pool(pool: &PoolView) -> Vec<ServerFinding> {
    let mut findings = Vec::new();
    let (name, status) = (&pool.name, &pool.status);
    if !status.load.is_live {
        findings.push(trouble(format!("{name}: no PHP process answers"), ""));
    } else if status.load.queued > 0 && status.load.busy >= status.load.capacity {
        let text = format!(
            "{name}: {} of {} busy, {} waiting for {}",
            status.load.busy,
            status.load.capacity,
            status.load.queued,
            span(status.load.longest_wait.as_secs_f64())
        );
        let longest = pool.workers.first().and_then(|worker| match &worker.work {
            WorkerActivity::Long(request, running) => {
                Some(format!("longest: {request}, {}", span(running.as_secs_f64())))
            }
            WorkerActivity::Short | WorkerActivity::Idle => None,
        });
        let grade = if status.load.longest_wait >= SHORT_WAIT {
            trouble
        } else {
            attention
        };
        findings.push(grade(text, longest.unwrap_or_default()));
    }
    if let (Some(script), Some(growth)) = (&pool.script, status.kept.growth)
        && status.kept.is_leak()
    {
        let (script, growth) = (script.display(), size(growth as f64));
        let text = format!("{name}: {script} keeps {growth} more with each request");
        findings.push(attention(text, "look for a list or a static variable that grows"));
    }
    let down = pool.servers.iter().filter(|server| !server.status.is_up);
    findings.extend(down.map(|server| attention(format!("{name}: {} does not answer", server.status.name), "")));
    findings
}

/// A certificate that ends soon: its renewal is overdue.
fn of_certificate(certificate: &CertificateState) -> Option<ServerFinding> {
    let grade = match certificate.left_s {
        Some(left) if left < 0.0 => trouble,
        Some(left) if left < SOON.as_secs_f64() => attention,
        Some(_) => return None,
        None => attention,
    };
    let text = format!("{}: certificate {}", certificate.site, certificate.in_words());
    Some(grade(text, String::new()))
}

fn of_failures(view: &View) -> Option<ServerFinding> {
    let all: u64 = view.state.sites.iter().map(|site| site.failed).sum();
    if all == 0 {
        return None;
    }
    let reasons: Vec<String> = view
        .failed
        .iter()
        .take(3)
        .map(|(reason, count)| format!("{reason} {count}"))
        .collect();
    let failed = counted(all, "request", "requests");
    Some(trouble(
        format!("{failed} failed in the last minute"),
        reasons.join(", "),
    ))
}

impl Judgement {
    /// The highest severity of the findings.
    pub(super) fn headline(&self) -> &str {
        self.findings.first().map_or("All well", |finding| &finding.text)
    }

    fn class(&self) -> &'static str {
        match self.findings.first().map(|finding| finding.grade) {
            None => "good",
            Some(Grade::Attention) => "warn",
            Some(Grade::Trouble) => "bad",
        }
    }
}

pub(super) fn section(view: &View, judgement: &Judgement) -> String {
    let state = &view.state;
    let mut out = format!(
        "<header id=\"facts\" data-live><p class=\"brand\">haulier on {}, {} UTC</p><h1 class=\"{}\">{}</h1>",
        Escaped(&view.machine),
        time_of_day(view.at),
        judgement.class(),
        Escaped(judgement.headline()),
    );
    if let Some((first, others)) = judgement.findings.split_first() {
        if !first.detail.is_empty() {
            let _ = write!(out, "<p>{}</p>", Escaped(&first.detail));
        }
        out.push_str(&list(others));
    }
    out.push_str(&figures(view));
    let config = state
        .config
        .as_ref()
        .map_or_else(|| "none".to_owned(), |path| path.display().to_string());
    let reloaded = state
        .reloaded_s
        .map_or_else(String::new, |seconds| format!(", reloaded {} ago", span(seconds)));
    let facts = [
        ("Version", state.version.clone()),
        ("Up", span(state.uptime_s)),
        ("Configuration", config + &reloaded),
        ("Listens on", state.listen.join(", ")),
        ("Process", state.pid.to_string()),
    ];
    out.push_str("<dl class=\"facts\">");
    for (name, value) in facts {
        let _ = write!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", Escaped(&value));
    }
    out.push_str("</dl></header>");
    out
}

fn list(findings: &[ServerFinding]) -> String {
    if findings.is_empty() {
        return String::new();
    }
    let items = findings.iter().take(SHOWN).map(|finding| {
        let separator = if finding.detail.is_empty() { "" } else { ": " };
        format!(
            "<li>{}{separator}{}</li>",
            Escaped(&finding.text),
            Escaped(&finding.detail)
        )
    });
    format!("<ul class=\"findings\">{}</ul>", items.collect::<String>())
}

/// The figures that people look for first.
fn figures(view: &View) -> String {
    let state = &view.state;
    let per_second: f64 = state.sites.iter().map(|site| site.requests_per_second).sum();
    let under_way: u64 = state.sites.iter().map(|site| site.in_flight).sum();
    let busy: usize = view.pools.iter().map(|pool| pool.status.load.busy).sum();
    let workers: usize = view.pools.iter().map(|pool| pool.status.load.capacity).sum();
    let mut figures = vec![
        (rate(per_second), "requests/s"),
        (count(under_way), "in progress"),
        (count(state.connections as u64), "connections"),
    ];
    if workers > 0 {
        figures.push((format!("{busy}/{workers}"), "PHP workers busy"));
    }
    figures.push((format!("{}/s", size(state.downloads.bytes_per_second)), "sent"));
    figures.push((span(view.saved_day.as_secs_f64()), "worker time saved"));
    let cells = figures
        .iter()
        .map(|(value, name)| format!("<div><dd>{}</dd><dt>{name}</dt></div>", Escaped(value)));
    format!("<dl class=\"figures\">{}</dl>", cells.collect::<String>())
}

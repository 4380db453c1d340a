//! External servers, certificates, and the sites with what was recognised there.

use haulier_php::{ExternalServer, FpmStatus};

use super::table::{TableColumn, table};
use crate::admin::state::CertificateState;
use crate::admin::view::View;
use crate::expiry::SOON;
use crate::quantity::{count, milliseconds, rate};
use haulier_proto::text::Escaped;

/// Sites shown; the others are in `/api/state.json`.
const SHOWN: usize = 12;

pub(super) fn section(view: &View) -> String {
    format!(
        "<section id=\"sites\" data-live><h2>Sites</h2>{}{}{}</section>",
        sites(view),
        certificates(view),
        servers(view)
    )
}

fn sites(view: &View) -> String {
    let columns = [
        TableColumn::Text("Site"),
        TableColumn::Number("Req/s"),
        TableColumn::WideNumber("Median"),
        TableColumn::Number("95 of 100"),
        TableColumn::Number("5xx/min"),
        TableColumn::WideNumber("PHP"),
        TableColumn::WideNumber("Static"),
        TableColumn::WideNumber("Handed"),
        TableColumn::WideNumber("All"),
    ];
    let rows = view.state.sites.iter().take(SHOWN).map(|site| {
        let share = |handlers: &[&str]| {
            if site.shares.is_empty() {
                return "–".to_owned();
            }
            let share: f64 = handlers.iter().filter_map(|handler| site.shares.get(*handler)).sum();
            format!("{:.0}%", share * 100.0)
        };
        let facts = view.sites.iter().find(|facts| facts.name == site.name);
        let facts = facts.map_or_else(String::new, |facts| {
            let hosts: Vec<&str> = facts
                .hosts
                .iter()
                .map(String::as_str)
                .filter(|host| *host != "*")
                .collect();
            let hosts = if hosts.is_empty() {
                "every host".to_owned()
            } else {
                hosts.join(", ")
            };
            let words = format!("{} · {hosts}", facts.what);
            format!("<span class=\"message\">{}</span>", Escaped(&words))
        });
        vec![
            format!("{}{facts}", Escaped(&site.name)),
            rate(site.requests_per_second),
            milliseconds(site.p50_ms),
            milliseconds(site.p95_ms),
            count(site.failed),
            share(&["php"]),
            share(&["static"]),
            share(&["handed", "offloaded"]),
            count(site.requests_total),
        ]
    });
    let table = table(
        "Rates of the last ten seconds, times and shares of the last minute",
        &columns,
        rows,
    );
    let more = view.state.sites.len().saturating_sub(SHOWN);
    if more > 0 {
        format!("{table}<p>and {more} more.</p>")
    } else {
        table
    }
}

/// Certificates, the first to end first.
fn certificates(view: &View) -> String {
    let mut all: Vec<&CertificateState> = view.state.certificates.iter().collect();
    if all.is_empty() {
        return String::new();
    }
    let left = |certificate: &CertificateState| certificate.left_s.unwrap_or(f64::NEG_INFINITY);
    all.sort_by(|a, b| left(a).total_cmp(&left(b)));
    let rows = all.iter().take(SHOWN).map(|certificate| {
        let class = match certificate.left_s {
            Some(left) if left >= SOON.as_secs_f64() => "up",
            _ => "down",
        };
        vec![
            Escaped(&certificate.site).to_string(),
            format!("<b class=\"{class}\">{}</b>", certificate.in_words()),
        ]
    });
    let columns = [TableColumn::Text("Site"), TableColumn::Text("Certificate")];
    let table = table("Of sites with TLS, the first to end first", &columns, rows);
    match all.len().saturating_sub(SHOWN) {
        0 => table,
        more => format!("{table}<p>and {more} more.</p>"),
    }
}

/// A number of a server's own status page, or a dash.
fn told(server: &ExternalServer, show: impl Fn(FpmStatus) -> String) -> String {
    server.told.map_or_else(|| "–".to_owned(), show)
}

fn servers(view: &View) -> String {
    let columns = [
        TableColumn::Text("Server"),
        TableColumn::Text("State"),
        TableColumn::Number("Busy"),
        TableColumn::Number("Connections"),
        TableColumn::WideNumber("To connect"),
        TableColumn::WideNumber("Its children"),
        TableColumn::Number("Its queue"),
    ];
    let servers = view
        .pools
        .iter()
        .flat_map(|pool| pool.servers.iter().map(move |server| (pool, server)));
    let rows: Vec<_> = servers
        .map(|(pool, server)| {
            let status = &server.status;
            let state = if status.is_up {
                "<b class=\"up\">up</b>"
            } else {
                "<b class=\"down\">down</b>"
            };
            let connect = status.connect_time.map_or_else(
                || "–".to_owned(),
                |time| format!("{:.1} ms", time.as_secs_f64() * 1000.0),
            );
            vec![
                format!("{} <small>{}</small>", Escaped(&status.name), Escaped(&pool.name)),
                state.to_owned(),
                status.busy.to_string(),
                status.connections.to_string(),
                connect,
                told(server, |told| format!("{} of {}", told.active, told.total)),
                told(server, |told| told.queued.to_string()),
            ]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    table("FastCGI servers that another program runs", &columns, rows)
}

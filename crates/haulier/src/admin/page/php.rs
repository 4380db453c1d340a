//! PHP pools: load over time, and the status of every worker.

use std::fmt::Write;

use haulier_php::{WorkerActivity, WorkerStatus};

use super::label::cut;
use super::table::legend;
use super::time::{Summary, time_axis};
use crate::admin::history::PoolSample;
use crate::admin::view::{PoolView, View};
use crate::quantity::{count, counted, size, span};
use haulier_charts::{Axis, Chart, Ink, Layer, stacked, swatch};
use haulier_proto::text::Escaped;

/// Workers shown one by one.
const CELLS: usize = 20;
/// Pools shown with a chart: each is some kilobytes of the page.
const CHARTS: usize = 4;

pub(super) fn section(view: &View) -> String {
    if view.pools.is_empty() {
        return String::new();
    }
    let mut out = "<section id=\"php\" data-live><h2>PHP</h2>".to_owned();
    if let Some(what) = &view.state.not_booted {
        let _ = write!(out, "<p><b>Not booted</b> {}</p>", Escaped(what));
    }
    for (number, pool) in view.pools.iter().enumerate() {
        let _ = write!(
            out,
            "<h3>Pool {}</h3><p>{}</p>",
            Escaped(&pool.name),
            Escaped(&in_words(pool))
        );
        if number < CHARTS {
            out.push_str(&chart(view, pool, number));
        }
        out.push_str(&cells(pool));
    }
    out.push_str("</section>");
    out
}

fn in_words(pool: &PoolView) -> String {
    let status = &pool.status;
    if !status.load.is_live {
        return "No PHP process answers.".to_owned();
    }
    let what = if pool.is_own { "workers" } else { "connections" };
    let waiting = match status.load.queued {
        0 => "no request waits".to_owned(),
        queued => format!(
            "{queued} waiting, the first for {}",
            span(status.load.longest_wait.as_secs_f64())
        ),
    };
    let mut words = format!(
        "{} of {} {what} busy, {waiting}",
        status.load.busy, status.load.capacity
    );
    if let Some(memory) = pool.memory.filter(|&memory| memory > 0) {
        let _ = write!(words, " · {} of memory", size(memory as f64));
    }
    if let Some(kept) = status.kept.bytes {
        let growth = status.kept.growth.filter(|&growth| growth > 0);
        let growth = growth.map_or_else(String::new, |growth| {
            format!(", {} more with each request", size(growth as f64))
        });
        let _ = write!(words, " · a worker keeps {}{growth}", size(kept as f64));
    }
    let _ = write!(words, " · {}", counted(status.counts.served, "request", "requests"));
    let ends = [
        (status.counts.recycled(), "recycled"),
        (status.counts.crashes, "crashed"),
        (status.counts.timeouts, "timed out"),
        (status.load.exhausted, "turned away"),
    ];
    for (number, what) in ends.into_iter().filter(|(number, _)| *number > 0) {
        let _ = write!(words, " · {} {what}", count(number));
    }
    words.push('.');
    words
}

fn chart(view: &View, pool: &PoolView, number: usize) -> String {
    let of = |value: fn(&PoolSample) -> f64| {
        view.points(|sample| {
            sample
                .pools
                .iter()
                .find(|known| *known.name == *pool.name)
                .map_or(f64::NAN, value)
        })
    };
    let (busy, queued) = (of(|pool| pool.busy), of(|pool| pool.queued as f64));
    let tops = stacked(&[busy.clone(), queued.clone()]);
    let workers = pool.status.load.capacity as f64;
    let y = Axis::fitted(tops[1].iter().map(|point| point.1), workers * 1.15, 4, |value| {
        format!("{value}")
    });
    let crashes = of(|pool| pool.crashes as f64);
    let marks = crashes.iter().filter(|point| point.1 > 0.0);
    let marks = marks.map(|&(x, crashes)| (x, counted(crashes as u64, "worker crashed", "workers crashed")));
    let (of_busy, of_queue) = (Summary::of(&busy), Summary::of(&queued));
    let described = format!(
        "On average {:.1} of {} workers busy, at most {:.1}; at most {} requests waiting.",
        of_busy.mean, pool.status.load.capacity, of_busy.most, of_queue.most
    );
    let svg = Chart::new(
        format!("pool-{number}"),
        format!("Busy workers and queue of {}", pool.name),
        time_axis(view.range),
        y,
    )
    .description(described)
    .with(Layer::area(Ink::Three, tops[1].clone()).tip("waiting"))
    .with(Layer::area(Ink::One, tops[0].clone()).tip("busy"))
    .with(Layer::rule(Ink::Muted, workers).tip(format!("{workers} workers")))
    .with(Layer::marks(Ink::Bad, marks.collect()))
    .render();
    let row = |ink, name: &str, now: usize, summary: &Summary| {
        let figures = [
            now.to_string(),
            format!("{:.1}", summary.mean),
            format!("{:.1}", summary.most),
        ];
        (swatch(ink, None), name.to_owned(), figures)
    };
    let legend = legend(
        &format!("Busy workers and queue of {}", pool.name),
        [
            row(Ink::One, "busy", pool.status.load.busy, &of_busy),
            row(Ink::Three, "waiting", pool.status.load.queued, &of_queue),
        ],
    );
    format!("<figure>{svg}{legend}</figure>")
}

fn cells(pool: &PoolView) -> String {
    let mut out = format!(
        "<ul class=\"workers\" aria-label=\"Workers of {}\">",
        Escaped(&pool.name)
    );
    for worker in pool.workers.iter().take(CELLS) {
        out.push_str(&cell(worker));
    }
    let shown = pool.workers.len().min(CELLS);
    if pool.workers.len() > shown {
        let _ = write!(out, "<li class=\"rest\">and {} more</li>", pool.workers.len() - shown);
    }
    let unused = pool.status.load.capacity.saturating_sub(pool.workers.len());
    if unused > 0 && pool.status.load.is_live {
        let _ = write!(out, "<li class=\"rest\">{unused} not needed yet</li>");
    }
    out.push_str("</ul>");
    out
}

fn cell(worker: &WorkerStatus) -> String {
    let (class, state, request) = match &worker.work {
        WorkerActivity::Long(label, running) => ("long", span(running.as_secs_f64()), label.as_str()),
        WorkerActivity::Short => ("short", "busy".to_owned(), ""),
        WorkerActivity::Idle => ("idle", "idle".to_owned(), ""),
    };
    let known = [
        worker.pid.map(|pid| format!("pid {pid}")),
        worker.memory.map(|memory| size(memory as f64)),
        worker.served.map(|served| counted(served, "request", "requests")),
    ];
    let known: Vec<String> = known.into_iter().flatten().collect();
    // Without its id, which would take too much room: the log has it.
    let request = request.split(" (req").next().unwrap_or_default();
    let request = if request.is_empty() {
        String::new()
    } else {
        format!("<code>{}</code>", Escaped(&cut(request)))
    };
    format!(
        "<li class=\"{class}\"><strong>{state}</strong>{request}<small>{}</small></li>",
        known.join(" · ")
    )
}

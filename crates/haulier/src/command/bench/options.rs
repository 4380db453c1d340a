//! The options of a run, from its arguments.

use std::fs;
use std::path::Path;

use haulier_bench::campaign::Options;
use haulier_bench::job::{Protocol, StopRule, TlsOptions};
use haulier_bench::mix::Mix;
use haulier_bench::mode::RunMode;
use haulier_bench::pacer::Spacing;
use haulier_bench::report::ab::{AbForm, TableAttributes};
use haulier_bench::target::{Target, Template};

use crate::cli::bench::{ArrivalsArg, BenchArgs, figures_url, of_target};
use crate::cli::get::HttpVersion;

/// Most requests of a timed run of ab.
const AB_MOST_IN_TIME: u64 = 50_000;

impl BenchArgs {
    /// The form of ab's text, if it is wanted.
    pub(super) fn ab_form(&self) -> Option<AbForm> {
        let text = |given: &Option<String>| given.clone().unwrap_or_default();
        self.ab.then(|| AbForm {
            html: self.html.then(|| TableAttributes {
                table: text(&self.table_attributes),
                row: text(&self.row_attributes),
                cell: text(&self.cell_attributes),
            }),
            is_quiet: self.quiet,
            without_percentiles: self.no_percentiles,
            without_confidence: self.no_confidence,
            verbosity: self.verbosity,
        })
    }

    /// # Errors
    /// A message on the argument or file that is wrong.
    pub(super) fn options(&self) -> Result<Options, String> {
        let seed = self.seed.unwrap_or_else(random);
        let targets = self.targets()?;
        let mix = self.mix(seed)?;
        let template = self.template()?;
        if template.http2 {
            self.check_http2(&targets)?;
        } else if self.streams.is_some() {
            return Err("--streams is for --http 2".to_owned());
        }
        let (count, duration) = self.limits()?;
        let connections = match (self.connections.is_empty(), self.ab) {
            (false, _) => self.connections.clone(),
            (true, true) => vec![1],
            (true, false) => vec![10],
        };
        Ok(Options {
            command: std::env::args().collect(),
            targets,
            connections,
            streams: self.streams.unwrap_or(Options::default().streams),
            threads: self.threads,
            count,
            duration,
            rate: self.rate.or(self.conn_rate),
            spacing: match self.arrivals {
                ArrivalsArg::Constant => Spacing::Constant,
                ArrivalsArg::Poisson => Spacing::Poisson,
            },
            ladder: self.ladder,
            rounds: self.rounds,
            slice: self.slice,
            warmup: self.warmup,
            aa: self.aa,
            template,
            timeout: self.timeout.or(self.patience).unwrap_or(Options::default().timeout),
            read_rate: self.read,
            send_rate: self.send,
            buffers: self.buffers,
            source: self.source,
            proxy: self.proxy.clone(),
            same_length: self.strict_length || (self.ab && !self.any_length),
            stop: match (self.ab, self.go_on, self.stop_on_error) {
                (true, true, _) => StopRule::Timeout,
                (true, false, _) => StopRule::SocketError,
                (false, _, true) => StopRule::Any,
                (false, _, false) => StopRule::Never,
            },
            mix,
            tls: self.tls(),
            seed,
            keep_times: self.gnuplot.is_some(),
            capture: self.ab || self.verbosity >= 2,
            keep_answers: self.ab && self.verbosity >= 2,
        })
    }

    /// The log of `replay LOG`.
    fn replayed(&self) -> Option<&str> {
        match self.words.as_slice() {
            [word, log] if word == "replay" => Some(log),
            _ => None,
        }
    }

    fn targets(&self) -> Result<Vec<Target>, String> {
        let given = match (self.replayed(), self.base.is_empty()) {
            (Some(_), true) => return Err("replay needs --base: where the requests go".to_owned()),
            (None, false) => return Err("--base is for replay".to_owned()),
            (Some(_), false) => &self.base,
            (None, true) => &self.words,
        };
        let read = |text: &String| Target::parse(text).map_err(|error| format!("{text}: {error}"));
        let mut targets: Vec<Target> = given.iter().map(read).collect::<Result<_, _>>()?;
        if self.ab && targets.len() > 1 {
            return Err("ab: wrong number of arguments".to_owned());
        }
        for (place, target) in targets.iter().enumerate() {
            if targets[..place].iter().any(|before| before.name == target.name) {
                return Err(format!(
                    "two targets are called {}: give them names, NAME=URL",
                    target.name
                ));
            }
        }
        self.watch(&mut targets)?;
        Ok(targets)
    }

    /// A value without a target's name is for all of them.
    fn watch(&self, targets: &mut [Target]) -> Result<(), String> {
        for text in &self.pid {
            let (place, pid) = of_target(text, targets);
            let pid: u32 = pid.parse().map_err(|_| format!("{text}: expected a process number"))?;
            for target in chosen(targets, place) {
                target.watch.pids.push(pid);
            }
        }
        for text in &self.unit {
            let (place, unit) = of_target(text, targets);
            let unit = unit.to_owned();
            for target in chosen(targets, place) {
                target.watch.unit = Some(unit.clone());
            }
        }
        for text in &self.metrics {
            let (place, url) = of_target(text, targets);
            let url = figures_url(url)?;
            for target in chosen(targets, place) {
                target.watch.metrics = Some(url.clone());
            }
        }
        Ok(())
    }

    fn mix(&self, seed: u64) -> Result<Option<Mix>, String> {
        if let Some(log) = self.replayed() {
            let text = read(Path::new(log))?;
            let (mix, left_out) =
                Mix::replay(&text, self.speed, self.all_methods).map_err(|error| format!("{log}: {error}"))?;
            if left_out > 0 {
                eprintln!("{left_out} lines of {log} were left out: no requests, or methods that may change something");
            }
            return Ok(Some(mix));
        }
        let Some(path) = &self.urls else { return Ok(None) };
        let mix = Mix::parse(&read(path)?, seed).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Some(mix))
    }

    fn template(&self) -> Result<Template, String> {
        let file = |path: &Path| fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()));
        let (method, body) = match (&self.post, &self.put, &self.body) {
            (Some(path), ..) => ("POST", Some(file(path)?)),
            (_, Some(path), _) => ("PUT", Some(file(path)?)),
            (.., Some(text)) => match text.strip_prefix('@') {
                Some(path) => ("POST", Some(file(Path::new(path))?)),
                None => ("POST", Some(text.clone().into_bytes())),
            },
            _ if self.head => ("HEAD", None),
            _ => ("GET", None),
        };
        let method = self.method.as_deref().unwrap_or(method);
        if !method
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
            || method.is_empty()
        {
            return Err(format!("`{method}` is no method"));
        }
        let mut fields = self.fields.clone();
        if !self.cookies.is_empty() {
            fields.push(("Cookie".to_owned(), self.cookies.join("; ")));
        }
        Ok(Template {
            method: method.to_owned(),
            fields,
            body,
            content_type: self.content_type.clone(),
            accept: self.accept.clone(),
            user: self.user.clone(),
            proxy_user: self.proxy_user.clone(),
            through_proxy: self.proxy.is_some(),
            keep_alive: if self.ab {
                self.keepalive
            } else {
                !self.no_keepalive && self.conn_rate.is_none()
            },
            mode: if self.ab { &RunMode::AB } else { &RunMode::HAULIER },
            http2: self.http == Some(HttpVersion::Two),
        })
    }

    /// Refuses arguments that exclude HTTP/2.
    fn check_http2(&self, targets: &[Target]) -> Result<(), String> {
        let is_plain = |target: &Target| target.address.tls_name().is_none();
        let wrong = if self.ab {
            "ab has no HTTP/2"
        } else if self.read.is_some() || self.send.is_some() {
            "--read and --send exclude --http 2: slow readers and senders use HTTP/1"
        } else if self.framing_check {
            "--framing-check excludes --http 2, which needs no end of a connection"
        } else if self.proxy.is_some() && targets.iter().any(is_plain) {
            "through a proxy HTTP/2 needs https"
        } else if targets
            .iter()
            .any(|target| target.address.protocol(true) == Protocol::FastCgi)
        {
            "FastCGI excludes --http 2"
        } else if self.no_keepalive && self.streams.is_some_and(|streams| streams > 1) {
            "--streams excludes --no-keepalive: a connection for each request has one stream"
        } else {
            return Ok(());
        };
        Err(wrong.to_owned())
    }

    fn limits(&self) -> Result<(Option<u64>, Option<std::time::Duration>), String> {
        let duration = self.time.or(self.duration);
        if !self.ab {
            return Ok((self.requests, duration));
        }
        let default = if duration.is_some() { AB_MOST_IN_TIME } else { 1 };
        let count = self.requests.unwrap_or(default);
        let connections = self.connections.first().copied().unwrap_or(1);
        if u64::from(connections) > count {
            return Err("ab: Cannot use concurrency level greater than total number of requests".to_owned());
        }
        Ok((Some(count), duration))
    }

    fn tls(&self) -> TlsOptions {
        let ciphers = self.ciphers.as_deref().unwrap_or_default();
        TlsOptions {
            server_name: String::new(),
            insecure: self.insecure || self.ab,
            no_sni: self.no_sni,
            version: self.tls_version.clone(),
            ciphers: ciphers
                .split(':')
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
            certificate: self.certificate.clone(),
        }
    }
}

fn chosen(targets: &mut [Target], place: Option<usize>) -> &mut [Target] {
    match place {
        Some(place) => &mut targets[place..=place],
        None => targets,
    }
}

fn read(path: &Path) -> Result<String, String> {
    let bytes = fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A seed for this run. It is printed, so that the run can be repeated.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    // Short enough to be typed again.
    RandomState::new().hash_one(0) >> 32
}

//! The load of the machine in three steps: costly coding is skipped when processors are short.
//!
//! The kernel reports how long tasks waited for a processor (`/proc/pressure/cpu`); otherwise, how many are runnable
//! (`/proc/loadavg`). The thresholds have hysteresis, so that the step does not flap.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::lock::lock;

/// The load of the machine's processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CpuLoad {
    Idle,
    Busy,
    Overloaded,
}

impl CpuLoad {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Overloaded => "overloaded",
        }
    }

    /// The step after this one, for the share of time in which a task waited for a processor (0 to 1).
    fn next(self, pressure: f64) -> Self {
        let up = match pressure {
            p if p > 0.85 => Self::Overloaded,
            p if p > 0.50 => Self::Busy,
            _ => Self::Idle,
        };
        let hold = match self {
            Self::Overloaded if pressure > 0.65 => Self::Overloaded,
            Self::Overloaded | Self::Busy if pressure > 0.30 => Self::Busy,
            _ => Self::Idle,
        };
        up.max(hold)
    }
}

/// Interval between readings.
const INTERVAL: Duration = Duration::from_secs(1);

/// The present load. One thread reads the kernel's figures once a second; all others read the stored step.
pub(crate) fn now(at: Instant) -> CpuLoad {
    static METER: OnceLock<Meter> = OnceLock::new();
    METER.get_or_init(|| Meter::new(at)).at(at)
}

#[derive(Debug)]
struct Meter {
    begun: Instant,
    /// Milliseconds after `begun` of the next reading.
    due: AtomicU64,
    step: AtomicU8,
    asking: AtomicBool,
    source: Mutex<LoadSource>,
}

impl Meter {
    fn new(at: Instant) -> Self {
        Self {
            begun: at,
            due: AtomicU64::new(0),
            step: AtomicU8::new(0),
            asking: AtomicBool::new(false),
            source: Mutex::new(LoadSource::open()),
        }
    }

    fn at(&self, at: Instant) -> CpuLoad {
        let elapsed = at.saturating_duration_since(self.begun).as_millis() as u64;
        if elapsed >= self.due.load(Ordering::Relaxed) && !self.asking.swap(true, Ordering::Acquire) {
            let pressure = lock(&self.source).pressure(at);
            let next = self.step().next(pressure);
            self.step.store(next as u8, Ordering::Relaxed);
            self.due.store(elapsed + INTERVAL.as_millis() as u64, Ordering::Relaxed);
            self.asking.store(false, Ordering::Release);
        }
        self.step()
    }

    fn step(&self) -> CpuLoad {
        match self.step.load(Ordering::Relaxed) {
            0 => CpuLoad::Idle,
            1 => CpuLoad::Busy,
            _ => CpuLoad::Overloaded,
        }
    }
}

/// Origin of the figures.
#[derive(Debug)]
enum LoadSource {
    /// Total waiting time at the last reading, microseconds.
    Pressure {
        file: File,
        last: Option<(Instant, u64)>,
    },
    LoadAverage {
        file: File,
        processors: f64,
    },
    None,
}

impl LoadSource {
    fn open() -> Self {
        // Opening is not enough: some kernels have the file but return an error on read.
        if let Ok(file) = File::open("/proc/pressure/cpu")
            && read(&file).is_some_and(|text| waited(&text).is_some())
        {
            return Self::Pressure { file, last: None };
        }
        match File::open("/proc/loadavg") {
            Ok(file) => Self::LoadAverage {
                file,
                processors: std::thread::available_parallelism().map_or(1, usize::from) as f64,
            },
            Err(_) => Self::None,
        }
    }

    /// The share of time in which a task waited for a processor since the last reading, 0 to 1.
    fn pressure(&mut self, at: Instant) -> f64 {
        match self {
            Self::Pressure { file, last } => {
                let Some(total) = read(file).and_then(|text| waited(&text)) else {
                    return 0.0;
                };
                let since = last.replace((at, total));
                since.map_or(0.0, |(then, before)| {
                    let span = at.saturating_duration_since(then).as_micros().max(1) as f64;
                    (total.saturating_sub(before) as f64 / span).min(1.0)
                })
            }
            Self::LoadAverage { file, processors } => {
                let wanting = read(file).and_then(|text| running(&text)).unwrap_or(0.0);
                // Tasks beyond the number of processors wait: at twice their number each waits half the time.
                ((wanting - *processors) / *processors).clamp(0.0, 1.0)
            }
            Self::None => 0.0,
        }
    }
}

fn read(file: &File) -> Option<String> {
    let mut buffer = [0; 256];
    let length = file.read_at(&mut buffer, 0).ok()?;
    Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

/// `some avg10=0.12 avg60=0.05 avg300=0.01 total=123456`
fn waited(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.rsplit_once("total=")?.1.trim().parse().ok()
}

/// `0.20 0.18 0.12 3/80 11206`: the number of runnable tasks is the 3.
fn running(text: &str) -> Option<f64> {
    text.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_go_up_at_once_and_come_down_late() {
        let rows = [
            (CpuLoad::Idle, 0.0, CpuLoad::Idle),
            (CpuLoad::Idle, 0.4, CpuLoad::Idle),
            (CpuLoad::Idle, 0.6, CpuLoad::Busy),
            (CpuLoad::Idle, 0.9, CpuLoad::Overloaded),
            (CpuLoad::Busy, 0.4, CpuLoad::Busy),
            (CpuLoad::Busy, 0.2, CpuLoad::Idle),
            (CpuLoad::Busy, 0.7, CpuLoad::Busy),
            (CpuLoad::Busy, 0.9, CpuLoad::Overloaded),
            (CpuLoad::Overloaded, 0.7, CpuLoad::Overloaded),
            (CpuLoad::Overloaded, 0.6, CpuLoad::Busy),
            (CpuLoad::Overloaded, 0.1, CpuLoad::Idle),
        ];
        for (before, pressure, after) in rows {
            assert_eq!(before.next(pressure), after, "{before:?} at {pressure}");
        }
    }

    #[test]
    fn the_figures_of_the_kernel_are_parsed() {
        let text = "some avg10=0.12 avg60=0.05 avg300=0.01 total=123456\nfull avg10=0.00 total=7\n";
        assert_eq!(waited(text), Some(123_456));
        assert_eq!(waited(""), None);
        assert_eq!(running("0.20 0.18 0.12 3/80 11206\n"), Some(3.0));
        assert_eq!(running("0.20"), None);
    }

    #[test]
    fn the_kernel_is_asked_once_an_interval() {
        let begun = crate::clock::now();
        let meter = Meter::new(begun);
        meter.at(begun);
        let due = meter.due.load(Ordering::Relaxed);
        meter.at(begun + INTERVAL / 2);
        assert_eq!(meter.due.load(Ordering::Relaxed), due);
        meter.at(begun + INTERVAL * 2);
        assert!(meter.due.load(Ordering::Relaxed) > due);
    }
}

//! Scripts that continue after `fastcgi_finish_request()` under php-cgi.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::time::Sleep;

use crate::fastcgi_exchange::FastCgiExchange;
use crate::lease::Lease;
use crate::stderr::log_late_stderr;

thread_local! {
    /// Cloned by every script of this thread that continues after its response.
    static SCRIPTS: RefCell<Arc<()>> = RefCell::default();
}

/// Number of scripts of this thread that continue after their responses. They end with the thread's runtime.
pub fn background_scripts() -> usize {
    SCRIPTS.with_borrow(|scripts| Arc::strong_count(scripts) - 1)
}

/// A script that continues after its response. Its further output is dropped, and its worker is free when it ends.
#[derive(Debug)]
pub(crate) struct BackgroundScript {
    exchange: FastCgiExchange,
    /// `None` once the worker was given back.
    lease: Option<Lease>,
    label: String,
    begun: Instant,
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    _counted: Arc<()>,
}

impl BackgroundScript {
    /// Runs the rest of a script on the current runtime.
    pub(crate) fn start(exchange: FastCgiExchange, mut lease: Lease, label: String) {
        lease.list(|| label.clone());
        let script = Self {
            exchange,
            limit: lease.timeout(),
            lease: Some(lease),
            label,
            begun: Instant::now(),
            timer: None,
            _counted: SCRIPTS.with_borrow(Arc::clone),
        };
        tokio::spawn(script);
    }

    /// Ready once the script has used its time. The clock is checked too, since a script that writes all the time keeps
    /// the timer from being polled.
    fn poll_limit(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.begun.elapsed() >= self.limit {
            return Poll::Ready(());
        }
        let left = self.limit.saturating_sub(self.begun.elapsed());
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(left)));
        timer.as_mut().poll(cx)
    }
}

impl Future for BackgroundScript {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        while let Some(lease) = &this.lease {
            let step = this.exchange.poll_step(cx, lease.connection(), None);
            let is_over = matches!(step, Poll::Ready(Err(_))) || this.exchange.is_complete();
            if !is_over && (step.is_pending() || this.begun.elapsed() >= this.limit) {
                ready!(this.poll_limit(cx));
            } else if !is_over {
                continue;
            }
            let (lease, stderr) = (
                this.lease.take().expect("it was there above"),
                this.exchange.take_stderr(),
            );
            match step {
                Poll::Ready(Err(failure)) => _ = lease.give_up(failure, &stderr, &this.label),
                _ if is_over => {
                    log_late_stderr(lease.pid(), &this.label, &stderr);
                    lease.finish(&this.exchange);
                }
                _ => _ = lease.time_out_in_background(this.limit, &stderr, &this.label),
            }
        }
        Poll::Ready(())
    }
}

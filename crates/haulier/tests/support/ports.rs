//! Ports for programs that cannot choose one themselves.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// A port that nobody listens on. It lies below those that the system gives to whoever wants any, so that it stays free
/// while other tests run.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id() % 120 * 100; // programs started one after the other begin apart
    let mut ports = (0..12_000).map(|_| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        (20_000 + (first + number) % 12_000) as u16
    });
    ports
        .find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        .expect("a free port")
}

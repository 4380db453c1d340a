//! The log of slow requests, with the process of each, what it waits for, and the calls of its script.
//!
//! /proc shows the system call that a process is in, and its file or connection. Without the permission to read that,
//! the log names the kernel function, or the process state.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use haulier_proto::text::is_unseen;

use crate::running::RunningRequest;
use crate::settings::Slow;
use crate::shared_pool::SharedPool;
use crate::shown_duration::ShownDuration;
use crate::trace::Trace;

/// Logs every request that has become slow since the last call.
pub(crate) fn log_new(shared: &SharedPool, slow: &Slow) {
    for request in shared.running.take_slow(slow.after) {
        shared.count(|counts| counts.slow += 1);
        let waits_for = request.pid.map_or_else(|| "unknown".to_owned(), activity);
        let trace = shared.trace(request.pid, &request.label);
        let (pool, pid, label) = (shared.settings.name.as_str(), request.pid, request.label.as_str());
        let Some(path) = &slow.log else {
            let (after, trace) = (
                ShownDuration(request.running),
                trace.as_ref().map(tracing::field::display),
            );
            tracing::warn!(pool, pid, %after, request = label, waits_for, trace, "slow request");
            continue;
        };
        if let Err(error) = append(path, &line(pool, &request, &waits_for, trace.as_ref())) {
            tracing::error!(pool, %error, path = %path.display(), "the log of slow requests cannot be written");
        }
    }
}

/// Appends to the file, which is opened for each line, so it may be rotated at any time.
fn append(path: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)?
        .write_all(line.as_bytes())
}

/// One JSON object with a line end.
fn line(pool: &str, request: &RunningRequest, waits_for: &str, trace: Option<&Trace>) -> String {
    let trace = trace.map_or_else(String::new, |trace| {
        let calls: Vec<String> = trace.calls().iter().map(|call| quoted(call)).collect();
        format!(",\"trace\":[{}]", calls.join(","))
    });
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!(
        "{{\"time\":{}.{:03},\"pool\":{},\"pid\":{},\"after_ms\":{},\"request\":{},\"waits_for\":{}{trace}}}\n",
        time.as_secs(),
        time.subsec_millis(),
        quoted(pool),
        request.pid.map_or_else(|| "null".to_owned(), |pid| pid.to_string()),
        request.running.as_millis(),
        quoted(&request.label),
        quoted(waits_for),
    )
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            _ if is_unseen(letter) => {
                for unit in letter.encode_utf16(&mut [0; 2]) {
                    quoted.push_str(&format!("\\u{unit:04x}"));
                }
            }
            _ => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// The activity of a process: computing, or the system call it waits in: `recvfrom on 127.0.0.1:3306`.
fn activity(pid: u32) -> String {
    match state(pid) {
        None => return "gone".to_owned(),
        Some('R') => return "computing".to_owned(),
        Some(_) => {}
    }
    system_call(pid)
        .or_else(|| kernel_function(pid))
        .unwrap_or_else(|| "unknown".to_owned())
}

fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold any character.
    stat.rsplit(')').next()?.trim_start().chars().next()
}

fn kernel_function(pid: u32) -> Option<String> {
    let function = fs::read_to_string(format!("/proc/{pid}/wchan")).ok()?;
    Some(function).filter(|function| !function.is_empty() && function != "0")
}

/// The system call of a process with its file or connection, if the system lets us read that.
fn system_call(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/syscall")).ok()?;
    let mut words = text.split_ascii_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    let argument = words
        .next()
        .and_then(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok())?;
    let (name, about) = known_call(number).unwrap_or(("", FirstArgument::Nothing));
    let descriptor = match about {
        FirstArgument::Descriptor => i32::try_from(argument).ok(),
        FirstArgument::PollList => first_polled(pid, argument),
        FirstArgument::Nothing => None,
    };
    let name = if name.is_empty() {
        format!("system call {number}")
    } else {
        name.to_owned()
    };
    match descriptor.and_then(|descriptor| target(pid, descriptor)) {
        Some(target) => Some(format!("{name} on {target}")),
        None => Some(name),
    }
}

/// The meaning of a system call's first argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstArgument {
    Descriptor,
    /// The address of `struct pollfd`.
    PollList,
    Nothing,
}

/// Name and first argument of the system calls in which PHP waits.
fn known_call(number: i64) -> Option<(&'static str, FirstArgument)> {
    const CALLS: [(i64, &str, FirstArgument); 18] = [
        (libc::SYS_read, "read", FirstArgument::Descriptor),
        (libc::SYS_write, "write", FirstArgument::Descriptor),
        (libc::SYS_pread64, "pread", FirstArgument::Descriptor),
        (libc::SYS_recvfrom, "recvfrom", FirstArgument::Descriptor),
        (libc::SYS_recvmsg, "recvmsg", FirstArgument::Descriptor),
        (libc::SYS_sendto, "sendto", FirstArgument::Descriptor),
        (libc::SYS_connect, "connect", FirstArgument::Descriptor),
        (libc::SYS_accept, "accept", FirstArgument::Descriptor),
        (libc::SYS_flock, "flock", FirstArgument::Descriptor),
        (libc::SYS_fcntl, "fcntl", FirstArgument::Descriptor),
        (libc::SYS_fsync, "fsync", FirstArgument::Descriptor),
        (libc::SYS_fdatasync, "fdatasync", FirstArgument::Descriptor),
        (libc::SYS_ppoll, "poll", FirstArgument::PollList),
        (libc::SYS_pselect6, "select", FirstArgument::Nothing),
        (libc::SYS_futex, "futex", FirstArgument::Nothing),
        (libc::SYS_wait4, "wait for a process", FirstArgument::Nothing),
        (libc::SYS_clock_nanosleep, "sleep", FirstArgument::Nothing),
        (libc::SYS_nanosleep, "sleep", FirstArgument::Nothing),
    ];
    // Not on every architecture.
    #[cfg(target_arch = "x86_64")]
    match number {
        libc::SYS_poll => return Some(("poll", FirstArgument::PollList)),
        libc::SYS_select => return Some(("select", FirstArgument::Nothing)),
        _ => {}
    }
    let call = CALLS.iter().find(|(known, _, _)| *known == number)?;
    Some((call.1, call.2))
}

/// The first descriptor in the list that a process polls.
fn first_polled(pid: u32, address: u64) -> Option<i32> {
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let mut descriptor = [0; 4];
    memory.read_exact_at(&mut descriptor, address).ok()?;
    Some(i32::from_ne_bytes(descriptor))
}

/// The file of a descriptor, or the other end of a TCP connection.
fn target(pid: u32, descriptor: i32) -> Option<String> {
    let link = fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).ok()?;
    let link = link.to_string_lossy().into_owned();
    let inode = link.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
    let Some(inode) = inode else { return Some(link) };
    let remote = ["tcp", "tcp6"].iter().find_map(|table| {
        let table = fs::read_to_string(format!("/proc/{pid}/net/{table}")).ok()?;
        remote_end(&table, inode)
    });
    Some(remote.unwrap_or(link))
}

/// The remote address of the socket with this inode, from /proc/net/tcp or tcp6.
fn remote_end(table: &str, inode: &str) -> Option<String> {
    let row = table
        .lines()
        .skip(1)
        .map(|row| row.split_ascii_whitespace().collect::<Vec<_>>())
        .find(|row| row.get(9) == Some(&inode))?;
    let (address, port) = row[2].split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    // Words of 32 bits, each in the byte order of the machine.
    let mut bytes = Vec::new();
    for word in address.as_bytes().chunks(8) {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    if let Ok(four) = <[u8; 4]>::try_from(bytes.as_slice()) {
        return Some(format!("{}:{port}", std::net::Ipv4Addr::from(four)));
    }
    let sixteen = <[u8; 16]>::try_from(bytes.as_slice()).ok()?;
    Some(format!("[{}]:{port}", std::net::Ipv6Addr::from(sixteen)))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_line_is_json_with_any_character_in_the_request() {
        let request = RunningRequest {
            label: "GET /a\"b\\c\n".into(),
            running: Duration::from_millis(1500),
            pid: Some(7),
            served: 0,
        };
        let line = line("shop", &request, "sleep", None);
        assert!(
            line.ends_with(
                "\"pool\":\"shop\",\"pid\":7,\"after_ms\":1500,\"request\":\"GET /a\\\"b\\\\c\\u000a\",\
                 \"waits_for\":\"sleep\"}\n"
            ),
            "{line}"
        );
    }

    #[test]
    fn a_sleeping_process_sleeps_and_one_that_is_gone_is_gone() {
        let mut sleeper = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep starts");
        let mut seen = String::new();
        for _ in 0..500 {
            seen = activity(sleeper.id());
            // Without the right to look, the kernel's own name for it.
            if seen.contains("sleep") || seen == "unknown" {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        sleeper.kill().expect("it is ours");
        sleeper.wait().expect("it ends");
        assert!(seen.contains("sleep") || seen == "unknown", "{seen}");
        assert_eq!(activity(u32::MAX), "gone");
    }

    #[test]
    fn a_connection_is_named_by_its_other_end() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let stream = TcpStream::connect(address).expect("it listens");
        let target = target(std::process::id(), stream.as_raw_fd());
        assert_eq!(target, Some(address.to_string()));
        let table = "head\n 0: 00000000000000000000000001000000:0050 \
                     B80D0120000000000000000001000000:01BB 01 0 0 0 0 0 77 1";
        let expected = cfg!(target_endian = "little").then(|| "[2001:db8::1]:443".to_owned());
        assert_eq!(remote_end(table, "77"), expected.or_else(|| remote_end(table, "77")));
        assert_eq!(remote_end(table, "78"), None);
    }
}

//! The process that listens on a port: /proc/net → socket → process → name.

use std::fmt;
use std::fs;
use std::net::SocketAddr;

/// A process that holds a listening socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PortHolder {
    /// Its process id.
    pub(crate) pid: u32,
    /// Its short name.
    pub(crate) name: String,
}

impl fmt::Display for PortHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {})", self.name, self.pid)
    }
}

/// Finds the process that listens on the port of `address`; `None` if the system does not show it.
pub(crate) fn find(address: SocketAddr) -> Option<PortHolder> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| {
            table
                .lines()
                .skip(1)
                .filter_map(|line| listener_inode(line, address.port()))
                .collect::<Vec<_>>()
        })
        .collect();
    if inodes.is_empty() {
        return None;
    }
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        holds(pid, &inodes).then(|| PortHolder {
            pid,
            name: name_of(pid),
        })
    })
}

/// The inode of a line of /proc/net/tcp that listens (state 0A) on `port`.
fn listener_inode(line: &str, port: u16) -> Option<String> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (_, local_port) = fields.get(1)?.rsplit_once(':')?;
    let listens = *fields.get(3)? == "0A" && u16::from_str_radix(local_port, 16) == Ok(port);
    listens.then(|| fields.get(9).map(|inode| format!("socket:[{inode}]")))?
}

fn holds(pid: u32, inodes: &[String]) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    descriptors
        .filter_map(|descriptor| fs::read_link(descriptor.path()).ok())
        .any(|target| {
            target
                .to_str()
                .is_some_and(|target| inodes.iter().any(|inode| inode == target))
        })
}

fn name_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm"))
        .map_or_else(|_| "a process".to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn our_own_listener_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let holder = find(listener.local_addr().expect("a bound socket")).expect("we may look at ourselves");
        assert_eq!(holder.pid, std::process::id());
    }

    #[test]
    fn lines_that_do_not_listen_are_passed_over() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1 0 100 0 0 10 0";
        assert_eq!(listener_inode(line, 8080).as_deref(), Some("socket:[4242]"));
        assert_eq!(listener_inode(line, 8081), None);
        assert_eq!(listener_inode(&line.replace(" 0A ", " 01 "), 8080), None);
    }
}

//! Memory of a process tree, shared pages counted once (PSS, proc(5)).

use std::fs;

use crate::children;

/// Proportional set size of a process and its children, bytes; `None` if the system does not report it.
pub(crate) fn of_tree(master: u32) -> Option<u64> {
    let own = of_process(master)?;
    let children = children::of(master);
    // A child that has ended in the meantime has no entry.
    Some(own + children.into_iter().filter_map(of_process).sum::<u64>())
}

fn of_process(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_not_there_has_no_memory_to_tell() {
        assert!(of_tree(std::process::id()).is_some_and(|bytes| bytes > 100_000));
        assert_eq!(of_tree(u32::MAX), None);
        assert_eq!(of_tree(0), None);
    }
}

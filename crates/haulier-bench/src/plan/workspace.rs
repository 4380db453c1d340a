//! Surroundings of a plan's run: its temporary directory, the values of templates, the environment, and cores.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};

use super::settings::{Named, Plan};
use super::template::{MissingValue, Values};

/// Directories of servers on Debian, which a user's PATH often lacks.
const SERVER_PLACES: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
/// Most descriptors: enough for any plan, and few enough for servers that allocate a table of this size.
const MOST_DESCRIPTORS: u64 = 20_000;
/// Descriptors that a server needs besides its connections.
const OTHER_DESCRIPTORS: u64 = 200;
/// Debian's account for servers that root starts.
const USER: &str = "www-data";

/// Surroundings of a plan's run.
#[derive(Debug)]
pub(super) struct Workspace {
    directory: Directory,
    pub(super) values: Values,
    /// True if root runs the plan: templates keep their `@ROOT@` lines.
    pub(super) root: bool,
    /// PATH of all processes.
    pub(super) search: OsString,
    pub(super) env: Named,
    pub(super) server_cores: Vec<usize>,
    pub(super) client_cores: Vec<usize>,
}

/// A temporary directory, removed when dropped.
#[derive(Debug)]
struct Directory(PathBuf);

/// The reason that a plan cannot get its surroundings.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    #[error("cannot make a directory in {}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("cannot find the plan's directory")]
    Plan(#[source] io::Error),
    #[error(transparent)]
    Value(#[from] MissingValue),
}

impl Workspace {
    /// Creates a directory, and collects the values of this machine, those in `known`, and those of the plan.
    pub(super) fn make(plan: &Plan, known: &Named) -> Result<Self, WorkspaceError> {
        let directory = Directory::make()?;
        let root = geteuid().is_root();
        let cores = |wanted: &[usize]| present(wanted, core_count());
        let server_cores = cores(&plan.server_cores);
        let mut values = Values::default();
        set_machine(&mut values, server_cores.len());
        for (name, text) in known {
            values.set(name.as_str(), text.as_str());
        }
        let plan_directory = plan.path.parent().filter(|path| !path.as_os_str().is_empty());
        let plan_directory = plan_directory.unwrap_or(Path::new(".")).canonicalize();
        values.set("PLAN", plan_directory.map_err(WorkspaceError::Plan)?.to_string_lossy());
        values.set("PLACE", directory.0.to_string_lossy());
        let user = if root {
            USER.to_owned()
        } else {
            env::var("USER").unwrap_or_default()
        };
        values.set("USER", user);
        for (name, text) in &plan.values {
            let text = values.fill(text)?;
            values.set(name.as_str(), text);
        }
        let mut environment = Named::new();
        for (name, text) in &plan.env {
            environment.push((name.clone(), values.fill(text)?));
        }
        Ok(Self {
            directory,
            values,
            root,
            search: search_path(),
            env: environment,
            server_cores,
            client_cores: cores(&plan.client_cores),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.directory.0
    }

    /// A directory that every user may write to: servers give up root.
    pub(super) fn run_directory(&self, name: &str) -> io::Result<PathBuf> {
        let mut number = 0;
        loop {
            let path = self.path().join(format!("{name}-{number}"));
            match std::fs::create_dir(&path) {
                Ok(()) => {
                    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777))?;
                    return Ok(path);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// The program of this name, as a server's command line would find it.
    pub(super) fn find(&self, program: &str) -> Option<PathBuf> {
        if program.contains('/') {
            return Some(PathBuf::from(program)).filter(|path| path.exists());
        }
        env::split_paths(&self.search)
            .map(|directory| directory.join(program))
            .find(|path| path.is_file())
    }
}

impl Directory {
    fn make() -> Result<Self, WorkspaceError> {
        let base = env::temp_dir();
        let random = random_name();
        let path = base.join(format!("haulier-plan-{}-{random}", std::process::id()));
        let fault = |source| WorkspaceError::Directory {
            path: base.clone(),
            source,
        };
        std::fs::create_dir(&path).map_err(fault)?;
        let made = Self(path);
        std::fs::set_permissions(&made.0, std::fs::Permissions::from_mode(0o755)).map_err(fault)?;
        Ok(made)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A directory that cannot be removed stays among the temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A name that other users cannot guess.
fn random_name() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("{:016x}", RandomState::new().hash_one("haulier"))
}

fn set_machine(values: &mut Values, cores: usize) {
    let descriptors = raise_descriptors();
    values.set("HAULIER", own_program().to_string_lossy());
    values.set("CORES", cores.to_string());
    values.set("FDS", descriptors.to_string());
    values.set("CONNECTIONS", descriptors.saturating_sub(OTHER_DESCRIPTORS).to_string());
}

/// This program, even if its file was replaced meanwhile.
pub(super) fn own_program() -> PathBuf {
    env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe"))
}

/// Raises the soft limit of descriptors, which all child processes inherit, and returns it.
fn raise_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(MOST_DESCRIPTORS);
    let wanted = hard.min(MOST_DESCRIPTORS).max(limit.current.unwrap_or(0));
    let raised = Rlimit {
        current: Some(wanted),
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => wanted,
        Err(_) => limit.current.unwrap_or(wanted),
    }
}

fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Those of `wanted` that this machine has; all it has if that leaves none.
fn present(wanted: &[usize], count: usize) -> Vec<usize> {
    let present: Vec<usize> = wanted.iter().copied().filter(|core| *core < count).collect();
    match present.is_empty() {
        true => (0..count).collect(),
        false => present,
    }
}

fn search_path() -> OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let all = env::split_paths(&path).chain(SERVER_PLACES.iter().map(PathBuf::from));
    env::join_paths(all).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_that_are_not_there_are_left_out() {
        assert_eq!(present(&[0, 7], 2), [0]);
        assert_eq!(present(&[7], 2), [0, 1]);
        assert_eq!(present(&[], 2), [0, 1]);
    }

    #[test]
    fn a_directory_goes_with_its_owner() {
        let directory = Directory::make().expect("a temporary directory");
        let path = directory.0.clone();
        std::fs::write(path.join("file"), "x").expect("it is ours");
        drop(directory);
        assert!(!path.exists());
    }
}

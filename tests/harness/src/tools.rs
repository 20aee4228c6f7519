//! The real components that tests run against.
//!
//! Enters: names as `tests/tools/get` knows them. Leaves: paths of programs in its
//! cache. Runs that script, whose progress goes to standard error.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use parking_lot::Mutex;

/// The programs, or `None` after `skipped: needs X` was printed for the first that
/// cannot be had; with `CI=true` that is a failure. A test returns then:
///
/// ```ignore
/// let Some([etcd, kubectl]) = harness::tools(["etcd-3.4", "kubectl-new"]) else { return };
/// ```
///
/// May take minutes the first time on a machine; within a process each tool is
/// asked for once.
pub fn tools<const N: usize>(names: [&str; N]) -> Option<[PathBuf; N]> {
    let mut found = Vec::new();
    for name in names {
        match get(name) {
            Some(path) => found.push(path),
            None => {
                skip(name);
                return None;
            }
        }
    }
    found.try_into().ok()
}

fn skip(name: &str) {
    let ci = std::env::var("CI").is_ok_and(|v| v == "true");
    assert!(!ci, "needs {name}, which cannot be had here");
    // Past what the test runner keeps to itself: who reads the output must see it.
    let _ = writeln!(std::io::stderr(), "skipped: needs {name}");
}

fn get(name: &str) -> Option<PathBuf> {
    static KNOWN: Mutex<Option<HashMap<String, Option<PathBuf>>>> = Mutex::new(None);
    let mut known = KNOWN.lock();
    let known = known.get_or_insert_default();
    if let Some(answer) = known.get(name) {
        return answer.clone();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/get");
    let out = Command::new(script)
        .arg(name)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output();
    let path = out.ok().filter(|out| out.status.success());
    let path = path.map(|out| PathBuf::from(String::from_utf8_lossy(&out.stdout).trim()));
    known.insert(name.to_owned(), path.clone());
    path
}

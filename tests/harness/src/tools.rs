//! Finds the real components that tests run against, and records the tests that are skipped
//! because one is missing.
//!
//! `tests/tools/get` finds or downloads a program. A test whose program is not available is
//! skipped. libtest cannot skip a test at run time, so [`skip`] prints a line, writes it to
//! a file in the build directory, and fails with `CI=true`. The suite that cargo runs last
//! (`tests/workspace/summary.rs`) prints the names from those files.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use parking_lot::Mutex;

/// The paths of programs, or `None` after [`skip`] for the first one that is not
/// available. The test then returns:
///
/// ```ignore
/// let Some([etcd, kubectl]) = harness::tools(["etcd-3.4", "kubectl-new"]) else { return };
/// ```
///
/// Call it on the test's own thread, whose name is the name of the test. The first call on
/// a machine may take minutes; each process looks a tool up once.
pub fn tools<const N: usize>(names: [&str; N]) -> Option<[PathBuf; N]> {
    let mut paths = Vec::new();
    for name in names {
        match find_tool(name) {
            Some(path) => paths.push(path),
            None => {
                skip(name);
                return None;
            }
        }
    }
    paths.try_into().ok()
}

/// Records that the running test is skipped because the machine lacks something; fails
/// the test with `CI=true`.
pub fn skip(need: &str) {
    let ci = std::env::var("CI").is_ok_and(|v| v == "true");
    assert!(!ci, "needs {need}, which cannot be had here");
    skip_part(need);
}

/// Records that a part of the running test is skipped because its user lacks a right. The test
/// goes on without it.
pub fn skip_part(need: &str) {
    let thread = std::thread::current();
    // The name of a tokio worker is not the name of a test.
    let test = thread.name().filter(|n| !n.starts_with("tokio-"));
    let (suite, file) = suite_record();
    let line = format!("{suite} {}: needs {need}", test.unwrap_or("(a test)"));
    // libtest captures what `eprintln!` prints, but not this.
    let _ = writeln!(std::io::stderr(), "skipped: {line}");
    let opened = OpenOptions::new().append(true).create(true).open(file);
    opened
        .and_then(|mut f| writeln!(f, "{line}"))
        .unwrap_or_else(|message| panic!("{}: {message}", file.display()));
}

/// Removes and returns the lines that the suites of this build have recorded.
pub fn drain_skipped() -> Vec<String> {
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(skipped_folder()).into_iter().flatten() {
        let file = entry.unwrap().path();
        let text = std::fs::read_to_string(&file).unwrap();
        lines.extend(text.lines().map(str::to_owned));
        std::fs::remove_file(&file).unwrap();
    }
    lines.sort();
    lines.dedup();
    lines
}

/// `target/debug/skipped` for a suite in `target/debug/deps`.
fn skipped_folder() -> PathBuf {
    let suite = std::env::current_exe().unwrap();
    let deps = suite.parent().unwrap();
    deps.parent().unwrap_or(deps).join("skipped")
}

/// The name of this suite and the file of its record, which starts empty.
fn suite_record() -> &'static (String, PathBuf) {
    static RECORD: OnceLock<(String, PathBuf)> = OnceLock::new();
    RECORD.get_or_init(|| {
        let program = std::env::current_exe().unwrap();
        let stem = program.file_stem().unwrap().to_string_lossy();
        // Cargo appends a hash to the name.
        let suite = stem.rsplit_once('-').map_or(&*stem, |(name, _)| name);
        let folder = skipped_folder();
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join(suite);
        let _ = std::fs::remove_file(&file);
        (suite.to_owned(), file)
    })
}

fn find_tool(name: &str) -> Option<PathBuf> {
    static KNOWN: Mutex<Option<HashMap<String, Option<PathBuf>>>> = Mutex::new(None);
    let mut known_tools = KNOWN.lock();
    let known_tools = known_tools.get_or_insert_default();
    if let Some(answer) = known_tools.get(name) {
        return answer.clone();
    }
    suite_record();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/get");
    let out = Command::new(script)
        .arg(name)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output();
    let path = out.ok().filter(|out| out.status.success());
    let path = path.map(|out| PathBuf::from(String::from_utf8_lossy(&out.stdout).trim()));
    known_tools.insert(name.to_owned(), path.clone());
    path
}

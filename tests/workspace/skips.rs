//! A test that does not run is never counted as one that passed: slow tests are ignored
//! by libtest, and a missing tool is recorded by name, or a failure with `CI=true`.
//!
//! Each test starts this suite again, from a directory of its own, with other variables.

#![expect(clippy::unwrap_used, reason = "a test ends where its machine fails it")]

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

const SUITE: &str = "copied";

#[harness::slow]
#[test]
fn a_slow_test() {}

#[test]
fn etcd_tells_its_version() {
    let Some([etcd]) = harness::tools(["etcd-3.4"]) else {
        return;
    };
    let out = Command::new(etcd).arg("--version").output().unwrap();
    let said = String::from_utf8(out.stdout).unwrap();
    assert!(said.starts_with("etcd Version: 3.4."), "{said}");
}

/// A directory on the file system of this suite.
fn scratch() -> TempDir {
    let suite = std::env::current_exe().unwrap();
    tempfile::tempdir_in(suite.parent().unwrap()).unwrap()
}

/// Runs a link to this suite in `dir`, where no tool can be had.
fn without_tools(dir: &Path, ci: &str) -> Output {
    let deps = dir.join("deps");
    std::fs::create_dir_all(&deps).unwrap();
    let program = deps.join(format!("{SUITE}-0123456789abcdef"));
    // A link: a file that was just written may still be open in a child of another test.
    std::fs::hard_link(std::env::current_exe().unwrap(), &program).unwrap();
    Command::new(program)
        .args(["etcd_tells_its_version", "--exact"])
        .env("FLOTILLA_TOOLS", "/dev/null/no-directory")
        .env("CI", ci)
        .output()
        .unwrap()
}

#[test]
fn a_missing_tool_is_a_skip_that_is_named() {
    let dir = scratch();
    let out = without_tools(dir.path(), "");
    assert!(out.status.success(), "{out:?}");
    let line = format!("{SUITE} etcd_tells_its_version: needs etcd-3.4");
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains(&format!("skipped: {line}\n")), "{said}");
    let recorded = std::fs::read_to_string(dir.path().join("skipped").join(SUITE)).unwrap();
    assert_eq!(recorded, format!("{line}\n"));
}

#[test]
fn a_missing_tool_is_a_failure_in_ci() {
    let dir = scratch();
    let out = without_tools(dir.path(), "true");
    assert!(!out.status.success(), "{out:?}");
    let said = String::from_utf8(out.stdout).unwrap();
    assert!(
        said.contains("needs etcd-3.4, which cannot be had here"),
        "{said}"
    );
}

#[test]
fn a_slow_test_is_ignored_unless_it_is_wanted() {
    let wanted = option_env!("FLOTILLA_SLOW") == Some("1");
    let out = Command::new(std::env::current_exe().unwrap())
        .args(["a_slow_test", "--exact"])
        .output()
        .unwrap();
    let said = String::from_utf8(out.stdout).unwrap();
    let counted = if wanted {
        "1 passed; 0 failed; 0 ignored"
    } else {
        "0 passed; 0 failed; 1 ignored"
    };
    assert!(said.contains(counted), "{said}");
}

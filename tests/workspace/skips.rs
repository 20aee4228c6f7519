//! Skipped tests are never counted as passed: libtest ignores slow tests, and a test with a missing
//! tool is recorded by name, or fails with `CI=true`.
//!
//! Each test runs this suite again, from a directory of its own, with other environment variables.

#![expect(clippy::unwrap_used, reason = "a test ends where its machine fails it")]

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

const SUITE: &str = "copied";

#[harness::slow]
#[test]
fn a_slow_test() {}

#[test]
fn etcd_prints_its_version() {
    let Some([etcd]) = harness::tools(["etcd-3.4"]) else {
        return;
    };
    let out = Command::new(etcd).arg("--version").output().unwrap();
    let output = String::from_utf8(out.stdout).unwrap();
    assert!(output.starts_with("etcd Version: 3.4."), "{output}");
}

/// Creates a directory on the file system of this suite.
fn scratch() -> TempDir {
    let suite = std::env::current_exe().unwrap();
    tempfile::tempdir_in(suite.parent().unwrap()).unwrap()
}

/// Runs a hard link to this suite in `dir`, with a directory of tools that does not exist.
fn without_tools(dir: &Path, ci: &str) -> Output {
    let deps = dir.join("deps");
    std::fs::create_dir_all(&deps).unwrap();
    let program = deps.join(format!("{SUITE}-0123456789abcdef"));
    // Not a copy: a child process of another test may still have a file open that was just
    // written, and such a file cannot be executed.
    std::fs::hard_link(std::env::current_exe().unwrap(), &program).unwrap();
    Command::new(program)
        .args(["etcd_prints_its_version", "--exact"])
        .env("FLOTILLA_TOOLS", "/dev/null/no-directory")
        .env("CI", ci)
        .output()
        .unwrap()
}

#[test]
fn a_test_without_its_tool_is_recorded_as_skipped() {
    let dir = scratch();
    let out = without_tools(dir.path(), "");
    assert!(out.status.success(), "{out:?}");
    let line = format!("{SUITE} etcd_prints_its_version: needs etcd-3.4");
    let output = String::from_utf8(out.stderr).unwrap();
    assert!(output.contains(&format!("skipped: {line}\n")), "{output}");
    let recorded = std::fs::read_to_string(dir.path().join("skipped").join(SUITE)).unwrap();
    assert_eq!(recorded, format!("{line}\n"));
}

#[test]
fn a_test_without_its_tool_fails_in_ci() {
    let dir = scratch();
    let out = without_tools(dir.path(), "true");
    assert!(!out.status.success(), "{out:?}");
    let output = String::from_utf8(out.stdout).unwrap();
    assert!(
        output.contains("needs etcd-3.4, which cannot be had here"),
        "{output}"
    );
}

#[test]
fn a_slow_test_is_ignored_unless_slow_tests_are_enabled() {
    let enabled = option_env!("FLOTILLA_SLOW") == Some("1");
    let out = Command::new(std::env::current_exe().unwrap())
        .args(["a_slow_test", "--exact"])
        .output()
        .unwrap();
    let output = String::from_utf8(out.stdout).unwrap();
    let summary = if enabled {
        "1 passed; 0 failed; 0 ignored"
    } else {
        "0 passed; 0 failed; 1 ignored"
    };
    assert!(output.contains(summary), "{output}");
}

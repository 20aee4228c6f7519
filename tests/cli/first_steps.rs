//! What `flotilla up` prints to try next works as it is printed.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::daemon::{parent_bound_command, spawn_bound};
use harness::tools;

use crate::cli::fixture::{BINARY, TIMEOUT};

/// The lines below the ready line.
const PRINTED_LINES: usize = 5;

// proves: CLI-first-steps
#[test]
fn the_steps_that_up_prints_work() {
    let Some([kubectl]) = tools(["kubectl-1.36"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let programs = dir.path().join("programs");
    std::fs::create_dir(&programs).unwrap();
    symlink(BINARY, programs.join("flotilla")).unwrap();
    symlink(kubectl, programs.join("kubectl")).unwrap();
    let mut command = parent_bound_command(Path::new(BINARY));
    command
        .args(["up", "--members", "2", "--listen", "127.0.0.1:0", "--dir"])
        .arg(dir.path().join("fleet"))
        .stdout(Stdio::piped());
    let mut up = spawn_bound(command).unwrap();
    let lines = BufReader::new(up.stdout.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    let ready = lines.next().unwrap();
    assert!(ready.starts_with("ready https://"), "{ready}");
    let printed: Vec<String> = lines.by_ref().take(PRINTED_LINES).collect();
    let steps = printed.iter().filter_map(|line| line.strip_prefix("  "));
    let steps: Vec<&str> = steps.collect();
    assert_eq!(steps.len(), PRINTED_LINES - 1, "{printed:?}");
    wait_until_members_answer(&dir.path().join("fleet/kubeconfig"));
    let output = Command::new("sh")
        .args(["-e", "-c", &steps.join("\n")])
        .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
        .env("HOME", dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let _ = up.kill();
    let _ = up.wait();
    assert!(output.status.success(), "{steps:?}: {text}{errors}");
    assert!(text.contains("Deployment default/hello"), "{text}");
}

/// The members have the rights of the impersonator in caches of their own.
fn wait_until_members_answer(kubeconfig: &Path) {
    let end = Instant::now() + TIMEOUT;
    let mut command = Command::new(BINARY);
    command.args(["get", "namespaces", "-s", "members"]);
    command.env("KUBECONFIG", kubeconfig);
    while !harness::process::run(&command).status.success() {
        assert!(Instant::now() < end, "the members do not answer");
        harness::sleep_blocking(Duration::from_millis(100));
    }
}

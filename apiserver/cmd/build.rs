//! Tells the compiler of a release the commit and its date, which `flotilla --version` names. Other
//! builds name none: each commit would compile the binary and its tests anew.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        name_commit();
    }
}

/// Names the commit of the checkout, if this is one.
fn name_commit() {
    let show = [
        "log",
        "-1",
        "--date=format-local:%Y-%m-%dT%H:%M:%SZ",
        "--format=%H %cd",
    ];
    let Some(text) = git(&show) else {
        return;
    };
    if let Some((commit, date)) = text.split_once(' ') {
        println!("cargo::rustc-env=FLOTILLA_COMMIT={commit}");
        println!("cargo::rustc-env=FLOTILLA_COMMIT_DATE={date}");
    }
    // It changes with each commit and each checkout.
    let log = git(&[
        "rev-parse",
        "--path-format=absolute",
        "--git-path",
        "logs/HEAD",
    ]);
    if let Some(log) = log.filter(|log| Path::new(log).exists()) {
        println!("cargo::rerun-if-changed={log}");
    }
}

/// The output of git; nothing if there is no git or no checkout.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(arguments)
        .env("TZ", "UTC")
        .output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

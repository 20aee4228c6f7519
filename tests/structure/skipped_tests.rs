//! A test that was not run must not look like one that passed.
//!
//! Reads the sources of all tests. What decides at run time whether a test runs is
//! refused: a slow test bears `#[harness::slow]`, a test without its tool returns by
//! `let Some(..) = .. else` from what `harness::tools` answers, which records it.

use std::path::{Path, PathBuf};

use crate::{collect_files, root};

/// Tests that read variables, and what for. None of these ends a test in silence.
const READERS: [(&str, &str); 8] = [
    ("tests/harness/", "the one place for CI and FLOTILLA_SLOW"),
    ("tests/workspace/", "the tests of that place"),
    (
        "tests/robustness/record.rs",
        "a process that its parent kills",
    ),
    (
        "tests/scenarios/mod.rs",
        "SCENARIO, which fails where no theme has it",
    ),
    (
        "tests/differential/options.rs",
        "CASE, which fails where no theme has it",
    ),
    ("tests/fuzz/mod.rs", "seconds of a fuzzer"),
    ("tests/robustness/soak/", "seconds of the soak test"),
    (
        "controllers/interpreter/src/fuzz/",
        "seconds and seed of a fuzzer",
    ),
];

/// The functions by which a test asks for tools that a machine may lack.
const STARTERS: [&str; 18] = [
    "tools(",
    "EtcdCluster::start(",
    "EtcdCluster::start_tls(",
    "StoreUnderTest::",
    "ReplicaPair::start(",
    "FlowFailoverFixture::start(",
    "InstallHost::start(",
    "AggregatedControlPlane::start(",
    "AggregatedControlPlane::start_on_etcd(",
    "AggregatedControlPlane::prepare(",
    "RealMemberClusters::start(",
    "RouteServers::start(",
    "ServerBehindKubeApiserver::start(",
    "RealMemberCluster::start(",
    "SmallDisk::mount(",
    "spawn_on_terminal(",
    "EncryptionTestStorage::with_etcd(",
    "Artifacts::build(",
];

/// File → its lines that belong to tests.
fn tests() -> Vec<(String, Vec<String>)> {
    let mut files: Vec<PathBuf> = Vec::new();
    for dir in ["apiserver", "controllers", "openapi", "tests"] {
        collect_files(&root().join(dir), "rs", &mut files);
    }
    let of = |path: &Path| {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let text = std::fs::read_to_string(path).unwrap();
        let lines = text.lines().map(str::to_owned);
        let is_test_file = ["tests/", "/tests/", "/fuzz/", "tests.rs"].map(|p| match p {
            "tests/" => name.starts_with(p),
            p => name.contains(p),
        });
        let lines: Vec<String> = match is_test_file.contains(&true) {
            true => lines.collect(),
            // Tests stand at the end of the file they belong to.
            false => lines.skip_while(|l| l.trim() != "#[cfg(test)]").collect(),
        };
        (name, lines)
    };
    files.iter().map(|path| of(path)).collect()
}

#[test]
fn tests_do_not_ask_the_environment_whether_to_run() {
    let mut wrong = Vec::new();
    for (file, lines) in tests() {
        if READERS.iter().any(|(reader, _)| file.starts_with(reader)) {
            continue;
        }
        // In two pieces, so that this line is none of those.
        let reads = |l: &&String| l.contains(concat!("env::", "var"));
        wrong.extend(
            lines
                .iter()
                .filter(reads)
                .map(|l| format!("{file}: {}", l.trim())),
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The statement whose block begins in line `end`: a `let` over several lines, or that line.
fn statement_until(body: &[String], end: usize) -> String {
    let begins =
        |line: &String| line.trim_start().starts_with("let ") && indent(line) == indent(&body[end]);
    let start = match body[end].trim() {
        "else {" | ") else {" => body[..end].iter().rposition(begins).unwrap_or(end),
        _ => end,
    };
    body[start..=end].concat()
}

/// Whether the `return` in line `at` stands in a closure or block of its own, or leaves
/// the test for want of a tool.
fn allowed(body: &[String], at: usize) -> bool {
    let mut inner = indent(&body[at]);
    for n in (0..at).rev() {
        let (text, depth) = (body[n].trim(), indent(&body[n]));
        if text.is_empty() || depth >= inner {
            continue;
        }
        let statement = statement_until(body, n);
        inner = depth;
        let begins_a_task = ["async ", "async{", "move ||", "||", "|_|"]
            .iter()
            .any(|b| text.contains(b))
            && text.ends_with('{')
            && !text.contains("fn ");
        let for_a_tool = statement.trim_start().starts_with("let ")
            && STARTERS.iter().any(|s| statement.contains(s));
        let for_the_parent = text.contains("= variable_from_parent(");
        if begins_a_task || for_a_tool || for_the_parent {
            return true;
        }
    }
    false
}

#[test]
fn tests_do_not_return_before_their_end() {
    let mut wrong = Vec::new();
    for (file, lines) in tests() {
        let marks = |l: &str| {
            let l = l.trim();
            l == "#[test]" || l.starts_with("#[tokio::test")
        };
        let mut at = 0;
        while let Some(mark) = lines[at..].iter().position(|l| marks(l)) {
            let from = at + mark;
            let margin = " ".repeat(indent(&lines[from]));
            let end = lines[from..]
                .iter()
                .position(|l| *l == format!("{margin}}}"));
            at = from + end.unwrap_or(lines.len() - from - 1) + 1;
            let body = &lines[from..at];
            for n in 0..body.len() {
                if body[n].trim().starts_with("return;") && !allowed(body, n) {
                    wrong.push(format!("{file}:{}", body[1].trim()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "return early: {wrong:#?}");
}

//! Runs tables of kubectl commands with an old and a new kubectl, and checks their output.
//!
//! A command with another result than expected panics with its command line and output.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::tools;

const PATIENCE: Duration = Duration::from_secs(30);

/// A command with its expected result. The line is split as a shell splits it; `NS` stands
/// for the namespace. A prefix `old:` or `new:` restricts the command to that kubectl. Each
/// expected fragment must occur in the output (runs of whitespace count as one blank); a
/// fragment with the prefix `!` must not occur.
pub struct Step<'a> {
    line: &'a str,
    input: String,
    code: i32,
    wanted: &'a [&'a str],
}

/// A command that succeeds.
pub fn ok<'a>(line: &'a str, wanted: &'a [&'a str]) -> Step<'a> {
    with(line, "", wanted)
}

/// A command that succeeds, with standard input.
pub fn with<'a>(line: &'a str, input: &str, wanted: &'a [&'a str]) -> Step<'a> {
    Step {
        line,
        input: input.to_owned(),
        code: 0,
        wanted,
    }
}

/// A command that fails with exit code 1.
pub fn refused<'a>(line: &'a str, wanted: &'a [&'a str]) -> Step<'a> {
    Step {
        code: 1,
        ..ok(line, wanted)
    }
}

/// A command with standard input that fails with exit code 1.
pub fn refused_with<'a>(line: &'a str, input: &str, wanted: &'a [&'a str]) -> Step<'a> {
    Step {
        code: 1,
        ..with(line, input, wanted)
    }
}

/// One kubectl with a kubeconfig and its own namespace.
pub struct Kubectl {
    program: PathBuf,
    pub label: &'static str,
    kubeconfig: PathBuf,
    pub namespace: String,
    home: PathBuf,
}

/// Runs `test` with each kubectl at the same time, each in a new namespace. `folder` holds
/// the home directories of the kubectls.
pub fn with_each(kubeconfig: &Path, folder: &Path, area: &str, test: impl Fn(&Kubectl) + Sync) {
    std::thread::scope(|scope| {
        for (label, program) in programs() {
            let test = &test;
            scope.spawn(move || {
                let namespace = format!("{area}-{label}");
                let home = folder.join(format!("home-{namespace}"));
                std::fs::create_dir_all(&home).unwrap();
                let kubectl = Kubectl {
                    program,
                    label,
                    kubeconfig: kubeconfig.to_owned(),
                    namespace,
                    home,
                };
                kubectl.output("create namespace NS");
                test(&kubectl);
            });
        }
    });
}

/// The available kubectls: both from Debian, else the one on the `PATH`.
fn programs() -> Vec<(&'static str, PathBuf)> {
    match tools(["kubectl-old", "kubectl-new"]) {
        Some([old, new]) => vec![("old", old), ("new", new)],
        None => vec![("new", PathBuf::from("kubectl"))],
    }
}

impl Kubectl {
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(["--namespace", &self.namespace])
            .args(words(&line.replace("NS", &self.namespace)))
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", &self.home)
            .env_remove("KUBE_EDITOR")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs the commands of a table in order.
    pub fn run(&self, steps: &[Step<'_>]) {
        for step in steps {
            self.step(step);
        }
    }

    fn step(&self, step: &Step<'_>) {
        let line = match step.line.split_once(':') {
            Some((label @ ("old" | "new"), line)) if label == self.label => line.trim(),
            Some(("old" | "new", _)) => return,
            _ => step.line,
        };
        let mut command = self.command(line);
        let (code, printed) = finish(&mut command, &step.input);
        let output = squeeze(&printed);
        let context = format!("kubectl-{} {line}\n{printed}", self.label);
        assert_eq!(code, step.code, "{context}");
        for expected in step.wanted {
            let expected = expected.replace("NS", &self.namespace);
            match expected.strip_prefix('!') {
                Some(not) => assert!(!output.contains(&squeeze(not)), "has {not:?}: {context}"),
                None => assert!(
                    output.contains(&squeeze(&expected)),
                    "no {expected:?}: {context}"
                ),
            }
        }
    }

    /// Runs a command that must succeed and returns its output.
    pub fn output(&self, line: &str) -> String {
        let (code, printed) = finish(&mut self.command(line), "");
        assert_eq!(code, 0, "kubectl-{} {line}\n{printed}", self.label);
        printed
    }

    /// Repeats a command until it has this exit code, for results that follow a write with a
    /// delay.
    pub fn eventually(&self, line: &str, expected: i32) {
        let end = Instant::now() + PATIENCE;
        loop {
            let (code, printed) = finish(&mut self.command(line), "");
            if code == expected {
                return;
            }
            let context = format!("kubectl-{} {line}\n{printed}", self.label);
            assert!(Instant::now() < end, "{context}");
        }
    }

    /// Runs a command with standard input; returns exit code and output.
    pub fn pipe(&self, line: &str, input: &str) -> (i32, String) {
        finish(&mut self.command(line), input)
    }

    /// Runs a command whose editor is `sed` with this script.
    pub fn edit(&self, line: &str, script: &str) -> (i32, String) {
        let mut command = self.command(line);
        command.env("EDITOR", format!("sed -i {script}"));
        finish(&mut command, "")
    }

    /// Starts a command that runs until the handle is dropped.
    pub fn follow(&self, line: &str) -> Following {
        let mut process = self.command(line).spawn().unwrap();
        let output = process.stdout.take().unwrap();
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Following { process, lines }
    }
}

/// A running command. Dropping it kills the process.
pub struct Following {
    process: Child,
    lines: mpsc::Receiver<String>,
}

impl Following {
    /// Reads its output until a line contains the fragment.
    pub fn until(&self, fragment: &str) {
        let end = Instant::now() + PATIENCE;
        let mut read = Vec::new();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if squeeze(&line).contains(fragment) => return,
                Ok(line) => read.push(line),
                Err(_) => panic!("no {fragment:?} in {read:#?}"),
            }
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a command to its end; returns exit code and output.
fn finish(command: &mut Command, input: &str) -> (i32, String) {
    let mut process = command
        .spawn()
        .unwrap_or_else(|why| panic!("{:?} cannot be run: {why}", command.get_program()));
    let mut pipe = process.stdin.take().unwrap();
    // A command that fails early does not read all of its input.
    let _ = pipe.write_all(input.as_bytes());
    drop(pipe);
    let out = process.wait_with_output().unwrap();
    let printed = [out.stdout, out.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    (out.status.code().unwrap_or(-1), printed)
}

/// Replaces each run of whitespace with one blank.
fn squeeze(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Splits a line into words; text in single quotes stays one word.
fn words(line: &str) -> Vec<String> {
    let (mut all, mut word, mut quoted) = (Vec::new(), None::<String>, false);
    for c in line.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => all.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    all.extend(word);
    all
}

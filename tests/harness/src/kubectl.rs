//! Runs tables of kubectl commands with an old and a new kubectl, and checks their output.
//!
//! A command with another result than expected panics with its command line and output.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::process::{RunningCommand, run_with_input};
use crate::tools;

const WAIT_TIMEOUT: Duration = Duration::from_secs(90);

/// A command with its expected result. The line is split as a shell splits it; `NS` stands
/// for the namespace. A prefix `old:` or `new:` restricts the command to that kubectl. Each
/// expected fragment must occur in the output (runs of whitespace count as one blank); a
/// fragment with the prefix `!` must not occur.
pub struct KubectlCommandWithExpectedResult<'a> {
    command_line: &'a str,
    input: String,
    exit_code: i32,
    expected_output: &'a [&'a str],
}

/// A command that succeeds.
pub fn succeeds<'a>(
    line: &'a str,
    expected: &'a [&'a str],
) -> KubectlCommandWithExpectedResult<'a> {
    succeeds_with_input(line, "", expected)
}

/// A command that succeeds, with standard input.
pub fn succeeds_with_input<'a>(
    line: &'a str,
    input: &str,
    expected: &'a [&'a str],
) -> KubectlCommandWithExpectedResult<'a> {
    KubectlCommandWithExpectedResult {
        command_line: line,
        input: input.to_owned(),
        exit_code: 0,
        expected_output: expected,
    }
}

/// A command that fails with exit code 1.
pub fn fails<'a>(line: &'a str, expected: &'a [&'a str]) -> KubectlCommandWithExpectedResult<'a> {
    KubectlCommandWithExpectedResult {
        exit_code: 1,
        ..succeeds(line, expected)
    }
}

/// A command with standard input that fails with exit code 1.
pub fn fails_with_input<'a>(
    line: &'a str,
    input: &str,
    expected: &'a [&'a str],
) -> KubectlCommandWithExpectedResult<'a> {
    KubectlCommandWithExpectedResult {
        exit_code: 1,
        ..succeeds_with_input(line, input, expected)
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
pub fn with_each_kubectl(
    kubeconfig: &Path,
    folder: &Path,
    area: &str,
    test: impl Fn(&Kubectl) + Sync,
) {
    std::thread::scope(|scope| {
        for (label, program) in kubectl_programs() {
            let test = &test;
            scope.spawn(move || {
                let namespace = format!("{area}-{label}");
                test(&Kubectl::start(
                    program, label, kubeconfig, folder, namespace,
                ));
            });
        }
    });
}

/// The available kubectls: both from Debian, else the one on the `PATH`.
fn kubectl_programs() -> Vec<(&'static str, PathBuf)> {
    match tools(["kubectl-old", "kubectl-new"]) {
        Some([old, new]) => vec![("old", old), ("new", new)],
        None => vec![("new", PathBuf::from("kubectl"))],
    }
}

impl Kubectl {
    /// The kubectl of Kubernetes 1.36 in a new namespace. `None`: it is not available, and the
    /// test is recorded as skipped.
    pub fn of_1_36(kubeconfig: &Path, folder: &Path, namespace: &str) -> Option<Self> {
        let [program] = tools(["kubectl-1.36"])?;
        let namespace = namespace.to_owned();
        Some(Self::start(program, "1.36", kubeconfig, folder, namespace))
    }

    fn start(
        program: PathBuf,
        label: &'static str,
        kubeconfig: &Path,
        folder: &Path,
        namespace: String,
    ) -> Self {
        let home = folder.join(format!("home-{namespace}"));
        std::fs::create_dir_all(&home).unwrap();
        let kubectl = Self {
            program,
            label,
            kubeconfig: kubeconfig.to_owned(),
            namespace,
            home,
        };
        kubectl.output("create namespace NS");
        kubectl
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(["--namespace", &self.namespace])
            .args(split_words(&line.replace("NS", &self.namespace)))
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", &self.home)
            .env_remove("KUBE_EDITOR");
        command
    }

    /// Runs the commands of a table in order.
    pub fn run_commands(&self, steps: &[KubectlCommandWithExpectedResult<'_>]) {
        for step in steps {
            self.run_command(step);
        }
    }

    fn run_command(&self, step: &KubectlCommandWithExpectedResult<'_>) {
        let line = match step.command_line.split_once(':') {
            Some((label @ ("old" | "new"), line)) if label == self.label => line.trim(),
            Some(("old" | "new", _)) => return,
            _ => step.command_line,
        };
        let command = self.command(line);
        let (code, printed) = run_to_end(&command, &step.input);
        let output = collapse_whitespace(&printed);
        let context = format!("kubectl-{} {line}\n{printed}", self.label);
        assert_eq!(code, step.exit_code, "{context}");
        for expected in step.expected_output {
            let expected = expected.replace("NS", &self.namespace);
            match expected.strip_prefix('!') {
                Some(not) => assert!(
                    !output.contains(&collapse_whitespace(not)),
                    "has {not:?}: {context}"
                ),
                None => assert!(
                    output.contains(&collapse_whitespace(&expected)),
                    "no {expected:?}: {context}"
                ),
            }
        }
    }

    /// Runs a command that must succeed and returns its output.
    pub fn output(&self, line: &str) -> String {
        let (code, printed) = run_to_end(&self.command(line), "");
        assert_eq!(code, 0, "kubectl-{} {line}\n{printed}", self.label);
        printed
    }

    /// Repeats a command until it has this exit code, for results that follow a write with a
    /// delay.
    pub fn wait_for_exit_code(&self, line: &str, expected: i32) {
        let end = Instant::now() + WAIT_TIMEOUT;
        loop {
            let (code, printed) = run_to_end(&self.command(line), "");
            if code == expected {
                return;
            }
            let context = format!("kubectl-{} {line}\n{printed}", self.label);
            assert!(Instant::now() < end, "{context}");
        }
    }

    /// Runs a command with standard input; returns exit code and output.
    pub fn run_with_input(&self, line: &str, input: &str) -> (i32, String) {
        run_to_end(&self.command(line), input)
    }

    /// Runs a command whose editor is `sed` with this script.
    pub fn edit(&self, line: &str, script: &str) -> (i32, String) {
        let mut command = self.command(line);
        command.env("EDITOR", format!("sed -i {script}"));
        run_to_end(&command, "")
    }

    /// Starts a command that runs until the handle is dropped.
    pub fn spawn(&self, line: &str) -> RunningKubectl {
        let mut process = RunningCommand::start(&self.command(line));
        let output = process.child.stdout.take().unwrap();
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        RunningKubectl {
            _process: process,
            lines,
        }
    }
}

/// A running command. Dropping it kills the process.
pub struct RunningKubectl {
    _process: RunningCommand,
    lines: mpsc::Receiver<String>,
}

impl RunningKubectl {
    /// Reads its output until a line contains the fragment.
    pub fn wait_for_line(&self, fragment: &str) {
        let end = Instant::now() + WAIT_TIMEOUT;
        let mut read = Vec::new();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if collapse_whitespace(&line).contains(fragment) => return,
                Ok(line) => read.push(line),
                Err(_) => panic!("no {fragment:?} in {read:#?}"),
            }
        }
    }
}

/// Runs a command to its end; returns exit code and output.
fn run_to_end(command: &Command, input: &str) -> (i32, String) {
    let out = run_with_input(command, input.as_bytes());
    let printed = [out.stdout, out.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    (out.status.code().unwrap_or(-1), printed)
}

/// Replaces each run of whitespace with one blank.
fn collapse_whitespace(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Splits a line into words; text in single quotes stays one word.
pub fn split_words(line: &str) -> Vec<String> {
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

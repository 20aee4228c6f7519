//! The two kubectls, and tables of commands that both must get through.
//!
//! Enters: a kubeconfig, lines as one would type them. Leaves: nothing; what is not
//! as wanted panics with the line and all that was printed.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::tools;

const PATIENCE: Duration = Duration::from_secs(30);

/// What is typed, what must come out. A line is split as a shell would, `NS` being
/// the namespace. `old:` or `new:` before it: for that kubectl alone. Each wanted
/// fragment is looked for in all that is printed, blanks counting once; `!` before
/// it: it must not be there.
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

/// A command that is refused.
pub fn refused<'a>(line: &'a str, wanted: &'a [&'a str]) -> Step<'a> {
    Step {
        code: 1,
        ..ok(line, wanted)
    }
}

/// A command that is refused because of its input.
pub fn refused_with<'a>(line: &'a str, input: &str, wanted: &'a [&'a str]) -> Step<'a> {
    Step {
        code: 1,
        ..with(line, input, wanted)
    }
}

/// One kubectl with a kubeconfig, in a namespace of its own.
pub struct Kubectl {
    program: PathBuf,
    pub label: &'static str,
    kubeconfig: PathBuf,
    pub namespace: String,
    home: PathBuf,
}

/// Runs the story with each kubectl at the same time, each in a new namespace. What
/// a kubectl keeps goes into `folder`.
pub fn with_each(kubeconfig: &Path, folder: &Path, area: &str, story: impl Fn(&Kubectl) + Sync) {
    std::thread::scope(|scope| {
        for (label, program) in programs() {
            let story = &story;
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
                story(&kubectl);
            });
        }
    });
}

/// The kubectls there are: both from Debian, else the one of this machine.
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

    /// Goes through a table.
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
        let seen = squeeze(&printed);
        let story = format!("kubectl-{} {line}\n{printed}", self.label);
        assert_eq!(code, step.code, "{story}");
        for wanted in step.wanted {
            let wanted = wanted.replace("NS", &self.namespace);
            match wanted.strip_prefix('!') {
                Some(not) => assert!(!seen.contains(&squeeze(not)), "has {not:?}: {story}"),
                None => assert!(seen.contains(&squeeze(&wanted)), "no {wanted:?}: {story}"),
            }
        }
    }

    /// What a command prints that must succeed.
    pub fn output(&self, line: &str) -> String {
        let (code, printed) = finish(&mut self.command(line), "");
        assert_eq!(code, 0, "kubectl-{} {line}\n{printed}", self.label);
        printed
    }

    /// Waits until a command has this exit code: what it asks for follows a write
    /// later.
    pub fn eventually(&self, line: &str, wanted: i32) {
        let end = Instant::now() + PATIENCE;
        loop {
            let (code, printed) = finish(&mut self.command(line), "");
            if code == wanted {
                return;
            }
            let story = format!("kubectl-{} {line}\n{printed}", self.label);
            assert!(Instant::now() < end, "{story}");
        }
    }

    /// Exit code and everything printed, whatever they are.
    pub fn pipe(&self, line: &str, input: &str) -> (i32, String) {
        finish(&mut self.command(line), input)
    }

    /// Edits with a stream editor in the place of a person.
    pub fn edit(&self, line: &str, script: &str) -> (i32, String) {
        let mut command = self.command(line);
        command.env("EDITOR", format!("sed -i {script}"));
        finish(&mut command, "")
    }

    /// A command that goes on until it is dropped.
    pub fn follow(&self, line: &str) -> Following {
        let mut process = self.command(line).spawn().unwrap();
        let output = process.stdout.take().unwrap();
        let (tell, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        Following { process, lines }
    }
}

/// A command under way.
pub struct Following {
    process: Child,
    lines: mpsc::Receiver<String>,
}

impl Following {
    /// Reads until a line has the fragment.
    pub fn until(&self, fragment: &str) {
        let end = Instant::now() + PATIENCE;
        let mut seen = Vec::new();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if squeeze(&line).contains(fragment) => return,
                Ok(line) => seen.push(line),
                Err(_) => panic!("no {fragment:?} in {seen:#?}"),
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

/// Exit code, and everything printed.
fn finish(command: &mut Command, input: &str) -> (i32, String) {
    let mut process = command
        .spawn()
        .unwrap_or_else(|why| panic!("{:?} cannot be run: {why}", command.get_program()));
    let mut pipe = process.stdin.take().unwrap();
    // A command that fails early leaves the rest unread.
    let _ = pipe.write_all(input.as_bytes());
    drop(pipe);
    let out = process.wait_with_output().unwrap();
    let printed = [out.stdout, out.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    (out.status.code().unwrap_or(-1), printed)
}

/// Every run of blanks is one.
fn squeeze(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A line in words; what is in single quotes stays together.
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

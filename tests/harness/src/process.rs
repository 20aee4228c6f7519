//! Runs commands to their end, and starts the binary under test, waits for its ready line and reads
//! its address from it.
//!
//! A process is killed when its [`ServerProcess`] or [`RunningCommand`] is dropped, when it takes too
//! long, and when the test process ends.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::daemon::{parent_bound_command, spawn_bound};

const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a command that ends by itself, or a server after SIGTERM, may take.
const END_TIMEOUT: Duration = Duration::from_secs(180);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Runs `program arguments`, which must succeed, and returns its output.
pub async fn run_successfully(program: &str, arguments: &[&str]) -> String {
    let (code, output) = run_to_exit(program, arguments).await;
    assert_eq!(code, Some(0), "{arguments:?}: {output}");
    output
}

/// Runs `program arguments`; returns its exit code and output.
pub async fn run_to_exit(program: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(program);
    command.args(arguments);
    let out = tokio::task::spawn_blocking(move || run(&command)).await;
    let out = out.unwrap();
    let output = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    (out.status.code(), output)
}

/// Runs a command to its end, without input. One that takes too long is killed and fails the test.
pub fn run(command: &Command) -> Output {
    run_with_input(command, b"")
}

/// As [`run`], with standard input.
pub fn run_with_input(command: &Command, input: &[u8]) -> Output {
    let mut child = spawn_piped(command);
    let id = child.id().to_string();
    let (mut pipe, input) = (child.stdin.take().unwrap(), input.to_vec());
    // A command that fails early does not read all of its input.
    std::thread::spawn(move || pipe.write_all(&input));
    let (sender, output) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = output.recv_timeout(END_TIMEOUT) else {
        let _ = Command::new("kill").args(["-KILL", &id]).status();
        panic!("runs for over {END_TIMEOUT:?}: {command:?}");
    };
    output.unwrap()
}

/// Runs a build to its end. How long it takes depends on the machine.
pub fn run_build(command: &Command) -> Output {
    spawn_piped(command).wait_with_output().unwrap()
}

/// Starts a command with pipes as its streams.
fn spawn_piped(command: &Command) -> Child {
    let mut bound = parent_bound_command(Path::new(command.get_program()));
    bound.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bound.env(name, value),
            None => bound.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        bound.current_dir(dir);
    }
    bound
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    spawn_bound(bound).unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// A command that runs until it is dropped, with pipes as its streams.
pub struct RunningCommand {
    pub child: Child,
}

impl RunningCommand {
    pub fn start(command: &Command) -> Self {
        Self {
            child: spawn_piped(command),
        }
    }

    /// Waits until it ends by itself; it must succeed.
    pub fn wait_for_success(mut self) {
        let status = wait_within(&mut self.child, END_TIMEOUT);
        assert!(status.success(), "ended with {status}");
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a process ends; one that takes too long is killed and fails the test.
fn wait_within(child: &mut Child, limit: Duration) -> ExitStatus {
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > end {
            let _ = child.kill();
            panic!("process {} does not end in {limit:?}", child.id());
        }
        crate::sleep_blocking(POLL_INTERVAL);
    }
}

/// The lines that a process prints, as they come. A thread reads all of them, so that the
/// process never blocks on a full pipe.
pub fn lines_of(process: &mut Child) -> mpsc::Receiver<String> {
    let output = process.stdout.take().unwrap();
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    lines
}

/// A server that has printed its ready line. Dropping it is a `kill -9`.
pub struct ServerProcess {
    pub child: Child,
}

impl ServerProcess {
    /// Starts `program arguments` and waits for its ready line; returns the process and its
    /// `host:port`. Standard error is appended to `log`, which the panic shows when the
    /// process does not get ready.
    pub fn start(program: &str, arguments: &[&str], log: &Path) -> (Self, String) {
        Self::start_with_environment(program, arguments, &[], log)
    }

    /// Starts a simulated member with this many nodes, further flags, and its data and log in a
    /// folder.
    pub fn start_member(program: &str, dir: &Path, nodes: usize, flags: &[&str]) -> Self {
        std::fs::create_dir_all(dir).unwrap();
        let (path, nodes) = (dir.display().to_string(), nodes.to_string());
        let own = [
            "member",
            "--nodes",
            &nodes,
            "--listen",
            "127.0.0.1:0",
            "--dir",
            &path,
        ];
        Self::start(program, &[&own, flags].concat(), &dir.join("log")).0
    }

    /// As [`Self::start`], with additional environment variables.
    pub fn start_with_environment(
        program: &str,
        arguments: &[&str],
        environment: &[(&str, OsString)],
        log: &Path,
    ) -> (Self, String) {
        Self::start_within(START_TIMEOUT, program, arguments, environment, log)
    }

    /// As [`Self::start_with_environment`], with this limit, for example because the server has much to
    /// load.
    pub fn start_within(
        limit: Duration,
        program: &str,
        arguments: &[&str],
        environment: &[(&str, OsString)],
        log: &Path,
    ) -> (Self, String) {
        let errors = OpenOptions::new().create(true).append(true).open(log);
        let mut command = parent_bound_command(Path::new(program));
        command
            .args(arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors.unwrap());
        let mut process = Self {
            child: spawn_bound(command).unwrap(),
        };
        let lines = lines_of(&mut process.child);
        let line = lines.recv_timeout(limit).unwrap_or_default();
        let address = line
            .strip_prefix("ready https://")
            .and_then(|rest| rest.split_once(' '));
        let Some((address, _)) = address else {
            let log = std::fs::read_to_string(log).unwrap_or_default();
            panic!("{arguments:?} did not get ready: {line:?}\n{log}");
        };
        (process, address.to_owned())
    }

    /// SIGTERM, and waits for its end; its exit status must be a success.
    pub fn stop(self) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status().unwrap();
        assert!(sent.success(), "kill -TERM {id}");
        let status = self.wait();
        assert!(status.success(), "ended with {status}");
    }

    /// Waits for its end after a signal.
    pub fn wait(mut self) -> ExitStatus {
        wait_within(&mut self.child, END_TIMEOUT)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

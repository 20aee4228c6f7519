//! Runs a program in the background of a test, and kills, stops, suspends or restarts it.
//!
//! A process ends when its [`Daemon`] is dropped, and when the test process ends, even by
//! SIGKILL.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long a program may take to end after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A command that the kernel kills when this process ends.
pub fn parent_bound_command(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Starts a [`parent_bound_command`]. The kernel kills the child when the thread that
/// started it ends, and threads of tests end early. So one thread that lives as long as
/// the process starts all of them.
pub fn spawn_bound(command: Command) -> io::Result<Child> {
    type SpawnRequest = (Command, mpsc::Sender<io::Result<Child>>);
    static SPAWNER: OnceLock<mpsc::Sender<SpawnRequest>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, requests) = mpsc::channel::<SpawnRequest>();
        std::thread::spawn(move || {
            for (mut command, result) in requests {
                let _ = result.send(command.spawn());
            }
        });
        sender
    });
    let (sender, result) = mpsc::channel();
    spawner.send((command, sender)).unwrap();
    result.recv().unwrap()
}

/// A temporary directory that is removed on drop. When the test fails it stays, for its
/// logs, and its path is printed to standard error.
pub struct TestDir(TempDir);

impl TestDir {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Default for TestDir {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.disable_cleanup(true);
            let _ = writeln!(io::stderr(), "kept: {}", self.0.path().display());
        }
    }
}

/// A program with its arguments. Dropping it is a `kill -9`.
pub struct Daemon {
    program: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
}

impl Daemon {
    /// Starts it. What it prints is appended to `log`.
    pub fn start(program: &Path, arguments: Vec<String>, log: &Path) -> Self {
        let mut daemon = Self {
            program: program.to_owned(),
            arguments,
            log: log.to_owned(),
            child: None,
        };
        daemon.restart();
        daemon
    }

    /// Starts it with the same arguments; it must not be running.
    pub fn restart(&mut self) {
        assert!(self.child.is_none(), "{} runs already", self.name());
        let log = OpenOptions::new().create(true).append(true).open(&self.log);
        let log = log.unwrap();
        let mut command = parent_bound_command(&self.program);
        command
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.child = Some(spawn_bound(command).unwrap());
    }

    /// SIGKILL; the process has ended when this returns. It ends a suspended process, too.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// SIGTERM, and waits until it has ended.
    pub fn stop(&mut self) {
        self.send_signal("-TERM");
        let end = Instant::now() + STOP_TIMEOUT;
        let child = self.child.as_mut().unwrap();
        while child.try_wait().unwrap().is_none() {
            assert!(
                Instant::now() < end,
                "{} does not end",
                self.program.display()
            );
            crate::sleep_blocking(POLL_INTERVAL);
        }
        self.child = None;
    }

    /// SIGSTOP: the process keeps its connections and does nothing.
    pub fn suspend(&self) {
        self.send_signal("-STOP");
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.send_signal("-CONT");
    }

    /// Whether it was started and neither killed nor stopped since.
    pub fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// Panics with the last lines of the log when the program has ended by itself.
    pub fn assert_running(&mut self) {
        let ended = self.child.as_mut().and_then(|c| c.try_wait().unwrap());
        if let Some(status) = ended {
            panic!("{} ended: {status}\n{}", self.name(), self.log_tail());
        }
    }

    pub fn pid(&self) -> u32 {
        let child = self.child.as_ref();
        child
            .unwrap_or_else(|| panic!("{} does not run", self.name()))
            .id()
    }

    /// The last 40 lines of its output.
    pub fn log_tail(&self) -> String {
        let all = std::fs::read(&self.log).unwrap_or_default();
        let all = String::from_utf8_lossy(&all);
        let lines: Vec<&str> = all.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    fn name(&self) -> String {
        let name = self.program.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    fn send_signal(&self, signal: &str) {
        let id = self.pid().to_string();
        let sent = Command::new("kill").args([signal, &id]).status().unwrap();
        assert!(sent.success(), "kill {signal} {id} ({})", self.name());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

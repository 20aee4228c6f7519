//! A process of the binary under test: started with its arguments, heard until it
//! says that it is ready, killed with its handle.
//!
//! Enters: the program, its arguments, where its log goes. Leaves: the process, and
//! the address that it told.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::daemon::{bound, spawn};

const START: Duration = Duration::from_secs(60);

/// `program arguments`, which must end with a success; what it printed.
pub async fn run(program: &str, arguments: &[&str]) -> String {
    let (code, said) = ran(program, arguments).await;
    assert_eq!(code, Some(0), "{arguments:?}: {said}");
    said
}

/// `program arguments`: its exit code and what it printed.
pub async fn ran(program: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(program);
    command.args(arguments);
    let out = tokio::task::spawn_blocking(move || command.output());
    let out = out.await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    (out.status.code(), said)
}

/// A server that has said it is ready. Dropping it is a `kill -9`.
pub struct Process {
    pub child: Child,
}

impl Process {
    /// Starts `program arguments` and waits for its ready line; with it comes its
    /// `host:port`. Standard error is appended to `log`, which is shown when nothing
    /// gets ready.
    pub fn start(program: &str, arguments: &[&str], log: &Path) -> (Self, String) {
        Self::start_in(program, arguments, &[], log)
    }

    /// The same with further variables in its environment.
    pub fn start_in(
        program: &str,
        arguments: &[&str],
        environment: &[(&str, OsString)],
        log: &Path,
    ) -> (Self, String) {
        let errors = OpenOptions::new().create(true).append(true).open(log);
        let mut command = bound(Path::new(program));
        command
            .args(arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors.unwrap());
        let mut process = Self {
            child: spawn(command).unwrap(),
        };
        let line = process.first_line();
        let address = line
            .strip_prefix("ready https://")
            .and_then(|rest| rest.split_once(' '));
        let Some((address, _)) = address else {
            let log = std::fs::read_to_string(log).unwrap_or_default();
            panic!("{arguments:?} did not get ready: {line:?}\n{log}");
        };
        (process, address.to_owned())
    }

    /// SIGTERM, and waits for its end, which must be a success.
    pub fn stop(mut self) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status().unwrap();
        assert!(sent.success(), "kill -TERM {id}");
        let status = self.child.wait().unwrap();
        assert!(status.success(), "ended with {status}");
    }

    /// Empty when there was none in time. The lines that follow are read too, so
    /// that the process never waits for a reader.
    fn first_line(&mut self) -> String {
        let output = self.child.stdout.take().unwrap();
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        told.recv_timeout(START).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

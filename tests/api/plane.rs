//! A server of its own, `serve` or `member`: started on a free port in a directory of its
//! own, ended with it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;

use parking_lot::Mutex;
use tempfile::TempDir;

use crate::wire::Identity;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_flotilla");
const START: Duration = Duration::from_secs(60);

/// The plane and where it is. Dropping it ends the process.
pub(crate) struct Plane {
    process: Child,
    pub(crate) address: String,
    /// Who may do everything.
    pub(crate) admin: Identity,
    dir: TempDir,
}

impl Plane {
    /// Starts one on an empty directory.
    pub(crate) fn start() -> Self {
        Self::of(&["serve", "--data-dir"])
    }

    /// A simulated cluster instead: the same server, with workloads that run.
    pub(crate) fn member() -> Self {
        Self::of(&["member", "--nodes", "2", "--dir"])
    }

    fn of(command: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (process, ready) = start(command, &dir.path().join("data"));
        let address = ready
            .strip_prefix("ready https://")
            .and_then(|rest| rest.split_once(" kubeconfig="))
            .unwrap_or_else(|| panic!("unknown ready line {ready:?}"))
            .0
            .to_owned();
        let admin = Identity::read(&dir.path().join("data/pki"));
        Self {
            process,
            address,
            admin,
            dir,
        }
    }

    /// The plane of this moment. The last test that holds it ends it: a static
    /// would never be dropped.
    pub(crate) fn shared() -> Arc<Self> {
        static PLANE: Mutex<Weak<Plane>> = Mutex::new(Weak::new());
        let mut plane = PLANE.lock();
        if let Some(running) = plane.upgrade() {
            return running;
        }
        let started = Arc::new(Self::start());
        *plane = Arc::downgrade(&started);
        started
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.data().join("kubeconfig")
    }

    /// A folder of this plane that does not matter to it.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let folder = self.dir.path().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts the process and waits for its first line.
fn start(command: &[&str], data: &Path) -> (Child, String) {
    let log = data.with_extension("log");
    let mut process = Command::new(BINARY)
        .args(command)
        .arg(data)
        .args(["--listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let output = process.stdout.take().unwrap();
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if tell.send(line).is_err() {
                return;
            }
        }
    });
    match told.recv_timeout(START) {
        Ok(line) => (process, line),
        Err(_) => {
            let _ = process.kill();
            let _ = process.wait();
            panic!("not ready: {}", std::fs::read_to_string(&log).unwrap());
        }
    }
}

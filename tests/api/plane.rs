//! A server process, `flotilla serve` or `flotilla member`, on a free port and in a directory of
//! its own.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use harness::Process;
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::wire::Identity;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_flotilla");

/// A running server with its address and clients. Dropping it ends the process.
pub(crate) struct Plane {
    _process: Process,
    pub(crate) address: String,
    /// A client certificate in the group system:masters.
    pub(crate) admin: Identity,
    /// No client certificate.
    pub(crate) stranger: Identity,
    dir: TempDir,
}

impl Plane {
    /// Starts `flotilla serve` on an empty directory.
    pub(crate) fn start() -> Self {
        Self::of(&["serve", "--data-dir"])
    }

    /// Starts `flotilla serve` with further flags.
    pub(crate) fn start_with(flags: &[&str]) -> Self {
        Self::of(&[&["serve"], flags, &["--data-dir"]].concat())
    }

    /// Starts `flotilla serve` on the directory `data` in `dir`.
    pub(crate) fn start_in(dir: TempDir) -> Self {
        Self::on(dir, &["serve", "--data-dir"])
    }

    /// Starts a simulated cluster: the same server, with workload controllers and 2 hollow nodes.
    pub(crate) fn member() -> Self {
        Self::of(&["member", "--nodes", "2", "--dir"])
    }

    /// Starts a simulated cluster without nodes and workload controllers.
    pub(crate) fn records() -> Self {
        Self::of(&["member", "--workloads=false", "--dir"])
    }

    fn of(command: &[&str]) -> Self {
        Self::on(tempfile::tempdir().unwrap(), command)
    }

    fn on(dir: TempDir, command: &[&str]) -> Self {
        let data = dir.path().join("data").display().to_string();
        let arguments = [command, &[&data, "--listen", "127.0.0.1:0"]].concat();
        let log = dir.path().join("data.log");
        let (process, address) = Process::start(BINARY, &arguments, &log);
        let read = |name| std::fs::read_to_string(dir.path().join("data/pki").join(name)).unwrap();
        let ca = read("ca.crt");
        let admin = Identity::new(&ca, Some((&read("admin.crt"), &read("admin.key"))));
        let stranger = Identity::new(&ca, None);
        Self {
            _process: process,
            address,
            admin,
            stranger,
            dir,
        }
    }

    /// The server that concurrent tests share. It ends with the last test that holds it; a static
    /// would never be dropped.
    pub(crate) fn shared() -> Arc<Self> {
        static PLANE: Mutex<Weak<Plane>> = Mutex::new(Weak::new());
        let mut test_server = PLANE.lock();
        if let Some(running) = test_server.upgrade() {
            return running;
        }
        let started = Arc::new(Self::start());
        *test_server = Arc::downgrade(&started);
        started
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.data().join("kubeconfig")
    }

    /// Creates a directory for the test, beside the server's data.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let folder = self.dir.path().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }
}

//! A server of its own, `serve` or `member`: started on a free port in a directory of its
//! own, ended with it.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use harness::Process;
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::wire::Identity;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_flotilla");

/// The plane and where it is. Dropping it ends the process.
pub(crate) struct Plane {
    _process: Process,
    pub(crate) address: String,
    /// Who may do everything.
    pub(crate) admin: Identity,
    /// Who shows nothing.
    pub(crate) stranger: Identity,
    dir: TempDir,
}

impl Plane {
    /// Starts one on an empty directory.
    pub(crate) fn start() -> Self {
        Self::of(&["serve", "--data-dir"])
    }

    /// Starts one with further flags.
    pub(crate) fn start_with(flags: &[&str]) -> Self {
        Self::of(&[&["serve"], flags, &["--data-dir"]].concat())
    }

    /// Starts one on the folder `data` of a directory.
    pub(crate) fn start_in(dir: TempDir) -> Self {
        Self::on(dir, &["serve", "--data-dir"])
    }

    /// A simulated cluster instead: the same server, with workloads that run.
    pub(crate) fn member() -> Self {
        Self::of(&["member", "--nodes", "2", "--dir"])
    }

    /// A simulated cluster without workload controllers, in which objects are records.
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

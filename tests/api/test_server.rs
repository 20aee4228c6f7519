//! A server process, `flotilla serve` or `flotilla member`, on a free port and in a directory of
//! its own.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use harness::ServerProcess;
use harness::raw_http::TestTlsClientConfig;
use parking_lot::Mutex;
use tempfile::TempDir;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_flotilla");

/// A running server with its address and clients. Dropping it ends the process.
pub(crate) struct ApiTestServer {
    _process: ServerProcess,
    pub(crate) address: String,
    /// A client certificate in the group system:masters.
    pub(crate) admin: TestTlsClientConfig,
    /// No client certificate.
    pub(crate) anonymous: TestTlsClientConfig,
    dir: TempDir,
}

impl ApiTestServer {
    /// Starts `flotilla serve` on an empty directory.
    pub(crate) fn start() -> Self {
        Self::start_command(&["serve", "--data-dir"])
    }

    /// Starts `flotilla serve` with further flags.
    pub(crate) fn start_with(flags: &[&str]) -> Self {
        Self::start_command(&[&["serve"], flags, &["--data-dir"]].concat())
    }

    /// Starts `flotilla serve` on the directory `data` in `dir`.
    pub(crate) fn start_in(dir: TempDir) -> Self {
        Self::start_command_in(dir, &["serve", "--data-dir"])
    }

    /// Stops the process and starts `flotilla serve` on the same directory.
    pub(crate) fn restart(self) -> Self {
        drop(self._process);
        Self::start_in(self.dir)
    }

    /// SIGTERM, and waits for its end; its exit status must be a success.
    pub(crate) fn stop(self) {
        self._process.stop();
    }

    /// Starts a simulated cluster: the same server, with workload controllers and 2 hollow nodes.
    pub(crate) fn start_member() -> Self {
        Self::start_member_with(&[])
    }

    /// As [`Self::start_member`], with further flags.
    pub(crate) fn start_member_with(flags: &[&str]) -> Self {
        Self::start_command(&[&["member", "--nodes", "2"], flags, &["--dir"]].concat())
    }

    /// Starts a simulated cluster without nodes and workload controllers.
    pub(crate) fn start_member_without_workloads() -> Self {
        Self::start_command(&["member", "--workloads=false", "--dir"])
    }

    fn start_command(command: &[&str]) -> Self {
        Self::start_command_in(tempfile::tempdir().unwrap(), command)
    }

    fn start_command_in(dir: TempDir, command: &[&str]) -> Self {
        let data = dir.path().join("data").display().to_string();
        let arguments = [command, &[&data, "--listen", "127.0.0.1:0"]].concat();
        let log = dir.path().join("data.log");
        let (process, address) = ServerProcess::start(BINARY, &arguments, &log);
        let read = |name| std::fs::read_to_string(dir.path().join("data/pki").join(name)).unwrap();
        let ca = read("ca.crt");
        let admin = TestTlsClientConfig::new(&ca, Some((&read("admin.crt"), &read("admin.key"))));
        let anonymous = TestTlsClientConfig::new(&ca, None);
        Self {
            _process: process,
            address,
            admin,
            anonymous,
            dir,
        }
    }

    /// The server that concurrent tests share. It ends with the last test that holds it; a static
    /// would never be dropped.
    pub(crate) fn shared() -> Arc<Self> {
        static PLANE: Mutex<Weak<ApiTestServer>> = Mutex::new(Weak::new());
        let mut test_server = PLANE.lock();
        if let Some(running) = test_server.upgrade() {
            return running;
        }
        let started = Arc::new(Self::start());
        *test_server = Arc::downgrade(&started);
        started
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.data_dir().join("kubeconfig")
    }

    /// Creates a directory for the test, beside the server's data.
    pub(crate) fn create_dir(&self, name: &str) -> PathBuf {
        let folder = self.dir.path().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }
}

/// The error of a server that does not start.
pub(crate) fn start_error(flags: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut serve = std::process::Command::new(BINARY);
    serve
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(dir.path())
        .args(flags);
    let output = harness::process::run(&serve);
    assert!(!output.status.success(), "it starts with {flags:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

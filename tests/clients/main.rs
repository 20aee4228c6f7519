//! Clients that Flotilla did not write, each over a restart of the server: client-go and kube-rs.
//!
//! Each creates, watches, applies as two managers with a conflict, deletes, and ends with the
//! view that a list gives. `client-go.go` is built by `tests/tools/get`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod client_go;
mod kube_rs;

use std::path::PathBuf;

use harness::daemon::TestDir;
use harness::{ServerProcess, port};

/// `flotilla serve` that starts again on its data and address.
struct RestartableServer {
    process: Option<ServerProcess>,
    address: String,
    dir: TestDir,
}

impl RestartableServer {
    fn start() -> Self {
        let mut server = Self {
            process: None,
            address: format!("127.0.0.1:{}", port::free_port()),
            dir: TestDir::new(),
        };
        server.restart();
        server
    }

    /// `kill -9`, and a new process.
    fn restart(&mut self) {
        self.process = None;
        let data = self.dir.path().join("data").display().to_string();
        let arguments = ["serve", "--listen", &self.address, "--data-dir", &data];
        let log = self.dir.path().join("log");
        let (process, _) = ServerProcess::start(env!("CARGO_BIN_EXE_flotilla"), &arguments, &log);
        self.process = Some(process);
    }

    fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("data/kubeconfig")
    }
}

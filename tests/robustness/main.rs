//! Promises that must hold while parts fail, each over real etcd and the real binary.
//!
//! | module | what fails |
//! |---|---|
//! | `nodes` | members of an etcd cluster, and the network to them |
//! | `stalled` | etcd, while clients show tokens of service accounts |
//! | `refused` | the start: what etcd is not there or not ours |
//! | `disk` | the disk of the embedded store: space, fsync, power |
//! | `fresh` | nothing: what one replica wrote, the other lists |
//! | `layout` | nothing: what was written lies in etcd |
//! | `upgrade` | the version: data of an older binary, and of a newer one |
//! | `encryption` | the disk's secrecy, and keys that do not fit |
//!
//! `history` holds what was recorded against what etcd remembers. What takes longer
//! than half a minute is marked `#[harness::slow]`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod disk;
mod encryption;
mod fresh;
mod history;
mod layout;
mod nodes;
mod refused;
mod stalled;
mod upgrade;

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use harness::{Process, Server};
use tempfile::TempDir;

/// `flotilla serve` on an etcd.
struct Replica {
    server: Server,
    /// `host:port`.
    address: String,
    data: PathBuf,
    /// Killed when this is dropped.
    process: Process,
    dir: TempDir,
}

impl Replica {
    /// Must be called where tokio runs.
    fn start(name: &str, servers: &str, more: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data").display().to_string();
        let mut arguments = vec!["serve", "--data-dir", &data, "--listen", "127.0.0.1:0"];
        arguments.extend(["--etcd-servers", servers]);
        arguments.extend(more);
        let log = dir.path().join("log");
        let (process, address) = Process::start(env!("CARGO_BIN_EXE_flotilla"), &arguments, &log);
        let data = PathBuf::from(data);
        Self {
            server: Server::connect(name, &data.join("kubeconfig")),
            address,
            data,
            process,
            dir,
        }
    }

    /// Waits until the process has ended by itself.
    async fn ended(&mut self, patience: Duration) -> ExitStatus {
        let end = Instant::now() + patience;
        loop {
            if let Some(status) = self.process.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "it goes on: {}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }
}

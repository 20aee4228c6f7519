//! Fault injection tests of the real binary on real etcd and on the embedded store.
//!
//! | module | fault |
//! |---|---|
//! | `etcd_node_failures` | nodes of an etcd cluster are killed, the network to them is cut |
//! | `stalled_etcd` | etcd hangs while clients use service account tokens |
//! | `startup_errors` | etcd is missing, wrongly configured or used by another program |
//! | `disk_faults` | the disk of the embedded store: space, fsync, power |
//! | `backup`, `backup_etcd` | a restore is killed, a backup is damaged; backup under writes |
//! | `crash_store`, `crash_etcd`, `crash_etcd_deltas`, `power_loss` | a process that writes to a store is killed, or its disk loses power |
//! | `rollout_crashes` | a server is killed at each write of a Rollout's status |
//! | `rollout_job_crashes` | a server is killed at each write of a rollout that awaits Jobs |
//! | `consistent_reads` | none: one replica lists what another one wrote |
//! | `storage_layout` | none: keys and values in etcd |
//! | `upgrade` | data of an older and of a newer version |
//! | `encryption` | none: secrets on the disk, key rotation; missing keys |
//! | `soak` | none: an hour of mixed traffic |
//!
//! `history_check` compares the records of clients with etcd's history. Tests that take
//! longer than half a minute are marked `#[harness::slow]`.

mod backup;
mod backup_etcd;
mod consistent_reads;
mod crash_etcd;
mod crash_etcd_deltas;
mod crash_store;
mod disk_faults;
mod durability_check;
mod encryption;
mod etcd_node_failures;
mod history_check;
mod power_loss;
mod record;
mod rollout_crashes;
mod rollout_job_crashes;
mod soak;
mod stalled_etcd;
mod startup_errors;
mod storage_layout;
mod upgrade;

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use harness::{ApiServerClient, ServerProcess};
use tempfile::TempDir;

/// `flotilla serve` on an etcd.
struct ReplicaProcess {
    server: ApiServerClient,
    /// `host:port`.
    address: String,
    data: PathBuf,
    /// Killed when this is dropped.
    process: ServerProcess,
    dir: TempDir,
}

impl ReplicaProcess {
    /// Must be called where tokio runs.
    fn start(name: &str, servers: &str, more: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data").display().to_string();
        let mut arguments = vec!["serve", "--data-dir", &data, "--listen", "127.0.0.1:0"];
        arguments.extend(["--etcd-servers", servers]);
        arguments.extend(more);
        let log = dir.path().join("log");
        let (process, address) =
            ServerProcess::start(env!("CARGO_BIN_EXE_flotilla"), &arguments, &log);
        let data = PathBuf::from(data);
        Self {
            server: ApiServerClient::connect(name, &data.join("kubeconfig")),
            address,
            data,
            process,
            dir,
        }
    }

    /// Waits until the process has ended by itself.
    async fn wait_for_exit(&mut self, timeout: Duration) -> ExitStatus {
        let end = Instant::now() + timeout;
        loop {
            if let Some(status) = self.process.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "the process runs on: {}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }
}

//! Disk faults of a server with the embedded store: the disk is full, its fsync fails, or it
//! loses power.
//!
//! During a fault, writes fail with its reason; probes, metrics and events name it; reads
//! work. After the fault the server writes again without a restart, and no acknowledged
//! write is lost.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use client::Error;
use harness::disk::SmallDisk;
use harness::objects::{CONFIG_MAPS, EVENTS};
use harness::raw_http::{RawHttpRequest, TestTlsClientConfig};
use harness::{ApiServerClient, FaultyDisk, FsyncMode, ServerProcess};
use serde_json::json;
use tokio::time::{Instant, sleep};

const RECOVERY_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const BINARY: &str = env!("CARGO_BIN_EXE_flotilla");

/// `flotilla serve` with the embedded store.
struct StandaloneProcess {
    server: ApiServerClient,
    address: String,
    data: PathBuf,
    /// Killed when this is dropped.
    _process: ServerProcess,
    written: Vec<String>,
}

impl StandaloneProcess {
    /// Must be called where tokio runs. The log must be on another disk than the data.
    fn start(data: &Path, environment: &[(&str, OsString)], log: &Path) -> Self {
        let folder = data.display().to_string();
        let arguments = ["serve", "--data-dir", &folder, "--listen", "127.0.0.1:0"];
        let (process, address) =
            ServerProcess::start_with_environment(BINARY, &arguments, environment, log);
        Self {
            server: ApiServerClient::connect("standalone", &data.join("kubeconfig")),
            address,
            data: data.to_owned(),
            _process: process,
            written: Vec::new(),
        }
    }

    /// The response of a probe to an anonymous request.
    fn probe(&self, path: &str) -> (u16, String) {
        let ca = std::fs::read_to_string(self.data.join("pki/ca.crt")).unwrap();
        let reply = RawHttpRequest::new(
            &self.address,
            &TestTlsClientConfig::new(&ca, None),
            "GET",
            path,
        )
        .send();
        (reply.code, String::from_utf8(reply.body).unwrap())
    }

    /// Creates a ConfigMap of 100 KiB.
    async fn write(&mut self, name: &str) -> client::Result<()> {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default"},
            "data": {"filler": "x".repeat(100 << 10)},
        });
        self.server.try_create(object).await?;
        self.written.push(name.to_owned());
        Ok(())
    }

    /// Writes until a write fails with a `Status` of 500 whose message contains `words`.
    async fn write_until_refused(&mut self, words: &str) {
        let deadline = Instant::now() + RECOVERY_TIMEOUT;
        for n in 0.. {
            match self.write(&format!("refused-{n}")).await {
                Ok(()) => assert!(Instant::now() < deadline, "nothing is refused"),
                Err(Error::Status(status)) => {
                    assert_eq!(status.code, 500, "{status:?}");
                    assert!(status.message.contains(words), "{status:?}");
                    return;
                }
                Err(other) => panic!("{other}"),
            }
        }
    }

    /// Checks probes, the metric and reads during a fault.
    async fn expect_fault(&self, fault: &str) {
        let failed = format!("[-]storage-{fault} failed: reason withheld\n");
        for path in ["/readyz", "/livez", "/readyz?verbose", "/livez?verbose"] {
            let (code, text) = self.probe(path);
            assert!(code == 500 && text.contains(&failed), "{path}: {text}");
            assert!(text.contains("[-]etcd failed"), "{path}: {text}");
            assert!(text.contains("[+]storage-writer ok\n"), "{path}: {text}");
        }
        assert_eq!(self.probe(&format!("/livez/storage-{fault}")).0, 500);
        assert_eq!(self.metric(fault).await, 1.0);
        self.expect_written().await;
    }

    async fn metric(&self, fault: &str) -> f64 {
        let text = self.server.api.get_raw("/metrics").await.unwrap();
        let text = String::from_utf8(text.to_vec()).unwrap();
        let name = format!("flotilla_store_fault{{fault=\"{fault}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
    }

    /// Waits until the server is ready and writes again, and has recorded the events.
    async fn expect_recovery(&mut self, fault: &str, reason: &str) {
        let deadline = Instant::now() + RECOVERY_TIMEOUT;
        while self.probe("/readyz").0 != 200 {
            assert!(Instant::now() < deadline, "{}", self.probe("/readyz").1);
            sleep(POLL_INTERVAL).await;
        }
        assert_eq!(self.probe("/livez").0, 200);
        assert_eq!(self.metric(fault).await, 0.0);
        self.write("recovered").await.unwrap();
        for reason in [reason, "StoreRecovered"] {
            while !self.has_event(reason).await {
                assert!(Instant::now() < deadline, "no event {reason}");
                sleep(POLL_INTERVAL).await;
            }
        }
        self.expect_written().await;
    }

    async fn has_event(&self, reason: &str) -> bool {
        let events = self.server.list(&EVENTS, "default").await;
        events.iter().any(|event| event["reason"] == reason)
    }

    /// Checks that every acknowledged object can be read.
    async fn expect_written(&self) {
        for name in &self.written {
            let stored = self.server.get(&CONFIG_MAPS, "default", name).await;
            assert!(stored.is_some(), "{name} is lost");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_refuses_writes_until_there_is_space_again() {
    let Some(disk) = SmallDisk::mount(32 << 20) else {
        return;
    };
    let log = tempfile::tempdir().unwrap();
    let mut plane =
        StandaloneProcess::start(&disk.path().join("data"), &[], &log.path().join("log"));
    plane.write("before").await.unwrap();
    disk.fill();
    plane
        .write_until_refused("no space left in the store")
        .await;
    plane.expect_fault("space").await;
    disk.free_space();
    plane.expect_recovery("space", "StoreFull").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_fsync_refuses_writes_and_loses_nothing_with_the_power() {
    let directory = tempfile::tempdir().unwrap();
    let (data, log) = (directory.path().join("data"), directory.path().join("log"));
    std::fs::create_dir(&data).unwrap();
    let disk = FaultyDisk::new(&data);
    let mut plane = StandaloneProcess::start(&data, &disk.environment(Path::new(BINARY)), &log);
    let identity = std::fs::read(data.join("pki/ca.crt")).unwrap();
    plane.write("before").await.unwrap();
    disk.set_fsync(FsyncMode::Fails);
    plane
        .write_until_refused("the disk of the store fails")
        .await;
    plane.expect_fault("disk").await;
    disk.set_fsync(FsyncMode::Works);
    plane.expect_recovery("disk", "StoreDiskFailed").await;

    let written = std::mem::take(&mut plane.written);
    drop(plane);
    disk.lose_power(|| false);
    let mut plane = StandaloneProcess::start(&data, &[], &log);
    plane.written = written;
    plane.expect_written().await;
    let again = std::fs::read(data.join("pki/ca.crt")).unwrap();
    assert!(identity == again, "the certificate authority is lost");
}

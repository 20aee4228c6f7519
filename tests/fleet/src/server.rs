//! The server under test: a process of its own, which may be killed and started again on its data.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use harness::{ServerProcess, process_stat};

/// It loads all objects before it is ready.
const START_TIMEOUT: Duration = Duration::from_secs(900);
const IDLE_INTERVAL: Duration = Duration::from_secs(1);
/// The CPU of an idle server, in cores, and of the heartbeats of one cluster.
const IDLE_CORES: f64 = 0.03;
const IDLE_CORES_PER_CLUSTER: f64 = 0.0003;

/// A server and what its processes have used so far.
pub(crate) struct ServerUnderTest {
    program: String,
    flags: Vec<String>,
    directory: PathBuf,
    address: String,
    process: Option<ServerProcess>,
    /// CPU seconds and written bytes of the processes that have ended.
    ended: (f64, f64),
}

impl ServerUnderTest {
    /// Starts `flotilla serve` with further flags on a directory.
    pub(crate) fn start(
        program: &Path,
        flags: &[String],
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let mut server = Self {
            program: program.display().to_string(),
            flags: flags.to_vec(),
            directory: directory.to_owned(),
            address: format!("127.0.0.1:{}", harness::port::free_port()),
            process: None,
            ended: (0.0, 0.0),
        };
        server.start_process();
        Ok(server)
    }

    fn start_process(&mut self) {
        let directory = self.directory.display().to_string();
        let mut arguments = vec!["serve", "--data-dir", &directory, "--listen", &self.address];
        arguments.extend(self.flags.iter().map(String::as_str));
        let log = self.directory.with_extension("log");
        let (process, _) =
            ServerProcess::start_within(START_TIMEOUT, &self.program, &arguments, &[], &log);
        self.process = Some(process);
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.directory.join("kubeconfig")
    }

    /// SIGKILL, and a start on the same data.
    pub(crate) fn kill_and_restart(&mut self) -> anyhow::Result<()> {
        self.ended = (self.cpu_seconds()?, self.written_bytes()?);
        self.process = None;
        self.start_process();
        Ok(())
    }

    /// SIGTERM, and a start on the same data; returns the seconds until it is ready.
    pub(crate) fn restart(&mut self) -> anyhow::Result<f64> {
        self.ended = (self.cpu_seconds()?, self.written_bytes()?);
        self.process.take().context("no server runs")?.stop();
        let began = Instant::now();
        self.start_process();
        Ok(began.elapsed().as_secs_f64())
    }

    fn process_id(&self) -> anyhow::Result<u32> {
        let process = self.process.as_ref().context("no server runs")?;
        Ok(process.child.id())
    }

    /// CPU seconds of all its processes.
    pub(crate) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        Ok(self.ended.0 + process_stat::cpu_seconds(self.process_id()?)?)
    }

    /// Bytes that all its processes have sent to the disk.
    pub(crate) fn written_bytes(&self) -> anyhow::Result<f64> {
        Ok(self.ended.1 + process_stat::written_bytes(self.process_id()?)?)
    }

    pub(crate) fn resident_bytes(&self) -> anyhow::Result<f64> {
        Ok(process_stat::resident_bytes(self.process_id()?)?)
    }

    pub(crate) fn peak_resident_bytes(&self) -> anyhow::Result<f64> {
        Ok(process_stat::peak_resident_bytes(self.process_id()?)?)
    }

    /// The bytes of all files in its directory.
    pub(crate) fn disk_bytes(&self) -> anyhow::Result<f64> {
        let mut sum = 0;
        let mut folders = vec![self.directory.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder)? {
                let entry = entry?;
                // A file may be deleted meanwhile.
                match entry.metadata() {
                    Ok(metadata) if metadata.is_dir() => folders.push(entry.path()),
                    Ok(metadata) => sum += metadata.len(),
                    Err(_) => {}
                }
            }
        }
        Ok(sum as f64)
    }

    /// Waits until it uses little CPU for a second, or until `limit`; returns whether it does.
    pub(crate) async fn wait_until_idle(
        &self,
        clusters: usize,
        limit: Duration,
    ) -> anyhow::Result<bool> {
        let idle_cores = IDLE_CORES + IDLE_CORES_PER_CLUSTER * clusters as f64;
        let deadline = Instant::now() + limit;
        loop {
            if self.measure_cores(IDLE_INTERVAL).await? <= idle_cores {
                return Ok(true);
            }
            if Instant::now() > deadline {
                return Ok(false);
            }
        }
    }

    /// The cores that it uses over this time.
    pub(crate) async fn measure_cores(&self, time: Duration) -> anyhow::Result<f64> {
        let (before, began) = (self.cpu_seconds()?, Instant::now());
        tokio::time::sleep(time).await;
        Ok((self.cpu_seconds()? - before) / began.elapsed().as_secs_f64())
    }
}

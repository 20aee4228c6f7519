//! Starts processes of the binary under test and measures their CPU time and memory.
//!
//! A process is killed when its handle is dropped, so that a failed measurement leaves no
//! process behind.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use harness::process_stat;

use crate::kubeconfig::Kubeconfig;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_flotilla");
/// How the first line of a server begins.
const READY: &str = "ready ";
pub(crate) const MIB: f64 = 1024.0 * 1024.0;

/// A server that has printed its ready line.
pub(crate) struct MeasuredProcess {
    child: Child,
    /// The time from spawning to the ready line.
    pub(crate) startup_time: Duration,
    /// The kubeconfig for requests to it.
    pub(crate) kubeconfig: PathBuf,
}

impl MeasuredProcess {
    /// Starts `flotilla ARGUMENTS` and waits for its ready line.
    pub(crate) fn start(arguments: &[&str]) -> anyhow::Result<Self> {
        let (mut process, line) = Self::spawn(arguments, READY)?;
        let path = line.split_once("kubeconfig=");
        process.kubeconfig = PathBuf::from(path.context("no kubeconfig in the ready line")?.1);
        Ok(process)
    }

    /// `flotilla serve` behind the host of a kubeconfig, which also serves the requests to
    /// Flotilla.
    pub(crate) fn serve_behind_host(host: &Path, arguments: &[&str]) -> anyhow::Result<Self> {
        let path = host.display().to_string();
        let (mut process, _) = Self::spawn(
            &[&["serve", "--kubeconfig", &path], arguments].concat(),
            READY,
        )?;
        process.kubeconfig = host.to_owned();
        Ok(process)
    }

    /// `flotilla agent`, which serves no requests.
    pub(crate) fn agent(arguments: &[&str]) -> anyhow::Result<Self> {
        Ok(Self::spawn(&[&["agent"], arguments].concat(), READY)?.0)
    }

    /// `flotilla console` with a kubeconfig, and the link that it prints.
    pub(crate) fn console(kubeconfig: &Path) -> anyhow::Result<(Self, String)> {
        let path = kubeconfig.display().to_string();
        Self::spawn(&["console", "--kubeconfig", &path], "http://")
    }

    /// Starts a command whose first line begins with `ready` once it serves.
    fn spawn(arguments: &[&str], ready: &str) -> anyhow::Result<(Self, String)> {
        let began = Instant::now();
        let mut child = Command::new(BINARY)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the binary")?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let process = Self {
            child,
            startup_time: began.elapsed(),
            kubeconfig: PathBuf::new(),
        };
        let line = line.trim().to_owned();
        let arguments = arguments.join(" ");
        ensure!(
            line.starts_with(ready),
            "`{arguments}` did not get ready: {line:?}"
        );
        Ok((process, line))
    }

    /// `flotilla serve` on a directory.
    pub(crate) fn serve(dir: &Path) -> anyhow::Result<Self> {
        let dir = dir.display().to_string();
        Self::start(&["serve", "--data-dir", &dir, "--listen", "127.0.0.1:0"])
    }

    pub(crate) fn read_kubeconfig(&self) -> anyhow::Result<Kubeconfig> {
        Kubeconfig::read(&self.kubeconfig)
    }

    /// SIGTERM, and waits for its end, which must be a success.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status()?;
        ensure!(sent.success(), "cannot signal process {pid}");
        let ended = self.child.wait()?;
        ensure!(ended.success(), "the server ended with {ended}");
        Ok(())
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// CPU seconds used so far by all threads, user and kernel.
    pub(crate) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        Ok(process_stat::cpu_seconds(self.child.id())?)
    }

    /// The resident bytes now.
    pub(crate) fn resident_bytes(&self) -> anyhow::Result<f64> {
        Ok(process_stat::resident_bytes(self.child.id())?)
    }

    /// The most resident bytes since [`Self::reset_peak`].
    pub(crate) fn peak_resident_bytes(&self) -> anyhow::Result<f64> {
        Ok(process_stat::peak_resident_bytes(self.child.id())?)
    }

    pub(crate) fn reset_peak(&self) -> anyhow::Result<()> {
        fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5")?;
        Ok(())
    }

    /// Waits until it uses at most 0.03 s of CPU per second; returns the CPU seconds used until
    /// then. An error when it is not idle after `limit`.
    pub(crate) fn wait_until_idle(&self, limit: Duration) -> anyhow::Result<f64> {
        self.wait_until_below(0.03, limit)
    }

    /// As [`Self::wait_until_idle`], for a server that uses so many cores when it is idle.
    pub(crate) fn wait_until_below(&self, cores: f64, limit: Duration) -> anyhow::Result<f64> {
        let deadline = Instant::now() + limit;
        let mut before = self.cpu_seconds()?;
        loop {
            std::thread::park_timeout(Duration::from_millis(1000));
            let now = self.cpu_seconds()?;
            let used = now - before;
            if used <= cores {
                return Ok(now);
            }
            ensure!(
                Instant::now() < deadline,
                "not quiet within {limit:?}: {used:.2} s of CPU in the last second"
            );
            before = now;
        }
    }
}

impl Drop for MeasuredProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Polls `done` until it returns true; an error after `limit`.
pub(crate) fn wait_until(
    description: &str,
    limit: Duration,
    mut done: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + limit;
    while !done()? {
        ensure!(
            Instant::now() < deadline,
            "{description}: not within {limit:?}"
        );
        std::thread::park_timeout(Duration::from_millis(100));
    }
    Ok(())
}

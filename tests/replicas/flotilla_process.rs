//! Processes of the `flotilla` binary: replicas and members.

use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{ApiServerClient, ServerProcess};
use tempfile::TempDir;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_flotilla");

/// Flags for a leader election with a lease of 6 seconds. A process that competes for the cores with
/// others may not run for seconds; with a shorter lease the leaders depose one another.
pub(crate) const FAST_ELECTION_FLAGS: [&str; 4] = [
    "--leader-elect",
    "--leader-elect-lease-duration=6s",
    "--leader-elect-renew-deadline=5s",
    "--leader-elect-retry-period=1s",
];

/// Holds a lock, so that tests that measure time do not run in parallel.
pub(crate) async fn exclusive_lock() -> tokio::sync::MutexGuard<'static, ()> {
    static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    ALONE.lock().await
}

/// A process of the binary with its directory, which is kept when the process is restarted.
pub(crate) struct FlotillaProcess {
    process: Option<ServerProcess>,
    /// The binary that [`Self::restart`] runs.
    program: PathBuf,
    arguments: Vec<String>,
    pub(crate) address: String,
    dir: TempDir,
}

impl FlotillaProcess {
    /// Starts `flotilla serve` with further flags.
    pub(crate) fn serve(flags: &[&str]) -> Self {
        Self::serve_program(Path::new(BINARY), flags)
    }

    /// Like [`Self::serve`], with another binary.
    pub(crate) fn serve_program(program: &Path, flags: &[&str]) -> Self {
        Self::start(program.to_owned(), "serve", "--data-dir", flags)
    }

    /// Starts `flotilla member` with one node.
    pub(crate) fn member() -> Self {
        Self::start(BINARY.into(), "member", "--dir", &["--nodes", "1"])
    }

    fn start(program: PathBuf, command: &str, dir_flag: &str, flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().display().to_string();
        let own = [command, dir_flag, &path, "--v", "1"];
        // A restart listens on the port of the first start, so that clients can reconnect.
        let arguments = own.iter().chain(flags).map(|a| (*a).to_owned());
        let mut node = Self {
            process: None,
            program,
            arguments: arguments.collect(),
            address: "127.0.0.1:0".to_owned(),
            dir,
        };
        node.restart();
        node
    }

    /// Sets the binary that the next start runs.
    pub(crate) fn set_program(&mut self, program: &Path) {
        self.program = program.to_owned();
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Starts the process on the port that it had. It must not be running.
    pub(crate) fn restart(&mut self) {
        assert!(self.process.is_none(), "it runs already");
        let mut arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let address = self.address.clone();
        arguments.extend(["--listen", &address]);
        let program = self.program.to_str().unwrap();
        let (process, address) = ServerProcess::start(program, &arguments, &self.log_path());
        self.process = Some(process);
        self.address = address;
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.process.as_ref().unwrap().child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status().unwrap();
        assert!(sent.success(), "kill {signal} {id}");
    }

    /// Waits until the process exits successfully after a signal.
    pub(crate) async fn wait_for_exit(&mut self) {
        let process = self.process.take().unwrap();
        let status = tokio::task::spawn_blocking(move || process.wait());
        let status = status.await.unwrap();
        assert!(status.success(), "{status}: {}", self.log_text());
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    pub(crate) fn connect(&self, name: &str) -> ApiServerClient {
        ApiServerClient::connect(name, &self.kubeconfig())
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// Reads the log.
    pub(crate) fn log_text(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }
}

/// Runs `flotilla join NAME`, which must succeed.
pub(crate) async fn join(name: &str, member: &FlotillaProcess, control: &Path) {
    let cluster = member.kubeconfig();
    let mut command = Command::new(BINARY);
    command.args(["join", name, "--cluster-kubeconfig"]);
    command.arg(&cluster).arg("--kubeconfig").arg(control);
    let out = tokio::task::spawn_blocking(move || harness::process::run(&command));
    let out = out.await.unwrap();
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "join {name}: {errors}");
}

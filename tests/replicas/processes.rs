//! Processes of the binary: replicas and members.

use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{Process, Server};
use tempfile::TempDir;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_flotilla");

/// The timings of an election that is over soon.
pub(crate) const FAST: [&str; 4] = [
    "--leader-elect",
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=1s",
];

/// Stories that tell how long something takes do not run beside each other.
pub(crate) async fn alone() -> tokio::sync::MutexGuard<'static, ()> {
    static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    ALONE.lock().await
}

/// A process of the binary and its directory, which outlives it.
pub(crate) struct Node {
    process: Option<Process>,
    /// What [`Self::again`] starts.
    program: PathBuf,
    arguments: Vec<String>,
    pub(crate) address: String,
    dir: TempDir,
}

impl Node {
    /// `flotilla serve` with further flags.
    pub(crate) fn serve(flags: &[&str]) -> Self {
        Self::serve_with(Path::new(BINARY), flags)
    }

    /// The same of another binary.
    pub(crate) fn serve_with(program: &Path, flags: &[&str]) -> Self {
        Self::start(program.to_owned(), "serve", "--data-dir", flags)
    }

    /// `flotilla member` with one node.
    pub(crate) fn member() -> Self {
        Self::start(BINARY.into(), "member", "--dir", &["--nodes", "1"])
    }

    fn start(program: PathBuf, command: &str, place: &str, flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().display().to_string();
        let own = [command, place, &path, "--v", "1"];
        // The port of the first start is kept, so that clients find it again.
        let arguments = own.iter().chain(flags).map(|a| (*a).to_owned());
        let mut node = Self {
            process: None,
            program,
            arguments: arguments.collect(),
            address: "127.0.0.1:0".to_owned(),
            dir,
        };
        node.again();
        node
    }

    /// Which binary the next start runs.
    pub(crate) fn run_next(&mut self, program: &Path) {
        self.program = program.to_owned();
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it, on the port that it had; it must not be running.
    pub(crate) fn again(&mut self) {
        assert!(self.process.is_none(), "it runs already");
        let mut arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let address = self.address.clone();
        arguments.extend(["--listen", &address]);
        let program = self.program.to_str().unwrap();
        let (process, address) = Process::start(program, &arguments, &self.log());
        self.process = Some(process);
        self.address = address;
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.process.as_ref().unwrap().child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status().unwrap();
        assert!(sent.success(), "kill {signal} {id}");
    }

    /// Waits until it has ended after a signal.
    pub(crate) async fn ended(&mut self) {
        let mut process = self.process.take().unwrap();
        let wait = move || process.child.wait().unwrap();
        let status = tokio::task::spawn_blocking(wait).await.unwrap();
        assert!(status.success(), "{status}: {}", self.said());
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    pub(crate) fn connect(&self, name: &str) -> Server {
        Server::connect(name, &self.kubeconfig())
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// What it logged.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }
}

/// `flotilla join NAME`, which must succeed.
pub(crate) async fn join(name: &str, member: &Node, control: &Path) {
    let cluster = member.kubeconfig();
    let mut command = Command::new(BINARY);
    command.args(["join", name, "--cluster-kubeconfig"]);
    command.arg(&cluster).arg("--kubeconfig").arg(control);
    let out = tokio::task::spawn_blocking(move || command.output());
    let out = out.await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "join {name}: {said}");
}

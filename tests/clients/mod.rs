//! Clients that Flotilla did not write, each over a restart of the server: kubectl 1.36, client-go,
//! kube-rs, the Python client, kopf and kr8s.
//!
//! Each creates, watches, applies as two managers with a conflict, deletes, and ends with the
//! view that a list gives. Each runs against Flotilla alone with a built-in kind, and behind a
//! kube-apiserver with Karmada's kinds. kubectl, client-go and kr8s read the fleet view in both. The requests of Helm, Flux and Argo CD are replayed.
//! `client-go.go` and the Python programs run on what
//! `tests/tools/get` brings.

/// Flotilla behind a real kube-apiserver.
mod behind_kube_apiserver;
mod client_go;
/// The fleet view of a member in push mode, one in pull mode, and a dead one.
mod fleet;
mod kube_rs;
mod kubectl;
mod python;
/// Requests of Helm, Flux and Argo CD.
mod replayed;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use harness::daemon::{TestDir, spawn_bound};
use harness::{ServerProcess, port};

/// Every namespace has it, soon.
const ROOT_CA_CONFIG_MAP: &str = "kube-root-ca.crt";
const BINARY: &str = env!("CARGO_BIN_EXE_flotilla");

/// The server that a client talks to.
trait RestartableServer {
    fn kubeconfig(&self) -> &Path;

    /// `kill -9` of Flotilla, and a new process.
    fn restart(&mut self);
}

/// `flotilla serve` that starts again on its data and address.
struct StandaloneServer {
    process: Option<ServerProcess>,
    address: String,
    kubeconfig: PathBuf,
    dir: TestDir,
}

impl StandaloneServer {
    fn start() -> Self {
        let dir = TestDir::new();
        let mut server = Self {
            process: None,
            address: format!("127.0.0.1:{}", port::free_port()),
            kubeconfig: dir.path().join("data/kubeconfig"),
            dir,
        };
        server.restart();
        server
    }
}

impl RestartableServer for StandaloneServer {
    fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    fn restart(&mut self) {
        self.process = None;
        let data = self.dir.path().join("data").display().to_string();
        let arguments = ["serve", "--listen", &self.address, "--data-dir", &data];
        let log = self.dir.path().join("log");
        self.process = Some(ServerProcess::start(BINARY, &arguments, &log).0);
    }
}

/// Runs a program that prints "restart", waits for a line, and ends with its view: a JSON
/// object of names and resource versions. Returns the names, without the ConfigMap of every namespace.
fn run_over_restart(mut command: Command, server: &mut dyn RestartableServer) -> Vec<String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = spawn_bound(command).unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.next().map(Result::unwrap);
    assert_eq!(line.as_deref(), Some("restart"), "its reason is above");
    server.restart();
    input.write_all(b"go on\n").unwrap();
    let view = lines.next().map(Result::unwrap).unwrap_or_default();
    assert!(child.wait().unwrap().success(), "its reason is above");
    let mut view: BTreeMap<String, String> = machinery::json::from_str(&view).unwrap();
    view.remove(ROOT_CA_CONFIG_MAP);
    view.into_keys().collect()
}

//! A control plane with members, and how to ask them.
//!
//! Leaves: trees of values; a failed wait panics with what was seen last.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use harness::Process;
use parking_lot::Mutex;
use serde_json::Value;
use tempfile::TempDir;

use crate::objects::NAMESPACES;
pub(crate) use harness::server::{Server, condition, until};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_flotilla");
pub(crate) const MEMBERS: usize = 3;

/// `flotilla up --members 3` in a directory that outlives the process.
pub(crate) struct Up {
    process: Option<Process>,
    dir: TempDir,
    flags: Vec<&'static str>,
}

impl Up {
    pub(crate) fn start() -> Self {
        Self::with_flags(Vec::new())
    }

    fn with_flags(flags: Vec<&'static str>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let process = Some(up(dir.path(), &flags));
        Self {
            process,
            dir,
            flags,
        }
    }

    /// The one of this moment. The last story that holds it ends it: a static
    /// would never be dropped.
    fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Up>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock();
        if let Some(running) = shared.upgrade() {
            return running;
        }
        let started = Arc::new(Self::start());
        *shared = Arc::downgrade(&started);
        started
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Again, on what the last one left.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.process = Some(up(self.dir.path(), &self.flags));
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }
}

fn up(dir: &Path, flags: &[&str]) -> Process {
    let path = dir.display().to_string();
    let members = MEMBERS.to_string();
    let arguments = [
        "up",
        "--listen",
        "127.0.0.1:0",
        "--nodes",
        "3",
        "--members",
        &members,
        "--dir",
        &path,
    ];
    let arguments = [&arguments, flags].concat();
    Process::start(BINARY, &arguments, &dir.join("log")).0
}

/// Connections to a control plane and its members.
pub(crate) struct Fleet {
    pub(crate) control: Server,
    pub(crate) members: Vec<Server>,
    pub(crate) up: Arc<Up>,
}

impl Fleet {
    /// The shared one, with a new namespace.
    pub(crate) async fn shared(namespace: &str) -> Self {
        let up = tokio::task::spawn_blocking(Up::shared).await.unwrap();
        Self::of(up, namespace).await
    }

    /// One of its own, with other gates than the default ones.
    pub(crate) async fn with_gates(gates: &'static str, namespace: &str) -> Self {
        Self::with_flags(&["--feature-gates", gates], namespace).await
    }

    /// One of its own, started in another way than by default.
    pub(crate) async fn with_flags(flags: &[&'static str], namespace: &str) -> Self {
        let flags = flags.to_vec();
        let up = tokio::task::spawn_blocking(|| Arc::new(Up::with_flags(flags)));
        Self::of(up.await.unwrap(), namespace).await
    }

    async fn of(up: Arc<Up>, namespace: &str) -> Self {
        let fleet = Self {
            control: Server::connect("control plane", &up.dir().join("kubeconfig")),
            members: members(&up),
            up,
        };
        fleet.control.namespace(namespace).await;
        fleet
    }

    /// The administrator's.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.up.dir().join("kubeconfig")
    }

    /// A kubeconfig with which the administrator is somebody else.
    pub(crate) fn kubeconfig_as(&self, user: &str) -> PathBuf {
        let text = std::fs::read_to_string(self.kubeconfig()).unwrap();
        let mut config: Value = serde_saphyr::from_str(&text).unwrap();
        config["users"][0]["user"]["as"] = user.into();
        let path = self.up.dir().join(format!("kubeconfig-{user}"));
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// By its name.
    pub(crate) fn member(&self, name: &str) -> &Server {
        self.members.iter().find(|m| m.name == name).unwrap()
    }
}

pub(crate) fn members(up: &Up) -> Vec<Server> {
    (1..=MEMBERS)
        .map(|n| {
            let name = format!("member{n}");
            Server::connect(&name, &up.dir().join(&name).join("kubeconfig"))
        })
        .collect()
}

/// `flotilla ARGUMENTS`, which must succeed; what it prints.
pub(crate) async fn flotilla(arguments: &[&str]) -> String {
    harness::process::run(BINARY, arguments).await
}

/// `flotilla ARGUMENTS` with a kubeconfig: its exit code and what it prints.
pub(crate) async fn asked(kubeconfig: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let kubeconfig = kubeconfig.display().to_string();
    let all = [arguments, &["--kubeconfig", &kubeconfig]].concat();
    harness::process::ran(BINARY, &all).await
}

/// Until all members have the namespace, which is created on the control plane.
pub(crate) async fn spread(fleet: &Fleet, namespace: &str) {
    for member in &fleet.members {
        member.until_there(&NAMESPACES, "", namespace).await;
    }
}

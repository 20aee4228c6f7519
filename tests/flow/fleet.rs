//! The fixture of the flow tests: a control plane with members, and clients of them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use harness::FlotillaUpProcess;
use parking_lot::Mutex;
use serde_json::Value;

use crate::flow::cache_waits::wait_until_members_are_schedulable;
use crate::flow::objects::NAMESPACES;
pub(crate) use harness::api_server_client::{ApiServerClient, find_condition, wait_until};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_flotilla");
pub(crate) const MEMBERS: usize = 3;

/// The shared control plane. The last test that holds it ends it, since a static is never
/// dropped.
fn shared_control_plane() -> Arc<FlotillaUpProcess> {
    static SHARED: Mutex<Weak<FlotillaUpProcess>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock();
    if let Some(running) = shared.upgrade() {
        return running;
    }
    let started = Arc::new(start_schedulable_fleet(&[]));
    *shared = Arc::downgrade(&started);
    started
}

/// Starts a control plane, and waits until it schedules to all of its members. Blocks; must be
/// called where tokio runs.
fn start_schedulable_fleet(flags: &[&str]) -> FlotillaUpProcess {
    let up = start_control_plane(flags);
    let control = up.control_plane();
    let schedulable = wait_until_members_are_schedulable(&control, MEMBERS);
    tokio::runtime::Handle::current().block_on(schedulable);
    up
}

/// Starts a separate control plane with additional flags.
pub(crate) fn start_control_plane(flags: &[&str]) -> FlotillaUpProcess {
    FlotillaUpProcess::start(BINARY, MEMBERS, flags)
}

/// Clients of a control plane and its members.
pub(crate) struct FleetFixture {
    pub(crate) control: ApiServerClient,
    pub(crate) members: Vec<ApiServerClient>,
    pub(crate) up: Arc<FlotillaUpProcess>,
}

impl FleetFixture {
    /// The shared control plane with a new namespace.
    pub(crate) async fn shared(namespace: &str) -> Self {
        let up = tokio::task::spawn_blocking(shared_control_plane)
            .await
            .unwrap();
        Self::connect(up, namespace).await
    }

    /// A separate control plane with these feature gates.
    pub(crate) async fn with_feature_gates(gates: &'static str, namespace: &str) -> Self {
        Self::with_flags(&["--feature-gates", gates], namespace).await
    }

    /// A separate control plane with these flags.
    pub(crate) async fn with_flags(flags: &[&'static str], namespace: &str) -> Self {
        let flags = flags.to_vec();
        let up = tokio::task::spawn_blocking(move || Arc::new(start_schedulable_fleet(&flags)));
        Self::connect(up.await.unwrap(), namespace).await
    }

    async fn connect(up: Arc<FlotillaUpProcess>, namespace: &str) -> Self {
        let fleet = Self {
            control: up.control_plane(),
            members: up.members(),
            up,
        };
        fleet.control.create_namespace(namespace).await;
        fleet
    }

    /// The administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.up.dir().join("kubeconfig")
    }

    /// A kubeconfig with which the administrator impersonates a user.
    pub(crate) fn kubeconfig_as(&self, user: &str, groups: &[&str]) -> PathBuf {
        let text = std::fs::read_to_string(self.kubeconfig()).unwrap();
        let mut config: Value = serde_saphyr::from_str(&text).unwrap();
        config["users"][0]["user"]["as"] = user.into();
        config["users"][0]["user"]["as-groups"] = groups.into();
        let path = self.up.dir().join(format!("kubeconfig-{user}"));
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// The client of a member, by its name.
    pub(crate) fn member(&self, name: &str) -> &ApiServerClient {
        self.members.iter().find(|m| m.name == name).unwrap()
    }
}

/// Runs `flotilla ARGUMENTS`, which must succeed, and returns its output.
pub(crate) async fn run_flotilla(arguments: &[&str]) -> String {
    harness::process::run_successfully(BINARY, arguments).await
}

/// Runs `flotilla ARGUMENTS` with a kubeconfig; returns its exit code and output.
pub(crate) async fn run_with_kubeconfig(
    kubeconfig: &Path,
    arguments: &[&str],
) -> (Option<i32>, String) {
    let kubeconfig = kubeconfig.display().to_string();
    let all = [arguments, &["--kubeconfig", &kubeconfig]].concat();
    harness::process::run_to_exit(BINARY, &all).await
}

/// Waits until all members have a namespace that was created on the control plane.
pub(crate) async fn wait_for_namespace(fleet: &FleetFixture, namespace: &str) {
    for member in &fleet.members {
        member.wait_until_exists(&NAMESPACES, "", namespace).await;
    }
}

//! The control plane that scenarios run on, with its members. Themes without arguments of
//! their own share one.

use std::sync::{Arc, Weak};

use harness::{ApiServerClient, FlotillaUpProcess};
use parking_lot::Mutex;
use tokio::sync::RwLock;

use crate::scenarios::scenario::ThemeRequirements;

const MEMBERS: usize = 3;

/// Clients of a control plane and its members.
pub(crate) struct ScenarioControlPlane {
    pub(crate) control: ApiServerClient,
    pub(crate) members: Vec<ApiServerClient>,
    _up: Arc<SharedControlPlane>,
    /// Write-locked by scenarios that change clusters.
    pub(crate) clusters: Arc<RwLock<u64>>,
}

struct SharedControlPlane {
    up: FlotillaUpProcess,
    clusters: Arc<RwLock<u64>>,
}

impl ScenarioControlPlane {
    /// The shared control plane, or a separate one for a theme with arguments. The last theme
    /// that holds the shared one ends it. Must be called where tokio runs.
    pub(crate) fn for_theme(head: &ThemeRequirements) -> Self {
        static SHARED: Mutex<Weak<SharedControlPlane>> = Mutex::new(Weak::new());
        let start = || {
            let more: Vec<&str> = head.arguments.iter().map(String::as_str).collect();
            let up = FlotillaUpProcess::start(env!("CARGO_BIN_EXE_flotilla"), MEMBERS, &more);
            let clusters = Arc::default();
            Arc::new(SharedControlPlane { up, clusters })
        };
        let shared = if head.arguments.is_empty() {
            let mut shared = SHARED.lock();
            shared.upgrade().unwrap_or_else(|| {
                let started = start();
                *shared = Arc::downgrade(&started);
                started
            })
        } else {
            start()
        };
        Self {
            control: shared.up.control_plane(),
            members: shared.up.members(),
            clusters: Arc::clone(&shared.clusters),
            _up: shared,
        }
    }

    pub(crate) fn client(&self, name: Option<&str>) -> Result<&ApiServerClient, String> {
        let Some(name) = name else {
            return Ok(&self.control);
        };
        let member = self.members.iter().find(|m| m.name == name);
        member.ok_or_else(|| format!("no member {name}"))
    }
}

//! Keeps the RBAC policy current: a reflector for each of the four resources.

use client::{Api, Error, ListWatchSelector, ReflectorSink, ShutdownToken, run_reflector};
use machinery::{Gvr, Object};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::watch;

use super::policy::{RbacKind, RbacPolicy};

const GROUP: &str = "rbac.authorization.k8s.io";
/// Bits of [`WatchedPolicy::synced`]: one per watched resource.
const ALL_SYNCED: u8 = 0b1111;

/// The policy, and which of its resources have been listed.
pub(super) struct WatchedPolicy {
    policy: RwLock<RbacPolicy>,
    synced: watch::Sender<u8>,
}

impl Default for WatchedPolicy {
    fn default() -> Self {
        Self {
            policy: RwLock::default(),
            synced: watch::channel(0).0,
        }
    }
}

impl WatchedPolicy {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, RbacPolicy> {
        self.policy.read()
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, RbacPolicy> {
        self.policy.write()
    }

    /// Whether all resources have been listed once.
    pub(super) fn has_synced(&self) -> bool {
        *self.synced.borrow() == ALL_SYNCED
    }

    pub(super) async fn wait_synced(&self) {
        let mut receiver = self.synced.subscribe();
        let _ = receiver.wait_for(|bits| *bits == ALL_SYNCED).await;
    }

    /// Keeps the policy current; never completes.
    pub(super) async fn watch(&self, api: &dyn Api) {
        let watch_kind = async |kind, resource| {
            let select = ListWatchSelector::all(&Gvr::from_static(GROUP, "v1", resource));
            let mut sink = PolicySink {
                target: self,
                kind,
                listed: Vec::new(),
            };
            run_reflector(api, &select, &mut sink, &ShutdownToken::new()).await;
        };
        tokio::join!(
            watch_kind(RbacKind::ClusterRole, "clusterroles"),
            watch_kind(RbacKind::Role, "roles"),
            watch_kind(RbacKind::ClusterRoleBinding, "clusterrolebindings"),
            watch_kind(RbacKind::RoleBinding, "rolebindings"),
        );
    }
}

/// Applies the objects of one kind to the policy.
struct PolicySink<'a> {
    target: &'a WatchedPolicy,
    kind: RbacKind,
    /// Objects of an unfinished list: a list replaces the policy at once.
    listed: Vec<Object>,
}

impl ReflectorSink for PolicySink<'_> {
    fn begin_list(&mut self) {
        self.listed.clear();
    }

    fn list_item(&mut self, object: Object) {
        self.listed.push(object);
    }

    fn end_list(&mut self) {
        let listed = std::mem::take(&mut self.listed);
        self.target.write().replace(self.kind, &listed);
        let bit = 1 << self.kind as u8;
        self.target.synced.send_modify(|bits| *bits |= bit);
    }

    fn upsert(&mut self, object: Object) {
        self.target.write().apply(self.kind, &object);
    }

    fn delete(&mut self, object: Object) {
        let mut policy = self.target.write();
        policy.delete(self.kind, object.namespace(), object.name());
    }

    fn report_health(&mut self, _: Option<&Error>) {}
}

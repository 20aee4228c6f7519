//! The groups that the impersonator of a cluster may impersonate, as its role in the member has
//! them: a request with another group would be refused as a whole.
//!
//! Computed from the roles and bindings of the control plane once for each cluster, and again
//! when one of them changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ahash::AHashMap;
use client::{Api, Informer, InformerFactory, ListWatchSelector};
use karmada_api::ImpersonatedIdentity;
use machinery::Gvr;
use machinery::user::{ALL_AUTHENTICATED, ALL_UNAUTHENTICATED, split_service_account_username};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use crate::proxy_subjects::ProxySubjects;

static CLUSTER_ROLES: Gvr = Gvr::from_static("rbac.authorization.k8s.io", "v1", "clusterroles");
static CLUSTER_ROLE_BINDINGS: Gvr =
    Gvr::from_static("rbac.authorization.k8s.io", "v1", "clusterrolebindings");
/// Without roles and bindings a request is sent with all groups of its user.
const SYNC_TIMEOUT: Duration = Duration::from_secs(5);

/// The attributes of a user that are impersonated in one cluster beside his name.
#[derive(Clone, Debug, Default)]
pub struct ImpersonationScope {
    pub groups: ProxyGroups,
    /// Nothing, unless the control plane manages the rights of the impersonator.
    pub identity: ImpersonatedIdentity,
}

/// The groups with which users are impersonated in one cluster.
#[derive(Clone, Debug, Default)]
pub enum ProxyGroups {
    /// The rights of the impersonator are not known here.
    #[default]
    All,
    /// The subjects that are bound to the cluster's proxy.
    Bound(Arc<ProxySubjects>),
}

impl ProxyGroups {
    /// The groups to send for a user. None for a service account that has just its own: the
    /// member adds these by itself.
    pub fn of_user<'a>(&self, user: &str, groups: &'a [String]) -> Vec<&'a str> {
        let requested_groups = groups.iter().map(String::as_str);
        let requested_groups =
            requested_groups.filter(|g| ![ALL_AUTHENTICATED, ALL_UNAUTHENTICATED].contains(g));
        let Some((namespace, _)) = split_service_account_username(user) else {
            return requested_groups.filter(|g| self.contains(g)).collect();
        };
        let account_groups = [
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
        ];
        let all: Vec<&str> = requested_groups.collect();
        if !account_groups
            .iter()
            .all(|group| all.contains(&group.as_str()))
        {
            // Without any group the member would add groups that this user does not have.
            return all;
        }
        let is_other = |group: &&str| {
            !account_groups
                .iter()
                .any(|account_groups| account_groups == group)
        };
        let has_other = all.iter().any(|g| is_other(g) && self.contains(g));
        match has_other {
            true => all.into_iter().filter(|g| self.contains(g)).collect(),
            false => Vec::new(),
        }
    }

    fn contains(&self, group: &str) -> bool {
        match self {
            Self::All => true,
            Self::Bound(subjects) => subjects.groups.contains(group),
        }
    }
}

/// Computes and keeps the groups of clusters.
pub(crate) struct ProxyGroupsCache {
    roles: Informer,
    bindings: Informer,
    /// Incremented when a role or a binding changes.
    changes: Arc<AtomicU64>,
    by_cluster: Mutex<AHashMap<String, (u64, Arc<ProxySubjects>)>>,
}

impl ProxyGroupsCache {
    pub(crate) fn start(host: &Arc<dyn Api>, informers: &InformerFactory) -> Self {
        let changes = Arc::new(AtomicU64::new(0));
        let informer = |resource| {
            let informer = informers.get(host, &ListWatchSelector::all(resource));
            let changes = Arc::clone(&changes);
            informer.add_event_handler(move |_| {
                changes.fetch_add(1, Ordering::Release);
            });
            informer
        };
        Self {
            roles: informer(&CLUSTER_ROLES),
            bindings: informer(&CLUSTER_ROLE_BINDINGS),
            changes,
            by_cluster: Mutex::default(),
        }
    }

    pub(crate) async fn get(&self, cluster: &str) -> ProxyGroups {
        let synced = async {
            self.roles.wait_for_cache_sync().await;
            self.bindings.wait_for_cache_sync().await;
        };
        if tokio::time::timeout(SYNC_TIMEOUT, synced).await.is_err() {
            return ProxyGroups::All;
        }
        let changes = self.changes.load(Ordering::Acquire);
        if let Some((cached_changes, subjects)) = self.by_cluster.lock().get(cluster)
            && *cached_changes == changes
        {
            return ProxyGroups::Bound(Arc::clone(subjects));
        }
        let (roles, bindings) = (list_decoded(&self.roles), list_decoded(&self.bindings));
        let subjects = Arc::new(ProxySubjects::of_cluster(&roles, &bindings, cluster));
        let entry = (changes, Arc::clone(&subjects));
        self.by_cluster.lock().insert(cluster.to_owned(), entry);
        ProxyGroups::Bound(subjects)
    }

    /// Forgets a cluster that was deleted.
    pub(crate) fn forget(&self, cluster: &str) {
        self.by_cluster.lock().remove(cluster);
    }
}

fn list_decoded<T: DeserializeOwned + Send + Sync + 'static>(informer: &Informer) -> Vec<Arc<T>> {
    let all = informer.list();
    all.iter().filter_map(|o| o.decode::<T>().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: IMP-dropped-groups, IMP-accounts
    #[test]
    fn only_groups_that_can_be_impersonated_are_sent() {
        let bound = ProxySubjects {
            groups: ["dev", "system:masters"].map(str::to_owned).into(),
            ..ProxySubjects::default()
        };
        let bound = ProxyGroups::Bound(Arc::new(bound));
        let account = "system:serviceaccount:ns:bot";
        let account_groups = ["system:serviceaccounts", "system:serviceaccounts:ns"];
        let account_groups_with = |extra: &[&'static str]| [&account_groups[..], extra].concat();
        for (user, groups, all, expected) in [
            ("ann", vec!["dev", "ops"], vec!["dev", "ops"], vec!["dev"]),
            ("ann", vec!["ops"], vec!["ops"], vec![]),
            (
                "ann",
                vec!["dev", ALL_AUTHENTICATED],
                vec!["dev"],
                vec!["dev"],
            ),
            (
                account,
                account_groups_with(&[ALL_AUTHENTICATED]),
                vec![],
                vec![],
            ),
            (
                account,
                account_groups_with(&["ops"]),
                account_groups_with(&["ops"]),
                vec![],
            ),
            (
                account,
                account_groups_with(&["dev"]),
                account_groups_with(&["dev"]),
                vec!["dev"],
            ),
            (account, vec!["ops"], vec!["ops"], vec!["ops"]),
            (
                account,
                vec![account_groups[0]],
                vec![account_groups[0]],
                vec![account_groups[0]],
            ),
            ("system:serviceaccount:ns", vec!["ops"], vec!["ops"], vec![]),
        ] {
            let groups: Vec<String> = groups.into_iter().map(str::to_owned).collect();
            assert_eq!(ProxyGroups::All.of_user(user, &groups), all, "{groups:?}");
            assert_eq!(bound.of_user(user, &groups), expected, "{user} {groups:?}");
        }
    }
}

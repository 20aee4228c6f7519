//! Allows the impersonator of each cluster to impersonate the subjects that may use the cluster
//! proxy.
//!
//! Reads ClusterRoles and ClusterRoleBindings of the control plane, and creates two Works per
//! cluster, owned by the Cluster. Source: Karmada's `pkg/controllers/unifiedauth`,
//! `pkg/util/rbac.go`.

use std::collections::BTreeSet;
use std::sync::Arc;

use controller_context::{DesiredWork, Error, PropagationContext, WorkClient};
use flotilla_runtime::{
    EventRecorder, Informer, InformerEvent, InvolvedObject, ListWatchSelector, ReconcileAction,
    TaskGroup, Workqueue, run_workers,
};
use machinery::{Gvr, Object};
use openapi::karmada::Cluster;
use openapi::karmada::names;
use openapi::karmada::well_known_keys::SYSTEM;
use serde::Deserialize;
use serde_json::{Map, Value, json};

static CLUSTER_ROLES: Gvr = Gvr::from_static("rbac.authorization.k8s.io", "v1", "clusterroles");
static CLUSTER_ROLE_BINDINGS: Gvr =
    Gvr::from_static("rbac.authorization.k8s.io", "v1", "clusterrolebindings");
/// The ServiceAccount in each cluster, and its ClusterRole and ClusterRoleBinding there.
const IMPERSONATOR: &str = "karmada-impersonator";
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
const UNIFIED_AUTH_WORKERS: usize = 2;
const SYNC_SUCCEEDED_REASON: &str = "SyncImpersonationConfigSucceed";
const SYNC_FAILED_REASON: &str = "SyncImpersonationConfigFailed";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClusterRoleNameAndRules {
    metadata: ClusterRoleMetadataName,
    rules: Option<Vec<PolicyRuleWithoutVerbs>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClusterRoleMetadataName {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PolicyRuleWithoutVerbs {
    api_groups: Option<Vec<String>>,
    resources: Option<Vec<String>>,
    resource_names: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RoleRefAndSubjects {
    role_ref: RoleRefKindAndName,
    subjects: Option<Vec<ProxySubject>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RoleRefKindAndName {
    kind: String,
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ProxySubject {
    kind: String,
    name: String,
}

impl PolicyRuleWithoutVerbs {
    fn allows(&self, group: &str, resource: &str, subresource: &str) -> bool {
        let has = |list: &Option<Vec<String>>, fits: &dyn Fn(&str) -> bool| {
            list.iter().flatten().any(|entry| fits(entry))
        };
        has(&self.api_groups, &|g| g == "*" || g == group)
            && has(&self.resources, &|r| match r.split_once('/') {
                None => r == "*",
                Some((of, sub)) => (of == "*" || of == resource) && sub == subresource,
            })
    }

    /// Whether the rule grants access to the proxy of a cluster; `None`: of any cluster.
    fn grants_proxy(&self, cluster: Option<&str>) -> bool {
        let named = self.resource_names.as_deref().unwrap_or_default();
        let fits = match cluster {
            Some(cluster) => named.is_empty() || named.iter().any(|n| n == cluster),
            None => true,
        };
        (fits && self.allows("cluster.karmada.io", "clusters", "proxy"))
            || self.allows("search.karmada.io", "proxying", "proxy")
    }
}

impl ClusterRoleNameAndRules {
    fn grants_proxy(&self, cluster: Option<&str>) -> bool {
        self.rules.iter().flatten().any(|r| r.grants_proxy(cluster))
    }
}

/// The rules of the impersonator of a cluster. ServiceAccounts are named without their namespace,
/// as in Karmada.
fn impersonation_rules(
    roles: &[Arc<ClusterRoleNameAndRules>],
    bindings: &[Arc<RoleRefAndSubjects>],
    cluster: &str,
) -> Vec<Value> {
    let opening: BTreeSet<&str> = roles
        .iter()
        .filter(|r| r.grants_proxy(Some(cluster)))
        .map(|r| r.metadata.name.as_str())
        .collect();
    let subjects = || {
        let bound = bindings.iter().filter(|b| {
            b.role_ref.kind == "ClusterRole" && opening.contains(b.role_ref.name.as_str())
        });
        bound.flat_map(|b| b.subjects.iter().flatten())
    };
    let mut rules = Vec::new();
    for (kind, resource) in [
        ("User", "users"),
        ("ServiceAccount", "serviceaccounts"),
        ("Group", "groups"),
    ] {
        let of_kind = subjects().filter(|s| s.kind == kind);
        let names: BTreeSet<&str> = of_kind.map(|s| s.name.as_str()).collect();
        if !names.is_empty() {
            rules.push(json!({"verbs": ["impersonate"], "apiGroups": [""],
                "resources": [resource], "resourceNames": names}));
        }
    }
    rules
}

/// The ClusterRole and the ClusterRoleBinding of the impersonator.
fn impersonator_manifests(rules: Vec<Value>, namespace: &str) -> [Value; 2] {
    let metadata = json!({"name": IMPERSONATOR, "labels": {SYSTEM: "true"}});
    [
        json!({"apiVersion": format!("{RBAC_GROUP}/v1"), "kind": "ClusterRole",
               "metadata": metadata, "rules": rules}),
        json!({"apiVersion": format!("{RBAC_GROUP}/v1"), "kind": "ClusterRoleBinding",
               "metadata": metadata,
               "subjects": [{"kind": "ServiceAccount", "name": IMPERSONATOR, "namespace": namespace}],
               "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": IMPERSONATOR}}),
    ]
}

pub struct UnifiedAuthController {
    recorder: EventRecorder,
    clusters: Informer,
    roles: Informer,
    bindings: Informer,
    works: WorkClient,
    queue: Workqueue<String>,
}

impl UnifiedAuthController {
    pub async fn start(deps: &PropagationContext, works: &WorkClient, tasks: &TaskGroup) {
        let informer = |r: &Gvr| {
            deps.informers
                .get(&deps.control_plane, &ListWatchSelector::all(r))
        };
        let it = Arc::new(Self {
            recorder: deps.recorder.with_component("unified-auth-controller"),
            clusters: deps.clusters.informer().clone(),
            roles: informer(&CLUSTER_ROLES),
            bindings: informer(&CLUSTER_ROLE_BINDINGS),
            works: works.clone(),
            queue: Workqueue::new(),
        });
        // A ClusterRole that is not listed yet must not look like a deleted one.
        for informer in [&it.roles, &it.bindings, &it.works.informer] {
            informer.wait_for_cache_sync().await;
        }
        it.add_event_handlers();
        let queue = it.queue.clone();
        run_workers(
            tasks,
            "impersonation",
            &queue,
            UNIFIED_AUTH_WORKERS,
            move |name| {
                let it = Arc::clone(&it);
                async move { it.reconcile(&name).await }
            },
        );
    }

    fn add_event_handlers(self: &Arc<Self>) {
        let queue = self.queue.clone();
        self.clusters.add_event_handler(move |change| {
            let access = |c: &Object| {
                let view = c.decode::<Cluster>().ok();
                view.and_then(|c| c.spec.impersonator_secret_ref.clone())
            };
            if let Some(new) = change.new
                && change.old.is_none_or(|old| access(old) != access(new))
            {
                queue.add_to_lane(new.name().to_owned(), change.in_initial_list);
            }
        });
        let it = Arc::downgrade(self);
        self.roles.add_event_handler(move |change| {
            let opens = |r: &Object| {
                r.decode::<ClusterRoleNameAndRules>()
                    .is_ok_and(|r| r.grants_proxy(None))
            };
            if let Some(it) = it.upgrade()
                && old_and_new(change).any(opens)
            {
                it.enqueue_all_clusters();
            }
        });
        let it = Arc::downgrade(self);
        self.bindings.add_event_handler(move |change| {
            if let Some(it) = it.upgrade()
                && old_and_new(change).any(|b| it.binds_proxy_role(b))
            {
                it.enqueue_all_clusters();
            }
        });
        let it = Arc::downgrade(self);
        self.works.informer.add_event_handler(move |change| {
            // Recreates a deleted Work while its cluster exists. Those of a cluster in pull mode
            // are deleted before the cluster is unregistered.
            if let (Some(it), Some(old), None) = (it.upgrade(), change.old, change.new)
                && let Some(owner) = old.meta().controller().filter(|o| &*o.kind == "Cluster")
                && it.is_in_push_mode(&owner.name)
            {
                it.queue.add_low(owner.name.to_string());
            }
        });
    }

    fn is_in_push_mode(&self, cluster: &str) -> bool {
        let known = self.clusters.get("", cluster);
        let cluster = known.and_then(|known| known.decode::<Cluster>().ok());
        cluster.is_some_and(|cluster| cluster.spec.sync_mode == "Push")
    }

    fn binds_proxy_role(&self, binding: &Object) -> bool {
        let Ok(binding) = binding.decode::<RoleRefAndSubjects>() else {
            return false;
        };
        let role = self.roles.get("", &binding.role_ref.name);
        let role = role.and_then(|r| r.decode::<ClusterRoleNameAndRules>().ok());
        binding.role_ref.kind == "ClusterRole" && role.is_some_and(|r| r.grants_proxy(None))
    }

    fn enqueue_all_clusters(&self) {
        for cluster in self.clusters.list() {
            self.queue.add_low(cluster.name().to_owned());
        }
    }

    async fn reconcile(&self, name: &str) -> Result<ReconcileAction, Error> {
        let Some(object) = self.clusters.get("", name) else {
            return Ok(ReconcileAction::Done);
        };
        let cluster = object.decode::<Cluster>()?;
        let Some(secret) = &cluster.spec.impersonator_secret_ref else {
            return Ok(ReconcileAction::Done);
        };
        if object.meta().deleting {
            return Ok(ReconcileAction::Done);
        }
        let about = InvolvedObject::new("cluster.karmada.io/v1alpha1", "Cluster", &object);
        let rules =
            impersonation_rules(&list_typed(&self.roles), &list_typed(&self.bindings), name);
        let mut written = false;
        for manifest in impersonator_manifests(rules, &secret.namespace) {
            match self
                .works
                .create_or_update(build_work(&object, manifest), "")
                .await
            {
                Ok(wrote) => written |= wrote,
                Err(error) => {
                    // The execution space of a new cluster is about to be created.
                    if !error.is_not_found() {
                        self.recorder
                            .warning(&about, SYNC_FAILED_REASON, error.to_string());
                    }
                    return Err(error);
                }
            }
        }
        if written {
            let text = "Sync impersonation config succeed.";
            self.recorder.normal(&about, SYNC_SUCCEEDED_REASON, text);
        }
        Ok(ReconcileAction::Done)
    }
}

fn old_and_new<'a>(change: &InformerEvent<'a>) -> impl Iterator<Item = &'a Object> {
    change.old.into_iter().chain(change.new)
}

fn list_typed<T>(informer: &Informer) -> Vec<Arc<T>>
where
    T: serde::de::DeserializeOwned + Send + Sync + 'static,
{
    let all = informer.list();
    all.iter().filter_map(|o| o.decode::<T>().ok()).collect()
}

fn build_work(cluster: &Object, manifest: Value) -> DesiredWork {
    let kind = manifest["kind"].as_str().unwrap_or_default().to_owned();
    let owner = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "name": cluster.name(), "uid": cluster.uid(), "controller": true, "blockOwnerDeletion": true});
    DesiredWork {
        namespace: names::execution_space_name(cluster.name()),
        name: names::work_name(&kind, IMPERSONATOR, ""),
        labels: Map::new(),
        annotations: Map::new(),
        owner_references: vec![owner],
        manifest,
        suspend_dispatching: None,
        preserve_resources_on_deletion: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, rules: Value) -> Arc<ClusterRoleNameAndRules> {
        let role = json!({"metadata": {"name": name}, "rules": rules});
        Arc::new(serde_json::from_value(role).unwrap())
    }

    fn binding(kind: &str, role: &str, subjects: &[(&str, &str)]) -> Arc<RoleRefAndSubjects> {
        let subjects: Vec<Value> = subjects
            .iter()
            .map(|(kind, name)| json!({"kind": kind, "name": name}))
            .collect();
        let binding = json!({"roleRef": {"kind": kind, "name": role}, "subjects": subjects});
        Arc::new(serde_json::from_value(binding).unwrap())
    }

    // proves: LAB-system, NAM-account
    #[test]
    fn the_role_is_bound_to_the_impersonators_service_account() {
        let [role, binding] = impersonator_manifests(Vec::new(), "karmada-cluster");
        let metadata =
            json!({"name": "karmada-impersonator", "labels": {"karmada.io/system": "true"}});
        assert_eq!(
            (&role["metadata"], &binding["metadata"]),
            (&metadata, &metadata)
        );
        assert_eq!(
            binding["subjects"],
            json!([{"kind": "ServiceAccount", "name": "karmada-impersonator", "namespace": "karmada-cluster"}])
        );
        assert_eq!(binding["roleRef"]["name"], "karmada-impersonator");
    }

    #[test]
    fn subjects_with_proxy_access_are_impersonated() {
        let proxy = |names: Value| {
            json!([{"apiGroups": ["cluster.karmada.io"], "resources": ["clusters/proxy"],
                    "resourceNames": names, "verbs": ["*"]}])
        };
        let roles = [
            role("any", proxy(json!(null))),
            role("one", proxy(json!(["m1"]))),
            role(
                "all",
                json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]),
            ),
            role(
                "search",
                json!([{"apiGroups": ["search.karmada.io"], "resources": ["proxying/proxy"]}]),
            ),
            role(
                "clusters",
                json!([{"apiGroups": ["cluster.karmada.io"], "resources": ["clusters"]}]),
            ),
            role("paths", json!([{"nonResourceURLs": ["*"]}])),
            role("empty", json!(null)),
        ];
        let bindings = [
            binding("ClusterRole", "any", &[("User", "bob"), ("User", "ann")]),
            binding("ClusterRole", "one", &[("Group", "dev")]),
            binding("ClusterRole", "all", &[("Group", "ops"), ("User", "ann")]),
            binding("ClusterRole", "search", &[("ServiceAccount", "bot")]),
            binding("ClusterRole", "clusters", &[("User", "no1")]),
            binding("ClusterRole", "paths", &[("User", "no2")]),
            binding("ClusterRole", "empty", &[("User", "no3")]),
            binding("Role", "any", &[("User", "no4")]),
        ];
        let of = |cluster| -> Vec<String> {
            let found = impersonation_rules(&roles, &bindings, cluster);
            let line = |r: &Value| format!("{} {}", r["resources"][0], r["resourceNames"]);
            found.iter().map(line).collect()
        };
        let first = [
            r#""users" ["ann","bob"]"#,
            r#""serviceaccounts" ["bot"]"#,
            r#""groups" ["dev","ops"]"#,
        ];
        assert_eq!(of("m1"), first);
        assert_eq!(of("m2")[2], r#""groups" ["ops"]"#);
        assert_eq!(
            impersonation_rules(&[], &bindings, "m1"),
            Vec::<Value>::new()
        );
    }
}

//! Allows the impersonator of each cluster to impersonate the subjects that may use the cluster
//! proxy.
//!
//! Reads ClusterRoles and ClusterRoleBindings of the control plane, and creates two Works per
//! cluster, owned by the Cluster. Source: Karmada's `pkg/controllers/unifiedauth`,
//! `pkg/util/rbac.go`.

use std::collections::BTreeSet;
use std::sync::Arc;

use machinery::{Gvr, Object};
use openapi::karmada::Cluster;
use openapi::karmada::labels::SYSTEM;
use openapi::karmada::names;
use flotilla_runtime::{Action, Change, Informer, ObjectRef, Queue, Recorder, Select, Tasks, run_workers};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::run::Deps;
use crate::works::{Draft, Works};

static ROLES: Gvr = Gvr::constant("rbac.authorization.k8s.io", "v1", "clusterroles");
static BINDINGS: Gvr = Gvr::constant("rbac.authorization.k8s.io", "v1", "clusterrolebindings");
/// The ServiceAccount in each cluster, and its ClusterRole and ClusterRoleBinding there.
const IMPERSONATOR: &str = "karmada-impersonator";
const RBAC: &str = "rbac.authorization.k8s.io";
const WORKERS: usize = 2;
const SUCCEEDED: &str = "SyncImpersonationConfigSucceed";
const FAILED: &str = "SyncImpersonationConfigFailed";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Role {
    metadata: Named,
    rules: Option<Vec<Rule>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Rule {
    api_groups: Option<Vec<String>>,
    resources: Option<Vec<String>>,
    resource_names: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Binding {
    role_ref: RoleRef,
    subjects: Option<Vec<Subject>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RoleRef {
    kind: String,
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Subject {
    kind: String,
    name: String,
}

impl Rule {
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
    fn opens(&self, cluster: Option<&str>) -> bool {
        let named = self.resource_names.as_deref().unwrap_or_default();
        let fits = match cluster {
            Some(cluster) => named.is_empty() || named.iter().any(|n| n == cluster),
            None => true,
        };
        (fits && self.allows("cluster.karmada.io", "clusters", "proxy"))
            || self.allows("search.karmada.io", "proxying", "proxy")
    }
}

impl Role {
    fn opens(&self, cluster: Option<&str>) -> bool {
        self.rules.iter().flatten().any(|r| r.opens(cluster))
    }
}

/// The rules of the impersonator of a cluster. ServiceAccounts are named without their namespace,
/// as in Karmada.
fn rules(roles: &[Arc<Role>], bindings: &[Arc<Binding>], cluster: &str) -> Vec<Value> {
    let opening: BTreeSet<&str> = roles
        .iter()
        .filter(|r| r.opens(Some(cluster)))
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
fn manifests(rules: Vec<Value>, namespace: &str) -> [Value; 2] {
    let metadata = json!({"name": IMPERSONATOR, "labels": {SYSTEM: "true"}});
    [
        json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole",
               "metadata": metadata, "rules": rules}),
        json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding",
               "metadata": metadata,
               "subjects": [{"kind": "ServiceAccount", "name": IMPERSONATOR, "namespace": namespace}],
               "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": IMPERSONATOR}}),
    ]
}

pub(crate) struct Impersonation {
    recorder: Recorder,
    clusters: Informer,
    roles: Informer,
    bindings: Informer,
    works: Works,
    queue: Queue<String>,
}

impl Impersonation {
    pub(crate) async fn start(deps: &Deps, works: &Works, tasks: &Tasks) {
        let informer = |r: &Gvr| deps.informers.get(&deps.control, &Select::all(r));
        let it = Arc::new(Self {
            recorder: deps.recorder.named("unified-auth-controller"),
            clusters: deps.clusters.informer().clone(),
            roles: informer(&ROLES),
            bindings: informer(&BINDINGS),
            works: works.clone(),
            queue: Queue::new(),
        });
        // A ClusterRole that is not listed yet must not look like a deleted one.
        for informer in [&it.roles, &it.bindings, &it.works.informer] {
            informer.wait_synced().await;
        }
        it.listen();
        let queue = it.queue.clone();
        run_workers(tasks, "impersonation", &queue, WORKERS, move |name| {
            let it = Arc::clone(&it);
            async move { it.reconcile(&name).await }
        });
    }

    fn listen(self: &Arc<Self>) {
        let queue = self.queue.clone();
        self.clusters.on_change(move |change| {
            let access = |c: &Object| {
                let view = c.view::<Cluster>().ok();
                view.and_then(|c| c.spec.impersonator_secret_ref.clone())
            };
            if let Some(new) = change.new
                && change.old.is_none_or(|old| access(old) != access(new))
            {
                queue.add_lane(new.name().to_owned(), change.initial);
            }
        });
        let it = Arc::downgrade(self);
        self.roles.on_change(move |change| {
            let opens = |r: &Object| r.view::<Role>().is_ok_and(|r| r.opens(None));
            if let Some(it) = it.upgrade()
                && versions(change).any(opens)
            {
                it.all();
            }
        });
        let it = Arc::downgrade(self);
        self.bindings.on_change(move |change| {
            if let Some(it) = it.upgrade()
                && versions(change).any(|b| it.is_of_opening(b))
            {
                it.all();
            }
        });
        let it = Arc::downgrade(self);
        self.works.informer.on_change(move |change| {
            // Recreates a deleted Work while its cluster exists.
            if let (Some(it), Some(old), None) = (it.upgrade(), change.old, change.new)
                && let Some(owner) = old.head().controller().filter(|o| &*o.kind == "Cluster")
            {
                it.queue.add_low(owner.name.to_string());
            }
        });
    }

    fn is_of_opening(&self, binding: &Object) -> bool {
        let Ok(binding) = binding.view::<Binding>() else {
            return false;
        };
        let role = self.roles.get("", &binding.role_ref.name);
        let role = role.and_then(|r| r.view::<Role>().ok());
        binding.role_ref.kind == "ClusterRole" && role.is_some_and(|r| r.opens(None))
    }

    fn all(&self) {
        for cluster in self.clusters.list() {
            self.queue.add_low(cluster.name().to_owned());
        }
    }

    async fn reconcile(&self, name: &str) -> Result<Action, Error> {
        let Some(object) = self.clusters.get("", name) else {
            return Ok(Action::Done);
        };
        let cluster = object.view::<Cluster>()?;
        let Some(secret) = &cluster.spec.impersonator_secret_ref else {
            return Ok(Action::Done);
        };
        if object.head().deleting {
            return Ok(Action::Done);
        }
        let about = ObjectRef::new("cluster.karmada.io/v1alpha1", "Cluster", &object);
        let rules = rules(&views(&self.roles), &views(&self.bindings), name);
        let mut written = false;
        for manifest in manifests(rules, &secret.namespace) {
            match self.works.put(draft(&object, manifest), "").await {
                Ok(wrote) => written |= wrote,
                Err(error) => {
                    // The execution space of a new cluster is about to be created.
                    if !error.is_not_found() {
                        self.recorder.warning(&about, FAILED, error.to_string());
                    }
                    return Err(error);
                }
            }
        }
        if written {
            let text = "Sync impersonation config succeed.";
            self.recorder.normal(&about, SUCCEEDED, text);
        }
        Ok(Action::Done)
    }
}

fn versions<'a>(change: &Change<'a>) -> impl Iterator<Item = &'a Object> {
    change.old.into_iter().chain(change.new)
}

fn views<T>(informer: &Informer) -> Vec<Arc<T>>
where
    T: serde::de::DeserializeOwned + Send + Sync + 'static,
{
    let all = informer.list();
    all.iter().filter_map(|o| o.view::<T>().ok()).collect()
}

fn draft(cluster: &Object, manifest: Value) -> Draft {
    let kind = manifest["kind"].as_str().unwrap_or_default().to_owned();
    let owner = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "name": cluster.name(), "uid": cluster.uid(), "controller": true, "blockOwnerDeletion": true});
    Draft {
        namespace: names::execution_space(cluster.name()),
        name: names::work(&kind, IMPERSONATOR, ""),
        labels: Map::new(),
        annotations: Map::new(),
        owners: vec![owner],
        manifest,
        suspend_dispatching: None,
        preserve_on_deletion: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, rules: Value) -> Arc<Role> {
        let role = json!({"metadata": {"name": name}, "rules": rules});
        Arc::new(serde_json::from_value(role).unwrap())
    }

    fn binding(kind: &str, role: &str, subjects: &[(&str, &str)]) -> Arc<Binding> {
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
        let [role, binding] = manifests(Vec::new(), "karmada-cluster");
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
            let found = rules(&roles, &bindings, cluster);
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
        assert_eq!(rules(&[], &bindings, "m1"), Vec::<Value>::new());
    }
}

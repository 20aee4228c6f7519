//! Allows the impersonator of each cluster to impersonate the subjects that may use the cluster
//! proxy.
//!
//! Reads ClusterRoles and ClusterRoleBindings of the control plane, and creates two Works per
//! cluster, owned by the Cluster. Source: Karmada's `pkg/controllers/unifiedauth`,
//! `pkg/util/rbac.go`.

use std::sync::Arc;

use client::{Informer, InformerEvent, InvolvedObject};
use controller_context::{DesiredWork, Error, PropagationContext, WorkClient};
use flotilla_runtime::{EventRecorder, ReconcileAction, Workqueue, run_workers};
use karmada_api::names;
use karmada_api::well_known_keys::{IMPERSONATE_GROUP_MEMBERS, SYSTEM};
use karmada_api::{Cluster, ImpersonatedIdentity};
use machinery::{Gvr, Object};
use members::{ClusterRoleGrant, ProxySubjects, RoleBindingSubjects};
use serde_json::{Map, Value, json};

use crate::options::PolicyControllersOptions;

static CLUSTER_ROLES: Gvr = Gvr::from_static("rbac.authorization.k8s.io", "v1", "clusterroles");
static CLUSTER_ROLE_BINDINGS: Gvr =
    Gvr::from_static("rbac.authorization.k8s.io", "v1", "clusterrolebindings");
/// The ServiceAccount in each cluster, and its ClusterRole and ClusterRoleBinding there.
const IMPERSONATOR: &str = "karmada-impersonator";
const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
const UNIFIED_AUTH_WORKERS: usize = 2;
const SYNC_SUCCEEDED_REASON: &str = "SyncImpersonationConfigSucceed";
const SYNC_FAILED_REASON: &str = "SyncImpersonationConfigFailed";

/// The rules of the impersonator of a cluster.
///
/// RBAC cannot name "the users of a group": who is bound through a group can be impersonated only
/// if every user can, which `allows_groups` permits.
fn impersonation_rules(subjects: &ProxySubjects, allows_groups: bool) -> Vec<Value> {
    let every_user = allows_groups && subjects.binds_groups_of_users();
    let every_account = allows_groups && subjects.binds_groups_of_service_accounts();
    let mut rules = Vec::new();
    for (resource, names, every) in [
        ("users", &subjects.users, every_user),
        ("serviceaccounts", &subjects.service_accounts, every_account),
        ("groups", &subjects.groups, false),
    ] {
        if every {
            rules.push(json!({"verbs": ["impersonate"], "apiGroups": [""],
                "resources": [resource]}));
        } else if !names.is_empty() {
            rules.push(json!({"verbs": ["impersonate"], "apiGroups": [""],
                "resources": [resource], "resourceNames": names}));
        }
    }
    rules
}

/// The rules for the uid and extras of users, if there is anyone to impersonate (Kubernetes
/// `staging/src/k8s.io/apiserver/pkg/endpoints/filters/impersonation`).
fn identity_rules(identity: &ImpersonatedIdentity, subjects: &ProxySubjects) -> Vec<Value> {
    if *subjects == ProxySubjects::default() {
        return Vec::new();
    }
    let uid = identity.uid.then(|| vec!["uids".to_owned()]);
    let extras: Vec<String> = identity
        .extra_keys
        .iter()
        .map(|key| format!("userextras/{key}"))
        .collect();
    let extras = (!extras.is_empty()).then_some(extras);
    let rule = |resources| {
        json!({"verbs": ["impersonate"], "apiGroups": [AUTHENTICATION_GROUP],
            "resources": resources})
    };
    uid.into_iter().chain(extras).map(rule).collect()
}

fn allows_group_members(cluster: &Cluster) -> bool {
    let annotation = cluster.metadata.annotations.get(IMPERSONATE_GROUP_MEMBERS);
    annotation.is_none_or(|value| value != "false")
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

pub(crate) struct UnifiedAuthController {
    recorder: EventRecorder,
    clusters: Informer,
    roles: Informer,
    bindings: Informer,
    works: WorkClient,
    queue: Workqueue<String>,
}

impl UnifiedAuthController {
    pub(crate) async fn start(context: &PropagationContext, options: &PolicyControllersOptions) {
        let controller = Arc::new(Self {
            recorder: context
                .controller
                .recorder
                .with_component("unified-auth-controller"),
            clusters: context.clusters.informer().clone(),
            roles: context.controller.informer(&CLUSTER_ROLES),
            bindings: context.controller.informer(&CLUSTER_ROLE_BINDINGS),
            works: options.works.clone(),
            queue: Workqueue::new(),
        });
        // A ClusterRole that is not listed yet must not look like a deleted one.
        for informer in [
            &controller.roles,
            &controller.bindings,
            &controller.works.informer,
        ] {
            informer.wait_for_cache_sync().await;
        }
        controller.add_event_handlers();
        let queue = controller.queue.clone();
        run_workers(
            &context.controller.tasks,
            "impersonation",
            &queue,
            UNIFIED_AUTH_WORKERS,
            move |name| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(&name).await }
            },
        );
    }

    fn add_event_handlers(self: &Arc<Self>) {
        let queue = self.queue.clone();
        self.clusters.add_event_handler(move |change| {
            let access = |c: &Object| {
                let view = c.decode::<Cluster>().ok();
                view.map(|c| {
                    (
                        c.spec.impersonator_secret_ref.clone(),
                        allows_group_members(&c),
                        ImpersonatedIdentity::from_annotations(&c.metadata.annotations),
                    )
                })
            };
            if let Some(new) = change.new
                && change.old.is_none_or(|old| access(old) != access(new))
            {
                queue.add_event(new.name().to_owned(), change);
            }
        });
        let controller = Arc::downgrade(self);
        self.roles.add_event_handler(move |change| {
            let opens = |r: &Object| {
                r.decode::<ClusterRoleGrant>()
                    .is_ok_and(|r| r.grants_proxy(None))
            };
            if let Some(controller) = controller.upgrade()
                && old_and_new(change).any(opens)
            {
                controller.enqueue_all_clusters();
            }
        });
        let controller = Arc::downgrade(self);
        self.bindings.add_event_handler(move |change| {
            if let Some(controller) = controller.upgrade()
                && old_and_new(change).any(|b| controller.binds_proxy_role(b))
            {
                controller.enqueue_all_clusters();
            }
        });
        let controller = Arc::downgrade(self);
        self.works.informer.add_event_handler(move |change| {
            // Recreates a deleted Work while its cluster exists. Those of a cluster in pull mode
            // are deleted before the cluster is unregistered.
            if let (Some(controller), Some(old), None) =
                (controller.upgrade(), change.old, change.new)
                && let Some(owner) = old.meta().controller().filter(|o| &*o.kind == "Cluster")
                && controller.is_in_push_mode(&owner.name)
            {
                controller.queue.add_low(owner.name.to_string());
            }
        });
    }

    fn is_in_push_mode(&self, cluster: &str) -> bool {
        let object = self.clusters.get("", cluster);
        let cluster = object.and_then(|object| object.decode::<Cluster>().ok());
        cluster.is_some_and(|cluster| cluster.spec.sync_mode == "Push")
    }

    fn binds_proxy_role(&self, binding: &Object) -> bool {
        let Ok(binding) = binding.decode::<RoleBindingSubjects>() else {
            return false;
        };
        let role = binding
            .cluster_role()
            .and_then(|name| self.roles.get("", name));
        let role = role.and_then(|r| r.decode::<ClusterRoleGrant>().ok());
        role.is_some_and(|r| r.grants_proxy(None))
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
        let (roles, bindings) = (list_typed(&self.roles), list_typed(&self.bindings));
        let subjects = ProxySubjects::of_cluster(&roles, &bindings, name);
        let mut rules = impersonation_rules(&subjects, allows_group_members(&cluster));
        let identity = ImpersonatedIdentity::from_annotations(&cluster.metadata.annotations);
        rules.extend(identity_rules(&identity, &subjects));
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

    fn role(name: &str, rules: Value) -> Arc<ClusterRoleGrant> {
        let role = json!({"metadata": {"name": name}, "rules": rules});
        Arc::new(serde_json::from_value(role).unwrap())
    }

    fn binding(kind: &str, role: &str, subjects: &[(&str, &str)]) -> Arc<RoleBindingSubjects> {
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
            let subjects = ProxySubjects::of_cluster(&roles, &bindings, cluster);
            let rules = impersonation_rules(&subjects, false);
            let line = |r: &Value| format!("{} {}", r["resources"][0], r["resourceNames"]);
            rules.iter().map(line).collect()
        };
        let first = [
            r#""users" ["ann","bob"]"#,
            r#""serviceaccounts" ["bot"]"#,
            r#""groups" ["dev","ops"]"#,
        ];
        assert_eq!(of("m1"), first);
        assert_eq!(of("m2")[2], r#""groups" ["ops"]"#);
        let nobody = ProxySubjects::of_cluster(&[], &bindings, "m1");
        assert_eq!(nobody, ProxySubjects::default());
        assert_eq!(impersonation_rules(&nobody, true), Vec::<Value>::new());
    }

    // proves: IMP-identity
    #[test]
    fn uid_and_extras_are_impersonated_where_the_cluster_allows_it() {
        let ann = ProxySubjects {
            users: ["ann".to_owned()].into(),
            ..ProxySubjects::default()
        };
        let identity = |uid, keys: &[&str]| ImpersonatedIdentity {
            uid,
            extra_keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        };
        let rule = |resources: &[&str]| {
            json!({"verbs": ["impersonate"], "apiGroups": ["authentication.k8s.io"],
                "resources": resources})
        };
        let extras = ["userextras/example.org/project", "userextras/scopes"];
        let both = identity(true, &["scopes", "example.org/project"]);
        for (identity, subjects, expected) in [
            (&identity(false, &[]), &ann, vec![]),
            (&identity(true, &[]), &ann, vec![rule(&["uids"])]),
            (&both, &ann, vec![rule(&["uids"]), rule(&extras)]),
            (&both, &ProxySubjects::default(), vec![]),
        ] {
            assert_eq!(identity_rules(identity, subjects), expected);
        }
    }

    // proves: IMP-groups
    #[test]
    fn who_is_bound_through_a_group_can_be_impersonated() {
        let names = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        let of = |groups: &[&str], allows_groups| -> Vec<String> {
            let subjects = ProxySubjects {
                users: names(&["ann"]),
                service_accounts: names(&["bot"]),
                groups: names(groups),
            };
            let rules = impersonation_rules(&subjects, allows_groups);
            let line = |r: &Value| format!("{} {}", r["resources"][0], r["resourceNames"]);
            rules.iter().map(line).collect()
        };
        let (ann, bot) = (r#""users" ["ann"]"#, r#""serviceaccounts" ["bot"]"#);
        let (users, accounts) = (r#""users" null"#, r#""serviceaccounts" null"#);
        let groups = |names: &str| format!(r#""groups" ["{names}"]"#);
        for (group, first, second) in [
            ("dev", users, bot),
            ("system:masters", ann, bot),
            ("system:serviceaccounts:ns", ann, accounts),
            ("system:serviceaccounts-x", users, bot),
            ("system:authenticated", users, accounts),
        ] {
            assert_eq!(of(&[group], true), [first, second, &groups(group)]);
            assert_eq!(of(&[group], false), [ann, bot, &groups(group)]);
        }
        assert_eq!(of(&[], true), [ann, bot]);
    }
}

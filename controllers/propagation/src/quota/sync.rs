//! Creates a Work with a ResourceQuota for each cluster that a FederatedResourceQuota assigns a
//! share to, and deletes the Works of shares that are no longer assigned.

use std::sync::Arc;

use machinery::Object;
use openapi::karmada::labels::{QUOTA_NAME, QUOTA_NAMESPACE};
use openapi::karmada::names;
use openapi::karmada::quota::{FederatedResourceQuota, QuotaSpec};
use flotilla_runtime::{Action, Informer, Queue, Recorder, Tasks, run_workers};
use serde_json::{Map, Value, json};

use super::{WORKERS, about, key_of, works_of};
use crate::error::Error;
use crate::run::Deps;
use crate::works::{Draft, Works};

pub(super) struct Sync {
    recorder: Recorder,
    quotas: Informer,
    clusters: Informer,
    works: Works,
    queue: Queue<String>,
}

impl Sync {
    pub(super) fn start(deps: &Deps, quotas: &Informer, works: &Works, tasks: &Tasks) {
        let it = Arc::new(Self {
            recorder: deps
                .recorder
                .named("federated-resource-quota-sync-controller"),
            quotas: quotas.clone(),
            clusters: deps.clusters.informer().clone(),
            works: works.clone(),
            queue: Queue::new(),
        });
        it.listen();
        let queue = it.queue.clone();
        run_workers(tasks, "quota-sync", &queue, WORKERS, move |key: String| {
            let it = Arc::clone(&it);
            async move { it.reconcile(&key).await }
        });
    }

    fn listen(self: &Arc<Self>) {
        let queue = self.queue.clone();
        self.quotas.on_change(move |change| {
            let assigned = |o: &Object| {
                let quota = o.view::<FederatedResourceQuota>().ok()?;
                Some(quota.spec.static_assignments.clone())
            };
            let versions = (change.old, change.new);
            let same = matches!(versions, (Some(old), Some(new)) if assigned(old) == assigned(new));
            if !same {
                queue.add_lane(change.key(), change.initial);
            }
        });
        let it = Arc::downgrade(self);
        self.clusters.on_change(move |change| {
            if let (Some(it), None, Some(cluster), false) =
                (it.upgrade(), change.old, change.new, change.initial)
            {
                it.cluster_came(cluster.name());
            }
        });
        // Recreates a deleted Work that is still needed, and deletes a Work whose quota no longer
        // exists.
        let it = Arc::downgrade(self);
        self.works.informer.on_change(move |change| {
            if let (Some(it), Some(key)) = (it.upgrade(), key_of(change.object()))
                && (change.new.is_none() || it.quotas.get_key(&key).is_none())
            {
                it.queue.add_low(key);
            }
        });
    }

    fn cluster_came(&self, cluster: &str) {
        let concerned = |o: &Object| {
            let quota = o.view::<FederatedResourceQuota>();
            quota.is_ok_and(|q| q.spec.assigned(cluster).is_some())
        };
        for quota in self.quotas.list_where(concerned) {
            self.queue.add(quota.head().key());
        }
    }

    async fn reconcile(&self, key: &str) -> Result<Action, Error> {
        let quota = self.quotas.get_key(key);
        let seen = quota
            .as_ref()
            .map(Object::view::<FederatedResourceQuota>)
            .transpose()?;
        let spec = seen.as_ref().map(|quota| &quota.spec);
        let mut failed = Vec::new();
        let mut written = false;
        for work in works_of(&self.works.informer, key) {
            if is_wanted(spec, work.namespace()) || work.head().deleting {
                continue;
            }
            match self.works.delete(&work).await {
                Ok(()) => written = true,
                Err(e) => failed.push(e),
            }
        }
        let (Some(quota), Some(spec)) = (quota, spec) else {
            return Error::of(failed).map(|()| Action::Done);
        };
        let there = self.clusters.list_where(|c| !c.head().deleting);
        for draft in there.iter().filter_map(|c| draft(&quota, spec, c.name())) {
            match self.works.put(draft, "").await {
                Ok(did) => written |= did,
                Err(e) => failed.push(e),
            }
        }
        match Error::of(failed) {
            Ok(()) => {
                if written {
                    let text = format!("Sync works for FederatedResourceQuota({key}) succeed.");
                    self.recorder
                        .normal(&about(&quota), "SyncWorkSucceed", text);
                }
                Ok(Action::Done)
            }
            Err(e) => {
                if !e.is_outdated() {
                    self.recorder
                        .warning(&about(&quota), "SyncWorkFailed", e.to_string());
                }
                Err(e)
            }
        }
    }
}

/// Whether a quota (`None`: it was deleted) assigns a share to the cluster of a Work.
fn is_wanted(spec: Option<&QuotaSpec>, space: &str) -> bool {
    let cluster = names::cluster_of_space(space).unwrap_or_default();
    let assigned = spec.into_iter().flat_map(|spec| &spec.static_assignments);
    assigned.into_iter().any(|a| a.cluster_name == cluster)
}

/// The Work with a cluster's share; `None` without a share.
fn draft(quota: &Object, spec: &QuotaSpec, cluster: &str) -> Option<Draft> {
    let hard = spec.assigned(cluster)?;
    let (namespace, name) = (quota.namespace(), quota.name());
    let mut share = json!({"hard": hard});
    if hard.is_empty() {
        share = json!({});
    }
    let labels = [(QUOTA_NAMESPACE, namespace), (QUOTA_NAME, name)];
    Some(Draft {
        namespace: names::execution_space(cluster),
        name: names::work("ResourceQuota", name, namespace),
        labels: labels
            .map(|(key, value)| (key.to_owned(), Value::from(value)))
            .into_iter()
            .collect(),
        annotations: Map::new(),
        owners: Vec::new(),
        manifest: json!({"apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {"name": name, "namespace": namespace}, "spec": share}),
        suspend_dispatching: None,
        preserve_on_deletion: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: QUO-share, LAB-quota
    #[test]
    fn a_work_is_built_for_each_assigned_cluster() {
        let value = json!({"metadata": {"name": "q", "namespace": "n"}, "spec": {"overall": {"cpu": "9"},
            "staticAssignments": [{"clusterName": "m1", "hard": {"cpu": "2000m"}}, {"clusterName": "m2", "hard": {}}]}});
        let quota = Object::from_value(&value).unwrap();
        let seen = quota.view::<FederatedResourceQuota>().unwrap();
        for (cluster, expected) in [
            ("m1", Some(json!({"hard": {"cpu": "2"}}))),
            ("m2", Some(json!({}))),
            ("m3", None),
        ] {
            let made = draft(&quota, &seen.spec, cluster);
            let spec = made.as_ref().map(|d| d.manifest["spec"].clone());
            assert_eq!(spec, expected, "{cluster}");
            let space = names::execution_space(cluster);
            assert_eq!(is_wanted(Some(&seen.spec), &space), expected.is_some());
            assert!(!is_wanted(None, &space));
            if let Some(draft) = made {
                assert_eq!(draft.namespace, space);
                assert_eq!(
                    Value::from(draft.labels),
                    json!({QUOTA_NAMESPACE: "n", QUOTA_NAME: "q"})
                );
            }
        }
    }
}

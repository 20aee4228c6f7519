//! Creates a Work with a ResourceQuota for each cluster that a FederatedResourceQuota assigns a
//! share to, and deletes the Works of shares that are no longer assigned.

use std::sync::Arc;

use client::Informer;
use controller_context::{DesiredWork, Error, PropagationContext, WorkClient};
use flotilla_runtime::{EventRecorder, ReconcileAction, Workqueue, run_workers_after};
use karmada_api::names;
use karmada_api::quota::{FederatedResourceQuota, FederatedResourceQuotaSpec};
use karmada_api::well_known_keys::{QUOTA_NAME, QUOTA_NAMESPACE};
use machinery::Object;
use serde_json::{Map, Value, json};

use super::quota_objects::{QUOTA_WORKERS, list_quota_works, quota_key_of_work, quota_reference};
use crate::options::PolicyControllersOptions;
use karmada_api::resources::QUOTAS;

pub(super) struct QuotaSyncController {
    recorder: EventRecorder,
    quotas: Informer,
    clusters: Informer,
    works: WorkClient,
    queue: Workqueue<String>,
}

impl QuotaSyncController {
    pub(super) fn start(context: &PropagationContext, options: &PolicyControllersOptions) {
        let controller = Arc::new(Self {
            recorder: context
                .controller
                .recorder
                .with_component("federated-resource-quota-sync-controller"),
            quotas: context.controller.informer(&QUOTAS),
            clusters: context.clusters.informer().clone(),
            works: options.works.clone(),
            queue: Workqueue::new(),
        });
        controller.add_event_handlers();
        let queue = controller.queue.clone();
        // Without its quota, a Work would be deleted.
        let caches = [
            controller.quotas.clone(),
            controller.clusters.clone(),
            controller.works.informer.clone(),
        ];
        let synced = async move {
            for cache in &caches {
                cache.wait_for_cache_sync().await;
            }
        };
        run_workers_after(
            &context.controller.tasks,
            synced,
            "quota-sync",
            &queue,
            QUOTA_WORKERS,
            move |key: String| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(&key).await }
            },
        );
    }

    fn add_event_handlers(self: &Arc<Self>) {
        let queue = self.queue.clone();
        self.quotas.add_event_handler(move |change| {
            let assigned = |o: &Object| {
                let quota = o.decode::<FederatedResourceQuota>().ok()?;
                Some(quota.spec.static_assignments.clone())
            };
            let versions = (change.old, change.new);
            let same = matches!(versions, (Some(old), Some(new)) if assigned(old) == assigned(new));
            if !same {
                queue.add_event(change.key(), change);
            }
        });
        let controller = Arc::downgrade(self);
        self.clusters.add_event_handler(move |change| {
            if let (Some(controller), None, Some(cluster), false) = (
                controller.upgrade(),
                change.old,
                change.new,
                change.in_initial_list,
            ) {
                controller.on_cluster_created(cluster.name());
            }
        });
        // Recreates a deleted Work that is still needed, and deletes a Work whose quota or whose
        // share was gone before its creation was seen.
        let controller = Arc::downgrade(self);
        self.works.informer.add_event_handler(move |change| {
            if let (Some(controller), Some(key)) =
                (controller.upgrade(), quota_key_of_work(change.object()))
                && (change.old.is_none()
                    || change.new.is_none()
                    || controller.quotas.get_by_key(&key).is_none())
            {
                controller.queue.add_low(key);
            }
        });
    }

    fn on_cluster_created(&self, cluster: &str) {
        let concerned = |o: &Object| {
            let quota = o.decode::<FederatedResourceQuota>();
            quota.is_ok_and(|q| q.spec.static_assignment(cluster).is_some())
        };
        for quota in self.quotas.list_where(concerned) {
            self.queue.add(quota.meta().key());
        }
    }

    async fn reconcile(&self, key: &str) -> Result<ReconcileAction, Error> {
        let quota = self.quotas.get_by_key(key);
        let view = quota
            .as_ref()
            .map(Object::decode::<FederatedResourceQuota>)
            .transpose()?;
        let spec = view.as_ref().map(|quota| &quota.spec);
        let mut failed = Vec::new();
        let mut written = false;
        for work in list_quota_works(&self.works.informer, key) {
            if is_assigned(spec, work.namespace()) || work.meta().deleting {
                continue;
            }
            match self.works.delete(&work).await {
                Ok(_) => written = true,
                Err(e) => failed.push(e.into()),
            }
        }
        let (Some(quota), Some(spec)) = (quota, spec) else {
            return Error::aggregate(failed).map(|()| ReconcileAction::Done);
        };
        let there = self.clusters.list_where(|c| !c.meta().deleting);
        for draft in there
            .iter()
            .filter_map(|c| build_work(&quota, spec, c.name()))
        {
            match self.works.create_or_update(draft, "").await {
                Ok(did) => written |= did,
                Err(e) => failed.push(e),
            }
        }
        match Error::aggregate(failed) {
            Ok(()) => {
                if written {
                    let text = format!("Sync works for FederatedResourceQuota({key}) succeed.");
                    self.recorder
                        .normal(&quota_reference(&quota), "SyncWorkSucceed", text);
                }
                Ok(ReconcileAction::Done)
            }
            Err(e) => {
                if !e.is_conflict() {
                    self.recorder.warning(
                        &quota_reference(&quota),
                        "SyncWorkFailed",
                        e.to_string(),
                    );
                }
                Err(e)
            }
        }
    }
}

/// Whether a quota (`None`: it was deleted) assigns a share to the cluster of a Work.
fn is_assigned(spec: Option<&FederatedResourceQuotaSpec>, space: &str) -> bool {
    let cluster = names::cluster_of_execution_space(space).unwrap_or_default();
    let assigned = spec.into_iter().flat_map(|spec| &spec.static_assignments);
    assigned.into_iter().any(|a| a.cluster_name == cluster)
}

/// The Work with a cluster's share; `None` without a share.
fn build_work(
    quota: &Object,
    spec: &FederatedResourceQuotaSpec,
    cluster: &str,
) -> Option<DesiredWork> {
    let hard = spec.static_assignment(cluster)?;
    let (namespace, name) = (quota.namespace(), quota.name());
    let mut share = json!({"hard": hard});
    if hard.is_empty() {
        share = json!({});
    }
    let labels = [(QUOTA_NAMESPACE, namespace), (QUOTA_NAME, name)];
    Some(DesiredWork {
        namespace: names::execution_space_name(cluster),
        name: names::work_name("ResourceQuota", name, namespace),
        labels: labels
            .map(|(key, value)| (key.to_owned(), Value::from(value)))
            .into_iter()
            .collect(),
        annotations: Map::new(),
        owner_references: Vec::new(),
        manifest: json!({"apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {"name": name, "namespace": namespace}, "spec": share}),
        suspend_dispatching: None,
        preserve_resources_on_deletion: None,
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
        let view = quota.decode::<FederatedResourceQuota>().unwrap();
        for (cluster, expected) in [
            ("m1", Some(json!({"hard": {"cpu": "2"}}))),
            ("m2", Some(json!({}))),
            ("m3", None),
        ] {
            let work = build_work(&quota, &view.spec, cluster);
            let spec = work.as_ref().map(|d| d.manifest["spec"].clone());
            assert_eq!(spec, expected, "{cluster}");
            let space = names::execution_space_name(cluster);
            assert_eq!(is_assigned(Some(&view.spec), &space), expected.is_some());
            assert!(!is_assigned(None, &space));
            if let Some(draft) = work {
                assert_eq!(draft.namespace, space);
                assert_eq!(
                    Value::from(draft.labels),
                    json!({QUOTA_NAMESPACE: "n", QUOTA_NAME: "q"})
                );
            }
        }
    }
}

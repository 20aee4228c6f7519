//! Collects the status of a quota's ResourceQuotas in clusters into `status.aggregatedStatus`, and,
//! where quotas are not enforced, their sum into `status.overallUsed`.

use std::sync::Arc;

use client::{Api, Error, Informer};
use controller_context::PropagationContext;
use flotilla_runtime::{EventRecorder, ReconcileAction, StatusWriter, Workqueue, run_workers};
use karmada_api::quota::{
    ClusterQuotaStatus, FederatedResourceQuota, FederatedResourceQuotaSpec,
    FederatedResourceQuotaStatus, QuotaResourceList,
};
use karmada_api::resources::QUOTAS;
use karmada_api::{KarmadaFeature, Work, names};
use machinery::Object;
use quota::federated_resource_quota::add_amount;
use serde::Deserialize;

use super::quota_objects::{
    QUOTA_WORKERS, list_quota_works, quota_key_of_work, quota_reference, write_status,
};
use crate::options::PolicyControllersOptions;

pub(super) struct QuotaStatusController {
    api: Arc<dyn Api>,
    recorder: EventRecorder,
    quotas: Informer,
    works: Informer,
    enforced: bool,
    queue: Workqueue<String>,
}

impl QuotaStatusController {
    pub(super) fn start(context: &PropagationContext, options: &PolicyControllersOptions) {
        let controller = Arc::new(Self {
            api: Arc::clone(&context.controller.control_plane),
            recorder: context
                .controller
                .recorder
                .with_component("federated-resource-quota-status-controller"),
            quotas: context.controller.informer(&QUOTAS),
            works: options.works.informer.clone(),
            enforced: context
                .feature_gates
                .enabled(KarmadaFeature::FederatedQuotaEnforcement),
            queue: Workqueue::new(),
        });
        let queue = controller.queue.clone();
        controller.quotas.add_event_handler(move |change| {
            if change.new.is_some() {
                queue.add_event(change.key(), change);
            }
        });
        let queue = controller.queue.clone();
        controller.works.add_event_handler(move |change| {
            if let (Some(_), Some(key)) = (change.old, quota_key_of_work(change.object())) {
                queue.add(key);
            }
        });
        let queue = controller.queue.clone();
        run_workers(
            &context.controller.tasks,
            "quota-status",
            &queue,
            QUOTA_WORKERS,
            move |key: String| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(&key).await }
            },
        );
    }

    async fn reconcile(&self, key: &str) -> Result<ReconcileAction, Error> {
        let Some(quota) = self.quotas.get_by_key(key).filter(|q| !q.meta().deleting) else {
            return Ok(ReconcileAction::Done);
        };
        match self.collect_status(&quota, key).await {
            Ok(false) => Ok(ReconcileAction::Done),
            Ok(true) => {
                let text = format!("Collect status of FederatedResourceQuota({key}) succeed.");
                self.recorder
                    .normal(&quota_reference(&quota), "AggregateStatusSucceed", text);
                Ok(ReconcileAction::Done)
            }
            // The newer quota is about to arrive by the watch and enqueues the key again.
            Err(e) if e.is_conflict() || e.is_not_found() => Ok(ReconcileAction::Done),
            Err(e) => {
                self.recorder.warning(
                    &quota_reference(&quota),
                    "AggregateStatusFailed",
                    e.to_string(),
                );
                Err(e)
            }
        }
    }

    /// Returns whether the status was written.
    async fn collect_status(&self, quota: &Object, key: &str) -> Result<bool, Error> {
        let view = quota.decode::<FederatedResourceQuota>()?;
        let mut works = Vec::new();
        for work in list_quota_works(&self.works, key) {
            works.push((work.namespace().to_owned(), work.decode::<Work>()?));
        }
        let works = works.iter().map(|(space, work)| (space.as_str(), &**work));
        let status = aggregate_status(&view.spec, &view.status, works, self.enforced);
        let status = status.map_err(Error::Protocol)?;
        let writer = StatusWriter::new(&*self.api, "federated-resource-quota-status");
        write_status(writer, (quota, &view.status), &status).await
    }
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct ReportedResourceQuota {
    hard: QuotaResourceList,
    used: QuotaResourceList,
}

/// The status of a quota from what its Works have reported; each Work comes with its namespace.
fn aggregate_status<'a>(
    spec: &FederatedResourceQuotaSpec,
    status: &FederatedResourceQuotaStatus,
    works: impl Iterator<Item = (&'a str, &'a Work)>,
    enforced: bool,
) -> Result<FederatedResourceQuotaStatus, String> {
    let mut clusters = Vec::new();
    for (space, work) in works.filter(|(_, work)| work.is_applied()) {
        let (Some(cluster), Some(first)) = (
            names::cluster_of_execution_space(space),
            work.status.manifest_statuses.first(),
        ) else {
            continue;
        };
        let Some(reported) = &first.status else {
            continue;
        };
        let reported = ReportedResourceQuota::deserialize(reported)
            .map_err(|e| format!("status of the ResourceQuota in cluster {cluster}: {e}"))?;
        clusters.push(ClusterQuotaStatus {
            cluster_name: cluster.to_owned(),
            hard: reported.hard,
            used: reported.used,
        });
    }
    clusters.sort_by(|a, b| a.cluster_name.cmp(&b.cluster_name));
    let (overall, overall_used) = if enforced {
        (status.overall.clone(), status.overall_used.clone())
    } else {
        let mut sum = QuotaResourceList::new();
        for (name, amount) in clusters.iter().flat_map(|cluster| &cluster.used) {
            add_amount(&mut sum, name.clone(), *amount);
        }
        (spec.overall.clone(), sum)
    };
    Ok(FederatedResourceQuotaStatus {
        overall,
        overall_used,
        aggregated_status: clusters,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn work(applied: &str, status: Value) -> Work {
        let status = json!({"status": {"conditions": [{"type": "Applied", "status": applied}],
            "manifestStatuses": status}});
        serde_json::from_value(status).unwrap()
    }

    // proves: QUO-collected, QUO-overall
    #[test]
    fn reported_usage_is_ordered_by_cluster_name() {
        let reported = |used: &str| json!([{"identifier": {}, "status": {"hard": {"cpu": "5"}, "used": {"cpu": used}}}]);
        let works = [
            ("karmada-es-b", work("True", reported("1500m"))),
            ("karmada-es-a", work("True", reported("1"))),
            ("karmada-es-c", work("False", reported("9"))),
            ("karmada-es-d", work("True", json!([]))),
        ];
        let spec = serde_json::from_value(json!({"overall": {"cpu": "10"}})).unwrap();
        let before = serde_json::from_value(json!({"overallUsed": {"cpu": "7"}})).unwrap();
        let aggregated = json!([{"clusterName": "a", "hard": {"cpu": "5"}, "used": {"cpu": "1"}},
            {"clusterName": "b", "hard": {"cpu": "5"}, "used": {"cpu": "1500m"}}]);
        for (enforced, expected) in [
            (
                false,
                json!({"overall": {"cpu": "10"}, "overallUsed": {"cpu": "2500m"}, "aggregatedStatus": aggregated}),
            ),
            (
                true,
                json!({"overallUsed": {"cpu": "7"}, "aggregatedStatus": aggregated}),
            ),
        ] {
            let works = works.iter().map(|(space, work)| (*space, work));
            let status = aggregate_status(&spec, &before, works, enforced).unwrap();
            assert_eq!(json!(status), expected, "{enforced}");
        }
        let odd = work("True", json!([{"status": {"used": {"cpu": "x"}}}]));
        let result = aggregate_status(&spec, &before, [("karmada-es-a", &odd)].into_iter(), false);
        assert!(result.unwrap_err().contains("cluster a"));
    }
}

//! Collects the status of a quota's ResourceQuotas in clusters into `status.aggregatedStatus`, and,
//! where quotas are not enforced, their sum into `status.overallUsed`.

use std::sync::Arc;

use client::{Api, Error};
use machinery::Object;
use openapi::karmada::quota::{
    Amounts, ClusterUse, FederatedResourceQuota, QuotaSpec, QuotaStatus, add,
};
use openapi::karmada::{Gate, Work, names};
use flotilla_runtime::{Action, Informer, Queue, Recorder, Tasks, run_workers};
use serde::Deserialize;

use super::{WORKERS, about, key_of, works_of, write_status};
use crate::run::Deps;
use crate::works::Works;

pub(super) struct Collect {
    api: Arc<dyn Api>,
    recorder: Recorder,
    quotas: Informer,
    works: Informer,
    enforced: bool,
    queue: Queue<String>,
}

impl Collect {
    pub(super) fn start(deps: &Deps, quotas: &Informer, works: &Works, tasks: &Tasks) {
        let it = Arc::new(Self {
            api: Arc::clone(&deps.control),
            recorder: deps
                .recorder
                .named("federated-resource-quota-status-controller"),
            quotas: quotas.clone(),
            works: works.informer.clone(),
            enforced: deps.options.gates.is_on(Gate::FederatedQuotaEnforcement),
            queue: Queue::new(),
        });
        let queue = it.queue.clone();
        it.quotas.on_change(move |change| {
            if change.new.is_some() {
                queue.add_lane(change.key(), change.initial);
            }
        });
        let queue = it.queue.clone();
        it.works.on_change(move |change| {
            if let (Some(_), Some(key)) = (change.old, key_of(change.object())) {
                queue.add(key);
            }
        });
        let queue = it.queue.clone();
        run_workers(
            tasks,
            "quota-status",
            &queue,
            WORKERS,
            move |key: String| {
                let it = Arc::clone(&it);
                async move { it.reconcile(&key).await }
            },
        );
    }

    async fn reconcile(&self, key: &str) -> Result<Action, Error> {
        let Some(quota) = self.quotas.get_key(key).filter(|q| !q.head().deleting) else {
            return Ok(Action::Done);
        };
        match self.collect(&quota, key).await {
            Ok(false) => Ok(Action::Done),
            Ok(true) => {
                let text = format!("Collect status of FederatedResourceQuota({key}) succeed.");
                self.recorder
                    .normal(&about(&quota), "AggregateStatusSucceed", text);
                Ok(Action::Done)
            }
            // The newer quota is about to arrive by the watch and enqueues the key again.
            Err(e) if e.is_conflict() || e.is_not_found() => Ok(Action::Done),
            Err(e) => {
                self.recorder
                    .warning(&about(&quota), "AggregateStatusFailed", e.to_string());
                Err(e)
            }
        }
    }

    /// Returns whether the status was written.
    async fn collect(&self, quota: &Object, key: &str) -> Result<bool, Error> {
        let seen = quota.view::<FederatedResourceQuota>()?;
        let mut works = Vec::new();
        for work in works_of(&self.works, key) {
            works.push((work.namespace().to_owned(), work.view::<Work>()?));
        }
        let works = works.iter().map(|(space, work)| (space.as_str(), &**work));
        let status = collected(&seen.spec, &seen.status, works, self.enforced);
        let status = status.map_err(Error::Protocol)?;
        if status == seen.status {
            return Ok(false);
        }
        write_status(&*self.api, quota, &status).await?;
        Ok(true)
    }
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Reported {
    hard: Amounts,
    used: Amounts,
}

/// The status of a quota from what its Works have reported; each Work comes with its namespace.
fn collected<'a>(
    spec: &QuotaSpec,
    status: &QuotaStatus,
    works: impl Iterator<Item = (&'a str, &'a Work)>,
    enforced: bool,
) -> Result<QuotaStatus, String> {
    let mut clusters = Vec::new();
    for (space, work) in works.filter(|(_, work)| work.is_applied()) {
        let (Some(cluster), Some(first)) = (
            names::cluster_of_space(space),
            work.status.manifest_statuses.first(),
        ) else {
            continue;
        };
        let Some(reported) = &first.status else {
            continue;
        };
        let reported = Reported::deserialize(reported)
            .map_err(|e| format!("status of the ResourceQuota in cluster {cluster}: {e}"))?;
        clusters.push(ClusterUse {
            cluster_name: cluster.to_owned(),
            hard: reported.hard,
            used: reported.used,
        });
    }
    clusters.sort_by(|a, b| a.cluster_name.cmp(&b.cluster_name));
    let (overall, overall_used) = if enforced {
        (status.overall.clone(), status.overall_used.clone())
    } else {
        let mut sum = Amounts::new();
        for (name, amount) in clusters.iter().flat_map(|cluster| &cluster.used) {
            add(&mut sum, name.clone(), *amount);
        }
        (spec.overall.clone(), sum)
    };
    Ok(QuotaStatus {
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
            let status = collected(&spec, &before, works, enforced).unwrap();
            assert_eq!(json!(status), expected, "{enforced}");
        }
        let odd = work("True", json!([{"status": {"used": {"cpu": "x"}}}]));
        let refused = collected(&spec, &before, [("karmada-es-a", &odd)].into_iter(), false);
        assert!(refused.unwrap_err().contains("cluster a"));
    }
}

//! Runs the controllers of FederatedResourceQuotas, which assign shares to clusters and collect
//! their usage.
//!
//! quota ──[`sync_controller`]──► a Work with a ResourceQuota per assigned cluster ──[`status_controller`]──► `status.aggregatedStatus`
//! bindings ──[`enforcement_controller`]──► `status.overallUsed`, where quotas are enforced
//!
//! Admission enforces quotas and adds what a binding uses to `status.overallUsed`; the recount in
//! [`enforcement_controller`] corrects the sum. Source: Karmada's `pkg/controllers/federatedresourcequota`.

mod collect;
mod recount;
mod sync;

use client::{Api, At, Result, WriteOptions};
use machinery::Object;
use openapi::karmada::Gate;
use openapi::karmada::labels::{QUOTA_NAME, QUOTA_NAMESPACE};
use openapi::karmada::quota::QuotaStatus;
use openapi::karmada::resources::QUOTAS;
use flotilla_runtime::{Informer, ObjectRef, Select, Tasks};
use serde_json::json;

use crate::run::Deps;
use crate::works::Works;

/// The index of Works by the FederatedResourceQuota they belong to.
const OF_QUOTA: &str = "works/quota";
const WORKERS: usize = 1;

pub(crate) async fn start(deps: &Deps, works: &Works, tasks: &Tasks) {
    let quotas = deps.informers.get(&deps.control, &Select::all(&QUOTAS));
    works
        .informer
        .add_index(OF_QUOTA, |work| key_of(work).into_iter().collect());
    quotas.wait_synced().await;
    works.informer.wait_synced().await;
    deps.clusters.informer().wait_synced().await;
    sync::Sync::start(deps, &quotas, works, tasks);
    collect::Collect::start(deps, &quotas, works, tasks);
    if deps.options.gates.is_on(Gate::FederatedQuotaEnforcement) {
        recount::Recount::start(deps, &quotas, tasks);
    }
}

/// The key of the FederatedResourceQuota that a Work belongs to.
fn key_of(work: &Object) -> Option<String> {
    let label = |key| work.head().label(key);
    Some(format!(
        "{}/{}",
        label(QUOTA_NAMESPACE)?,
        label(QUOTA_NAME)?
    ))
}

fn works_of(works: &Informer, key: &str) -> Vec<Object> {
    works.by_index(OF_QUOTA, key)
}

fn about(quota: &Object) -> ObjectRef {
    ObjectRef::new(
        "policy.karmada.io/v1alpha1",
        "FederatedResourceQuota",
        quota,
    )
}

/// Updates the status; fails with a conflict if the quota has changed since it was read.
async fn write_status(api: &dyn Api, quota: &Object, status: &QuotaStatus) -> Result<()> {
    let mut body = quota.value()?;
    body["status"] = json!(status);
    let at = At::of(&QUOTAS, quota).sub("status");
    let written = api.update(at, body, &WriteOptions::default()).await;
    written.map(drop)
}

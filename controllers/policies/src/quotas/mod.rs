//! Runs the controllers of FederatedResourceQuotas, which assign shares to clusters and collect
//! their usage.
//!
//! quota ──[`sync_controller`]──► a Work with a ResourceQuota per assigned cluster ──[`status_controller`]──► `status.aggregatedStatus`
//! bindings ──[`enforcement_controller`]──► `status.overallUsed`, where quotas are enforced
//!
//! Admission enforces quotas and adds what a binding uses to `status.overallUsed`; the recount in
//! [`enforcement_controller`] corrects the sum. Source: Karmada's `pkg/controllers/federatedresourcequota`.

mod enforcement_controller;
mod status_controller;
mod sync_controller;

use client::{Api, ResourcePath, Result, WriteOptions};
use controller_context::{PropagationContext, WorkClient};
use flotilla_runtime::{Informer, InvolvedObject, ListWatchSelector, TaskGroup};
use machinery::Object;
use openapi::karmada::KarmadaFeature;
use openapi::karmada::quota::QuotaStatus;
use openapi::karmada::resources::QUOTAS;
use openapi::karmada::well_known_keys::{QUOTA_NAME, QUOTA_NAMESPACE};
use serde_json::json;

/// The index of Works by the FederatedResourceQuota they belong to.
const BY_QUOTA: &str = "works/quota";
const QUOTA_WORKERS: usize = 1;

pub async fn start(deps: &PropagationContext, works: &WorkClient, tasks: &TaskGroup) {
    let quotas = deps
        .informers
        .get(&deps.control_plane, &ListWatchSelector::all(&QUOTAS));
    works.informer.add_index(BY_QUOTA, |work| {
        quota_key_of_work(work).into_iter().collect()
    });
    quotas.wait_for_cache_sync().await;
    works.informer.wait_for_cache_sync().await;
    deps.clusters.informer().wait_for_cache_sync().await;
    sync_controller::QuotaSyncController::start(deps, &quotas, works, tasks);
    status_controller::QuotaStatusController::start(deps, &quotas, works, tasks);
    if deps
        .options
        .feature_gates
        .enabled(KarmadaFeature::FederatedQuotaEnforcement)
    {
        enforcement_controller::QuotaEnforcementController::start(deps, &quotas, tasks);
    }
}

/// The key of the FederatedResourceQuota that a Work belongs to.
fn quota_key_of_work(work: &Object) -> Option<String> {
    let label = |key| work.meta().label(key);
    Some(format!(
        "{}/{}",
        label(QUOTA_NAMESPACE)?,
        label(QUOTA_NAME)?
    ))
}

fn list_quota_works(works: &Informer, key: &str) -> Vec<Object> {
    works.by_index(BY_QUOTA, key)
}

fn quota_reference(quota: &Object) -> InvolvedObject {
    InvolvedObject::new(
        "policy.karmada.io/v1alpha1",
        "FederatedResourceQuota",
        quota,
    )
}

/// Updates the status; fails with a conflict if the quota has changed since it was read.
async fn write_status(api: &dyn Api, quota: &Object, status: &QuotaStatus) -> Result<()> {
    let mut body = quota.value()?;
    body["status"] = json!(status);
    let at = ResourcePath::of_object(&QUOTAS, quota).subresource("status");
    let written = api.update(at, body, &WriteOptions::default()).await;
    written.map(drop)
}

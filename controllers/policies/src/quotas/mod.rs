//! Runs the controllers of FederatedResourceQuotas, which assign shares to clusters and collect
//! their usage.
//!
//! quota ──[`sync_controller`]──► a Work with a ResourceQuota per assigned cluster ──[`status_controller`]──► `status.aggregatedStatus`
//! bindings ──[`enforcement_controller`]──► `status.overallUsed`, where quotas are enforced
//!
//! Admission enforces quotas and adds what a binding uses to `status.overallUsed`; the recount in
//! [`enforcement_controller`] corrects the sum. Source: Karmada's `pkg/controllers/federatedresourcequota`.

mod enforcement_controller;
mod quota_objects;
mod status_controller;
mod sync_controller;

use client::{ListWatchSelector, TaskGroup};
use controller_context::{PropagationContext, WorkClient};
use openapi::karmada::KarmadaFeature;
use openapi::karmada::resources::QUOTAS;

use quota_objects::{BY_QUOTA, quota_key_of_work};

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

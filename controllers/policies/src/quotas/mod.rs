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

use controller_context::PropagationContext;
use karmada_api::KarmadaFeature;
use karmada_api::resources::QUOTAS;

use crate::options::PolicyControllersOptions;
use quota_objects::{BY_QUOTA, quota_key_of_work};

pub(crate) async fn start(context: &PropagationContext, options: &PolicyControllersOptions) {
    let quotas = context.controller.informer(&QUOTAS);
    let works = &options.works;
    works.informer.add_index(BY_QUOTA, |work| {
        quota_key_of_work(work).into_iter().collect()
    });
    quotas.wait_for_cache_sync().await;
    works.informer.wait_for_cache_sync().await;
    context.clusters.informer().wait_for_cache_sync().await;
    sync_controller::QuotaSyncController::start(context, options);
    status_controller::QuotaStatusController::start(context, options);
    if context
        .feature_gates
        .enabled(KarmadaFeature::FederatedQuotaEnforcement)
    {
        enforcement_controller::QuotaEnforcementController::start(context, options);
    }
}

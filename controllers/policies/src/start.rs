//! Starts the controllers of this crate.

use controller_context::PropagationContext;

use crate::namespaces::NamespaceSyncController;
use crate::observed_capacity::ObservedCapacityController;
use crate::options::PolicyControllersOptions;
use crate::quotas;
use crate::rebalancer::RebalancerController;
use crate::unified_auth::UnifiedAuthController;

/// Starts the controllers and returns when their informers have synced.
pub async fn start(context: &PropagationContext, options: PolicyControllersOptions) {
    NamespaceSyncController::start(context, &options).await;
    UnifiedAuthController::start(context, &options).await;
    quotas::start(context, &options).await;
    RebalancerController::start(context).await;
    ObservedCapacityController::start(context, &options).await;
}

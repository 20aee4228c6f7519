//! Writes the status of ValidatingAdmissionPolicies: the warnings of the check of their types,
//! once for each generation (Kubernetes' `validatingadmissionpolicystatus` controller).

use std::sync::Arc;

use client::{Api, Error, Informer};
use flotilla_runtime::{ControllerContext, ReconcileAction, StatusWriter, Workqueue, run_workers};
use machinery::Gvr;
use serde_json::{Value, json};

use crate::shutdown_waits::wait_for_cache_sync;

static POLICIES: Gvr = Gvr::from_static(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
);
const FIELD_MANAGER: &str = "validatingadmissionpolicy-status-controller";

/// Returns the warnings for `status.typeChecking` of a policy.
pub type PolicyTypeChecker = Arc<dyn Fn(&Value) -> Vec<Value> + Send + Sync>;

struct ValidatingPolicyStatusController {
    api: Arc<dyn Api>,
    policies: Informer,
    type_check: PolicyTypeChecker,
}

pub(crate) fn start(context: &ControllerContext, type_check: PolicyTypeChecker) {
    let controller = Arc::new(ValidatingPolicyStatusController {
        policies: context.informer(&POLICIES),
        api: Arc::clone(&context.control_plane),
        type_check,
    });
    let queue: Workqueue<String> = Workqueue::new();
    let wake = queue.clone();
    controller.policies.add_event_handler(move |change| {
        if let Some(policy) = change.new {
            wake.add_event(policy.name().to_owned(), change);
        }
    });
    let workers = context.tasks.clone();
    context.tasks.spawn(async move {
        if !wait_for_cache_sync(&workers, [&controller.policies]).await {
            return;
        }
        run_workers(&workers, "policy-status", &queue, 1, move |name: String| {
            let controller = Arc::clone(&controller);
            async move { controller.reconcile(&name).await }
        });
    });
}

impl ValidatingPolicyStatusController {
    async fn reconcile(&self, name: &str) -> Result<ReconcileAction, Error> {
        let Some(policy) = self.policies.get("", name) else {
            return Ok(ReconcileAction::Done);
        };
        let body = policy.value()?;
        let generation = body["metadata"]["generation"].as_i64();
        if generation <= body["status"]["observedGeneration"].as_i64() {
            return Ok(ReconcileAction::Done);
        }
        let warnings = match (self.type_check)(&body) {
            warnings if warnings.is_empty() => Value::Null,
            warnings => warnings.into(),
        };
        let status = json!({"observedGeneration": generation,
            "typeChecking": {"expressionWarnings": warnings}});
        let writer = StatusWriter::new(&*self.api, "validating-policy-status");
        let writer = writer.with_field_manager(FIELD_MANAGER);
        match writer.patch(&POLICIES, &policy, Some(status)).await {
            // A newer generation arrives by the watch.
            Err(e) if e.is_conflict() => Ok(ReconcileAction::AFTER_CONFLICT),
            Err(e) if !e.is_not_found() => Err(e),
            _ => Ok(ReconcileAction::Done),
        }
    }
}

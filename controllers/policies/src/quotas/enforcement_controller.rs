//! Recounts how much of its quotas the bindings of a namespace use.
//!
//! The controller runs periodically and when a binding is deleted, and updates `status.overall` and
//! `status.overallUsed`. In between admission adds what bindings use; the recount removes what was
//! added for writes that failed.

use std::sync::Arc;
use std::time::Duration;

use client::{Api, Error, Informer, ListOptions, ResourcePath};
use controller_context::PropagationContext;
use flotilla_runtime::{EventRecorder, ReconcileAction, StatusWriter, Workqueue, run_workers};
use karmada_api::quota::{FederatedResourceQuota, FederatedResourceQuotaStatus, QuotaResourceList};
use karmada_api::resources::{BINDINGS, QUOTAS};
use karmada_api::{ResourceBinding, ResourceBindingSpec};
use machinery::Object;
use quota::federated_resource_quota::{add_amount, calculate_resource_usage, retain_limited};

use super::quota_objects::{QUOTA_WORKERS, quota_reference, write_status};
use crate::options::PolicyControllersOptions;

const LIST_PAGE_LIMIT: u64 = 500;

pub(super) struct QuotaEnforcementController {
    api: Arc<dyn Api>,
    recorder: EventRecorder,
    quotas: Informer,
    resync_period: Duration,
    queue: Workqueue<String>,
}

impl QuotaEnforcementController {
    pub(super) fn start(context: &PropagationContext, options: &PolicyControllersOptions) {
        let controller = Arc::new(Self {
            api: Arc::clone(&context.controller.control_plane),
            recorder: context
                .controller
                .recorder
                .with_component("federated-resource-quota-enforcement-controller"),
            quotas: context.controller.informer(&QUOTAS),
            resync_period: options.quota_resync,
            queue: Workqueue::new(),
        });
        let bindings = context.controller.informer(&BINDINGS);
        controller.add_event_handlers(&bindings);
        let queue = controller.queue.clone();
        run_workers(
            &context.controller.tasks,
            "quota-recount",
            &queue,
            QUOTA_WORKERS,
            move |key: String| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(&key).await }
            },
        );
    }

    fn add_event_handlers(self: &Arc<Self>, bindings: &Informer) {
        let queue = self.queue.clone();
        self.quotas.add_event_handler(move |change| {
            let overall = |o: &Object| {
                let quota = o.decode::<FederatedResourceQuota>().ok()?;
                Some(quota.spec.overall.clone())
            };
            let same = |old: &Object, new: &Object| overall(old) == overall(new);
            if let Some(new) = change.new
                && !change.old.is_some_and(|old| same(old, new))
            {
                queue.add_event(change.key(), change);
            }
        });
        let controller = Arc::downgrade(self);
        bindings.add_event_handler(move |change| {
            if let (Some(controller), Some(deleted), None) =
                (controller.upgrade(), change.old, change.new)
            {
                for quota in controller.quotas.list_namespace(deleted.namespace()) {
                    controller.queue.add(quota.meta().key());
                }
            }
        });
    }

    async fn reconcile(&self, key: &str) -> Result<ReconcileAction, Error> {
        let Some(cached) = self.quotas.get_by_key(key).filter(|q| !q.meta().deleting) else {
            return Ok(ReconcileAction::Done);
        };
        match self.recount_usage(&cached).await {
            Ok(written) => {
                if written {
                    let text = format!("Collect status of FederatedResourceQuota({key}) succeed.");
                    self.recorder.normal(
                        &quota_reference(&cached),
                        "CollectOverallStatusSucceed",
                        text,
                    );
                }
                Ok(match self.resync_period {
                    Duration::ZERO => ReconcileAction::Done,
                    period => ReconcileAction::RequeueAfter(period),
                })
            }
            // Admission updated the quota first; the next recount includes its change.
            Err(e) if e.is_conflict() => Ok(ReconcileAction::AFTER_CONFLICT),
            Err(e) if e.is_not_found() => Ok(ReconcileAction::Done),
            Err(e) => {
                self.recorder.warning(
                    &quota_reference(&cached),
                    "CollectOverallStatusFailed",
                    e.to_string(),
                );
                Err(e)
            }
        }
    }

    /// Returns whether the status was written. Reads the quota before the bindings, so that an
    /// update by admission in the meantime makes the write fail with a conflict.
    async fn recount_usage(&self, cached: &Object) -> Result<bool, Error> {
        let quota = self
            .api
            .get(ResourcePath::of_object(&QUOTAS, cached))
            .await?;
        let view = quota.decode::<FederatedResourceQuota>()?;
        let mut options = ListOptions {
            limit: LIST_PAGE_LIMIT,
            ..ListOptions::default()
        };
        let mut sum = QuotaResourceList::new();
        loop {
            let at = ResourcePath::collection(&BINDINGS, quota.namespace());
            let page = self.api.list(at, &options).await?;
            for binding in &page.items {
                add_usage(&mut sum, &binding.decode::<ResourceBinding>()?.spec);
            }
            if page.continue_token.is_empty() {
                break;
            }
            options.continue_token = page.continue_token;
        }
        let status = FederatedResourceQuotaStatus {
            overall: view.spec.overall.clone(),
            overall_used: retain_limited(&sum, &view.spec.overall),
            ..view.status.clone()
        };
        let writer = StatusWriter::new(&*self.api, "federated-resource-quota-enforcement");
        write_status(writer, (&quota, &view.status), &status).await
    }
}

fn add_usage(sum: &mut QuotaResourceList, binding: &ResourceBindingSpec) {
    for (name, amount) in calculate_resource_usage(binding) {
        add_amount(sum, name, amount);
    }
}

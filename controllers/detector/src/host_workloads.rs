//! Refuses templates that the host runs itself, and sets a condition on their bindings.
//!
//! For a template of a kind that the host's workload controllers act on, the detector creates a
//! binding without a claim, which no scheduler processes, sets its `Scheduled` condition to false
//! and records an event. It releases an earlier claim; copies in members stay there.

use std::collections::HashSet;
use std::sync::Arc;

use client::{DeleteOptions, InvolvedObject, ResourcePath, WriteOptions, ignore_not_found};
use controller_context::{Error, TemplateKey};
use flotilla_runtime::{
    HostWorkloadFilter, PriorityQueueLane, ReconcileAction, RestMapping, StatusWriter,
};
use karmada_api::ResourceBinding;
use karmada_api::binding::{Condition, HOST_RUNS_WORKLOADS};
use machinery::conditions::set_status_condition;
use machinery::time::rfc3339_seconds;
use machinery::{Gvr, Object};
use serde_json::{Value, json};

use crate::apply_policy::OWNER_MISMATCH_MESSAGE;
use crate::controller::{ResourceDetector, TemplateReconcileTrigger};
use crate::desired_binding::DesiredBinding;
use crate::interpret_template::InterpretedTemplate;
use crate::policy_claim::PolicyClaim;
use crate::policy_matching::ParsedPolicy;

impl ResourceDetector {
    /// Enqueues the affected templates when the host gets its first Node or loses its last one.
    pub(crate) fn add_host_event_handler(self: &Arc<Self>) {
        let detector = Arc::downgrade(self);
        self.host_workloads.on_has_nodes_change(move || {
            let Some(detector) = detector.upgrade() else {
                return;
            };
            for key in detector
                .templates
                .list_keys(HostWorkloadFilter::is_workload)
            {
                detector.enqueue_low_priority(key);
            }
        });
    }

    pub(crate) fn enqueue_excluded(&self) {
        let excluded: HashSet<TemplateKey> = self.excluded_templates.lock().clone();
        for key in excluded {
            self.enqueue_low_priority(key);
        }
    }

    fn enqueue_low_priority(&self, key: TemplateKey) {
        let cause = TemplateReconcileTrigger {
            template_changed: true,
            by_karmada: false,
        };
        self.enqueue(key, cause, PriorityQueueLane::Low);
    }

    /// Sets the condition on the binding, and records one event, that the template is not
    /// propagated.
    pub(crate) async fn exclude_template(
        &self,
        key: &TemplateKey,
        served: &RestMapping,
        template: &Object,
    ) -> Result<ReconcileAction, Error> {
        self.add_waiting(key);
        self.applied_policies.invalidate(key);
        let matching_policy = match self.claiming_policy(template) {
            Some(policy) if !policy.object.meta().deleting => Some(policy),
            _ => self.best_matching_policy(served, template),
        };
        if let Some(claim) = PolicyClaim::on_object(template) {
            self.release_claim(served, template, &claim).await?;
        }
        let name = karmada_api::names::binding_name(served.kind(), template.name());
        let (resource, informer) = self.binding_resource(template.namespace());
        let existing = informer.get(template.namespace(), &name);
        let Some(policy) = matching_policy else {
            self.excluded_templates.lock().remove(key);
            return self.delete_excluded_binding(resource, existing).await;
        };
        self.excluded_templates.lock().insert(key.clone());
        let binding = match existing {
            // Reconciled again when the deletion is complete.
            Some(binding) if binding.meta().deleting => return Ok(ReconcileAction::Done),
            Some(binding) => {
                let owner = binding.meta().controller();
                if owner.is_some_and(|o| *o.uid != *template.uid()) {
                    return Err(Error::blocked(OWNER_MISMATCH_MESSAGE));
                }
                binding
            }
            None => {
                let Some(body) = unclaimed_binding(served, template, &policy)? else {
                    return Ok(ReconcileAction::Done);
                };
                let at = ResourcePath::collection(resource, template.namespace());
                let options = WriteOptions::default();
                self.api.create(at, body.into(), &options).await?
            }
        };
        self.set_excluded_condition(served, template, resource, &binding)
            .await
    }

    /// Deletes the binding of a template that no policy matches any more, if it served only to
    /// carry the condition.
    async fn delete_excluded_binding(
        &self,
        resource: &Gvr,
        existing: Option<Object>,
    ) -> Result<ReconcileAction, Error> {
        let Some(binding) = existing else {
            return Ok(ReconcileAction::Done);
        };
        let view = binding.decode::<ResourceBinding>()?;
        if !view.runs_on_host() || !view.spec.clusters.is_empty() {
            return Ok(ReconcileAction::Done);
        }
        let options = DeleteOptions {
            uid: Some(binding.uid().to_owned()),
            ..DeleteOptions::default()
        };
        let at = ResourcePath::of_object(resource, &binding);
        ignore_not_found(self.api.delete(at, &options).await)?;
        Ok(ReconcileAction::Done)
    }

    async fn set_excluded_condition(
        &self,
        served: &RestMapping,
        template: &Object,
        resource: &Gvr,
        binding: &Object,
    ) -> Result<ReconcileAction, Error> {
        let view = binding.decode::<ResourceBinding>()?;
        if view.runs_on_host() {
            return Ok(ReconcileAction::Done);
        }
        let text = format!(
            "{} is not propagated: the cluster of the templates has nodes and runs it itself; \
             serve with --host-workloads=propagate to propagate it all the same",
            served.kind()
        );
        let mut conditions = view.status.conditions.clone();
        let condition = Condition {
            condition_type: "Scheduled".into(),
            status: "False".into(),
            reason: HOST_RUNS_WORKLOADS.into(),
            message: text.clone(),
            last_transition_time: rfc3339_seconds(self.clock.now()),
            ..Condition::default()
        };
        let fields = set_status_condition(&mut conditions, condition)
            .then(|| json!({"conditions": conditions}));
        let writer = StatusWriter::new(&*self.api, "resource-detector");
        let written = writer.patch(resource, binding, fields).await;
        if ignore_not_found(written)?.flatten().is_none() {
            return Ok(ReconcileAction::Done);
        }
        let about = InvolvedObject::new(&served.api_version, served.kind(), template);
        self.recorder.warning(&about, "ApplyPolicyFailed", text);
        Ok(ReconcileAction::Done)
    }
}

/// The binding that the policy would create, without its claim and its clusters.
fn unclaimed_binding(
    served: &RestMapping,
    template: &Object,
    policy: &ParsedPolicy,
) -> Result<Option<Value>, Error> {
    let Some(claim) = PolicyClaim::by_policy(&policy.object) else {
        return Ok(None);
    };
    let desired = DesiredBinding::new(
        served,
        template,
        policy,
        &claim,
        InterpretedTemplate::default(),
    )
    .map_err(Error::blocked)?;
    let mut body = desired.to_new_binding();
    body["metadata"]["labels"] = json!({});
    body["metadata"]["annotations"] = json!({});
    Ok(Some(body))
}

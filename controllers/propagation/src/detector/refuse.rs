//! Refuses templates that the host runs itself, and sets a condition on their bindings.
//!
//! For a template of a kind that the host's workload controllers act on, the detector creates a
//! binding without a claim, which no scheduler processes, sets its `Scheduled` condition to false
//! and records an event. It releases an earlier claim; copies in members stay there.

use std::collections::HashSet;
use std::sync::Arc;

use client::{At, DeleteOptions, Patch, WriteOptions};
use machinery::time::rfc3339_seconds;
use machinery::{Gvr, Object};
use openapi::karmada::Binding;
use openapi::karmada::binding::{Condition, HOST_RUNS_WORKLOADS};
use flotilla_runtime::{Action, HostWorkloads, ObjectRef};
use serde_json::{Value, json};

use super::apply::FOREIGN;
use super::claim::Claim;
use super::desired::{Desired, Findings};
use super::matching::Policy;
use super::shell::{Cause, Detector};
use crate::error::Error;
use crate::kinds::Served;
use crate::templates::Key;

impl Detector {
    /// Enqueues the affected templates when the host gets its first Node or loses its last one.
    pub(super) fn listen_to_host(self: &Arc<Self>) {
        let it = Arc::downgrade(self);
        self.host.on_turn(move || {
            let Some(it) = it.upgrade() else { return };
            for key in it.templates.keys_of(HostWorkloads::concerns) {
                it.enqueue_low(key);
            }
        });
    }

    pub(super) fn look_at_refused(&self) {
        let refused: HashSet<Key> = self.refused.lock().clone();
        for key in refused {
            self.enqueue_low(key);
        }
    }

    fn enqueue_low(&self, key: Key) {
        let cause = Cause {
            template: true,
            ours: false,
        };
        self.enqueue(key, cause, true);
    }

    /// Sets the condition on the binding, and records one event, that the template is not
    /// propagated.
    pub(super) async fn refuse(
        &self,
        key: &Key,
        served: &Served,
        template: &Object,
    ) -> Result<Action, Error> {
        self.remember_waiting(key);
        self.applied.invalidate(key);
        let matching_policy = match self.policy_of(template) {
            Some(policy) if !policy.object.head().deleting => Some(policy),
            _ => self.best(served, template),
        };
        if let Some(claim) = Claim::on(template) {
            self.release(served, template, &claim).await?;
        }
        let name = openapi::karmada::names::binding(served.kind(), template.name());
        let (resource, informer) = self.binding_resource(template.namespace());
        let existing = informer.get(template.namespace(), &name);
        let Some(policy) = matching_policy else {
            self.refused.lock().remove(key);
            return self.withdraw(resource, existing).await;
        };
        self.refused.lock().insert(key.clone());
        let binding = match existing {
            // Reconciled again when the deletion is complete.
            Some(binding) if binding.head().deleting => return Ok(Action::Done),
            Some(binding) => {
                let owner = binding.head().controller();
                if owner.is_some_and(|o| *o.uid != *template.uid()) {
                    return Err(Error::blocked(FOREIGN));
                }
                binding
            }
            None => {
                let Some(body) = unclaimed(served, template, &policy)? else {
                    return Ok(Action::Done);
                };
                let at = At::all(resource, template.namespace());
                let options = WriteOptions::default();
                self.api.create(at, body, &options).await?
            }
        };
        self.tell_refusal(served, template, resource, &binding)
            .await
    }

    /// Deletes the binding of a template that no policy matches any more, if it served only to
    /// carry the condition.
    async fn withdraw(&self, resource: &Gvr, existing: Option<Object>) -> Result<Action, Error> {
        let Some(binding) = existing else {
            return Ok(Action::Done);
        };
        let view = binding.view::<Binding>()?;
        if !view.is_refused() || !view.spec.clusters.is_empty() {
            return Ok(Action::Done);
        }
        let options = DeleteOptions {
            uid: Some(binding.uid().to_owned()),
            ..DeleteOptions::default()
        };
        match self.api.delete(At::of(resource, &binding), &options).await {
            Err(e) if !e.is_not_found() => Err(e.into()),
            _ => Ok(Action::Done),
        }
    }

    async fn tell_refusal(
        &self,
        served: &Served,
        template: &Object,
        resource: &Gvr,
        binding: &Object,
    ) -> Result<Action, Error> {
        let view = binding.view::<Binding>()?;
        if view.is_refused() {
            return Ok(Action::Done);
        }
        let text = format!(
            "{} is not propagated: the cluster of the templates has nodes and runs it itself; \
             serve with --host-workloads=propagate to propagate it all the same",
            served.kind()
        );
        let mut conditions = view.status.conditions.clone();
        conditions.retain(|c| c.kind != "Scheduled");
        conditions.push(Condition {
            kind: "Scheduled".into(),
            status: "False".into(),
            reason: HOST_RUNS_WORKLOADS.into(),
            message: text.clone(),
            last_transition_time: rfc3339_seconds(self.clock.now()),
            ..Condition::default()
        });
        let patch = json!({
            "metadata": {"resourceVersion": binding.revision().to_string()},
            "status": {"conditions": conditions},
        });
        let at = At::of(resource, binding).sub("status");
        let options = WriteOptions::default();
        let written = self.api.patch(at, Patch::Merge(patch), &options).await;
        match written {
            Err(e) if e.is_not_found() => return Ok(Action::Done),
            other => other?,
        };
        let about = ObjectRef::new(&served.api_version, served.kind(), template);
        self.recorder.warning(&about, "ApplyPolicyFailed", text);
        Ok(Action::Done)
    }
}

/// The binding that the policy would create, without its claim and its clusters.
fn unclaimed(served: &Served, template: &Object, policy: &Policy) -> Result<Option<Value>, Error> {
    let Some(claim) = Claim::by(&policy.object) else {
        return Ok(None);
    };
    let desired = Desired::new(served, template, policy, &claim, Findings::default())
        .map_err(Error::blocked)?;
    let mut body = desired.create();
    body["metadata"]["labels"] = json!({});
    body["metadata"]["annotations"] = json!({});
    Ok(Some(body))
}

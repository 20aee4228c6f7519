//! Applies a policy to a template: claims the template, and creates or updates the binding.

use client::{At, WriteOptions};
use machinery::Object;
use openapi::karmada::labels::APPLIED_PLACEMENT;
use openapi::karmada::resources::{BINDINGS, CLUSTER_BINDINGS};
use openapi::karmada::{Binding, BindingSpec, Gate, Placement};
use flotilla_runtime::{Action, Informer, ObjectRef};
use scheduler::core::{Decision, Request};
use scheduler::{Explanation, schedule_ahead};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::applied_policies::AppliedPolicy;
use super::claim::Claim;
use super::desired::{Desired, Difference};
use super::matching::Policy;
use super::policies::no_id;
use super::shell::{Cause, Detector, name_of};
use crate::error::Error;
use crate::figures::FIGURES;
use crate::kinds::Served;
use crate::meta::fingerprint;
use crate::templates::Key;

pub(super) const FOREIGN: &str = "failed to update binding due to different owner reference UID, will \
    try again later after binding is garbage collected";

impl Detector {
    /// Claims the template and brings its binding up to date.
    pub(super) async fn apply(
        &self,
        key: &Key,
        served: &Served,
        template: Object,
        policy: &Policy,
        cause: Cause,
    ) -> Result<Action, Error> {
        let Some(claim) = Claim::by(&policy.object) else {
            return Err(no_id(&policy.object.head().key()));
        };
        let template = match claim.make(&template) {
            Some(patch) => self.patch(At::of(&served.gvr, &template), patch).await?,
            None => template,
        };
        if cause.ours && policy.is_lazy() {
            return Ok(Action::Done);
        }
        let versions = AppliedPolicy {
            template: fingerprint(&template),
            policy_uid: policy.object.uid().to_owned(),
            policy_generation: policy.object.head().generation,
        };
        if self.applied.is_current(key, &versions) {
            return Ok(Action::Done);
        }
        self.applied.begin(key);
        let began = Instant::now();
        let outcome = self.bind(served, &template, policy, &claim, cause).await;
        FIGURES.attempted(outcome.is_ok());
        FIGURES.applied.observe(began.elapsed(), outcome.is_ok());
        let about = ObjectRef::new(&served.api_version, served.kind(), &template);
        let named = if claim.is_of_cluster() {
            format!("Apply cluster policy({})", claim.name)
        } else {
            format!("Apply policy({}/{})", claim.namespace, claim.name)
        };
        match outcome {
            Ok(changed) => {
                if changed {
                    let text = format!("{named} succeed");
                    self.recorder.normal(&about, "ApplyPolicySucceed", text);
                }
                let generation = versions.policy_generation;
                self.applied.finish(key, versions);
                self.look_back(key, served, &template, claim, generation, cause)
                    .await?;
                Ok(Action::Done)
            }
            Err(e) => {
                if !e.is_outdated() {
                    let text = format!("{named} failed: {e}");
                    self.recorder.warning(&about, "ApplyPolicyFailed", text);
                }
                Err(e)
            }
        }
    }

    /// Creates or updates the binding; returns whether it was written.
    async fn bind(
        &self,
        served: &Served,
        template: &Object,
        policy: &Policy,
        claim: &Claim,
        cause: Cause,
    ) -> Result<bool, Error> {
        let findings = self.find_out(served, template, policy).await?;
        let desired =
            Desired::new(served, template, policy, claim, findings).map_err(Error::blocked)?;
        let (resource, informer) = self.binding_resource(&desired.namespace);
        let at = At::one(resource, &desired.namespace, &desired.name);
        let Some(existing) = informer.get(&desired.namespace, &desired.name) else {
            let mut body = desired.create();
            self.place(&mut body, policy, false)?;
            let options = WriteOptions::default();
            self.api
                .create(At::all(resource, &desired.namespace), body, &options)
                .await?;
            return Ok(true);
        };
        let owner = existing.head().controller();
        if owner.is_some_and(|o| *o.uid != *template.uid()) {
            return Err(Error::blocked(FOREIGN));
        }
        if existing.head().deleting {
            // Created again when the deletion is complete.
            return Ok(false);
        }
        let mut body = match desired.update(&existing.value()?) {
            Difference::Nothing => return Ok(false),
            Difference::Version(_) if !cause.template => return Ok(false),
            Difference::Version(body) | Difference::Much(body) => body,
        };
        let before = existing.view::<Binding>()?;
        let kept = before.is_refused() && before.spec.clusters.is_empty();
        let scaled = is_scaled(&before, &desired, policy)?;
        if kept || scaled {
            self.place(&mut body, policy, scaled)?;
        }
        self.api.update(at, body, &WriteOptions::default()).await?;
        Ok(true)
    }

    pub(super) fn binding_resource(&self, namespace: &str) -> (&'static machinery::Gvr, &Informer) {
        if namespace.is_empty() {
            (&CLUSTER_BINDINGS, &self.cluster_bindings)
        } else {
            (&BINDINGS, &self.bindings)
        }
    }

    /// Selects the clusters of a binding where this is possible at once; otherwise the scheduler
    /// does it, and reports why it cannot. `scaled`: only the number of replicas has changed.
    fn place(&self, body: &mut Value, policy: &Policy, scaled: bool) -> Result<(), Error> {
        let spec: BindingSpec =
            serde_json::from_value(body["spec"].clone()).map_err(Error::blocked)?;
        let placement = &policy.view.spec.placement;
        // A quota may reject the clusters; the scheduler reports that on the binding, which has to
        // exist.
        let limited = self.is_on(Gate::FederatedQuotaEnforcement);
        let ours = spec.scheduler_name.is_empty() || spec.scheduler_name == self.scheduler_name;
        if limited || !ours || !placement.cluster_affinities.is_empty() {
            return Ok(());
        }
        let request = Request {
            spec: &spec,
            placement,
            term: None,
            fresh: false,
        };
        let snapshot = self.clusters.snapshot();
        let Ok(decision) = schedule_ahead(&request, &snapshot, scaled) else {
            return Ok(());
        };
        let targets = decision.targets();
        self.remember_decision(body, &decision);
        body["metadata"]["annotations"][APPLIED_PLACEMENT] = placement_text(placement)?.into();
        if let Some(spec) = body["spec"].as_object_mut() {
            // Karmada omits an empty list.
            match targets.is_empty() {
                true => drop(spec.remove("clusters")),
                false => drop(spec.insert("clusters".into(), json!(targets))),
            }
        }
        Ok(())
    }

    /// Checks whether the policy was changed or deleted while it was applied: its reconciliation
    /// may have looked for bindings before this one existed.
    async fn look_back(
        &self,
        key: &Key,
        served: &Served,
        template: &Object,
        claim: Claim,
        generation: i64,
        cause: Cause,
    ) -> Result<(), Error> {
        match self.policy_of(template) {
            Some(now) if !now.object.head().deleting => {
                if now.object.head().generation != generation {
                    self.enqueue(key.clone(), cause, false);
                }
                Ok(())
            }
            _ => self.release_binding(served, template, &claim).await,
        }
    }

    /// Stores the scheduling decision for a binding that is about to be written.
    fn remember_decision(&self, body: &Value, decision: &Decision<'_>) {
        let metadata = &body["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        let key = name_of(text("namespace"), text("name"));
        let before = metadata["generation"].as_i64().unwrap_or(0);
        let explanation = Explanation::ahead(decision.trace(), before + 1);
        self.decisions.put(&key, explanation);
    }

    /// Removes a claim: from the binding first, then from the template.
    pub(super) async fn release(
        &self,
        served: &Served,
        template: &Object,
        claim: &Claim,
    ) -> Result<(), Error> {
        self.release_binding(served, template, claim).await?;
        self.release_one(At::of(&served.gvr, template), template, claim)
            .await
    }

    async fn release_binding(
        &self,
        served: &Served,
        template: &Object,
        claim: &Claim,
    ) -> Result<(), Error> {
        let name = openapi::karmada::names::binding(served.kind(), template.name());
        let (resource, informer) = self.binding_resource(template.namespace());
        let binding = match informer.get(template.namespace(), &name) {
            Some(binding) => binding,
            // The binding may have been created just now.
            None => {
                let at = At::one(resource, template.namespace(), &name);
                match self.api.get(at).await {
                    Err(error) if error.is_not_found() => return Ok(()),
                    other => other?,
                }
            }
        };
        self.release_one(At::of(resource, &binding), &binding, claim)
            .await
    }

    pub(super) async fn release_one(
        &self,
        at: At<'_>,
        object: &Object,
        claim: &Claim,
    ) -> Result<(), Error> {
        let Some(patch) = claim.release(object) else {
            return Ok(());
        };
        match self.patch(at, patch).await {
            Err(Error::Api(e)) if e.is_not_found() => Ok(()),
            other => other.map(drop),
        }
    }

    /// The bindings that a policy has claimed.
    pub(super) fn bindings_of(
        &self,
        claim: &Claim,
    ) -> Vec<(&'static machinery::Gvr, Object, std::sync::Arc<Binding>)> {
        [
            (&BINDINGS, &self.bindings),
            (&CLUSTER_BINDINGS, &self.cluster_bindings),
        ]
        .into_iter()
        .flat_map(|(resource, informer)| {
            let found = informer.by_index("claim", &claim.id);
            found.into_iter().filter_map(move |o| {
                let view = o.view::<Binding>().ok()?;
                Some((resource, o, view))
            })
        })
        .collect()
    }
}

/// Whether nothing but the number of replicas has changed on a scheduled binding. Its clusters can
/// then be selected at once, so that no Works are written with the old numbers first.
fn is_scaled(existing: &Binding, desired: &Desired, policy: &Policy) -> Result<bool, Error> {
    let (spec, placement) = (&existing.spec, &policy.view.spec.placement);
    let replicas = desired.spec.get("replicas").and_then(Value::as_i64);
    let applied = existing.metadata.annotations.get(APPLIED_PLACEMENT);
    let suspended = spec.suspension.as_ref().and_then(|s| s.scheduling) == Some(true);
    Ok(!spec.clusters.is_empty()
        && spec.replicas != replicas.unwrap_or(0)
        && spec.reschedule_triggered_at.is_none()
        && spec.graceful_eviction_tasks.is_empty()
        && !suspended
        && applied == Some(&placement_text(placement)?))
}

fn placement_text(placement: &Placement) -> Result<String, Error> {
    serde_json::to_string(placement).map_err(Error::blocked)
}

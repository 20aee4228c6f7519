//! Applies a policy to a template: claims the template, and creates or updates the binding.

use client::{Informer, InvolvedObject, ResourcePath, WriteOptions, ignore_not_found};
use controller_context::{BindingDiff, Error, TemplateKey, hash_without_status};
use flotilla_runtime::{PriorityQueueLane, ReconcileAction, RestMapping};
use karmada_api::resources::{BINDINGS, CLUSTER_BINDINGS};
use karmada_api::well_known_keys::{APPLIED_PLACEMENT, REPLICA_PREFERENCE};
use karmada_api::{KarmadaFeature, Placement, ResourceBinding, ResourceBindingSpec, names};
use machinery::Object;
use scheduler::core::{ScheduleRequest, SchedulingDecision};
use scheduler::{DecisionExplanation, schedule_inline};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::applied_policy::AppliedVersions;
use crate::controller::{ResourceDetector, TemplateReconcileTrigger, namespaced_name};
use crate::desired_binding::DesiredBinding;
use crate::metrics::DETECTOR_METRICS;
use crate::policy_claim::PolicyClaim;
use crate::policy_matching::ParsedPolicy;
use crate::reconcile_policy::missing_permanent_id;

pub(crate) const OWNER_MISMATCH_MESSAGE: &str = "failed to update binding due to different owner reference UID, will \
    try again later after binding is garbage collected";

impl ResourceDetector {
    /// Claims the template and brings its binding up to date.
    pub(crate) async fn apply_policy(
        &self,
        key: &TemplateKey,
        served: &RestMapping,
        template: Object,
        policy: &ParsedPolicy,
        cause: TemplateReconcileTrigger,
    ) -> Result<ReconcileAction, Error> {
        let Some(claim) = PolicyClaim::by_policy(&policy.object) else {
            return Err(missing_permanent_id(&policy.object.meta().key()));
        };
        let about = InvolvedObject::new(&served.api_version, served.kind(), &template);
        let template = match claim.claim_patch(&template) {
            Some(patch) => {
                let at = ResourcePath::of_object(&served.gvr, &template);
                let claimed = self.patch(at, patch).await;
                claimed.map_err(|e| self.record_failure(&about, &claim, e))?
            }
            None => template,
        };
        let template = self.sync_removal_finalizer(served, template, policy).await;
        let template = template.map_err(|e| self.record_failure(&about, &claim, e))?;
        if cause.by_karmada && policy.is_lazy() {
            return Ok(ReconcileAction::Done);
        }
        let versions = AppliedVersions {
            template_hash: hash_without_status(&template),
            policy_uid: policy.object.uid().to_owned(),
            policy_generation: policy.object.meta().generation,
            replica_preference: self.replica_preference(served.kind(), &template),
        };
        if self.applied_policies.is_applied(key, &versions) {
            return Ok(ReconcileAction::Done);
        }
        self.applied_policies.begin(key.clone());
        let began = Instant::now();
        let outcome = self
            .create_or_update_binding(served, &template, policy, &claim, cause)
            .await;
        DETECTOR_METRICS.record_apply_attempt(outcome.is_ok());
        DETECTOR_METRICS
            .apply_policy_outcomes
            .observe(began.elapsed(), outcome.is_ok());
        let changed = outcome.map_err(|e| self.record_failure(&about, &claim, e))?;
        if changed {
            let text = format!("{} succeed", application_name(&claim));
            self.recorder.normal(&about, "ApplyPolicySucceed", text);
        }
        let generation = versions.policy_generation;
        self.applied_policies.finish(key.clone(), versions);
        self.recheck_policy(key, served, &template, claim, generation, cause)
            .await?;
        Ok(ReconcileAction::Done)
    }

    /// Records on the template why a policy is not applied to it.
    fn record_failure(&self, about: &InvolvedObject, claim: &PolicyClaim, error: Error) -> Error {
        if !error.is_conflict() {
            let text = format!("{} failed: {error}", application_name(claim));
            self.recorder.warning(about, "ApplyPolicyFailed", text);
        }
        error
    }

    /// Creates or updates the binding; returns whether it was written.
    async fn create_or_update_binding(
        &self,
        served: &RestMapping,
        template: &Object,
        policy: &ParsedPolicy,
        claim: &PolicyClaim,
        cause: TemplateReconcileTrigger,
    ) -> Result<bool, Error> {
        let (name, namespace) = (template.name(), template.namespace());
        if let Some(reason) = names::template_name_error(served.kind(), name, namespace) {
            return Err(Error::blocked(reason));
        }
        let findings = self.interpret_template(served, template, policy).await?;
        let desired = DesiredBinding::new(served, template, policy, claim, findings)
            .map_err(Error::blocked)?;
        let (resource, informer) = self.binding_resource(&desired.namespace);
        let at = ResourcePath::object(resource, &desired.namespace, &desired.name);
        let binding_key = namespaced_name(&desired.namespace, &desired.name);
        let existing = self.binding_writes.read(&*self.api, informer, at);
        let Some(existing) = existing.await? else {
            let mut body = desired.to_new_binding();
            self.select_clusters(&mut body, &desired.placement, false)?;
            let options = WriteOptions::default();
            self.api
                .create(
                    ResourcePath::collection(resource, &desired.namespace),
                    body.into(),
                    &options,
                )
                .await?;
            return Ok(true);
        };
        let owner = existing.meta().controller();
        if owner.is_some_and(|o| *o.uid != *template.uid()) {
            return Err(Error::blocked(OWNER_MISMATCH_MESSAGE));
        }
        if existing.meta().deleting {
            // Created again when the deletion is complete.
            return Ok(false);
        }
        let mut body = match desired.diff(&existing.value()?) {
            BindingDiff::Unchanged => return Ok(false),
            BindingDiff::ObjectVersion(_) if !cause.template_changed => return Ok(false),
            BindingDiff::ObjectVersion(body) | BindingDiff::Changed(body) => body,
        };
        let before = existing.decode::<ResourceBinding>()?;
        let kept = before.runs_on_host() && before.spec.clusters.is_empty();
        let scaled = is_only_scaled(&before, &desired)?;
        if kept || scaled {
            self.select_clusters(&mut body, &desired.placement, scaled)?;
        }
        let options = WriteOptions::default();
        let written = self.api.update(at, body.into(), &options).await?;
        let look = || informer.get_by_key(&binding_key);
        self.binding_writes.expect(&binding_key, &written, look);
        Ok(true)
    }

    pub(crate) fn binding_resource(&self, namespace: &str) -> (&'static machinery::Gvr, &Informer) {
        if namespace.is_empty() {
            (&CLUSTER_BINDINGS, &self.cluster_bindings)
        } else {
            (&BINDINGS, &self.bindings)
        }
    }

    /// Selects the clusters of a binding where this is possible at once; otherwise the scheduler
    /// does it, and reports why it cannot. `scaled`: only the number of replicas has changed.
    fn select_clusters(
        &self,
        body: &mut Value,
        placement: &Placement,
        scaled: bool,
    ) -> Result<(), Error> {
        let spec: ResourceBindingSpec =
            serde_json::from_value(body["spec"].clone()).map_err(Error::blocked)?;
        // A quota may reject the clusters; the scheduler reports that on the binding, which has to
        // exist.
        let limited = self.is_enabled(KarmadaFeature::FederatedQuotaEnforcement);
        let is_own = spec.scheduler_name.is_empty() || spec.scheduler_name == self.scheduler_name;
        // The scheduler knows what clusters can run.
        let preferred = body["metadata"]["annotations"][REPLICA_PREFERENCE].is_string();
        if limited || preferred || !is_own || !placement.cluster_affinities.is_empty() {
            return Ok(());
        }
        let request = ScheduleRequest {
            spec: &spec,
            placement,
            term: None,
            fresh: false,
        };
        let snapshot = self.clusters.snapshot();
        let Ok(decision) = schedule_inline(&request, &snapshot, scaled) else {
            return Ok(());
        };
        let targets = decision.targets();
        self.record_decision(body, &decision);
        body["metadata"]["annotations"][APPLIED_PLACEMENT] = placement_json(placement)?.into();
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
    async fn recheck_policy(
        &self,
        key: &TemplateKey,
        served: &RestMapping,
        template: &Object,
        claim: PolicyClaim,
        generation: i64,
        cause: TemplateReconcileTrigger,
    ) -> Result<(), Error> {
        match self.claiming_policy(template) {
            Some(now) if !now.object.meta().deleting => {
                if now.object.meta().generation != generation {
                    self.enqueue(key.clone(), cause, PriorityQueueLane::High);
                }
                Ok(())
            }
            _ => self.release_binding_claim(served, template, &claim).await,
        }
    }

    /// Stores the scheduling decision for a binding that is about to be written.
    fn record_decision(&self, body: &Value, decision: &SchedulingDecision<'_>) {
        let metadata = &body["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        let key = namespaced_name(text("namespace"), text("name"));
        let before = metadata["generation"].as_i64().unwrap_or(0);
        let explanation = DecisionExplanation::from_inline_decision(decision.trace(), before + 1);
        self.decisions.insert(&key, explanation);
    }

    /// Removes a claim: from the binding first, then from the template.
    pub(crate) async fn release_claim(
        &self,
        served: &RestMapping,
        template: &Object,
        claim: &PolicyClaim,
    ) -> Result<(), Error> {
        self.release_binding_claim(served, template, claim).await?;
        self.remove_claim(
            ResourcePath::of_object(&served.gvr, template),
            template,
            claim,
        )
        .await
    }

    async fn release_binding_claim(
        &self,
        served: &RestMapping,
        template: &Object,
        claim: &PolicyClaim,
    ) -> Result<(), Error> {
        let name = names::binding_name(served.kind(), template.name());
        let (resource, informer) = self.binding_resource(template.namespace());
        let binding = match informer.get(template.namespace(), &name) {
            Some(binding) => binding,
            // The binding may have been created just now.
            None => {
                let at = ResourcePath::object(resource, template.namespace(), &name);
                let Some(binding) = ignore_not_found(self.api.get(at).await)? else {
                    return Ok(());
                };
                binding
            }
        };
        self.remove_claim(ResourcePath::of_object(resource, &binding), &binding, claim)
            .await
    }

    pub(crate) async fn remove_claim(
        &self,
        at: ResourcePath<'_>,
        object: &Object,
        claim: &PolicyClaim,
    ) -> Result<(), Error> {
        let Some(patch) = claim.release_patch(object) else {
            return Ok(());
        };
        match self.patch(at, patch).await {
            Err(Error::Api(e)) if e.is_not_found() => Ok(()),
            other => other.map(drop),
        }
    }

    /// The bindings that a policy has claimed.
    pub(crate) fn claimed_bindings(
        &self,
        claim: &PolicyClaim,
    ) -> Vec<(
        &'static machinery::Gvr,
        Object,
        std::sync::Arc<ResourceBinding>,
    )> {
        [
            (&BINDINGS, &self.bindings),
            (&CLUSTER_BINDINGS, &self.cluster_bindings),
        ]
        .into_iter()
        .flat_map(|(resource, informer)| {
            let claimed = informer.by_index("claim", &claim.id);
            claimed.into_iter().filter_map(move |o| {
                let view = o.decode::<ResourceBinding>().ok()?;
                Some((resource, o, view))
            })
        })
        .collect()
    }
}

/// Whether nothing but the number of replicas has changed on a scheduled binding. Its clusters can
/// then be selected at once, so that no Works are written with the old numbers first.
fn is_only_scaled(existing: &ResourceBinding, desired: &DesiredBinding) -> Result<bool, Error> {
    let (spec, placement) = (&existing.spec, &desired.placement);
    let replicas = desired.spec.get("replicas").and_then(Value::as_i64);
    let applied = existing.metadata.annotations.get(APPLIED_PLACEMENT);
    let suspended = spec.suspension.as_ref().and_then(|s| s.scheduling) == Some(true);
    Ok(!spec.clusters.is_empty()
        && spec.replicas != replicas.unwrap_or(0)
        && spec.reschedule_triggered_at.is_none()
        && spec.graceful_eviction_tasks.is_empty()
        && !suspended
        && applied == Some(&placement_json(placement)?))
}

fn placement_json(placement: &Placement) -> Result<String, Error> {
    serde_json::to_string(placement).map_err(Error::blocked)
}

/// The application of a policy, as events name it.
fn application_name(claim: &PolicyClaim) -> String {
    match claim.is_cluster_scoped() {
        true => format!("Apply cluster policy({})", claim.name),
        false => format!("Apply policy({}/{})", claim.namespace, claim.name),
    }
}

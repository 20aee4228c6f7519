//! Reconciles a policy: claims waiting templates after its creation, updates or releases its
//! templates after a change, and releases all of them on its deletion.

use std::collections::HashSet;

use client::ResourcePath;
use controller_context::{Error, TemplateKey};
use flotilla_runtime::{PriorityQueueLane, ReconcileAction, remove_finalizers};
use karmada_api::policy::ImplicitPriority;
use karmada_api::resources::{CLUSTER_POLICIES, POLICIES};
use karmada_api::well_known_keys::{CLUSTER_POLICY_FINALIZER, POLICY_FINALIZER};
use karmada_api::{KarmadaFeature, names};
use machinery::Object;

use crate::controller::{ResourceDetector, TemplateReconcileTrigger, namespaced_name};
use crate::policy_claim::PolicyClaim;
use crate::policy_matching::ParsedPolicy;

/// Admission gives each policy its permanent id.
pub(crate) fn missing_permanent_id(policy: &str) -> Error {
    Error::Blocked(format!("policy {policy} has no permanent id"))
}

impl ResourceDetector {
    /// `key` is `namespace/name`, or the name of a cluster policy.
    pub(crate) async fn reconcile_policy(&self, key: &str) -> Result<ReconcileAction, Error> {
        let informer = if key.contains('/') {
            &self.policies
        } else {
            &self.cluster_policies
        };
        let Some(policy) = informer.get_by_key(key).and_then(ParsedPolicy::new) else {
            return Ok(ReconcileAction::Done);
        };
        let claim = PolicyClaim::by_policy(&policy.object);
        if policy.object.meta().deleting {
            if let Some(claim) = &claim {
                self.release_all_claims(claim).await?;
            }
            let (resource, finalizer) = if policy.object.namespace().is_empty() {
                (&CLUSTER_POLICIES, CLUSTER_POLICY_FINALIZER)
            } else {
                (&POLICIES, POLICY_FINALIZER)
            };
            remove_finalizers(&*self.api, resource, &policy.object, &[finalizer]).await?;
            return Ok(ReconcileAction::Done);
        }
        let Some(claim) = claim else {
            return Err(missing_permanent_id(key));
        };
        self.reconcile_claims(&policy, &claim).await?;
        self.enqueue_waiting(&policy)?;
        if policy.preempts() && self.is_enabled(KarmadaFeature::PropagationPolicyPreemption) {
            self.preempt(&policy, &claim).await?;
        }
        Ok(ReconcileAction::Done)
    }

    async fn release_all_claims(&self, claim: &PolicyClaim) -> Result<(), Error> {
        let mut done = HashSet::new();
        for (served, template) in self.templates.list_claimed(&claim.id) {
            self.release_claim(&served, &template, claim).await?;
            let binding = names::binding_name(served.kind(), template.name());
            done.insert(namespaced_name(template.namespace(), &binding));
        }
        for (resource, binding, _) in self.claimed_bindings(claim) {
            if !done.contains(&binding.meta().key()) {
                self.remove_claim(ResourcePath::of_object(resource, &binding), &binding, claim)
                    .await?;
            }
        }
        Ok(())
    }

    /// Releases the templates that the policy no longer matches, and enqueues the others.
    async fn reconcile_claims(
        &self,
        policy: &ParsedPolicy,
        claim: &PolicyClaim,
    ) -> Result<(), Error> {
        let cause = TemplateReconcileTrigger {
            template_changed: false,
            by_karmada: policy.is_lazy(),
        };
        for key in self.bound_templates(claim) {
            let Some((served, template)) = self.templates.get(&key) else {
                continue;
            };
            if policy.matches(&served, template.meta()) {
                self.enqueue(key, cause, PriorityQueueLane::Low);
            } else {
                self.release_claim(&served, &template, claim).await?;
            }
        }
        Ok(())
    }

    /// The templates that have a binding of the policy, including bindings that were created and
    /// have not arrived in the cache yet.
    fn bound_templates(&self, claim: &PolicyClaim) -> HashSet<TemplateKey> {
        let bindings = self.claimed_bindings(claim).into_iter();
        let bound = bindings.filter_map(|(_, _, view)| {
            let of = &view.spec.resource;
            let kinds = &self.templates.rest_mapper;
            let served = kinds.find(&of.api_version, &of.kind)?;
            Some(TemplateKey {
                gvr: served.gvr.clone(),
                name: namespaced_name(&of.namespace, &of.name),
            })
        });
        let claimed = self.templates.list_claimed(&claim.id).into_iter();
        let claimed = claimed.map(|(served, template)| TemplateKey {
            gvr: served.gvr.clone(),
            name: template.meta().key(),
        });
        bound
            .chain(claimed.filter(|key| self.applied_policies.contains(key)))
            .collect()
    }

    fn enqueue_waiting(&self, policy: &ParsedPolicy) -> Result<(), Error> {
        let waiting = self.waiting_templates_for(policy);
        if waiting.is_empty() {
            return Ok(());
        }
        self.check_dependent_overrides(policy)?;
        let cause = TemplateReconcileTrigger {
            template_changed: false,
            by_karmada: policy.is_lazy(),
        };
        for key in waiting {
            self.remove_waiting(&key);
            self.enqueue(key, cause, PriorityQueueLane::Low);
        }
        Ok(())
    }

    fn waiting_templates_for(&self, policy: &ParsedPolicy) -> HashSet<TemplateKey> {
        let mut keys = HashSet::new();
        let local = policy.object.namespace();
        for selector in &policy.view.spec.resource_selectors {
            let kinds = &self.templates.rest_mapper;
            let Some(served) = kinds.find(&selector.api_version, &selector.kind) else {
                continue;
            };
            let namespace = if local.is_empty() {
                &selector.namespace
            } else {
                local
            };
            let candidates = {
                let waiting = self.waiting_objects.lock();
                waiting.find(&served.gvr, namespace, &selector.name)
            };
            let (ready, (api_version, kind)) = (selector.compile(), served.api_version_and_kind());
            let fits = |o: &Object| {
                ready.implicit_priority(api_version, kind, o.meta()) > ImplicitPriority::Mismatch
            };
            let fits = |key: &TemplateKey| self.templates.get(key).is_some_and(|(_, o)| fits(&o));
            keys.extend(candidates.into_iter().filter(fits));
        }
        keys
    }
}

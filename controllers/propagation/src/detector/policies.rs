//! Reconciles a policy: claims waiting templates after its creation, updates or releases its
//! templates after a change, and releases all of them on its deletion.

use std::collections::HashSet;

use client::{At, Patch, WriteOptions};
use machinery::Object;
use openapi::karmada::labels::{CLUSTER_POLICY_FINALIZER, POLICY_FINALIZER};
use openapi::karmada::policy::Closeness;
use openapi::karmada::resources::{CLUSTER_POLICIES, POLICIES};
use openapi::karmada::{Gate, names};
use flotilla_runtime::Action;
use serde_json::json;

use super::claim::Claim;
use super::matching::Policy;
use super::shell::{Cause, Detector, name_of};
use crate::error::Error;
use crate::meta::Extra;
use crate::templates::Key;

/// Admission gives each policy its permanent id.
pub(super) fn no_id(policy: &str) -> Error {
    Error::Blocked(format!("policy {policy} has no permanent id"))
}

impl Detector {
    /// `key` is `namespace/name`, or the name of a cluster policy.
    pub(super) async fn policy(&self, key: &str) -> Result<Action, Error> {
        let informer = if key.contains('/') {
            &self.policies
        } else {
            &self.cluster_policies
        };
        let Some(policy) = informer.get_key(key).and_then(Policy::new) else {
            return Ok(Action::Done);
        };
        let claim = Claim::by(&policy.object);
        if policy.object.head().deleting {
            if let Some(claim) = &claim {
                self.unclaim_all(claim).await?;
            }
            return self.remove_finalizer(&policy.object).await;
        }
        let Some(claim) = claim else {
            return Err(no_id(key));
        };
        self.refresh_claimed(&policy, &claim).await?;
        self.take_waiting(&policy)?;
        if policy.preempts() && self.is_on(Gate::PropagationPolicyPreemption) {
            self.preempt(&policy, &claim).await?;
        }
        Ok(Action::Done)
    }

    async fn unclaim_all(&self, claim: &Claim) -> Result<(), Error> {
        let mut done = HashSet::new();
        for (served, template) in self.templates.claimed(&claim.id) {
            self.release(&served, &template, claim).await?;
            let binding = names::binding(served.kind(), template.name());
            done.insert(name_of(template.namespace(), &binding));
        }
        for (resource, binding, _) in self.bindings_of(claim) {
            if !done.contains(&binding.head().key()) {
                self.release_one(At::of(resource, &binding), &binding, claim)
                    .await?;
            }
        }
        Ok(())
    }

    async fn remove_finalizer(&self, policy: &Object) -> Result<Action, Error> {
        let (resource, ours) = if policy.namespace().is_empty() {
            (&CLUSTER_POLICIES, CLUSTER_POLICY_FINALIZER)
        } else {
            (&POLICIES, POLICY_FINALIZER)
        };
        let extra = Extra::of(policy);
        let rest: Vec<&String> = extra.finalizers().iter().filter(|f| *f != ours).collect();
        if rest.len() == extra.finalizers().len() {
            return Ok(Action::Done);
        }
        let patch = json!({"metadata": {
            "resourceVersion": policy.revision().to_string(), "finalizers": rest}});
        let options = WriteOptions::default();
        let done = self
            .api
            .patch(At::of(resource, policy), Patch::Merge(patch), &options)
            .await;
        match done {
            Err(e) if !e.is_not_found() => Err(e.into()),
            _ => Ok(Action::Done),
        }
    }

    /// Releases the templates that the policy no longer matches, and enqueues the others.
    async fn refresh_claimed(&self, policy: &Policy, claim: &Claim) -> Result<(), Error> {
        let cause = Cause {
            template: false,
            ours: policy.is_lazy(),
        };
        for key in self.carried_by(claim) {
            let Some((served, template)) = self.templates.get(&key) else {
                continue;
            };
            if policy.matches(&served, template.head()) {
                self.enqueue(key, cause, true);
            } else {
                self.release(&served, &template, claim).await?;
            }
        }
        Ok(())
    }

    /// The templates that have a binding of the policy, including bindings that were created and
    /// have not arrived in the cache yet.
    fn carried_by(&self, claim: &Claim) -> HashSet<Key> {
        let bindings = self.bindings_of(claim).into_iter();
        let bound = bindings.filter_map(|(_, _, view)| {
            let of = &view.spec.resource;
            let kinds = &self.templates.kinds;
            let served = kinds.find(&of.api_version, &of.kind)?;
            Some(Key {
                gvr: served.gvr.clone(),
                name: name_of(&of.namespace, &of.name),
            })
        });
        let claimed = self.templates.claimed(&claim.id).into_iter();
        let claimed = claimed.map(|(served, template)| Key {
            gvr: served.gvr.clone(),
            name: template.head().key(),
        });
        bound
            .chain(claimed.filter(|key| self.applied.contains(key)))
            .collect()
    }

    fn take_waiting(&self, policy: &Policy) -> Result<(), Error> {
        let found = self.waiting_for(policy);
        if found.is_empty() {
            return Ok(());
        }
        self.overrides_exist(policy)?;
        let cause = Cause {
            template: false,
            ours: policy.is_lazy(),
        };
        for key in found {
            self.forget_waiting(&key);
            self.enqueue(key, cause, true);
        }
        Ok(())
    }

    fn waiting_for(&self, policy: &Policy) -> HashSet<Key> {
        let mut found = HashSet::new();
        let local = policy.object.namespace();
        for selector in &policy.view.spec.resource_selectors {
            let kinds = &self.templates.kinds;
            let Some(served) = kinds.find(&selector.api_version, &selector.kind) else {
                continue;
            };
            let namespace = if local.is_empty() {
                &selector.namespace
            } else {
                local
            };
            let candidates = {
                let waiting = self.waiting.lock();
                waiting.find(&served.gvr, namespace, &selector.name)
            };
            let (ready, (api_version, kind)) = (selector.ready(), served.names());
            let fits =
                |o: &Object| ready.closeness(api_version, kind, o.head()) > Closeness::Mismatch;
            let fits = |key: &Key| self.templates.get(key).is_some_and(|(_, o)| fits(&o));
            found.extend(candidates.into_iter().filter(fits));
        }
        found
    }
}

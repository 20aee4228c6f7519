//! Handles the detector's informer events: decides which templates and policies are enqueued after
//! changes of policies, of the objects that policies depend on, of bindings and of templates.

use std::sync::Arc;

use interpreter::{Changed, Operation};
use machinery::{Gvr, Object};
use openapi::karmada::{Binding, Gate, PropagationPolicy};
use flotilla_runtime::{Change, Informer};

use super::claim::Claim;
use super::matching::{Policy, index_keys};
use super::preempt::unleashed;
use super::shell::{BY_KIND, Cause, Detector, name_of};
use crate::kinds::Served;
use crate::meta::{changed_by_us, same_but_status};
use crate::templates::{Key, claims};

const BY_CLAIM: &str = "claim";
const BY_OVERRIDE: &str = "override";
const BY_PRIORITY_CLASS: &str = "priority class";
/// ConfigMaps that every cluster creates for itself.
const EXTENSION_AUTH: &str = "kube-system/extension-apiserver-authentication";
const ROOT_CA: &str = "/kube-root-ca.crt";
static CONFIG_MAPS: Gvr = Gvr::constant("", "v1", "configmaps");

impl Detector {
    pub(super) fn listen_to_policies(self: &Arc<Self>) {
        for informer in [&self.policies, &self.cluster_policies] {
            informer.add_index(BY_KIND, index_keys);
            informer.add_index(BY_OVERRIDE, overrides_of);
            informer.add_index(BY_PRIORITY_CLASS, priority_class_of);
            let it = Arc::downgrade(self);
            informer.on_change(move |change| {
                if let Some(it) = it.upgrade() {
                    it.policy_changed(change);
                }
            });
        }
    }

    /// Handles the creation of override policies and PriorityClasses that policies wait for.
    pub(super) fn listen_to_needed(self: &Arc<Self>) {
        let both = [&self.policies, &self.cluster_policies];
        for (needed, index, policies) in [
            (&self.overrides, BY_OVERRIDE, &both[..1]),
            (&self.cluster_overrides, BY_OVERRIDE, &both[1..]),
            (&self.priority_classes, BY_PRIORITY_CLASS, &both[..]),
        ] {
            let it = Arc::downgrade(self);
            let policies: Vec<Informer> = policies.iter().map(|&i| i.clone()).collect();
            needed.on_change(move |change| {
                let Some(it) = it.upgrade().filter(|_| change.old.is_none()) else {
                    return;
                };
                for policy in policies
                    .iter()
                    .flat_map(|p| p.by_index(index, &change.key()))
                {
                    it.try_again(&policy, change.initial);
                }
            });
        }
    }

    pub(super) fn listen_to_bindings(self: &Arc<Self>) {
        for informer in [&self.bindings, &self.cluster_bindings] {
            informer.add_index(BY_CLAIM, claims);
            let it = Arc::downgrade(self);
            informer.on_change(move |change| {
                if let (Some(it), Some(deleted), None) = (it.upgrade(), change.old, change.new) {
                    it.binding_gone(deleted);
                }
            });
        }
    }

    pub(super) fn listen_to_rules(self: &Arc<Self>) {
        let it = Arc::downgrade(self);
        self.interpreter.on_change(move |changed| {
            if let Some(it) = it.upgrade() {
                it.rules_changed(changed);
            }
        });
    }

    pub(super) fn listen_to_templates(self: &Arc<Self>) {
        let it = Arc::downgrade(self);
        self.templates.on_change(move |served, change| {
            if let Some(it) = it.upgrade() {
                it.template_changed(served, change);
            }
        });
    }

    /// Enqueues the templates whose replicas the changed interpreter rules may compute differently.
    fn rules_changed(&self, changed: &Changed<'_>) {
        const ASKED: &[Operation] = &[Operation::InterpretReplica, Operation::InterpretComponent];
        if !changed.touches(ASKED) {
            return;
        }
        let cause = Cause {
            template: false,
            // A Lazy policy does not treat this as a change of the template.
            ours: true,
        };
        for key in self.templates.keys_of(|k| changed.concerns(k, ASKED)) {
            self.applied.invalidate(&key);
            self.enqueue(key, cause, true);
        }
    }

    fn policy_changed(&self, change: &Change<'_>) {
        let Some(new) = change.new else {
            // Finds a claim that was made after the deletion of its policy.
            self.look_at_claimed(change.object(), false);
            self.look_at_refused();
            return;
        };
        if change.old.is_some_and(|old| !says_otherwise(old, new)) {
            return;
        }
        self.policy_queue.add_lane(new.head().key(), change.initial);
        if self.is_on(Gate::PropagationPolicyPreemption)
            && let Some(old) = change.old
        {
            self.let_others_preempt(old, new);
        }
    }

    /// Lets other policies preempt the templates of a policy whose priority is lowered.
    fn let_others_preempt(&self, old: &Object, new: &Object) {
        let priority = |o: &Object| o.view().map(|p: Arc<PropagationPolicy>| p.spec.priority);
        let (Ok(before), Ok(now)) = (priority(old), priority(new)) else {
            return;
        };
        if now < before {
            let namespace = new.namespace();
            let others = if namespace.is_empty() {
                self.cluster_policies.list()
            } else {
                self.policies.list_namespace(namespace)
            };
            for policy in unleashed(before, now, others) {
                self.policy_queue.add(policy.object.head().key());
            }
        }
    }

    /// Retries a policy whose missing dependency may exist now.
    fn try_again(&self, policy: &Object, low: bool) {
        self.policy_queue.add_lane(policy.head().key(), low);
        self.look_at_claimed(policy, low);
    }

    fn look_at_claimed(&self, policy: &Object, low: bool) {
        let Some((policy, claim)) = Policy::new(policy.clone()).zip(Claim::by(policy)) else {
            return;
        };
        let cause = Cause {
            template: false,
            ours: policy.is_lazy(),
        };
        for (served, template) in self.templates.claimed(&claim.id) {
            let key = Key {
                gvr: served.gvr.clone(),
                name: template.head().key(),
            };
            self.enqueue(key, cause, low);
        }
    }

    fn template_changed(&self, served: &Served, change: &Change<'_>) {
        let key = Key {
            gvr: served.gvr.clone(),
            name: change.key(),
        };
        if is_of_every_cluster(&key) {
            return;
        }
        if let (Some(old), None, false) = (change.old, change.new, change.initial) {
            let deleted = (served.kind().to_owned(), old.uid().to_owned());
            self.gone.lock().insert(key.clone(), deleted);
        }
        let is_lazy = |template: &Object| self.policy_of(template).is_some_and(|p| p.is_lazy());
        if let Some((cause, low)) = heard(change, is_lazy) {
            self.enqueue(key, cause, low);
        }
    }

    /// Enqueues the template of a deleted binding, so that the binding is created again while the
    /// template is claimed.
    fn binding_gone(&self, binding: &Object) {
        let Ok(view) = binding.view::<Binding>() else {
            return;
        };
        let resource = &view.spec.resource;
        let kinds = &self.templates.kinds;
        if let Some(served) = kinds.find(&resource.api_version, &resource.kind) {
            let key = Key {
                gvr: served.gvr.clone(),
                name: name_of(&resource.namespace, &resource.name),
            };
            self.applied.invalidate(&key);
            let cause = Cause {
                template: true,
                ours: false,
            };
            self.enqueue(key, cause, false);
        }
    }
}

/// The override policies that a policy depends on.
fn overrides_of(policy: &Object) -> Vec<String> {
    let Ok(view) = policy.view::<PropagationPolicy>() else {
        return Vec::new();
    };
    let names = view.spec.dependent_overrides.iter();
    names
        .map(|name| name_of(policy.namespace(), name))
        .collect()
}

/// The PriorityClass whose value the policy's bindings get.
fn priority_class_of(policy: &Object) -> Vec<String> {
    let Ok(view) = policy.view::<PropagationPolicy>() else {
        return Vec::new();
    };
    let named = view.spec.schedule_priority.iter();
    named.map(|p| p.priority_class_name.clone()).collect()
}

/// Whether the spec of a policy has changed, or its deletion has begun.
fn says_otherwise(old: &Object, new: &Object) -> bool {
    let seen = |o: &Object| (o.head().generation, o.head().deleting);
    seen(old) != seen(new)
}

/// Whether every cluster creates the object for itself.
fn is_of_every_cluster(template: &Key) -> bool {
    let name = &template.name;
    template.gvr == CONFIG_MAPS && (name == EXTENSION_AUTH || name.ends_with(ROOT_CA))
}

/// Why a change requires the reconciliation of a template, and whether with low priority; `None` if
/// it does not. `is_lazy` tells whether the policy that has claimed the template is Lazy.
fn heard(change: &Change<'_>, is_lazy: impl Fn(&Object) -> bool) -> Option<(Cause, bool)> {
    let ours = match (change.old, change.new) {
        (Some(old), Some(new)) if same_but_status(old, new) => return None,
        (Some(old), Some(new)) => is_lazy(new) && changed_by_us(old, new),
        _ => false,
    };
    let cause = Cause {
        template: !change.initial,
        ours,
    };
    Some((cause, change.initial))
}

#[cfg(test)]
mod tests {
    use super::super::shell::tests::without_workers;
    use super::*;
    use crate::flow_tests::{DEPLOYMENTS, Plane, deployment, policy, until};
    use openapi::karmada::resources::{BINDINGS, POLICIES};
    use serde_json::{Value, json};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// The handler receives the deletion of a binding that a worker has just written, before the
    /// worker records from which versions it built the binding.
    #[tokio::test]
    async fn a_binding_deleted_while_it_is_built_is_created_again() {
        let mut plane = Plane::new();
        plane.control.seed(&DEPLOYMENTS, deployment("web"));
        plane.control.seed(&POLICIES, policy(json!({})));
        let it = without_workers(&mut plane).await;
        it.work_off().await;
        let binding = || it.bindings.get_key("n/web-deployment");
        until("the binding", || binding().is_some()).await;
        it.work_off().await;

        let (updates, known) = (Arc::new(AtomicUsize::new(0)), binding().unwrap());
        let (counted, detector) = (Arc::clone(&updates), Arc::downgrade(&it));
        plane.control.on_call(move |call| {
            let of_binding = call.resource == Some(&BINDINGS) && call.verb == "update";
            if of_binding && counted.fetch_add(1, Ordering::Relaxed) == 0 {
                detector.upgrade().unwrap().binding_gone(&known);
            }
            None
        });
        plane.control.hold(&BINDINGS);
        plane.change(&DEPLOYMENTS, "web", |d| d["spec"]["replicas"] = 9.into());
        let key = Key {
            gvr: DEPLOYMENTS.clone(),
            name: "n/web".into(),
        };
        let replicas =
            || it.templates.get(&key).unwrap().1.value().unwrap()["spec"]["replicas"].clone();
        until("the edit", || replicas() == 9).await;
        assert_eq!(it.queue.get().await, Some(key.clone()));
        it.template(&key).await.unwrap();
        it.queue.done(&key);
        assert_eq!(updates.load(Ordering::Relaxed), 1);
        // The handler has enqueued the template. The informer still holds the old binding, so the
        // next update is rejected.
        assert_eq!(it.queue.get().await, Some(key.clone()));
        it.template(&key).await.unwrap_err();
        assert_eq!(updates.load(Ordering::Relaxed), 2);
        plane.tasks.stop().await;
    }

    fn object(metadata: Value, spec: i64) -> Object {
        let mut value = json!({"metadata": {"name": "a"}, "spec": spec});
        value["metadata"]
            .as_object_mut()
            .unwrap()
            .extend(metadata.as_object().unwrap().clone());
        Object::from_value(&value).unwrap()
    }

    // proves: DET-lanes, DET-changes, DET-lazy-own
    #[test]
    fn template_events_that_are_reconciled() {
        let first = object(json!({"generation": 1}), 1);
        let status = object(json!({"generation": 1, "resourceVersion": "9"}), 1);
        let edited = object(json!({"generation": 2}), 2);
        let claimed = object(
            json!({"generation": 1, "labels": {"x.karmada.io/y": "z"}}),
            1,
        );
        let skipped = object(
            json!({"generation": 1, "labels": {"namespace.karmada.io/skip-auto-propagation": "true"}}),
            1,
        );
        let (user, start, own) = (
            (true, false, false),
            (false, false, true),
            (true, true, false),
        );
        for (old, new, initial, lazy, expected) in [
            (None, Some(&first), true, true, Some(start)),
            (None, Some(&first), false, true, Some(user)),
            (Some(&first), None, false, true, Some(user)),
            (Some(&first), Some(&status), false, false, None),
            (Some(&first), Some(&edited), false, true, Some(user)),
            (Some(&first), Some(&claimed), false, true, Some(own)),
            (Some(&first), Some(&claimed), false, false, Some(user)),
            (Some(&claimed), Some(&first), false, true, Some(own)),
            (Some(&first), Some(&skipped), false, true, Some(user)),
        ] {
            let change = Change { old, new, initial };
            let found = heard(&change, |_| lazy);
            let found = found.map(|(cause, low)| (cause.template, cause.ours, low));
            assert_eq!(found, expected, "{old:?} {new:?} {initial} {lazy}");
        }
    }

    // proves: DET-policy-generation
    #[test]
    fn a_policy_is_reconciled_when_its_spec_changes_or_it_is_deleted() {
        let old = object(json!({"generation": 1}), 1);
        for (metadata, expected) in [
            (json!({"generation": 1, "labels": {"a": "b"}}), false),
            (json!({"generation": 2}), true),
            (
                json!({"generation": 1, "deletionTimestamp": "2026-01-01T00:00:00Z"}),
                true,
            ),
        ] {
            let new = object(metadata.clone(), 1);
            assert_eq!(says_otherwise(&old, &new), expected, "{metadata}");
        }
    }

    // proves: DET-of-every-cluster
    #[test]
    fn some_config_maps_are_created_by_every_cluster() {
        for (resource, name, expected) in [
            (
                "configmaps",
                "kube-system/extension-apiserver-authentication",
                true,
            ),
            ("configmaps", "n/kube-root-ca.crt", true),
            ("configmaps", "n/extension-apiserver-authentication", false),
            ("configmaps", "n/own", false),
            ("secrets", "n/kube-root-ca.crt", false),
        ] {
            let key = Key {
                gvr: Gvr::new("", "v1", resource),
                name: name.into(),
            };
            assert_eq!(is_of_every_cluster(&key), expected, "{resource} {name}");
        }
    }
}

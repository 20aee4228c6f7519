//! Handles the detector's informer events: decides which templates and policies are enqueued after
//! changes of policies, of the objects that policies depend on, of bindings and of templates.

use std::sync::Arc;

use client::{Informer, InformerEvent};
use controller_context::{
    TemplateKey, claiming_policy_ids, is_changed_by_karmada, is_equal_except_status,
};
use flotilla_runtime::{PriorityQueueLane, RestMapping, is_generation_or_deletion_changed};
use interpreter::{InterpreterOperation, InterpreterRuleChange};
use karmada_api::{KarmadaFeature, PropagationPolicy, ResourceBinding};
use machinery::{Gvr, Object};

use crate::controller::{BY_KIND, ResourceDetector, TemplateReconcileTrigger, namespaced_name};
use crate::deleted_template::DeletedTemplate;
use crate::policy_claim::PolicyClaim;
use crate::policy_matching::{ParsedPolicy, index_keys};
use crate::preemption::newly_preempting_policies;
use crate::template_removal::awaits_removal;

const BY_CLAIM: &str = "claim";
const BY_OVERRIDE: &str = "override";
const BY_PRIORITY_CLASS: &str = "priority class";
/// ConfigMaps that every cluster creates for itself.
const EXTENSION_AUTH_CONFIG_MAP: &str = "kube-system/extension-apiserver-authentication";
const ROOT_CA_CONFIG_MAP_SUFFIX: &str = "/kube-root-ca.crt";
/// Where the clients in a cluster find its API servers.
const KUBERNETES_SERVICE: &str = "default/kubernetes";
static CONFIG_MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");

impl ResourceDetector {
    pub(crate) fn add_policy_event_handlers(self: &Arc<Self>) {
        for informer in [&self.policies, &self.cluster_policies] {
            informer.add_index(BY_KIND, index_keys);
            informer.add_index(BY_OVERRIDE, dependent_overrides);
            informer.add_index(BY_PRIORITY_CLASS, priority_class_names);
            let detector = Arc::downgrade(self);
            informer.add_event_handler(move |change| {
                if let Some(detector) = detector.upgrade() {
                    detector.on_policy_event(change);
                }
            });
        }
    }

    /// Handles the creation of override policies and PriorityClasses that policies wait for.
    pub(crate) fn add_dependency_event_handlers(self: &Arc<Self>) {
        let both = [&self.policies, &self.cluster_policies];
        for (needed, index, policies) in [
            (&self.overrides, BY_OVERRIDE, &both[..1]),
            (&self.cluster_overrides, BY_OVERRIDE, &both[1..]),
            (&self.priority_classes, BY_PRIORITY_CLASS, &both[..]),
        ] {
            let detector = Arc::downgrade(self);
            let policies: Vec<Informer> = policies.iter().map(|&i| i.clone()).collect();
            needed.add_event_handler(move |change| {
                let Some(detector) = detector.upgrade().filter(|_| change.old.is_none()) else {
                    return;
                };
                for policy in policies
                    .iter()
                    .flat_map(|p| p.by_index(index, &change.key()))
                {
                    detector.enqueue_policy_and_claimed(&policy, PriorityQueueLane::of(change));
                }
            });
        }
    }

    pub(crate) fn add_binding_event_handlers(self: &Arc<Self>) {
        for informer in [&self.bindings, &self.cluster_bindings] {
            informer.add_index(BY_CLAIM, claiming_policy_ids);
            let detector = Arc::downgrade(self);
            informer.add_event_handler(move |change| {
                let Some(detector) = detector.upgrade() else {
                    return;
                };
                detector.binding_writes.observe(&change.key(), change.new);
                if let (Some(deleted), None) = (change.old, change.new) {
                    detector.on_binding_deleted(deleted);
                }
            });
        }
    }

    /// Follows the Works of deleted templates.
    pub(crate) fn add_work_event_handler(self: &Arc<Self>) {
        let detector = Arc::downgrade(self);
        self.works.add_event_handler(move |change| {
            if let Some(detector) = detector.upgrade() {
                detector.on_awaited_work_event(change);
            }
        });
    }

    pub(crate) fn add_interpreter_event_handler(self: &Arc<Self>) {
        let detector = Arc::downgrade(self);
        self.interpreter.add_change_listener(move |changed| {
            if let Some(detector) = detector.upgrade() {
                detector.on_interpreter_rules_changed(changed);
            }
        });
    }

    pub(crate) fn add_template_event_handler(self: &Arc<Self>) {
        let detector = Arc::downgrade(self);
        self.templates.add_template_handler(move |served, change| {
            if let Some(detector) = detector.upgrade() {
                detector.on_template_event(served, change);
            }
        });
    }

    /// Enqueues the templates whose replicas the changed interpreter rules may compute differently.
    fn on_interpreter_rules_changed(&self, changed: &InterpreterRuleChange<'_>) {
        const ASKED: &[InterpreterOperation] = &[
            InterpreterOperation::InterpretReplica,
            InterpreterOperation::InterpretComponent,
        ];
        if !changed.affects_operations(ASKED) {
            return;
        }
        let cause = TemplateReconcileTrigger {
            template_changed: false,
            // A Lazy policy does not treat this as a change of the template.
            by_karmada: true,
        };
        for key in self.templates.list_keys(|k| changed.affects_kind(k, ASKED)) {
            self.applied_policies.invalidate(&key);
            self.enqueue(key, cause, PriorityQueueLane::Low);
        }
    }

    fn on_policy_event(&self, change: &InformerEvent<'_>) {
        let Some(new) = change.new else {
            // Finds a claim that was made after the deletion of its policy.
            self.enqueue_claimed(change.object(), PriorityQueueLane::High);
            self.enqueue_excluded();
            return;
        };
        if let Some(old) = change.old
            && !is_generation_or_deletion_changed(old, new)
        {
            // Annotations have no generation.
            if awaits_removal(old) != awaits_removal(new) {
                self.enqueue_claimed(new, PriorityQueueLane::High);
            }
            return;
        }
        self.enqueue_matched_too_early(new);
        self.policy_queue.add_event(new.meta().key(), change);
        if self.is_enabled(KarmadaFeature::PropagationPolicyPreemption)
            && let Some(old) = change.old
        {
            self.enqueue_preempting_policies(old, new);
        }
    }

    /// Lets other policies preempt the templates of a policy whose priority is lowered.
    fn enqueue_preempting_policies(&self, old: &Object, new: &Object) {
        let priority = |o: &Object| o.decode().map(|p: Arc<PropagationPolicy>| p.spec.priority);
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
            for policy in newly_preempting_policies(before, now, others) {
                self.policy_queue.add(policy.object.meta().key());
            }
        }
    }

    /// Retries a policy whose missing dependency may exist now.
    fn enqueue_policy_and_claimed(&self, policy: &Object, lane: PriorityQueueLane) {
        self.policy_queue.add_to_lane(policy.meta().key(), lane);
        self.enqueue_claimed(policy, lane);
    }

    fn enqueue_claimed(&self, policy: &Object, lane: PriorityQueueLane) {
        let Some((policy, claim)) =
            ParsedPolicy::new(policy.clone()).zip(PolicyClaim::by_policy(policy))
        else {
            return;
        };
        let cause = TemplateReconcileTrigger {
            template_changed: false,
            by_karmada: policy.is_lazy(),
        };
        for (served, template) in self.templates.list_claimed(&claim.id) {
            let key = TemplateKey {
                gvr: served.gvr.clone(),
                name: template.meta().key(),
            };
            self.enqueue(key, cause, lane);
        }
    }

    fn on_template_event(&self, served: &RestMapping, change: &InformerEvent<'_>) {
        let key = TemplateKey {
            gvr: served.gvr.clone(),
            name: change.key(),
        };
        if is_created_by_every_cluster(&key) {
            return;
        }
        if let (Some(old), None, false) = (change.old, change.new, change.in_initial_list) {
            let deleted = DeletedTemplate::new(served.kind(), old);
            self.deleted_templates.lock().insert(key.clone(), deleted);
        }
        let is_lazy =
            |template: &Object| self.claiming_policy(template).is_some_and(|p| p.is_lazy());
        if let Some(cause) = reconcile_trigger(change, is_lazy) {
            self.enqueue(key, cause, PriorityQueueLane::of(change));
        }
    }

    /// Enqueues the template of a deleted binding, so that the binding is created again while the
    /// template is claimed.
    fn on_binding_deleted(&self, binding: &Object) {
        let Ok(view) = binding.decode::<ResourceBinding>() else {
            return;
        };
        let resource = &view.spec.resource;
        let kinds = &self.templates.rest_mapper;
        if let Some(served) = kinds.find(&resource.api_version, &resource.kind) {
            let key = TemplateKey {
                gvr: served.gvr.clone(),
                name: namespaced_name(&resource.namespace, &resource.name),
            };
            self.applied_policies.invalidate(&key);
            let cause = TemplateReconcileTrigger {
                template_changed: true,
                by_karmada: false,
            };
            self.enqueue(key, cause, PriorityQueueLane::High);
        }
    }
}

/// The override policies that a policy depends on.
fn dependent_overrides(policy: &Object) -> Vec<String> {
    let Ok(view) = policy.decode::<PropagationPolicy>() else {
        return Vec::new();
    };
    let names = view.spec.dependent_overrides.iter();
    names
        .map(|name| namespaced_name(policy.namespace(), name))
        .collect()
}

/// The PriorityClass whose value the policy's bindings get.
fn priority_class_names(policy: &Object) -> Vec<String> {
    let Ok(view) = policy.decode::<PropagationPolicy>() else {
        return Vec::new();
    };
    let named = view.spec.schedule_priority.iter();
    named.map(|p| p.priority_class_name.clone()).collect()
}

/// Whether every cluster creates the object for itself.
pub fn is_created_by_every_cluster(template: &TemplateKey) -> bool {
    let name = &template.name;
    let gvr = &template.gvr;
    if *gvr == CONFIG_MAPS {
        return name == EXTENSION_AUTH_CONFIG_MAP || name.ends_with(ROOT_CA_CONFIG_MAP_SUFFIX);
    }
    name == KUBERNETES_SERVICE
        && matches!(
            (&*gvr.group, &*gvr.resource),
            ("", "services" | "endpoints") | ("discovery.k8s.io", "endpointslices")
        )
}

/// Why a change requires the reconciliation of a template; `None` if it does not. `is_lazy` tells whether the policy that has claimed the template is Lazy.
fn reconcile_trigger(
    change: &InformerEvent<'_>,
    is_lazy: impl Fn(&Object) -> bool,
) -> Option<TemplateReconcileTrigger> {
    let by_karmada = match (change.old, change.new) {
        (Some(old), Some(new)) if is_equal_except_status(old, new) => return None,
        (Some(old), Some(new)) => is_lazy(new) && is_changed_by_karmada(old, new),
        _ => false,
    };
    Some(TemplateReconcileTrigger {
        template_changed: !change.in_initial_list,
        by_karmada,
    })
}

#[cfg(test)]
mod tests {
    use super::super::controller::tests::detector_without_workers;
    use super::*;
    use controller_testing::{DEPLOYMENTS, FederationFixture, deployment, policy, wait_until};
    use karmada_api::resources::{BINDINGS, POLICIES};
    use serde_json::{Value, json};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// The handler receives the deletion of a binding that a worker has just written, before the
    /// worker records from which versions it built the binding.
    #[tokio::test]
    async fn a_binding_deleted_while_it_is_built_is_created_again() {
        let mut plane = FederationFixture::new();
        plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
        plane.control_plane.seed(&POLICIES, policy(json!({})));
        let detector = detector_without_workers(&mut plane).await;
        detector.reconcile_queued().await;
        let binding = || detector.bindings.get_by_key("n/web-deployment");
        wait_until("the binding", || binding().is_some()).await;
        detector.reconcile_queued().await;

        let deleted = binding().unwrap();
        let [updates, reads] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let (update_counter, read_counter) = (Arc::clone(&updates), Arc::clone(&reads));
        let weak = Arc::downgrade(&detector);
        plane.control_plane.on_call(move |call| {
            let verb = call.verb;
            if call.resource != Some(&BINDINGS) {
                return None;
            }
            if verb == "update" && update_counter.fetch_add(1, Ordering::Relaxed) == 0 {
                weak.upgrade().unwrap().on_binding_deleted(&deleted);
            }
            read_counter.fetch_add(usize::from(verb == "get"), Ordering::Relaxed);
            None
        });
        plane.control_plane.pause_watches(&BINDINGS);
        plane.edit(&DEPLOYMENTS, "web", |d| d["spec"]["replicas"] = 9.into());
        let key = TemplateKey {
            gvr: DEPLOYMENTS.clone(),
            name: "n/web".into(),
        };
        let replicas =
            || detector.templates.get(&key).unwrap().1.value().unwrap()["spec"]["replicas"].clone();
        wait_until("the edit", || replicas() == 9).await;
        assert_eq!(detector.queue.get().await, Some(key.clone()));
        detector.process_template(&key).await.unwrap();
        detector.queue.done(&key);
        assert_eq!(updates.load(Ordering::Relaxed), 1);
        assert_eq!(reads.load(Ordering::Relaxed), 0);
        // The handler has enqueued the template. The informer still holds the old binding, so the
        // new one is read.
        assert_eq!(detector.queue.get().await, Some(key.clone()));
        detector.process_template(&key).await.unwrap();
        assert_eq!(reads.load(Ordering::Relaxed), 1);
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

    // proves: DET-changes, DET-lazy-own
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
        let (user, start, own) = ((true, false), (false, false), (true, true));
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
            let change = InformerEvent {
                old,
                new,
                in_initial_list: initial,
            };
            let actual = reconcile_trigger(&change, |_| lazy);
            let actual = actual.map(|cause| (cause.template_changed, cause.by_karmada));
            assert_eq!(actual, expected, "{old:?} {new:?} {initial} {lazy}");
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
            assert_eq!(
                is_generation_or_deletion_changed(&old, &new),
                expected,
                "{metadata}"
            );
        }
    }

    // proves: DET-of-every-cluster
    #[test]
    fn some_objects_are_created_by_every_cluster() {
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
            ("services", "default/kubernetes", true),
            ("endpoints", "default/kubernetes", true),
            ("services", "n/kubernetes", false),
            ("pods", "default/kubernetes", false),
        ] {
            let key = TemplateKey {
                gvr: Gvr::new("", "v1", resource),
                name: name.into(),
            };
            assert_eq!(
                is_created_by_every_cluster(&key),
                expected,
                "{resource} {name}"
            );
        }
    }
}

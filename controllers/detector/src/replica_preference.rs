//! The ReplicaSchedulingPreferences of templates: finds that of a template, and enqueues the
//! template when it changes.

use std::sync::Arc;

use client::InformerEvent;
use controller_context::TemplateKey;
use flotilla_runtime::{PriorityQueueLane, is_generation_or_deletion_changed};
use karmada_api::binding::ObjectReference;
use karmada_api::replica_preference::{
    RecordedReplicaPreference, ReplicaSchedulingPreference, ReplicaSchedulingPreferenceSpec,
    template_kind,
};
use karmada_api::{ResourceBinding, names};
use machinery::Object;

use crate::controller::{ResourceDetector, TemplateReconcileTrigger, namespaced_name};

impl ResourceDetector {
    pub(crate) fn add_replica_preference_event_handler(self: &Arc<Self>) {
        let detector = Arc::downgrade(self);
        self.replica_preferences.add_event_handler(move |change| {
            if let Some(detector) = detector.upgrade() {
                detector.on_replica_preference_event(change);
            }
        });
        let detector = Arc::downgrade(self);
        self.bindings.add_event_handler(move |change| {
            if let (Some(detector), None, Some(new)) = (detector.upgrade(), change.old, change.new)
                && !change.in_initial_list
            {
                detector.on_binding_created(new);
            }
        });
    }

    /// The preference of the template's name, if it is about the template's kind.
    pub(crate) fn replica_preference(
        &self,
        kind: &str,
        template: &Object,
    ) -> Option<ReplicaSchedulingPreferenceSpec> {
        self.named_preference(kind, template.namespace(), template.name())
    }

    fn named_preference(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Option<ReplicaSchedulingPreferenceSpec> {
        let preference = self.replica_preferences.get(namespace, name)?;
        let preference = preference.decode::<ReplicaSchedulingPreference>().ok()?;
        let spec = &preference.spec;
        spec.targets(kind).then(|| spec.clone())
    }

    fn on_replica_preference_event(&self, change: &InformerEvent<'_>) {
        if let (Some(old), Some(new)) = (change.old, change.new)
            && !is_generation_or_deletion_changed(old, new)
        {
            return;
        }
        // The target kind may have changed too.
        for preference in change.old.into_iter().chain(change.new) {
            self.enqueue_preferred_template(preference);
        }
    }

    /// The event of a preference may have come while the binding was built without it.
    fn on_binding_created(&self, binding: &Object) {
        let Ok(view) = binding.decode::<ResourceBinding>() else {
            return;
        };
        let resource = &view.spec.resource;
        let preference = self.named_preference(&resource.kind, &resource.namespace, &resource.name);
        let recorded = RecordedReplicaPreference::from_binding(&view);
        if preference != recorded.map(|recorded| recorded.spec) {
            self.enqueue_preferred(resource);
        }
    }

    /// Enqueues the template of a preference. Without a binding there is nothing to change yet.
    fn enqueue_preferred_template(&self, preference: &Object) {
        let Ok(view) = preference.decode::<ReplicaSchedulingPreference>() else {
            return;
        };
        let kind = template_kind(&view.spec.target_kind);
        let (namespace, name) = (preference.namespace(), preference.name());
        let binding = names::binding_name(kind, name);
        let binding = self.bindings.get(namespace, &binding);
        let Some(Ok(binding)) = binding.map(|binding| binding.decode::<ResourceBinding>()) else {
            return;
        };
        self.enqueue_preferred(&binding.spec.resource);
    }

    fn enqueue_preferred(&self, resource: &ObjectReference) {
        let kinds = &self.templates.rest_mapper;
        if let Some(served) = kinds.find(&resource.api_version, &resource.kind) {
            let key = TemplateKey {
                gvr: served.gvr.clone(),
                name: namespaced_name(&resource.namespace, &resource.name),
            };
            let cause = TemplateReconcileTrigger {
                template_changed: false,
                by_karmada: false,
            };
            self.enqueue(key, cause, PriorityQueueLane::High);
        }
    }
}

//! Lets the informers of templates follow the type configurations: handlers hear of all objects of
//! a kind that is switched on or off.

use std::sync::Arc;

use client::InformerEvent;
use flotilla_runtime::RestMapping;
use machinery::Object;

use crate::template_informers::{KindInformer, TemplateInformers};

impl TemplateInformers {
    /// Handles the changes of type configurations in the worker that discovers kinds.
    pub(crate) fn reconsider_switched_kinds(self: &Arc<Self>) {
        let this = Arc::downgrade(self);
        self.type_configs.on_change(move |targets| {
            if let Some(this) = this.upgrade() {
                this.switched_kinds.lock().extend(targets.iter().cloned());
                this.discovery_queue.add(());
            }
        });
    }

    /// Tells the handlers of templates about all objects of the kinds whose configuration has
    /// changed.
    pub(crate) fn redeliver_switched_kinds(&self) {
        let switched = std::mem::take(&mut *self.switched_kinds.lock());
        let mut kinds: Vec<KindInformer> = self.kind_informers.lock().values().cloned().collect();
        kinds.retain(|kind| switched.iter().any(|target| target.is(&kind.mapping.gvk)));
        let handlers = self.handlers.lock().clone();
        for kind in kinds.iter().filter(|kind| kind.are_templates) {
            let propagates = self.type_configs.propagates(&kind.mapping.gvk);
            let allows = |object: &Object| self.namespace_filter.allows(object.namespace());
            for object in kind.informer.list_where(allows) {
                // The objects still exist, so this is neither a creation nor a deletion.
                let change = InformerEvent {
                    old: (!propagates).then_some(&object),
                    new: propagates.then_some(&object),
                    in_initial_list: true,
                };
                for registration in handlers.iter().filter(|handler| handler.templates_only) {
                    (registration.handler)(&kind.mapping, &change);
                }
            }
        }
    }

    /// Lets kinds that were only referred to hold templates. Their informers go on: others may
    /// share them.
    pub(crate) fn promote_to_templates<'a>(
        &self,
        desired: impl Iterator<Item = &'a (Arc<RestMapping>, bool)>,
    ) {
        let handlers = self.handlers.lock();
        for (mapping, _) in desired.filter(|(_, are_templates)| *are_templates) {
            let mut followed = self.kind_informers.lock();
            let kind = followed.get_mut(&mapping.gvr);
            let Some(kind) = kind.filter(|k| !k.are_templates && k.mapping == *mapping) else {
                continue;
            };
            kind.are_templates = true;
            let kind = kind.clone();
            drop(followed);
            for registration in handlers.iter().filter(|handler| handler.templates_only) {
                self.register_handler(&kind, registration.clone());
            }
        }
    }
}

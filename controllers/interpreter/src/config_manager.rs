//! Keeps the rules of customizations or webhooks current with an informer, and notifies listeners of
//! changes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use client::{Api, Informer, InformerEvent, InformerFactory, ListWatchSelector};
use machinery::{Gvk, Gvr, Object};
use parking_lot::Mutex;

use crate::operation::InterpreterOperation;
use crate::rule_change::InterpreterRuleChange;

/// Called on the task of the informer; it must not block.
pub(crate) type InterpreterRuleChangeListener =
    Arc<dyn Fn(&InterpreterRuleChange<'_>) + Send + Sync>;

/// The rules that all objects of a kind (customizations or webhook configurations) define
/// together.
pub(crate) trait BuildableInterpreterRuleIndex:
    Default + fmt::Debug + Send + Sync + 'static
{
    /// Builds the rules from the objects, in any order. Rules that are unchanged since `before` are
    /// reused.
    fn build<'a>(all: impl IntoIterator<Item = &'a Object>, before: &Self) -> Self;

    /// Whether the rule for an operation on a kind differs from the one `before`.
    fn differs(&self, before: &Self, kind: &Gvk, operation: InterpreterOperation) -> bool;

    /// The operations whose rules differ from those `before` for at least one kind.
    fn changed_operations(&self, before: &Self) -> Vec<InterpreterOperation>;
}

/// The current rules, and where they come from.
#[derive(Default)]
pub(crate) struct ConfigManager<R> {
    rules: ArcSwap<R>,
    /// By name. Locked while the rules are rebuilt.
    objects: Mutex<BTreeMap<String, Object>>,
    listeners: Mutex<Vec<InterpreterRuleChangeListener>>,
    /// Absent for a fixed set of objects.
    informer: Option<Informer>,
}

impl<R: fmt::Debug> fmt::Debug for ConfigManager<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self.rules.load(), f)
    }
}

impl<R: BuildableInterpreterRuleIndex> ConfigManager<R> {
    /// The rules of a fixed set of objects.
    pub(crate) fn from_objects(objects: &[Object]) -> Arc<Self> {
        Arc::new(Self {
            rules: ArcSwap::from_pointee(R::build(objects, &R::default())),
            ..Self::default()
        })
    }

    /// Watches all objects of a resource in a control plane.
    pub(crate) fn watch(informers: &InformerFactory, api: &Arc<dyn Api>, gvr: &Gvr) -> Arc<Self> {
        let informer = informers.get(api, &ListWatchSelector::all(gvr));
        let manager = Arc::new(Self {
            informer: Some(informer.clone()),
            ..Self::default()
        });
        let weak = Arc::downgrade(&manager);
        informer.add_event_handler(move |change| {
            if let Some(manager) = weak.upgrade() {
                manager.handle_change(change);
            }
        });
        manager
    }

    pub(crate) async fn wait_for_cache_sync(&self) {
        if let Some(informer) = &self.informer {
            informer.wait_for_cache_sync().await;
        }
    }

    pub(crate) fn add_listener(&self, listener: InterpreterRuleChangeListener) {
        self.listeners.lock().push(listener);
    }

    /// The current rules.
    pub(crate) fn rules(&self) -> Guard<Arc<R>> {
        self.rules.load()
    }

    fn handle_change(&self, change: &InformerEvent<'_>) {
        let mut objects = self.objects.lock();
        match change.new {
            Some(new) => objects.insert(change.key(), new.clone()),
            None => objects.remove(&change.key()),
        };
        let before = self.rules.load_full();
        let now = Arc::new(R::build(objects.values(), &before));
        self.rules.store(Arc::clone(&now));
        drop(objects);
        let operations = now.changed_operations(&before);
        if operations.is_empty() {
            return;
        }
        let changed = InterpreterRuleChange {
            operations: &operations,
            differs: &|kind, operation| now.differs(&before, kind, operation),
        };
        for listener in &*self.listeners.lock() {
            listener(&changed);
        }
    }
}

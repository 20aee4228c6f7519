//! Keeps the rules of customizations or webhooks current with an informer, and notifies listeners of
//! changes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use client::Api;
use machinery::{Gvk, Gvr, Object};
use parking_lot::Mutex;
use flotilla_runtime::{Change, Informer, Informers, Select};

use crate::changed::Changed;
use crate::operation::Operation;

/// Called on the task of the informer; it must not block.
pub(crate) type Listener = Arc<dyn Fn(&Changed<'_>) + Send + Sync>;

/// The rules that all objects of a kind (customizations or webhook configurations) define
/// together.
pub(crate) trait Rules: Default + fmt::Debug + Send + Sync + 'static {
    /// Builds the rules from the objects, in any order. Rules that are unchanged since `before` are
    /// reused.
    fn told<'a>(all: impl IntoIterator<Item = &'a Object>, before: &Self) -> Self;

    /// Whether the rule for an operation on a kind differs from the one `before`.
    fn differs(&self, before: &Self, kind: &Gvk, operation: Operation) -> bool;

    /// The operations whose rules differ from those `before` for at least one kind.
    fn touched(&self, before: &Self) -> Vec<Operation>;
}

/// The current rules, and where they come from.
#[derive(Default)]
pub(crate) struct Followed<R> {
    rules: ArcSwap<R>,
    /// By name. Locked while the rules are rebuilt.
    known: Mutex<BTreeMap<String, Object>>,
    listeners: Mutex<Vec<Listener>>,
    /// Absent for a fixed set of objects.
    informer: Option<Informer>,
}

impl<R: fmt::Debug> fmt::Debug for Followed<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self.rules.load(), f)
    }
}

impl<R: Rules> Followed<R> {
    /// The rules of a fixed set of objects.
    pub(crate) fn fixed(objects: &[Object]) -> Arc<Self> {
        Arc::new(Self {
            rules: ArcSwap::from_pointee(R::told(objects, &R::default())),
            ..Self::default()
        })
    }

    /// Watches all objects of a resource in a control plane.
    pub(crate) fn follow(informers: &Informers, api: &Arc<dyn Api>, gvr: &Gvr) -> Arc<Self> {
        let informer = informers.get(api, &Select::all(gvr));
        let it = Arc::new(Self {
            informer: Some(informer.clone()),
            ..Self::default()
        });
        let weak = Arc::downgrade(&it);
        informer.on_change(move |change| {
            if let Some(it) = weak.upgrade() {
                it.changed(change);
            }
        });
        it
    }

    pub(crate) async fn wait_synced(&self) {
        if let Some(informer) = &self.informer {
            informer.wait_synced().await;
        }
    }

    pub(crate) fn on_change(&self, listener: Listener) {
        self.listeners.lock().push(listener);
    }

    /// The current rules.
    pub(crate) fn rules(&self) -> Guard<Arc<R>> {
        self.rules.load()
    }

    fn changed(&self, change: &Change<'_>) {
        let mut objects = self.known.lock();
        match change.new {
            Some(new) => objects.insert(change.key(), new.clone()),
            None => objects.remove(&change.key()),
        };
        let before = self.rules.load_full();
        let now = Arc::new(R::told(objects.values(), &before));
        self.rules.store(Arc::clone(&now));
        drop(objects);
        let operations = now.touched(&before);
        if operations.is_empty() {
            return;
        }
        let changed = Changed {
            operations: &operations,
            differs: &|kind, operation| now.differs(&before, kind, operation),
        };
        for listener in &*self.listeners.lock() {
            listener(&changed);
        }
    }
}

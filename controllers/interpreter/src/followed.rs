//! Rules that objects of a control plane tell, as these come and go.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use client::Api;
use machinery::{Gvk, Gvr, Object};
use parking_lot::Mutex;
use runtime::{Change, Informer, Informers, Select};

use crate::changed::Changed;
use crate::operation::Operation;

/// Called on the task that hears of changes: it has to be quick.
pub(crate) type Listener = Arc<dyn Fn(&Changed<'_>) + Send + Sync>;

/// What objects of a kind tell together.
pub(crate) trait Rules: Default + fmt::Debug + Send + Sync + 'static {
    /// Of objects in any order. What did not change since `before` is kept.
    fn told<'a>(all: impl IntoIterator<Item = &'a Object>, before: &Self) -> Self;

    /// Whether an operation on a kind is answered otherwise than before.
    fn differs(&self, before: &Self, kind: &Gvk, operation: Operation) -> bool;

    /// The operations that are answered otherwise than before for some kind.
    fn touched(&self, before: &Self) -> Vec<Operation>;
}

#[derive(Default)]
pub(crate) struct Followed<R> {
    rules: ArcSwap<R>,
    /// By name; held while the rules are made anew.
    known: Mutex<BTreeMap<String, Object>>,
    listeners: Mutex<Vec<Listener>>,
    /// Where the objects are followed.
    informer: Option<Informer>,
}

impl<R: fmt::Debug> fmt::Debug for Followed<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self.rules.load(), f)
    }
}

impl<R: Rules> Followed<R> {
    /// Those that are given, for good.
    pub(crate) fn fixed(objects: &[Object]) -> Arc<Self> {
        Arc::new(Self {
            rules: ArcSwap::from_pointee(R::told(objects, &R::default())),
            ..Self::default()
        })
    }

    /// Those of a control plane.
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

    /// As they are now.
    pub(crate) fn rules(&self) -> Guard<Arc<R>> {
        self.rules.load()
    }

    fn changed(&self, change: &Change<'_>) {
        let mut known = self.known.lock();
        match change.new {
            Some(new) => known.insert(change.key(), new.clone()),
            None => known.remove(&change.key()),
        };
        let before = self.rules.load_full();
        let now = Arc::new(R::told(known.values(), &before));
        self.rules.store(Arc::clone(&now));
        drop(known);
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

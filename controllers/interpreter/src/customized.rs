//! The level of customizations: rules that are scripts, as they come and go.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use client::Api;
use machinery::{Gvk, Object};
use openapi::karmada::resources::CUSTOMIZATIONS;
use parking_lot::Mutex;
use runtime::{Change, Informer, Informers, Select};

use crate::customizations::{Rule, Table};
use crate::lua::{Arg, Engine, Limits};
use crate::native::Error;
use crate::operation::Operation;
use crate::returned::Returned;

type Listener = Box<dyn Fn(&Gvk, &[Operation]) + Send + Sync>;

#[derive(Default)]
pub(crate) struct Customized {
    engine: Engine,
    table: ArcSwap<Table>,
    /// By name; held while the table is made anew.
    known: Mutex<BTreeMap<String, Object>>,
    listeners: Mutex<Vec<Listener>>,
    /// Where customizations are followed.
    informer: Option<Informer>,
}

impl fmt::Debug for Customized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.table.load();
        f.debug_struct("Customized").field("table", &table).finish()
    }
}

impl Customized {
    /// Those that are given, for good.
    pub(crate) fn fixed(customizations: &[Object], limits: Limits) -> Self {
        let table = Table::new(customizations, &Table::default());
        Self {
            engine: Engine::new(limits),
            table: ArcSwap::from_pointee(table),
            ..Self::default()
        }
    }

    /// Those of a control plane.
    pub(crate) fn follow(informers: &Informers, api: &Arc<dyn Api>, limits: Limits) -> Arc<Self> {
        let informer = informers.get(api, &Select::all(&CUSTOMIZATIONS));
        let it = Arc::new(Self {
            engine: Engine::new(limits),
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

    fn changed(&self, change: &Change<'_>) {
        let mut known = self.known.lock();
        match change.new {
            Some(new) => known.insert(change.key(), new.clone()),
            None => known.remove(&change.key()),
        };
        let before = self.table.load_full();
        let table = Arc::new(Table::new(known.values(), &before));
        self.table.store(Arc::clone(&table));
        drop(known);
        for (kind, operations) in table.changes(&before) {
            for listener in &*self.listeners.lock() {
                listener(&kind, &operations);
            }
        }
    }

    pub(crate) fn answers(&self, kind: &Gvk, operation: Operation) -> bool {
        !self.table.load().find(kind, operation).is_empty()
    }

    /// What the scripts for an operation return, each; `None` where there is none.
    pub(crate) async fn ask(
        &self,
        operation: Operation,
        kind: &Gvk,
        args: impl FnOnce() -> Vec<Arg>,
    ) -> Option<Result<Vec<Returned>, Error>> {
        let table = self.table.load_full();
        let (last, others) = table.find(kind, operation).split_last()?;
        let args = args();
        let mut all = Vec::with_capacity(others.len() + 1);
        for rule in others {
            match self.call(rule, operation, args.clone()).await {
                Ok(returned) => all.push(returned),
                Err(error) => return Some(Err(error)),
            }
        }
        // Mostly the only one: nothing is copied for it.
        let returned = self.call(last, operation, args).await;
        Some(returned.map(|returned| {
            all.push(returned);
            all
        }))
    }

    async fn call(
        &self,
        rule: &Rule,
        operation: Operation,
        args: Vec<Arg>,
    ) -> Result<Returned, Error> {
        let values = self.engine.call(&rule.script, operation, args).await;
        Returned::new(rule, operation, values)
    }
}

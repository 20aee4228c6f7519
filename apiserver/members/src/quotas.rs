//! The ResourceQuotas of a member, reduced to what an estimate of replicas needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use ahash::AHashMap;
use client::{Api, Error, Sink, Tasks};
use machinery::{Gvr, Object, Quantity};
use parking_lot::Mutex;
use serde::Deserialize;

use crate::fold::{follow, view};

static QUOTAS: Gvr = Gvr::constant("", "v1", "resourcequotas");

/// A ResourceQuota: its scopes and its status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quota {
    /// Empty: the quota applies to all pods.
    pub scopes: Vec<Scope>,
    /// From the quota's status.
    pub hard: BTreeMap<String, Quantity>,
    pub used: BTreeMap<String, Quantity>,
}

/// `ScopedResourceSelectorRequirement` of the core API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Scope {
    #[serde(rename = "scopeName")]
    pub name: String,
    pub operator: String,
    pub values: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct QuotaView {
    spec: Spec,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    scopes: Option<Vec<String>>,
    scope_selector: Option<Selector>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Selector {
    match_expressions: Option<Vec<Scope>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    hard: Option<BTreeMap<String, Quantity>>,
    used: Option<BTreeMap<String, Quantity>>,
}

impl From<QuotaView> for Quota {
    fn from(view: QuotaView) -> Self {
        let named = view.spec.scopes.into_iter().flatten().map(|name| Scope {
            name,
            operator: "Exists".into(),
            values: Vec::new(),
        });
        let selector = view.spec.scope_selector.unwrap_or_default();
        let selected = selector.match_expressions.into_iter().flatten();
        Self {
            scopes: named.chain(selected).collect(),
            hard: view.status.hard.unwrap_or_default(),
            used: view.status.used.unwrap_or_default(),
        }
    }
}

#[derive(Default)]
struct State {
    /// Namespace → name → quota.
    quotas: AHashMap<Box<str>, BTreeMap<Box<str>, Arc<Quota>>>,
    listed: bool,
}

/// The ResourceQuotas of one member.
#[derive(Clone, Default)]
pub(crate) struct Quotas(Arc<Mutex<State>>);

impl Quotas {
    /// Starts to list and watch them.
    pub(crate) fn start(api: &Arc<dyn Api>, tasks: &Tasks) -> Self {
        let quotas = Self::default();
        let sink = Listed {
            quotas: quotas.clone(),
            seen: AHashMap::new(),
            epoch: 0,
        };
        follow(api, tasks, &QUOTAS, sink);
        quotas
    }

    /// The quotas of a namespace; `None` until the list is complete.
    pub(crate) fn of(&self, namespace: &str) -> Option<Vec<Arc<Quota>>> {
        let state = self.0.lock();
        let here = state.quotas.get(namespace).into_iter();
        let here = here.flat_map(BTreeMap::values).cloned().collect();
        state.listed.then_some(here)
    }
}

impl State {
    fn set(&mut self, namespace: &str, name: &str, quota: Option<Quota>) {
        let here = self.quotas.entry(namespace.into()).or_default();
        match quota {
            Some(quota) => drop(here.insert(name.into(), Arc::new(quota))),
            None => drop(here.remove(name)),
        }
        if here.is_empty() {
            self.quotas.remove(namespace);
        }
    }
}

struct Listed {
    quotas: Quotas,
    /// Namespace and name → number of the last list that contained it.
    seen: AHashMap<(Box<str>, Box<str>), u64>,
    epoch: u64,
}

impl Sink for Listed {
    fn restart(&mut self) {
        self.epoch += 1;
    }

    fn item(&mut self, object: Object) {
        self.changed(object);
    }

    fn listed(&mut self) {
        let mut state = self.quotas.0.lock();
        let epoch = self.epoch;
        self.seen.retain(|(namespace, name), seen| {
            let stays = *seen == epoch;
            if !stays {
                state.set(namespace, name, None);
            }
            stays
        });
        state.listed = true;
    }

    fn changed(&mut self, object: Object) {
        let quota: QuotaView = view(&object).unwrap_or_default();
        let (namespace, name) = (object.namespace(), object.name());
        let mut state = self.quotas.0.lock();
        state.set(namespace, name, Some(quota.into()));
        self.seen
            .insert((namespace.into(), name.into()), self.epoch);
    }

    fn deleted(&mut self, object: Object) {
        let (namespace, name) = (object.namespace(), object.name());
        self.seen.remove(&(namespace.into(), name.into()));
        self.quotas.0.lock().set(namespace, name, None);
    }

    fn health(&mut self, _error: Option<&Error>) {}
}

#[cfg(test)]
#[path = "resource_quotas_tests.rs"]
mod tests;

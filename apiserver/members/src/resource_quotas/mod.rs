//! The ResourceQuotas of a member, reduced to what an estimate of replicas needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use ahash::AHashMap;
use client::{Api, Error, ReflectorSink, TaskGroup};
use machinery::{Gvr, Object, Quantity};
use parking_lot::Mutex;
use serde::Deserialize;

use crate::aggregator::{decode_or_none, spawn_reflector};

static RESOURCE_QUOTAS: Gvr = Gvr::from_static("", "v1", "resourcequotas");

/// A ResourceQuota: its scopes and its status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemberResourceQuota {
    /// Empty: the quota applies to all pods.
    pub scopes: Vec<ScopedResourceSelectorRequirement>,
    /// From the quota's status.
    pub hard: BTreeMap<String, Quantity>,
    pub used: BTreeMap<String, Quantity>,
}

/// `ScopedResourceSelectorRequirement` of the core API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScopedResourceSelectorRequirement {
    #[serde(rename = "scopeName")]
    pub scope_name: String,
    pub operator: String,
    pub values: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResourceQuotaObject {
    spec: ResourceQuotaScopeFields,
    status: ResourceQuotaStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ResourceQuotaScopeFields {
    scopes: Option<Vec<String>>,
    scope_selector: Option<ScopeSelector>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ScopeSelector {
    match_expressions: Option<Vec<ScopedResourceSelectorRequirement>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResourceQuotaStatus {
    hard: Option<BTreeMap<String, Quantity>>,
    used: Option<BTreeMap<String, Quantity>>,
}

impl From<ResourceQuotaObject> for MemberResourceQuota {
    fn from(view: ResourceQuotaObject) -> Self {
        let spec_scopes =
            view.spec
                .scopes
                .into_iter()
                .flatten()
                .map(|name| ScopedResourceSelectorRequirement {
                    scope_name: name,
                    operator: "Exists".into(),
                    values: Vec::new(),
                });
        let selector = view.spec.scope_selector.unwrap_or_default();
        let selected = selector.match_expressions.into_iter().flatten();
        Self {
            scopes: spec_scopes.chain(selected).collect(),
            hard: view.status.hard.unwrap_or_default(),
            used: view.status.used.unwrap_or_default(),
        }
    }
}

#[derive(Default)]
struct ResourceQuotaCacheState {
    /// Namespace → name → quota.
    quotas: AHashMap<Box<str>, BTreeMap<Box<str>, Arc<MemberResourceQuota>>>,
    listed: bool,
}

/// The ResourceQuotas of one member.
#[derive(Clone, Default)]
pub(crate) struct ResourceQuotaCache(Arc<Mutex<ResourceQuotaCacheState>>);

impl ResourceQuotaCache {
    /// Starts to list and watch them.
    pub(crate) fn start(api: &Arc<dyn Api>, tasks: &TaskGroup) -> Self {
        let quotas = Self::default();
        let sink = ResourceQuotaSink {
            quotas: quotas.clone(),
            last_listed: AHashMap::new(),
            epoch: 0,
        };
        spawn_reflector(api, tasks, &RESOURCE_QUOTAS, sink);
        quotas
    }

    /// The quotas of a namespace; `None` until the list is complete.
    pub(crate) fn in_namespace(&self, namespace: &str) -> Option<Vec<Arc<MemberResourceQuota>>> {
        let state = self.0.lock();
        let quotas = state.quotas.get(namespace).into_iter();
        let quotas = quotas.flat_map(BTreeMap::values).cloned().collect();
        state.listed.then_some(quotas)
    }
}

impl ResourceQuotaCacheState {
    fn set(&mut self, namespace: &str, name: &str, quota: Option<MemberResourceQuota>) {
        let quotas = self.quotas.entry(namespace.into()).or_default();
        match quota {
            Some(quota) => drop(quotas.insert(name.into(), Arc::new(quota))),
            None => drop(quotas.remove(name)),
        }
        if quotas.is_empty() {
            self.quotas.remove(namespace);
        }
    }
}

struct ResourceQuotaSink {
    quotas: ResourceQuotaCache,
    /// Namespace and name → number of the last list that contained it.
    last_listed: AHashMap<(Box<str>, Box<str>), u64>,
    epoch: u64,
}

impl ReflectorSink for ResourceQuotaSink {
    fn begin_list(&mut self) {
        self.epoch += 1;
    }

    fn list_item(&mut self, object: Object) {
        self.upsert(object);
    }

    fn end_list(&mut self) {
        let mut state = self.quotas.0.lock();
        let epoch = self.epoch;
        self.last_listed.retain(|(namespace, name), listed_epoch| {
            let is_listed = *listed_epoch == epoch;
            if !is_listed {
                state.set(namespace, name, None);
            }
            is_listed
        });
        state.listed = true;
    }

    fn upsert(&mut self, object: Object) {
        let quota: ResourceQuotaObject = decode_or_none(&object).unwrap_or_default();
        let (namespace, name) = (object.namespace(), object.name());
        let mut state = self.quotas.0.lock();
        state.set(namespace, name, Some(quota.into()));
        self.last_listed
            .insert((namespace.into(), name.into()), self.epoch);
    }

    fn delete(&mut self, object: Object) {
        let (namespace, name) = (object.namespace(), object.name());
        self.last_listed.remove(&(namespace.into(), name.into()));
        self.quotas.0.lock().set(namespace, name, None);
    }

    fn report_health(&mut self, _error: Option<&Error>) {}
}

#[cfg(test)]
mod tests;

//! Calls the admission webhooks that are registered with the host, for the kinds that
//! this server serves: the host forwards requests before its own admission (contract
//! D4.6, F6).
//!
//! configurations ──► `configuration` ──► webhooks ──► [`matching`] ──► [`admission_review`] ──► `WebhookClient` ──► decisions, patches
//!
//! Invariants: mutating webhooks run one after the other, sorted by configuration name;
//! validating ones run concurrently. No webhook changes the identity of an object.
//! `matchConditions` are not evaluated: they only narrow, so a webhook that has them is
//! called more often than needed, never less.

mod config;
mod matching;
mod review;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use client::webhook::Caller;
use machinery::{FailureLog, Gvk, Gvr, Object, Status};
use parking_lot::RwLock;
use serde_json::Value;

use crate::attributes::Attributes;
use config::{Hook, SideEffects};
use review::Verdict;

/// Reads namespaces of another server.
#[async_trait]
pub trait Namespaces: Send + Sync {
    /// The namespace; `None` only when that server reports it missing now.
    async fn find(&self, name: &str) -> Result<Option<Object>, Status>;
}

/// Applies a JSON patch.
pub type Apply = fn(&Value, &Value) -> Result<Value, String>;

/// An object's kind in all served versions, the requested one first, and the
/// conversions between them and the stored form.
pub struct Versions<'a> {
    pub kinds: Vec<(Gvk, Gvr)>,
    pub show: &'a (dyn Fn(usize, &Value) -> Value + Send + Sync),
    pub take: &'a (dyn Fn(usize, Value) -> Value + Send + Sync),
}

#[derive(Default)]
struct Hooks {
    mutating: Vec<Arc<Hook>>,
    validating: Vec<Arc<Hook>>,
}

/// Calls the admission webhooks of a host.
pub struct Webhooks {
    hooks: RwLock<Hooks>,
    caller: Arc<dyn Caller>,
    namespaces: Arc<dyn Namespaces>,
    apply: Apply,
    /// Log state of the webhooks that fail and are ignored at present.
    failures: FailureLog,
}

/// The request that webhooks are called for.
struct Asked<'a> {
    at: &'a Attributes<'a>,
    versions: &'a Versions<'a>,
    old: Option<&'a Value>,
}

impl Webhooks {
    pub fn new(
        caller: Arc<dyn Caller>,
        namespaces: Arc<dyn Namespaces>,
        apply: Apply,
    ) -> Arc<Self> {
        Arc::new(Self {
            hooks: RwLock::default(),
            caller,
            namespaces,
            apply,
            failures: FailureLog::new(),
        })
    }

    /// Replaces the webhooks by those of all MutatingWebhookConfigurations.
    pub fn set_mutating(&self, configurations: &[Object]) {
        self.hooks.write().mutating = config::parse_all(configurations);
    }

    /// Replaces the webhooks by those of all ValidatingWebhookConfigurations.
    pub fn set_validating(&self, configurations: &[Object]) {
        self.hooks.write().validating = config::parse_all(configurations);
    }

    /// Whether any webhook has a rule for a resource, for any operation; does no I/O.
    pub fn concern(&self, resource: &Gvr, subresource: &str) -> bool {
        let hooks = self.hooks.read();
        let mut all = hooks.mutating.iter().chain(&hooks.validating);
        all.any(|hook| matching::names(hook, resource, subresource))
    }

    /// Calls the mutating webhooks for `new` (null in a deletion). Returns whether one
    /// changed it; collects warnings for the client.
    pub async fn mutate(
        &self,
        attributes: &Attributes<'_>,
        versions: &Versions<'_>,
        new: &mut Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<bool, Status> {
        let hooks = self.hooks.read().mutating.clone();
        let request = Asked {
            at: attributes,
            versions,
            old,
        };
        let mut changed_by = None;
        // Webhooks to reinvoke when a later one changes the object.
        let mut reinvocable = Vec::new();
        for (index, hook) in hooks.iter().enumerate() {
            let Some(version) = self.wants(hook, &request, new).await? else {
                continue;
            };
            if hook.reinvoke {
                reinvocable.push(index);
            }
            if self.change(hook, version, &request, new, warnings).await? {
                changed_by = Some(index);
            }
        }
        let Some(last) = changed_by else {
            return Ok(false);
        };
        for index in reinvocable.into_iter().filter(|index| *index < last) {
            let hook = &hooks[index];
            if let Some(version) = self.wants(hook, &request, new).await? {
                self.change(hook, version, &request, new, warnings).await?;
            }
        }
        Ok(true)
    }

    /// Calls the validating webhooks concurrently; returns the first denial in their
    /// order.
    pub async fn validate(
        &self,
        attributes: &Attributes<'_>,
        versions: &Versions<'_>,
        new: &Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let hooks = self.hooks.read().validating.clone();
        let request = Asked {
            at: attributes,
            versions,
            old,
        };
        let mut calls = Vec::new();
        for hook in &hooks {
            if let Some(version) = self.wants(hook, &request, new).await? {
                calls.push(self.ask(hook, version, &request, new));
            }
        }
        for answer in futures_util::future::join_all(calls).await {
            if let Some(verdict) = answer? {
                warnings.extend(verdict.warnings);
                verdict.outcome?;
            }
        }
        Ok(())
    }

    /// The index of the version to call a webhook with; `None` when it does not match.
    async fn wants(
        &self,
        hook: &Hook,
        request: &Asked<'_>,
        new: &Value,
    ) -> Result<Option<usize>, Status> {
        let attributes = request.at;
        let Some(version) = matching::version(hook, attributes, &request.versions.kinds) else {
            return Ok(None);
        };
        if !matching::object(hook, new, request.old) {
            return Ok(None);
        }
        if !attributes.namespace.is_empty() && !hook.namespaces.is_everything() {
            let found = self.namespaces.find(attributes.namespace).await?;
            let label = |key: &str| found.as_ref()?.head().label(key);
            if !hook.namespaces.matches(label) {
                return Ok(None);
            }
        }
        if attributes.dry_run && hook.side_effects != SideEffects::None {
            let text = format!("admission webhook {:?} does not support dry run", hook.name);
            return Err(Status::bad_request(text));
        }
        Ok(Some(version))
    }

    /// Calls a mutating webhook and applies its patch. Returns whether the object
    /// changed.
    async fn change(
        &self,
        hook: &Hook,
        version: usize,
        request: &Asked<'_>,
        new: &mut Value,
        warnings: &mut Vec<String>,
    ) -> Result<bool, Status> {
        let Some(verdict) = self.ask(hook, version, request, new).await? else {
            return Ok(false);
        };
        warnings.extend(verdict.warnings);
        verdict.outcome?;
        let Some(patch) = verdict.patch.filter(|_| !new.is_null()) else {
            return Ok(false);
        };
        let converted = (request.versions.show)(version, new);
        let patched = (self.apply)(&converted, &patch).and_then(|patched| {
            match review::same_identity(&converted, &patched) {
                true => Ok(patched),
                false => Err("the patch changes the identity of the object".into()),
            }
        });
        let patched = match patched {
            Ok(patched) => patched,
            Err(why) => return self.failed(hook, &why).map(|()| false),
        };
        let patched = (request.versions.take)(version, patched);
        let changed = patched != *new;
        *new = patched;
        Ok(changed)
    }

    /// Calls a webhook and returns its decision; `None` when it failed and failures are
    /// ignored.
    async fn ask(
        &self,
        hook: &Hook,
        version: usize,
        request: &Asked<'_>,
        new: &Value,
    ) -> Result<Option<Verdict>, Status> {
        let convert = |object: &Value| match object {
            Value::Null => Value::Null,
            object => (request.versions.show)(version, object),
        };
        let old = request.old.map_or(Value::Null, convert);
        let kinds = &request.versions.kinds;
        let (uid, body) =
            review::request(request.at, &kinds[version], &kinds[0], convert(new), old);
        let call = self.caller.call(&hook.place, body, hook.timeout);
        let answer = match tokio::time::timeout(hook.timeout, call).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no response within {} s", hook.timeout.as_secs())),
        };
        match answer.and_then(|body| review::verdict(&hook.name, &uid, &body)) {
            Ok(verdict) => {
                if self.failures.record_success(&hook.name) {
                    tracing::info!(webhook = %hook.name, "webhook call succeeds again");
                }
                Ok(Some(verdict))
            }
            Err(why) => self.failed(hook, &why).map(|()| None),
        }
    }

    /// Applies the failure policy of a webhook.
    fn failed(&self, hook: &Hook, why: &str) -> Result<(), Status> {
        if hook.ignore_failures {
            if self.failures.record_failure(&hook.name, why) {
                tracing::warn!(webhook = %hook.name, %why, "webhook call failed, ignoring it");
            }
            return Ok(());
        }
        let text = format!("failed calling webhook {:?}: {why}", hook.name);
        Err(Status::internal(text))
    }
}

//! Webhooks that the host registers, called for the kinds that we serve: the host
//! passes requests on to us before its own admission (contract D4.6, F6).
//!
//! configurations ──► [`config`] ──► hooks ──► [`matching`] ──► [`review`] ──► [`Caller`] ──► verdicts, patches
//!
//! Invariants: mutating hooks run one after the other, by the names of their
//! configurations; validating ones abreast. No hook changes what an object is
//! called. `matchConditions` are not evaluated: they only narrow, so that a hook
//! which has them is asked more often than it needs to be, never less.

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

/// Namespaces that another server keeps.
#[async_trait]
pub trait Namespaces: Send + Sync {
    /// The namespace; none only when that server says so now.
    async fn find(&self, name: &str) -> Result<Option<Object>, Status>;
}

/// Applies a JSON patch.
pub type Apply = fn(&Value, &Value) -> Result<Value, String>;

/// An object's kind in the versions that are served, the requested one first, and
/// how to go between them and the stored form.
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

/// The hooks of a host.
pub struct Webhooks {
    hooks: RwLock<Hooks>,
    caller: Arc<dyn Caller>,
    namespaces: Arc<dyn Namespaces>,
    apply: Apply,
    /// Hooks that are passed over at present.
    failures: FailureLog,
}

/// What is asked about.
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

    /// All MutatingWebhookConfigurations that there are now.
    pub fn set_mutating(&self, configurations: &[Object]) {
        self.hooks.write().mutating = config::parse_all(configurations);
    }

    /// All ValidatingWebhookConfigurations that there are now.
    pub fn set_validating(&self, configurations: &[Object]) {
        self.hooks.write().validating = config::parse_all(configurations);
    }

    /// Whether any hook looks at a resource, whatever is done to it; quick.
    pub fn concern(&self, resource: &Gvr, subresource: &str) -> bool {
        let hooks = self.hooks.read();
        let mut all = hooks.mutating.iter().chain(&hooks.validating);
        all.any(|hook| matching::names(hook, resource, subresource))
    }

    /// Lets mutating hooks change `new` (null: a deletion). True when one did; the
    /// strings are warnings for the client.
    pub async fn mutate(
        &self,
        at: &Attributes<'_>,
        versions: &Versions<'_>,
        new: &mut Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<bool, Status> {
        let hooks = self.hooks.read().mutating.clone();
        let asked = Asked { at, versions, old };
        let mut changed_by = None;
        // Who ran, and may want to again when somebody after it changed something.
        let mut earlier = Vec::new();
        for (turn, hook) in hooks.iter().enumerate() {
            let Some(version) = self.wants(hook, &asked, new).await? else {
                continue;
            };
            if hook.reinvoke {
                earlier.push(turn);
            }
            if self.change(hook, version, &asked, new, warnings).await? {
                changed_by = Some(turn);
            }
        }
        let Some(last) = changed_by else {
            return Ok(false);
        };
        for turn in earlier.into_iter().filter(|turn| *turn < last) {
            let hook = &hooks[turn];
            if let Some(version) = self.wants(hook, &asked, new).await? {
                self.change(hook, version, &asked, new, warnings).await?;
            }
        }
        Ok(true)
    }

    /// Asks validating hooks, all at once; the first refusal in their order counts.
    pub async fn validate(
        &self,
        at: &Attributes<'_>,
        versions: &Versions<'_>,
        new: &Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let hooks = self.hooks.read().validating.clone();
        let asked = Asked { at, versions, old };
        let mut calls = Vec::new();
        for hook in &hooks {
            if let Some(version) = self.wants(hook, &asked, new).await? {
                calls.push(self.ask(hook, version, &asked, new));
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

    /// In which of the versions a hook is to be asked, if at all.
    async fn wants(
        &self,
        hook: &Hook,
        asked: &Asked<'_>,
        new: &Value,
    ) -> Result<Option<usize>, Status> {
        let at = asked.at;
        let Some(version) = matching::version(hook, at, &asked.versions.kinds) else {
            return Ok(None);
        };
        if !matching::object(hook, new, asked.old) {
            return Ok(None);
        }
        if !at.namespace.is_empty() && !hook.namespaces.is_everything() {
            let found = self.namespaces.find(at.namespace).await?;
            let label = |key: &str| found.as_ref()?.head().label(key);
            if !hook.namespaces.matches(label) {
                return Ok(None);
            }
        }
        if at.dry_run && hook.side_effects != SideEffects::None {
            let text = format!("admission webhook {:?} does not support dry run", hook.name);
            return Err(Status::bad_request(text));
        }
        Ok(Some(version))
    }

    /// Asks a mutating hook and applies its patch. Whether anything changed.
    async fn change(
        &self,
        hook: &Hook,
        version: usize,
        asked: &Asked<'_>,
        new: &mut Value,
        warnings: &mut Vec<String>,
    ) -> Result<bool, Status> {
        let Some(verdict) = self.ask(hook, version, asked, new).await? else {
            return Ok(false);
        };
        warnings.extend(verdict.warnings);
        verdict.outcome?;
        let Some(patch) = verdict.patch.filter(|_| !new.is_null()) else {
            return Ok(false);
        };
        let shown = (asked.versions.show)(version, new);
        let patched =
            (self.apply)(&shown, &patch).and_then(|patched| {
                match review::same_identity(&shown, &patched) {
                    true => Ok(patched),
                    false => Err("the patch changes what the object is called".into()),
                }
            });
        let patched = match patched {
            Ok(patched) => patched,
            Err(why) => return self.failed(hook, &why).map(|()| false),
        };
        let patched = (asked.versions.take)(version, patched);
        let changed = patched != *new;
        *new = patched;
        Ok(changed)
    }

    /// The verdict of a hook; none when it failed and may.
    async fn ask(
        &self,
        hook: &Hook,
        version: usize,
        asked: &Asked<'_>,
        new: &Value,
    ) -> Result<Option<Verdict>, Status> {
        let shown = |object: &Value| match object {
            Value::Null => Value::Null,
            object => (asked.versions.show)(version, object),
        };
        let old = asked.old.map_or(Value::Null, shown);
        let kinds = &asked.versions.kinds;
        let (uid, body) = review::request(asked.at, &kinds[version], &kinds[0], shown(new), old);
        let call = self.caller.call(&hook.place, body, hook.timeout);
        let answer = match tokio::time::timeout(hook.timeout, call).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer within {} s", hook.timeout.as_secs())),
        };
        match answer.and_then(|body| review::verdict(&hook.name, &uid, &body)) {
            Ok(verdict) => {
                if self.failures.record_success(&hook.name) {
                    tracing::info!(webhook = %hook.name, "answers again");
                }
                Ok(Some(verdict))
            }
            Err(why) => self.failed(hook, &why).map(|()| None),
        }
    }

    /// What becomes of a request whose hook failed.
    fn failed(&self, hook: &Hook, why: &str) -> Result<(), Status> {
        if hook.ignore_failures {
            if self.failures.record_failure(&hook.name, why) {
                tracing::warn!(webhook = %hook.name, %why, "failed and is passed over");
            }
            return Ok(());
        }
        let text = format!("failed calling webhook {:?}: {why}", hook.name);
        Err(Status::internal(text))
    }
}

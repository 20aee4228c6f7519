//! Interprets resources by the webhooks of ResourceInterpreterWebhookConfigurations.
//!
//! configurations ──► [`configurations`] ──► webhook ──► [`concurrency`] ──► [`context`] ──[`WebhookClient`]──► server ──► [`context`] ──► decision
//!
//! Exactly one webhook is called per operation, and its error is returned. The call ends at the
//! webhook's timeout. It runs in a blocking section, so that the worker goes on with other keys
//! meanwhile. Errors are retryable: the caller has to retry.

mod configurations;
mod context;
mod gate;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use client::Api;
use client::webhook::Caller;
use machinery::Gvk;
use openapi::karmada::Dependency;
use openapi::karmada::binding::Component;
use openapi::karmada::resources::WEBHOOK_CONFIGURATIONS;
use flotilla_runtime::{Informers, aside};
use serde_json::Value;

use crate::followed::Followed;
use crate::native::{Error, Replicas};
use crate::operation::Operation;
use configurations::Hook;
pub(crate) use configurations::Hooks;
use context::Answer;
pub(crate) use context::Question;

/// Applies a JSON patch (second argument) to a document.
pub type Apply = fn(&Value, &Value) -> Result<Value, String>;

/// What [`WebhookInterpreter`] needs from the process that starts it.
#[derive(Clone)]
pub struct Outside {
    pub caller: Arc<dyn Caller>,
    pub apply: Apply,
}

/// The level of webhooks.
pub(crate) struct Webhooks {
    outside: Outside,
    pub(crate) followed: Arc<Followed<Hooks>>,
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.followed, f)
    }
}

/// The response of a webhook, with what is needed to apply it.
pub(crate) struct Said {
    hook: Arc<Hook>,
    response: Answer,
    /// The object of the request.
    object: Value,
    apply: Apply,
}

impl Webhooks {
    /// Watches the webhook configurations of a control plane.
    pub(crate) fn follow(informers: &Informers, api: &Arc<dyn Api>, outside: Outside) -> Self {
        Self {
            outside,
            followed: Followed::follow(informers, api, &WEBHOOK_CONFIGURATIONS),
        }
    }

    pub(crate) fn answers(&self, kind: &Gvk, operation: Operation) -> bool {
        self.followed.rules().find(kind, operation).is_some()
    }

    /// Calls the webhook for an operation; `None` when no webhook covers it.
    pub(crate) async fn ask<'a>(
        &self,
        operation: Operation,
        kind: &Gvk,
        attributes: impl FnOnce() -> Result<Question<'a>, Error>,
    ) -> Option<Result<Said, Error>> {
        let hook = self.followed.rules().find(kind, operation).cloned()?;
        let mut attributes = match attributes() {
            Ok(attributes) => attributes,
            Err(error) => return Some(Err(error)),
        };
        name(&mut attributes.object, kind);
        let response = self.call(&hook, operation, kind, &attributes).await;
        Some(match response {
            Ok(response) => Ok(Said {
                hook,
                response,
                object: attributes.object,
                apply: self.outside.apply,
            }),
            Err(why) => Err(failed(&hook, why)),
        })
    }

    async fn call(
        &self,
        hook: &Hook,
        operation: Operation,
        kind: &Gvk,
        attributes: &Question<'_>,
    ) -> Result<Answer, String> {
        let config = hook.place.as_ref();
        let config = config.map_err(|why| format!("could not get REST client: {why}"))?;
        let no_context =
            |why| format!("could not create ResourceInterpreterContext objects: {why}");
        if !hook.understands {
            let why =
                "webhook does not accept known ResourceInterpreterContext versions (v1alpha1)";
            return Err(no_context(why.to_owned()));
        }
        let uid = uuid::Uuid::new_v4().to_string();
        let body = attributes.body(&uid, kind, operation);
        let body = body.map_err(|e| no_context(e.to_string()))?;
        let call_failed = |why| format!("failed to call webhook: {why}");
        let in_flight = hook.gate.enter().await.map_err(call_failed)?;
        let call = self.outside.caller.call(config, body, hook.timeout);
        let ended = aside(tokio::time::timeout(hook.timeout, call)).await;
        in_flight.ended(ended.is_ok());
        let body = match ended {
            Ok(answered) => answered.map_err(call_failed)?,
            Err(_) => {
                let why = format!("no answer within {}s", hook.timeout.as_secs());
                return Err(call_failed(why));
            }
        };
        context::read(&uid, operation, &body)
    }
}

fn failed(hook: &Hook, why: String) -> Error {
    Error::Webhook {
        hook: hook.uid.clone(),
        why,
    }
}

/// Sets apiVersion and kind, which objects from a list lack.
fn name(object: &mut Value, kind: &Gvk) {
    if let Value::Object(fields) = object {
        let version = || kind.api_version().into();
        fields.entry("apiVersion").or_insert_with(version);
        fields.entry("kind").or_insert_with(|| (&*kind.kind).into());
    }
}

impl Said {
    fn told<T>(
        self,
        what: impl FnOnce(Answer, Value, Apply) -> Result<T, String>,
    ) -> Result<T, Error> {
        what(self.response, self.object, self.apply).map_err(|why| failed(&self.hook, why))
    }

    pub(crate) fn replicas(self) -> Result<Replicas, Error> {
        self.told(|response, _, _| response.replicas())
    }

    pub(crate) fn components(self) -> Result<Vec<Component>, Error> {
        self.told(|response, _, _| response.components())
    }

    pub(crate) fn dependencies(self) -> Vec<Dependency> {
        self.response.dependencies()
    }

    pub(crate) fn status(self) -> Option<Value> {
        self.response.status()
    }

    pub(crate) fn healthy(self) -> Option<bool> {
        self.response.healthy()
    }

    /// The object with the patch of the response applied.
    pub(crate) fn object(self) -> Result<Value, Error> {
        self.told(Answer::patched)
    }
}

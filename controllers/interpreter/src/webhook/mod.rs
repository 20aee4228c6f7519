//! Interprets resources by the webhooks of ResourceInterpreterWebhookConfigurations.
//!
//! configurations ──► [`configurations`] ──► webhook ──► [`concurrency`] ──► [`context`] ──[`WebhookClient`]──► server ──► [`context`] ──► decision
//!
//! Exactly one webhook is called per operation, and its error is returned. The call ends at the
//! webhook's timeout. It runs in a blocking section, so that the worker goes on with other keys
//! meanwhile. Errors are retryable: the caller has to retry.

mod concurrency;
mod configurations;
mod context;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use client::webhook::WebhookClient;
use client::{Api, InformerFactory};
use flotilla_runtime::blocking_section;
use karmada_api::DependentObjectReference;
use karmada_api::binding::Component;
use karmada_api::resources::WEBHOOK_CONFIGURATIONS;
use machinery::Gvk;
use serde_json::Value;

use crate::config_manager::ConfigManager;
use crate::native::{Error, TemplateReplicas};
use crate::operation::InterpreterOperation;
use configurations::InterpreterWebhook;
pub(crate) use configurations::SortedInterpreterWebhooks;
pub use context::ApplyJsonPatch;
pub(crate) use context::InterpreterRequestAttributes;
use context::ResourceInterpreterResponse;

/// The parts that a [`WebhookInterpreter`] needs from the process that starts it.
#[derive(Clone)]
pub struct WebhookInterpreterOptions {
    pub caller: Arc<dyn WebhookClient>,
    pub apply_json_patch: ApplyJsonPatch,
}

/// The level of webhooks.
pub(crate) struct WebhookInterpreter {
    deps: WebhookInterpreterOptions,
    pub(crate) config: Arc<ConfigManager<SortedInterpreterWebhooks>>,
}

impl fmt::Debug for WebhookInterpreter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.config, f)
    }
}

/// The response of a webhook, with what is needed to apply it.
pub(crate) struct InterpreterWebhookResult {
    webhook: Arc<InterpreterWebhook>,
    response: ResourceInterpreterResponse,
    /// The object of the request.
    object: Value,
    apply_json_patch: ApplyJsonPatch,
}

impl WebhookInterpreter {
    /// Watches the webhook configurations of a control plane.
    pub(crate) fn watch(
        informers: &InformerFactory,
        api: &Arc<dyn Api>,
        deps: WebhookInterpreterOptions,
    ) -> Self {
        Self {
            deps,
            config: ConfigManager::watch(informers, api, &WEBHOOK_CONFIGURATIONS),
        }
    }

    pub(crate) fn hook_enabled(&self, kind: &Gvk, operation: InterpreterOperation) -> bool {
        self.config.rules().find(kind, operation).is_some()
    }

    /// Calls the webhook for an operation; `None` when no webhook covers it.
    pub(crate) async fn interpret<'a>(
        &self,
        operation: InterpreterOperation,
        kind: &Gvk,
        attributes: impl FnOnce() -> Result<InterpreterRequestAttributes<'a>, Error>,
    ) -> Option<Result<InterpreterWebhookResult, Error>> {
        let hook = self.config.rules().find(kind, operation).cloned()?;
        let mut attributes = match attributes() {
            Ok(attributes) => attributes,
            Err(error) => return Some(Err(error)),
        };
        set_type_meta(&mut attributes.object, kind);
        let response = self.call(&hook, operation, kind, &attributes).await;
        Some(match response {
            Ok(response) => Ok(InterpreterWebhookResult {
                webhook: hook,
                response,
                object: attributes.object,
                apply_json_patch: self.deps.apply_json_patch,
            }),
            Err(reason) => Err(webhook_error(&hook, reason)),
        })
    }

    async fn call(
        &self,
        hook: &InterpreterWebhook,
        operation: InterpreterOperation,
        kind: &Gvk,
        attributes: &InterpreterRequestAttributes<'_>,
    ) -> Result<ResourceInterpreterResponse, String> {
        let config = hook.client_config.as_ref();
        let config = config.map_err(|reason| format!("could not get REST client: {reason}"))?;
        let no_context =
            |reason| format!("could not create ResourceInterpreterContext objects: {reason}");
        if !hook.supports_version {
            let reason =
                "webhook does not accept known ResourceInterpreterContext versions (v1alpha1)";
            return Err(no_context(reason.to_owned()));
        }
        let uid = uuid::Uuid::new_v4().to_string();
        let body = attributes.encode(&uid, kind, operation);
        let body = body.map_err(|e| no_context(e.to_string()))?;
        let call_failed = |reason| format!("failed to call webhook: {reason}");
        let in_flight = hook.concurrency.acquire().await.map_err(call_failed)?;
        let call = self.deps.caller.call(config, body, hook.timeout);
        let ended = blocking_section(tokio::time::timeout(hook.timeout, call)).await;
        in_flight.finish(ended.is_ok());
        let body = match ended {
            Ok(answered) => answered.map_err(call_failed)?,
            Err(_) => {
                let reason = format!("no answer within {}s", hook.timeout.as_secs());
                return Err(call_failed(reason));
            }
        };
        context::parse_response(&uid, operation, &body)
    }
}

fn webhook_error(hook: &InterpreterWebhook, reason: String) -> Error {
    Error::Webhook {
        hook: hook.uid.clone(),
        why: reason,
    }
}

/// Sets apiVersion and kind, which objects from a list lack.
fn set_type_meta(object: &mut Value, kind: &Gvk) {
    if let Value::Object(fields) = object {
        let version = || kind.api_version().into();
        fields.entry("apiVersion").or_insert_with(version);
        fields.entry("kind").or_insert_with(|| (&*kind.kind).into());
    }
}

impl InterpreterWebhookResult {
    fn map_response<T>(
        self,
        what: impl FnOnce(ResourceInterpreterResponse, Value, ApplyJsonPatch) -> Result<T, String>,
    ) -> Result<T, Error> {
        what(self.response, self.object, self.apply_json_patch)
            .map_err(|reason| webhook_error(&self.webhook, reason))
    }

    pub(crate) fn replicas(self) -> Result<TemplateReplicas, Error> {
        self.map_response(|response, _, _| response.replicas())
    }

    pub(crate) fn components(self) -> Result<Vec<Component>, Error> {
        self.map_response(|response, _, _| response.components())
    }

    pub(crate) fn dependencies(self) -> Vec<DependentObjectReference> {
        self.response.dependencies()
    }

    pub(crate) fn status(self) -> Option<Value> {
        self.response.status()
    }

    pub(crate) fn healthy(self) -> Option<bool> {
        self.response.healthy()
    }

    /// Which webhook this is.
    pub(crate) fn source(&self) -> String {
        format!("webhook {}", self.webhook.uid)
    }

    /// The object with the patch of the response applied.
    pub(crate) fn object(self) -> Result<Value, Error> {
        self.map_response(ResourceInterpreterResponse::apply_patch)
    }
}

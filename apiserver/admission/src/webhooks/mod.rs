//! Calls admission webhooks for the kinds that this server serves: the webhooks that are
//! registered here, or with the host, which forwards requests before its own admission
//! (contract D4.6, F6).
//!
//! configurations ──► `configuration` ──► webhooks ──► [`matching`] ──► [`admission_review`] ──► `WebhookClient` ──► decisions, patches
//!
//! Invariants: mutating webhooks run one after the other, sorted by configuration name;
//! validating ones run concurrently. No webhook changes the identity of an object, and
//! none is called for configurations of admission, which could not be repaired then.
//! Match conditions that fail are subject to the failure policy of their webhook.

mod admission_review;
mod audit;
mod configuration;
pub(crate) mod matching;
mod mutating_call;
mod mutation;
mod observation;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use client::webhook::WebhookClient;
use flotilla_tracing::InSpanExt;
use machinery::{FailureLogLimiter, Gvr, Object, Status};
use parking_lot::RwLock;
use serde_json::Value;

use crate::attributes::{ADMISSION_GROUP, AdmissionAttributes};
pub use crate::equivalent_versions::{EquivalentVersions, VersionConverter};
use crate::expressions::{
    ExpressionAuthorizer, MatchOutcome, RequestDecisions, VersionedRequest,
    evaluate_match_conditions,
};
pub use crate::namespace_lookup::NamespaceLookup;
use admission_review::WebhookDecision;
pub(crate) use admission_review::same_identity;
pub(crate) use configuration::AdmissionWebhookRule;
use configuration::{AdmissionWebhook, MATCH_CONDITION_EXPRESSIONS, SideEffectsOnDryRun};
use observation::AdmissionWebhookType;

/// Applies a JSON patch.
pub type JsonPatchFunction = fn(&Value, &Value) -> Result<Value, String>;

#[derive(Default)]
struct AdmissionWebhooks {
    mutating: Vec<Arc<AdmissionWebhook>>,
    validating: Vec<Arc<AdmissionWebhook>>,
}

/// Calls admission webhooks.
pub struct WebhookDispatcher {
    webhooks: RwLock<AdmissionWebhooks>,
    client: Arc<dyn WebhookClient>,
    namespaces: Arc<dyn NamespaceLookup>,
    apply_patch: JsonPatchFunction,
    authorizer: Arc<dyn ExpressionAuthorizer>,
    /// Log state of the webhooks that fail and are ignored at present.
    failures: FailureLogLimiter,
}

/// The request that webhooks are called for.
struct AdmissionRequest<'a> {
    attributes: &'a AdmissionAttributes<'a>,
    versions: &'a EquivalentVersions<'a>,
    old: Option<&'a Value>,
    /// For match conditions.
    decisions: RequestDecisions<'a>,
}

impl WebhookDispatcher {
    pub fn new(
        caller: Arc<dyn WebhookClient>,
        namespaces: Arc<dyn NamespaceLookup>,
        apply: JsonPatchFunction,
        authorizer: Arc<dyn ExpressionAuthorizer>,
    ) -> Arc<Self> {
        Arc::new(Self {
            webhooks: RwLock::default(),
            client: caller,
            namespaces,
            apply_patch: apply,
            authorizer,
            failures: FailureLogLimiter::new(),
        })
    }

    /// Replaces the webhooks by the webhooks of all MutatingWebhookConfigurations.
    pub fn set_mutating(&self, configurations: &[Object]) {
        self.webhooks.write().mutating = configuration::parse_all(configurations);
    }

    /// Replaces the webhooks by the webhooks of all ValidatingWebhookConfigurations.
    pub fn set_validating(&self, configurations: &[Object]) {
        self.webhooks.write().validating = configuration::parse_all(configurations);
    }

    /// Whether any webhook has a rule for a resource, for any operation; does no I/O.
    pub fn has_webhook_for(&self, resource: &Gvr, subresource: &str) -> bool {
        if resource.group == ADMISSION_GROUP {
            return false;
        }
        let hooks = self.webhooks.read();
        let mut all = hooks.mutating.iter().chain(&hooks.validating);
        all.any(|webhook| matching::has_rule_for(&webhook.rules, resource, subresource))
    }

    fn request<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        versions: &'a EquivalentVersions<'a>,
        old: Option<&'a Value>,
    ) -> AdmissionRequest<'a> {
        AdmissionRequest {
            attributes,
            versions,
            old,
            decisions: RequestDecisions::new(attributes.user, &*self.authorizer),
        }
    }

    /// Calls the validating webhooks concurrently; returns the first denial in their
    /// order.
    pub async fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        versions: &EquivalentVersions<'_>,
        new: &Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let hooks = self.webhooks.read().validating.clone();
        let request = self.request(attributes, versions, old);
        let (mut called_webhooks, mut calls) = (Vec::new(), Vec::new());
        for webhook in &hooks {
            if let Some(version) = self.matching_version(webhook, &request, new).await? {
                called_webhooks.push(&webhook.name);
                calls.push(self.call(
                    webhook,
                    version,
                    &request,
                    new,
                    AdmissionWebhookType::Validating,
                ));
            }
        }
        let mut denial = Ok(());
        let responses = futures_util::future::join_all(calls).await;
        for (index, (webhook, response)) in called_webhooks.into_iter().zip(responses).enumerate() {
            match response {
                Ok(Some(review)) => {
                    warnings.extend(review.warnings);
                    denial = denial.and(review.result);
                }
                Err(failure) => denial = denial.and(Err(failure)),
                Ok(None) => audit::annotate_ignored_validating_failure(attributes, webhook, index),
            }
        }
        denial
    }

    /// The index of the version to call a webhook with; `None` when it does not match.
    async fn matching_version(
        &self,
        webhook: &AdmissionWebhook,
        request: &AdmissionRequest<'_>,
        new: &Value,
    ) -> Result<Option<usize>, Status> {
        let attributes = request.attributes;
        let Some(version) =
            matching::matching_version(webhook, attributes, &request.versions.kinds)
        else {
            return Ok(None);
        };
        if !matching::matches_object(&webhook.object_selector, new, request.old) {
            return Ok(None);
        }
        let selector = &webhook.namespace_selector;
        if !matching::matches_namespace(selector, &*self.namespaces, attributes, new).await? {
            return Ok(None);
        }
        if !webhook.match_conditions.is_empty()
            && !matches_conditions(webhook, version, request, new).await?
        {
            return Ok(None);
        }
        if attributes.dry_run && webhook.side_effects != SideEffectsOnDryRun::None {
            let text = format!(
                "admission webhook {:?} does not support dry run",
                webhook.name
            );
            return Err(Status::bad_request(text));
        }
        Ok(Some(version))
    }

    /// Calls a webhook and returns its decision; `None` when it failed and failures are
    /// ignored.
    async fn call(
        &self,
        hook: &AdmissionWebhook,
        version: usize,
        request: &AdmissionRequest<'_>,
        new: &Value,
        webhook_type: AdmissionWebhookType,
    ) -> Result<Option<WebhookDecision>, Status> {
        let versions = request.versions;
        let old = versions.convert(version, request.old.unwrap_or(&Value::Null));
        let kinds = &request.versions.kinds;
        let (uid, body) = admission_review::build_request(
            hook.review_version,
            request.attributes,
            &kinds[version],
            &kinds[0],
            versions.convert(version, new).await?,
            old.await?,
        );
        let span = observation::start_span(hook, webhook_type, request.attributes, &uid);
        let start = Instant::now();
        let call = self.client.call(&hook.client_config, body, hook.timeout);
        let call = call.in_span(span.as_ref());
        let response = match tokio::time::timeout(hook.timeout, call).await {
            Ok(response) => response,
            Err(_) => Err(format!("no response within {} s", hook.timeout.as_secs())),
        };
        if let (Some(span), Err(message)) = (&span, &response) {
            span.record_error(message);
        }
        drop(span);
        let decision = match response {
            Ok(body) => admission_review::parse_response(hook, &uid, &body)
                .map_err(|message| format!("received invalid webhook response: {message}")),
            Err(message) => Err(format!("failed to call webhook: {message}")),
        };
        let duration = start.elapsed();
        observation::observe_call(hook, webhook_type, request.attributes, duration, &decision);
        match decision {
            Ok(mut review) => {
                if self.failures.record_success(&hook.name) {
                    tracing::info!(webhook = %hook.name, "webhook call succeeds again");
                }
                let returned = std::mem::take(&mut review.audit_annotations);
                audit::annotate_response(request.attributes, &hook.name, returned);
                Ok(Some(review))
            }
            Err(message) => self.apply_failure_policy(hook, &message).map(|()| None),
        }
    }

    /// Applies the failure policy of a webhook.
    fn apply_failure_policy(&self, hook: &AdmissionWebhook, message: &str) -> Result<(), Status> {
        if hook.ignore_failures {
            if self.failures.record_failure(&hook.name, message) {
                tracing::warn!(webhook = %hook.name, message = %message, "webhook call failed, ignoring it");
            }
            return Ok(());
        }
        let text = format!("failed calling webhook {:?}: {message}", hook.name);
        Err(Status::internal(text))
    }
}

/// Whether the match conditions hold. One that fails is an error, unless failures are ignored.
async fn matches_conditions(
    webhook: &AdmissionWebhook,
    version: usize,
    request: &AdmissionRequest<'_>,
    new: &Value,
) -> Result<bool, Status> {
    let (attributes, versions) = (request.attributes, request.versions);
    let requested = &versions.kinds[0].1;
    let objects = (new, request.old);
    let versioned =
        VersionedRequest::new(attributes, versions, version, requested, objects).await?;
    let outcome = request.decisions.evaluate(|decisions| {
        let inputs = versioned.inputs(&Value::Null, &Value::Null, decisions);
        let conditions = &webhook.match_conditions;
        let expressions = &MATCH_CONDITION_EXPRESSIONS;
        evaluate_match_conditions(expressions, conditions, webhook.ignore_failures, inputs)
    });
    match outcome.await {
        MatchOutcome::Matches => Ok(true),
        MatchOutcome::Excluded => Ok(false),
        MatchOutcome::Error(message) => {
            Err(Status::forbidden(attributes.gvr, attributes.name, message))
        }
    }
}

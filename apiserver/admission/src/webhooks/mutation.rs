//! Calls the mutating webhooks of a request one after the other. If the object changed after a
//! webhook ran and the webhook asks for reinvocation, it is called a second time
//! (`plugin/webhook/mutating/{dispatcher,reinvocationcontext}.go`).

use std::sync::Arc;

use machinery::Status;
use serde_json::Value;

use super::admission_review::same_identity;
use super::audit;
use super::configuration::AdmissionWebhook;
use super::mutating_call::MutatingCall;
use super::observation::AdmissionWebhookType;
use super::{AdmissionRequest, EquivalentVersions, WebhookDispatcher};
use crate::attributes::AdmissionAttributes;

/// The first calls of the mutating webhooks for a request.
pub(crate) struct WebhookMutations {
    webhooks: Vec<Arc<AdmissionWebhook>>,
    /// The indices of called webhooks that ask for reinvocation.
    reinvocable: Vec<usize>,
    /// Handlers with a lower index are called again: the object changed after them.
    reinvoked_below: usize,
    changed: bool,
}

impl WebhookMutations {
    /// Whether a webhook changed the object.
    pub(crate) fn changed(&self) -> bool {
        self.changed
    }

    /// The object changed after all webhooks.
    pub(crate) fn require_all(&mut self) {
        self.reinvoked_below = self.webhooks.len();
    }
}

impl WebhookDispatcher {
    /// Calls the mutating webhooks for `new` (null in a deletion). Collects warnings for the
    /// client.
    pub(crate) async fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        versions: &EquivalentVersions<'_>,
        new: &mut Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<WebhookMutations, Status> {
        let mut done = WebhookMutations {
            webhooks: self.webhooks.read().mutating.clone(),
            reinvocable: Vec::new(),
            reinvoked_below: 0,
            changed: false,
        };
        let request = self.request(attributes, versions, old);
        for (index, webhook) in done.webhooks.iter().enumerate() {
            let Some(version) = self.matching_version(webhook, &request, new).await? else {
                continue;
            };
            if webhook.reinvoke {
                done.reinvocable.push(index);
            }
            let call = MutatingCall {
                webhook,
                version,
                round: 0,
                index,
            };
            if self.call_mutating(&call, &request, new, warnings).await? {
                done.changed = true;
                done.reinvoked_below = index;
            }
        }
        Ok(done)
    }

    /// Calls again the webhooks after which the object changed.
    pub(crate) async fn reinvoke(
        &self,
        previous: &WebhookMutations,
        attributes: &AdmissionAttributes<'_>,
        versions: &EquivalentVersions<'_>,
        new: &mut Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let request = self.request(attributes, versions, old);
        let reinvocable = previous.reinvocable.iter().copied();
        for index in reinvocable.filter(|index| *index < previous.reinvoked_below) {
            let webhook = &*previous.webhooks[index];
            if let Some(version) = self.matching_version(webhook, &request, new).await? {
                let call = MutatingCall {
                    webhook,
                    version,
                    round: 1,
                    index,
                };
                self.call_mutating(&call, &request, new, warnings).await?;
            }
        }
        Ok(())
    }

    /// Calls a mutating webhook and applies its patch. Returns whether the object changed.
    async fn call_mutating(
        &self,
        call: &MutatingCall<'_>,
        request: &AdmissionRequest<'_>,
        new: &mut Value,
        warnings: &mut Vec<String>,
    ) -> Result<bool, Status> {
        let changed = self.call_and_patch(call, request, new, warnings).await;
        let mutated = matches!(changed, Ok(true));
        audit::annotate_mutation(request.attributes, call, mutated);
        changed
    }

    /// A patch that cannot be applied is an error whatever the failure policy.
    async fn call_and_patch(
        &self,
        call: &MutatingCall<'_>,
        request: &AdmissionRequest<'_>,
        new: &mut Value,
        warnings: &mut Vec<String>,
    ) -> Result<bool, Status> {
        let MutatingCall {
            webhook, version, ..
        } = *call;
        let called = self.call(
            webhook,
            version,
            request,
            new,
            AdmissionWebhookType::Mutating,
        );
        let Some(review) = called.await? else {
            audit::annotate_ignored_mutating_failure(request.attributes, call);
            return Ok(false);
        };
        warnings.extend(review.warnings);
        review.result?;
        let is_empty = |patch: &Value| patch.as_array().is_some_and(Vec::is_empty);
        let Some(patch) = review.patch.filter(|patch| !is_empty(patch)) else {
            return Ok(false);
        };
        if new.is_null() {
            return Err(Status::internal(format!(
                "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                webhook.name
            )));
        }
        let converted = request.versions.convert(version, new).await?;
        let patched =
            (self.apply_patch)(&converted, &patch).and_then(|patched| {
                match same_identity(&converted, &patched) {
                    true => Ok(patched),
                    false => Err("the patch changes the identity of the object".into()),
                }
            });
        let patched = patched.map_err(|message| {
            Status::internal(format!("admission webhook {:?}: {message}", webhook.name))
        })?;
        audit::annotate_patch(request.attributes, call, patch);
        let converter = request.versions.converter;
        let patched = converter.to_requested_version(version, patched).await?;
        let changed = patched != *new;
        *new = patched;
        Ok(changed)
    }
}

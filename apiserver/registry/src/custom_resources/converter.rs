//! Converts custom resources between the versions of their definition: by changing
//! `apiVersion`, or by the definition's conversion webhook (contract F5.9).
//!
//! Invariants: the order of the objects is kept, and each belongs to the same object as
//! before. The calls that run at the same time, their size and their time are bounded.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use client::webhook::{WebhookClient, WebhookClientConfig};
use futures_util::{StreamExt, TryStreamExt};
use machinery::{Gvk, Status};
use openapi::Schema;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::conversion_review::{
    ConversionReviewVersion, adopt_converted, decode_response, display_kind, encode_review,
};

/// How long one call may take, as in Kubernetes.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);
/// The most objects in one review, and the bytes after which no object is added to it.
const MAX_REVIEW_OBJECTS: usize = 200;
const MAX_REVIEW_BYTES: usize = 1 << 20;
/// The most calls for one definition that run at the same time.
const MAX_CONCURRENT_CALLS: usize = 8;

/// The client of conversion webhooks, which is set after the registry was created: it may
/// read Services from it.
pub(crate) type ConversionWebhookClient = Arc<OnceLock<Arc<dyn WebhookClient>>>;

/// Why objects could not be converted, as Kubernetes says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConversionError(pub(crate) String);

impl From<ConversionError> for Status {
    fn from(error: ConversionError) -> Self {
        Status::failure(500, "", error.0)
    }
}

impl From<ConversionError> for storage::Error {
    fn from(error: ConversionError) -> Self {
        Self::Conversion(error.0)
    }
}

enum ConversionStrategy {
    /// Only `apiVersion` changes.
    None,
    Webhook(ConversionWebhook),
    /// The definition cannot be used; with the reason.
    Invalid(String),
}

struct ConversionWebhook {
    client_config: WebhookClientConfig,
    review_version: ConversionReviewVersion,
    client: ConversionWebhookClient,
    permits: Semaphore,
}

/// Converts the custom resources of one definition.
pub(crate) struct CustomResourceConverter {
    /// The schemas of all versions, by `apiVersion`.
    schemas: HashMap<String, Schema>,
    strategy: ConversionStrategy,
}

impl CustomResourceConverter {
    /// `conversion` is `spec.conversion` of the definition.
    pub(super) fn new(
        schemas: HashMap<String, Schema>,
        conversion: &Value,
        client: &ConversionWebhookClient,
    ) -> Self {
        let strategy = match conversion["strategy"].as_str() {
            Some("Webhook") => webhook_strategy(&conversion["webhook"], client),
            _ => ConversionStrategy::None,
        };
        Self { schemas, strategy }
    }

    /// The schema of a version of the definition.
    pub(super) fn schema(&self, api_version: &str) -> Option<&Schema> {
        self.schemas.get(api_version)
    }

    /// Converts an object to another version of the definition if no webhook has to be called
    /// for that.
    pub(crate) fn convert_without_webhook(&self, object: &Value, target: &Gvk) -> Option<Value> {
        let desired = target.api_version();
        let schema = self.schemas.get(&desired)?;
        if !matches!(self.strategy, ConversionStrategy::None) {
            return None;
        }
        let mut converted = object.clone();
        converted["apiVersion"] = desired.into();
        schema.prune(&mut converted);
        Some(converted)
    }

    /// Converts objects to a version of the definition. Those that have it already stay as
    /// they are; of the others, what the schema of the version does not have is pruned.
    pub(crate) async fn convert(
        &self,
        mut objects: Vec<Value>,
        target: &Gvk,
    ) -> Result<Vec<Value>, ConversionError> {
        let desired = target.api_version();
        let Some(schema) = self.schemas.get(&desired) else {
            return Err(ConversionError(format!(
                "request to convert CR to an invalid group/version: {desired}"
            )));
        };
        let mut positions = Vec::new();
        let mut other_versions = Vec::new();
        for (i, object) in objects.iter_mut().enumerate() {
            let api_version = object["apiVersion"].as_str().unwrap_or("");
            if api_version == desired {
                continue;
            }
            if !self.schemas.contains_key(api_version) {
                return Err(ConversionError(format!(
                    "request to convert CR from an invalid group/version: {api_version}"
                )));
            }
            positions.push(i);
            other_versions.push(object.take());
        }
        if other_versions.is_empty() {
            return Ok(objects);
        }
        let converted = match &self.strategy {
            ConversionStrategy::None => {
                for object in &mut other_versions {
                    object["apiVersion"] = desired.as_str().into();
                }
                other_versions
            }
            ConversionStrategy::Webhook(webhook) => {
                webhook.convert(other_versions, &desired).await?
            }
            ConversionStrategy::Invalid(message) => return Err(ConversionError(message.clone())),
        };
        for (i, mut object) in positions.into_iter().zip(converted) {
            schema.prune(&mut object);
            objects[i] = object;
        }
        Ok(objects)
    }
}

fn webhook_strategy(webhook: &Value, client: &ConversionWebhookClient) -> ConversionStrategy {
    let client_config: WebhookClientConfig =
        match serde_json::from_value(webhook["clientConfig"].clone()) {
            Ok(config) => config,
            Err(message) => {
                return ConversionStrategy::Invalid(format!(
                    "invalid conversion webhook: {message}"
                ));
            }
        };
    let names = webhook["conversionReviewVersions"].as_array();
    let names = names.into_iter().flatten().filter_map(Value::as_str);
    let Some(review_version) = ConversionReviewVersion::first_supported(names) else {
        return ConversionStrategy::Invalid("no supported conversion review versions".into());
    };
    ConversionStrategy::Webhook(ConversionWebhook {
        client_config,
        review_version,
        client: Arc::clone(client),
        permits: Semaphore::new(MAX_CONCURRENT_CALLS),
    })
}

/// Objects that are converted in one call, and their encoded forms.
#[derive(Default)]
struct ReviewBatch {
    objects: Vec<Value>,
    encoded: Vec<Vec<u8>>,
    bytes: usize,
}

impl ReviewBatch {
    fn is_full(&self) -> bool {
        self.objects.len() >= MAX_REVIEW_OBJECTS || self.bytes >= MAX_REVIEW_BYTES
    }
}

impl ConversionWebhook {
    async fn convert(
        &self,
        objects: Vec<Value>,
        desired: &str,
    ) -> Result<Vec<Value>, ConversionError> {
        let mut batches: Vec<ReviewBatch> = Vec::new();
        for object in objects {
            if batches.last().is_none_or(ReviewBatch::is_full) {
                batches.push(ReviewBatch::default());
            }
            let encoded =
                serde_json::to_vec(&object).map_err(|e| ConversionError(e.to_string()))?;
            if let Some(batch) = batches.last_mut() {
                batch.bytes += encoded.len();
                batch.encoded.push(encoded);
                batch.objects.push(object);
            }
        }
        let calls = batches.into_iter().map(|batch| self.review(batch, desired));
        let converted: Vec<Vec<Value>> = futures_util::stream::iter(calls)
            .buffered(MAX_CONCURRENT_CALLS)
            .try_collect()
            .await?;
        Ok(converted.into_iter().flatten().collect())
    }

    async fn review(
        &self,
        batch: ReviewBatch,
        desired: &str,
    ) -> Result<Vec<Value>, ConversionError> {
        let kind = batch.objects.first().map_or_else(String::new, |object| {
            let text = |field: &str| object[field].as_str().unwrap_or("");
            display_kind(text("apiVersion"), text("kind"))
        });
        let failed = |message: String| {
            ConversionError(format!("conversion webhook for {kind} failed: {message}"))
        };
        let uid = uuid::Uuid::new_v4().to_string();
        let body = encode_review(self.review_version, &uid, desired, &batch.encoded);
        drop(batch.encoded);
        let response = self.call(body.into()).await.map_err(failed)?;
        let converted = decode_response(self.review_version, &uid, &response).map_err(failed)?;
        if converted.len() != batch.objects.len() {
            return Err(ConversionError(format!(
                "conversion webhook for {kind} returned {} objects, expected {}",
                converted.len(),
                batch.objects.len()
            )));
        }
        let pairs = batch.objects.into_iter().zip(converted).enumerate();
        pairs
            .map(|(i, (mut original, object))| {
                adopt_converted(i, &mut original, object, desired).map_err(|message| {
                    ConversionError(format!("conversion webhook for {kind} {message}"))
                })
            })
            .collect()
    }

    async fn call(&self, body: Bytes) -> Result<Bytes, String> {
        let client = self
            .client
            .get()
            .ok_or("this server does not call conversion webhooks")?;
        let call = async {
            let _permit = self.permits.acquire().await.map_err(|e| e.to_string())?;
            let response = client.call(&self.client_config, body, WEBHOOK_TIMEOUT);
            response.await
        };
        match tokio::time::timeout(WEBHOOK_TIMEOUT, call).await {
            Ok(response) => response,
            Err(_) => Err(format!(
                "no response within {} s",
                WEBHOOK_TIMEOUT.as_secs()
            )),
        }
    }
}

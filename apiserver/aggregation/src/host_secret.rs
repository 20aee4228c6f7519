//! A Secret of the host that all replicas share, and that any of them creates and renews.
//!
//! Writes carry the resourceVersion that was read, so that only one of several replicas
//! succeeds; the others then use what it has written.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{Api, ResourcePath, WriteOptions, ignore_not_found};
use machinery::{Gvr, Object};
use serde::Deserialize;
use serde_json::{Value, json};

use super::host_objects::{ApiServiceTarget, labels};
use super::host_requests::retry_until_answered;

pub(super) static SECRETS: Gvr = Gvr::from_static("", "v1", "secrets");
const MAX_ATTEMPTS: usize = 10;

/// The content of a Secret.
pub(super) trait SecretDataCodec: Sized {
    /// The type of the Secret.
    const TYPE: &'static str;

    /// Decodes the fields, each as `get` returns it: empty if it is absent or not text.
    fn decode(get: impl Fn(&str) -> String) -> Self;

    fn encode(&self) -> Vec<(&'static str, &str)>;
}

#[derive(Deserialize)]
struct SecretData {
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
}

/// The content of a Secret; `None` if its data are malformed.
pub(super) fn decode_secret<T: SecretDataCodec>(secret: &Object) -> Option<T> {
    let SecretData { data } = machinery::json::from_slice(&secret.bytes()).ok()?;
    let data = data.unwrap_or_default();
    Some(T::decode(|key| {
        let raw = data.get(key).and_then(|text| STANDARD.decode(text).ok());
        raw.and_then(|raw| String::from_utf8(raw).ok())
            .unwrap_or_default()
    }))
}

fn encode_data(content: &impl SecretDataCodec) -> Value {
    let fields = content.encode().into_iter();
    fields
        .map(|(key, text)| (key.to_owned(), Value::from(STANDARD.encode(text))))
        .collect()
}

/// A Secret by its name, in the namespace of the server's Service.
pub(super) struct HostSecretClient {
    pub(super) host: Arc<dyn Api>,
    pub(super) namespace: String,
    pub(super) name: String,
    /// A noun for its content, for messages.
    description: &'static str,
}

impl HostSecretClient {
    pub(super) fn new(
        host: &Arc<dyn Api>,
        service: &ApiServiceTarget,
        name: String,
        description: &'static str,
    ) -> Self {
        Self {
            host: Arc::clone(host),
            namespace: service.namespace.clone(),
            name,
            description,
        }
    }

    /// The content and the place of the Secret, for errors.
    pub(super) fn location(&self) -> String {
        format!(
            "{} in Secret {}/{} of the host",
            self.description, self.namespace, self.name
        )
    }

    /// Creates or updates the Secret until nothing is due, and returns its content. `next`
    /// computes the content that is due from the present one; `None` if none is due. Waits
    /// for the host.
    pub(super) async fn ensure_secret<T: SecretDataCodec>(
        &self,
        next: impl Fn(Option<&T>) -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        for _ in 0..MAX_ATTEMPTS {
            let at = ResourcePath::object(&SECRETS, &self.namespace, &self.name);
            let response = retry_until_answered(self.description, || self.host.get(at)).await;
            let existing = ignore_not_found(response)?;
            let stored = existing.as_ref().and_then(decode_secret);
            let Some(next) = next(stored.as_ref())? else {
                return stored.context("the Secret has no certificate and none is due");
            };
            if self.write(existing.as_ref(), &next).await? {
                return Ok(next);
            }
        }
        bail!("it was changed by others at every attempt")
    }

    /// Returns false when another replica has written the Secret.
    async fn write<T: SecretDataCodec>(
        &self,
        existing: Option<&Object>,
        next: &T,
    ) -> anyhow::Result<bool> {
        let options = WriteOptions::default();
        let written = match existing {
            None => {
                let body = json!({"apiVersion": "v1", "kind": "Secret", "type": T::TYPE,
                    "metadata": {"name": self.name, "namespace": self.namespace, "labels": labels()},
                    "data": encode_data(next)});
                let all = ResourcePath::collection(&SECRETS, &self.namespace);
                self.host.create(all, body.into(), &options).await
            }
            Some(existing) => {
                let mut body = existing.value()?;
                body["data"] = encode_data(next);
                let at = ResourcePath::object(&SECRETS, &self.namespace, &self.name);
                self.host.update(at, body.into(), &options).await
            }
        };
        match written {
            Ok(_) => Ok(true),
            Err(error)
                if error.is_conflict()
                    || error.is_already_exists()
                    || error.is_not_found() && existing.is_some() =>
            {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}

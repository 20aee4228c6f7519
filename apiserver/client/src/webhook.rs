//! The `WebhookClientConfig` of `admissionregistration.k8s.io/v1`: where a webhook is,
//! and the trait [`WebhookClient`] that calls it. The implementation with the network is
//! passed in.

use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;

/// A Service and its port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct ServiceReference {
    pub namespace: String,
    pub name: String,
    #[serde(default = "default_https_port")]
    pub port: u16,
}

fn default_https_port() -> u16 {
    443
}

/// The server of a webhook: a URL or a Service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WebhookEndpoint {
    /// `https://HOST:PORT`.
    Url(String),
    Service(ServiceReference),
}

/// How to connect to a webhook.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WebhookClientConfig {
    pub endpoint: WebhookEndpoint,
    /// Path and query, with the leading slash.
    pub path: String,
    /// CA bundle in PEM; empty: the system's roots.
    pub ca: Vec<u8>,
}

/// Sends a request body to a webhook and returns the response body. The error is a
/// message for users. A call takes at most `timeout`.
#[async_trait]
pub trait WebhookClient: Send + Sync {
    async fn call(
        &self,
        client_config: &WebhookClientConfig,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, String>;
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawWebhookClientConfig {
    url: Option<String>,
    service: Option<RawServiceReference>,
    ca_bundle: Option<String>,
}

#[derive(Deserialize)]
struct RawServiceReference {
    #[serde(flatten)]
    service: ServiceReference,
    path: Option<String>,
}

impl WebhookClientConfig {
    fn from_raw(written: RawWebhookClientConfig) -> Result<Self, String> {
        let ca = match written.ca_bundle.as_deref() {
            None => Vec::new(),
            Some(text) => STANDARD
                .decode(text)
                .map_err(|e| format!("caBundle: {e}"))?,
        };
        let (host, path) = match (written.url, written.service) {
            (Some(url), None) => {
                let rest = url.strip_prefix("https://").ok_or("url must use https")?;
                let end = rest.find(['/', '?']).unwrap_or(rest.len());
                let path = match &rest[end..] {
                    path if path.starts_with('/') => path.to_owned(),
                    query => format!("/{query}"),
                };
                (
                    WebhookEndpoint::Url(format!("https://{}", &rest[..end])),
                    path,
                )
            }
            (None, Some(RawServiceReference { service, path })) => {
                let path = path.unwrap_or_default();
                let path = format!("/{}", path.trim_start_matches('/'));
                (WebhookEndpoint::Service(service), path)
            }
            _ => return Err("exactly one of url or service is required".into()),
        };
        Ok(Self {
            endpoint: host,
            path,
            ca,
        })
    }
}

impl<'de> Deserialize<'de> for WebhookClientConfig {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::from_raw(RawWebhookClientConfig::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn client_configs_are_parsed() {
        let url = |server: &str| WebhookEndpoint::Url(server.to_owned());
        let service = |port| {
            WebhookEndpoint::Service(ServiceReference {
                namespace: "n".into(),
                name: "s".into(),
                port,
            })
        };
        let named = |more: Value| {
            let mut all = json!({"namespace": "n", "name": "s"});
            all.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            json!({"service": all, "caBundle": "eA=="})
        };
        for (config, host, path, ca) in [
            (
                json!({"url": "https://a.b:8443/x?y=1"}),
                url("https://a.b:8443"),
                "/x?y=1",
                "",
            ),
            (json!({"url": "https://a.b"}), url("https://a.b"), "/", ""),
            (
                json!({"url": "https://a.b?y=1"}),
                url("https://a.b"),
                "/?y=1",
                "",
            ),
            (named(json!({"path": "p/q"})), service(443), "/p/q", "x"),
            (named(json!({"port": 8443})), service(8443), "/", "x"),
        ] {
            let expected = WebhookClientConfig {
                endpoint: host,
                path: path.into(),
                ca: ca.into(),
            };
            let parsed: WebhookClientConfig = serde_json::from_value(config.clone()).unwrap();
            assert_eq!(parsed, expected, "{config}");
        }
        for bad in [
            json!({}),
            json!({"url": "http://a"}),
            json!({"url": "https://a", "service": {"namespace": "n", "name": "s"}}),
            json!({"url": "https://a", "caBundle": "?"}),
            json!({"service": {"namespace": "n"}}),
        ] {
            let parsed: Result<WebhookClientConfig, _> = serde_json::from_value(bad.clone());
            assert!(parsed.is_err(), "{bad}");
        }
    }
}

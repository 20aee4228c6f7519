//! Webhook configurations as values.
//!
//! Enters: ValidatingWebhookConfigurations and MutatingWebhookConfigurations.
//! Leaves: their hooks in the order of calls. A hook that cannot be read is left
//! out and told.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery::{LabelSelector, Object};
use serde::Deserialize;
use serde_json::Value;

const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const TIMEOUT: u64 = 10;
const LONGEST: u64 = 30;

/// A Service of the host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct ServiceRef {
    pub namespace: String,
    pub name: String,
    #[serde(default = "https")]
    pub port: u16,
}

fn https() -> u16 {
    443
}

/// How a hook is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    /// `https://HOST:PORT`; unset: by the Service.
    pub server: Option<String>,
    pub service: Option<ServiceRef>,
    /// Path and query, with its slash.
    pub path: String,
    /// PEM; empty: the system's roots.
    pub ca: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SideEffects {
    /// None, or none on a dry run.
    None,
    Some,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub(super) struct Rule {
    pub(super) operations: Vec<String>,
    pub(super) api_groups: Vec<String>,
    pub(super) api_versions: Vec<String>,
    pub(super) resources: Vec<String>,
    pub(super) scope: Option<String>,
}

#[derive(Debug)]
pub(super) struct Hook {
    pub(super) name: String,
    pub(super) client: Client,
    pub(super) rules: Vec<Rule>,
    pub(super) ignore_failures: bool,
    /// Rules of one version concern the others too.
    pub(super) equivalent: bool,
    pub(super) namespaces: LabelSelector,
    pub(super) objects: LabelSelector,
    pub(super) side_effects: SideEffects,
    pub(super) timeout: Duration,
    pub(super) reinvoke: bool,
}

#[derive(Deserialize)]
struct Configuration {
    #[serde(default)]
    webhooks: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    name: String,
    client_config: WrittenClient,
    #[serde(default)]
    rules: Vec<Rule>,
    failure_policy: Option<String>,
    match_policy: Option<String>,
    #[serde(default)]
    namespace_selector: Value,
    #[serde(default)]
    object_selector: Value,
    side_effects: Option<String>,
    timeout_seconds: Option<u64>,
    admission_review_versions: Option<Vec<String>>,
    reinvocation_policy: Option<String>,
    #[serde(default)]
    match_conditions: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenClient {
    url: Option<String>,
    service: Option<WrittenService>,
    ca_bundle: Option<String>,
}

#[derive(Deserialize)]
struct WrittenService {
    #[serde(flatten)]
    service: ServiceRef,
    path: Option<String>,
}

/// The hooks of all configurations, by the names of these and then in the order
/// they are written. Our own are not called: what they say is said here anyway.
pub(super) fn parse_all(configurations: &[Object]) -> Vec<Arc<Hook>> {
    let mut sorted: Vec<&Object> = configurations.iter().collect();
    sorted.retain(|c| c.head().label(MANAGED_BY) != Some("flotilla"));
    sorted.sort_by(|a, b| a.name().cmp(b.name()));
    let mut hooks = Vec::new();
    for configuration in sorted {
        let Ok(written) = serde_json::from_slice::<Configuration>(configuration.bytes()) else {
            tracing::warn!(name = configuration.name(), "webhooks cannot be read");
            continue;
        };
        for hook in written.webhooks {
            match parse(hook) {
                Ok(hook) => hooks.push(Arc::new(hook)),
                Err(why) => {
                    tracing::warn!(name = configuration.name(), %why, "a webhook cannot be called");
                }
            }
        }
    }
    hooks
}

fn parse(value: Value) -> Result<Hook, String> {
    let written: Written = serde_json::from_value(value).map_err(|e| e.to_string())?;
    let selector = |value: &Value| match value {
        Value::Null => Ok(LabelSelector::everything()),
        value => LabelSelector::from_value(value),
    };
    let versions = written.admission_review_versions.unwrap_or_default();
    if !versions.is_empty() && !versions.iter().any(|v| v == "v1") {
        return Err(format!("{} does not take AdmissionReview v1", written.name));
    }
    if !written.match_conditions.is_empty() {
        tracing::warn!(webhook = %written.name, "matchConditions are not evaluated, it is called for every match of its rules");
    }
    let is = |field: &Option<String>, value: &str| field.as_deref() == Some(value);
    let quiet = is(&written.side_effects, "None") || is(&written.side_effects, "NoneOnDryRun");
    let seconds = written.timeout_seconds.unwrap_or(TIMEOUT).clamp(1, LONGEST);
    Ok(Hook {
        client: client(written.client_config)?,
        name: written.name,
        rules: written.rules,
        ignore_failures: is(&written.failure_policy, "Ignore"),
        equivalent: !is(&written.match_policy, "Exact"),
        namespaces: selector(&written.namespace_selector)?,
        objects: selector(&written.object_selector)?,
        side_effects: if quiet {
            SideEffects::None
        } else {
            SideEffects::Some
        },
        timeout: Duration::from_secs(seconds),
        reinvoke: is(&written.reinvocation_policy, "IfNeeded"),
    })
}

fn client(written: WrittenClient) -> Result<Client, String> {
    let ca = match written.ca_bundle.as_deref() {
        None => Vec::new(),
        Some(text) => STANDARD
            .decode(text)
            .map_err(|e| format!("caBundle: {e}"))?,
    };
    match (written.url, written.service) {
        (Some(url), None) => {
            let rest = url.strip_prefix("https://").ok_or("its url is not https")?;
            let host = rest.find(['/', '?']).unwrap_or(rest.len());
            let path = match &rest[host..] {
                path if path.starts_with('/') => path.to_owned(),
                query => format!("/{query}"),
            };
            Ok(Client {
                server: Some(format!("https://{}", &rest[..host])),
                service: None,
                path,
                ca,
            })
        }
        (None, Some(WrittenService { service, path })) => {
            let path = path.unwrap_or_default();
            Ok(Client {
                server: None,
                service: Some(service),
                path: format!("/{}", path.trim_start_matches('/')),
                ca,
            })
        }
        _ => Err("it names not exactly one of url and service".into()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn where_a_hook_is() {
        let check = |config: Value, server: Option<&str>, path: &str| {
            let hook = parse(json!({"name": "h", "clientConfig": config})).unwrap();
            assert_eq!(hook.client.server.as_deref(), server);
            assert_eq!(hook.client.path, path);
            hook
        };
        check(
            json!({"url": "https://a.b:8443/x?y=1"}),
            Some("https://a.b:8443"),
            "/x?y=1",
        );
        check(json!({"url": "https://a.b"}), Some("https://a.b"), "/");
        let service = json!({"namespace": "n", "name": "s", "path": "p/q"});
        let hook = check(
            json!({"service": service, "caBundle": "eA=="}),
            None,
            "/p/q",
        );
        assert_eq!(hook.client.service.unwrap().port, 443);
        assert_eq!(hook.client.ca, b"x");
        assert!(!hook.ignore_failures && hook.equivalent && !hook.reinvoke);
        assert_eq!(hook.timeout, Duration::from_secs(10));
        for bad in [
            json!({}),
            json!({"url": "http://a"}),
            json!({"url": "https://a", "service": {"namespace": "n", "name": "s"}}),
            json!({"url": "https://a", "caBundle": "?"}),
        ] {
            assert!(
                parse(json!({"name": "h", "clientConfig": bad})).is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn the_order_is_that_of_names() {
        let configuration = |name: &str, labels: Value, hooks: &[&str]| {
            let hooks: Vec<Value> = hooks
                .iter()
                .map(|h| json!({"name": h, "clientConfig": {"url": "https://h"}}))
                .collect();
            let body = json!({"apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": name, "labels": labels}, "webhooks": hooks});
            Object::from_value(&body).unwrap()
        };
        let ours = json!({"app.kubernetes.io/managed-by": "flotilla"});
        let hooks = parse_all(&[
            configuration("b", json!({}), &["1"]),
            configuration("a", json!({}), &["3", "2"]),
            configuration("c", ours, &["4"]),
        ]);
        let names: Vec<&str> = hooks.iter().map(|h| h.name.as_str()).collect();
        assert_eq!(names, ["3", "2", "1"]);
    }
}

//! How a backend store is reached: the addresses of a ResourceRegistry, and the Secret with the
//! credentials that it references.
//!
//! The Secret has `username` and `password`, as for Karmada, and may have `ca.crt`, `tls.crt` and
//! `tls.key`, as Secrets of the type kubernetes.io/tls do.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::remote::{ClientCertificate, NetworkSendFence, Redacted, RestConfig};
use karmada_api::OpenSearchConfig;
use machinery::Object;
use serde::Deserialize;

/// The identity of a backend store. Registries with the same addresses and Secret share one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BackendStoreKey {
    pub(crate) addresses: Vec<String>,
    /// Namespace and name; `None`: without credentials.
    pub(crate) secret: Option<(String, String)>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SecretData {
    data: BTreeMap<String, String>,
}

impl BackendStoreKey {
    pub(crate) fn of(config: &OpenSearchConfig) -> Self {
        let secret = &config.secret_ref;
        let is_named = !secret.namespace.is_empty() && !secret.name.is_empty();
        Self {
            addresses: config.addresses.clone(),
            secret: is_named.then(|| (secret.namespace.clone(), secret.name.clone())),
        }
    }

    /// The name of the store in metrics: the first node.
    pub(crate) fn name(&self) -> String {
        let first = self.addresses.first().and_then(|a| RestConfig::new(a).ok());
        let authority = first.and_then(|first| first.server.authority().cloned());
        authority.map_or_else(String::new, |authority| authority.to_string())
    }

    /// The configurations of the clients of the nodes. The error is a message for users and
    /// quotes nothing of the Secret.
    pub(crate) fn nodes(
        &self,
        secret: Option<&Object>,
        fence: Option<&NetworkSendFence>,
    ) -> Result<Vec<RestConfig>, String> {
        if self.addresses.is_empty() {
            return Err("there is no address".to_owned());
        }
        let data = secret.map(secret_data).transpose()?.unwrap_or_default();
        let nodes = self.addresses.iter().map(|address| {
            let node = RestConfig::new(address).map_err(|_| "an address is invalid".to_owned())?;
            let node = with_credentials(node, &data)?;
            Ok(RestConfig {
                send_fence: fence.cloned(),
                ..node
            })
        });
        nodes.collect()
    }
}

/// The decoded values of a Secret.
fn secret_data(secret: &Object) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let decoded = secret.decode::<SecretData>();
    let data = decoded.map_err(|_| "the Secret is malformed".to_owned())?;
    let values = data.data.iter().map(|(key, value)| {
        let value = STANDARD.decode(value);
        let value = value.map_err(|_| format!("{key} of the Secret is not base64"))?;
        Ok((key.clone(), value))
    });
    values.collect()
}

fn with_credentials(
    mut node: RestConfig,
    data: &BTreeMap<String, Vec<u8>>,
) -> Result<RestConfig, String> {
    let bytes = |key: &str| data.get(key).filter(|value| !value.is_empty());
    let text = |key: &str| {
        let text = bytes(key).cloned().map(String::from_utf8).transpose();
        text.map_err(|_| format!("{key} of the Secret is not UTF-8"))
    };
    if let Some(username) = text("username")? {
        let password = text("password")?.unwrap_or_default();
        node.auth.basic = Some((username, Redacted(password)));
    }
    node.ca = bytes("ca.crt").cloned();
    node.auth.client_certificate = match (bytes("tls.crt"), bytes("tls.key")) {
        (Some(certificate), Some(key)) => Some(ClientCertificate {
            certificate: certificate.clone(),
            key: Redacted(key.clone()),
        }),
        (None, None) => None,
        _ => return Err("the Secret has only one of tls.crt and tls.key".to_owned()),
    };
    Ok(node)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn key(addresses: &[&str]) -> BackendStoreKey {
        BackendStoreKey {
            addresses: addresses.iter().map(|&a| a.to_owned()).collect(),
            secret: None,
        }
    }

    fn nodes(data: Value) -> Result<Vec<RestConfig>, String> {
        let secret = json!({"metadata": {"name": "s"}, "data": data});
        let secret = Object::from_value(&secret).unwrap();
        key(&["https://a:9200/base", "http://b"]).nodes(Some(&secret), None)
    }

    // proves: SRC-backend-credentials
    #[test]
    fn credentials_are_those_of_the_secret_and_are_not_shown() {
        let encode = |text: &str| Value::from(STANDARD.encode(text));
        let data = json!({"username": encode("ann"), "password": encode("hidden"),
            "ca.crt": encode("ca")});
        let nodes_of = nodes(data).unwrap();
        assert_eq!(nodes_of.len(), 2);
        let (user, password) = nodes_of[1].auth.basic.clone().unwrap();
        assert_eq!((&*user, &*password.0), ("ann", "hidden"));
        assert_eq!(nodes_of[0].ca.as_deref(), Some(&b"ca"[..]));
        assert!(!format!("{nodes_of:?}").contains("hidden"));
        assert!(nodes(json!({})).unwrap()[0].auth.basic.is_none());
        for (data, reason) in [
            (
                json!({"username": "%"}),
                "username of the Secret is not base64",
            ),
            (
                json!({"tls.crt": encode("hidden")}),
                "the Secret has only one of tls.crt and tls.key",
            ),
        ] {
            assert_eq!(nodes(data).unwrap_err(), reason);
        }
        assert_eq!(
            key(&[]).nodes(None, None).unwrap_err(),
            "there is no address"
        );
        let with_password = key(&["https://ann:hidden@a"]);
        assert_eq!(
            with_password.nodes(None, None).unwrap_err(),
            "an address is invalid"
        );
        assert_eq!(with_password.name(), "");
        assert_eq!(key(&["https://a:9200/base"]).name(), "a:9200");
    }
}

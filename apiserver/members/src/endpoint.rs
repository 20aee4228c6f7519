//! Where a member is and how to get in, out of its Cluster and Secret.
//!
//! Karmada: `pkg/util/membercluster_client.go` (secret keys `token`, `caBundle`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::remote::{Config, Secret};
use client::{Api, Remote, Tasks};
use machinery::Object;
use openapi::karmada::cluster::ClusterSpec;
use serde::Deserialize;

/// Everything that a connection depends on. When it changes, there is a new one.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub cluster: String,
    pub server: String,
    /// PEM; empty: the system's roots.
    pub ca: Vec<u8>,
    pub token: String,
    pub insecure: bool,
    /// Empty: none.
    pub proxy: String,
    pub proxy_headers: Vec<(String, String)>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({} at {})", self.cluster, self.server)
    }
}

#[derive(Deserialize)]
struct SecretView {
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
}

impl Endpoint {
    /// The endpoint of a cluster, or what is missing.
    pub(crate) fn new(name: &str, spec: &ClusterSpec, secret: &Object) -> Result<Self, String> {
        if spec.api_endpoint.is_empty() {
            return Err(format!("cluster {name:?} has no apiEndpoint"));
        }
        let view: SecretView = serde_json::from_slice(secret.bytes())
            .map_err(|_| format!("the secret of cluster {name:?} cannot be read"))?;
        let data = view.data.unwrap_or_default();
        let read = |key: &str| -> Result<Option<Vec<u8>>, String> {
            let Some(text) = data.get(key).filter(|t| !t.is_empty()) else {
                return Ok(None);
            };
            let bytes = STANDARD.decode(text);
            bytes
                .map(Some)
                .map_err(|_| format!("the secret of cluster {name:?}: {key:?} is not base64"))
        };
        let missing = |key: &str| {
            let at = secret.head().key();
            format!("the secret {at:?} of cluster {name:?} has no {key:?}")
        };
        let token = read("token")?.ok_or_else(|| missing("token"))?;
        let token = String::from_utf8(token)
            .map_err(|_| format!("the token of cluster {name:?} is not text"))?;
        let insecure = spec.insecure_skip_tls_verification;
        let ca = match insecure {
            true => Vec::new(),
            false => read("caBundle")?.ok_or_else(|| missing("caBundle"))?,
        };
        let headers = spec.proxy_header.iter().flat_map(|(header, values)| {
            values
                .split(',')
                .map(|v| (header.clone(), v.trim().to_owned()))
        });
        Ok(Self {
            cluster: name.to_owned(),
            server: spec.api_endpoint.clone(),
            ca,
            token: token.trim().to_owned(),
            insecure,
            proxy: spec.proxy_url.clone(),
            proxy_headers: headers.collect(),
        })
    }
}

/// Makes clients. Connections belong to the tasks given.
pub trait Connector: Send + Sync + 'static {
    /// A client of an endpoint, or what cannot be used. Nothing needs to be dialled.
    fn connect(&self, to: &Endpoint, tasks: &Tasks) -> Result<Arc<dyn Api>, String>;
}

impl<F> Connector for F
where
    F: Fn(&Endpoint, &Tasks) -> Result<Arc<dyn Api>, String> + Send + Sync + 'static,
{
    fn connect(&self, to: &Endpoint, tasks: &Tasks) -> Result<Arc<dyn Api>, String> {
        self(to, tasks)
    }
}

/// HTTPS.
#[derive(Clone, Copy, Debug, Default)]
pub struct RemoteConnector;

impl Connector for RemoteConnector {
    fn connect(&self, to: &Endpoint, tasks: &Tasks) -> Result<Arc<dyn Api>, String> {
        let told = |e: &dyn fmt::Display| format!("cluster {:?}: {e}", to.cluster);
        let mut config = Config::new(&to.server).map_err(|e| told(&e))?;
        config.insecure = to.insecure;
        config.ca = Some(to.ca.clone()).filter(|ca| !ca.is_empty());
        config.auth.token = Some(Secret(to.token.clone()));
        if !to.proxy.is_empty() {
            config.set_proxy(&to.proxy).map_err(|e| told(&e))?;
            config.proxy_headers.clone_from(&to.proxy_headers);
        }
        let remote = Remote::new(config, tasks).map_err(|e| told(&e))?;
        Ok(Arc::new(remote))
    }
}

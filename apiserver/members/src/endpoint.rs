//! The endpoint and credentials of a member, from its Cluster and Secret.
//!
//! Karmada: `pkg/util/membercluster_client.go` (secret keys `token`, `caBundle`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::remote::{Config, Gate, Secret};
use client::{Api, Remote, Tasks};
use machinery::Object;
use openapi::karmada::cluster::ClusterSpec;
use serde::Deserialize;

/// Everything that a connection to a member depends on. A change means a new connection.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub cluster: String,
    pub server: String,
    /// CA bundle in PEM; empty: the system's roots.
    pub ca: Vec<u8>,
    pub token: String,
    pub insecure: bool,
    /// Empty: no proxy.
    pub proxy: String,
    pub proxy_headers: Vec<(String, String)>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({} at {})", self.cluster, self.server)
    }
}

const TOKEN: &str = "token";
const CA: &str = "caBundle";

#[derive(Deserialize)]
struct SecretView {
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
}

impl Endpoint {
    /// The endpoint of a cluster, or an error that names what is missing.
    pub(crate) fn new(name: &str, spec: &ClusterSpec, secret: &Object) -> Result<Self, String> {
        let ca = match spec.insecure_skip_tls_verification {
            true => Vec::new(),
            false => read(name, secret, CA)?,
        };
        Self::with(name, spec, ca, secret)
    }

    /// The endpoint for the requests of users, with the impersonator's token. Without
    /// `access` (a cluster in pull mode may have no such secret) the system's roots are
    /// trusted.
    pub(crate) fn for_users(
        name: &str,
        spec: &ClusterSpec,
        access: Option<&Object>,
        impersonator: &Object,
    ) -> Result<Self, String> {
        let ca = match access {
            Some(secret) if !spec.insecure_skip_tls_verification => read(name, secret, CA)?,
            _ => Vec::new(),
        };
        Self::with(name, spec, ca, impersonator)
    }

    fn with(name: &str, spec: &ClusterSpec, ca: Vec<u8>, secret: &Object) -> Result<Self, String> {
        if spec.api_endpoint.is_empty() {
            return Err(format!("cluster {name:?} has no apiEndpoint"));
        }
        let token = String::from_utf8(read(name, secret, TOKEN)?)
            .map_err(|_| format!("the token of cluster {name:?} is not text"))?;
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
            insecure: spec.insecure_skip_tls_verification,
            proxy: spec.proxy_url.clone(),
            proxy_headers: headers.collect(),
        })
    }

    /// The client configuration, or an error that names what is unusable.
    pub(crate) fn config(&self) -> Result<Config, String> {
        let fail = |e: &dyn fmt::Display| format!("cluster {:?}: {e}", self.cluster);
        let mut config = Config::new(&self.server).map_err(|e| fail(&e))?;
        config.insecure = self.insecure;
        config.ca = Some(self.ca.clone()).filter(|ca| !ca.is_empty());
        config.auth.token = Some(Secret(self.token.clone()));
        if !self.proxy.is_empty() {
            config.set_proxy(&self.proxy).map_err(|e| fail(&e))?;
            config.proxy_headers.clone_from(&self.proxy_headers);
        }
        Ok(config)
    }
}

/// The value of a key in a cluster's secret.
fn read(cluster: &str, secret: &Object, key: &str) -> Result<Vec<u8>, String> {
    let view: SecretView = serde_json::from_slice(secret.bytes())
        .map_err(|_| format!("the secret of cluster {cluster:?} cannot be read"))?;
    let data = view.data.unwrap_or_default();
    let Some(text) = data.get(key).filter(|t| !t.is_empty()) else {
        let at = secret.head().key();
        return Err(format!(
            "the secret {at:?} of cluster {cluster:?} has no {key:?}"
        ));
    };
    let bytes = STANDARD.decode(text);
    bytes.map_err(|_| format!("the secret of cluster {cluster:?}: {key:?} is not base64"))
}

/// Creates clients of members. `tasks` owns their connections.
pub trait Connector: Send + Sync + 'static {
    /// A client of an endpoint, or an error that names what is unusable. It need not dial
    /// yet.
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

/// Connects with HTTPS.
#[derive(Clone, Debug, Default)]
pub struct RemoteConnector {
    /// Nothing is sent to members while the fence is closed.
    pub gate: Option<Gate>,
}

impl Connector for RemoteConnector {
    fn connect(&self, to: &Endpoint, tasks: &Tasks) -> Result<Arc<dyn Api>, String> {
        let mut config = to.config()?;
        config.gate.clone_from(&self.gate);
        let remote =
            Remote::new(config, tasks).map_err(|e| format!("cluster {:?}: {e}", to.cluster))?;
        Ok(Arc::new(remote))
    }
}

//! The endpoint and credentials of a member, from its Cluster and Secret.
//!
//! Karmada: `pkg/util/membercluster_client.go` (secret keys `token`, `caBundle`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use client::remote::{NetworkSendFence, Redacted, RestConfig, TlsVerificationExceptions};
use client::{Api, RemoteApi, TaskGroup};
use karmada_api::Cluster;
use karmada_api::tls_validations::DisabledTlsValidations;
use machinery::Object;
use machinery::user::split_service_account_username;
use serde::Deserialize;

/// Everything that a connection to a member depends on. A change means a new connection.
#[derive(Clone, PartialEq, Eq)]
pub struct MemberEndpoint {
    pub cluster: String,
    /// The uid of the Cluster, for a member behind a tunnel, which nothing else tells from the next
    /// one of its name.
    pub uid: String,
    pub server: String,
    /// CA bundle in PEM; empty: the system's roots.
    pub ca: Vec<u8>,
    pub token: String,
    pub insecure_skip_tls_verification: bool,
    pub disabled_tls_validations: DisabledTlsValidations,
    /// Empty: no proxy.
    pub proxy: String,
    pub proxy_headers: Vec<(String, String)>,
}

impl fmt::Debug for MemberEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemberEndpoint({} at {})", self.cluster, self.server)
    }
}

/// The claim of a service account's token that names the account.
#[derive(Deserialize)]
struct TokenSubject {
    sub: String,
}

const IMPERSONATOR_ACCOUNT: &str = "karmada-impersonator";
const TOKEN_KEY: &str = "token";
const CA_BUNDLE_KEY: &str = "caBundle";

#[derive(Deserialize)]
struct PartialSecretData {
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
}

impl MemberEndpoint {
    /// The endpoint of a cluster, or an error that names what is missing.
    pub(crate) fn new(name: &str, cluster: &Cluster, secret: &Object) -> Result<Self, String> {
        let ca = match cluster.spec.insecure_skip_tls_verification {
            true => Vec::new(),
            false => read_secret_key(name, secret, CA_BUNDLE_KEY)?,
        };
        Self::from_parts(name, cluster, ca, secret)
    }

    /// The endpoint of the cluster beside an agent, whose connector knows how to reach it.
    pub(crate) fn beside_agent(name: &str) -> Self {
        Self {
            cluster: name.to_owned(),
            uid: String::new(),
            server: String::new(),
            ca: Vec::new(),
            token: String::new(),
            insecure_skip_tls_verification: false,
            disabled_tls_validations: DisabledTlsValidations::default(),
            proxy: String::new(),
            proxy_headers: Vec::new(),
        }
    }

    /// The endpoint of a member behind the tunnel of its agent.
    pub(crate) fn through_tunnel(cluster: &Object) -> Self {
        Self {
            uid: cluster.uid().to_owned(),
            ..Self::beside_agent(cluster.name())
        }
    }

    /// Whether an agent, or a connector beside one, reaches the member.
    pub(crate) fn is_beside_agent(&self) -> bool {
        self.server.is_empty()
    }

    /// Whether the token is of the service account `karmada-impersonator`, to which the control
    /// plane binds the role with the users and groups of the cluster proxy. The member verifies
    /// the token; here only its subject counts.
    pub(crate) fn has_managed_impersonator(&self) -> bool {
        let payload = self.token.split('.').nth(1);
        let payload = payload.and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
        let claims =
            payload.and_then(|json| machinery::json::from_slice::<TokenSubject>(&json).ok());
        claims.is_some_and(|claims| {
            split_service_account_username(&claims.sub)
                .is_some_and(|(_, name)| name == IMPERSONATOR_ACCOUNT)
        })
    }

    /// The endpoint for the requests of users, with the impersonator's token. Without
    /// `access` (a cluster in pull mode may have no such secret) the system's roots are
    /// trusted.
    pub(crate) fn for_impersonation(
        name: &str,
        cluster: &Cluster,
        access: Option<&Object>,
        impersonator: &Object,
    ) -> Result<Self, String> {
        let ca = match access {
            Some(secret) if !cluster.spec.insecure_skip_tls_verification => {
                read_secret_key(name, secret, CA_BUNDLE_KEY)?
            }
            _ => Vec::new(),
        };
        Self::from_parts(name, cluster, ca, impersonator)
    }

    fn from_parts(
        name: &str,
        cluster: &Cluster,
        ca: Vec<u8>,
        secret: &Object,
    ) -> Result<Self, String> {
        let spec = &cluster.spec;
        let annotations = &cluster.metadata.annotations;
        if spec.api_endpoint.is_empty() {
            return Err(format!("cluster {name:?} has no apiEndpoint"));
        }
        let token = String::from_utf8(read_secret_key(name, secret, TOKEN_KEY)?)
            .map_err(|_| format!("the token of cluster {name:?} is not text"))?;
        let headers = spec.proxy_header.iter().flat_map(|(header, values)| {
            values
                .split(',')
                .map(|v| (header.clone(), v.trim().to_owned()))
        });
        Ok(Self {
            cluster: name.to_owned(),
            uid: String::new(),
            server: spec.api_endpoint.clone(),
            ca,
            token: token.trim().to_owned(),
            insecure_skip_tls_verification: spec.insecure_skip_tls_verification,
            disabled_tls_validations: DisabledTlsValidations::of_annotations(annotations),
            proxy: spec.proxy_url.clone(),
            proxy_headers: headers.collect(),
        })
    }

    /// The client configuration, or an error that names what is unusable.
    pub(crate) fn client_config(&self) -> Result<RestConfig, String> {
        let fail = |e: &dyn fmt::Display| format!("cluster {:?}: {e}", self.cluster);
        let mut config = RestConfig::new(&self.server).map_err(|e| fail(&e))?;
        config.insecure_skip_tls_verify = self.insecure_skip_tls_verification;
        config.tls_exceptions = TlsVerificationExceptions {
            subject_name: self.disabled_tls_validations.subject_name,
            validity_period: self.disabled_tls_validations.validity_period,
        };
        config.ca = Some(self.ca.clone()).filter(|ca| !ca.is_empty());
        config.auth.token = Some(Redacted(self.token.clone()));
        if !self.proxy.is_empty() {
            config.set_proxy(&self.proxy).map_err(|e| fail(&e))?;
            config.proxy_headers.clone_from(&self.proxy_headers);
        }
        Ok(config)
    }
}

/// The value of a key in a cluster's secret.
fn read_secret_key(cluster: &str, secret: &Object, key: &str) -> Result<Vec<u8>, String> {
    let view: PartialSecretData = machinery::json::from_slice(&secret.bytes())
        .map_err(|_| format!("the secret of cluster {cluster:?} cannot be read"))?;
    let data = view.data.unwrap_or_default();
    let Some(text) = data.get(key).filter(|t| !t.is_empty()) else {
        let secret_key = secret.meta().key();
        return Err(format!(
            "the secret {secret_key:?} of cluster {cluster:?} has no {key:?}"
        ));
    };
    let bytes = STANDARD.decode(text);
    bytes.map_err(|_| format!("the secret of cluster {cluster:?}: {key:?} is not base64"))
}

/// Creates clients of members. `tasks` owns their connections.
pub trait MemberConnector: Send + Sync + 'static {
    /// A client of an endpoint, or an error that names what is unusable. It need not dial
    /// yet.
    fn connect(&self, endpoint: &MemberEndpoint, tasks: &TaskGroup)
    -> Result<Arc<dyn Api>, String>;

    /// Whether it connects to members in pull mode, by the tunnels of their agents.
    fn reaches_pull_members(&self) -> bool {
        false
    }
}

impl<F> MemberConnector for F
where
    F: Fn(&MemberEndpoint, &TaskGroup) -> Result<Arc<dyn Api>, String> + Send + Sync + 'static,
{
    fn connect(
        &self,
        endpoint: &MemberEndpoint,
        tasks: &TaskGroup,
    ) -> Result<Arc<dyn Api>, String> {
        self(endpoint, tasks)
    }
}

/// Connects with HTTPS.
#[derive(Clone, Debug, Default)]
pub struct RemoteMemberConnector {
    /// Nothing is sent to members while the fence is closed.
    pub send_fence: Option<NetworkSendFence>,
}

impl MemberConnector for RemoteMemberConnector {
    fn connect(
        &self,
        endpoint: &MemberEndpoint,
        tasks: &TaskGroup,
    ) -> Result<Arc<dyn Api>, String> {
        let mut config = endpoint.client_config()?;
        config.send_fence.clone_from(&self.send_fence);
        let remote = RemoteApi::new(config, tasks)
            .map_err(|e| format!("cluster {:?}: {e}", endpoint.cluster))?;
        Ok(Arc::new(remote))
    }
}

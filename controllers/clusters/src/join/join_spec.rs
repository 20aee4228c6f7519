//! The cluster to join, and the way to join it.

use std::collections::BTreeMap;

use client::remote::RestConfig;

/// The cluster to join in push mode.
#[derive(Clone, Debug)]
pub struct JoinSpec {
    pub name: String,
    /// The URL of the member's API server, as the control plane reaches it.
    pub endpoint: String,
    /// The CA bundle in PEM that verifies the endpoint; `None`: the `ca.crt` beside the
    /// member's tokens.
    pub ca_bundle: Option<String>,
    /// The endpoint's certificate is not verified.
    pub insecure_skip_tls_verification: bool,
    /// A name in the endpoint's certificate that is not its host.
    pub tls_server_name: Option<String>,
    pub proxy_url: Option<String>,
    /// The namespace of service accounts and secrets, on both sides.
    pub namespace: String,
    pub provider: Option<String>,
    pub region: Option<String>,
    pub zones: Vec<String>,
    /// Annotations of the Cluster.
    pub annotations: BTreeMap<String, String>,
    /// Only checks; writes nothing.
    pub dry_run: bool,
}

impl JoinSpec {
    /// With the endpoint of a member and what verifies it; its CA must be PEM.
    pub fn for_member(name: &str, member: &RestConfig) -> Result<Self, String> {
        let ca = member.ca.clone().map(String::from_utf8).transpose();
        Ok(Self {
            name: name.to_owned(),
            endpoint: member.server.to_string().trim_end_matches('/').to_owned(),
            ca_bundle: ca.map_err(|_| "the cluster's CA is not PEM")?,
            insecure_skip_tls_verification: member.insecure_skip_tls_verify,
            tls_server_name: member.tls_server_name.clone(),
            proxy_url: member.proxy.as_ref().map(|url| url.as_text().to_owned()),
            ..Self::default()
        })
    }
}

impl Default for JoinSpec {
    fn default() -> Self {
        Self {
            name: String::new(),
            endpoint: String::new(),
            ca_bundle: None,
            insecure_skip_tls_verification: false,
            tls_server_name: None,
            proxy_url: None,
            namespace: "karmada-cluster".to_owned(),
            provider: None,
            region: None,
            zones: Vec::new(),
            annotations: BTreeMap::new(),
            dry_run: false,
        }
    }
}

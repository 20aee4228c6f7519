//! What to join, and how.

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
    pub proxy_url: Option<String>,
    /// The namespace of service accounts and secrets, on both sides.
    pub namespace: String,
    pub provider: Option<String>,
    pub region: Option<String>,
    pub zones: Vec<String>,
    /// Only checks; writes nothing.
    pub dry_run: bool,
}

impl Default for JoinSpec {
    fn default() -> Self {
        Self {
            name: String::new(),
            endpoint: String::new(),
            ca_bundle: None,
            insecure_skip_tls_verification: false,
            proxy_url: None,
            namespace: "karmada-cluster".to_owned(),
            provider: None,
            region: None,
            zones: Vec::new(),
            dry_run: false,
        }
    }
}

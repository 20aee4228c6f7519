//! The configuration of a client: the server and our identity there (client-go's
//! `rest.Config`). Values only; the files and programs named here are read when needed.
//!
//! `Debug` never prints a credential; it shows which kinds are set.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use http::Uri;

use super::fence::NetworkSendFence;
use super::proxy_url::ProxyUrl;

/// An unusable configuration and the reason, from [`super::kubeconfig`] or the checks
/// here. The text names files, contexts and users, never a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RestConfigError(pub String);

/// A server and our credentials for it.
#[derive(Clone, Debug)]
pub struct RestConfig {
    pub server: Uri,
    /// CA bundle in PEM; `None`: the system's roots.
    pub ca: Option<Vec<u8>>,
    /// Accepts any server certificate.
    pub insecure_skip_tls_verify: bool,
    /// The parts of the verification of the server's certificate that are left out.
    pub tls_exceptions: TlsVerificationExceptions,
    /// The name in the server's certificate, if it is not the host.
    pub tls_server_name: Option<String>,
    pub proxy: Option<ProxyUrl>,
    /// Headers of the CONNECT requests to HTTP proxies; SOCKS has none.
    pub proxy_headers: Vec<(String, String)>,
    pub auth: AuthInfo,
    pub impersonate: Option<ImpersonationConfig>,
    /// The default namespace of commands.
    pub namespace: String,
    pub flow_control: Http2FlowControl,
    /// Nothing is sent while the fence is closed.
    pub send_fence: Option<NetworkSendFence>,
}

/// Parts of the verification of a server's certificate that are left out. The chain to an authority
/// is verified in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlsVerificationExceptions {
    /// Accepts a certificate of another name.
    pub subject_name: bool,
    /// Accepts certificates that are expired, or not valid yet.
    pub validity_period: bool,
}

impl TlsVerificationExceptions {
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// HTTP/2 flow control: the windows in bytes that may be in flight unread, and our own
/// limit of streams per connection, whatever the peer allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2FlowControl {
    pub stream_window_bytes: u32,
    pub connection_window_bytes: u32,
    pub max_streams: usize,
}

impl Http2FlowControl {
    /// For one reader that reads all of its streams: a list is large, a watch is not, and
    /// the streams share the connection's window.
    pub const SINGLE_READER: Self = Self {
        stream_window_bytes: 1 << 20,
        connection_window_bytes: 4 << 20,
        max_streams: usize::MAX,
    };

    /// For independent readers: one that stops reading must not block the others, so the
    /// connection's window holds the windows of all its streams together.
    pub const INDEPENDENT_READERS: Self = Self {
        stream_window_bytes: 256 << 10,
        connection_window_bytes: 16 << 20,
        max_streams: 64,
    };
}

impl RestConfig {
    /// A server without credentials.
    pub fn new(server: &str) -> Result<Self, RestConfigError> {
        Ok(Self {
            server: parse_server_url(server).map_err(RestConfigError)?,
            ca: None,
            insecure_skip_tls_verify: false,
            tls_exceptions: TlsVerificationExceptions::default(),
            tls_server_name: None,
            proxy: None,
            proxy_headers: Vec::new(),
            auth: AuthInfo::default(),
            impersonate: None,
            namespace: "default".into(),
            flow_control: Http2FlowControl::SINGLE_READER,
            send_fence: None,
        })
    }

    /// Connects through a proxy.
    pub fn set_proxy(&mut self, address: &str) -> Result<(), RestConfigError> {
        self.proxy = Some(ProxyUrl::parse(address).map_err(RestConfigError)?);
        Ok(())
    }
}

/// A secret that `Debug` does not print.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Redacted<T>(pub T);

impl<T> fmt::Debug for Redacted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A client certificate chain and its private key, both in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    pub certificate: Vec<u8>,
    pub key: Redacted<Vec<u8>>,
}

/// The credentials (kubeconfig's `AuthInfo`). Several may be set, such as a certificate
/// and a token.
#[derive(Clone, Debug, Default)]
pub struct AuthInfo {
    pub client_certificate: Option<ClientCertificate>,
    pub token: Option<Redacted<String>>,
    /// Re-read periodically; takes precedence over `token`.
    pub token_file: Option<PathBuf>,
    pub basic: Option<(String, Redacted<String>)>,
    pub exec: Option<ExecConfig>,
}

/// An exec credential plugin (`client.authentication.k8s.io`).
#[derive(Clone, Debug)]
pub struct ExecConfig {
    pub api_version: String,
    pub command: PathBuf,
    pub args: Vec<String>,
    pub env: Redacted<Vec<(String, String)>>,
    /// The hint for a user who has not installed the program.
    pub install_hint: String,
    /// Pass the cluster to the program in `KUBERNETES_EXEC_INFO`.
    pub provide_cluster_info: bool,
}

/// The user to impersonate (client-go's `rest.ImpersonationConfig`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImpersonationConfig {
    pub user: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Parses and checks a server URL; without a scheme it is https.
pub(super) fn parse_server_url(text: &str) -> Result<Uri, String> {
    let full = if text.contains("://") {
        text.to_owned()
    } else {
        format!("https://{text}")
    };
    let bad = || format!("server {text:?} is not an http(s) address");
    let uri: Uri = full.parse().map_err(|_| bad())?;
    let has_scheme = matches!(uri.scheme_str(), Some("https" | "http"));
    let user = uri.authority().is_some_and(|a| a.as_str().contains('@'));
    if user {
        return Err("server address must not hold credentials".into());
    }
    if !has_scheme || uri.host().is_none_or(str::is_empty) || uri.query().is_some() {
        return Err(bad());
    }
    Ok(uri)
}

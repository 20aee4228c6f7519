//! How to reach a server and who we are there. Values only; files and programs
//! named here are read when they are needed.
//!
//! Nothing here prints a credential: `Debug` shows which kinds there are.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use http::Uri;

use super::gate::Gate;

/// What cannot be used, and why; made by [`super::kubeconfig`] and by checks here.
/// The text names files, contexts and users, never a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// A server and an identity on it.
#[derive(Clone, Debug)]
pub struct Config {
    pub server: Uri,
    /// PEM; `None`: the system's roots.
    pub ca: Option<Vec<u8>>,
    /// Accept any server certificate.
    pub insecure: bool,
    /// The name in the server's certificate, when it is not the host.
    pub tls_server_name: Option<String>,
    /// An HTTP proxy to CONNECT through.
    pub proxy: Option<Uri>,
    pub proxy_headers: Vec<(String, String)>,
    pub auth: Auth,
    pub impersonate: Option<Impersonate>,
    /// The namespace of commands that name none.
    pub namespace: String,
    pub flow: Flow,
    /// Nothing is sent while it is closed.
    pub gate: Option<Gate>,
}

/// Flow control of HTTP/2, in bytes that may be under way unread, and how many
/// streams a connection carries at most, whatever the peer allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    pub stream: u32,
    pub connection: u32,
    pub streams: usize,
}

impl Flow {
    /// Streams of one reader, who reads them all: a list is large, a watch is not;
    /// the connection's window is what they share.
    pub const OWN: Self = Self {
        stream: 1 << 20,
        connection: 4 << 20,
        streams: usize::MAX,
    };

    /// Streams of readers who know nothing of each other: one that reads nothing
    /// must not take the others' share, so the connection's window holds what all
    /// streams together may have.
    pub const SHARED: Self = Self {
        stream: 256 << 10,
        connection: 16 << 20,
        streams: 64,
    };
}

impl Config {
    /// A server without credentials.
    pub fn new(server: &str) -> Result<Self, ConfigError> {
        Ok(Self {
            server: server_uri(server).map_err(ConfigError)?,
            ca: None,
            insecure: false,
            tls_server_name: None,
            proxy: None,
            proxy_headers: Vec::new(),
            auth: Auth::default(),
            impersonate: None,
            namespace: "default".into(),
            flow: Flow::OWN,
            gate: None,
        })
    }

    /// Goes through an HTTP proxy.
    pub fn set_proxy(&mut self, address: &str) -> Result<(), ConfigError> {
        self.proxy = Some(proxy_uri(address).map_err(ConfigError)?);
        Ok(())
    }
}

/// A secret that does not print.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret<T>(pub T);

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// PEM of a client certificate chain and of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub certificate: Vec<u8>,
    pub key: Secret<Vec<u8>>,
}

/// The credentials; several may be given, a certificate beside a token for one.
#[derive(Clone, Debug, Default)]
pub struct Auth {
    pub identity: Option<Identity>,
    pub token: Option<Secret<String>>,
    /// Read again as it changes; goes before `token`.
    pub token_file: Option<PathBuf>,
    pub basic: Option<(String, Secret<String>)>,
    pub exec: Option<Exec>,
}

/// A program that gives credentials (`client.authentication.k8s.io`).
#[derive(Clone, Debug)]
pub struct Exec {
    pub api_version: String,
    pub command: PathBuf,
    pub args: Vec<String>,
    pub env: Secret<Vec<(String, String)>>,
    /// What to tell a user who does not have the program.
    pub install_hint: String,
    /// Tell the program about the cluster.
    pub provide_cluster_info: bool,
}

/// Whom to act as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Impersonate {
    pub user: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Checks a server's address; without a scheme it is https.
pub(super) fn server_uri(text: &str) -> Result<Uri, String> {
    let full = if text.contains("://") {
        text.to_owned()
    } else {
        format!("https://{text}")
    };
    let bad = || format!("server {text:?} is not an http(s) address");
    let uri: Uri = full.parse().map_err(|_| bad())?;
    let known = matches!(uri.scheme_str(), Some("https" | "http"));
    let user = uri.authority().is_some_and(|a| a.as_str().contains('@'));
    if user {
        return Err("server address must not hold credentials".into());
    }
    if !known || uri.host().is_none_or(str::is_empty) || uri.query().is_some() {
        return Err(bad());
    }
    Ok(uri)
}

/// Checks a proxy's address without repeating it: it may hold a password.
pub(super) fn proxy_uri(text: &str) -> Result<Uri, String> {
    let uri: Uri = text
        .parse()
        .map_err(|_| "proxy-url is not an address".to_owned())?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http"), Some(_)) => Ok(uri),
        (Some(other), Some(_)) => Err(format!(
            "proxy-url has the scheme {other:?}; only http proxies are supported"
        )),
        _ => Err("proxy-url is not an address".into()),
    }
}

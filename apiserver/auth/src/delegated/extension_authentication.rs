//! The CAs and identity headers that the host trusts, from the ConfigMap
//! `kube-system/extension-apiserver-authentication`, which a reflector keeps current
//! (`authentication/request/headerrequest`, `server/options/authentication.go`).

use std::collections::BTreeMap;
use std::sync::Arc;

use client::{Api, Error, ListWatchSelector, ReflectorSink, ShutdownToken, run_reflector};
use jiff::Timestamp;
use machinery::user::{ALL_AUTHENTICATED, ALL_UNAUTHENTICATED};
use machinery::{Gvr, Object, UserInfo};
use parking_lot::RwLock;
use rustls_pki_types::CertificateDer;
use serde::Deserialize;
use tokio::sync::watch;

use crate::credentials::ForEachHeader;
use crate::impersonation::unescape_extra_key;
use crate::x509::CertificateVerifier;

const CONFIGMAPS: Gvr = Gvr::from_static("", "v1", "configmaps");
const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

const NOT_UTF_8: &str = "a front proxy's header is not UTF-8";

#[derive(Deserialize)]
struct ExtensionAuthenticationData {
    #[serde(default)]
    data: BTreeMap<String, String>,
}

/// The parsed content of the ConfigMap.
pub(super) struct ExtensionAuthentication {
    client_ca: Option<CertificateVerifier>,
    request_header_ca: Option<CertificateVerifier>,
    /// Common names that a proxy may have; empty means any.
    allowed_names: Vec<String>,
    // Header names in lower case, as are all below.
    username_headers: Vec<String>,
    uid_headers: Vec<String>,
    group_headers: Vec<String>,
    /// Header prefixes.
    extra_header_prefixes: Vec<String>,
}

fn parse_string_list(data: &BTreeMap<String, String>, key: &str) -> Result<Vec<String>, String> {
    match data.get(key).map(String::as_str) {
        None | Some("") => Ok(Vec::new()),
        Some(text) => machinery::json::from_str(text).map_err(|e| format!("{key}: {e}")),
    }
}

fn parse_header_names(data: &BTreeMap<String, String>, key: &str) -> Result<Vec<String>, String> {
    let all = parse_string_list(data, key)?;
    Ok(all.iter().map(|h| h.to_ascii_lowercase()).collect())
}

fn parse_ca(
    data: &BTreeMap<String, String>,
    key: &str,
) -> Result<Option<CertificateVerifier>, String> {
    match data.get(key).map(String::as_str) {
        None | Some("") => Ok(None),
        Some(pem) => match CertificateVerifier::from_pem(pem) {
            Ok(verifier) => Ok(Some(verifier)),
            Err(message) => Err(format!("{key}: {message}")),
        },
    }
}

impl ExtensionAuthentication {
    pub(super) fn parse(map: &Object) -> Result<Self, String> {
        let ExtensionAuthenticationData { data } =
            machinery::json::from_slice(&map.bytes()).map_err(|e| e.to_string())?;
        let trust = Self {
            client_ca: parse_ca(&data, "client-ca-file")?,
            request_header_ca: parse_ca(&data, "requestheader-client-ca-file")?,
            allowed_names: parse_string_list(&data, "requestheader-allowed-names")?,
            username_headers: parse_header_names(&data, "requestheader-username-headers")?,
            uid_headers: parse_header_names(&data, "requestheader-uid-headers")?,
            group_headers: parse_header_names(&data, "requestheader-group-headers")?,
            extra_header_prefixes: parse_header_names(&data, "requestheader-extra-headers-prefix")?,
        };
        if trust.request_header_ca.is_some() && trust.username_headers.is_empty() {
            return Err("requestheader-username-headers is empty".into());
        }
        Ok(trust)
    }

    /// Whether a chain belongs to a front proxy whose headers count.
    pub(super) fn is_front_proxy(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> bool {
        let Some(proxies) = &self.request_header_ca else {
            return false;
        };
        proxies
            .common_name(chain, now)
            .is_ok_and(|name| self.allowed_names.is_empty() || self.allowed_names.contains(&name))
    }

    /// The user of a client certificate.
    pub(super) fn authenticate_client(
        &self,
        chain: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> Result<Arc<UserInfo>, String> {
        match &self.client_ca {
            Some(clients) => clients.authenticate(chain, now),
            None => Err("the host has no client CA".into()),
        }
    }

    /// Whether a header (in lower case) carries an identity.
    pub(super) fn is_identity_header(&self, header: &str) -> bool {
        let exact = [
            &self.username_headers,
            &self.uid_headers,
            &self.group_headers,
        ];
        exact.iter().any(|list| list.iter().any(|h| h == header))
            || self
                .extra_header_prefixes
                .iter()
                .any(|p| header.starts_with(p.as_str()))
    }

    /// The user that the headers name; `None` when they name none.
    pub(super) fn remote_user(
        &self,
        headers: ForEachHeader<'_>,
    ) -> Result<Option<UserInfo>, String> {
        let mut by_name: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut malformed = false;
        headers(&mut |name, value| {
            if !self.is_identity_header(name) || value.is_empty() {
                return;
            }
            match std::str::from_utf8(value) {
                Ok(text) => by_name.entry(name.into()).or_default().push(text.into()),
                Err(_) => malformed = true,
            }
        });
        if malformed {
            return Err(NOT_UTF_8.into());
        }
        let first = |names: &[String]| {
            let mut present = names.iter().filter_map(|n| by_name.get(n)?.first());
            present.next().cloned().unwrap_or_default()
        };
        let name = first(&self.username_headers);
        if name.is_empty() {
            return Ok(None);
        }
        let groups = self
            .group_headers
            .iter()
            .filter_map(|n| by_name.get(n))
            .flatten();
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (header, values) in &by_name {
            for prefix in &self.extra_header_prefixes {
                if let Some(key) = header.strip_prefix(prefix.as_str()) {
                    let key = unescape_extra_key(key).ok_or(NOT_UTF_8)?;
                    let all = extra.entry(key).or_default();
                    all.extend(values.iter().cloned());
                }
            }
        }
        Ok(Some(UserInfo {
            name,
            uid: first(&self.uid_headers),
            groups: groups.cloned().collect(),
            extra,
        }))
    }
}

/// Adds `system:authenticated` to an authenticated user (D2.6).
pub(super) fn add_authenticated_group(mut user: UserInfo) -> UserInfo {
    if !user.in_group(ALL_AUTHENTICATED) && !user.in_group(ALL_UNAUTHENTICATED) {
        user.groups.push(ALL_AUTHENTICATED.into());
    }
    user
}

/// The last valid content of the ConfigMap, or why there is none.
pub(super) struct DynamicExtensionAuthentication {
    current: RwLock<Result<Arc<ExtensionAuthentication>, String>>,
    has_read: watch::Sender<bool>,
}

impl Default for DynamicExtensionAuthentication {
    fn default() -> Self {
        Self {
            current: RwLock::new(Err("not read yet".into())),
            has_read: watch::Sender::new(false),
        }
    }
}

impl DynamicExtensionAuthentication {
    pub(super) fn current(&self) -> Option<Arc<ExtensionAuthentication>> {
        self.current.read().as_ref().ok().map(Arc::clone)
    }

    pub(super) fn check_ready(&self) -> Result<(), String> {
        let newest = self.current.read();
        let result = newest.as_ref().map(drop);
        result.map_err(|message| format!("ConfigMap {NAMESPACE}/{NAME}: {message}"))
    }

    pub(super) async fn wait_ready(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.has_read.subscribe().wait_for(|read| *read).await;
    }

    /// Keeps the previous content when the new one is invalid.
    fn update(&self, state: Result<ExtensionAuthentication, String>) {
        let mut newest = self.current.write();
        match state {
            Ok(trust) => {
                *newest = Ok(Arc::new(trust));
                self.has_read.send_replace(true);
            }
            Err(message) => {
                tracing::warn!(%message, "ConfigMap {NAMESPACE}/{NAME} cannot be used");
                if newest.is_err() {
                    *newest = Err(message);
                }
            }
        }
    }
}

struct ExtensionAuthenticationSink<'a> {
    target: &'a DynamicExtensionAuthentication,
    is_listed: bool,
}

impl ReflectorSink for ExtensionAuthenticationSink<'_> {
    fn begin_list(&mut self) {
        self.is_listed = false;
    }

    fn list_item(&mut self, object: Object) {
        self.upsert(object);
    }

    fn end_list(&mut self) {
        if !self.is_listed {
            self.target.update(Err("not found".into()));
        }
    }

    fn upsert(&mut self, object: Object) {
        self.is_listed = true;
        self.target.update(ExtensionAuthentication::parse(&object));
    }

    fn delete(&mut self, _: Object) {
        self.target.update(Err("was deleted".into()));
    }

    // The last content stays in force while the host is unreachable.
    fn report_health(&mut self, error: Option<&Error>) {
        if let Some(error) = error {
            let mut newest = self.target.current.write();
            if newest.is_err() {
                *newest = Err(error.to_string());
            }
        }
    }
}

pub(super) async fn watch_config_map(
    followed: &DynamicExtensionAuthentication,
    host: &dyn Api,
    shutdown: &ShutdownToken,
) {
    let select = ListWatchSelector::all(&CONFIGMAPS)
        .namespace(NAMESPACE)
        .fields(format!("metadata.name={NAME}"));
    let mut sink = ExtensionAuthenticationSink {
        target: followed,
        is_listed: false,
    };
    run_reflector(host, &select, &mut sink, shutdown).await;
}

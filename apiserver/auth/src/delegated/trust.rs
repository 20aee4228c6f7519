//! The CAs and identity headers that the host trusts, from the ConfigMap
//! `kube-system/extension-apiserver-authentication`, which a reflector keeps current
//! (`authentication/request/headerrequest`, `server/options/authentication.go`).

use std::collections::BTreeMap;
use std::sync::Arc;

use client::{Api, Error, Select, Shutdown, Sink, reflect};
use jiff::Timestamp;
use machinery::user::{AUTHENTICATED, UNAUTHENTICATED};
use machinery::{Gvr, Object, UserInfo};
use parking_lot::RwLock;
use rustls_pki_types::CertificateDer;
use serde::Deserialize;
use tokio::sync::watch;

use crate::authenticate::Headers;
use crate::impersonation::unescape;
use crate::x509::Verifier;

const CONFIGMAPS: Gvr = Gvr::constant("", "v1", "configmaps");
const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

const NOT_UTF_8: &str = "a front proxy's header is not UTF-8";

#[derive(Deserialize)]
struct Data {
    #[serde(default)]
    data: BTreeMap<String, String>,
}

/// The parsed content of the ConfigMap.
pub(super) struct Trust {
    clients: Option<Verifier>,
    proxies: Option<Verifier>,
    /// Common names that a proxy may have; empty means any.
    allowed: Vec<String>,
    // Header names in lower case, as are all below.
    user: Vec<String>,
    uid: Vec<String>,
    groups: Vec<String>,
    /// Header prefixes.
    extra: Vec<String>,
}

fn list(data: &BTreeMap<String, String>, key: &str) -> Result<Vec<String>, String> {
    match data.get(key).map(String::as_str) {
        None | Some("") => Ok(Vec::new()),
        Some(text) => serde_json::from_str(text).map_err(|e| format!("{key}: {e}")),
    }
}

fn headers(data: &BTreeMap<String, String>, key: &str) -> Result<Vec<String>, String> {
    let all = list(data, key)?;
    Ok(all.iter().map(|h| h.to_ascii_lowercase()).collect())
}

fn authority(data: &BTreeMap<String, String>, key: &str) -> Result<Option<Verifier>, String> {
    match data.get(key).map(String::as_str) {
        None | Some("") => Ok(None),
        Some(pem) => match Verifier::from_pem(pem) {
            Ok(verifier) => Ok(Some(verifier)),
            Err(why) => Err(format!("{key}: {why}")),
        },
    }
}

impl Trust {
    pub(super) fn parse(map: &Object) -> Result<Self, String> {
        let Data { data } = serde_json::from_slice(map.bytes()).map_err(|e| e.to_string())?;
        let trust = Self {
            clients: authority(&data, "client-ca-file")?,
            proxies: authority(&data, "requestheader-client-ca-file")?,
            allowed: list(&data, "requestheader-allowed-names")?,
            user: headers(&data, "requestheader-username-headers")?,
            uid: headers(&data, "requestheader-uid-headers")?,
            groups: headers(&data, "requestheader-group-headers")?,
            extra: headers(&data, "requestheader-extra-headers-prefix")?,
        };
        if trust.proxies.is_some() && trust.user.is_empty() {
            return Err("requestheader-username-headers is empty".into());
        }
        Ok(trust)
    }

    /// Whether a chain belongs to a front proxy whose headers count.
    pub(super) fn is_proxy(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> bool {
        let Some(proxies) = &self.proxies else {
            return false;
        };
        proxies
            .common_name(chain, now)
            .is_ok_and(|name| self.allowed.is_empty() || self.allowed.contains(&name))
    }

    /// The user of a client certificate.
    pub(super) fn client(
        &self,
        chain: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> Result<Arc<UserInfo>, String> {
        match &self.clients {
            Some(clients) => clients.user(chain, now),
            None => Err("the host has no client CA".into()),
        }
    }

    /// Whether a header (in lower case) carries an identity.
    pub(super) fn names(&self, header: &str) -> bool {
        let exact = [&self.user, &self.uid, &self.groups];
        exact.iter().any(|list| list.iter().any(|h| h == header))
            || self.extra.iter().any(|p| header.starts_with(p.as_str()))
    }

    /// The user that the headers name; `None` when they name none.
    pub(super) fn remote_user(&self, headers: Headers<'_>) -> Result<Option<UserInfo>, String> {
        let mut by_name: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut malformed = false;
        headers(&mut |name, value| {
            if !self.names(name) || value.is_empty() {
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
            let mut found = names.iter().filter_map(|n| by_name.get(n)?.first());
            found.next().cloned().unwrap_or_default()
        };
        let name = first(&self.user);
        if name.is_empty() {
            return Ok(None);
        }
        let groups = self.groups.iter().filter_map(|n| by_name.get(n)).flatten();
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (header, values) in &by_name {
            for prefix in &self.extra {
                if let Some(key) = header.strip_prefix(prefix.as_str()) {
                    let key = unescape(key).ok_or(NOT_UTF_8)?;
                    let all = extra.entry(key).or_default();
                    all.extend(values.iter().cloned());
                }
            }
        }
        Ok(Some(UserInfo {
            name,
            uid: first(&self.uid),
            groups: groups.cloned().collect(),
            extra,
        }))
    }
}

/// Adds `system:authenticated` to an authenticated user (D2.6).
pub(super) fn include_everyone(mut user: UserInfo) -> UserInfo {
    if !user.in_group(AUTHENTICATED) && !user.in_group(UNAUTHENTICATED) {
        user.groups.push(AUTHENTICATED.into());
    }
    user
}

/// The last valid content of the ConfigMap, or why there is none.
pub(super) struct Followed {
    newest: RwLock<Result<Arc<Trust>, String>>,
    read: watch::Sender<bool>,
}

impl Default for Followed {
    fn default() -> Self {
        Self {
            newest: RwLock::new(Err("not read yet".into())),
            read: watch::Sender::new(false),
        }
    }
}

impl Followed {
    pub(super) fn trust(&self) -> Option<Arc<Trust>> {
        self.newest.read().as_ref().ok().map(Arc::clone)
    }

    pub(super) fn ready(&self) -> Result<(), String> {
        let newest = self.newest.read();
        let result = newest.as_ref().map(drop);
        result.map_err(|why| format!("ConfigMap {NAMESPACE}/{NAME}: {why}"))
    }

    pub(super) async fn wait(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.read.subscribe().wait_for(|read| *read).await;
    }

    /// Keeps the previous content when the new one is invalid.
    fn take(&self, state: Result<Trust, String>) {
        let mut newest = self.newest.write();
        match state {
            Ok(trust) => {
                *newest = Ok(Arc::new(trust));
                self.read.send_replace(true);
            }
            Err(why) => {
                tracing::warn!(%why, "ConfigMap {NAMESPACE}/{NAME} cannot be used");
                if newest.is_err() {
                    *newest = Err(why);
                }
            }
        }
    }
}

struct Taking<'a> {
    followed: &'a Followed,
    seen: bool,
}

impl Sink for Taking<'_> {
    fn restart(&mut self) {
        self.seen = false;
    }

    fn item(&mut self, object: Object) {
        self.changed(object);
    }

    fn listed(&mut self) {
        if !self.seen {
            self.followed.take(Err("not found".into()));
        }
    }

    fn changed(&mut self, object: Object) {
        self.seen = true;
        self.followed.take(Trust::parse(&object));
    }

    fn deleted(&mut self, _: Object) {
        self.followed.take(Err("was deleted".into()));
    }

    // The last content stays in force while the host is unreachable.
    fn health(&mut self, error: Option<&Error>) {
        if let Some(error) = error {
            let mut newest = self.followed.newest.write();
            if newest.is_err() {
                *newest = Err(error.to_string());
            }
        }
    }
}

pub(super) async fn follow(followed: &Followed, host: &dyn Api, shutdown: &Shutdown) {
    let select = Select::all(&CONFIGMAPS)
        .namespace(NAMESPACE)
        .fields(format!("metadata.name={NAME}"));
    let mut sink = Taking {
        followed,
        seen: false,
    };
    reflect(host, &select, &mut sink, shutdown).await;
}

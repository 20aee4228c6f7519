//! Kubeconfig files, merged as client-go merges them, with one context resolved into a
//! [`Config`]. Errors name the file and the entry.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::config::{
    Auth, Config, ConfigError, Exec, Identity, Impersonate, Secret, proxy_uri, server_uri,
};

/// The largest file read; a kubeconfig with thousands of clusters stays below it.
const LARGEST: u64 = 16 << 20;

/// Where to find the kubeconfig (client-go's `ClientConfigLoadingRules`).
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// `--kubeconfig`: this file and no other.
    pub explicit: Option<PathBuf>,
    /// `$KUBECONFIG`: a list of files; missing ones are skipped.
    pub variable: Option<String>,
    /// The home directory for `~/.kube/config`, if neither of the above is set.
    pub home: Option<PathBuf>,
    /// `--context`; else the current one.
    pub context: Option<String>,
}

impl Source {
    /// One file.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self {
            explicit: Some(path.into()),
            ..Self::default()
        }
    }

    /// As kubectl does: `$KUBECONFIG`, else `~/.kube/config`.
    pub fn environment() -> Self {
        Self {
            variable: std::env::var("KUBECONFIG").ok().filter(|v| !v.is_empty()),
            home: std::env::var_os("HOME").map(PathBuf::from),
            ..Self::default()
        }
    }

    /// Reads and merges the files and resolves the context.
    pub fn load(&self) -> Result<Config, ConfigError> {
        let mut merged = Merged::default();
        let mut looked = Vec::new();
        for (path, required) in self.paths() {
            match read(&path) {
                Ok(Some(text)) => merged.add(&path, &text)?,
                Ok(None) if !required => {}
                Ok(None) => return Err(told(&path, "no such file")),
                Err(e) => return Err(told(&path, e)),
            }
            looked.push(path.display().to_string());
        }
        if merged.first.is_none() {
            let why = match looked.as_slice() {
                [] => "no kubeconfig specified".to_owned(),
                paths => format!("kubeconfig not found at {}", paths.join(", ")),
            };
            return Err(ConfigError(why));
        }
        merged.resolve(self.context.as_deref())
    }

    fn paths(&self) -> Vec<(PathBuf, bool)> {
        if let Some(path) = &self.explicit {
            return vec![(path.clone(), true)];
        }
        if let Some(list) = &self.variable {
            let paths = std::env::split_paths(list).filter(|p| !p.as_os_str().is_empty());
            return paths.map(|p| (p, false)).collect();
        }
        let home = self.home.iter();
        home.map(|h| (h.join(".kube").join("config"), false))
            .collect()
    }
}

fn told(path: &Path, why: impl Display) -> ConfigError {
    ConfigError(format!("kubeconfig {}: {why}", path.display()))
}

/// `None`: the file does not exist.
fn read(path: &Path) -> Result<Option<String>, String> {
    match std::fs::metadata(path) {
        Ok(found) if found.len() > LARGEST => return Err("file is larger than 16 MiB".into()),
        Ok(found) if found.is_dir() => return Err("is a directory".into()),
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e.to_string()),
    }
    std::fs::read_to_string(path)
        .map(Some)
        .map_err(|e| e.to_string())
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct File {
    clusters: Option<Vec<NamedCluster>>,
    users: Option<Vec<NamedUser>>,
    contexts: Option<Vec<NamedContext>>,
    #[serde(rename = "current-context")]
    current_context: Option<String>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    #[serde(default)]
    cluster: Option<Cluster>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: Option<User>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    #[serde(default)]
    context: Option<Context>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Cluster {
    server: Option<String>,
    tls_server_name: Option<String>,
    insecure_skip_tls_verify: bool,
    certificate_authority: Option<String>,
    certificate_authority_data: Option<String>,
    proxy_url: Option<String>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    client_certificate: Option<String>,
    client_certificate_data: Option<String>,
    client_key: Option<String>,
    client_key_data: Option<String>,
    token: Option<String>,
    // The only key in camel case.
    #[serde(rename = "tokenFile")]
    token_file: Option<String>,
    username: Option<String>,
    password: Option<String>,
    #[serde(rename = "as")]
    act_as: Option<String>,
    as_uid: Option<String>,
    as_groups: Option<Vec<String>>,
    as_user_extra: Option<BTreeMap<String, Vec<String>>>,
    auth_provider: Option<AuthProvider>,
    exec: Option<ExecEntry>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct AuthProvider {
    name: String,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ExecEntry {
    api_version: Option<String>,
    command: String,
    args: Option<Vec<String>>,
    env: Option<Vec<EnvEntry>>,
    install_hint: Option<String>,
    provide_cluster_info: bool,
    interactive_mode: Option<String>,
}

#[derive(Clone, Deserialize)]
struct EnvEntry {
    name: String,
    #[serde(default)]
    value: String,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
    namespace: Option<String>,
}

/// An entry and the file it came from, for messages and relative paths.
struct From<T> {
    path: PathBuf,
    entry: T,
}

/// The merged files. Of entries with the same name the first file's wins (client-go's
/// loading rules).
#[derive(Default)]
struct Merged {
    first: Option<PathBuf>,
    clusters: BTreeMap<String, From<Cluster>>,
    users: BTreeMap<String, From<User>>,
    contexts: BTreeMap<String, From<Context>>,
    current: Option<From<String>>,
}

fn merge<T: Default>(
    into: &mut BTreeMap<String, From<T>>,
    path: &Path,
    entries: impl Iterator<Item = (String, Option<T>)>,
) {
    for (name, entry) in entries {
        into.entry(name).or_insert_with(|| From {
            path: path.to_owned(),
            entry: entry.unwrap_or_default(),
        });
    }
}

impl Merged {
    fn add(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        let file = match text.trim().is_empty() {
            true => File::default(),
            false => parse(path, text)?,
        };
        self.first.get_or_insert_with(|| path.to_owned());
        let clusters = file.clusters.unwrap_or_default().into_iter();
        merge(
            &mut self.clusters,
            path,
            clusters.map(|c| (c.name, c.cluster)),
        );
        let users = file.users.unwrap_or_default().into_iter();
        merge(&mut self.users, path, users.map(|u| (u.name, u.user)));
        let contexts = file.contexts.unwrap_or_default().into_iter();
        merge(
            &mut self.contexts,
            path,
            contexts.map(|c| (c.name, c.context)),
        );
        if self.current.is_none() {
            let named = file.current_context.filter(|c| !c.is_empty());
            self.current = named.map(|entry| From {
                path: path.to_owned(),
                entry,
            });
        }
        Ok(())
    }

    fn resolve(&self, wanted: Option<&str>) -> Result<Config, ConfigError> {
        let first = self.first.clone().unwrap_or_default();
        let (name, path) = match (wanted, &self.current) {
            (Some(name), _) => (name, &first),
            (None, Some(current)) => (current.entry.as_str(), &current.path),
            (None, None) => {
                let why = format!("no current-context; name one of {}", names(&self.contexts));
                return Err(told(&first, why));
            }
        };
        let context = self.contexts.get(name).ok_or_else(|| {
            let have = names(&self.contexts);
            told(path, format!("context {name:?} not found (have {have})"))
        })?;
        let missing = |what: &str, named: &str, have: String| {
            let why = format!("context {name:?}: {what} {named:?} not found (have {have})");
            told(&context.path, why)
        };
        let wanted = &context.entry.cluster;
        let cluster = self
            .clusters
            .get(wanted)
            .ok_or_else(|| missing("cluster", wanted, names(&self.clusters)))?;
        let mut config = cluster.config(wanted)?;
        let wanted = &context.entry.user;
        if !wanted.is_empty() {
            let user = self
                .users
                .get(wanted)
                .ok_or_else(|| missing("user", wanted, names(&self.users)))?;
            config.auth = user.auth(wanted)?;
            config.impersonate = user.impersonate(wanted)?;
        }
        if let Some(namespace) = given(&context.entry.namespace) {
            config.namespace = namespace;
        }
        Ok(config)
    }
}

fn parse(path: &Path, text: &str) -> Result<File, ConfigError> {
    serde_saphyr::from_str(text).map_err(|e| {
        // The parser's text may quote a line of the file, and with it a secret.
        let at = e.location();
        let place = at.map(|l| format!(" at line {} column {}", l.line(), l.column()));
        told(
            path,
            format!("not a kubeconfig{}", place.unwrap_or_default()),
        )
    })
}

fn names<T>(entries: &BTreeMap<String, T>) -> String {
    const MAX_LISTED_NAMES: usize = 10;
    if entries.is_empty() {
        return "none".into();
    }
    let mut text: Vec<&str> = entries
        .keys()
        .take(MAX_LISTED_NAMES)
        .map(String::as_str)
        .collect();
    if entries.len() > MAX_LISTED_NAMES {
        text.push("…");
    }
    text.join(", ")
}

fn given(text: &Option<String>) -> Option<String> {
    text.clone().filter(|t| !t.is_empty())
}

impl<T> From<T> {
    /// A relative path is relative to the file.
    fn beside(&self, path: &str) -> PathBuf {
        match self.path.parent() {
            Some(folder) => folder.join(path),
            None => PathBuf::from(path),
        }
    }

    /// Inline data takes precedence over a file.
    fn data(
        &self,
        what: &str,
        inline: &Option<String>,
        file: &Option<String>,
    ) -> Result<Option<Vec<u8>>, String> {
        if let Some(text) = given(inline) {
            let dense: String = text.split_whitespace().collect();
            let bytes = STANDARD.decode(dense);
            let bytes = bytes.map_err(|_| format!("{what}-data is not base64"))?;
            return Ok(Some(bytes));
        }
        let Some(file) = given(file) else {
            return Ok(None);
        };
        let path = self.beside(&file);
        let bytes = std::fs::read(&path);
        let bytes = bytes.map_err(|e| format!("{what} {}: {e}", path.display()))?;
        Ok(Some(bytes))
    }
}

impl From<Cluster> {
    fn config(&self, name: &str) -> Result<Config, ConfigError> {
        let fail = |why: String| told(&self.path, format!("cluster {name:?}: {why}"));
        let own = &self.entry;
        let server = given(&own.server).ok_or_else(|| fail("no server".into()))?;
        let ca = self
            .data(
                "certificate-authority",
                &own.certificate_authority_data,
                &own.certificate_authority,
            )
            .map_err(fail)?;
        if own.insecure_skip_tls_verify && ca.is_some() {
            let why = "specifying a root certificates file with the insecure flag is not allowed";
            return Err(fail(why.into()));
        }
        let mut config = Config::new("https://localhost")?;
        config.server = server_uri(&server).map_err(fail)?;
        config.ca = ca;
        config.insecure = own.insecure_skip_tls_verify;
        config.tls_server_name = given(&own.tls_server_name);
        if let Some(proxy) = given(&own.proxy_url) {
            config.proxy = Some(proxy_uri(&proxy).map_err(fail)?);
        }
        Ok(config)
    }
}

impl From<User> {
    fn auth(&self, name: &str) -> Result<Auth, ConfigError> {
        let fail = |why: String| told(&self.path, format!("user {name:?}: {why}"));
        let own = &self.entry;
        if let Some(provider) = &own.auth_provider {
            return Err(fail(format!(
                "auth-provider {:?} is no longer supported by Kubernetes; use an exec plugin",
                provider.name
            )));
        }
        let certificate = self
            .data(
                "client-certificate",
                &own.client_certificate_data,
                &own.client_certificate,
            )
            .map_err(fail)?;
        let key = self
            .data("client-key", &own.client_key_data, &own.client_key)
            .map_err(fail)?;
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some(Identity {
                certificate,
                key: Secret(key),
            }),
            (None, None) => None,
            (Some(_), None) => return Err(fail("client-certificate without client-key".into())),
            (None, Some(_)) => return Err(fail("client-key without client-certificate".into())),
        };
        let exec = own.exec.as_ref().map(|e| self.exec(e)).transpose();
        let auth = Auth {
            identity,
            token: given(&own.token).map(Secret),
            token_file: given(&own.token_file).map(|f| self.beside(&f)),
            basic: given(&own.username)
                .map(|user| (user, Secret(own.password.clone().unwrap_or_default()))),
            exec: exec.map_err(fail)?,
        };
        let bearer = auth.token.is_some() || auth.token_file.is_some();
        if bearer && auth.basic.is_some() {
            return Err(fail("more than one authentication method found: token and username; only one is allowed".into()));
        }
        Ok(auth)
    }

    fn exec(&self, entry: &ExecEntry) -> Result<Exec, String> {
        let version = entry.api_version.clone().unwrap_or_default();
        if !matches!(
            version.as_str(),
            "client.authentication.k8s.io/v1" | "client.authentication.k8s.io/v1beta1"
        ) {
            return Err(format!(
                "exec: apiVersion {version:?} is not client.authentication.k8s.io/v1 or v1beta1"
            ));
        }
        if entry.command.is_empty() {
            return Err("exec: no command".into());
        }
        if entry.interactive_mode.as_deref() == Some("Always") {
            return Err("exec: interactiveMode Always needs a terminal, and there is none".into());
        }
        // As in client-go, a path with a slash is relative to the file; a bare name is
        // looked up in `PATH`.
        let command = match entry.command.contains('/') {
            true => self.beside(&entry.command),
            false => PathBuf::from(&entry.command),
        };
        let env = entry.env.clone().unwrap_or_default().into_iter();
        Ok(Exec {
            api_version: version,
            command,
            args: entry.args.clone().unwrap_or_default(),
            env: Secret(env.map(|e| (e.name, e.value)).collect()),
            install_hint: entry.install_hint.clone().unwrap_or_default(),
            provide_cluster_info: entry.provide_cluster_info,
        })
    }

    fn impersonate(&self, name: &str) -> Result<Option<Impersonate>, ConfigError> {
        let own = &self.entry;
        let who = Impersonate {
            user: own.act_as.clone().unwrap_or_default(),
            uid: own.as_uid.clone().unwrap_or_default(),
            groups: own.as_groups.clone().unwrap_or_default(),
            extra: own.as_user_extra.clone().unwrap_or_default(),
        };
        if who == Impersonate::default() {
            return Ok(None);
        }
        if who.user.is_empty() {
            let why = format!(
                "user {name:?}: requesting uid, groups or user-extra without impersonating a user"
            );
            return Err(told(&self.path, why));
        }
        Ok(Some(who))
    }
}

#[cfg(test)]
#[path = "kubeconfig_tests.rs"]
mod tests;

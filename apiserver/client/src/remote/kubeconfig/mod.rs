//! Kubeconfig files, merged as client-go merges them, with one context resolved into a
//! [`RestConfig`]. Errors name the file and the entry.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::config::{
    AuthInfo, ClientCertificate, ExecConfig, ImpersonationConfig, Redacted, RestConfig,
    RestConfigError, parse_server_url,
};
use super::proxy_url::ProxyUrl;

/// The largest file read; a kubeconfig with thousands of clusters stays below it.
const MAX_KUBECONFIG_BYTES: u64 = 16 << 20;

/// Where to find the kubeconfig (client-go's `ClientConfigLoadingRules`).
#[derive(Clone, Debug, Default)]
pub struct KubeconfigLoadingRules {
    /// `--kubeconfig`: this file and no other.
    pub explicit_path: Option<PathBuf>,
    /// `$KUBECONFIG`: a list of files; missing ones are skipped.
    pub kubeconfig_variable: Option<String>,
    /// The home directory for `~/.kube/config`, if neither of the above is set.
    pub home: Option<PathBuf>,
    /// `--context`; else the current one.
    pub context: Option<String>,
}

impl KubeconfigLoadingRules {
    /// One file.
    pub fn from_file(path: impl Into<PathBuf>) -> Self {
        Self {
            explicit_path: Some(path.into()),
            ..Self::default()
        }
    }

    /// As kubectl does: `$KUBECONFIG`, else `~/.kube/config`.
    pub fn from_environment() -> Self {
        Self {
            kubeconfig_variable: std::env::var("KUBECONFIG").ok().filter(|v| !v.is_empty()),
            home: std::env::var_os("HOME").map(PathBuf::from),
            ..Self::default()
        }
    }

    /// Resolves the current context of a kubeconfig that is not a file.
    pub fn parse(text: &str) -> Result<RestConfig, RestConfigError> {
        Self::parse_context(text, None)
    }

    /// Resolves a context of a kubeconfig that is not a file, or its current one.
    pub fn parse_context(text: &str, context: Option<&str>) -> Result<RestConfig, RestConfigError> {
        let mut merged = MergedKubeconfig::default();
        merged.add_file(Path::new("(in memory)"), text)?;
        merged.resolve_context(context)
    }

    /// Reads and merges the files and resolves the context.
    pub fn load(&self) -> Result<RestConfig, RestConfigError> {
        self.merge_files()?.resolve_context(self.context.as_deref())
    }

    /// The name of the cluster of the context.
    pub fn cluster_name(&self) -> Result<String, RestConfigError> {
        let merged = self.merge_files()?;
        let current = merged.current_context.as_ref().map(|c| c.value.as_str());
        let context = self.context.as_deref().or(current).unwrap_or_default();
        let cluster = merged
            .contexts
            .get(context)
            .map(|c| c.value.cluster.clone());
        cluster.ok_or_else(|| RestConfigError(format!("context {context:?} not found")))
    }

    /// Whether there is a context of this name.
    pub fn has_context(&self, name: &str) -> Result<bool, RestConfigError> {
        Ok(self.merge_files()?.contexts.contains_key(name))
    }

    /// The names of all contexts, sorted.
    pub fn context_names(&self) -> Result<Vec<String>, RestConfigError> {
        Ok(self.merge_files()?.contexts.into_keys().collect())
    }

    fn merge_files(&self) -> Result<MergedKubeconfig, RestConfigError> {
        let mut merged = MergedKubeconfig::default();
        let mut looked = Vec::new();
        for (path, required) in self.paths() {
            match read_file(&path) {
                Ok(Some(text)) => merged.add_file(&path, &text)?,
                Ok(None) if !required => {}
                Ok(None) => return Err(kubeconfig_error(&path, "no such file")),
                Err(e) => return Err(kubeconfig_error(&path, e)),
            }
            looked.push(path.display().to_string());
        }
        if merged.first_path.is_none() {
            let message = match looked.as_slice() {
                [] => "no kubeconfig specified".to_owned(),
                paths => format!("kubeconfig not found at {}", paths.join(", ")),
            };
            return Err(RestConfigError(message));
        }
        Ok(merged)
    }

    fn paths(&self) -> Vec<(PathBuf, bool)> {
        if let Some(path) = &self.explicit_path {
            return vec![(path.clone(), true)];
        }
        if let Some(list) = &self.kubeconfig_variable {
            let paths = std::env::split_paths(list).filter(|p| !p.as_os_str().is_empty());
            return paths.map(|p| (p, false)).collect();
        }
        let home = self.home.iter();
        home.map(|h| (h.join(".kube").join("config"), false))
            .collect()
    }
}

fn kubeconfig_error(path: &Path, reason: impl Display) -> RestConfigError {
    RestConfigError(format!("kubeconfig {}: {reason}", path.display()))
}

/// `None`: the file does not exist.
fn read_file(path: &Path) -> Result<Option<String>, String> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.len() > MAX_KUBECONFIG_BYTES => {
            return Err("file is larger than 16 MiB".into());
        }
        Ok(metadata) if metadata.is_dir() => return Err("is a directory".into()),
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
struct KubeconfigFile {
    clusters: Option<Vec<NamedCluster>>,
    users: Option<Vec<NamedAuthInfo>>,
    contexts: Option<Vec<NamedContext>>,
    #[serde(rename = "current-context")]
    current_context: Option<String>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    #[serde(default)]
    cluster: Option<KubeconfigCluster>,
}

#[derive(Deserialize)]
struct NamedAuthInfo {
    name: String,
    #[serde(default)]
    user: Option<KubeconfigUser>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    #[serde(default)]
    context: Option<KubeconfigContext>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct KubeconfigCluster {
    server: Option<String>,
    tls_server_name: Option<String>,
    insecure_skip_tls_verify: bool,
    certificate_authority: Option<String>,
    certificate_authority_data: Option<String>,
    proxy_url: Option<String>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct KubeconfigUser {
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
    auth_provider: Option<AuthProviderConfig>,
    exec: Option<KubeconfigExecConfig>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct AuthProviderConfig {
    name: String,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct KubeconfigExecConfig {
    api_version: Option<String>,
    command: String,
    args: Option<Vec<String>>,
    env: Option<Vec<ExecEnvVar>>,
    install_hint: Option<String>,
    provide_cluster_info: bool,
    interactive_mode: Option<String>,
}

#[derive(Clone, Deserialize)]
struct ExecEnvVar {
    name: String,
    #[serde(default)]
    value: String,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct KubeconfigContext {
    cluster: String,
    user: String,
    namespace: Option<String>,
}

/// An entry and the file it came from, for messages and relative paths.
struct KubeconfigEntryWithFilePath<T> {
    path: PathBuf,
    value: T,
}

/// The merged files. Of entries with the same name the first file's wins (client-go's
/// loading rules).
#[derive(Default)]
struct MergedKubeconfig {
    first_path: Option<PathBuf>,
    clusters: BTreeMap<String, KubeconfigEntryWithFilePath<KubeconfigCluster>>,
    users: BTreeMap<String, KubeconfigEntryWithFilePath<KubeconfigUser>>,
    contexts: BTreeMap<String, KubeconfigEntryWithFilePath<KubeconfigContext>>,
    current_context: Option<KubeconfigEntryWithFilePath<String>>,
}

fn merge_entries<T: Default>(
    into: &mut BTreeMap<String, KubeconfigEntryWithFilePath<T>>,
    path: &Path,
    entries: impl Iterator<Item = (String, Option<T>)>,
) {
    for (name, entry) in entries {
        into.entry(name)
            .or_insert_with(|| KubeconfigEntryWithFilePath {
                path: path.to_owned(),
                value: entry.unwrap_or_default(),
            });
    }
}

impl MergedKubeconfig {
    fn add_file(&mut self, path: &Path, text: &str) -> Result<(), RestConfigError> {
        let file = match text.trim().is_empty() {
            true => KubeconfigFile::default(),
            false => parse_file(path, text)?,
        };
        self.first_path.get_or_insert_with(|| path.to_owned());
        let clusters = file.clusters.unwrap_or_default().into_iter();
        merge_entries(
            &mut self.clusters,
            path,
            clusters.map(|c| (c.name, c.cluster)),
        );
        let users = file.users.unwrap_or_default().into_iter();
        merge_entries(&mut self.users, path, users.map(|u| (u.name, u.user)));
        let contexts = file.contexts.unwrap_or_default().into_iter();
        merge_entries(
            &mut self.contexts,
            path,
            contexts.map(|c| (c.name, c.context)),
        );
        if self.current_context.is_none() {
            let named = file.current_context.filter(|c| !c.is_empty());
            self.current_context = named.map(|entry| KubeconfigEntryWithFilePath {
                path: path.to_owned(),
                value: entry,
            });
        }
        Ok(())
    }

    fn resolve_context(&self, context_name: Option<&str>) -> Result<RestConfig, RestConfigError> {
        let first = self.first_path.clone().unwrap_or_default();
        let (name, path) = match (context_name, &self.current_context) {
            (Some(name), _) => (name, &first),
            (None, Some(current)) => (current.value.as_str(), &current.path),
            (None, None) => {
                let reason = format!(
                    "no current-context; name one of {}",
                    list_names(&self.contexts)
                );
                return Err(kubeconfig_error(&first, reason));
            }
        };
        let context = self.contexts.get(name).ok_or_else(|| {
            let have = list_names(&self.contexts);
            kubeconfig_error(path, format!("context {name:?} not found (have {have})"))
        })?;
        let missing = |what: &str, named: &str, have: String| {
            let reason = format!("context {name:?}: {what} {named:?} not found (have {have})");
            kubeconfig_error(&context.path, reason)
        };
        let cluster_name = &context.value.cluster;
        let cluster = self
            .clusters
            .get(cluster_name)
            .ok_or_else(|| missing("cluster", cluster_name, list_names(&self.clusters)))?;
        let mut config = cluster.config(cluster_name)?;
        let user_name = &context.value.user;
        if !user_name.is_empty() {
            let user = self
                .users
                .get(user_name)
                .ok_or_else(|| missing("user", user_name, list_names(&self.users)))?;
            config.auth = user.auth(user_name)?;
            config.impersonate = user.impersonate(user_name)?;
        }
        if let Some(namespace) = non_empty(&context.value.namespace) {
            config.namespace = namespace;
        }
        Ok(config)
    }
}

fn parse_file(path: &Path, text: &str) -> Result<KubeconfigFile, RestConfigError> {
    serde_saphyr::from_str(text).map_err(|e| {
        // The parser's text may quote a line of the file, and with it a secret.
        let at = e.location();
        let location = at.map(|l| format!(" at line {} column {}", l.line(), l.column()));
        kubeconfig_error(
            path,
            format!("not a kubeconfig{}", location.unwrap_or_default()),
        )
    })
}

fn list_names<T>(entries: &BTreeMap<String, T>) -> String {
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

fn non_empty(text: &Option<String>) -> Option<String> {
    text.clone().filter(|t| !t.is_empty())
}

impl<T> KubeconfigEntryWithFilePath<T> {
    /// A relative path is relative to the file.
    fn resolve_path(&self, path: &str) -> PathBuf {
        match self.path.parent() {
            Some(folder) => folder.join(path),
            None => PathBuf::from(path),
        }
    }

    /// Inline data takes precedence over a file.
    fn read_data(
        &self,
        what: &str,
        inline: &Option<String>,
        file: &Option<String>,
    ) -> Result<Option<Vec<u8>>, String> {
        if let Some(text) = non_empty(inline) {
            let dense: String = text.split_whitespace().collect();
            let bytes = STANDARD.decode(dense);
            let bytes = bytes.map_err(|_| format!("{what}-data is not base64"))?;
            return Ok(Some(bytes));
        }
        let Some(file) = non_empty(file) else {
            return Ok(None);
        };
        let path = self.resolve_path(&file);
        let bytes = std::fs::read(&path);
        let bytes = bytes.map_err(|e| format!("{what} {}: {e}", path.display()))?;
        Ok(Some(bytes))
    }
}

impl KubeconfigEntryWithFilePath<KubeconfigCluster> {
    fn config(&self, name: &str) -> Result<RestConfig, RestConfigError> {
        let fail =
            |reason: String| kubeconfig_error(&self.path, format!("cluster {name:?}: {reason}"));
        let own = &self.value;
        let server = non_empty(&own.server).ok_or_else(|| fail("no server".into()))?;
        let ca = self
            .read_data(
                "certificate-authority",
                &own.certificate_authority_data,
                &own.certificate_authority,
            )
            .map_err(fail)?;
        if own.insecure_skip_tls_verify && ca.is_some() {
            let reason =
                "specifying a root certificates file with the insecure flag is not allowed";
            return Err(fail(reason.into()));
        }
        let mut config = RestConfig::new("https://localhost")?;
        config.server = parse_server_url(&server).map_err(fail)?;
        config.ca = ca;
        config.insecure_skip_tls_verify = own.insecure_skip_tls_verify;
        config.tls_server_name = non_empty(&own.tls_server_name);
        if let Some(proxy) = non_empty(&own.proxy_url) {
            config.proxy = Some(ProxyUrl::parse(&proxy).map_err(fail)?);
        }
        Ok(config)
    }
}

impl KubeconfigEntryWithFilePath<KubeconfigUser> {
    fn auth(&self, name: &str) -> Result<AuthInfo, RestConfigError> {
        let fail =
            |reason: String| kubeconfig_error(&self.path, format!("user {name:?}: {reason}"));
        let own = &self.value;
        if let Some(provider) = &own.auth_provider {
            return Err(fail(format!(
                "auth-provider {:?} is no longer supported by Kubernetes; use an exec plugin",
                provider.name
            )));
        }
        let certificate = self
            .read_data(
                "client-certificate",
                &own.client_certificate_data,
                &own.client_certificate,
            )
            .map_err(fail)?;
        let key = self
            .read_data("client-key", &own.client_key_data, &own.client_key)
            .map_err(fail)?;
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some(ClientCertificate {
                certificate,
                key: Redacted(key),
            }),
            (None, None) => None,
            (Some(_), None) => return Err(fail("client-certificate without client-key".into())),
            (None, Some(_)) => return Err(fail("client-key without client-certificate".into())),
        };
        let exec = own.exec.as_ref().map(|e| self.exec(e)).transpose();
        let auth = AuthInfo {
            client_certificate: identity,
            token: non_empty(&own.token).map(Redacted),
            token_file: non_empty(&own.token_file).map(|f| self.resolve_path(&f)),
            basic: non_empty(&own.username)
                .map(|user| (user, Redacted(own.password.clone().unwrap_or_default()))),
            exec: exec.map_err(fail)?,
        };
        let bearer = auth.token.is_some() || auth.token_file.is_some();
        if bearer && auth.basic.is_some() {
            return Err(fail("more than one authentication method found: token and username; only one is allowed".into()));
        }
        Ok(auth)
    }

    fn exec(&self, entry: &KubeconfigExecConfig) -> Result<ExecConfig, String> {
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
            true => self.resolve_path(&entry.command),
            false => PathBuf::from(&entry.command),
        };
        let env = entry.env.clone().unwrap_or_default().into_iter();
        Ok(ExecConfig {
            api_version: version,
            command,
            args: entry.args.clone().unwrap_or_default(),
            env: Redacted(env.map(|e| (e.name, e.value)).collect()),
            install_hint: entry.install_hint.clone().unwrap_or_default(),
            provide_cluster_info: entry.provide_cluster_info,
        })
    }

    fn impersonate(&self, name: &str) -> Result<Option<ImpersonationConfig>, RestConfigError> {
        let own = &self.value;
        let who = ImpersonationConfig {
            user: own.act_as.clone().unwrap_or_default(),
            uid: own.as_uid.clone().unwrap_or_default(),
            groups: own.as_groups.clone().unwrap_or_default(),
            extra: own.as_user_extra.clone().unwrap_or_default(),
        };
        if who == ImpersonationConfig::default() {
            return Ok(None);
        }
        if who.user.is_empty() {
            let reason = format!(
                "user {name:?}: requesting uid, groups or user-extra without impersonating a user"
            );
            return Err(kubeconfig_error(&self.path, reason));
        }
        Ok(Some(who))
    }
}

#[cfg(test)]
mod tests;

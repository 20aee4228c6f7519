//! The credentials of requests: the Authorization header and the client certificate,
//! refreshed from token files and exec plugins (with a timeout). Errors never quote what
//! was read.

use std::process::Stdio;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::config::{AuthInfo, ClientCertificate, ExecConfig, Redacted, RestConfig};

/// As in client-go, a token file is re-read after a minute.
const TOKEN_FILE_MAX_AGE: Duration = Duration::from_secs(60);
const EXEC_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_EXEC_OUTPUT_BYTES: u64 = 1 << 20;
/// Credentials are renewed this long before they expire.
const EXPIRY_MARGIN: jiff::SignedDuration = jiff::SignedDuration::from_secs(10);

/// The credentials from an exec plugin.
#[derive(Clone, Debug, Default)]
struct ExecPluginCredentials {
    token: Option<Redacted<String>>,
    client_certificate: Option<ClientCertificate>,
    expires: Option<Timestamp>,
}

#[derive(Default)]
struct CredentialCache {
    token_file: Option<(Instant, HeaderValue)>,
    exec: Option<ExecPluginCredentials>,
}

pub(super) struct ClientCredentials {
    auth: AuthInfo,
    /// The value of `KUBERNETES_EXEC_INFO`.
    exec_info: String,
    /// Held while a file is read or a plugin runs, so that this happens once.
    cache: Mutex<CredentialCache>,
}

impl ClientCredentials {
    pub(super) fn new(config: &RestConfig) -> Self {
        let info = config.auth.exec.as_ref().map(|exec| {
            let mut spec = json!({"interactive": false});
            if exec.provide_cluster_info {
                spec["cluster"] = json!({
                    "server": config.server.to_string(),
                    "insecure-skip-tls-verify": config.insecure_skip_tls_verify,
                    "tls-server-name": config.tls_server_name,
                    "certificate-authority-data": config.ca.as_ref().map(|ca| STANDARD.encode(ca)),
                });
            }
            json!({"apiVersion": exec.api_version, "kind": "ExecCredential", "spec": spec})
        });
        Self {
            auth: config.auth.clone(),
            exec_info: info.map(|i| i.to_string()).unwrap_or_default(),
            cache: Mutex::default(),
        }
    }

    /// Whether reading the credentials again may give different ones.
    pub(super) fn can_refresh(&self) -> bool {
        self.auth.exec.is_some() || self.auth.token_file.is_some()
    }

    /// Drops the cached credentials after the server refused them.
    pub(super) async fn invalidate(&self) {
        *self.cache.lock().await = CredentialCache::default();
    }

    /// The value of the Authorization header, if any.
    pub(super) async fn authorization_header(&self) -> Result<Option<HeaderValue>, String> {
        if let Some((user, password)) = &self.auth.basic {
            let pair = STANDARD.encode(format!("{user}:{}", password.0));
            return sensitive_header(&format!("Basic {pair}")).map(Some);
        }
        if let Some(path) = &self.auth.token_file {
            let mut cache = self.cache.lock().await;
            if let Some((read, value)) = &cache.token_file
                && read.elapsed() < TOKEN_FILE_MAX_AGE
            {
                return Ok(Some(value.clone()));
            }
            let text = tokio::fs::read_to_string(path).await;
            let text = text.map_err(|e| format!("token file {}: {e}", path.display()))?;
            let value = bearer_header(text.trim())?;
            cache.token_file = Some((Instant::now(), value.clone()));
            return Ok(Some(value));
        }
        if let Some(token) = &self.auth.token {
            return bearer_header(&token.0).map(Some);
        }
        match self.plugin_credentials().await? {
            Some(ExecPluginCredentials {
                token: Some(token), ..
            }) => bearer_header(&token.0).map(Some),
            _ => Ok(None),
        }
    }

    /// The client certificate, if any.
    pub(super) async fn client_certificate(&self) -> Result<Option<ClientCertificate>, String> {
        if self.auth.client_certificate.is_some() {
            return Ok(self.auth.client_certificate.clone());
        }
        Ok(self
            .plugin_credentials()
            .await?
            .and_then(|g| g.client_certificate))
    }

    async fn plugin_credentials(&self) -> Result<Option<ExecPluginCredentials>, String> {
        let Some(exec) = &self.auth.exec else {
            return Ok(None);
        };
        let mut cache = self.cache.lock().await;
        if let Some(credential) = &cache.exec
            && credential
                .expires
                .is_none_or(|e| e > Timestamp::now() + EXPIRY_MARGIN)
        {
            return Ok(Some(credential.clone()));
        }
        let credential = run_exec_plugin(exec, &self.exec_info).await?;
        cache.exec = Some(credential.clone());
        Ok(Some(credential))
    }
}

fn bearer_header(token: &str) -> Result<HeaderValue, String> {
    sensitive_header(&format!("Bearer {token}"))
}

fn sensitive_header(text: &str) -> Result<HeaderValue, String> {
    let value = HeaderValue::from_bytes(text.as_bytes());
    let mut value =
        value.map_err(|_| "credentials hold characters that no header can".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    api_version: String,
    kind: String,
    status: Option<ExecCredentialStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredentialStatus {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    expiration_timestamp: Option<String>,
}

async fn run_exec_plugin(exec: &ExecConfig, info: &str) -> Result<ExecPluginCredentials, String> {
    let named = exec.command.display().to_string();
    let fail = |reason: &dyn std::fmt::Display| format!("exec plugin {named}: {reason}");
    let mut command = Command::new(&exec.command);
    command
        .args(&exec.args)
        .envs(exec.env.0.iter().map(|(k, v)| (k, v)))
        .env("KUBERNETES_EXEC_INFO", info)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound if !exec.install_hint.is_empty() => {
            fail(&format_args!("not found. {}", exec.install_hint))
        }
        std::io::ErrorKind::NotFound => fail(&"not found"),
        _ => fail(&e),
    })?;
    let Some(stdout) = child.stdout.take() else {
        return Err(fail(&"no output"));
    };
    let work = async {
        let mut text = Vec::new();
        stdout
            .take(MAX_EXEC_OUTPUT_BYTES)
            .read_to_end(&mut text)
            .await?;
        let ended = child.wait().await?;
        std::io::Result::Ok((text, ended))
    };
    let done = tokio::time::timeout(EXEC_TIMEOUT, work).await;
    let done = done.map_err(|_| fail(&"did not end within 60 seconds"))?;
    let (text, ended) = done.map_err(|e| fail(&e))?;
    if !ended.success() {
        return Err(fail(&ended));
    }
    parse_exec_credential(exec, &text).map_err(|reason| fail(&reason))
}

fn parse_exec_credential(exec: &ExecConfig, text: &[u8]) -> Result<ExecPluginCredentials, String> {
    let credential: ExecCredential = machinery::json::from_slice(text)
        .map_err(|_| "its output is no ExecCredential".to_owned())?;
    if credential.kind != "ExecCredential" || credential.api_version != exec.api_version {
        return Err(format!(
            "it answered {} {}, asked for ExecCredential {}",
            credential.kind, credential.api_version, exec.api_version
        ));
    }
    let status = credential.status.ok_or("its answer has no status")?;
    let identity = match (status.client_certificate_data, status.client_key_data) {
        (Some(certificate), Some(key)) => Some(ClientCertificate {
            certificate: certificate.into_bytes(),
            key: Redacted(key.into_bytes()),
        }),
        (None, None) => None,
        _ => return Err("its answer has half of a certificate and key".into()),
    };
    let token = status.token.filter(|t| !t.is_empty()).map(Redacted);
    if token.is_none() && identity.is_none() {
        return Err("its answer has neither token nor certificate".into());
    }
    let expires = match status.expiration_timestamp {
        None => None,
        Some(text) => {
            let at = text.parse::<Timestamp>();
            Some(at.map_err(|_| "its expirationTimestamp is not RFC 3339".to_owned())?)
        }
    };
    Ok(ExecPluginCredentials {
        token,
        client_certificate: identity,
        expires,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn with_script(dir: &tempfile::TempDir, script: &str) -> RestConfig {
        let path = dir.path().join("plugin.sh");
        std::fs::write(&path, script).unwrap();
        let mut config = RestConfig::new("h").unwrap();
        config.auth.exec = Some(ExecConfig {
            api_version: "client.authentication.k8s.io/v1".into(),
            command: PathBuf::from("sh"),
            args: vec![path.display().to_string()],
            env: Redacted(vec![("WHO".into(), "me".into())]),
            install_hint: "install it".into(),
            provide_cluster_info: true,
        });
        config
    }

    fn answer(status: &str) -> String {
        format!(
            r#"echo x >> "$(dirname "$0")/runs"; echo '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{status}}}'"#
        )
    }

    fn runs(dir: &tempfile::TempDir) -> usize {
        std::fs::read(dir.path().join("runs")).map_or(0, |r| r.len() / 2)
    }

    #[tokio::test]
    async fn a_plugin_runs_once_until_its_credentials_expire_or_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let config = with_script(
            &dir,
            &answer(r#"{"token":"t","expirationTimestamp":"2999-01-01T00:00:00Z"}"#),
        );
        let credentials = ClientCredentials::new(&config);
        for _ in 0..2 {
            assert_eq!(
                credentials.authorization_header().await.unwrap().unwrap(),
                "Bearer t"
            );
        }
        assert_eq!(runs(&dir), 1);
        credentials.invalidate().await;
        credentials.authorization_header().await.unwrap();
        assert_eq!(runs(&dir), 2);
        let config = with_script(
            &dir,
            &answer(r#"{"token":"t","expirationTimestamp":"2000-01-01T00:00:00Z"}"#),
        );
        let credentials = ClientCredentials::new(&config);
        credentials.authorization_header().await.unwrap();
        credentials.authorization_header().await.unwrap();
        assert_eq!(runs(&dir), 4);
    }

    #[tokio::test]
    async fn a_plugin_that_misbehaves_is_named_and_not_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let table = [
            ("echo sesame".to_owned(), "its output is no ExecCredential"),
            ("exit 3".to_owned(), "exit status: 3"),
            (answer("{}"), "its answer has neither token nor certificate"),
            (
                answer(r#"{"clientKeyData":"sesame"}"#),
                "half of a certificate",
            ),
            (
                answer(r#"{"token":"sesame","expirationTimestamp":"x"}"#),
                "not RFC 3339",
            ),
            (
                r#"test "$WHO" = me && echo "$KUBERNETES_EXEC_INFO" | grep -q https://h && exit 9"#
                    .to_owned(),
                "exit status: 9",
            ),
        ];
        for (script, expected) in table {
            let error = ClientCredentials::new(&with_script(&dir, &script))
                .authorization_header()
                .await
                .unwrap_err();
            assert!(
                error.starts_with("exec plugin sh: ") && error.contains(expected),
                "{error}"
            );
            assert!(!error.contains("sesame"));
        }
        let mut config = with_script(&dir, "");
        config.auth.exec.as_mut().unwrap().command = "/nowhere/plugin".into();
        let error = ClientCredentials::new(&config)
            .authorization_header()
            .await
            .unwrap_err();
        assert_eq!(error, "exec plugin /nowhere/plugin: not found. install it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_file_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let mut config = RestConfig::new("h").unwrap();
        config.auth.token_file = Some(path.clone());
        let credentials = ClientCredentials::new(&config);
        assert!(credentials.authorization_header().await.is_err());
        std::fs::write(&path, "one\n").unwrap();
        assert_eq!(
            credentials.authorization_header().await.unwrap().unwrap(),
            "Bearer one"
        );
        std::fs::write(&path, "two\n").unwrap();
        assert_eq!(
            credentials.authorization_header().await.unwrap().unwrap(),
            "Bearer one"
        );
        tokio::time::advance(TOKEN_FILE_MAX_AGE).await;
        assert_eq!(
            credentials.authorization_header().await.unwrap().unwrap(),
            "Bearer two"
        );
    }
}

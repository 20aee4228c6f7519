//! The API server of the cluster in which this process runs as a pod, from the
//! environment and the mounted service account (client-go's `rest.InClusterConfig`).

use std::path::{Path, PathBuf};

use super::config::{RestConfig, RestConfigError};

const SERVICE_ACCOUNT_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A pod's environment: the API server's address and the service account's files.
#[derive(Clone, Debug)]
pub struct InClusterEnvironment {
    /// `KUBERNETES_SERVICE_HOST`
    pub host: String,
    /// `KUBERNETES_SERVICE_PORT`
    pub port: String,
    /// The folder with `token`, `ca.crt` and `namespace`.
    pub service_account_dir: PathBuf,
}

impl InClusterEnvironment {
    /// Reads the environment variables; the error says that this process does not run in
    /// a pod.
    pub fn from_environment() -> Result<Self, RestConfigError> {
        let variable = |name: &str| {
            let value = std::env::var(name).ok().filter(|v| !v.is_empty());
            value.ok_or_else(|| {
                RestConfigError(format!(
                    "{name} is not set: this process does not run in a pod of a cluster; name a kubeconfig instead"
                ))
            })
        };
        Ok(Self {
            host: variable("KUBERNETES_SERVICE_HOST")?,
            port: variable("KUBERNETES_SERVICE_PORT")?,
            service_account_dir: Path::new(SERVICE_ACCOUNT_DIR).into(),
        })
    }

    /// The namespace of the pod.
    pub fn namespace(&self) -> Option<String> {
        let text = std::fs::read_to_string(self.service_account_dir.join("namespace")).ok()?;
        Some(text.trim().to_owned()).filter(|n| !n.is_empty())
    }

    /// The API server with the service account's credentials. The token file is re-read
    /// as it is renewed.
    pub fn load(&self) -> Result<RestConfig, RestConfigError> {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        let mut config = RestConfig::new(&format!("https://{host}:{}", self.port))?;
        let (ca, token) = (
            self.service_account_dir.join("ca.crt"),
            self.service_account_dir.join("token"),
        );
        let unreadable =
            |path: &Path, e| RestConfigError(format!("cannot read {}: {e}", path.display()));
        config.ca = Some(std::fs::read(&ca).map_err(|e| unreadable(&ca, e))?);
        std::fs::metadata(&token).map_err(|e| unreadable(&token, e))?;
        config.auth.token_file = Some(token);
        if let Some(namespace) = self.namespace() {
            config.namespace = namespace;
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_finds_its_server() {
        let dir = tempfile::tempdir().unwrap();
        let mut pod = InClusterEnvironment {
            host: "fd00::1".into(),
            port: "443".into(),
            service_account_dir: dir.path().into(),
        };
        let missing = pod.load().unwrap_err().to_string();
        assert!(missing.contains("ca.crt"), "{missing}");
        for (name, text) in [("ca.crt", "ca"), ("token", "t"), ("namespace", "ns\n")] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let config = pod.load().unwrap();
        assert_eq!(config.server.to_string(), "https://[fd00::1]:443/");
        assert_eq!(config.namespace, "ns");
        assert_eq!(config.auth.token_file, Some(dir.path().join("token")));
        pod.host = "10.0.0.1".into();
        let config = pod.load().unwrap();
        assert_eq!(config.server.to_string(), "https://10.0.0.1:443/");
    }
}

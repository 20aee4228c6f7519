//! TLS to estimators, configured by files.
//!
//! The files are read for each connection, so that renewed certificates are used. Source
//! of the rules: Karmada's `pkg/util/grpcconnection/config.go`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::remote::{ClientCertificate, Redacted, RestConfig, tls_client};
use tokio_rustls::TlsConnector;

/// TLS files. The flags enable TLS only with a CA or with `insecure`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EstimatorTlsClientConfig {
    pub ca: Option<PathBuf>,
    /// Client certificate presented to estimators, with its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Skips the verification of server certificates.
    pub insecure: bool,
}

impl EstimatorTlsClientConfig {
    /// Reads all files; the error names the one that fails.
    pub fn check(&self) -> Result<(), String> {
        self.connector().map(drop)
    }

    pub(crate) fn connector(&self) -> Result<TlsConnector, String> {
        let mut config = RestConfig::new("https://estimator").map_err(|e| e.to_string())?;
        config.insecure_skip_tls_verify = self.insecure;
        if let Some(ca) = &self.ca {
            config.ca = Some(read(ca)?);
        }
        let identity = match &self.certificate {
            None => None,
            Some((certificate, key)) => Some(ClientCertificate {
                certificate: read(certificate)?,
                key: Redacted(read(key)?),
            }),
        };
        let tls = tls_client(&config, identity.as_ref(), &[b"h2"])?;
        Ok(TlsConnector::from(Arc::new(tls)))
    }
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    let read = std::fs::read(file);
    read.map_err(|e| format!("{}: {e}", file.display()))
}

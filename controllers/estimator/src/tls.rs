//! TLS to estimators, out of files.
//!
//! The files are read with each connection, so that what was renewed is used. Source of
//! the rules: Karmada's `pkg/util/grpcconnection/config.go`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::remote::{Config, Identity, Secret, tls_client};
use tokio_rustls::TlsConnector;

/// The files of TLS; without a CA and with verification there is no TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    pub ca: Option<PathBuf>,
    /// Shown to estimators, with its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The certificates of estimators are not verified.
    pub insecure: bool,
}

impl Files {
    /// Reads them; the error names the file.
    pub fn check(&self) -> Result<(), String> {
        self.connector().map(drop)
    }

    pub(crate) fn connector(&self) -> Result<TlsConnector, String> {
        let mut config = Config::new("https://estimator").map_err(|e| e.to_string())?;
        config.insecure = self.insecure;
        if let Some(ca) = &self.ca {
            config.ca = Some(read(ca)?);
        }
        let identity = match &self.certificate {
            None => None,
            Some((certificate, key)) => Some(Identity {
                certificate: read(certificate)?,
                key: Secret(read(key)?),
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

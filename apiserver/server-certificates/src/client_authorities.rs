//! The authorities whose client certificates a standalone server accepts: its own, and those
//! of `--client-ca-file`, which may change while it runs.

use std::path::{Path, PathBuf};

use anyhow::Context;
use auth::pki::Pki;
use auth::x509::CertificateVerifier;

/// Where the authorities come from.
pub struct ClientAuthorities {
    file: Option<PathBuf>,
}

/// A verifier, with the certificates of its authorities.
pub struct ClientAuthorityBundle {
    pub verifier: CertificateVerifier,
    pub bundle_pem: String,
}

impl ClientAuthorities {
    pub fn new(file: Option<PathBuf>) -> Self {
        Self { file }
    }

    /// The file to watch for changes.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The verifier for the server's authority and the present content of the file. A file
    /// that cannot be used is an error: it never means fewer checks.
    pub async fn verifier(&self, pki: &Pki) -> anyhow::Result<ClientAuthorityBundle> {
        let mut bundle_pem = pki.ca_pem.clone();
        if let Some(file) = &self.file {
            let context = || format!("--client-ca-file {}", file.display());
            let pem = tokio::fs::read_to_string(file)
                .await
                .with_context(context)?;
            let checked = CertificateVerifier::from_pem(&pem).map(drop);
            checked.map_err(anyhow::Error::msg).with_context(context)?;
            bundle_pem.push('\n');
            bundle_pem.push_str(&pem);
        }
        let verifier = CertificateVerifier::from_pem(&bundle_pem).map_err(anyhow::Error::msg)?;
        Ok(ClientAuthorityBundle {
            verifier,
            bundle_pem,
        })
    }
}

//! TLS of an estimator's server, configured by files.
//!
//! The files are read for each connection, so that renewed certificates are used. Source
//! of the rules: Karmada's `pkg/util/grpcconnection/config.go`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// The server's certificate, and the authorities of its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EstimatorTlsServerConfig {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Clients must present a certificate that this CA issued; `None`: they are not verified.
    pub client_ca: Option<PathBuf>,
}

impl EstimatorTlsServerConfig {
    /// Reads all files; the error names the one that fails.
    pub fn check(&self) -> Result<(), String> {
        self.acceptor().map(drop)
    }

    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| e.to_string())?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let mut roots = RootCertStore::empty();
                for certificate in read_certificates(file)? {
                    roots.add(certificate).map_err(|e| in_file(file, e))?;
                }
                let clients =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(clients.build().map_err(|e| in_file(file, e))?)
            }
        };
        let chain = read_certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|e| in_file(&self.key, e))?;
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|e| in_file(&self.certificate, e))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = CertificateDer::pem_file_iter(file).map_err(|e| in_file(file, e))?;
    let certificates: Result<Vec<_>, _> = certificates.collect();
    let certificates = certificates.map_err(|e| in_file(file, e))?;
    if certificates.is_empty() {
        return Err(in_file(file, "no certificate"));
    }
    Ok(certificates)
}

fn in_file(file: &Path, error: impl std::fmt::Display) -> String {
    format!("{}: {error}", file.display())
}

//! The keys and certificates with which a standalone server starts.

use std::net::SocketAddr;
use std::sync::Arc;

use auth::certificate_signing::ClusterSigner;
use auth::pki::Pki;
use auth::tls::{ReplaceableServingCertificate, ServingCertificates};
use auth::token::ServiceAccountTokens;
use auth::x509::CertificateVerifier;
use machinery::time::Clock;
use server_certificates::{ClientAuthorities, ServerKeysLocation};

use super::options::StandaloneServerOptions;
use crate::certificate_files::CertificatesOfFiles;
use crate::storage_engine::OpenedStorageEngine;

const KEYS_DIR: &str = "pki";

pub(super) struct ServerPki {
    pub(super) keys: ServerKeysLocation,
    pub(super) pki: Pki,
    /// Signs the tokens of service accounts.
    pub(super) token_signer: Arc<ServiceAccountTokens>,
    /// Certificates of files, or of the keys where no file provides one.
    pub(super) certificates: CertificatesOfFiles,
    /// Signs certificates that clients request.
    pub(super) certificate_signer: Arc<ClusterSigner>,
    pub(super) client_authorities: ClientAuthorities,
    /// The authorities of client certificates, as PEM.
    pub(super) client_ca_pem: String,
}

impl ServerPki {
    /// Opens the keys in the directory, or those that replicas share through the store. The second
    /// value verifies client certificates.
    pub(super) async fn open(
        options: &StandaloneServerOptions<'_>,
        address: SocketAddr,
        engine: &OpenedStorageEngine,
        clock: &dyn Clock,
    ) -> anyhow::Result<(Self, CertificateVerifier)> {
        let mut names = options.names.to_vec();
        names.push(address.ip().to_string());
        let is_shared = options.storage_backend.is_shared();
        let keys = ServerKeysLocation {
            dir: options.dir.join(KEYS_DIR),
            names,
            store: is_shared.then(|| engine.store()),
        };
        let pki = keys.open(clock.now()).await?;
        let token_signer = Arc::new(options.service_account_keys.issuer(&pki)?);
        let certificates = options.certificate_files.read(&pki).await?;
        let signing = &certificates.signing;
        let certificate_signer = ClusterSigner::new(&signing.certificate_pem, &signing.key_pem);
        let certificate_signer = Arc::new(certificate_signer.map_err(anyhow::Error::msg)?);
        let client_authorities = ClientAuthorities::new(options.client_ca_file.clone());
        let client_ca = client_authorities.verifier(&pki).await?;
        let server_pki = Self {
            keys,
            pki,
            token_signer,
            certificates,
            certificate_signer,
            client_authorities,
            client_ca_pem: client_ca.bundle_pem,
        };
        Ok((server_pki, client_ca.verifier))
    }

    /// The certificate of the listener, which a renewal replaces.
    pub(super) fn serving_certificate(&self) -> anyhow::Result<Arc<ReplaceableServingCertificate>> {
        let certificates = &self.certificates;
        let serving = ServingCertificates::new(&certificates.serving, &certificates.by_name);
        let serving = serving.map_err(anyhow::Error::msg)?;
        Ok(ReplaceableServingCertificate::with_certificates(serving))
    }
}

//! TLS of the listener.
//!
//! Every client is asked for a certificate and none is refused: the authenticator
//! decides whether a trusted CA signed it (kube-apiserver's `tls.RequestClientCert`;
//! rustls' own verifier would fail the handshake).

use std::sync::Arc;

use parking_lot::RwLock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};

/// A certificate chain whose key the client proved to possess; its issuer is not
/// verified yet.
#[derive(Clone, Debug, Default)]
pub struct PeerCertificates(Option<Arc<[CertificateDer<'static>]>>);

impl PeerCertificates {
    /// Takes the chain that rustls got in the handshake.
    pub fn new(chain: Option<&[CertificateDer<'static>]>) -> Self {
        Self(
            chain
                .filter(|c| !c.is_empty())
                .map(|c| c.iter().map(|d| d.clone().into_owned()).collect()),
        )
    }

    /// End entity first; empty when the client sent no certificate.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        self.0.as_deref().unwrap_or_default()
    }
}

#[derive(Debug)]
struct PossessionOnlyVerifier(Arc<CryptoProvider>);

impl ClientCertVerifier for PossessionOnlyVerifier {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    // Empty: clients send any certificate, whoever issued it.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The serving certificate, replaceable while in use. It is served for every server
/// name, because clients behind a tunnel may use any.
#[derive(Debug)]
pub struct ReplaceableServingCertificate(RwLock<Arc<CertifiedKey>>);

impl ReplaceableServingCertificate {
    /// Fails when the key is unusable or does not match the chain.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Arc<Self>, rustls::Error> {
        Ok(Arc::new(Self(RwLock::new(certified_key(chain, key)?))))
    }

    /// Replaces the certificate for new connections.
    pub fn replace(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<(), rustls::Error> {
        *self.0.write() = certified_key(chain, key)?;
        Ok(())
    }
}

fn certified_key(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<CertifiedKey>, rustls::Error> {
    CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).map(Arc::new)
}

impl ResolvesServerCert for ReplaceableServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read()))
    }
}

/// TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1 by ALPN; client certificates are optional.
pub fn server_config(
    certificate: Arc<ReplaceableServingCertificate>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(Arc::new(PossessionOnlyVerifier(provider)))
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

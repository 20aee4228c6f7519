//! TLS of the listener.
//!
//! Enters: the serving certificate and key. Leaves: a rustls configuration that
//! asks every client for a certificate and refuses none: who it is, and whether
//! its authority is known, is decided by the authenticator (kube-apiserver's
//! `tls.RequestClientCert`; rustls' own verifier would end the handshake).

use std::sync::Arc;

use parking_lot::RwLock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};

/// The certificate chain a client proved to possess; nothing is known yet of who
/// issued it.
#[derive(Clone, Debug, Default)]
pub struct Peer(Option<Arc<[CertificateDer<'static>]>>);

impl Peer {
    /// From what rustls keeps of the handshake.
    pub fn new(chain: Option<&[CertificateDer<'static>]>) -> Self {
        Self(
            chain
                .filter(|c| !c.is_empty())
                .map(|c| c.iter().map(|d| d.clone().into_owned()).collect()),
        )
    }

    /// End entity first; empty when the client showed none.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        self.0.as_deref().unwrap_or_default()
    }
}

#[derive(Debug)]
struct PossessionOnly(Arc<CryptoProvider>);

impl ClientCertVerifier for PossessionOnly {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    // Empty: clients send what they have, whatever pool it belongs to.
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

/// The serving certificate; it can be replaced while it is in use. Names play no
/// part: whoever reaches us through a tunnel may ask for any.
#[derive(Debug)]
pub struct Certificate(RwLock<Arc<CertifiedKey>>);

impl Certificate {
    /// Fails when the key cannot be used or does not belong to the chain.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Arc<Self>, rustls::Error> {
        Ok(Arc::new(Self(RwLock::new(certified(chain, key)?))))
    }

    /// Connections made from now on see the new one.
    pub fn replace(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<(), rustls::Error> {
        *self.0.write() = certified(chain, key)?;
        Ok(())
    }
}

fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<CertifiedKey>, rustls::Error> {
    CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).map(Arc::new)
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read()))
    }
}

/// TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1 through ALPN, client certificates asked
/// for and not required.
pub fn server_config(certificate: Arc<Certificate>) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(Arc::new(PossessionOnly(provider)))
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

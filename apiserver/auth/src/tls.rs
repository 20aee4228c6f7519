//! TLS of the listener.
//!
//! Every client is asked for a certificate and none is refused: the authenticator
//! decides whether a trusted CA signed it (kube-apiserver's `tls.RequestClientCert`;
//! rustls' own verifier would fail the handshake).

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};

use crate::pki::{CertKeyPair, san_and_public_key};

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

/// The certificates of a listener: one for each of some server names, and the default one,
/// because clients behind a tunnel may use any name.
#[derive(Debug)]
pub struct ServingCertificates {
    default: Arc<CertifiedKey>,
    /// By server name in lower case, which may begin with the label `*`.
    by_name: HashMap<String, Arc<CertifiedKey>>,
}

/// A certificate that is served for some server names (`--tls-sni-cert-key`).
#[derive(Clone, PartialEq, Eq)]
pub struct SniCertificate {
    /// Empty: the names in the certificate.
    pub names: Vec<String>,
    pub pair: CertKeyPair,
}

impl ServingCertificates {
    /// Fails when a key is unusable or does not match its chain. Names that are given come
    /// before those in certificates, and earlier certificates before later ones.
    pub fn new(default: &CertKeyPair, by_name: &[SniCertificate]) -> Result<Self, String> {
        let mut certificates = Self {
            default: key_of_pair(default)?,
            by_name: HashMap::new(),
        };
        let (with_names, without_names): (Vec<_>, Vec<_>) =
            by_name.iter().partition(|sni| !sni.names.is_empty());
        for sni in with_names.into_iter().chain(without_names) {
            let key = key_of_pair(&sni.pair)?;
            let names = match sni.names.is_empty() {
                false => sni.names.clone(),
                true => names_in_certificate(&key)?,
            };
            for name in names {
                let entry = certificates.by_name.entry(name.to_ascii_lowercase());
                entry.or_insert_with(|| Arc::clone(&key));
            }
        }
        Ok(certificates)
    }

    /// The certificate for a server name. A certificate of the exact name precedes one with `*` as
    /// the first label, and that one precedes the default.
    fn for_name(&self, name: Option<&str>) -> &Arc<CertifiedKey> {
        let Some(name) = name.filter(|_| !self.by_name.is_empty()) else {
            return &self.default;
        };
        let name = name.to_ascii_lowercase();
        let exact = self.by_name.get(&name);
        let certificate = exact.or_else(|| {
            let (_, parent) = name.split_once('.')?;
            self.by_name.get(&format!("*.{parent}"))
        });
        certificate.unwrap_or(&self.default)
    }
}

fn key_of_pair(pair: &CertKeyPair) -> Result<Arc<CertifiedKey>, String> {
    let chain = CertificateDer::pem_slice_iter(pair.certificate_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| format!("the certificate is not PEM: {e}"))?;
    let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes())
        .map_err(|e| format!("the private key is not PEM: {e}"))?;
    certified_key(chain, key).map_err(|e| e.to_string())
}

fn names_in_certificate(key: &CertifiedKey) -> Result<Vec<String>, String> {
    let leaf = key.cert.first().ok_or("there is no certificate")?;
    let (names, _) = san_and_public_key(leaf)?;
    Ok(names.into_iter().collect())
}

/// The certificates of a listener, replaceable while in use.
#[derive(Debug)]
pub struct ReplaceableServingCertificate(RwLock<Arc<ServingCertificates>>);

impl ReplaceableServingCertificate {
    /// One certificate for every server name. Fails when the key is unusable or does not
    /// match the chain.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Arc<Self>, rustls::Error> {
        Ok(Self::with_certificates(only(chain, key)?))
    }

    pub fn with_certificates(certificates: ServingCertificates) -> Arc<Self> {
        Arc::new(Self(RwLock::new(Arc::new(certificates))))
    }

    /// Replaces the certificate for new connections.
    pub fn replace(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<(), rustls::Error> {
        self.replace_all(only(chain, key)?);
        Ok(())
    }

    /// Replaces the certificates for new connections.
    pub fn replace_all(&self, certificates: ServingCertificates) {
        *self.0.write() = Arc::new(certificates);
    }
}

fn only(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServingCertificates, rustls::Error> {
    Ok(ServingCertificates {
        default: certified_key(chain, key)?,
        by_name: HashMap::new(),
    })
}

fn certified_key(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<CertifiedKey>, rustls::Error> {
    CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).map(Arc::new)
}

impl ResolvesServerCert for ReplaceableServingCertificate {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let certificates = Arc::clone(&self.0.read());
        Some(Arc::clone(certificates.for_name(hello.server_name())))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::Pki;

    #[test]
    fn the_certificate_of_a_server_name_is_chosen() {
        let now = jiff::Timestamp::now();
        let pair = |names: &[&str]| {
            let dir = tempfile::tempdir().unwrap();
            let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
            Pki::open(dir.path(), &names, now).unwrap().serving
        };
        let default_pair = pair(&[]);
        let sni = |names: &[&str], pair: CertKeyPair| SniCertificate {
            names: names.iter().map(|n| (*n).to_owned()).collect(),
            pair,
        };
        let (extracted, with_names) = (pair(&["a.example", "b.example"]), pair(&["c.example"]));
        let all = [
            sni(&[], extracted.clone()),
            sni(&["B.example", "*.wild.example"], with_names.clone()),
        ];
        let certificates = ServingCertificates::new(&default_pair, &all).unwrap();
        for (name, expected) in [
            (None, &default_pair),
            (Some("other.example"), &default_pair),
            (Some("A.example"), &extracted),
            (Some("b.example"), &with_names),
            (Some("x.wild.example"), &with_names),
            (Some("x.y.wild.example"), &default_pair),
            (Some("c.example"), &default_pair),
        ] {
            let served = certificates.for_name(name);
            let expected = key_of_pair(expected).unwrap();
            assert_eq!(served.cert, expected.cert, "{name:?}");
        }
        let mixed_pair = CertKeyPair {
            certificate_pem: default_pair.certificate_pem,
            key_pem: with_names.key_pem,
        };
        assert!(ServingCertificates::new(&mixed_pair, &[]).is_err());
    }
}

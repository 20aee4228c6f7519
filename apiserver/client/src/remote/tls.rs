//! The TLS configuration of a client: roots, client certificate and ALPN protocols.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use super::config::{ClientCertificate, RestConfig};
use super::server_verifier::AuthorityOrLeafVerifier;

/// HTTP/2 preferred over HTTP/1.1.
pub(super) const ALPN_HTTP2_OR_HTTP1: &[&[u8]] = &[b"h2", b"http/1.1"];
/// For a connection that will be upgraded.
pub(super) const ALPN_HTTP1: &[&[u8]] = &[b"http/1.1"];

/// A TLS client configuration that offers `protocols` by ALPN. The error says which
/// setting is unusable.
pub fn client_config(
    config: &RestConfig,
    identity: Option<&ClientCertificate>,
    protocols: &[&[u8]],
) -> Result<ClientConfig, String> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    let builder = if config.insecure_skip_tls_verify {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(InsecureServerVerifier(provider)))
    } else if let Some(pem) = &config.ca {
        let authorities = authorities(pem)?;
        let verifier =
            AuthorityOrLeafVerifier::new(roots(&authorities)?, authorities, Arc::clone(&provider))?;
        let verifier = verifier.with_exceptions(config.tls_exceptions);
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
    } else if !config.tls_exceptions.is_empty() {
        let verifier = AuthorityOrLeafVerifier::new(native_roots(), Vec::new(), provider)?;
        let verifier = verifier.with_exceptions(config.tls_exceptions);
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
    } else {
        builder.with_root_certificates(native_roots())
    };
    let mut tls = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let chain: Result<Vec<_>, _> =
                CertificateDer::pem_slice_iter(&identity.certificate).collect();
            let chain = chain.map_err(|_| "client certificate is not PEM")?;
            if chain.is_empty() {
                return Err("client certificate is not PEM".into());
            }
            let key = PrivateKeyDer::from_pem_slice(&identity.key.0);
            let key = key.map_err(|_| "client key is not PEM")?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|e| format!("client certificate and key: {e}"))?
        }
    };
    tls.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
    // Each connection has its own configuration, so nobody could resume a session; the store
    // for them takes 28 KB.
    tls.resumption = Resumption::disabled();
    Ok(tls)
}

/// The name that the server's certificate has to have, from a host name or an IP address.
pub fn server_name(host: &str) -> Result<ServerName<'static>, String> {
    let name = ServerName::try_from(host.to_owned());
    name.map_err(|_| format!("{host:?} is not a valid server name"))
}

/// The certificates of a bundle, of which there is at least one.
fn authorities(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err("certificate authority is not PEM".into()),
    }
}

fn roots(authorities: &[CertificateDer<'static>]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        let added = roots.add(authority.clone());
        added.map_err(|e| format!("certificate authority: {e}"))?;
    }
    Ok(roots)
}

fn native_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let certificates = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(certificates.certs);
    roots
}

/// `insecure-skip-tls-verify`: accepts any certificate, but the server must still hold
/// its key.
#[derive(Debug)]
struct InsecureServerVerifier(Arc<CryptoProvider>);

impl ServerCertVerifier for InsecureServerVerifier {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
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

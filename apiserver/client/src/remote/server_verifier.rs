//! Verifies the certificates of servers as Go's clients do: a certificate that is itself among the
//! configured authorities is trusted, although it may also sign others.
//!
//! Webhooks commonly serve a self-signed authority and put the same certificate into their
//! `caBundle`. webpki refuses an authority as the certificate of a server.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate};

/// webpki's verifier, and the authorities that a server may present as its own certificate.
#[derive(Debug)]
pub(super) struct AuthorityOrLeafVerifier {
    webpki: Arc<WebPkiServerVerifier>,
    authorities: Vec<CertificateDer<'static>>,
}

impl AuthorityOrLeafVerifier {
    /// `roots` are the same certificates as `authorities`.
    pub(super) fn new(
        roots: RootCertStore,
        authorities: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        Ok(Self {
            webpki: webpki.build().map_err(|e| e.to_string())?,
            authorities,
        })
    }
}

/// Checks what webpki checks of a leaf: its validity, its purpose and its names. The key is
/// proven by the handshake.
fn verify_authority(
    authority: &CertificateDer<'_>,
    server_name: &ServerName<'_>,
    now: UnixTime,
) -> Result<(), CertificateError> {
    let parsed = X509Certificate::from_der(authority);
    let (_, certificate) = parsed.map_err(|_| CertificateError::BadEncoding)?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < certificate.validity().not_before.timestamp() {
        return Err(CertificateError::NotValidYet);
    }
    if now > certificate.validity().not_after.timestamp() {
        return Err(CertificateError::Expired);
    }
    let usage = certificate.extended_key_usage();
    let usage = usage.map_err(|_| CertificateError::BadEncoding)?;
    if usage.is_some_and(|usage| !usage.value.any && !usage.value.server_auth) {
        return Err(CertificateError::InvalidPurpose);
    }
    let names = ParsedCertificate::try_from(authority);
    names
        .and_then(|parsed| verify_server_name(&parsed, server_name))
        .map_err(|error| match error {
            Error::InvalidCertificate(reason) => reason,
            _ => CertificateError::BadEncoding,
        })
}

impl ServerCertVerifier for AuthorityOrLeafVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self
            .authorities
            .iter()
            .any(|authority| authority == end_entity)
        {
            verify_authority(end_entity, server_name, now)?;
            return Ok(ServerCertVerified::assertion());
        }
        let webpki = &self.webpki;
        webpki.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair};

    use super::*;

    fn authority(purposes: &[ExtendedKeyUsagePurpose]) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.extended_key_usages = purposes.to_vec();
        params.not_before = rcgen::date_time_ymd(2025, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026, 1, 1);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }

    /// The verifier's answer about `presented`, trusting `trusted`, at a day of 2025.
    fn verify(
        trusted: &CertificateDer<'static>,
        presented: &CertificateDer<'static>,
        name: &str,
        day: u64,
    ) -> Result<(), Error> {
        let mut roots = RootCertStore::empty();
        roots.add(trusted.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier =
            AuthorityOrLeafVerifier::new(roots, vec![trusted.clone()], provider).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        // 2025-01-01.
        let now = Duration::from_secs(1_735_689_600 + day * 86_400);
        let now = UnixTime::since_unix_epoch(now);
        verifier
            .verify_server_cert(presented, &[], &name, &[], now)
            .map(|_| ())
    }

    #[test]
    fn an_authority_may_serve_within_its_validity_names_and_purpose() {
        let any = authority(&[]);
        verify(&any, &any, "localhost", 3).unwrap();
        let serves = authority(&[ExtendedKeyUsagePurpose::ServerAuth]);
        verify(&serves, &serves, "localhost", 3).unwrap();
        let reason = |result: Result<(), Error>| match result.unwrap_err() {
            Error::InvalidCertificate(reason) => reason,
            other => unreachable!("{other}"),
        };
        let expired = reason(verify(&any, &any, "localhost", 400));
        assert_eq!(expired, CertificateError::Expired);
        let other_name = reason(verify(&any, &any, "example.org", 3));
        let is_name = matches!(
            other_name,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
        );
        assert!(is_name, "{other_name:?}");
        let client_only = authority(&[ExtendedKeyUsagePurpose::ClientAuth]);
        let purpose = reason(verify(&client_only, &client_only, "localhost", 3));
        assert_eq!(purpose, CertificateError::InvalidPurpose);
        let stranger = authority(&[]);
        verify(&any, &stranger, "localhost", 3).unwrap_err();
    }
}

//! Verifies the certificates of servers as Go's clients do: a certificate that is itself among the
//! configured authorities is trusted, although it may also sign others.
//!
//! Webhooks commonly serve a self-signed authority and put the same certificate into their
//! `caBundle`. webpki refuses an authority as the certificate of a server.
//!
//! The name and the validity period can be left out, one by one; the chain is verified in any case.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::config::TlsVerificationExceptions;

/// The most certificates whose validity is tried as the time of the verification.
const MAX_VERIFICATION_TIMES: usize = 8;

/// webpki's verifier, and the authorities that a server may present as its own certificate.
#[derive(Debug)]
pub(super) struct AuthorityOrLeafVerifier {
    webpki: Arc<WebPkiServerVerifier>,
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
    exceptions: TlsVerificationExceptions,
    authorities: Vec<CertificateDer<'static>>,
}

impl AuthorityOrLeafVerifier {
    /// `roots` are the same certificates as `authorities`.
    pub(super) fn new(
        roots: RootCertStore,
        authorities: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let roots = Arc::new(roots);
        let webpki =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        Ok(Self {
            webpki: webpki.build().map_err(|e| e.to_string())?,
            roots,
            provider,
            exceptions: TlsVerificationExceptions::default(),
            authorities,
        })
    }

    /// Leaves out parts of the verification.
    pub(super) fn with_exceptions(self, exceptions: TlsVerificationExceptions) -> Self {
        Self { exceptions, ..self }
    }

    /// Verifies the chain, and of name and validity what is not left out.
    fn verify_with_exceptions(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let verify_chain_at = |time: UnixTime| {
            verify_server_cert_signed_by_trust_anchor(
                &certificate,
                &self.roots,
                intermediates,
                time,
                self.provider.signature_verification_algorithms.all,
            )
        };
        let mut chain = verify_chain_at(now);
        if self.exceptions.validity_period {
            // webpki has no way to leave out the period: the chain is good if there was a time at
            // which all of it was valid, which then begins with one of its certificates.
            let certificates = [end_entity].into_iter().chain(intermediates);
            let begins = certificates.filter_map(begin_of_validity);
            for time in begins.take(MAX_VERIFICATION_TIMES) {
                if chain.is_ok() {
                    break;
                }
                chain = verify_chain_at(time).or(chain);
            }
        }
        chain?;
        match self.exceptions.subject_name {
            true => Ok(()),
            false => verify_server_name(&certificate, server_name),
        }
    }
}

fn begin_of_validity(certificate: &CertificateDer<'_>) -> Option<UnixTime> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let begin = u64::try_from(parsed.validity().not_before.timestamp()).ok()?;
    Some(UnixTime::since_unix_epoch(Duration::from_secs(begin)))
}

/// Checks what webpki checks of a leaf: its validity, its purpose and its names. The key is
/// proven by the handshake.
fn verify_authority(
    authority: &CertificateDer<'_>,
    server_name: &ServerName<'_>,
    now: UnixTime,
    exceptions: TlsVerificationExceptions,
) -> Result<(), CertificateError> {
    let parsed = X509Certificate::from_der(authority);
    let (_, certificate) = parsed.map_err(|_| CertificateError::BadEncoding)?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let is_timed = !exceptions.validity_period;
    if is_timed && now < certificate.validity().not_before.timestamp() {
        return Err(CertificateError::NotValidYet);
    }
    if is_timed && now > certificate.validity().not_after.timestamp() {
        return Err(CertificateError::Expired);
    }
    let usage = certificate.extended_key_usage();
    let usage = usage.map_err(|_| CertificateError::BadEncoding)?;
    if usage.is_some_and(|usage| !usage.value.any && !usage.value.server_auth) {
        return Err(CertificateError::InvalidPurpose);
    }
    if exceptions.subject_name {
        return Ok(());
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
            verify_authority(end_entity, server_name, now, self.exceptions)?;
            return Ok(ServerCertVerified::assertion());
        }
        if !self.exceptions.is_empty() {
            self.verify_with_exceptions(end_entity, intermediates, server_name, now)?;
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
    use rcgen::{
        BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    };

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

    const EXCEPTIONS: [TlsVerificationExceptions; 4] = [
        TlsVerificationExceptions {
            subject_name: false,
            validity_period: false,
        },
        TlsVerificationExceptions {
            subject_name: true,
            validity_period: false,
        },
        TlsVerificationExceptions {
            subject_name: false,
            validity_period: true,
        },
        TlsVerificationExceptions {
            subject_name: true,
            validity_period: true,
        },
    ];

    /// An authority and a leaf of it for `localhost`, both valid during 2025.
    fn authority_and_leaf() -> (CertificateDer<'static>, CertificateDer<'static>) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = rcgen::date_time_ymd(2025, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026, 1, 1);
        let authority = params.self_signed(&key).unwrap().der().clone();
        let mut leaf = CertificateParams::new(["localhost".to_owned()]).unwrap();
        leaf.not_before = rcgen::date_time_ymd(2025, 2, 1);
        leaf.not_after = rcgen::date_time_ymd(2025, 3, 1);
        let leaf_key = KeyPair::generate().unwrap();
        let issuer = Issuer::new(params, &key);
        let leaf = leaf.signed_by(&leaf_key, &issuer).unwrap();
        (authority, leaf.der().clone())
    }

    // proves: TLV-parts, TLV-chain
    #[test]
    fn name_and_validity_are_left_out_one_by_one_and_the_chain_never() {
        let (trusted, leaf) = authority_and_leaf();
        let stranger = authority(&[]);
        let serves = authority(&[]);
        for exceptions in EXCEPTIONS {
            let check = |root: &CertificateDer<'static>,
                         presented: &CertificateDer<'static>,
                         name: &str,
                         day: u64| {
                let mut roots = RootCertStore::empty();
                roots.add(root.clone()).unwrap();
                let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
                let verifier = AuthorityOrLeafVerifier::new(roots, vec![root.clone()], provider);
                let verifier = verifier.unwrap().with_exceptions(exceptions);
                let name = ServerName::try_from(name.to_owned()).unwrap();
                let now = Duration::from_secs(1_735_689_600 + day * 86_400);
                let now = UnixTime::since_unix_epoch(now);
                let result = verifier.verify_server_cert(presented, &[], &name, &[], now);
                result.is_ok()
            };
            let TlsVerificationExceptions {
                subject_name,
                validity_period,
            } = exceptions;
            for (root, presented, valid_day) in [(&trusted, &leaf, 40), (&serves, &serves, 40)] {
                assert!(check(root, presented, "localhost", valid_day));
                assert_eq!(
                    check(root, presented, "example.org", valid_day),
                    subject_name
                );
                assert_eq!(check(root, presented, "localhost", 500), validity_period);
                let both = subject_name && validity_period;
                assert_eq!(check(root, presented, "example.org", 500), both);
            }
            assert!(!check(&stranger, &leaf, "localhost", 40), "{exceptions:?}");
        }
    }
}

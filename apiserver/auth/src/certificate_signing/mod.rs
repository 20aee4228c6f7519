//! Signs certificate requests with the certificate authority of this server. Which requests
//! are signed is decided elsewhere.
//!
//! Facts: `pkg/controller/certificates/authority` of Kubernetes.

pub(crate) mod authority;
mod der;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use machinery::certificate_request::CertificateRequest;
use parking_lot::RwLock;

use authority::{CertificateValidity, SigningAuthority};

/// kube-controller-manager's `--cluster-signing-duration`.
const MAX_LIFETIME: SignedDuration = SignedDuration::from_hours(365 * 24);
const MIN_LIFETIME: SignedDuration = SignedDuration::from_mins(10);
/// Certificates are valid a bit earlier, for clocks that are behind.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);
/// Shorter certificates are not shortened by [`BACKDATE`].
const SHORT_LIFETIME: SignedDuration = SignedDuration::from_hours(8);

/// Signs certificates with an authority that may be renewed.
pub struct ClusterSigner {
    authority: RwLock<Arc<SigningAuthority>>,
}

impl ClusterSigner {
    /// Takes the certificate and the key of the authority, both as PEM.
    pub fn new(ca_pem: &str, ca_key_pem: &str) -> Result<Self, String> {
        Ok(Self {
            authority: RwLock::new(Arc::new(SigningAuthority::new(ca_pem, ca_key_pem)?)),
        })
    }

    /// Signs with a renewed authority from now on.
    pub fn replace_authority(&self, ca_pem: &str, ca_key_pem: &str) -> Result<(), String> {
        *self.authority.write() = Arc::new(SigningAuthority::new(ca_pem, ca_key_pem)?);
        Ok(())
    }

    /// A certificate for the subject, names and key of the request, as PEM.
    pub fn sign(
        &self,
        request: &CertificateRequest,
        usages: &[String],
        expiration_seconds: Option<i64>,
        now: Timestamp,
    ) -> Result<String, String> {
        let authority = Arc::clone(&self.authority.read());
        let validity = validity(&authority, expiration_seconds, now)?;
        authority.sign(request, usages, validity)
    }
}

fn validity(
    authority: &SigningAuthority,
    expiration_seconds: Option<i64>,
    now: Timestamp,
) -> Result<CertificateValidity, String> {
    let lifetime = match expiration_seconds {
        Some(seconds) => SignedDuration::from_secs(seconds).clamp(MIN_LIFETIME, MAX_LIFETIME),
        None => MAX_LIFETIME,
    };
    let shortened = if lifetime < SHORT_LIFETIME {
        lifetime
    } else {
        lifetime - BACKDATE
    };
    let add = |duration| now.checked_add(duration).map_err(|e| e.to_string());
    let not_after = add(shortened)?.min(authority.not_after);
    if not_after <= now {
        return Err("the certificate authority has expired".into());
    }
    Ok(CertificateValidity {
        not_before: add(-BACKDATE)?,
        not_after,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::Pki;
    use crate::x509::{CertificateUsage, CertificateVerifier};
    use rcgen::KeyPair;
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject;
    use x509_parser::prelude::{FromDer, X509Certificate};

    fn now() -> Timestamp {
        Timestamp::from_second(1_790_000_000).unwrap()
    }

    fn fixture() -> (ClusterSigner, CertificateVerifier) {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::open(dir.path(), &[], now()).unwrap();
        let signer = ClusterSigner::new(&pki.ca_pem, pki.ca_key_pem()).unwrap();
        (signer, pki.verifier().unwrap())
    }

    fn request(key: &KeyPair) -> CertificateRequest {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(rcgen::DnType::OrganizationName, "staff");
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "ann");
        params.subject_alt_names = vec![
            rcgen::SanType::DnsName("a.example.com".try_into().unwrap()),
            rcgen::SanType::IpAddress([10, 0, 0, 1].into()),
        ];
        let pem = params.serialize_request(key).unwrap().pem().unwrap();
        CertificateRequest::from_pem(&pem).unwrap()
    }

    fn strings(list: &[&str]) -> Vec<String> {
        list.iter().map(|s| (*s).to_owned()).collect()
    }

    fn chain(pem: &str) -> Vec<CertificateDer<'static>> {
        vec![CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()]
    }

    #[test]
    fn a_signed_certificate_authenticates_its_subject() {
        let (signer, verifier) = fixture();
        for algorithm in [
            &rcgen::PKCS_ECDSA_P256_SHA256,
            &rcgen::PKCS_ECDSA_P384_SHA384,
            &rcgen::PKCS_ED25519,
        ] {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let request = request(&key);
            request.verify_signature().unwrap();
            assert_eq!(request.dns_names, ["a.example.com"]);
            let usages = strings(&["digital signature", "client auth"]);
            let pem = signer.sign(&request, &usages, None, now()).unwrap();
            let chain = chain(&pem);
            let user = verifier.authenticate(&chain, now()).unwrap();
            assert_eq!(user.name, "ann");
            assert!(user.in_group("staff"));
            let seconds = now().as_second() as u64;
            let as_server = verifier.verify_chain(&chain, CertificateUsage::Server, seconds);
            assert!(as_server.is_err());
            let (names, public) = crate::pki::san_and_public_key(&chain[0]).unwrap();
            assert_eq!(
                names.into_iter().collect::<Vec<_>>(),
                ["10.0.0.1", "a.example.com"]
            );
            assert_eq!(public, key.public_key_raw());
            let (_, parsed) = X509Certificate::from_der(&chain[0]).unwrap();
            assert!(!parsed.is_ca());
            assert!(
                parsed
                    .key_usage()
                    .unwrap()
                    .unwrap()
                    .value
                    .digital_signature()
            );
        }
    }

    #[test]
    fn the_lifetime_is_bounded() {
        let (signer, _) = fixture();
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let request = request(&key);
        let usages = strings(&["client auth"]);
        let hour = 60 * 60;
        for (requested, seconds) in [
            (None, 365 * 24 * hour - 300),
            (Some(600), 600),
            (Some(1), 600),
            (Some(7 * hour), 7 * hour),
            (Some(9 * hour), 9 * hour - 300),
            (Some(i64::MAX), 365 * 24 * hour - 300),
        ] {
            let pem = signer.sign(&request, &usages, requested, now()).unwrap();
            let expiry = crate::x509::expiry(&chain(&pem)[0]).unwrap();
            assert_eq!(expiry - now().as_second(), seconds, "{requested:?}");
        }
        let late = now() + SignedDuration::from_hours(24 * 3651);
        assert!(signer.sign(&request, &usages, None, late).is_err());
        let other = strings(&["cert sign"]);
        assert!(signer.sign(&request, &other, None, now()).is_err());
    }
}

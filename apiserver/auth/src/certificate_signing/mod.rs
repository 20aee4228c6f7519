//! Signs certificate requests with the certificate authority of this server. Which requests
//! are signed is decided elsewhere.
//!
//! Facts: `pkg/controller/certificates/authority` of Kubernetes.

mod der;

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use machinery::certificate_request::CertificateRequest;
use parking_lot::RwLock;
use rcgen::{KeyPair, PublicKeyData, SigningKey};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::pki::Pki;
use der::{explicit, implicit};

/// kube-controller-manager's `--cluster-signing-duration`.
const MAX_LIFETIME: SignedDuration = SignedDuration::from_hours(365 * 24);
const MIN_LIFETIME: SignedDuration = SignedDuration::from_mins(10);
/// Certificates are valid a bit earlier, for clocks that are behind.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);
/// Shorter certificates are not shortened by [`BACKDATE`].
const SHORT_LIFETIME: SignedDuration = SignedDuration::from_hours(8);

const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const ECDSA_WITH_SHA384: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const SUBJECT_ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const AUTHORITY_KEY_IDENTIFIER: &[u8] = &[0x55, 0x1d, 0x23];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const SERVER_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
const CLIENT_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];
const DIGITAL_SIGNATURE_BIT: u8 = 0x80;
const KEY_ENCIPHERMENT_BIT: u8 = 0x20;

/// The certificate authority that signs, with what its certificate says.
struct SigningAuthority {
    key: KeyPair,
    subject_der: Vec<u8>,
    key_identifier: Option<Vec<u8>>,
    not_after: Timestamp,
}

/// Signs certificates with an authority that may be renewed.
pub struct ClusterSigner {
    authority: RwLock<Arc<SigningAuthority>>,
}

impl ClusterSigner {
    pub fn new(pki: &Pki) -> Result<Self, String> {
        Ok(Self {
            authority: RwLock::new(Arc::new(SigningAuthority::new(pki)?)),
        })
    }

    /// Signs with a renewed authority from now on.
    pub fn replace_authority(&self, pki: &Pki) -> Result<(), String> {
        *self.authority.write() = Arc::new(SigningAuthority::new(pki)?);
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
        let der = authority.sign(request, usages, expiration_seconds, now)?;
        let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
        let encoded = STANDARD.encode(der);
        for line in encoded.as_bytes().chunks(64) {
            pem.push_str(&String::from_utf8_lossy(line));
            pem.push('\n');
        }
        pem.push_str("-----END CERTIFICATE-----\n");
        Ok(pem)
    }
}

impl SigningAuthority {
    fn new(pki: &Pki) -> Result<Self, String> {
        let key = KeyPair::from_pem(&pki.ca_key_pem).map_err(|e| e.to_string())?;
        let der = CertificateDer::from_pem_slice(pki.ca_pem.as_bytes());
        let der = der.map_err(|e| format!("the certificate authority is not PEM: {e}"))?;
        let (_, certificate) = X509Certificate::from_der(&der).map_err(|e| e.to_string())?;
        let identifier = certificate.extensions().iter().find_map(|extension| {
            match extension.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
                _ => None,
            }
        });
        let not_after = certificate.validity().not_after.timestamp();
        Ok(Self {
            subject_der: certificate.subject().as_raw().to_vec(),
            key_identifier: identifier,
            not_after: Timestamp::from_second(not_after).map_err(|e| e.to_string())?,
            key,
        })
    }

    fn sign(
        &self,
        request: &CertificateRequest,
        usages: &[String],
        expiration_seconds: Option<i64>,
        now: Timestamp,
    ) -> Result<Vec<u8>, String> {
        let algorithm = der::sequence(&[der::object_identifier(self.signature_algorithm()?)]);
        let (from, until) = self.validity(expiration_seconds, now)?;
        let serial = random_serial_number();
        let body = der::sequence(&[
            der::value(explicit(0), &der::positive_integer(&[2])),
            der::positive_integer(&serial),
            algorithm.clone(),
            self.subject_der.clone(),
            der::sequence(&[der::time(from), der::time(until)]),
            request.subject_der.clone(),
            request.public_key_der.clone(),
            der::value(
                explicit(3),
                &der::sequence(&self.extensions(request, usages)?),
            ),
        ]);
        let signature = self.key.sign(&body).map_err(|e| e.to_string())?;
        Ok(der::sequence(&[
            body,
            algorithm,
            der::bit_string(&signature, 0),
        ]))
    }

    fn signature_algorithm(&self) -> Result<&'static [u8], String> {
        let algorithm = PublicKeyData::algorithm(&self.key);
        [
            (&rcgen::PKCS_ECDSA_P256_SHA256, ECDSA_WITH_SHA256),
            (&rcgen::PKCS_ECDSA_P384_SHA384, ECDSA_WITH_SHA384),
            (&rcgen::PKCS_ED25519, ED25519),
        ]
        .into_iter()
        .find(|(known, _)| *known == algorithm)
        .map(|(_, id)| id)
        .ok_or_else(|| "the key of the certificate authority cannot sign requests".into())
    }

    fn validity(
        &self,
        expiration_seconds: Option<i64>,
        now: Timestamp,
    ) -> Result<(Timestamp, Timestamp), String> {
        let lifetime = match expiration_seconds {
            Some(seconds) => SignedDuration::from_secs(seconds).clamp(MIN_LIFETIME, MAX_LIFETIME),
            None => MAX_LIFETIME,
        };
        let shortened = if lifetime < SHORT_LIFETIME {
            lifetime
        } else {
            lifetime - BACKDATE
        };
        let add = |by| now.checked_add(by).map_err(|e| e.to_string());
        let until = add(shortened)?.min(self.not_after);
        if until <= now {
            return Err("the certificate authority has expired".into());
        }
        Ok((add(-BACKDATE)?, until))
    }

    fn extensions(
        &self,
        request: &CertificateRequest,
        usages: &[String],
    ) -> Result<Vec<Vec<u8>>, String> {
        let (mut bits, mut purposes) = (0, Vec::new());
        for usage in usages {
            match usage.as_str() {
                "digital signature" => bits |= DIGITAL_SIGNATURE_BIT,
                "key encipherment" => bits |= KEY_ENCIPHERMENT_BIT,
                "client auth" => purposes.push(der::object_identifier(CLIENT_AUTH)),
                "server auth" => purposes.push(der::object_identifier(SERVER_AUTH)),
                other => return Err(format!("the usage {other:?} is not signed")),
            }
        }
        let mut all = Vec::new();
        if bits != 0 {
            let unused = bits.trailing_zeros() as u8;
            let content = der::bit_string(&[bits], unused);
            all.push(der::extension(KEY_USAGE, true, &content));
        }
        if !purposes.is_empty() {
            let content = der::sequence(&purposes);
            all.push(der::extension(EXTENDED_KEY_USAGE, false, &content));
        }
        all.push(der::extension(BASIC_CONSTRAINTS, true, &der::sequence(&[])));
        if let Some(id) = &self.key_identifier {
            let content = der::sequence(&[der::value(implicit(0), id)]);
            all.push(der::extension(AUTHORITY_KEY_IDENTIFIER, false, &content));
        }
        let names = alternative_names(request);
        if !names.is_empty() {
            // Critical if it is all that names the subject.
            let critical = request.subject_der == der::sequence(&[]);
            let content = der::sequence(&names);
            all.push(der::extension(SUBJECT_ALTERNATIVE_NAME, critical, &content));
        }
        Ok(all)
    }
}

fn alternative_names(request: &CertificateRequest) -> Vec<Vec<u8>> {
    let text = |tag: u8, names: &[String]| -> Vec<Vec<u8>> {
        let names = names.iter();
        names
            .map(|name| der::value(implicit(tag), name.as_bytes()))
            .collect()
    };
    let mut all = text(2, &request.dns_names);
    all.extend(text(1, &request.email_addresses));
    let addresses = request.ip_addresses.iter();
    all.extend(addresses.map(|ip| der::value(implicit(7), &der::address(ip))));
    all.extend(text(6, &request.uris));
    all
}

/// A serial number of 127 random bits.
fn random_serial_number() -> [u8; 16] {
    let mut serial: [u8; 16] = rand::random();
    serial[0] &= 0x7f;
    serial
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x509::{CertificateUsage, CertificateVerifier};

    fn now() -> Timestamp {
        Timestamp::from_second(1_790_000_000).unwrap()
    }

    fn fixture() -> (ClusterSigner, CertificateVerifier) {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::open(dir.path(), &[], now()).unwrap();
        (ClusterSigner::new(&pki).unwrap(), pki.verifier().unwrap())
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

//! A certificate authority that signs what [`CertificateRequest`]s ask for.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use machinery::certificate_request::CertificateRequest;
use rcgen::{KeyPair, PublicKeyData, SigningKey};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::der::{self, explicit, implicit};

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
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];

/// The first and the last moment of a certificate.
#[derive(Clone, Copy)]
pub(crate) struct CertificateValidity {
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
}

/// The certificate authority that signs, with what its certificate says.
pub(crate) struct SigningAuthority {
    key: KeyPair,
    subject_der: Vec<u8>,
    key_identifier: Option<Vec<u8>>,
    pub(super) not_after: Timestamp,
}

impl SigningAuthority {
    /// Takes the certificate and the key of an authority; of a bundle, the first certificate.
    pub(crate) fn new(ca_pem: &str, ca_key_pem: &str) -> Result<Self, String> {
        let key = KeyPair::from_pem(ca_key_pem).map_err(|e| e.to_string())?;
        let der = CertificateDer::from_pem_slice(ca_pem.as_bytes());
        let der = der.map_err(|e| format!("the certificate authority is not PEM: {e}"))?;
        let (_, certificate) = X509Certificate::from_der(&der).map_err(|e| e.to_string())?;
        if certificate.public_key().subject_public_key.data != key.public_key_raw() {
            return Err("the key is not that of the certificate authority".into());
        }
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

    /// A certificate for the subject, names and key of the request, as PEM. It is valid no
    /// longer than the authority.
    pub(crate) fn sign(
        &self,
        request: &CertificateRequest,
        usages: &[String],
        validity: CertificateValidity,
    ) -> Result<String, String> {
        Ok(certificate_pem(&self.sign_der(request, usages, validity)?))
    }

    fn sign_der(
        &self,
        request: &CertificateRequest,
        usages: &[String],
        validity: CertificateValidity,
    ) -> Result<Vec<u8>, String> {
        let algorithm = der::sequence(&[der::object_identifier(self.signature_algorithm()?)]);
        let not_after = validity.not_after.min(self.not_after);
        let serial = random_serial_number();
        let body = der::sequence(&[
            der::value(explicit(0), &der::positive_integer(&[2])),
            der::positive_integer(&serial),
            algorithm.clone(),
            self.subject_der.clone(),
            der::sequence(&[der::time(validity.not_before), der::time(not_after)]),
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
        .find(|(supported, _)| *supported == algorithm)
        .map(|(_, id)| id)
        .ok_or_else(|| "the key of the certificate authority cannot sign requests".into())
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

/// The encoded name of a client: an organization for each group, and the user as the common
/// name (Kubernetes' `CommonNameUserConversion`).
pub(crate) fn client_subject_der(user: &str, groups: &[String]) -> Vec<u8> {
    let groups = groups.iter().map(|group| (ORGANIZATION, group.as_str()));
    let attributes = groups.chain([(COMMON_NAME, user)]);
    let names: Vec<Vec<u8>> = attributes
        .map(|(id, text)| {
            let attribute = der::sequence(&[der::object_identifier(id), der::utf8_string(text)]);
            der::value(der::SET, &attribute)
        })
        .collect();
    der::sequence(&names)
}

fn certificate_pem(der: &[u8]) -> String {
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let encoded = STANDARD.encode(der);
    for line in encoded.as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

//! Reads PKCS#10 certificate requests: what a client asks a certificate authority to sign.

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate, X509CertificationRequest};

const BEGIN: &str = "-----BEGIN CERTIFICATE REQUEST-----";
const END: &str = "-----END CERTIFICATE REQUEST-----";
const BEGIN_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";
const END_CERTIFICATE: &str = "-----END CERTIFICATE-----";
const BLOCK_TYPE: &str = "PEM block type must be CERTIFICATE REQUEST";

/// A certificate request. Its signature is verified by [`Self::verify_signature`] only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateRequest {
    /// The encoded request.
    pub der: Vec<u8>,
    /// The encoded name of the subject, with its attributes in order.
    pub subject_der: Vec<u8>,
    /// The encoded algorithm and public key.
    pub public_key_der: Vec<u8>,
    /// The last common name of the subject; empty if it has none.
    pub common_name: String,
    pub organizations: Vec<String>,
    pub dns_names: Vec<String>,
    pub ip_addresses: Vec<IpAddr>,
    pub email_addresses: Vec<String>,
    pub uris: Vec<String>,
}

impl CertificateRequest {
    /// Parses the first PEM block, which is a certificate request.
    pub fn from_pem(pem: &str) -> Result<Self, String> {
        let begin = pem.find("-----BEGIN ").ok_or(BLOCK_TYPE)?;
        let body = pem[begin..].strip_prefix(BEGIN).ok_or(BLOCK_TYPE)?;
        let (body, _) = body.split_once(END).ok_or(BLOCK_TYPE)?;
        let body: String = body.split_whitespace().collect();
        let der = STANDARD.decode(body).map_err(|_| BLOCK_TYPE.to_owned())?;
        Self::from_der(der)
    }

    fn from_der(der: Vec<u8>) -> Result<Self, String> {
        let malformed = || "the certificate request is malformed".to_owned();
        let (rest, request) = X509CertificationRequest::from_der(&der).map_err(|_| malformed())?;
        if !rest.is_empty() {
            return Err(malformed());
        }
        let info = &request.certification_request_info;
        let text = |value: &str| value.to_owned();
        let mut parsed = Self {
            subject_der: info.subject.as_raw().to_vec(),
            public_key_der: info.subject_pki.raw.to_vec(),
            ..Self::default()
        };
        for name in info.subject.iter_common_name() {
            parsed.common_name = name.as_str().map(text).map_err(|_| malformed())?;
        }
        for name in info.subject.iter_organization() {
            let name = name.as_str().map(text).map_err(|_| malformed())?;
            parsed.organizations.push(name);
        }
        for extension in request.requested_extensions().into_iter().flatten() {
            match extension {
                ParsedExtension::SubjectAlternativeName(san) => {
                    for name in &san.general_names {
                        parsed.add_alternative_name(name).ok_or_else(malformed)?;
                    }
                }
                ParsedExtension::ParseError { .. } => return Err(malformed()),
                _ => {}
            }
        }
        parsed.der = der.clone();
        Ok(parsed)
    }

    /// Names of other kinds are ignored, as Go's parser ignores them.
    fn add_alternative_name(&mut self, name: &GeneralName<'_>) -> Option<()> {
        match name {
            GeneralName::DNSName(name) => self.dns_names.push((*name).to_owned()),
            GeneralName::RFC822Name(name) => self.email_addresses.push((*name).to_owned()),
            GeneralName::URI(uri) => self.uris.push((*uri).to_owned()),
            GeneralName::IPAddress(raw) => self.ip_addresses.push(match raw.len() {
                4 => <[u8; 4]>::try_from(*raw).ok()?.into(),
                16 => <[u8; 16]>::try_from(*raw).ok()?.into(),
                _ => return None,
            }),
            _ => {}
        }
        Some(())
    }

    /// Verifies that the requester has the private key.
    pub fn verify_signature(&self) -> Result<(), String> {
        let invalid = |_| "unable to verify certificate request signature".to_owned();
        let (_, request) = X509CertificationRequest::from_der(&self.der)
            .map_err(|_| "the certificate request is malformed".to_owned())?;
        request.verify_signature().map_err(invalid)
    }
}

/// The expiry of the first certificate of a PEM bundle, in seconds since the epoch; `None` if
/// it cannot be read.
pub fn certificate_expiry(pem: &str) -> Option<i64> {
    certificate_validity(pem).map(|(_, expiry)| expiry)
}

/// `sha256:` and the digest of the public key of each certificate of a PEM bundle, which pins
/// an authority (`--discovery-token-ca-cert-hash`).
pub fn public_key_pins(pem: &str) -> Result<Vec<String>, String> {
    check_certificates(pem)?;
    let bodies = pem.split(BEGIN_CERTIFICATE).skip(1);
    let bodies = bodies.filter_map(|block| Some(block.split_once(END_CERTIFICATE)?.0));
    let pin = |body: &str| {
        let body: String = body.split_whitespace().collect();
        let der = STANDARD.decode(body).map_err(|e| e.to_string())?;
        let (_, certificate) = X509Certificate::from_der(&der).map_err(|e| e.to_string())?;
        let digest = public_key_digest(certificate.public_key().raw);
        Ok(format!("sha256:{digest}"))
    };
    bodies.map(pin).collect()
}

/// The SHA-256 digest of an encoded public key, in hexadecimal digits.
pub(crate) fn public_key_digest(public_key_der: &[u8]) -> String {
    let digest = Sha256::digest(public_key_der);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The times from and until which the first certificate of a PEM bundle is valid, in seconds
/// since the epoch; `None` if it cannot be read.
pub fn certificate_validity(pem: &str) -> Option<(i64, i64)> {
    let (_, body) = pem.split_once(BEGIN_CERTIFICATE)?;
    let (body, _) = body.split_once(END_CERTIFICATE)?;
    let body: String = body.split_whitespace().collect();
    let der = STANDARD.decode(body).ok()?;
    let (_, certificate) = X509Certificate::from_der(&der).ok()?;
    let validity = certificate.validity();
    Some((
        validity.not_before.timestamp(),
        validity.not_after.timestamp(),
    ))
}

/// Fails unless a text has PEM blocks of certificates and of nothing else.
pub fn check_certificates(pem: &str) -> Result<(), String> {
    const NO_BLOCK: &str = "must contain at least one PEM block";
    let mut blocks = pem.split("-----BEGIN ").skip(1).peekable();
    if blocks.peek().is_none() {
        return Err(NO_BLOCK.into());
    }
    for block in blocks {
        let body = block
            .strip_prefix("CERTIFICATE-----")
            .ok_or("only CERTIFICATE PEM blocks are allowed")?;
        let (body, _) = body.split_once(END_CERTIFICATE).ok_or(NO_BLOCK)?;
        let body: String = body.split_whitespace().collect();
        let der = STANDARD.decode(body).map_err(|e| e.to_string())?;
        X509Certificate::from_der(&der).map_err(|e| e.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_request_is_refused() {
        let empty = format!("{BEGIN}\nAAAA\n{END}\n");
        for pem in [
            "",
            "x",
            BEGIN,
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
            &empty,
            &format!("{BEGIN}\n!!\n{END}"),
        ] {
            assert!(CertificateRequest::from_pem(pem).is_err(), "{pem}");
        }
    }
}

//! Generates the private key and the certificate request of an agent.

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256};

/// A new private key, and the request for its certificate, both PEM.
pub struct CertificateEnrollment {
    pub key_pem: String,
    pub request_pem: String,
}

impl CertificateEnrollment {
    /// For a user in one group, without further names.
    pub fn generate(user: &str, group: &str) -> Result<Self, String> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|e| e.to_string())?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let subject = &mut params.distinguished_name;
        subject.push(DnType::OrganizationName, group);
        subject.push(DnType::CommonName, user);
        let request = params.serialize_request(&key).map_err(|e| e.to_string())?;
        Ok(Self {
            key_pem: key.serialize_pem(),
            request_pem: request.pem().map_err(|e| e.to_string())?,
        })
    }
}

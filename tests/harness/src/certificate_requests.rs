//! Makes certificate requests, as `openssl req` does.

use rcgen::{
    CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256,
    SanType,
};

/// A certificate request and its private key, both PEM.
pub struct TestCertificateRequest {
    pub request_pem: String,
    pub key_pem: String,
}

/// A request for a user, a group (or none, if it is empty) and DNS names.
pub fn certificate_request(user: &str, group: &str, names: &[&str]) -> TestCertificateRequest {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    request_with_key(&key, user, group, names)
}

/// A request with an RSA key, as karmadactl makes it.
pub fn rsa_certificate_request(user: &str, group: &str) -> TestCertificateRequest {
    let key = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap();
    request_with_key(&key, user, group, &[])
}

fn request_with_key(
    key: &KeyPair,
    user: &str,
    group: &str,
    names: &[&str],
) -> TestCertificateRequest {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    if !group.is_empty() {
        let subject = &mut params.distinguished_name;
        subject.push(DnType::OrganizationName, group);
    }
    params.distinguished_name.push(DnType::CommonName, user);
    params.subject_alt_names = names
        .iter()
        .map(|name| SanType::DnsName((*name).try_into().unwrap()))
        .collect();
    let request = params.serialize_request(key).unwrap();
    TestCertificateRequest {
        request_pem: request.pem().unwrap(),
        key_pem: key.serialize_pem(),
    }
}

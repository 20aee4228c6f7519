//! Bundles of CA certificates in PEM: parsing and merging. Does no I/O.

use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Backdates certificates by this many seconds for clients whose clocks are behind.
pub(crate) const BACKDATE_SECONDS: u64 = 60 * 60;

/// A CA certificate of the bundle.
pub(crate) struct RotatedCaCertificate {
    pub(crate) pem: String,
    pub(crate) created: i64,
    pub(crate) expires: i64,
}

pub(crate) fn validity(der: &CertificateDer<'_>) -> Option<(i64, i64)> {
    let (_, cert) = X509Certificate::from_der(der).ok()?;
    let (not_before, not_after) = (&cert.validity().not_before, &cert.validity().not_after);
    Some((
        not_before.timestamp() + BACKDATE_SECONDS as i64,
        not_after.timestamp(),
    ))
}

fn to_pem(der: &CertificateDer<'_>) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, remaining) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = remaining;
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

/// The certificates of a bundle that can be parsed and have not expired.
pub(crate) fn parse_bundle(bundle: &str, now: i64) -> Vec<RotatedCaCertificate> {
    CertificateDer::pem_slice_iter(bundle.as_bytes())
        .filter_map(|der| {
            let der = der.ok()?;
            let (not_before, expires) = validity(&der)?;
            let pem = to_pem(&der);
            (expires > now).then_some(RotatedCaCertificate {
                pem,
                created: not_before,
                expires,
            })
        })
        .collect()
}

pub(crate) fn concat_pem(authorities: &[RotatedCaCertificate]) -> String {
    authorities.iter().map(|a| a.pem.as_str()).collect()
}

/// Appends to `bundle` the unexpired certificates that only `earlier` has, for readers
/// that may still see certificates signed by the earlier CAs.
pub fn merge_bundles(bundle: &str, earlier: &str, now: Timestamp) -> String {
    let mut all = parse_bundle(bundle, i64::MIN);
    for authority in parse_bundle(earlier, now.as_second()) {
        if all.iter().all(|a| a.pem != authority.pem) {
            all.push(authority);
        }
    }
    concat_pem(&all)
}

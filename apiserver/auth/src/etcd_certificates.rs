//! Certificates for mutual TLS between etcd and its client, signed by a CA that signs
//! nothing else.
//!
//! Does no I/O, and is deterministic except for new keys: when several replicas renew
//! at once, the first write wins.
//!
//! etcd reads its own certificate at each handshake, but its trusted CA only at start.
//! The CA is therefore renewed with the same key and name, so that an etcd which has
//! loaded the previous certificate goes on.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::ca_bundle::merge_bundles;
use crate::cert_rotation::key_matches_certificate;
use crate::pki::{
    CertKeyPair, DAY_SECONDS, Error, LEAF_DAYS, LeafCertificateProfile, ca_params,
    san_and_public_key, sign_certificate,
};
use crate::x509::{CertificateUsage, CertificateVerifier, expiry};

/// Common name of client certificates.
const CLIENT_COMMON_NAME: &str = "flotilla";
/// Certificates are renewed when a third of their lifetime is left.
const RENEW_BEFORE_SECONDS: u64 = LEAF_DAYS * DAY_SECONDS / 3;

/// The stored certificates and keys, as PEM. Deliberately not `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdCertificates {
    /// The CA bundle to trust, newest first.
    pub ca: String,
    pub ca_key: String,
    /// The serving certificate of etcd.
    pub server: CertKeyPair,
    /// The client certificate for etcd.
    pub client: CertKeyPair,
}

impl EtcdCertificates {
    /// The certificates to store, when they differ from the stored ones. `names` are
    /// the host names and addresses by which clients reach etcd.
    pub fn renew(
        stored: Option<&Self>,
        names: &BTreeSet<String>,
        now: Timestamp,
    ) -> Result<Option<Self>, Error> {
        let (ca, ca_key) = renew_ca(stored, now)?;
        let signer = EtcdCertificateSigner {
            ca: &ca,
            ca_key: &ca_key,
            now,
        };
        let server = LeafCertificateProfile::Peer {
            names: names.clone(),
        };
        let client = LeafCertificateProfile::Client {
            user: CLIENT_COMMON_NAME.into(),
            groups: Vec::new(),
        };
        let next = Self {
            server: signer.keep_or_sign(stored.map(|k| &k.server), &server)?,
            client: signer.keep_or_sign(stored.map(|k| &k.client), &client)?,
            ca: ca.clone(),
            ca_key: ca_key.clone(),
        };
        Ok((stored != Some(&next)).then_some(next))
    }
}

fn renew_ca(stored: Option<&EtcdCertificates>, now: Timestamp) -> Result<(String, String), Error> {
    let earlier = stored.map_or("", |stored| &stored.ca);
    let key = match stored.filter(|stored| key_matches_certificate(earlier, &stored.ca_key)) {
        Some(stored) => {
            let der = CertificateDer::from_pem_slice(earlier.as_bytes());
            let expires = der.ok().and_then(|der| expiry(&der).ok()).unwrap_or(0);
            if expires > now.as_second() + (LEAF_DAYS * DAY_SECONDS).cast_signed() {
                return Ok((stored.ca.clone(), stored.ca_key.clone()));
            }
            KeyPair::from_pem(&stored.ca_key)?
        }
        None => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?,
    };
    let renewed = ca_params(now).self_signed(&key)?.pem();
    let bundle = merge_bundles(&renewed, earlier, now);
    Ok((bundle, key.serialize_pem()))
}

struct EtcdCertificateSigner<'a> {
    ca: &'a str,
    ca_key: &'a str,
    now: Timestamp,
}

impl EtcdCertificateSigner<'_> {
    fn keep_or_sign(
        &self,
        stored: Option<&CertKeyPair>,
        leaf: &LeafCertificateProfile,
    ) -> Result<CertKeyPair, Error> {
        if let Some(stored) = stored.filter(|stored| self.is_valid(stored, leaf)) {
            return Ok(stored.clone());
        }
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        sign_certificate(self.ca, self.ca_key, leaf, &key, self.now)
    }

    fn is_valid(&self, stored: &CertKeyPair, leaf: &LeafCertificateProfile) -> bool {
        if !key_matches_certificate(&stored.certificate_pem, &stored.key_pem) {
            return false;
        }
        let Ok(der) = CertificateDer::from_pem_slice(stored.certificate_pem.as_bytes()) else {
            return false;
        };
        let usage = match leaf {
            LeafCertificateProfile::Client { .. } => CertificateUsage::Client,
            LeafCertificateProfile::Peer { names } | LeafCertificateProfile::Server { names } => {
                if san_and_public_key(&der).is_ok_and(|(served, _)| served != *names) {
                    return false;
                }
                CertificateUsage::Server
            }
        };
        let valid_until = self.now.as_second().unsigned_abs() + RENEW_BEFORE_SECONDS;
        let verifier = CertificateVerifier::from_pem(self.ca);
        verifier.is_ok_and(|verifier| verifier.verify_chain(&[der], usage, valid_until).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR: u64 = 365 * DAY_SECONDS;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds.cast_signed()).unwrap()
    }

    fn names() -> BTreeSet<String> {
        BTreeSet::from([
            "flotilla-etcd.flotilla-system.svc".into(),
            "127.0.0.1".into(),
        ])
    }

    fn first() -> EtcdCertificates {
        let first = EtcdCertificates::renew(None, &names(), at(0));
        first.unwrap().unwrap()
    }

    /// Whether a verifier that trusts `ca` accepts a certificate.
    fn trusts(ca: &str, identity: &CertKeyPair, usage: CertificateUsage, seconds: u64) -> bool {
        let der = CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()).unwrap();
        let now = at(seconds).as_second().unsigned_abs();
        let verifier = CertificateVerifier::from_pem(ca).unwrap();
        verifier.verify_chain(&[der], usage, now).is_ok()
    }

    #[test]
    fn both_sides_stay_trusted_across_renewals() {
        let (mut current, mut changes, mut now) = (first(), 0, 0);
        let begin = current.clone();
        while now < 20 * YEAR {
            now += 10 * DAY_SECONDS;
            let before = current.clone();
            if let Some(next) = EtcdCertificates::renew(Some(&current), &names(), at(now)).unwrap()
            {
                current = next;
                changes += 1;
            }
            // Both sides, or either one, still have the previous certificates.
            for (ca, identities) in [
                (&before.ca, &current),
                (&current.ca, &before),
                (&current.ca, &current),
            ] {
                assert!(trusts(
                    ca,
                    &identities.server,
                    CertificateUsage::Server,
                    now
                ));
                assert!(trusts(
                    ca,
                    &identities.client,
                    CertificateUsage::Client,
                    now
                ));
            }
            // etcd's gateway is a client of etcd with the server's certificate.
            assert!(trusts(
                &current.ca,
                &current.server,
                CertificateUsage::Client,
                now
            ));
            if now < 10 * YEAR - DAY_SECONDS {
                let old = trusts(&begin.ca, &current.client, CertificateUsage::Client, now);
                assert!(
                    old,
                    "an etcd that never restarted, after {} days",
                    now / DAY_SECONDS
                );
            }
        }
        assert!((20..70).contains(&changes), "{changes} changes");
        assert!(current.ca != begin.ca && current.ca_key == begin.ca_key);
    }

    #[test]
    fn valid_certificates_stay_and_invalid_ones_are_replaced() {
        let current = first();
        let next = |current: &EtcdCertificates, names: &BTreeSet<String>| {
            EtcdCertificates::renew(Some(current), names, at(60)).unwrap()
        };
        assert!(next(&current, &names()).is_none());
        let other = BTreeSet::from(["etcd.other.svc".to_owned()]);
        let with_other_names = next(&current, &other).unwrap();
        assert!(with_other_names.ca == current.ca && with_other_names.client == current.client);
        assert!(with_other_names.server != current.server);
        let mut broken = current.clone();
        broken.client.key_pem.clear();
        let replaced = next(&broken, &names()).unwrap();
        assert!(replaced.server == current.server && replaced.client != broken.client);
        let mut without_key = current.clone();
        without_key.ca_key.clear();
        let replaced = next(&without_key, &names()).unwrap();
        assert!(
            trusts(&replaced.ca, &current.client, CertificateUsage::Client, 60),
            "the old is trusted"
        );
        assert!(trusts(
            &replaced.ca,
            &replaced.client,
            CertificateUsage::Client,
            60
        ));
    }
}

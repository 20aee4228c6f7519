//! Rotates a serving certificate and its CA while clients keep trusting it (contract
//! D1.1, D4.5).
//!
//! Does no I/O, and is deterministic except for new keys: when several replicas rotate
//! at once, the first write wins and the others use its result.
//!
//! A new CA is trusted before it signs: it enters the bundle when the old CA nears its
//! expiry, and signs [`CA_SIGNING_DELAY_SECONDS`] later, when copies of the bundle have
//! been updated. The old CA leaves the bundle a day after that.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::ca_bundle::{RotatedCaCertificate, concat_pem, parse_bundle, validity};
use crate::pki::{
    CA_DAYS, CertKeyPair, DAY_SECONDS, Error, LEAF_DAYS, LeafCertificateProfile, ca_params,
    identity_der, san_and_public_key, sign_certificate,
};
use crate::x509::{CertificateUsage, CertificateVerifier};

/// Seconds between adding a CA to the bundle and its first signature.
const CA_SIGNING_DELAY_SECONDS: i64 = 10 * 60;
/// Seconds for which a CA that no longer signs stays trusted.
const OLD_CA_TRUST_SECONDS: i64 = DAY_SECONDS as i64;
/// A leaf is renewed when a third of its lifetime is left; a CA when it would not
/// outlive two leaves.
const LEAF_RENEW_BEFORE_SECONDS: i64 = (LEAF_DAYS * DAY_SECONDS / 3) as i64;
const CA_RENEW_BEFORE_SECONDS: i64 = (2 * LEAF_DAYS * DAY_SECONDS) as i64;

/// The stored certificates and keys, all PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredServingCertificate {
    /// The CA bundle for clients, newest first.
    pub ca_bundle: String,
    /// The private key of the newest CA.
    pub ca_key: String,
    pub certificate: String,
    pub key: String,
}

impl std::fmt::Debug for StoredServingCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RotatingServingCertificates({})", self.certificate)
    }
}

impl StoredServingCertificate {
    /// The certificates to store, when they differ from the stored ones.
    pub fn rotate(
        stored: Option<&Self>,
        names: &BTreeSet<String>,
        now: Timestamp,
    ) -> Result<Option<Self>, Error> {
        let seconds = now.as_second();
        let mut trusted = stored.map_or_else(Vec::new, |k| parse_bundle(&k.ca_bundle, seconds));
        let usable_key = stored.filter(|k| {
            let first = trusted.first();
            first.is_some_and(|a| key_matches_certificate(&a.pem, &k.ca_key))
        });
        let mut authority_key = usable_key.map(|k| k.ca_key.clone());
        let ends_soon = |a: &RotatedCaCertificate| a.expires - seconds < CA_RENEW_BEFORE_SECONDS;
        if authority_key.is_none() || trusted.first().is_none_or(ends_soon) {
            let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
            let pem = ca_params(now).self_signed(&key)?.pem();
            authority_key = Some(key.serialize_pem());
            trusted.insert(
                0,
                RotatedCaCertificate {
                    pem,
                    created: seconds,
                    expires: seconds + (CA_DAYS * DAY_SECONDS) as i64,
                },
            );
        }
        let (Some(newest), Some(authority_key)) = (trusted.first(), authority_key) else {
            return Err(Error::Generate(rcgen::Error::CouldNotParseKeyPair));
        };
        let leaf =
            stored.and_then(|k| UsableStoredLeafCertificate::from_stored(k, &trusted, names, now));
        let may_sign = seconds - newest.created >= CA_SIGNING_DELAY_SECONDS;
        let good = leaf.filter(|l| !l.renewal_due && (l.signer == 0 || !may_sign));
        let next = match (good, stored) {
            (Some(leaf), Some(stored)) => {
                let drop_old = leaf.signer == 0 && seconds - leaf.created > OLD_CA_TRUST_SECONDS;
                let still = if drop_old { 1 } else { trusted.len() };
                Self {
                    ca_bundle: concat_pem(&trusted[..still]),
                    ca_key: authority_key,
                    certificate: stored.certificate.clone(),
                    key: stored.key.clone(),
                }
            }
            _ => {
                let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
                let leaf = LeafCertificateProfile::Server {
                    names: names.clone(),
                };
                let signed = sign_certificate(&newest.pem, &authority_key, &leaf, &key, now)?;
                Self {
                    ca_bundle: concat_pem(&trusted),
                    ca_key: authority_key,
                    certificate: signed.certificate_pem,
                    key: signed.key_pem,
                }
            }
        };
        Ok((stored != Some(&next)).then_some(next))
    }

    /// Certificate chain and key for the listener.
    pub fn serving_der(
        &self,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Error> {
        identity_der(&CertKeyPair {
            certificate_pem: self.certificate.clone(),
            key_pem: self.key.clone(),
        })
    }
}

pub(crate) fn key_matches_certificate(certificate_pem: &str, key_pem: &str) -> bool {
    let Ok(key) = KeyPair::from_pem(key_pem) else {
        return false;
    };
    let Ok(der) = CertificateDer::from_pem_slice(certificate_pem.as_bytes()) else {
        return false;
    };
    san_and_public_key(&der).is_ok_and(|(_, public)| public == key.public_key_raw())
}

/// The stored leaf certificate, when it is usable.
struct UsableStoredLeafCertificate {
    /// Index of its issuer in the trusted CAs.
    signer: usize,
    created: i64,
    /// Whether it is due for renewal.
    renewal_due: bool,
}

impl UsableStoredLeafCertificate {
    fn from_stored(
        stored: &StoredServingCertificate,
        trusted: &[RotatedCaCertificate],
        names: &BTreeSet<String>,
        now: Timestamp,
    ) -> Option<Self> {
        let der = CertificateDer::from_pem_slice(stored.certificate.as_bytes()).ok()?;
        if !key_matches_certificate(&stored.certificate, &stored.key) {
            return None;
        }
        let seconds = now.as_second();
        let at = u64::try_from(seconds).ok()?;
        let signed = |a: &RotatedCaCertificate| {
            let verifier = CertificateVerifier::from_pem(&a.pem);
            verifier.is_ok_and(|v| {
                v.verify_chain(std::slice::from_ref(&der), CertificateUsage::Server, at)
                    .is_ok()
            })
        };
        let signer = trusted.iter().position(signed)?;
        let (not_before, expires) = validity(&der)?;
        let (served, _) = san_and_public_key(&der).ok()?;
        Some(Self {
            signer,
            created: not_before,
            renewal_due: served != *names || expires - seconds < LEAF_RENEW_BEFORE_SECONDS,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ca_bundle::merge_bundles;

    const START: i64 = 1_800_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(START + seconds).unwrap()
    }

    fn names() -> BTreeSet<String> {
        BTreeSet::from(["flotilla.flotilla-system.svc".to_owned()])
    }

    fn step(current: &mut StoredServingCertificate, seconds: i64) -> bool {
        match StoredServingCertificate::rotate(Some(current), &names(), at(seconds)).unwrap() {
            Some(next) => {
                *current = next;
                true
            }
            None => false,
        }
    }

    fn count(bundle: &str) -> usize {
        bundle.matches("BEGIN").count()
    }

    fn verifies(bundle: &str, current: &StoredServingCertificate, seconds: i64) -> bool {
        let (chain, _) = current.serving_der().unwrap();
        let verifier = CertificateVerifier::from_pem(bundle).unwrap();
        let now = (START + seconds).unsigned_abs();
        verifier
            .verify_chain(&chain, CertificateUsage::Server, now)
            .is_ok()
    }

    #[test]
    fn valid_certificates_are_kept() {
        let mut current = StoredServingCertificate::rotate(None, &names(), at(0))
            .unwrap()
            .unwrap();
        assert_eq!(count(&current.ca_bundle), 1);
        assert!(verifies(&current.ca_bundle, &current, 0));
        let first = current.clone();
        assert!(!step(&mut current, 60));
        // A leaf expires before its CA: only the leaf is renewed.
        let day = DAY_SECONDS as i64;
        assert!(!step(&mut current, 200 * day));
        assert!(step(&mut current, 250 * day));
        assert_eq!(current.ca_bundle, first.ca_bundle);
        assert_ne!(current.certificate, first.certificate);
        let other = BTreeSet::from(["elsewhere.svc".to_owned()]);
        let rotated =
            StoredServingCertificate::rotate(Some(&current), &other, at(250 * day)).unwrap();
        assert_eq!(rotated.unwrap().ca_bundle, first.ca_bundle);
    }

    #[test]
    fn new_ca_is_trusted_before_it_signs() {
        let mut current = StoredServingCertificate::rotate(None, &names(), at(0))
            .unwrap()
            .unwrap();
        let day = DAY_SECONDS as i64;
        let mut now = 0;
        // Rotation runs often in a server. A client with the bundle of the previous run
        // trusts the current certificate.
        let (mut max_count, mut changes) = (1, 0);
        while now < 12 * 365 * day {
            let before = current.clone();
            now += if count(&current.ca_bundle) > 1 {
                300
            } else {
                10 * day
            };
            changes += usize::from(step(&mut current, now));
            max_count = max_count.max(count(&current.ca_bundle));
            assert!(
                verifies(&before.ca_bundle, &current, now),
                "at day {}",
                now / day
            );
            assert!(
                verifies(&current.ca_bundle, &before, now),
                "at day {}",
                now / day
            );
        }
        assert_eq!(max_count, 2);
        assert!((10..30).contains(&changes), "{changes} changes");
    }

    #[test]
    fn invalid_certificates_are_replaced_and_old_ca_stays_trusted() {
        let current = StoredServingCertificate::rotate(None, &names(), at(0))
            .unwrap()
            .unwrap();
        let check = |broken: StoredServingCertificate, authorities: usize| {
            let next = StoredServingCertificate::rotate(Some(&broken), &names(), at(1)).unwrap();
            let next = next.expect("nothing is done");
            assert_eq!(count(&next.ca_bundle), authorities);
            assert!(verifies(&next.ca_bundle, &next, 1));
        };
        check(
            StoredServingCertificate {
                key: "x".into(),
                ..current.clone()
            },
            1,
        );
        check(
            StoredServingCertificate {
                ca_key: String::new(),
                ..current.clone()
            },
            2,
        );
        check(
            StoredServingCertificate {
                ca_bundle: "no PEM".into(),
                ..current.clone()
            },
            1,
        );
        let other = StoredServingCertificate::rotate(None, &names(), at(0))
            .unwrap()
            .unwrap();
        let merged = merge_bundles(&other.ca_bundle, &current.ca_bundle, at(2));
        assert!(verifies(&merged, &current, 2) && verifies(&merged, &other, 2));
        assert_eq!(merge_bundles(&merged, &current.ca_bundle, at(2)), merged);
        assert_eq!(
            merge_bundles(
                &other.ca_bundle,
                &current.ca_bundle,
                at(CA_DAYS as i64 * DAY_SECONDS as i64)
            ),
            other.ca_bundle
        );
    }
}

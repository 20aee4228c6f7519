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
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::pki::{
    BACKDATED, CA_DAYS, DAY, Error, Identity, LEAF_DAYS, Leaf, authority_params, identity_der,
    names_and_key, sign,
};
use crate::x509::{Usage, Verifier};

/// Seconds between adding a CA to the bundle and its first signature.
const SETTLED: i64 = 10 * 60;
/// Seconds for which a CA that no longer signs stays trusted.
const OUTGOING: i64 = DAY as i64;
/// A leaf is renewed when a third of its lifetime is left; a CA when it would not
/// outlive two leaves.
const LEAF_LEFT: i64 = (LEAF_DAYS * DAY / 3) as i64;
const AUTHORITY_LEFT: i64 = (2 * LEAF_DAYS * DAY) as i64;

/// The stored certificates and keys, all PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Rolling {
    /// The CA bundle for clients, newest first.
    pub bundle: String,
    /// The private key of the newest CA.
    pub authority_key: String,
    pub certificate: String,
    pub key: String,
}

impl std::fmt::Debug for Rolling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RotatingCertificates({})", self.certificate)
    }
}

/// A CA certificate of the bundle.
struct Authority {
    pem: String,
    made: i64,
    expires: i64,
}

fn validity(der: &CertificateDer<'_>) -> Option<(i64, i64)> {
    let (_, cert) = X509Certificate::from_der(der).ok()?;
    let (from, until) = (&cert.validity().not_before, &cert.validity().not_after);
    Some((from.timestamp() + BACKDATED as i64, until.timestamp()))
}

fn to_pem(der: &CertificateDer<'_>) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = more;
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

/// The certificates of a bundle that can be parsed and have not expired.
fn authorities(bundle: &str, now: i64) -> Vec<Authority> {
    CertificateDer::pem_slice_iter(bundle.as_bytes())
        .filter_map(|der| {
            let der = der.ok()?;
            let (made, expires) = validity(&der)?;
            let pem = to_pem(&der);
            (expires > now).then_some(Authority { pem, made, expires })
        })
        .collect()
}

impl Rolling {
    /// The certificates to store, when they differ from the stored ones.
    pub fn next(
        stored: Option<&Self>,
        names: &BTreeSet<String>,
        now: Timestamp,
    ) -> Result<Option<Self>, Error> {
        let seconds = now.as_second();
        let mut trusted = stored.map_or_else(Vec::new, |k| authorities(&k.bundle, seconds));
        let usable_key = stored.filter(|k| {
            let first = trusted.first();
            first.is_some_and(|a| belongs(&a.pem, &k.authority_key))
        });
        let mut authority_key = usable_key.map(|k| k.authority_key.clone());
        let ends_soon = |a: &Authority| a.expires - seconds < AUTHORITY_LEFT;
        if authority_key.is_none() || trusted.first().is_none_or(ends_soon) {
            let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
            let pem = authority_params(now).self_signed(&key)?.pem();
            authority_key = Some(key.serialize_pem());
            trusted.insert(
                0,
                Authority {
                    pem,
                    made: seconds,
                    expires: seconds + (CA_DAYS * DAY) as i64,
                },
            );
        }
        let (Some(newest), Some(authority_key)) = (trusted.first(), authority_key) else {
            return Err(Error::Generate(rcgen::Error::CouldNotParseKeyPair));
        };
        let leaf = stored.and_then(|k| Leaved::read(k, &trusted, names, now));
        let settled = seconds - newest.made >= SETTLED;
        let good = leaf.filter(|l| !l.due && (l.signer == 0 || !settled));
        let next = match (good, stored) {
            (Some(leaf), Some(stored)) => {
                let drop_old = leaf.signer == 0 && seconds - leaf.made > OUTGOING;
                let still = if drop_old { 1 } else { trusted.len() };
                Self {
                    bundle: joined(&trusted[..still]),
                    authority_key,
                    certificate: stored.certificate.clone(),
                    key: stored.key.clone(),
                }
            }
            _ => {
                let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
                let leaf = Leaf::Server {
                    names: names.clone(),
                };
                let signed = sign(&newest.pem, &authority_key, &leaf, &key, now)?;
                Self {
                    bundle: joined(&trusted),
                    authority_key,
                    certificate: signed.certificate_pem,
                    key: signed.key_pem,
                }
            }
        };
        Ok((stored != Some(&next)).then_some(next))
    }

    /// Certificate chain and key for the listener.
    pub fn der(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Error> {
        identity_der(&Identity {
            certificate_pem: self.certificate.clone(),
            key_pem: self.key.clone(),
        })
    }
}

fn joined(authorities: &[Authority]) -> String {
    authorities.iter().map(|a| a.pem.as_str()).collect()
}

/// Appends to `bundle` the unexpired certificates that only `earlier` has, for readers
/// that may still see certificates signed by the earlier CAs.
pub fn with_earlier(bundle: &str, earlier: &str, now: Timestamp) -> String {
    let mut all = authorities(bundle, i64::MIN);
    for authority in authorities(earlier, now.as_second()) {
        if all.iter().all(|a| a.pem != authority.pem) {
            all.push(authority);
        }
    }
    joined(&all)
}

pub(crate) fn belongs(certificate_pem: &str, key_pem: &str) -> bool {
    let Ok(key) = KeyPair::from_pem(key_pem) else {
        return false;
    };
    let Ok(der) = CertificateDer::from_pem_slice(certificate_pem.as_bytes()) else {
        return false;
    };
    names_and_key(&der).is_ok_and(|(_, public)| public == key.public_key_raw())
}

/// The stored leaf certificate, when it is usable.
struct Leaved {
    /// Index of its issuer in the trusted CAs.
    signer: usize,
    made: i64,
    /// Whether it is due for renewal.
    due: bool,
}

impl Leaved {
    fn read(
        stored: &Rolling,
        trusted: &[Authority],
        names: &BTreeSet<String>,
        now: Timestamp,
    ) -> Option<Self> {
        let der = CertificateDer::from_pem_slice(stored.certificate.as_bytes()).ok()?;
        if !belongs(&stored.certificate, &stored.key) {
            return None;
        }
        let seconds = now.as_second();
        let at = u64::try_from(seconds).ok()?;
        let signed = |a: &Authority| {
            let verifier = Verifier::from_pem(&a.pem);
            verifier.is_ok_and(|v| {
                v.chain(std::slice::from_ref(&der), Usage::Server, at)
                    .is_ok()
            })
        };
        let signer = trusted.iter().position(signed)?;
        let (made, expires) = validity(&der)?;
        let (served, _) = names_and_key(&der).ok()?;
        Some(Self {
            signer,
            made,
            due: served != *names || expires - seconds < LEAF_LEFT,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: i64 = 1_800_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(START + seconds).unwrap()
    }

    fn names() -> BTreeSet<String> {
        BTreeSet::from(["flotilla.flotilla-system.svc".to_owned()])
    }

    fn step(kept: &mut Rolling, seconds: i64) -> bool {
        match Rolling::next(Some(kept), &names(), at(seconds)).unwrap() {
            Some(next) => {
                *kept = next;
                true
            }
            None => false,
        }
    }

    fn count(bundle: &str) -> usize {
        bundle.matches("BEGIN").count()
    }

    fn verifies(bundle: &str, kept: &Rolling, seconds: i64) -> bool {
        let (chain, _) = kept.der().unwrap();
        let verifier = Verifier::from_pem(bundle).unwrap();
        let now = (START + seconds).unsigned_abs();
        verifier.chain(&chain, Usage::Server, now).is_ok()
    }

    #[test]
    fn what_is_good_stays() {
        let mut kept = Rolling::next(None, &names(), at(0)).unwrap().unwrap();
        assert_eq!(count(&kept.bundle), 1);
        assert!(verifies(&kept.bundle, &kept, 0));
        let first = kept.clone();
        assert!(!step(&mut kept, 60));
        // A leaf expires before its CA: only the leaf is renewed.
        let day = DAY as i64;
        assert!(!step(&mut kept, 200 * day));
        assert!(step(&mut kept, 250 * day));
        assert_eq!(kept.bundle, first.bundle);
        assert_ne!(kept.certificate, first.certificate);
        let other = BTreeSet::from(["elsewhere.svc".to_owned()]);
        let moved = Rolling::next(Some(&kept), &other, at(250 * day)).unwrap();
        assert_eq!(moved.unwrap().bundle, first.bundle);
    }

    #[test]
    fn an_authority_is_trusted_before_it_signs() {
        let mut kept = Rolling::next(None, &names(), at(0)).unwrap().unwrap();
        let day = DAY as i64;
        let mut now = 0;
        // Rotation runs often in a server. A client with the bundle of the previous run
        // trusts the current certificate.
        let (mut most, mut changes) = (1, 0);
        while now < 12 * 365 * day {
            let before = kept.clone();
            now += if count(&kept.bundle) > 1 {
                300
            } else {
                10 * day
            };
            changes += usize::from(step(&mut kept, now));
            most = most.max(count(&kept.bundle));
            assert!(verifies(&before.bundle, &kept, now), "at day {}", now / day);
            assert!(verifies(&kept.bundle, &before, now), "at day {}", now / day);
        }
        assert_eq!(most, 2);
        assert!((10..30).contains(&changes), "{changes} changes");
    }

    #[test]
    fn what_is_broken_is_made_anew_and_old_trust_kept() {
        let kept = Rolling::next(None, &names(), at(0)).unwrap().unwrap();
        let check = |broken: Rolling, authorities: usize| {
            let next = Rolling::next(Some(&broken), &names(), at(1)).unwrap();
            let next = next.expect("nothing is done");
            assert_eq!(count(&next.bundle), authorities);
            assert!(verifies(&next.bundle, &next, 1));
        };
        check(
            Rolling {
                key: "x".into(),
                ..kept.clone()
            },
            1,
        );
        check(
            Rolling {
                authority_key: String::new(),
                ..kept.clone()
            },
            2,
        );
        check(
            Rolling {
                bundle: "no PEM".into(),
                ..kept.clone()
            },
            1,
        );
        let other = Rolling::next(None, &names(), at(0)).unwrap().unwrap();
        let both = with_earlier(&other.bundle, &kept.bundle, at(2));
        assert!(verifies(&both, &kept, 2) && verifies(&both, &other, 2));
        assert_eq!(with_earlier(&both, &kept.bundle, at(2)), both);
        assert_eq!(
            with_earlier(&other.bundle, &kept.bundle, at(CA_DAYS as i64 * DAY as i64)),
            other.bundle
        );
    }
}

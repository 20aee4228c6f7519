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

use crate::pki::{DAY, Error, Identity, LEAF_DAYS, Leaf, authority_params, names_and_key, sign};
use crate::rolling::{belongs, with_earlier};
use crate::x509::{Usage, Verifier, expiry};

/// Common name of client certificates.
const CLIENT: &str = "flotilla";
/// Certificates are renewed when a third of their lifetime is left.
const RENEW_BEFORE: u64 = LEAF_DAYS * DAY / 3;

/// The stored certificates and keys, as PEM. Deliberately not `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdCertificates {
    /// The CA bundle to trust, newest first.
    pub ca: String,
    pub ca_key: String,
    /// The serving certificate of etcd.
    pub server: Identity,
    /// The client certificate for etcd.
    pub client: Identity,
}

impl EtcdCertificates {
    /// The certificates to store, when they differ from the stored ones. `names` are
    /// the host names and addresses by which clients reach etcd.
    pub fn next(
        stored: Option<&Self>,
        names: &BTreeSet<String>,
        now: Timestamp,
    ) -> Result<Option<Self>, Error> {
        let (ca, ca_key) = authority(stored, now)?;
        let signer = Signer {
            ca: &ca,
            ca_key: &ca_key,
            now,
        };
        let server = Leaf::Peer {
            names: names.clone(),
        };
        let client = Leaf::Client {
            user: CLIENT.into(),
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

fn authority(stored: Option<&EtcdCertificates>, now: Timestamp) -> Result<(String, String), Error> {
    let earlier = stored.map_or("", |stored| &stored.ca);
    let key = match stored.filter(|stored| belongs(earlier, &stored.ca_key)) {
        Some(stored) => {
            let der = CertificateDer::from_pem_slice(earlier.as_bytes());
            let expires = der.ok().and_then(|der| expiry(&der).ok()).unwrap_or(0);
            if expires > now.as_second() + (LEAF_DAYS * DAY).cast_signed() {
                return Ok((stored.ca.clone(), stored.ca_key.clone()));
            }
            KeyPair::from_pem(&stored.ca_key)?
        }
        None => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?,
    };
    let renewed = authority_params(now).self_signed(&key)?.pem();
    let bundle = with_earlier(&renewed, earlier, now);
    Ok((bundle, key.serialize_pem()))
}

struct Signer<'a> {
    ca: &'a str,
    ca_key: &'a str,
    now: Timestamp,
}

impl Signer<'_> {
    fn keep_or_sign(&self, stored: Option<&Identity>, leaf: &Leaf) -> Result<Identity, Error> {
        if let Some(stored) = stored.filter(|stored| self.is_good(stored, leaf)) {
            return Ok(stored.clone());
        }
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        sign(self.ca, self.ca_key, leaf, &key, self.now)
    }

    fn is_good(&self, stored: &Identity, leaf: &Leaf) -> bool {
        if !belongs(&stored.certificate_pem, &stored.key_pem) {
            return false;
        }
        let Ok(der) = CertificateDer::from_pem_slice(stored.certificate_pem.as_bytes()) else {
            return false;
        };
        let usage = match leaf {
            Leaf::Client { .. } => Usage::Client,
            Leaf::Peer { names } | Leaf::Server { names } => {
                if names_and_key(&der).is_ok_and(|(served, _)| served != *names) {
                    return false;
                }
                Usage::Server
            }
        };
        let until = self.now.as_second().unsigned_abs() + RENEW_BEFORE;
        let verifier = Verifier::from_pem(self.ca);
        verifier.is_ok_and(|verifier| verifier.chain(&[der], usage, until).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR: u64 = 365 * DAY;

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
        let first = EtcdCertificates::next(None, &names(), at(0));
        first.unwrap().unwrap()
    }

    /// Whether a verifier that trusts `ca` accepts a certificate.
    fn trusts(ca: &str, identity: &Identity, usage: Usage, seconds: u64) -> bool {
        let der = CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()).unwrap();
        let now = at(seconds).as_second().unsigned_abs();
        let verifier = Verifier::from_pem(ca).unwrap();
        verifier.chain(&[der], usage, now).is_ok()
    }

    #[test]
    fn both_sides_trust_each_other_over_many_years() {
        let (mut kept, mut changes, mut now) = (first(), 0, 0);
        let begin = kept.clone();
        while now < 20 * YEAR {
            now += 10 * DAY;
            let before = kept.clone();
            if let Some(next) = EtcdCertificates::next(Some(&kept), &names(), at(now)).unwrap() {
                kept = next;
                changes += 1;
            }
            // Both sides, or either one, still have the previous certificates.
            for (ca, identities) in [(&before.ca, &kept), (&kept.ca, &before), (&kept.ca, &kept)] {
                assert!(trusts(ca, &identities.server, Usage::Server, now));
                assert!(trusts(ca, &identities.client, Usage::Client, now));
            }
            // etcd's gateway is a client of etcd with the server's certificate.
            assert!(trusts(&kept.ca, &kept.server, Usage::Client, now));
            if now < 10 * YEAR - DAY {
                let old = trusts(&begin.ca, &kept.client, Usage::Client, now);
                assert!(
                    old,
                    "an etcd that never restarted, after {} days",
                    now / DAY
                );
            }
        }
        assert!((20..70).contains(&changes), "{changes} changes");
        assert!(kept.ca != begin.ca && kept.ca_key == begin.ca_key);
    }

    #[test]
    fn what_is_good_stays_and_what_is_broken_is_made_again() {
        let kept = first();
        let next = |kept: &EtcdCertificates, names: &BTreeSet<String>| {
            EtcdCertificates::next(Some(kept), names, at(60)).unwrap()
        };
        assert!(next(&kept, &names()).is_none());
        let other = BTreeSet::from(["etcd.other.svc".to_owned()]);
        let moved = next(&kept, &other).unwrap();
        assert!(moved.ca == kept.ca && moved.client == kept.client);
        assert!(moved.server != kept.server);
        let mut broken = kept.clone();
        broken.client.key_pem.clear();
        let mended = next(&broken, &names()).unwrap();
        assert!(mended.server == kept.server && mended.client != broken.client);
        let mut lost = kept.clone();
        lost.ca_key.clear();
        let mended = next(&lost, &names()).unwrap();
        assert!(
            trusts(&mended.ca, &kept.client, Usage::Client, 60),
            "the old is trusted"
        );
        assert!(trusts(&mended.ca, &mended.client, Usage::Client, 60));
    }
}

//! Verifies client certificate chains and derives the user from them. Does no I/O.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinery::UserInfo;
use machinery::agent_user::{AGENTS_GROUP, PUBLIC_KEY_EXTRA, public_key_id};
use machinery::user::ALL_AUTHENTICATED;
use parking_lot::Mutex;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use sha2::{Digest, Sha256};
use webpki::{EndEntityCert, KeyUsage};
use x509_parser::asn1_rs::{Oid, oid};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Bound on cached verified certificates.
const MAX_CACHED_CERTIFICATES: usize = 1024;

/// The subject attribute for the user's UID (Kubernetes 1.33 and later).
const UID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);

/// The extended key usage that a certificate must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateUsage {
    Client,
    Server,
}

/// The user of a verified certificate, cached until it expires.
#[derive(Clone)]
struct VerifiedCertificateUser {
    /// Its name is empty when the certificate has no common name.
    user: Arc<UserInfo>,
    /// The earliest expiry in the chain, in seconds since the epoch.
    expires: i64,
}

/// Verifies certificates against a CA bundle.
pub struct CertificateVerifier {
    anchors: Vec<TrustAnchor<'static>>,
    verified_users: Mutex<HashMap<[u8; 32], VerifiedCertificateUser>>,
}

impl CertificateVerifier {
    /// Parses a bundle of PEM certificates.
    pub fn from_pem(pem: &str) -> Result<Self, String> {
        let mut anchors = Vec::new();
        for der in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let der = der.map_err(|e| format!("is not PEM: {e}"))?;
            let anchor = webpki::anchor_from_trusted_cert(&der)
                .map_err(|e| format!("is not a certificate authority: {e}"))?;
            anchors.push(anchor.to_owned());
        }
        if anchors.is_empty() {
            return Err("holds no certificate".into());
        }
        Ok(Self {
            anchors,
            verified_users: Mutex::new(HashMap::new()),
        })
    }

    /// Checks signatures, validity at `now` (seconds since the epoch) and usage.
    pub fn verify_chain(
        &self,
        chain: &[CertificateDer<'_>],
        usage: CertificateUsage,
        now: u64,
    ) -> Result<(), String> {
        let (leaf, rest) = chain.split_first().ok_or("no certificate")?;
        let leaf = EndEntityCert::try_from(leaf).map_err(|e| e.to_string())?;
        let usage = match usage {
            CertificateUsage::Client => KeyUsage::client_auth(),
            CertificateUsage::Server => KeyUsage::server_auth(),
        };
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        leaf.verify_for_usage(
            webpki::ALL_VERIFICATION_ALGS,
            &self.anchors,
            rest,
            now,
            usage,
            None,
            None,
        )
        .map(drop)
        .map_err(|e| e.to_string())
    }

    /// Verifies a client's chain and returns its user: CN is the name, O are the groups
    /// (Kubernetes' CommonNameUserConversion).
    pub fn authenticate(
        &self,
        chain: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> Result<Arc<UserInfo>, String> {
        let user = self.verify_client(chain, now)?.user;
        if user.name.is_empty() {
            return Err("the certificate has no common name".into());
        }
        Ok(user)
    }

    /// Verifies a client's chain and returns its common name, which may be empty.
    pub fn common_name(
        &self,
        chain: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> Result<String, String> {
        self.verify_client(chain, now)
            .map(|verified| verified.user.name.clone())
    }

    fn verify_client(
        &self,
        chain: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> Result<VerifiedCertificateUser, String> {
        let leaf = chain.first().ok_or("no certificate")?;
        let mut hasher = Sha256::new();
        chain.iter().for_each(|c| hasher.update(c));
        let hash: [u8; 32] = hasher.finalize().into();
        if let Some(verified_users) = self.verified_users.lock().get(&hash)
            && now.as_second() < verified_users.expires
        {
            return Ok(verified_users.clone());
        }
        self.verify_chain(
            chain,
            CertificateUsage::Client,
            now.as_second().max(0) as u64,
        )?;
        let user = Arc::new(user_info(leaf)?);
        let mut expires = i64::MAX;
        for cert in chain {
            expires = expires.min(expiry(cert)?);
        }
        let verified = VerifiedCertificateUser { user, expires };
        let mut verified_users = self.verified_users.lock();
        if verified_users.len() >= MAX_CACHED_CERTIFICATES {
            verified_users.clear();
        }
        verified_users.insert(hash, verified.clone());
        Ok(verified)
    }
}

/// The expiry of a certificate, in seconds since the epoch.
pub fn expiry(der: &CertificateDer<'_>) -> Result<i64, String> {
    let (_, cert) =
        X509Certificate::from_der(der).map_err(|e| format!("is not an X.509 certificate: {e}"))?;
    Ok(cert.validity().not_after.timestamp())
}

fn user_info(der: &CertificateDer<'_>) -> Result<UserInfo, String> {
    let (_, cert) = X509Certificate::from_der(der).map_err(|e| e.to_string())?;
    let subject = cert.subject();
    let name = subject
        .iter_common_name()
        .last()
        .and_then(|cn| cn.as_str().ok())
        .unwrap_or_default();
    let mut groups: Vec<String> = subject
        .iter_organization()
        .filter_map(|o| o.as_str().ok().map(str::to_owned))
        .collect();
    if !groups.iter().any(|g| g == ALL_AUTHENTICATED) {
        groups.push(ALL_AUTHENTICATED.into());
    }
    let fingerprint: String = Sha256::digest(der)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    let mut extra = BTreeMap::from([(
        "authentication.kubernetes.io/credential-id".to_owned(),
        vec![format!("X509SHA256={fingerprint}")],
    )]);
    if groups.iter().any(|group| group == AGENTS_GROUP) {
        let key = public_key_id(cert.public_key().raw);
        extra.insert(PUBLIC_KEY_EXTRA.to_owned(), vec![key]);
    }
    let uid = subject
        .iter_by_oid(&UID)
        .last()
        .and_then(|uid| uid.as_str().ok())
        .unwrap_or_default();
    Ok(UserInfo {
        name: name.into(),
        uid: uid.into(),
        groups,
        extra,
    })
}

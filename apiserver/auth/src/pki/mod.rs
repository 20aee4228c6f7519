//! The keys and certificates of one server, stored in a directory.
//!
//! Creates and renews them and builds kubeconfigs. Touches only files in that
//! directory; each is replaced atomically (temporary file, fsync, rename), keys with
//! mode 0600.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use machinery::certificate_request::CertificateRequest;
use machinery::user::SYSTEM_PRIVILEGED_GROUP;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::ca_bundle::{BACKDATE_SECONDS, merge_bundles};
use crate::certificate_signing::authority::{
    CertificateValidity, SigningAuthority, client_subject_der,
};
use crate::private_dir::create_private_dir;
use crate::x509::{CertificateUsage, CertificateVerifier};

/// The user of the administrator's kubeconfig.
const ADMINISTRATOR: &str = "kubernetes-admin";
pub(crate) const DAY_SECONDS: u64 = 24 * 60 * 60;
pub(crate) const CA_DAYS: u64 = 3650;
pub(crate) const LEAF_DAYS: u64 = 365;
/// A certificate is renewed when less than this is left, in seconds.
const RENEW_BEFORE_SECONDS: u64 = 30 * DAY_SECONDS;
/// Names in every Kubernetes API server's certificate.
const DEFAULT_SERVING_NAMES: [&str; 7] = [
    "127.0.0.1",
    "::1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// Why the keys cannot be opened. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory cannot be read or written.
    #[error("cannot {doing} {}: {source}; check that the directory belongs to this user and that the disk has room", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    /// A file is malformed.
    #[error("{} {reason}; {advice}", path.display())]
    Malformed {
        path: PathBuf,
        reason: String,
        advice: &'static str,
    },
    /// The cryptographic library failed.
    #[error("cannot make a certificate: {0}")]
    Generate(#[from] rcgen::Error),
    /// The authority cannot sign.
    #[error("cannot sign a certificate: {0}")]
    Sign(String),
    /// TLS cannot be set up with these files.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
}

const RESTORE_CA_ADVICE: &str = "restore it from a backup, or remove ca.crt and ca.key to start over with a new CA (existing kubeconfigs stop working)";
const REMOVE_ADVICE: &str = "restore it from a backup, or remove it to create a new one";
const REMOVE_SA_KEY_ADVICE: &str =
    "restore it from a backup, or remove it (service account tokens issued so far stop working)";

/// A certificate with its private key, both as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct CertKeyPair {
    pub certificate_pem: String,
    pub key_pem: String,
}

/// The keys and certificates of one server.
pub struct Pki {
    pub ca_pem: String,
    pub(crate) ca_key_pem: String,
    pub serving: CertKeyPair,
    /// `kubernetes-admin` of `system:masters`.
    pub admin: CertKeyPair,
    /// PKCS#8 PEM of the ES256 key that signs service account tokens.
    pub token_key_pem: String,
}

impl Pki {
    /// Opens the directory and creates what is missing. Certificates are renewed before
    /// they expire and when `names` changes: the addresses and host names by which
    /// clients reach the server, in addition to the default ones.
    pub fn open(dir: &Path, names: &[String], now: Timestamp) -> Result<Self, Error> {
        create_private_dir(dir).map_err(|e| io_error("use", dir, e))?;
        let (ca_pem, ca_key_pem) = load_or_create_ca(dir, now)?;
        let store = CertificateDirectorySigner {
            dir,
            ca_pem: &ca_pem,
            ca_key_pem: &ca_key_pem,
            now,
        };
        let mut serving_names: BTreeSet<String> = DEFAULT_SERVING_NAMES
            .iter()
            .map(|n| (*n).to_owned())
            .collect();
        serving_names.extend(names.iter().filter_map(|n| canonical_name(n)));
        let serving = store.keep_or_sign(
            "server",
            &LeafCertificateProfile::Server {
                names: serving_names,
            },
        )?;
        let admin = store.keep_or_sign(
            "admin",
            &LeafCertificateProfile::Client {
                user: "kubernetes-admin".into(),
                groups: vec![SYSTEM_PRIVILEGED_GROUP.into()],
            },
        )?;
        let token_key_pem = load_or_create_key(&dir.join("sa.key"), REMOVE_SA_KEY_ADVICE)?;
        Ok(Self {
            serving,
            admin,
            token_key_pem,
            ca_pem: ca_pem.clone(),
            ca_key_pem: ca_key_pem.clone(),
        })
    }

    /// Signs a new client certificate for a user, valid for a year.
    pub fn sign_client_certificate(
        &self,
        user: &str,
        groups: &[String],
        now: Timestamp,
    ) -> Result<CertKeyPair, Error> {
        let leaf = LeafCertificateProfile::Client {
            user: user.into(),
            groups: groups.to_vec(),
        };
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        sign_certificate(&self.ca_pem, &self.ca_key_pem, &leaf, &key, now)
    }

    /// The verifier of client certificates signed by this CA.
    pub fn verifier(&self) -> Result<CertificateVerifier, Error> {
        CertificateVerifier::from_pem(&self.ca_pem).map_err(|message| Error::Malformed {
            path: "ca.crt".into(),
            reason: message,
            advice: RESTORE_CA_ADVICE,
        })
    }

    /// Certificate chain and key for the listener.
    pub fn serving_der(
        &self,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Error> {
        identity_der(&self.serving)
    }

    /// The private key of the authority.
    pub fn ca_key_pem(&self) -> &str {
        &self.ca_key_pem
    }

    /// A kubeconfig with which the administrator reaches `server` (a URL), whose certificate
    /// `root_ca` verifies.
    pub fn admin_kubeconfig(&self, server: &str, root_ca: &str) -> String {
        kubeconfig(server, root_ca, ADMINISTRATOR, &self.admin)
    }

    /// Like [`Self::admin_kubeconfig`], with the contexts `fleet` and `fleet-tree` for the fleet view of the
    /// server and its tree.
    pub fn admin_kubeconfig_with_fleet(&self, server: &str, root_ca: &str) -> String {
        let credential = embedded_credential(&self.admin);
        kubeconfig_with(server, root_ca, (ADMINISTRATOR, &credential), true)
    }
}

fn embedded_credential(identity: &CertKeyPair) -> String {
    format!(
        "    client-certificate-data: {}\n    client-key-data: {}\n",
        STANDARD.encode(&identity.certificate_pem),
        STANDARD.encode(&identity.key_pem)
    )
}

/// A kubeconfig with one cluster, one user and one context, data embedded.
pub fn kubeconfig(server: &str, ca_pem: &str, user: &str, identity: &CertKeyPair) -> String {
    let credential = embedded_credential(identity);
    kubeconfig_with(server, ca_pem, (user, &credential), false)
}

/// Like [`kubeconfig`], with a bearer token.
pub fn kubeconfig_with_token(server: &str, ca_pem: &str, user: &str, token: &str) -> String {
    let credential = format!("    token: {token:?}\n");
    kubeconfig_with(server, ca_pem, (user, &credential), false)
}

fn kubeconfig_with(
    server: &str,
    ca_pem: &str,
    (user, credential): (&str, &str),
    has_fleet: bool,
) -> String {
    let ca = STANDARD.encode(ca_pem);
    let mut clusters = vec![("flotilla", server.to_owned())];
    if has_fleet {
        let paths = ["fleet", "fleet-tree"];
        clusters
            .extend(paths.map(|path| (path, format!("{}/{path}", server.trim_end_matches('/')))));
    }
    let mut doc = "apiVersion: v1\nkind: Config\nclusters:\n".to_owned();
    for (name, server) in &clusters {
        let _ = write!(
            doc,
            "- name: {name}\n  cluster:\n    server: {server:?}\n    certificate-authority-data: {ca}\n"
        );
    }
    let _ = write!(
        doc,
        "users:\n- name: {user:?}\n  user:\n{credential}contexts:\n"
    );
    for (name, _) in &clusters {
        let _ = write!(
            doc,
            "- name: {name}\n  context:\n    cluster: {name}\n    user: {user:?}\n"
        );
    }
    doc.push_str("current-context: flotilla\npreferences: {}\n");
    doc
}

pub(crate) fn identity_der(
    identity: &CertKeyPair,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Error> {
    let malformed = |e: rustls_pki_types::pem::Error| Error::Malformed {
        path: "server.crt".into(),
        reason: format!("is not PEM: {e}"),
        advice: REMOVE_ADVICE,
    };
    let chain = CertificateDer::pem_slice_iter(identity.certificate_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(malformed)?;
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).map_err(malformed)?;
    Ok((chain, key))
}

pub(crate) enum LeafCertificateProfile {
    Server {
        names: BTreeSet<String>,
    },
    /// A server certificate that is valid for client authentication too.
    Peer {
        names: BTreeSet<String>,
    },
    Client {
        user: String,
        groups: Vec<String>,
    },
}

struct CertificateDirectorySigner<'a> {
    dir: &'a Path,
    ca_pem: &'a str,
    ca_key_pem: &'a str,
    now: Timestamp,
}

impl CertificateDirectorySigner<'_> {
    fn keep_or_sign(
        &self,
        name: &str,
        leaf: &LeafCertificateProfile,
    ) -> Result<CertKeyPair, Error> {
        let cert_path = self.dir.join(format!("{name}.crt"));
        let key_path = self.dir.join(format!("{name}.key"));
        let key_pem = load_or_create_key(&key_path, REMOVE_ADVICE)?;
        let key = parse_key(&key_path, &key_pem, REMOVE_ADVICE)?;
        if let Some(certificate_pem) = read_file(&cert_path)?
            && self.is_valid(&cert_path, &certificate_pem, leaf, &key)?
        {
            return Ok(CertKeyPair {
                certificate_pem,
                key_pem,
            });
        }
        let signed = sign_certificate(self.ca_pem, self.ca_key_pem, leaf, &key, self.now)?;
        write_file(&cert_path, &signed.certificate_pem, 0o644)?;
        Ok(CertKeyPair {
            certificate_pem: signed.certificate_pem,
            key_pem,
        })
    }

    fn is_valid(
        &self,
        path: &Path,
        pem: &str,
        leaf: &LeafCertificateProfile,
        key: &KeyPair,
    ) -> Result<bool, Error> {
        let malformed = |message: String| Error::Malformed {
            path: path.into(),
            reason: message,
            advice: REMOVE_ADVICE,
        };
        let der = CertificateDer::from_pem_slice(pem.as_bytes())
            .map_err(|e| malformed(format!("is not a PEM certificate: {e}")))?;
        let (names, public) = san_and_public_key(&der).map_err(malformed)?;
        let usage = match leaf {
            LeafCertificateProfile::Server { names: expected }
            | LeafCertificateProfile::Peer { names: expected } => {
                if *expected != names {
                    return Ok(false);
                }
                CertificateUsage::Server
            }
            LeafCertificateProfile::Client { .. } => CertificateUsage::Client,
        };
        let verifier = CertificateVerifier::from_pem(self.ca_pem).map_err(malformed)?;
        let valid_until = self.now.as_second().max(0) as u64 + RENEW_BEFORE_SECONDS;
        Ok(public == key.public_key_raw()
            && verifier.verify_chain(&[der], usage, valid_until).is_ok())
    }
}

pub(crate) fn san_and_public_key(
    der: &CertificateDer<'_>,
) -> Result<(BTreeSet<String>, Vec<u8>), String> {
    use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};
    let (_, cert) =
        X509Certificate::from_der(der).map_err(|e| format!("is not an X.509 certificate: {e}"))?;
    let mut names = BTreeSet::new();
    if let Ok(Some(san)) = cert.subject_alternative_name() {
        for name in &san.value.general_names {
            match name {
                GeneralName::DNSName(n) => {
                    names.insert((*n).to_owned());
                }
                GeneralName::IPAddress(raw) => {
                    names.extend(parse_ip(raw).map(|ip| ip.to_string()));
                }
                _ => {}
            }
        }
    }
    let key = cert.public_key().subject_public_key.data.to_vec();
    Ok((names, key))
}

fn parse_ip(raw: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(raw) {
        return Some(v4.into());
    }
    <[u8; 16]>::try_from(raw).ok().map(IpAddr::from)
}

/// The name as a certificate holds it; `None` when it is invalid or an unspecified
/// address, which clients cannot reach.
fn canonical_name(name: &str) -> Option<String> {
    match name.parse::<IpAddr>() {
        Ok(ip) if ip.is_unspecified() => None,
        Ok(ip) => Some(ip.to_string()),
        Err(_) => {
            let lower = name.to_ascii_lowercase();
            machinery::names::validate_dns1123_subdomain(&lower)
                .is_ok()
                .then_some(lower)
        }
    }
}

fn load_or_create_ca(dir: &Path, now: Timestamp) -> Result<(String, String), Error> {
    let (cert_path, key_path) = (dir.join("ca.crt"), dir.join("ca.key"));
    let existing = read_file(&cert_path)?;
    if existing.is_some() && read_file(&key_path)?.is_none() {
        return Err(Error::Malformed {
            path: key_path,
            reason: "is missing beside ca.crt".into(),
            advice: RESTORE_CA_ADVICE,
        });
    }
    let key_pem = load_or_create_key(&key_path, RESTORE_CA_ADVICE)?;
    let key = parse_key(&key_path, &key_pem, RESTORE_CA_ADVICE)?;
    if let Some(pem) = &existing {
        let malformed = |message: String| Error::Malformed {
            path: cert_path.clone(),
            reason: message,
            advice: RESTORE_CA_ADVICE,
        };
        let der = CertificateDer::from_pem_slice(pem.as_bytes())
            .map_err(|e| malformed(format!("is not a PEM certificate: {e}")))?;
        let (_, public) = san_and_public_key(&der).map_err(malformed)?;
        if public != key.public_key_raw() {
            return Err(malformed("does not belong to ca.key".into()));
        }
        let expires = crate::x509::expiry(&der).map_err(malformed)?;
        if expires > now.as_second() + (LEAF_DAYS * DAY_SECONDS) as i64 {
            return Ok((pem.clone(), key_pem));
        }
    }
    // Same key and name, so that certificates signed before stay valid and clients keep
    // trusting them. The old CA stays in the bundle until it expires.
    let renewed = ca_params(now).self_signed(&key)?.pem();
    let pem = merge_bundles(&renewed, &existing.unwrap_or_default(), now);
    write_file(&cert_path, &pem, 0o644)?;
    Ok((pem, key_pem))
}

pub(crate) fn ca_params(now: Timestamp) -> CertificateParams {
    let mut params = certificate_params(now, CA_DAYS);
    params
        .distinguished_name
        .push(DnType::CommonName, "flotilla-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
    ];
    params
}

fn certificate_params(now: Timestamp, days: u64) -> CertificateParams {
    let now = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(now.as_second().max(0) as u64);
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.not_before = now - Duration::from_secs(BACKDATE_SECONDS);
    params.not_after = now + Duration::from_secs(days * DAY_SECONDS);
    params
}

pub(crate) fn sign_certificate(
    ca_pem: &str,
    ca_key_pem: &str,
    leaf: &LeafCertificateProfile,
    key: &KeyPair,
    now: Timestamp,
) -> Result<CertKeyPair, Error> {
    let certificate_pem = match leaf {
        LeafCertificateProfile::Server { names } => {
            sign_server_certificate(ca_pem, ca_key_pem, names, false, key, now)?
        }
        LeafCertificateProfile::Peer { names } => {
            sign_server_certificate(ca_pem, ca_key_pem, names, true, key, now)?
        }
        LeafCertificateProfile::Client { user, groups } => {
            let request = CertificateRequest {
                subject_der: client_subject_der(user, groups),
                public_key_der: key.subject_public_key_info(),
                ..CertificateRequest::default()
            };
            let usages = ["digital signature".to_owned(), "client auth".to_owned()];
            let validity = CertificateValidity {
                not_before: now - SignedDuration::from_secs(BACKDATE_SECONDS as i64),
                not_after: now + SignedDuration::from_secs((LEAF_DAYS * DAY_SECONDS) as i64),
            };
            SigningAuthority::new(ca_pem, ca_key_pem)
                .and_then(|authority| authority.sign(&request, &usages, validity))
                .map_err(Error::Sign)?
        }
    };
    Ok(CertKeyPair {
        certificate_pem,
        key_pem: key.serialize_pem(),
    })
}

fn sign_server_certificate(
    ca_pem: &str,
    ca_key_pem: &str,
    names: &BTreeSet<String>,
    is_client: bool,
    key: &KeyPair,
    now: Timestamp,
) -> Result<String, Error> {
    let mut params = certificate_params(now, LEAF_DAYS);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    params
        .distinguished_name
        .push(DnType::CommonName, "flotilla");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    if is_client {
        let client = ExtendedKeyUsagePurpose::ClientAuth;
        params.extended_key_usages.push(client);
    }
    for name in names {
        params.subject_alt_names.push(match name.parse::<IpAddr>() {
            Ok(ip) => SanType::IpAddress(ip),
            Err(_) => SanType::DnsName(name.as_str().try_into()?),
        });
    }
    let issuer = Issuer::from_ca_cert_pem(ca_pem, KeyPair::from_pem(ca_key_pem)?)?;
    Ok(params.signed_by(key, &issuer)?.pem())
}

/// The private key in a file, created when the file is missing.
fn load_or_create_key(path: &Path, advice: &'static str) -> Result<String, Error> {
    if let Some(pem) = read_file(path)? {
        parse_key(path, &pem, advice)?;
        return Ok(pem);
    }
    let pem = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?.serialize_pem();
    write_file(path, &pem, 0o600)?;
    Ok(pem)
}

fn parse_key(path: &Path, pem: &str, advice: &'static str) -> Result<KeyPair, Error> {
    KeyPair::from_pem(pem).map_err(|e| Error::Malformed {
        path: path.into(),
        reason: format!("is not a private key in PEM form: {e}"),
        advice,
    })
}

fn io_error(doing: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::Io {
        doing,
        path: path.into(),
        source,
    }
}

pub(crate) fn read_file(path: &Path) -> Result<Option<String>, Error> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(io_error("read", path, e)),
    }
}

/// Replaces a file atomically. Kubeconfigs, which hold keys, are written with it too.
pub fn write_file(path: &Path, text: &str, mode: u32) -> Result<(), Error> {
    let temporary = path.with_extension(format!("tmp{}", std::process::id()));
    let result = (|| {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(mode)
            .open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => fs::File::open(dir)?.sync_all(),
            _ => Ok(()),
        }
    })();
    result.map_err(|e| {
        let _ = fs::remove_file(&temporary);
        io_error("write", path, e)
    })
}

#[cfg(test)]
mod tests;

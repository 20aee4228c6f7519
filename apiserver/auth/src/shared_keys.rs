//! The keys that all replicas of one API share: the CA, and the key that signs service
//! account tokens. Each replica signs its own certificates with them.
//!
//! They are stored as a JSON document, or as files in a directory that [`Pki::open`]
//! uses. They contain private keys and must never be logged.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::pki::{Error, Pki, read_file, write_file};
use crate::private_dir::create_private_dir;

/// The shared keys, as PEM. Deliberately not `Debug`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedKeys {
    #[serde(rename = "ca.crt")]
    ca: String,
    #[serde(rename = "ca.key")]
    ca_key: String,
    #[serde(rename = "sa.key")]
    token_key: String,
}

impl SharedKeys {
    /// The keys of an opened directory.
    pub fn from_pki(pki: &Pki) -> Self {
        Self {
            ca: pki.ca_pem.clone(),
            ca_key: pki.ca_key_pem.clone(),
            token_key: pki.token_key_pem.clone(),
        }
    }

    /// Parses a JSON document; the error does not reveal its content.
    pub fn parse(document: &[u8]) -> Result<Self, String> {
        machinery::json::from_slice(document).map_err(|e| {
            let (line, column) = (e.line(), e.column());
            format!("is malformed at line {line}, column {column}")
        })
    }

    /// Serializes the keys as JSON.
    pub fn to_json(&self) -> Vec<u8> {
        // Serializing three strings cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Writes the keys to a directory; files with the right content stay untouched.
    pub fn write_to_dir(&self, dir: &Path) -> Result<(), Error> {
        create_private_dir(dir).map_err(|source| Error::Io {
            doing: "use",
            path: dir.to_owned(),
            source,
        })?;
        for (name, text, mode) in [
            ("ca.key", &self.ca_key, 0o600),
            ("ca.crt", &self.ca, 0o644),
            ("sa.key", &self.token_key, 0o600),
        ] {
            let path = dir.join(name);
            if read_file(&path)?.as_ref() != Some(text) {
                write_file(&path, text, mode)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x509::CertificateUsage;
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject;

    #[test]
    fn shared_keys_replace_those_of_a_directory() {
        let now = jiff::Timestamp::now();
        let (first_dir, second_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = Pki::open(first_dir.path(), &[], now).unwrap();
        // The directory had keys of its own before.
        let replaced = Pki::open(second_dir.path(), &[], now).unwrap();
        let document = SharedKeys::from_pki(&first).to_json();
        let shared = SharedKeys::parse(&document).unwrap_or_else(|message| panic!("{message}"));
        shared.write_to_dir(second_dir.path()).unwrap();
        let second = Pki::open(second_dir.path(), &["other.example".into()], now).unwrap();
        assert!(second.ca_pem == first.ca_pem && second.ca_pem != replaced.ca_pem);
        assert!(second.token_key_pem == first.token_key_pem);
        let verifier = first.verifier().unwrap();
        let at = now.as_second() as u64;
        for (pem, usage) in [
            (&second.admin.certificate_pem, CertificateUsage::Client),
            (&second.serving.certificate_pem, CertificateUsage::Server),
        ] {
            let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
            assert!(verifier.verify_chain(&[der], usage, at).is_ok());
        }
        assert!(
            SharedKeys::parse(b"{\"ca.crt\": \"secret\"")
                .is_err_and(|message| !message.contains("secret"))
        );
    }
}

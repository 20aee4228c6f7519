//! What processes that serve one API have in common: the authority, and the key
//! that signs tokens. Each makes its own certificates with them.
//!
//! Enters: a [`Pki`], or a document. Leaves: the document, or files in a directory
//! from which [`Pki::open`] goes on. It holds private keys: never to be logged.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::pki::{Error, Pki, read, write};
use crate::private::private_dir;

/// The keys in common, as PEM. No `Debug`, on purpose.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    #[serde(rename = "ca.crt")]
    ca: String,
    #[serde(rename = "ca.key")]
    ca_key: String,
    #[serde(rename = "sa.key")]
    token_key: String,
}

impl Shared {
    /// Those of one process.
    pub fn of(pki: &Pki) -> Self {
        Self {
            ca: pki.ca_pem.clone(),
            ca_key: pki.ca_key_pem.clone(),
            token_key: pki.token_key_pem.clone(),
        }
    }

    /// Reads a document; the error says nothing of its content.
    pub fn parse(document: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(document).map_err(|e| {
            let (line, column) = (e.line(), e.column());
            format!("is not what it should be at line {line}, column {column}")
        })
    }

    /// The document.
    pub fn document(&self) -> Vec<u8> {
        // Three strings always have one.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Puts them into a directory; files that are right stay as they are.
    pub fn keep_in(&self, dir: &Path) -> Result<(), Error> {
        private_dir(dir).map_err(|source| Error::Io {
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
            if read(&path)?.as_ref() != Some(text) {
                write(&path, text, mode)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x509::Usage;
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject;

    #[test]
    fn a_directory_takes_up_the_authority_of_another() {
        let now = jiff::Timestamp::now();
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = Pki::open(one.path(), &[], now).unwrap();
        // It had keys of its own before.
        let own = Pki::open(two.path(), &[], now).unwrap();
        let document = Shared::of(&first).document();
        let shared = Shared::parse(&document).unwrap_or_else(|why| panic!("{why}"));
        shared.keep_in(two.path()).unwrap();
        let second = Pki::open(two.path(), &["other.example".into()], now).unwrap();
        assert!(second.ca_pem == first.ca_pem && second.ca_pem != own.ca_pem);
        assert!(second.token_key_pem == first.token_key_pem);
        let verifier = first.verifier().unwrap();
        let at = now.as_second() as u64;
        for (pem, usage) in [
            (&second.admin.certificate_pem, Usage::Client),
            (&second.serving.certificate_pem, Usage::Server),
        ] {
            let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
            assert!(verifier.chain(&[der], usage, at).is_ok());
        }
        assert!(
            Shared::parse(b"{\"ca.crt\": \"secret\"").is_err_and(|why| !why.contains("secret"))
        );
    }
}

//! Encrypts and decrypts values; the prefix of a stored value names the provider and key:
//! `k8s:enc:aesgcm:v1:KEY:`, `k8s:enc:secretbox:v1:KEY:`, or no prefix for plaintext.
//!
//! AES-GCM stores a nonce of 12 bytes, the ciphertext and the tag, and authenticates the
//! storage key as well, so that a value cannot be moved to another key. Secretbox stores
//! a nonce of 24 bytes and NaCl's box; it cannot authenticate the storage key.

use std::fmt;

use aws_lc_rs::aead::{
    AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey,
};
use bytes::Bytes;
use crypto_secretbox::aead::Aead;
use crypto_secretbox::{KeyInit, XSalsa20Poly1305};

/// The beginning of every encrypted value, of any provider.
const ENCRYPTED_PREFIX: &[u8] = b"k8s:enc:";
const AES_GCM_PREFIX: &str = "k8s:enc:aesgcm:v1:";
const SECRETBOX_PREFIX: &str = "k8s:enc:secretbox:v1:";
const SECRETBOX_NONCE_BYTES: usize = 24;
/// The longest name of an unknown key that an error repeats.
const MAX_KEY_NAME_BYTES: usize = 128;

/// Whether a stored value is encrypted, by any provider.
pub fn is_encrypted(stored: &[u8]) -> bool {
    stored.starts_with(ENCRYPTED_PREFIX)
}

/// One key of a provider, or the provider `identity`, which stores plaintext.
pub struct PrefixTransformer {
    prefix: String,
    cipher: EncryptionCipher,
}

enum EncryptionCipher {
    AesGcm(Box<LessSafeKey>),
    Secretbox(Box<XSalsa20Poly1305>),
    Identity,
}

impl fmt::Debug for PrefixTransformer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrefixTransformer({})", self.prefix)
    }
}

impl PrefixTransformer {
    /// The lengths in bytes that a key of `aesgcm` may have.
    pub const AES_GCM_KEY_BYTES: &[usize] = &[16, 24, 32];
    /// The lengths in bytes that a key of `secretbox` may have.
    pub const SECRETBOX_KEY_BYTES: &[usize] = &[32];

    /// A key of `aesgcm`; `None` when its length does not fit.
    pub fn aes_gcm(name: &str, secret: &[u8]) -> Option<Self> {
        let algorithm = match secret.len() {
            16 => &AES_128_GCM,
            24 => &AES_192_GCM,
            32 => &AES_256_GCM,
            _ => return None,
        };
        let key = LessSafeKey::new(UnboundKey::new(algorithm, secret).ok()?);
        Some(Self {
            prefix: format!("{AES_GCM_PREFIX}{name}:"),
            cipher: EncryptionCipher::AesGcm(Box::new(key)),
        })
    }

    /// A key of `secretbox`; `None` when its length does not fit.
    pub fn secretbox(name: &str, secret: &[u8]) -> Option<Self> {
        let key = XSalsa20Poly1305::new_from_slice(secret).ok()?;
        Some(Self {
            prefix: format!("{SECRETBOX_PREFIX}{name}:"),
            cipher: EncryptionCipher::Secretbox(Box::new(key)),
        })
    }

    /// The provider `identity`.
    pub fn identity() -> Self {
        Self {
            prefix: String::new(),
            cipher: EncryptionCipher::Identity,
        }
    }

    fn encrypt(&self, key: &[u8], plaintext: &Bytes) -> Result<Bytes, String> {
        let failed = |message: &str| format!("{}: {message}", self.prefix);
        let mut stored = Vec::with_capacity(self.prefix.len() + plaintext.len() + 64);
        stored.extend_from_slice(self.prefix.as_bytes());
        match &self.cipher {
            EncryptionCipher::Identity => return Ok(plaintext.clone()),
            EncryptionCipher::AesGcm(cipher) => {
                let nonce: [u8; NONCE_LEN] = random().ok_or_else(|| failed("no randomness"))?;
                stored.extend_from_slice(&nonce);
                let mut sealed = plaintext.to_vec();
                let nonce = Nonce::assume_unique_for_key(nonce);
                cipher
                    .seal_in_place_append_tag(nonce, Aad::from(key), &mut sealed)
                    .map_err(|_| failed("cannot be encrypted"))?;
                stored.extend_from_slice(&sealed);
            }
            EncryptionCipher::Secretbox(cipher) => {
                let nonce: [u8; SECRETBOX_NONCE_BYTES] =
                    random().ok_or_else(|| failed("no randomness"))?;
                stored.extend_from_slice(&nonce);
                let sealed = cipher
                    .encrypt(&nonce.into(), &**plaintext)
                    .map_err(|_| failed("cannot be encrypted"))?;
                stored.extend_from_slice(&sealed);
            }
        }
        Ok(stored.into())
    }

    /// `None` when another provider or key encrypted the value.
    fn decrypt(&self, key: &[u8], stored: &Bytes) -> Option<Result<Bytes, String>> {
        let rest = stored.strip_prefix(self.prefix.as_bytes())?;
        let plaintext = match &self.cipher {
            EncryptionCipher::Identity if is_encrypted(stored) => return None,
            EncryptionCipher::Identity => Some(stored.clone()),
            EncryptionCipher::AesGcm(cipher) => open_aes_gcm(cipher, key, rest),
            EncryptionCipher::Secretbox(cipher) => open_secretbox(cipher, rest),
        };
        let name = self.prefix.trim_end_matches(':');
        Some(plaintext.ok_or_else(|| {
            format!(
                "it was encrypted as {name} with another key of that name, was damaged, or was \
                 moved here from another key of the store"
            )
        }))
    }
}

fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    Some(bytes)
}

fn open_aes_gcm(cipher: &LessSafeKey, key: &[u8], rest: &[u8]) -> Option<Bytes> {
    let (nonce, sealed) = rest.split_at_checked(NONCE_LEN)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let mut sealed = sealed.to_vec();
    let length = cipher
        .open_in_place(nonce, Aad::from(key), &mut sealed)
        .ok()?
        .len();
    sealed.truncate(length);
    Some(sealed.into())
}

fn open_secretbox(cipher: &XSalsa20Poly1305, rest: &[u8]) -> Option<Bytes> {
    let (nonce, sealed) = rest.split_at_checked(SECRETBOX_NONCE_BYTES)?;
    let nonce: [u8; SECRETBOX_NONCE_BYTES] = nonce.try_into().ok()?;
    cipher.decrypt(&nonce.into(), sealed).ok().map(Into::into)
}

/// The providers and keys of one resource, in the order of the configuration: the first
/// one encrypts, all decrypt.
#[derive(Debug)]
pub struct PrefixTransformers {
    first: PrefixTransformer,
    others: Vec<PrefixTransformer>,
}

/// A decrypted value.
#[derive(Debug)]
pub(super) struct DecryptedValue {
    pub(super) value: Bytes,
    /// Whether a write of the same value would store it under another key or provider.
    pub(super) stale: bool,
}

impl PrefixTransformers {
    pub fn new(first: PrefixTransformer, others: Vec<PrefixTransformer>) -> Self {
        Self { first, others }
    }

    /// Stores plaintext and reads nothing else.
    pub fn identity() -> Self {
        Self::new(PrefixTransformer::identity(), Vec::new())
    }

    pub(super) fn encrypt(&self, key: &[u8], plaintext: &Bytes) -> Result<Bytes, String> {
        self.first.encrypt(key, plaintext)
    }

    pub(super) fn decrypt(&self, key: &[u8], stored: &Bytes) -> Result<DecryptedValue, String> {
        let mut failure = None;
        let all = std::iter::once(&self.first).chain(&self.others);
        for (index, transformer) in all.enumerate() {
            match transformer.decrypt(key, stored) {
                None => {}
                // A later key may have the same name.
                Some(Err(message)) => failure = failure.or(Some(message)),
                Some(Ok(value)) => {
                    return Ok(DecryptedValue {
                        value,
                        stale: index > 0,
                    });
                }
            }
        }
        Err(failure.unwrap_or_else(|| missing_transformer_error(stored)))
    }
}

/// The error when no configured key can decrypt a value; it names the provider and key
/// that the configuration lacks.
pub(super) fn missing_transformer_error(stored: &[u8]) -> String {
    if !is_encrypted(stored) {
        return "no matching prefix found: it is stored as plaintext, and the encryption \
                configuration does not list the provider identity for it"
            .into();
    }
    let prefix: Vec<&[u8]> = stored.split(|b| *b == b':').take(5).collect();
    let name = std::str::from_utf8(&prefix.join(&b':'))
        .ok()
        .filter(|name| name.len() <= MAX_KEY_NAME_BYTES && !name.contains(char::is_control))
        .map_or_else(String::new, |name| format!(" as {name}"));
    format!(
        "no matching prefix found: it is encrypted{name}, and the encryption configuration does \
         not list that provider and key for it"
    )
}

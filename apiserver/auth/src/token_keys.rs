//! Reads the keys of service account tokens, the signing key and the verification keys, from PEM
//! files (client-go's `util/keyutil`, kube-apiserver's `pkg/serviceaccount`).

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey};
use rcgen::{KeyPair, PublicKeyData};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::{PemObject, SectionKind};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use x509_parser::asn1_rs::{Oid, oid};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

/// More keys in one file are refused.
const MAX_KEYS: usize = 64;
const P256: Oid<'static> = oid!(1.2.840.10045.3.1.7);
const P384: Oid<'static> = oid!(1.3.132.0.34);
const UNSUPPORTED: &str = "the key is neither RSA nor ECDSA with P-256 or P-384";

/// A public key that verifies tokens.
pub(crate) struct TokenVerificationKey {
    /// The digest of the key, which tokens name as `kid`.
    pub(crate) id: String,
    pub(crate) algorithm: Algorithm,
    pub(crate) decoding_key: DecodingKey,
    /// The key as a JSON Web Key.
    pub(crate) jwk: Value,
}

/// The private key that signs tokens.
pub(crate) struct TokenSigningKey {
    pub(crate) encoding_key: EncodingKey,
    pub(crate) public: TokenVerificationKey,
}

impl TokenSigningKey {
    /// Takes the first private key of a PEM file: RSA, or ECDSA with P-256 or P-384.
    pub(crate) fn from_pem(pem: &str) -> Result<Self, String> {
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes())
            .map_err(|e| format!("there is no private key in PEM form: {e}"))?;
        let public = TokenVerificationKey::from_private(&key)?;
        let invalid = |e: jsonwebtoken::errors::Error| e.to_string();
        let encoding_key = match public.algorithm {
            Algorithm::RS256 => EncodingKey::from_rsa_pem(pem.as_bytes()).map_err(invalid)?,
            Algorithm::ES384 => ec_signing_key(&key, &ECDSA_P384_SHA384_FIXED_SIGNING)?,
            _ => ec_signing_key(&key, &ECDSA_P256_SHA256_FIXED_SIGNING)?,
        };
        Ok(Self {
            encoding_key,
            public,
        })
    }
}

/// The signing key in PKCS#8, whichever form the file has.
fn ec_signing_key(
    key: &PrivateKeyDer<'_>,
    algorithm: &'static EcdsaSigningAlgorithm,
) -> Result<EncodingKey, String> {
    let pair = match key {
        PrivateKeyDer::Pkcs8(der) => return Ok(EncodingKey::from_ec_der(der.secret_pkcs8_der())),
        other => EcdsaKeyPair::from_private_key_der(algorithm, other.secret_der()),
    };
    let pair = pair.map_err(|e| e.to_string())?;
    let der = pair.to_pkcs8v1().map_err(|e| e.to_string())?;
    Ok(EncodingKey::from_ec_der(der.as_ref()))
}

impl TokenVerificationKey {
    /// The keys of a PEM file, which may hold public keys, private keys and certificates.
    pub(crate) fn all_from_pem(pem: &str) -> Result<Vec<Self>, String> {
        let mut keys = Vec::new();
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem.as_bytes()) {
            let (kind, der) = section.map_err(|e| format!("is not PEM: {e}"))?;
            keys.push(match kind {
                SectionKind::PublicKey => Self::from_subject_public_key_info(&der)?,
                SectionKind::Certificate => {
                    let parsed = X509Certificate::from_der(&der);
                    let (_, certificate) = parsed.map_err(|e| e.to_string())?;
                    Self::from_subject_public_key_info(certificate.public_key().raw)?
                }
                SectionKind::RsaPrivateKey => {
                    Self::from_private(&PrivateKeyDer::Pkcs1(der.into()))?
                }
                SectionKind::EcPrivateKey => Self::from_private(&PrivateKeyDer::Sec1(der.into()))?,
                SectionKind::PrivateKey => Self::from_private(&PrivateKeyDer::Pkcs8(der.into()))?,
                _ => continue,
            });
            if keys.len() > MAX_KEYS {
                return Err(format!("has more than {MAX_KEYS} keys"));
            }
        }
        if keys.is_empty() {
            return Err("data does not contain any valid RSA or ECDSA public keys".into());
        }
        Ok(keys)
    }

    fn from_private(key: &PrivateKeyDer<'_>) -> Result<Self, String> {
        let pair = KeyPair::try_from(key).map_err(|e| e.to_string())?;
        Self::from_subject_public_key_info(&pair.subject_public_key_info())
    }

    fn from_subject_public_key_info(der: &[u8]) -> Result<Self, String> {
        let (_, info) = SubjectPublicKeyInfo::from_der(der).map_err(|e| e.to_string())?;
        let id = URL_SAFE_NO_PAD.encode(Sha256::digest(der));
        match info.parsed().map_err(|e| e.to_string())? {
            PublicKey::RSA(rsa) => {
                let modulus = without_leading_zeros(rsa.modulus);
                let exponent = without_leading_zeros(rsa.exponent);
                Ok(Self {
                    jwk: json!({"use": "sig", "kty": "RSA", "kid": id, "alg": "RS256",
                        "n": URL_SAFE_NO_PAD.encode(modulus),
                        "e": URL_SAFE_NO_PAD.encode(exponent)}),
                    decoding_key: DecodingKey::from_rsa_raw_components(modulus, exponent),
                    algorithm: Algorithm::RS256,
                    id,
                })
            }
            PublicKey::EC(point) => {
                let curve = info.algorithm.parameters.as_ref();
                let curve = curve.and_then(|parameter| parameter.as_oid().ok());
                let (algorithm, name, curve, size) = match curve {
                    Some(oid) if oid == P256 => (Algorithm::ES256, "ES256", "P-256", 32),
                    Some(oid) if oid == P384 => (Algorithm::ES384, "ES384", "P-384", 48),
                    _ => return Err(UNSUPPORTED.into()),
                };
                let [4, coordinates @ ..] = point.data() else {
                    return Err(UNSUPPORTED.into());
                };
                let Some((x, y)) = coordinates.split_at_checked(size) else {
                    return Err(UNSUPPORTED.into());
                };
                let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
                Ok(Self {
                    decoding_key: DecodingKey::from_ec_components(&x, &y)
                        .map_err(|e| e.to_string())?,
                    jwk: json!({"use": "sig", "kty": "EC", "kid": id, "crv": curve, "alg": name,
                        "x": x, "y": y}),
                    algorithm,
                    id,
                })
            }
            _ => Err(UNSUPPORTED.into()),
        }
    }
}

fn without_leading_zeros(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|b| **b == 0).count();
    &bytes[zeros..]
}

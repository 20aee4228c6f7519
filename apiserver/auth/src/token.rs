//! Signs and verifies service account tokens. Does no I/O; whether the account still
//! exists is checked by [`crate::authenticator`].

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use jsonwebtoken::{Header, Validation};
use machinery::UserInfo;
use machinery::user::ALL_AUTHENTICATED;
use serde_json::{Value, json};

use crate::token_keys::{TokenSigningKey, TokenVerificationKey};

/// Issuer and default audience, as kubeadm sets them.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// Issuer of tokens in secrets.
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
/// Longer tokens are refused unparsed.
const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// Why a service account key cannot sign.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the service account key: {0}")]
pub struct InvalidServiceAccountKey(String);

/// Signs tokens with one key, and verifies those of this key and of further ones.
pub struct ServiceAccountTokens {
    signing_key: TokenSigningKey,
    further_keys: Vec<TokenVerificationKey>,
    issuer: String,
}

/// The object a token is bound to; deleting it invalidates the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBoundObject {
    /// `Pod`, `Secret` or `Node`.
    pub kind: String,
    pub name: String,
    pub uid: String,
}

/// The claims of a token with a valid signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccountClaims {
    pub namespace: String,
    pub account: String,
    pub account_uid: String,
    pub bound: Option<TokenBoundObject>,
    /// The secret that holds the token; the token is valid while the secret holds it.
    pub secret: Option<String>,
    /// Empty for tokens in secrets, which are for the API server.
    pub audiences: Vec<String>,
    /// Seconds since the epoch; `None` for tokens in secrets.
    pub expires: Option<i64>,
    pub not_before: Option<i64>,
    pub id: String,
}

impl ServiceAccountClaims {
    /// The user of the token, as `serviceaccount.UserInfo` of kube-apiserver builds it.
    pub fn user_info(&self) -> UserInfo {
        let mut extra = BTreeMap::new();
        if !self.id.is_empty() {
            extra.insert(
                "authentication.kubernetes.io/credential-id".to_owned(),
                vec![format!("JTI={}", self.id)],
            );
        }
        if let Some(bound) = &self.bound
            && bound.kind != "Secret"
        {
            let kind = bound.kind.to_ascii_lowercase();
            for (attribute, value) in [("name", &bound.name), ("uid", &bound.uid)] {
                extra.insert(
                    format!("authentication.kubernetes.io/{kind}-{attribute}"),
                    vec![value.clone()],
                );
            }
        }
        UserInfo {
            name: service_account_username(&self.namespace, &self.account),
            uid: self.account_uid.clone(),
            groups: service_account_groups(&self.namespace),
            extra,
        }
    }
}

/// `system:serviceaccount:NAMESPACE:NAME` (kube-apiserver's `MakeUsername`).
pub fn service_account_username(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// The groups of every service account in a namespace (kube-apiserver's
/// `MakeGroupNames`).
pub fn service_account_groups(namespace: &str) -> Vec<String> {
    vec![
        "system:serviceaccounts".into(),
        format!("system:serviceaccounts:{namespace}"),
        ALL_AUTHENTICATED.into(),
    ]
}

impl ServiceAccountTokens {
    /// Takes the private key in PEM that signs, which verifies, too.
    pub fn new(key_pem: &str) -> Result<Self, InvalidServiceAccountKey> {
        let signing_key = TokenSigningKey::from_pem(key_pem).map_err(InvalidServiceAccountKey)?;
        Ok(Self {
            signing_key,
            further_keys: Vec::new(),
            issuer: ISSUER.into(),
        })
    }

    /// Accepts tokens of the keys in a PEM file, too (`--service-account-key-file`).
    pub fn add_verification_keys(&mut self, pem: &str) -> Result<(), InvalidServiceAccountKey> {
        let keys = TokenVerificationKey::all_from_pem(pem).map_err(InvalidServiceAccountKey)?;
        for key in keys {
            if self.keys().all(|existing| existing.id != key.id) {
                self.further_keys.push(key);
            }
        }
        Ok(())
    }

    /// The issuer, which is also the default audience of the API server.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    fn keys(&self) -> impl Iterator<Item = &TokenVerificationKey> {
        std::iter::once(&self.signing_key.public).chain(&self.further_keys)
    }

    /// The public keys, as `/openid/v1/jwks` serves them.
    pub fn jwks(&self) -> Value {
        let keys: Vec<&Value> = self.keys().map(|key| &key.jwk).collect();
        json!({ "keys": keys })
    }

    /// The document of `/.well-known/openid-configuration`.
    pub fn openid_configuration(&self, jwks_uri: &str) -> Value {
        let algorithms: BTreeSet<&str> = self
            .keys()
            .filter_map(|key| key.jwk["alg"].as_str())
            .collect();
        json!({
            "issuer": self.issuer,
            "jwks_uri": jwks_uri,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms,
        })
    }

    /// Signs a token that expires, for TokenRequest.
    pub fn issue(
        &self,
        claims: &ServiceAccountClaims,
        now: Timestamp,
    ) -> Result<String, InvalidServiceAccountKey> {
        let mut private_claims = json!({
            "namespace": claims.namespace,
            "serviceaccount": {"name": claims.account, "uid": claims.account_uid},
        });
        if let Some(bound) = &claims.bound {
            private_claims[bound.kind.to_ascii_lowercase()] =
                json!({"name": bound.name, "uid": bound.uid});
        }
        let body = json!({
            "iss": self.issuer,
            "sub": service_account_username(&claims.namespace, &claims.account),
            "aud": claims.audiences,
            "exp": claims.expires,
            "iat": now.as_second(),
            "nbf": now.as_second(),
            "jti": claims.id,
            "kubernetes.io": private_claims,
        });
        self.sign(&body)
    }

    /// Signs a token without expiry, for a secret of type service-account-token.
    pub fn issue_for_secret(
        &self,
        namespace: &str,
        account: &str,
        account_uid: &str,
        secret: &str,
    ) -> Result<String, InvalidServiceAccountKey> {
        self.sign(&json!({
            "iss": LEGACY_ISSUER,
            "sub": service_account_username(namespace, account),
            "kubernetes.io/serviceaccount/namespace": namespace,
            "kubernetes.io/serviceaccount/secret.name": secret,
            "kubernetes.io/serviceaccount/service-account.name": account,
            "kubernetes.io/serviceaccount/service-account.uid": account_uid,
        }))
    }

    fn sign(&self, body: &Value) -> Result<String, InvalidServiceAccountKey> {
        let key = &self.signing_key;
        let mut header = Header::new(key.public.algorithm);
        header.kid = Some(key.public.id.clone());
        header.typ = None;
        jsonwebtoken::encode(&header, body, &key.encoding_key)
            .map_err(|e| InvalidServiceAccountKey(e.to_string()))
    }

    /// Verifies signature and issuer and returns the claims; the caller checks times
    /// and audiences.
    pub fn verify(&self, token: &str) -> Result<ServiceAccountClaims, String> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err("token too long".into());
        }
        let body = self.verify_signature(token)?;
        let claims = match body["iss"].as_str() {
            Some(LEGACY_ISSUER) => legacy_claims(&body),
            Some(issuer) if issuer == self.issuer => bound_claims(&body),
            _ => return Err("unknown issuer".into()),
        };
        let expected = service_account_username(&claims.namespace, &claims.account);
        if claims.namespace.is_empty() || body["sub"] != expected.as_str() {
            return Err("the subject does not match the service account in the claims".into());
        }
        Ok(claims)
    }

    /// The claims of a token that one of the keys has signed: the key that it names, or any
    /// if it names none of them.
    fn verify_signature(&self, token: &str) -> Result<Value, String> {
        let header = jsonwebtoken::decode_header(token).map_err(|e| e.to_string())?;
        let id = header.kid.as_deref().unwrap_or_default();
        let key_with_id = self.keys().find(|key| key.id == id);
        let keys = match key_with_id {
            Some(_) => Vec::from_iter(key_with_id),
            None => self.keys().collect(),
        };
        let mut rules = Validation::new(header.alg);
        rules.validate_exp = false;
        rules.validate_nbf = false;
        rules.validate_aud = false;
        rules.required_spec_claims.clear();
        let mut failure = "no key has the algorithm of the token".to_owned();
        for key in keys.into_iter().filter(|key| key.algorithm == header.alg) {
            match jsonwebtoken::decode::<Value>(token, &key.decoding_key, &rules) {
                Ok(decoded) => return Ok(decoded.claims),
                Err(error) => failure = error.to_string(),
            }
        }
        Err(failure)
    }
}

fn string_or_empty(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn legacy_claims(body: &Value) -> ServiceAccountClaims {
    let claim = |name: &str| string_or_empty(&body[format!("kubernetes.io/serviceaccount/{name}")]);
    ServiceAccountClaims {
        namespace: claim("namespace"),
        account: claim("service-account.name"),
        account_uid: claim("service-account.uid"),
        bound: None,
        secret: Some(claim("secret.name")),
        audiences: Vec::new(),
        expires: None,
        not_before: None,
        id: String::new(),
    }
}

fn bound_claims(body: &Value) -> ServiceAccountClaims {
    let private_claims = &body["kubernetes.io"];
    let bound = ["Pod", "Secret", "Node"].into_iter().find_map(|kind| {
        let object = private_claims.get(kind.to_ascii_lowercase())?;
        Some(TokenBoundObject {
            kind: kind.into(),
            name: string_or_empty(&object["name"]),
            uid: string_or_empty(&object["uid"]),
        })
    });
    let audiences = match &body["aud"] {
        Value::String(one) => vec![one.clone()],
        Value::Array(many) => many.iter().map(string_or_empty).collect(),
        _ => Vec::new(),
    };
    ServiceAccountClaims {
        namespace: string_or_empty(&private_claims["namespace"]),
        account: string_or_empty(&private_claims["serviceaccount"]["name"]),
        account_uid: string_or_empty(&private_claims["serviceaccount"]["uid"]),
        bound,
        secret: None,
        audiences,
        // A bound token always has an expiry; without one it counts as expired.
        expires: Some(body["exp"].as_i64().unwrap_or(0)),
        not_before: body["nbf"].as_i64(),
        id: string_or_empty(&body["jti"]),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use aws_lc_rs::encoding::{AsDer, EcPrivateKeyRfc5915Der};
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    pub(crate) fn signer() -> ServiceAccountTokens {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        ServiceAccountTokens::new(&key.serialize_pem()).unwrap()
    }

    pub(crate) fn claims(expires: i64) -> ServiceAccountClaims {
        ServiceAccountClaims {
            namespace: "ns".into(),
            account: "bot".into(),
            account_uid: "u1".into(),
            bound: None,
            secret: None,
            audiences: vec![ISSUER.into()],
            expires: Some(expires),
            not_before: Some(0),
            id: "id-1".into(),
        }
    }

    #[test]
    fn issued_tokens_verify() {
        let signer = signer();
        let mut issued = claims(600);
        issued.bound = Some(TokenBoundObject {
            kind: "Pod".into(),
            name: "p".into(),
            uid: "u2".into(),
        });
        let token = signer.issue(&issued, Timestamp::UNIX_EPOCH).unwrap();
        let read = signer.verify(&token).unwrap();
        assert_eq!(read, issued);
        let user = read.user_info();
        assert_eq!(user.name, "system:serviceaccount:ns:bot");
        assert!(user.in_group("system:serviceaccounts:ns"));
        assert_eq!(user.extra["authentication.kubernetes.io/pod-name"], ["p"]);

        let legacy = signer.issue_for_secret("ns", "bot", "u1", "s").unwrap();
        assert_eq!(signer.verify(&legacy).unwrap().secret.as_deref(), Some("s"));
    }

    #[test]
    fn tokens_of_a_former_key_verify_while_it_is_listed() {
        let files: Vec<String> = [
            &rcgen::PKCS_ECDSA_P256_SHA256,
            &rcgen::PKCS_ECDSA_P384_SHA384,
            &rcgen::PKCS_RSA_SHA256,
        ]
        .map(|algorithm| {
            rcgen::KeyPair::generate_for(algorithm)
                .unwrap()
                .serialize_pem()
        })
        .into();
        let tokens = files.iter().map(|pem| {
            let signer = ServiceAccountTokens::new(pem).unwrap();
            signer.issue(&claims(600), Timestamp::UNIX_EPOCH).unwrap()
        });
        let tokens: Vec<String> = tokens.collect();
        let public = |pem: &str| rcgen::KeyPair::from_pem(pem).unwrap().public_key_pem();
        for (i, signing) in files.iter().enumerate() {
            let mut signer = ServiceAccountTokens::new(signing).unwrap();
            let former = (i + 1) % 3;
            let two_keys = format!("{}{}", public(&files[former]), signing);
            signer.add_verification_keys(&two_keys).unwrap();
            let verified = tokens.iter().map(|token| signer.verify(token).is_ok());
            let expected = (0..3).map(|n| n == i || n == former);
            assert!(verified.eq(expected), "signing key {i}");
            let keys = signer.jwks()["keys"].as_array().unwrap().len();
            assert_eq!(keys, 2);
        }
        let mut signer = signer();
        for invalid in [
            "",
            "x",
            "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----",
        ] {
            assert!(signer.add_verification_keys(invalid).is_err(), "{invalid}");
        }
        let ed = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        assert!(ServiceAccountTokens::new(&ed.serialize_pem()).is_err());
    }

    #[test]
    fn a_key_in_the_form_of_openssl_signs() {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let der: EcPrivateKeyRfc5915Der<'_> = key.private_key().as_der().unwrap();
        let body = STANDARD.encode(der.as_ref());
        let pem = format!("-----BEGIN EC PRIVATE KEY-----\n{body}\n-----END EC PRIVATE KEY-----\n");
        let signer = ServiceAccountTokens::new(&pem).unwrap();
        let token = signer.issue(&claims(600), Timestamp::UNIX_EPOCH).unwrap();
        assert!(signer.verify(&token).is_ok());
    }

    #[test]
    fn foreign_tokens_are_rejected() {
        let signer_of_server = signer();
        let foreign_token = signer().issue(&claims(600), Timestamp::UNIX_EPOCH).unwrap();
        assert!(signer_of_server.verify(&foreign_token).is_err());
        for malformed in ["", "a.b.c", "x", "a.b", "eyJhbGciOiJub25lIn0.e30."] {
            assert!(signer_of_server.verify(malformed).is_err(), "{malformed}");
        }
        let token = signer_of_server
            .issue(&claims(600), Timestamp::UNIX_EPOCH)
            .unwrap();
        let (rest, _) = token.rsplit_once('.').unwrap();
        assert!(signer_of_server.verify(&format!("{rest}.AAAA")).is_err());
    }
}

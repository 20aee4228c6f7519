//! Signs and verifies service account tokens. Does no I/O; whether the account still
//! exists is checked by [`crate::authenticator`].

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use machinery::UserInfo;
use machinery::user::ALL_AUTHENTICATED;
use rcgen::PublicKeyData;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

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

/// Signs and verifies tokens with one ES256 key.
pub struct ServiceAccountTokenIssuerAndVerifier {
    signing_key: EncodingKey,
    verifying_key: DecodingKey,
    key_id: String,
    /// Coordinates of the public key, base64url.
    public_point: (String, String),
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
            for (what, value) in [("name", &bound.name), ("uid", &bound.uid)] {
                extra.insert(
                    format!("authentication.kubernetes.io/{kind}-{what}"),
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

/// Splits `system:serviceaccount:NAMESPACE:NAME` into namespace and name.
pub fn split_service_account_username(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user
        .strip_prefix("system:serviceaccount:")?
        .split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
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

impl ServiceAccountTokenIssuerAndVerifier {
    /// Takes a P-256 private key in PKCS#8 PEM.
    pub fn new(key_pem: &str) -> Result<Self, InvalidServiceAccountKey> {
        let bad = |e: &dyn std::fmt::Display| InvalidServiceAccountKey(e.to_string());
        let pair = rcgen::KeyPair::from_pem(key_pem).map_err(|e| bad(&e))?;
        let [4, point @ ..] = pair.public_key_raw() else {
            return Err(InvalidServiceAccountKey("not an elliptic curve key".into()));
        };
        if point.len() != 64 {
            return Err(InvalidServiceAccountKey("not a P-256 key".into()));
        }
        let (x, y) = point.split_at(32);
        let point = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        Ok(Self {
            signing_key: EncodingKey::from_ec_pem(key_pem.as_bytes()).map_err(|e| bad(&e))?,
            verifying_key: DecodingKey::from_ec_components(&point.0, &point.1)
                .map_err(|e| bad(&e))?,
            key_id: URL_SAFE_NO_PAD.encode(Sha256::digest(pair.subject_public_key_info())),
            public_point: point,
            issuer: ISSUER.into(),
        })
    }

    /// The issuer, which is also the default audience of the API server.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The public key, as `/openid/v1/jwks` serves it.
    pub fn jwks(&self) -> Value {
        json!({"keys": [{
            "use": "sig", "kty": "EC", "kid": self.key_id, "crv": "P-256", "alg": "ES256",
            "x": self.public_point.0, "y": self.public_point.1,
        }]})
    }

    /// The document of `/.well-known/openid-configuration`.
    pub fn openid_configuration(&self, jwks_uri: &str) -> Value {
        json!({
            "issuer": self.issuer,
            "jwks_uri": jwks_uri,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    }

    /// Signs a token that expires, for TokenRequest.
    pub fn issue(
        &self,
        claims: &ServiceAccountClaims,
        now: Timestamp,
    ) -> Result<String, InvalidServiceAccountKey> {
        let mut own = json!({
            "namespace": claims.namespace,
            "serviceaccount": {"name": claims.account, "uid": claims.account_uid},
        });
        if let Some(bound) = &claims.bound {
            own[bound.kind.to_ascii_lowercase()] = json!({"name": bound.name, "uid": bound.uid});
        }
        let body = json!({
            "iss": self.issuer,
            "sub": service_account_username(&claims.namespace, &claims.account),
            "aud": claims.audiences,
            "exp": claims.expires,
            "iat": now.as_second(),
            "nbf": now.as_second(),
            "jti": claims.id,
            "kubernetes.io": own,
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
        let mut header = Header::new(Algorithm::ES256);
        header.kid = Some(self.key_id.clone());
        header.typ = None;
        jsonwebtoken::encode(&header, body, &self.signing_key)
            .map_err(|e| InvalidServiceAccountKey(e.to_string()))
    }

    /// Verifies signature and issuer and returns the claims; the caller checks times
    /// and audiences.
    pub fn verify(&self, token: &str) -> Result<ServiceAccountClaims, String> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err("token too long".into());
        }
        let mut rules = Validation::new(Algorithm::ES256);
        rules.validate_exp = false;
        rules.validate_nbf = false;
        rules.validate_aud = false;
        rules.required_spec_claims.clear();
        let body = jsonwebtoken::decode::<Value>(token, &self.verifying_key, &rules)
            .map_err(|e| e.to_string())?
            .claims;
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
    let own = &body["kubernetes.io"];
    let bound = ["Pod", "Secret", "Node"].into_iter().find_map(|kind| {
        let object = own.get(kind.to_ascii_lowercase())?;
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
        namespace: string_or_empty(&own["namespace"]),
        account: string_or_empty(&own["serviceaccount"]["name"]),
        account_uid: string_or_empty(&own["serviceaccount"]["uid"]),
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

    pub(crate) fn signer() -> ServiceAccountTokenIssuerAndVerifier {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        ServiceAccountTokenIssuerAndVerifier::new(&key.serialize_pem()).unwrap()
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
    fn foreign_tokens_are_rejected() {
        let ours = signer();
        let theirs = signer().issue(&claims(600), Timestamp::UNIX_EPOCH).unwrap();
        assert!(ours.verify(&theirs).is_err());
        for bad in ["", "a.b.c", "x", "a.b", "eyJhbGciOiJub25lIn0.e30."] {
            assert!(ours.verify(bad).is_err(), "{bad}");
        }
        let token = ours.issue(&claims(600), Timestamp::UNIX_EPOCH).unwrap();
        let (rest, _) = token.rsplit_once('.').unwrap();
        assert!(ours.verify(&format!("{rest}.AAAA")).is_err());
    }
}

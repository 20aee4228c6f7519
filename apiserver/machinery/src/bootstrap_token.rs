//! Bootstrap tokens: their text, the Secrets that store them, and the signatures that are made
//! with them (Kubernetes' `k8s.io/cluster-bootstrap`).

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::Sha256;

use crate::time;

/// The type of the Secrets that store bootstrap tokens.
pub const TOKEN_SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
/// The namespace of these Secrets.
pub const TOKEN_NAMESPACE: &str = "kube-system";
/// The namespace of the ConfigMap [`CLUSTER_INFO`].
pub const CLUSTER_INFO_NAMESPACE: &str = "kube-public";
/// The ConfigMap with the address and the authority of the API server, which everybody may
/// read.
pub const CLUSTER_INFO: &str = "cluster-info";
/// The key of the kubeconfig in that ConfigMap.
pub const KUBECONFIG_KEY: &str = "kubeconfig";
/// The prefix of the keys of signatures in that ConfigMap; the id of the token follows.
pub const SIGNATURE_KEY_PREFIX: &str = "jws-kubeconfig-";
/// The pattern that the text of a token must match.
pub const TOKEN_PATTERN: &str = r"\A([a-z0-9]{6})\.([a-z0-9]{16})\z";
/// The pattern that the id of a token must match.
pub const TOKEN_ID_PATTERN: &str = r"\A([a-z0-9]{6})\z";
/// The pattern that the groups of a token must match.
pub const GROUP_PATTERN: &str = r"\Asystem:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]\z";
/// The usages of tokens.
pub const USAGES: [&str; 2] = ["signing", "authentication"];

const SECRET_NAME_PREFIX: &str = "bootstrap-token-";
const GROUP_PREFIX: &str = "system:bootstrappers:";
const ID_KEY: &str = "token-id";
const SECRET_KEY: &str = "token-secret";
const EXPIRATION_KEY: &str = "expiration";
const DESCRIPTION_KEY: &str = "description";
const GROUPS_KEY: &str = "auth-extra-groups";
const USAGE_KEY_PREFIX: &str = "usage-bootstrap-";

/// A token: the id is public, the secret is not.
#[derive(Clone, PartialEq, Eq)]
pub struct BootstrapToken {
    pub id: String,
    pub secret: String,
}

impl fmt::Debug for BootstrapToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BootstrapToken({})", self.id)
    }
}

impl fmt::Display for BootstrapToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.id, self.secret)
    }
}

impl BootstrapToken {
    /// Parses `ID.SECRET`; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.split_once('.')?;
        let valid = is_token_id(id) && secret.len() == 16 && is_token_text(secret);
        valid.then(|| Self {
            id: id.to_owned(),
            secret: secret.to_owned(),
        })
    }

    /// The name of the Secret that stores the token.
    pub fn secret_name(&self) -> String {
        secret_name(&self.id)
    }

    /// The detached JWS of a text, with the token as the key (HS256).
    pub fn sign(&self, content: &str) -> String {
        let header = format!(r#"{{"alg":"HS256","kid":"{}"}}"#, self.id);
        let header = URL_SAFE_NO_PAD.encode(header);
        let payload = URL_SAFE_NO_PAD.encode(content);
        let signature = self.keyed_digest(&format!("{header}.{payload}"));
        format!("{header}..{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// Whether a detached JWS is that of the text. The time does not depend on the
    /// signature's content.
    pub fn verifies(&self, signature: &str, content: &str) -> bool {
        let digests = [&self.sign(content), signature].map(|text| self.keyed_digest(text));
        digests[0] == digests[1]
    }

    fn keyed_digest(&self, text: &str) -> [u8; 32] {
        // HMAC takes keys of any length.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(self.secret.as_bytes()) else {
            return [0; 32];
        };
        mac.update(text.as_bytes());
        mac.finalize().into_bytes().into()
    }
}

/// Whether a text is the id of a token.
pub fn is_token_id(text: &str) -> bool {
    text.len() == 6 && is_token_text(text)
}

fn is_token_text(text: &str) -> bool {
    let valid = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.bytes().all(valid)
}

/// The name of the Secret that stores the token of an id.
pub fn secret_name(id: &str) -> String {
    format!("{SECRET_NAME_PREFIX}{id}")
}

/// Whether a token may have this group ([`GROUP_PATTERN`]).
pub fn is_bootstrap_group(group: &str) -> bool {
    let Some(rest) = group.strip_prefix(GROUP_PREFIX) else {
        return false;
    };
    let valid = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b":-".contains(&b);
    (1..=256).contains(&rest.len()) && rest.bytes().all(valid) && !rest.ends_with([':', '-'])
}

/// The facts about the token in a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBootstrapToken {
    pub token: BootstrapToken,
    pub description: String,
    /// RFC 3339; empty if the token does not expire.
    pub expiration: String,
    /// In the order of their names.
    pub usages: Vec<String>,
    pub groups: Vec<String>,
}

impl StoredBootstrapToken {
    /// Reads a Secret; the error says what is wrong with it and quotes no secret.
    pub fn from_secret(secret: &Value) -> Result<Self, String> {
        let name = secret["metadata"]["name"].as_str().unwrap_or_default();
        let data = decoded_data(&secret["data"]);
        let text = |key: &str| data.get(key).cloned().unwrap_or_default();
        if secret["type"] != TOKEN_SECRET_TYPE {
            return Err(format!("{name} is not of the type {TOKEN_SECRET_TYPE}"));
        }
        let id = text(ID_KEY);
        if id.is_empty() {
            return Err(format!(
                "bootstrap Token Secret has no token-id data: {name}"
            ));
        }
        if name != secret_name(&id) {
            return Err(format!(
                "bootstrap token name is not of the form '{SECRET_NAME_PREFIX}(token-id)'. Actual: {name:?}. Expected: {:?}",
                secret_name(&id)
            ));
        }
        let parsed = BootstrapToken::parse(&format!("{id}.{}", text(SECRET_KEY)));
        let token = parsed.ok_or_else(|| {
            format!("bootstrap Token Secret is invalid and couldn't be parsed: {name}")
        })?;
        let usages = data.iter().filter(|(_, value)| *value == "true");
        let usages = usages.filter_map(|(key, _)| key.strip_prefix(USAGE_KEY_PREFIX));
        let groups = text(GROUPS_KEY);
        let groups = groups.split(',').filter(|group| !group.is_empty());
        Ok(Self {
            token,
            description: text(DESCRIPTION_KEY),
            expiration: text(EXPIRATION_KEY),
            usages: usages.map(str::to_owned).collect(),
            groups: groups.map(str::to_owned).collect(),
        })
    }

    pub fn has_usage(&self, usage: &str) -> bool {
        self.usages.iter().any(|u| u == usage)
    }

    /// Whether the token has expired; one whose expiration cannot be read has.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        is_expired(&self.expiration, now)
    }

    /// The Secret that stores the token.
    pub fn to_secret(&self) -> Value {
        let mut data = BTreeMap::from([
            (ID_KEY.to_owned(), STANDARD.encode(&self.token.id)),
            (SECRET_KEY.to_owned(), STANDARD.encode(&self.token.secret)),
        ]);
        for (key, text) in [
            (DESCRIPTION_KEY, self.description.clone()),
            (EXPIRATION_KEY, self.expiration.clone()),
            (GROUPS_KEY, self.groups.join(",")),
        ] {
            if !text.is_empty() {
                data.insert(key.to_owned(), STANDARD.encode(text));
            }
        }
        for usage in &self.usages {
            let key = format!("{USAGE_KEY_PREFIX}{usage}");
            data.insert(key, STANDARD.encode("true"));
        }
        json!({"apiVersion": "v1", "kind": "Secret", "type": TOKEN_SECRET_TYPE,
            "metadata": {"name": self.token.secret_name(), "namespace": TOKEN_NAMESPACE},
            "data": data})
    }
}

/// When the token of a Secret expires, as its text; `None` if it does not expire.
pub fn secret_expiration(secret: &Value) -> Option<String> {
    let text = decoded_data(&secret["data"]).remove(EXPIRATION_KEY)?;
    Some(text).filter(|text| !text.is_empty())
}

fn is_expired(expiration: &str, now: Timestamp) -> bool {
    match expiration {
        "" => false,
        text => time::parse(text).map_or(true, |at| at <= now),
    }
}

/// The values that are text.
fn decoded_data(data: &Value) -> BTreeMap<String, String> {
    let decode = |value: &Value| String::from_utf8(STANDARD.decode(value.as_str()?).ok()?).ok();
    let entries = data.as_object().into_iter().flatten();
    entries
        .filter_map(|(key, value)| Some((key.clone(), decode(value)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> StoredBootstrapToken {
        StoredBootstrapToken {
            token: BootstrapToken::parse("abcdef.0123456789abcdef").unwrap(),
            description: "for m1".into(),
            expiration: "2026-01-01T00:00:00Z".into(),
            usages: vec!["authentication".into(), "signing".into()],
            groups: vec!["system:bootstrappers:a".into()],
        }
    }

    #[test]
    fn tokens_have_six_and_sixteen_characters() {
        for valid in ["abcdef.0123456789abcdef", "000000.aaaaaaaaaaaaaaaa"] {
            assert_eq!(BootstrapToken::parse(valid).unwrap().to_string(), valid);
        }
        for invalid in [
            "",
            ".",
            "abcdef",
            "abcde.0123456789abcdef",
            "abcdefg.0123456789abcdef",
            "abcdef.0123456789abcde",
            "abcdef.0123456789abcdef0",
            "Abcdef.0123456789abcdef",
            "abcdef.0123456789abcde.",
            "abcdef.0123456789abcdef\n",
        ] {
            assert_eq!(BootstrapToken::parse(invalid), None, "{invalid}");
        }
        assert!(!format!("{:?}", stored().token).contains("0123"));
    }

    #[test]
    fn a_stored_token_is_read_as_it_was_written() {
        let secret = stored().to_secret();
        assert_eq!(secret["metadata"]["name"], "bootstrap-token-abcdef");
        assert_eq!(StoredBootstrapToken::from_secret(&secret), Ok(stored()));
        assert_eq!(secret_expiration(&secret), Some(stored().expiration));
        for (pointer, value) in [
            ("/type", "Opaque"),
            ("/metadata/name", "bootstrap-token-abcdeg"),
            ("/data/token-id", ""),
            ("/data/token-secret", "YQ=="),
        ] {
            let mut changed = secret.clone();
            *changed.pointer_mut(pointer).unwrap() = value.into();
            let error = StoredBootstrapToken::from_secret(&changed).unwrap_err();
            assert!(!error.contains("0123456789"), "{error}");
        }
    }

    #[test]
    fn a_token_expires_at_its_time() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let before = at("2025-12-31T23:59:59Z");
        assert!(!stored().is_expired(before));
        assert!(stored().is_expired(at("2026-01-01T00:00:00Z")));
        for (expiration, expired) in [("", false), ("tomorrow", true)] {
            assert_eq!(is_expired(expiration, before), expired, "{expiration}");
        }
    }

    #[test]
    fn groups_of_tokens_have_a_prefix() {
        let long_group = format!("system:bootstrappers:{}", "a".repeat(257));
        for (group, valid) in [
            ("system:bootstrappers:karmada:default-cluster-token", true),
            ("system:bootstrappers:a", true),
            ("system:bootstrappers", false),
            ("system:bootstrappers:", false),
            ("system:bootstrappers:a-", false),
            ("system:bootstrappers:A", false),
            ("system:masters", false),
            (&long_group[..], false),
            (&long_group[..long_group.len() - 1], true),
        ] {
            assert_eq!(is_bootstrap_group(group), valid, "{group}");
        }
    }

    #[test]
    fn signatures_are_those_of_kubernetes() {
        // The values are those of the tests of k8s.io/cluster-bootstrap/token/jws.
        let token = BootstrapToken {
            id: "joshua".into(),
            secret: "my voice is my passcode".into(),
        };
        let content = "Hello from the other side. I must have called a thousand times.";
        let signature = token.sign(content);
        assert_eq!(
            signature,
            "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8"
        );
        assert!(token.verifies(&signature, content));
        assert!(!token.verifies(&signature, "Hello"));
        assert!(!stored().token.verifies(&signature, "Hello"));
        assert!(!token.verifies("", "Hello"));
    }
}

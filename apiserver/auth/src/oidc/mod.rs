//! Authenticates tokens of OpenID Connect issuers (`apiserver/plugin/pkg/authenticator/
//! token/oidc` of Kubernetes).
//!
//! token ──► unverified issuer ──► keys of that issuer ──► signature ──► times, audience,
//! required claims ──► claims become the user
//!
//! Invariant: a token that names an issuer is verified by the keys of that issuer or is
//! refused.

mod claim_mappings;
mod configuration;
mod key_set;

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use client::TaskGroup;
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, Validation};
use machinery::user::ALL_AUTHENTICATED;
use machinery::{Status, UserInfo};
use serde_json::Value;

use crate::credentials::{AuthenticationError, InvalidCredential};
use claim_mappings::ClaimSource;
pub use configuration::{
    AnonymousRequests, AuthenticationConfiguration, JwtIssuerConfig, OidcFlagValues,
};
use key_set::RemoteKeySet;

/// Allowed difference of clocks for `nbf`, as in go-oidc.
const NOT_BEFORE_LEEWAY_SECONDS: i64 = 5 * 60;

struct IssuerAuthenticator {
    config: JwtIssuerConfig,
    algorithms: Vec<Algorithm>,
    keys: RemoteKeySet,
}

/// Authenticates tokens of the configured issuers.
#[derive(Default)]
pub struct OidcAuthenticator {
    issuers: Vec<IssuerAuthenticator>,
}

impl OidcAuthenticator {
    /// Nothing is requested from the issuers before the first token. Connections belong
    /// to `tasks`.
    pub fn new(configs: Vec<JwtIssuerConfig>, tasks: &TaskGroup) -> Self {
        let issuers = configs.into_iter().map(|config| {
            let ca = config.ca_pem.as_deref();
            IssuerAuthenticator {
                keys: RemoteKeySet::new(&config.issuer, &config.discovery_url, ca, tasks),
                algorithms: config
                    .algorithms
                    .iter()
                    .filter_map(|a| key_set::algorithm(a))
                    .collect(),
                config,
            }
        });
        Self {
            issuers: issuers.collect(),
        }
    }

    /// The user of a token; `None` if it names none of the issuers.
    pub(crate) async fn authenticate(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Option<Result<UserInfo, AuthenticationError>> {
        if self.issuers.is_empty() {
            return None;
        }
        let issuer = unverified_issuer(token)?;
        let issuer = self
            .issuers
            .iter()
            .find(|candidate| candidate.config.issuer == issuer)?;
        Some(issuer.authenticate(token, now).await)
    }
}

/// The issuer that a token names, before anything is verified.
pub(crate) fn unverified_issuer(token: &str) -> Option<String> {
    let mut parts = token.split('.');
    let (_, body, _) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let body = URL_SAFE_NO_PAD.decode(body).ok()?;
    let claims: Value = machinery::json::from_slice(&body).ok()?;
    claims["iss"].as_str().map(str::to_owned)
}

impl IssuerAuthenticator {
    async fn authenticate(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<UserInfo, AuthenticationError> {
        let invalid = |message: String| InvalidCredential(format!("oidc: {message}"));
        let header = jsonwebtoken::decode_header(token).map_err(|e| invalid(e.to_string()))?;
        if !self.algorithms.contains(&header.alg) {
            return Err(invalid("the algorithm of the signature is not accepted".into()).into());
        }
        let id = header.kid.as_deref().unwrap_or_default();
        // The issuer may be unreachable for a moment: that is no verdict about the token.
        let keys = self.keys.keys(id, header.alg).await.map_err(|_| {
            Status::unavailable("the keys of the token's issuer cannot be read").with_retry_after(1)
        })?;
        let mut rules = Validation::new(header.alg);
        rules.validate_exp = false;
        rules.validate_nbf = false;
        rules.validate_aud = false;
        rules.required_spec_claims.clear();
        let claims = keys
            .iter()
            .find_map(|key| jsonwebtoken::decode::<Value>(token, &key.key, &rules).ok())
            .ok_or_else(|| invalid("no key of the issuer verifies the signature".into()))?
            .claims;
        self.config.check_claims(&claims, now).map_err(invalid)?;
        let user = self.config.user(&claims).map_err(invalid)?;
        let rules = &self.config.rules;
        rules.check_claims(&claims).map_err(invalid)?;
        rules.check_user(&user).map_err(invalid)?;
        Ok(with_authenticated_group(user))
    }
}

impl JwtIssuerConfig {
    fn check_claims(&self, claims: &Value, now: Timestamp) -> Result<(), String> {
        if claims["iss"] != self.issuer.as_str() {
            return Err("the token is of another issuer".into());
        }
        let audiences: Vec<&str> = match &claims["aud"] {
            Value::String(one) => vec![one],
            Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if !self
            .audiences
            .iter()
            .any(|a| audiences.contains(&a.as_str()))
        {
            return Err("the token is for another audience".into());
        }
        let now = now.as_second();
        let expires = seconds(&claims["exp"]).ok_or("the token has no expiry")?;
        if expires <= now {
            return Err("the token has expired".into());
        }
        if let Some(not_before) = claims.get("nbf") {
            let from = seconds(not_before).ok_or("the claim nbf is not a time")?;
            if from > now + NOT_BEFORE_LEEWAY_SECONDS {
                return Err("the token is not valid yet".into());
            }
        }
        for (claim, value) in &self.required_claims {
            if claims[claim] != value.as_str() {
                return Err(format!(
                    "the required claim {claim:?} is missing or different"
                ));
            }
        }
        Ok(())
    }

    fn user(&self, claims: &Value) -> Result<UserInfo, String> {
        let mut extra = BTreeMap::new();
        if let Some(id) = claims["jti"].as_str() {
            let key = "authentication.kubernetes.io/credential-id";
            extra.insert(key.to_owned(), vec![format!("JTI={id}")]);
        }
        for (key, expression) in &self.rules.extra {
            let values = expression.texts_of(claims)?;
            if !values.is_empty() {
                extra.insert(key.clone(), values);
            }
        }
        Ok(UserInfo {
            name: self.username(claims)?,
            uid: match &self.uid {
                None => String::new(),
                Some(ClaimSource::Expression(expression)) => expression.text_of(claims)?,
                Some(ClaimSource::Claim(mapping)) => text_claim(claims, &mapping.claim)?.to_owned(),
            },
            groups: self.groups(claims)?,
            extra,
        })
    }

    fn username(&self, claims: &Value) -> Result<String, String> {
        let (name, prefix) = match &self.username {
            ClaimSource::Expression(expression) => (expression.text_of(claims)?, ""),
            ClaimSource::Claim(mapping) => {
                let claim = &mapping.claim;
                let is_unverified = claims.get("email_verified").is_some_and(|v| *v != true);
                if claim == "email" && is_unverified {
                    return Err("the email address is not verified".into());
                }
                (
                    text_claim(claims, claim)?.to_owned(),
                    mapping.prefix.as_str(),
                )
            }
        };
        match name.is_empty() {
            true => Err("the user name is empty".into()),
            false => Ok(format!("{prefix}{name}")),
        }
    }

    fn groups(&self, claims: &Value) -> Result<Vec<String>, String> {
        let mapping = match &self.groups {
            None => return Ok(Vec::new()),
            Some(ClaimSource::Expression(expression)) => return expression.texts_of(claims),
            Some(ClaimSource::Claim(mapping)) => mapping,
        };
        let type_error = || format!("the claim {:?} is no list of texts", mapping.claim);
        let prefixed = |group: &str| format!("{}{group}", mapping.prefix);
        match &claims[&mapping.claim] {
            Value::Null if claims["_claim_names"].get(&mapping.claim).is_some() => {
                Err("distributed claims are not supported".into())
            }
            Value::Null => Ok(Vec::new()),
            Value::String(group) => Ok(vec![prefixed(group)]),
            Value::Array(groups) => groups
                .iter()
                .map(|group| group.as_str().map(prefixed).ok_or_else(type_error))
                .collect(),
            _ => Err(type_error()),
        }
    }
}

fn text_claim<'a>(claims: &'a Value, claim: &str) -> Result<&'a str, String> {
    let text = claims[claim].as_str();
    text.ok_or_else(|| format!("the claim {claim:?} is not a text"))
}

/// Every user is in this group, after the rules about users.
fn with_authenticated_group(mut user: UserInfo) -> UserInfo {
    if !user.groups.iter().any(|group| group == ALL_AUTHENTICATED) {
        user.groups.push(ALL_AUTHENTICATED.into());
    }
    user
}

/// A time claim, which may have a fraction.
fn seconds(claim: &Value) -> Option<i64> {
    claim
        .as_i64()
        .or_else(|| claim.as_f64().map(|time| time as i64))
}

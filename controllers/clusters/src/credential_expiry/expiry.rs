//! When the credentials of a cluster expire, and the condition that says so. Pure.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use machinery::Object;
use machinery::certificate_request::certificate_expiry;
use machinery::time::rfc3339_seconds;
use serde::Deserialize;

use crate::condition::ConditionUpdate;

/// How long before the end a warning begins.
pub(super) const WARNING_PERIOD: SignedDuration = SignedDuration::from_hours(30 * 24);
/// The condition of a cluster whose credentials have been about to expire.
pub(super) const CREDENTIALS_VALID: &str = "CredentialsValid";
/// The same for the certificate with which an agent reaches the control plane.
pub(super) const AGENT_CERTIFICATE_VALID: &str = "AgentCertificateValid";
const END_CERTIFICATE: &str = "-----END CERTIFICATE-----";
const TOKEN_KEY: &str = "token";
const CA_BUNDLE_KEY: &str = "caBundle";

/// A credential that expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExpiringCredential {
    pub(super) description: String,
    /// `namespace/name/key` in a Secret.
    pub(super) label: String,
    pub(super) expires: Timestamp,
    pub(super) warn_from: Timestamp,
}

/// The certificate of an agent, which expires after its lifetime. One that is renewed in the
/// last fifth of a short life is no reason for a warning.
pub(super) fn agent_certificate(
    expires: Timestamp,
    lifetime: SignedDuration,
) -> ExpiringCredential {
    ExpiringCredential {
        description: "certificate of the agent".to_owned(),
        label: String::new(),
        expires,
        warn_from: expires - WARNING_PERIOD.min(lifetime / 10),
    }
}

/// The credentials of a Secret that expire.
pub(super) fn expiring_credentials(secret: &Object) -> Vec<ExpiringCredential> {
    let value = secret.value().unwrap_or_default();
    let text = |key: &str| {
        let bytes = STANDARD.decode(value["data"][key].as_str()?).ok()?;
        String::from_utf8(bytes).ok()
    };
    let credentials = [
        (TOKEN_KEY, text(TOKEN_KEY).and_then(|t| token_expiry(&t))),
        (
            CA_BUNDLE_KEY,
            text(CA_BUNDLE_KEY).and_then(|t| bundle_expiry(&t)),
        ),
    ];
    let at = secret.meta().key();
    let expiring = credentials.into_iter().filter_map(|(key, seconds)| {
        let expires = Timestamp::from_second(seconds?).ok()?;
        Some(ExpiringCredential {
            description: format!("{key} in the Secret {at}"),
            label: format!("{at}/{key}"),
            expires,
            warn_from: expires - WARNING_PERIOD,
        })
    });
    expiring.collect()
}

#[derive(Deserialize)]
struct ExpiryClaim {
    exp: f64,
}

/// The end of a JSON Web Token; none for a token that does not expire, or that is no such token.
fn token_expiry(token: &str) -> Option<i64> {
    let payload = token.trim().split('.').nth(1)?;
    let payload = URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?;
    let claim: ExpiryClaim = machinery::json::from_slice(&payload).ok()?;
    Some(claim.exp as i64)
}

/// The end of the authority that is valid longest: until then the others may have been replaced.
fn bundle_expiry(bundle: &str) -> Option<i64> {
    let blocks = bundle.split_inclusive(END_CERTIFICATE);
    blocks.filter_map(certificate_expiry).max()
}

/// The condition for the credential that expires first. None if nothing expires soon and no
/// warning is to be taken back.
pub(super) fn credentials_condition(
    first: Option<&ExpiringCredential>,
    has_condition: bool,
    now: Timestamp,
) -> Option<ConditionUpdate> {
    let soon = first.filter(|credential| credential.warn_from <= now);
    let Some(credential) = soon else {
        let text = "no credential of the cluster expires soon";
        return has_condition.then(|| ConditionUpdate::new("True", "CredentialsValid", text));
    };
    let ExpiringCredential {
        description,
        expires,
        ..
    } = credential;
    let at = rfc3339_seconds(*expires);
    Some(match *expires <= now {
        true => ConditionUpdate::new(
            "False",
            "CredentialsExpired",
            format!("the {description} has expired at {at}; it has to be replaced"),
        ),
        false => ConditionUpdate::new(
            "False",
            "CredentialsExpireSoon",
            format!("the {description} expires at {at}; replace it before"),
        ),
    })
}

/// When the condition may change by itself.
pub(super) fn next_check(
    first: Option<&ExpiringCredential>,
    now: Timestamp,
) -> Option<SignedDuration> {
    let first = first?;
    let next = [first.warn_from, first.expires];
    let next = next.into_iter().find(|at| *at > now)?;
    Some(next.duration_since(now) + SignedDuration::from_secs(1))
}

//! The user of a bootstrap token (Kubernetes' `plugin/pkg/auth/authenticator/token/bootstrap`).

use jiff::Timestamp;
use machinery::bootstrap_token::{BootstrapToken, StoredBootstrapToken, is_bootstrap_group};
use machinery::user::ALL_AUTHENTICATED;
use machinery::{Object, UserInfo};
use sha2::{Digest, Sha256};

const USER_PREFIX: &str = "system:bootstrap:";
/// The group of the users of all bootstrap tokens.
const BOOTSTRAPPERS: &str = "system:bootstrappers";

/// The user of a token whose Secret is given, or why the token is refused.
pub(crate) fn user_of_token(
    secret: &Object,
    token: &BootstrapToken,
    now: Timestamp,
) -> Result<UserInfo, String> {
    if secret.meta().deleting {
        return Err("the secret of the token is being deleted".into());
    }
    let value = secret.value().map_err(|e| e.to_string())?;
    let stored = StoredBootstrapToken::from_secret(&value)?;
    // The time of the comparison does not depend on how much of the secret is right.
    let digest = |token: &BootstrapToken| Sha256::digest(&token.secret);
    if digest(&stored.token) != digest(token) {
        return Err("the secret of the token does not match".into());
    }
    if stored.is_expired(now) {
        return Err("the token has expired".into());
    }
    if !stored.has_usage("authentication") {
        return Err("the token is not meant for authentication".into());
    }
    let mut groups = vec![BOOTSTRAPPERS.to_owned()];
    for group in stored.groups {
        if !is_bootstrap_group(&group) {
            return Err(format!("bootstrap group {group:?} is invalid"));
        }
        groups.push(group);
    }
    groups.sort_unstable();
    groups.dedup();
    groups.push(ALL_AUTHENTICATED.to_owned());
    Ok(UserInfo {
        name: format!("{USER_PREFIX}{}", token.id),
        groups,
        ..UserInfo::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn user(change: impl FnOnce(&mut StoredBootstrapToken)) -> Result<UserInfo, String> {
        let token = BootstrapToken::parse("abcdef.0123456789abcdef").unwrap();
        let mut stored = StoredBootstrapToken {
            token: token.clone(),
            description: String::new(),
            expiration: "2026-01-01T00:00:01Z".into(),
            usages: vec!["authentication".into()],
            groups: vec![
                "system:bootstrappers:b".into(),
                "system:bootstrappers:a".into(),
            ],
        };
        change(&mut stored);
        let secret = Object::from_value(&stored.to_secret()).unwrap();
        user_of_token(&secret, &token, NOW.parse().unwrap())
    }

    #[test]
    fn a_token_has_a_user_with_its_groups() {
        let user = user(|_| ()).unwrap();
        assert_eq!(user.name, "system:bootstrap:abcdef");
        assert_eq!(
            user.groups,
            [
                "system:bootstrappers",
                "system:bootstrappers:a",
                "system:bootstrappers:b",
                "system:authenticated"
            ]
        );
    }

    #[test]
    fn tokens_that_do_not_authenticate_are_refused() {
        assert!(user(|t| t.expiration = NOW.into()).is_err());
        assert!(user(|t| t.expiration = "soon".into()).is_err());
        assert!(user(|t| t.usages = vec!["signing".into()]).is_err());
        assert!(user(|t| t.groups = vec!["system:masters".into()]).is_err());
        assert!(user(|t| t.token.secret = "0123456789abcdeg".into()).is_err());
        let opaque: Value =
            json!({"type": "Opaque", "metadata": {"name": "bootstrap-token-abcdef"}});
        let token = BootstrapToken::parse("abcdef.0123456789abcdef").unwrap();
        let secret = Object::from_value(&opaque).unwrap();
        assert!(user_of_token(&secret, &token, NOW.parse().unwrap()).is_err());
    }
}

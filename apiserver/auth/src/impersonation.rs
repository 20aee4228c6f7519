//! Impersonation by `Impersonate-*` headers: the user to act as, and the access that
//! the requesting user needs for it (`filters/impersonation.go`).

use std::collections::BTreeMap;

use machinery::user::{ALL_AUTHENTICATED, ALL_UNAUTHENTICATED, ANONYMOUS};
use machinery::{Status, UserInfo};
use percent_encoding::percent_decode_str;

use crate::rbac::{AuthorizationSelectors, AuthorizationTarget};
use crate::token::{service_account_groups, split_service_account_username};

/// The user that a request impersonates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImpersonatedUser {
    user: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

/// Parses the headers; `None` when there are none. Names are case-insensitive. An
/// unusable header fails with 400, so that the request never continues with the
/// requesting user's own rights.
pub fn parse_impersonation_headers<'a>(
    headers: impl Iterator<Item = (&'a str, &'a [u8])>,
) -> Result<Option<ImpersonatedUser>, Status> {
    let mut impersonated = ImpersonatedUser::default();
    let mut any = false;
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        let Some(what) = name.strip_prefix("impersonate-") else {
            continue;
        };
        any = true;
        let unusable = |why: &str| Status::bad_request(format!("header {name:?} {why}"));
        let value = std::str::from_utf8(value).map_err(|_| unusable("is not UTF-8"))?;
        match what {
            "user" | "uid" => {
                let one = match what {
                    "user" => &mut impersonated.user,
                    _ => &mut impersonated.uid,
                };
                if !one.is_empty() {
                    return Err(unusable("must not be repeated"));
                }
                *one = value.to_owned();
            }
            "group" => impersonated.groups.push(value.to_owned()),
            _ => {
                let key = what.strip_prefix("extra-");
                let key = key.ok_or_else(|| unusable("is unknown"))?;
                let key = unescape_extra_key(key)
                    .ok_or_else(|| unusable("names a key that is not UTF-8"))?;
                impersonated
                    .extra
                    .entry(key)
                    .or_default()
                    .push(value.to_owned());
            }
        }
    }
    if any && impersonated.user.is_empty() {
        return Err(Status::bad_request(
            "requested impersonation without impersonating a user",
        ));
    }
    Ok(any.then_some(impersonated))
}

/// Percent-decodes the key of an extra; malformed escapes stay as they are. `None` when
/// the result is not UTF-8.
pub(crate) fn unescape_extra_key(key: &str) -> Option<String> {
    let decoded = percent_decode_str(key).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

impl ImpersonatedUser {
    /// What the requesting user must be allowed to `impersonate`.
    pub fn required_access(&self) -> Vec<AuthorizationTarget<'_>> {
        let resource =
            |group, resource, subresource, namespace, name| AuthorizationTarget::Resource {
                group,
                version: "v1",
                resource,
                subresource,
                namespace,
                name,
                selectors: AuthorizationSelectors::default(),
            };
        let mut all = vec![match split_service_account_username(&self.user) {
            Some((namespace, name)) => resource("", "serviceaccounts", "", namespace, name),
            None => resource("", "users", "", "", &self.user),
        }];
        for group in &self.groups {
            all.push(resource("", "groups", "", "", group));
        }
        const AUTHN: &str = "authentication.k8s.io";
        for (key, values) in &self.extra {
            for value in values {
                all.push(resource(AUTHN, "userextras", key, "", value));
            }
        }
        if !self.uid.is_empty() {
            all.push(resource(AUTHN, "uids", "", "", &self.uid));
        }
        all
    }

    /// The user to act as, once all of [`Self::required_access`] is authorized.
    pub fn into_user_info(self) -> UserInfo {
        let mut groups = self.groups;
        if groups.is_empty()
            && let Some((namespace, _)) = split_service_account_username(&self.user)
        {
            groups = service_account_groups(namespace);
        }
        let everyone = if self.user == ANONYMOUS {
            ALL_UNAUTHENTICATED
        } else {
            ALL_AUTHENTICATED
        };
        if !groups
            .iter()
            .any(|g| g == ALL_AUTHENTICATED || g == ALL_UNAUTHENTICATED)
        {
            groups.push(everyone.into());
        }
        UserInfo {
            name: self.user,
            uid: self.uid,
            groups,
            extra: self.extra,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(headers: &[(&str, &str)]) -> Result<Option<ImpersonatedUser>, Status> {
        parse_impersonation_headers(
            headers
                .iter()
                .map(|(name, value)| (*name, value.as_bytes())),
        )
    }

    #[test]
    fn each_header_needs_its_permission() {
        assert_eq!(parse(&[("accept", "x")]).unwrap(), None);
        assert!(parse(&[("Impersonate-Group", "g")]).is_err());
        assert!(parse(&[("Impersonate-User", "u"), ("Impersonate-Frob", "g")]).is_err());
        let one = parse(&[
            ("Impersonate-User", "system:serviceaccount:ns:bot"),
            ("Impersonate-Group", "g"),
            ("Impersonate-Extra-a%2Fb", "v"),
            ("impersonate-uid", "7"),
        ])
        .unwrap()
        .unwrap();
        let rights: Vec<String> = one
            .required_access()
            .iter()
            .map(|t| format!("{t:?}"))
            .collect();
        assert_eq!(rights.len(), 4);
        assert!(rights[0].contains("serviceaccounts") && rights[0].contains("\"ns\""));
        assert!(rights[2].contains("userextras") && rights[2].contains("a/b"));
        let user = one.into_user_info();
        assert_eq!(user.groups, ["g", ALL_AUTHENTICATED]);
    }

    #[test]
    fn extra_keys_are_unescaped() {
        for (key, expect) in [
            ("a%2fb", Some("a/b")),
            ("%C3%BC", Some("ü")),
            ("a%zz", Some("a%zz")),
            ("a%+f", Some("a%+f")),
            ("a%2", Some("a%2")),
            ("%ff", None),
        ] {
            assert_eq!(unescape_extra_key(key).as_deref(), expect, "{key}");
        }
    }

    #[test]
    fn service_accounts_get_their_groups() {
        let user = parse(&[("Impersonate-User", "system:serviceaccount:ns:bot")])
            .unwrap()
            .unwrap()
            .into_user_info();
        assert!(user.in_group("system:serviceaccounts:ns"));
    }
}

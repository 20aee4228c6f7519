//! The `Impersonate-*` headers, and the user whom a request with them acts as
//! (`filters/impersonation.go`).

use std::collections::BTreeMap;

use machinery::user::{ALL_AUTHENTICATED, ALL_UNAUTHENTICATED, ANONYMOUS};
use machinery::{Status, UserInfo};
use percent_encoding::percent_decode_str;

/// The user that a request impersonates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImpersonatedUser {
    pub(crate) user: String,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

/// Parses the headers; `None` when there are none. Names are case-insensitive. An
/// unusable header fails with 400, so that the request never continues with the
/// requesting user's own rights.
pub fn parse_impersonation_headers<'a>(
    headers: impl Iterator<Item = (&'a str, &'a [u8])>,
) -> Result<Option<ImpersonatedUser>, Status> {
    let mut impersonated = ImpersonatedUser::default();
    let mut has_headers = false;
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        let Some(attribute) = name.strip_prefix("impersonate-") else {
            continue;
        };
        has_headers = true;
        let unusable = |message: &str| Status::bad_request(format!("header {name:?} {message}"));
        let value = std::str::from_utf8(value).map_err(|_| unusable("is not UTF-8"))?;
        match attribute {
            "user" | "uid" => {
                let field = match attribute {
                    "user" => &mut impersonated.user,
                    _ => &mut impersonated.uid,
                };
                if !field.is_empty() {
                    return Err(unusable("must not be repeated"));
                }
                *field = value.to_owned();
            }
            "group" => impersonated.groups.push(value.to_owned()),
            _ => {
                let key = attribute.strip_prefix("extra-");
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
    if has_headers && impersonated.user.is_empty() {
        return Err(Status::bad_request(
            "requested impersonation without impersonating a user",
        ));
    }
    Ok(has_headers.then_some(impersonated))
}

/// Percent-decodes the key of an extra; malformed escapes stay as they are. `None` when
/// the result is not UTF-8.
pub(crate) fn unescape_extra_key(key: &str) -> Option<String> {
    let decoded = percent_decode_str(key).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

impl ImpersonatedUser {
    pub(crate) fn has_only_name(&self) -> bool {
        self.uid.is_empty() && self.groups.is_empty() && self.extra.is_empty()
    }

    /// The user to act as; `default_groups` are his groups if the request names none.
    pub(crate) fn to_user_info(&self, default_groups: Vec<String>) -> UserInfo {
        let mut groups = match self.groups.is_empty() {
            true => default_groups,
            false => self.groups.clone(),
        };
        let has = |group: &str| groups.iter().any(|g| g == group);
        let missing = if self.user == ANONYMOUS {
            (!has(ALL_UNAUTHENTICATED)).then_some(ALL_UNAUTHENTICATED)
        } else {
            let has_group = has(ALL_AUTHENTICATED) || has(ALL_UNAUTHENTICATED);
            (!has_group).then_some(ALL_AUTHENTICATED)
        };
        groups.extend(missing.map(str::to_owned));
        UserInfo {
            name: self.user.clone(),
            uid: self.uid.clone(),
            groups,
            extra: self.extra.clone(),
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
    fn headers_name_a_user() {
        assert_eq!(parse(&[("accept", "x")]).unwrap(), None);
        assert!(parse(&[("Impersonate-Group", "g")]).is_err());
        assert!(parse(&[("Impersonate-User", "u"), ("Impersonate-Frob", "g")]).is_err());
        let impersonated = parse(&[
            ("Impersonate-User", "system:serviceaccount:ns:bot"),
            ("Impersonate-Group", "g"),
            ("Impersonate-Extra-a%2Fb", "v"),
            ("impersonate-uid", "7"),
        ])
        .unwrap()
        .unwrap();
        assert!(!impersonated.has_only_name());
        let user = impersonated.to_user_info(vec!["default".into()]);
        assert_eq!(user.groups, ["g", ALL_AUTHENTICATED]);
        assert_eq!(
            (user.uid.as_str(), &*user.extra["a/b"]),
            ("7", &["v".to_owned()][..])
        );
    }

    #[test]
    fn everybody_is_in_the_group_of_all() {
        for (user, group, expected) in [
            ("u", "g", &["g", ALL_AUTHENTICATED][..]),
            ("u", ALL_AUTHENTICATED, &[ALL_AUTHENTICATED]),
            ("u", ALL_UNAUTHENTICATED, &[ALL_UNAUTHENTICATED]),
            (ANONYMOUS, "g", &["g", ALL_UNAUTHENTICATED]),
            (ANONYMOUS, ALL_UNAUTHENTICATED, &[ALL_UNAUTHENTICATED]),
            (
                ANONYMOUS,
                ALL_AUTHENTICATED,
                &[ALL_AUTHENTICATED, ALL_UNAUTHENTICATED],
            ),
        ] {
            let headers = [("Impersonate-User", user), ("Impersonate-Group", group)];
            let impersonated = parse(&headers).unwrap().unwrap();
            let impersonated = impersonated.to_user_info(Vec::new());
            assert_eq!(impersonated.groups, expected, "{user} {group}");
        }
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
}

//! Maps the path after `proxy` to the member's path, and a member's redirects back to the
//! proxy. Does no I/O.

use http::Uri;
use http::uri::PathAndQuery;
use machinery::Status;

use crate::requestinfo::percent_decode;

/// The path below the member's base path, with the query and without empty and `.`
/// segments. Fails with 400 when a segment is `..`, escaped or not: it could leave the
/// base path.
pub(super) fn member_path(tail: &str, query: Option<&str>) -> Result<PathAndQuery, Status> {
    let mut path = String::with_capacity(tail.len() + query.map_or(0, str::len) + 2);
    for segment in tail.split('/').filter(|s| !matches!(*s, "" | ".")) {
        let decoded = percent_decode(segment);
        let upwards = decoded
            .as_ref()
            .is_some_and(|d| d.split('/').any(|s| s == ".."));
        if upwards || decoded.is_none() {
            let text = format!("the path segment {segment:?} cannot be passed on to a cluster");
            return Err(Status::bad_request(text));
        }
        path.push('/');
        path.push_str(segment);
    }
    if path.is_empty() || tail.ends_with('/') {
        path.push('/');
    }
    if let Some(query) = query {
        path.push('?');
        path.push_str(query);
    }
    path.parse()
        .map_err(|_| Status::bad_request("the path cannot be passed on to a cluster"))
}

/// Rewrites a redirect that stays on the member so that it goes through the proxy;
/// `None` when it leads elsewhere and stays as it is.
pub(super) fn rewrite_location(
    location: &str,
    authority: &str,
    base: &str,
    prefix: &str,
) -> Option<String> {
    let uri: Uri = location.parse().ok()?;
    if let Some(other) = uri.authority()
        && other.as_str() != authority
    {
        return None;
    }
    let path = uri.path();
    if uri.authority().is_none() && !location.starts_with('/') {
        return None;
    }
    let inner = path.strip_prefix(base)?;
    if !inner.is_empty() && !inner.starts_with('/') {
        return None;
    }
    let query = uri.query().map(|q| format!("?{q}")).unwrap_or_default();
    Some(format!("{prefix}{inner}{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn member_paths_stay_below_the_base_path() {
        let table: &[(&str, Option<&str>, Option<&str>)] = &[
            ("", None, Some("/")),
            ("/", None, Some("/")),
            (
                "/api/v1/pods",
                Some("watch=1&x=%2F"),
                Some("/api/v1/pods?watch=1&x=%2F"),
            ),
            ("//api/./v1//", None, Some("/api/v1/")),
            ("/a/b%2Fc", None, Some("/a/b%2Fc")),
            ("/a/...", None, Some("/a/...")),
            ("/a/../b", None, None),
            ("/a/%2e%2E/b", None, None),
            ("/a/x%2f..%2fb", None, None),
            ("/a/%zz", None, None),
        ];
        for (tail, query, expected) in table {
            let actual = member_path(tail, *query).ok();
            assert_eq!(actual.as_ref().map(|p| p.as_str()), *expected, "{tail}");
        }
    }

    #[test]
    fn redirects_lead_through_the_proxy() {
        let table = [
            ("/base/x?y=1", Some("/p/x?y=1")),
            ("https://m:6443/base/x/", Some("/p/x/")),
            ("/base", Some("/p")),
            ("/basement", None),
            ("/elsewhere", None),
            ("https://other/base/x", None),
            ("x/y", None),
        ];
        for (location, expected) in table {
            let actual = rewrite_location(location, "m:6443", "/base", "/p");
            assert_eq!(actual.as_deref(), expected, "{location}");
        }
    }

    proptest! {
        #[test]
        fn member_paths_have_no_parent_segments(tail in "(/[a-z.%0-9]{0,7}){0,6}") {
            if let Ok(path) = member_path(&tail, None) {
                let decoded = percent_decode(path.path()).unwrap();
                prop_assert!(decoded.split('/').all(|s| s != ".."));
            }
        }
    }
}

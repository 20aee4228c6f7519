//! Splits absolute URLs for validation. Does no I/O.

/// The parts of a URL, not validated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UrlParts<'a> {
    pub(crate) scheme: &'a str,
    pub(crate) host: &'a str,
    pub(crate) user: Option<&'a str>,
    /// Empty when absent, as is the fragment.
    pub(crate) query: &'a str,
    pub(crate) fragment: &'a str,
}

/// Splits a URL; `None` without a scheme and `://`.
pub(crate) fn split_url(url: &str) -> Option<UrlParts<'_>> {
    let (scheme, rest) = url.split_once("://")?;
    let is_scheme_byte = |b: u8| b.is_ascii_alphanumeric() || b"+-.".contains(&b);
    let is_clean = !url.bytes().any(|b| b.is_ascii_control() || b == b' ');
    if scheme.is_empty() || !scheme.bytes().all(is_scheme_byte) || !is_clean {
        return None;
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    let (before_fragment, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    Some(UrlParts {
        scheme,
        host,
        user,
        query: before_fragment.split_once('?').map_or("", |(_, q)| q),
        fragment,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_split() {
        let url_parts = |scheme, host, user, query, fragment| {
            Some(UrlParts {
                scheme,
                host,
                user,
                query,
                fragment,
            })
        };
        for (url, expected) in [
            ("https://a:6443", url_parts("https", "a:6443", None, "", "")),
            (
                "https://[::1]:6443/x",
                url_parts("https", "[::1]:6443", None, "", ""),
            ),
            ("https://", url_parts("https", "", None, "", "")),
            ("a:6443", None),
            (
                "https://u:p@a",
                url_parts("https", "a", Some("u:p"), "", ""),
            ),
            ("https://a?x=1", url_parts("https", "a", None, "x=1", "")),
            (
                "https://a/b?x=1#y?z",
                url_parts("https", "a", None, "x=1", "y?z"),
            ),
            ("https://a b", None),
        ] {
            assert_eq!(split_url(url), expected, "{url}");
        }
    }
}

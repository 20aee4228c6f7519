//! The parts of an absolute URL that rules ask about. Pure.

/// A URL taken apart, without judging its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parts<'a> {
    pub(crate) scheme: &'a str,
    pub(crate) host: &'a str,
    pub(crate) user: bool,
    pub(crate) query: bool,
    pub(crate) fragment: bool,
}

/// `None` unless there is a scheme and `://`.
pub(crate) fn parts(url: &str) -> Option<Parts<'_>> {
    let (scheme, rest) = url.split_once("://")?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"+-.".contains(&b);
    let clean = !url.bytes().any(|b| b.is_ascii_control() || b == b' ');
    if scheme.is_empty() || !scheme.bytes().all(plain) || !clean {
        return None;
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
    let (user, host) = match authority.rsplit_once('@') {
        Some((_, host)) => (true, host),
        None => (false, authority),
    };
    let (before_fragment, fragment) = match rest.split_once('#') {
        Some((head, _)) => (head, true),
        None => (rest, false),
    };
    Some(Parts {
        scheme,
        host,
        user,
        query: before_fragment.contains('?'),
        fragment,
    })
}

/// An absolute URL with a host and without user, query and fragment.
pub(crate) fn plain(url: &str) -> Result<Parts<'_>, String> {
    let parts = parts(url).ok_or("must be an absolute URL, as in https://host[:port]")?;
    if parts.host.is_empty() || parts.host.starts_with(':') {
        return Err("host must be specified".into());
    }
    if parts.user {
        return Err("user information is not permitted in the URL".into());
    }
    if parts.fragment {
        return Err("fragments are not permitted in the URL".into());
    }
    if parts.query {
        return Err("query parameters are not permitted in the URL".into());
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        for (url, fine) in [
            ("https://a:6443", true),
            ("https://[::1]:6443/x", true),
            ("https://", false),
            ("https://:1", false),
            ("a:6443", false),
            ("https://u:p@a", false),
            ("https://a?x=1", false),
            ("https://a#x", false),
            ("https://a b", false),
        ] {
            assert_eq!(plain(url).is_ok(), fine, "{url}");
        }
    }
}

//! The address of a proxy, whose password is never printed.

use std::fmt;

use http::Uri;
use percent_encoding::percent_decode_str;

/// The protocol of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxyScheme {
    /// `CONNECT` over HTTP/1.1.
    Http,
    /// The same within TLS.
    Https,
    Socks5,
}

/// An `http`, `https` or `socks5` URL, which may hold a user and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct ProxyUrl {
    text: String,
    /// Without user and password.
    address: Uri,
    scheme: ProxyScheme,
    credentials: Option<(String, String)>,
}

impl ProxyUrl {
    /// Parses and checks a URL. The error does not repeat it: it may hold a password.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let invalid = || "proxy-url is not an address".to_owned();
        let uri: Uri = text.parse().map_err(|_| invalid())?;
        let scheme = match uri.scheme_str().ok_or_else(invalid)? {
            "http" => ProxyScheme::Http,
            "https" => ProxyScheme::Https,
            "socks5" => ProxyScheme::Socks5,
            other => {
                return Err(format!(
                    "proxy-url has the scheme {other:?}; http, https and socks5 are supported"
                ));
            }
        };
        let authority = uri.authority().ok_or_else(invalid)?.as_str();
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        let address = Uri::builder()
            .scheme(uri.scheme_str().unwrap_or_default())
            .authority(host)
            .path_and_query("/")
            .build()
            .map_err(|_| invalid())?;
        if address.host().is_none_or(str::is_empty) {
            return Err(invalid());
        }
        Ok(Self {
            text: text.to_owned(),
            address,
            scheme,
            credentials: user.map(decode_credentials).transpose()?,
        })
    }

    /// The URL as it was written, with user and password.
    pub fn as_text(&self) -> &str {
        &self.text
    }

    pub(super) fn scheme(&self) -> ProxyScheme {
        self.scheme
    }

    /// The address without user and password.
    pub(super) fn address(&self) -> &Uri {
        &self.address
    }

    /// The port; by default that of the scheme.
    pub(super) fn port(&self) -> u16 {
        self.address.port_u16().unwrap_or(match self.scheme {
            ProxyScheme::Http => 80,
            ProxyScheme::Https => 443,
            ProxyScheme::Socks5 => 1080,
        })
    }

    /// User and password.
    pub(super) fn credentials(&self) -> Option<(&str, &str)> {
        let (user, password) = self.credentials.as_ref()?;
        Some((user, password))
    }
}

impl fmt::Debug for ProxyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProxyUrl").field(&self.address).finish()
    }
}

/// `user:password`, in which reserved characters are percent-encoded.
fn decode_credentials(text: &str) -> Result<(String, String), String> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let decode = |part: &str| {
        let decoded = percent_decode_str(part).decode_utf8();
        let decoded = decoded.map_err(|_| "user and password of proxy-url are not UTF-8")?;
        Ok::<String, String>(decoded.into_owned())
    };
    Ok((decode(user)?, decode(password)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_known_scheme_a_port_and_decoded_credentials() {
        for (text, port, credentials) in [
            ("http://proxy", 80, None),
            ("https://proxy:8443/", 8443, None),
            ("socks5://[::1]", 1080, None),
            ("http://me@proxy", 80, Some(("me", ""))),
            ("socks5://me:a%40b%3Ac@proxy:1", 1, Some(("me", "a@b:c"))),
        ] {
            let url = ProxyUrl::parse(text).unwrap();
            assert_eq!((url.port(), url.credentials()), (port, credentials));
            assert_eq!(url.as_text(), text);
            assert!(!format!("{url:?}").contains("me:"), "{url:?}");
        }
    }

    #[test]
    fn errors_do_not_repeat_passwords() {
        for (text, error) in [
            (
                "ftp://me:secret@proxy",
                "proxy-url has the scheme \"ftp\"; http, https and socks5 are supported",
            ),
            ("secret@", "proxy-url is not an address"),
            ("http://me:secret@", "proxy-url is not an address"),
            (
                "http://me:%ffsecret@proxy",
                "user and password of proxy-url are not UTF-8",
            ),
        ] {
            assert_eq!(ProxyUrl::parse(text).unwrap_err(), error);
        }
    }
}

//! The URL by which browsers reach a console that serves several users.

use http::Uri;
use http::uri::Scheme;

const DEFAULT_PORT: u16 = 443;

/// An `https` URL without a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExternalUrl {
    /// As browsers send it: in lower case, and without the default port.
    host: String,
}

impl ExternalUrl {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let bad = || "expected https://HOST or https://HOST:PORT".to_owned();
        let uri: Uri = text.parse().map_err(|_| bad())?;
        let authority = uri.authority().ok_or_else(bad)?;
        let is_plain = uri.scheme() == Some(&Scheme::HTTPS)
            && matches!(uri.path(), "" | "/")
            && uri.query().is_none()
            && !authority.as_str().contains('@')
            && !authority.host().is_empty();
        if !is_plain {
            return Err(bad());
        }
        let name = authority.host().to_ascii_lowercase();
        let host = match authority.port_u16() {
            None | Some(DEFAULT_PORT) => name,
            Some(port) => format!("{name}:{port}"),
        };
        Ok(Self { host })
    }

    /// The value of the header `Host`.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn origin(&self) -> String {
        format!("https://{}", self.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: CON-external-url
    #[test]
    fn the_host_is_written_as_browsers_do() {
        for (text, host) in [
            ("https://console.example.com", Some("console.example.com")),
            ("https://Console.Example.com/", Some("console.example.com")),
            (
                "https://console.example.com:443",
                Some("console.example.com"),
            ),
            ("https://10.0.0.1:8443", Some("10.0.0.1:8443")),
            ("https://[fd00::1]:8443", Some("[fd00::1]:8443")),
            ("http://console.example.com", None),
            ("console.example.com", None),
            ("https://console.example.com/path", None),
            ("https://console.example.com?query", None),
            ("https://user@console.example.com", None),
            ("https://", None),
            ("", None),
        ] {
            let url = ExternalUrl::parse(text).ok();
            assert_eq!(url.as_ref().map(ExternalUrl::host), host, "{text}");
        }
    }
}

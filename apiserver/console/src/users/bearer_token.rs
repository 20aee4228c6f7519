//! The bearer token of a user, which no page, log or error contains.

use client::remote::Redacted;
use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};

use crate::guard::{Refusal, single};
use crate::query::decode;
use crate::session::{TokenDigest, digest};

/// The field of the login form.
pub(crate) const TOKEN_FIELD: &str = "bearer-token";
/// Tokens of identity providers have some kilobytes.
const MAX_TOKEN_BYTES: usize = 16 << 10;
const SCHEME: &str = "bearer ";

#[derive(Clone, Debug)]
pub(crate) struct BearerToken(Redacted<String>);

impl BearerToken {
    fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        let is_token = (1..=MAX_TOKEN_BYTES).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_token.then(|| Self(Redacted(text.to_owned())))
    }

    /// The token of the header `Authorization`; none if that has another scheme.
    pub(crate) fn of_headers(headers: &HeaderMap) -> Result<Option<Self>, Refusal> {
        let Some(value) = single(headers, AUTHORIZATION.as_str())? else {
            return Ok(None);
        };
        match value.split_at_checked(SCHEME.len()) {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case(SCHEME) => {
                let token = Self::new(token);
                let malformed = (StatusCode::UNAUTHORIZED, "the bearer token is malformed");
                token.map(Some).ok_or(malformed)
            }
            _ => Ok(None),
        }
    }

    /// The token of a login form. It is read apart from other parameters, which may be printed.
    pub(crate) fn of_form(form: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(form).ok()?;
        let mut pairs = text.split('&').filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.find(|(name, _)| *name == TOKEN_FIELD)?;
        Self::new(&decode(value)?)
    }

    pub(crate) fn digest(&self) -> TokenDigest {
        digest(&self.0.0)
    }

    /// The token itself, for requests to the control plane.
    pub(crate) fn secret(&self) -> &Redacted<String> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of_header(value: &str) -> Result<Option<String>, Refusal> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        let token = BearerToken::of_headers(&headers)?;
        Ok(token.map(|token| token.0.0))
    }

    // proves: CON-bearer-header
    #[test]
    fn a_bearer_token_is_read_from_the_header() {
        let token = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(of_header("Bearer a.b-c_d"), token("a.b-c_d"));
        assert_eq!(of_header("bearer a"), token("a"));
        assert_eq!(of_header("BEARER  a "), token("a"));
        for other in ["Basic YTpi", "Bearer", "Negotiate x", ""] {
            assert_eq!(of_header(other), Ok(None), "{other}");
        }
        for malformed in ["Bearer ", "Bearer a b", "Bearer  "] {
            assert_eq!(of_header(malformed).unwrap_err().0, 401, "{malformed}");
        }
        let long = format!("Bearer {}", "a".repeat(MAX_TOKEN_BYTES + 1));
        assert_eq!(of_header(&long).unwrap_err().0, 401);
        let mut headers = HeaderMap::new();
        headers.append(AUTHORIZATION, HeaderValue::from_static("Bearer a"));
        headers.append(AUTHORIZATION, HeaderValue::from_static("Bearer b"));
        let twice = BearerToken::of_headers(&headers);
        assert_eq!(twice.unwrap_err().0, StatusCode::BAD_REQUEST);
    }

    // proves: CON-token-redacted
    #[test]
    fn a_token_is_read_from_the_form_and_not_printed() {
        let token = BearerToken::of_form(b"a=b&bearer-token=%20abc%2Bd%0A").unwrap();
        assert_eq!(token.secret().0, "abc+d");
        assert_eq!(format!("{token:?}"), "BearerToken(***)");
        for form in [
            "",
            "bearer-token=",
            "token=abc",
            "bearer-token=%ff",
            "bearer-token=a%20b",
        ] {
            assert!(BearerToken::of_form(form.as_bytes()).is_none(), "{form}");
        }
    }
}

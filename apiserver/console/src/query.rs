//! The parameters of a query string or of a form, bounded in number and length, and links with them.

use std::fmt;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

const MAX_PARAMETERS: usize = 16;
/// A name of an object has at most 253 bytes.
const MAX_VALUE_BYTES: usize = 512;

/// The parameter with a manifest, which is as long as its form may be.
pub(crate) const MANIFEST: &str = "manifest";

/// The parameters of a query string; further or longer ones are dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueryParameters(Vec<(String, String)>);

impl QueryParameters {
    /// Reads `application/x-www-form-urlencoded`.
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let decoded = pairs.take(MAX_PARAMETERS).filter_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            let is_short = value.len() <= MAX_VALUE_BYTES || name == MANIFEST;
            is_short.then_some((name, value))
        });
        Self(decoded.collect())
    }

    /// The value of a parameter without the blanks around it; empty if it is absent.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.verbatim(name).trim()
    }

    pub(crate) fn verbatim(&self, name: &str) -> &str {
        let mut pairs = self.0.iter();
        let pair = pairs.find(|(other, _)| other == name);
        pair.map_or("", |(_, value)| value)
    }
}

pub(crate) fn decode(text: &str) -> Option<String> {
    let text = text.replace('+', " ");
    let decoded = percent_decode_str(&text).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

/// A segment of a path as it was before it was encoded; `None` if it is no UTF-8.
pub(crate) fn decode_segment(segment: &str) -> Option<String> {
    let decoded = percent_decode_str(segment).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

/// A path with a query string, of which parameters with empty values are left out.
pub(crate) struct Link<'a> {
    pub(crate) path: &'a [&'a str],
    pub(crate) parameters: &'a [(&'a str, &'a str)],
}

impl fmt::Display for Link<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in self.path {
            write!(f, "/{}", encode(segment))?;
        }
        if self.path.is_empty() {
            write!(f, "/")?;
        }
        let parameters = self
            .parameters
            .iter()
            .filter(|(_, value)| !value.is_empty());
        for (at, (name, value)) in parameters.enumerate() {
            let separator = if at == 0 { '?' } else { '&' };
            write!(f, "{separator}{name}={}", encode(value))?;
        }
        Ok(())
    }
}

fn encode(text: &str) -> impl fmt::Display {
    utf8_percent_encode(text, NON_ALPHANUMERIC)
}

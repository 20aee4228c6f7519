//! Continue tokens, in the form of `apiserver/pkg/storage/continue.go`: base64url
//! without padding of `{"v":"meta.k8s.io/v1","rv":N,"start":"key\0"}`.

use base64::Engine;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, URL_SAFE_NO_PAD};
use base64::{DecodeError, alphabet};
use serde::{Deserialize, Serialize};

use crate::error::Error;

const TOKEN_VERSION: &str = "meta.k8s.io/v1";
/// The longest token in bytes; names have at most 253 bytes.
const MAX_TOKEN_BYTES: usize = 4096;

/// Decodes as Go does, which ignores the bits that pad the last character.
const TOKEN_BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    NO_PAD.with_decode_allow_trailing_bits(true),
);

/// Go's `base64.CorruptInputError`.
fn base64_error_text(error: &DecodeError) -> String {
    let offset = match error {
        DecodeError::InvalidByte(offset, _) | DecodeError::InvalidLastSymbol(offset, _) => *offset,
        DecodeError::InvalidLength(length) => length.saturating_sub(1),
        other => return other.to_string(),
    };
    format!("illegal base64 data at input byte {offset}")
}

/// The position at which a paged list continues.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ContinueToken {
    /// `None`: the list continues at the newest revision, since its first one is compacted
    /// (-1 in the token).
    pub(crate) revision: Option<u64>,
    /// The first key of the page, relative to the prefix of the list.
    pub(crate) start: String,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct ContinueTokenJson {
    v: String,
    rv: i64,
    start: String,
}

impl ContinueToken {
    pub(crate) fn encode(&self) -> String {
        let wire = ContinueTokenJson {
            v: TOKEN_VERSION.into(),
            rv: self
                .revision
                .and_then(|r| i64::try_from(r).ok())
                .unwrap_or(-1),
            start: self.start.clone(),
        };
        // A struct of strings and numbers always encodes.
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&wire).unwrap_or_default())
    }

    pub(crate) fn decode(text: &str) -> Result<Self, Error> {
        let invalid = |message: &str| Error::InvalidContinueToken(message.into());
        if text.len() > MAX_TOKEN_BYTES {
            return Err(invalid(": too long"));
        }
        let json = TOKEN_BASE64
            .decode(text)
            .map_err(|e| invalid(&format!(": {}", base64_error_text(&e))))?;
        let wire: ContinueTokenJson =
            machinery::json::from_slice(&json).map_err(|e| invalid(&format!(": {e}")))?;
        if wire.v != TOKEN_VERSION {
            return Err(invalid(&format!(
                ": server does not recognize this encoded version {}",
                wire.v
            )));
        }
        let revision = match wire.rv {
            -1 => None,
            rv => match u64::try_from(rv) {
                Ok(rv) if rv > 0 => Some(rv),
                _ => {
                    return Err(invalid(&format!(
                        ": incorrect encoded start resourceVersion (version {TOKEN_VERSION})"
                    )));
                }
            },
        };
        if wire.start.is_empty() {
            return Err(invalid(&format!(
                ": encoded start key empty (version {TOKEN_VERSION})"
            )));
        }
        let escapes = |segment: &str| matches!(segment.trim_end_matches('\0'), "" | "." | "..");
        if wire.start.split('/').any(escapes) {
            return Err(invalid(&format!(": {}", wire.start)));
        }
        Ok(Self {
            revision,
            start: wire.start,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tokens_are_those_of_kubernetes() {
        // {"v":"meta.k8s.io/v1","rv":2,"start":"b/x\u0000"}
        let text = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6Miwic3RhcnQiOiJiL3hcdTAwMDAifQ";
        let token = ContinueToken {
            revision: Some(2),
            start: "b/x\0".into(),
        };
        assert_eq!(token.encode(), text);
        assert_eq!(ContinueToken::decode(text).unwrap(), token);
        let stale = ContinueToken {
            revision: None,
            ..token
        };
        assert_eq!(ContinueToken::decode(&stale.encode()).unwrap(), stale);
    }

    #[test]
    fn foreign_tokens_are_refused() {
        let encode = |json: &str| URL_SAFE_NO_PAD.encode(json);
        let table = [
            "%%%".to_owned(),
            encode("{}"),
            encode(r#"{"v":"v2","rv":2,"start":"a"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":-2,"start":"a"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":2,"start":""}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":2,"start":"../secrets/a"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":2,"start":"a/../../b"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":2,"start":"/a"}"#),
            "A".repeat(5000),
        ];
        for text in table {
            let is_refused = matches!(
                ContinueToken::decode(&text),
                Err(Error::InvalidContinueToken(_))
            );
            assert!(is_refused, "{text}");
        }
    }

    proptest! {
        #[test]
        fn decoding_never_panics(text in ".{0,80}") {
            let _ = ContinueToken::decode(&text);
            let _ = ContinueToken::decode(&URL_SAFE_NO_PAD.encode(text));
        }
    }
}

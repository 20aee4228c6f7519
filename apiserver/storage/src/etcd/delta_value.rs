//! The form of a delta in etcd, which names the base that it needs. Pure.
//!
//! ```text
//! flotilla:delta:v1:BASE:DELTA       DELTA is of `machinery::delta_codec`
//! BASE = prefix of the keys that may refer to it, 16 hexadecimal digits
//! ```
//! The base is the value of the key [`BASE_KEY_PREFIX`] + BASE. A whole value that begins like a
//! delta is stored as one without a base.

use std::sync::Arc;

use bytes::Bytes;

use machinery::delta_codec;

/// The beginning of the keys of bases.
pub(super) const BASE_KEY_PREFIX: &str = "/registry/flotilla/bases";
/// The beginning of every delta, of any version.
const DELTA_MARK: &[u8] = b"flotilla:delta:";
const DELTA_HEADER: &str = "flotilla:delta:v1:";
/// The longest name of a base.
const MAX_BASE_NAME_BYTES: usize = 512;
const ID_BYTES: usize = 8;

/// The name of a base. No two bases ever have the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct BaseName(Arc<str>);

impl BaseName {
    /// A new name for a base of keys with this prefix; `None` without randomness.
    pub(super) fn new_random(prefix: &str) -> Option<Self> {
        let mut id = [0; ID_BYTES];
        aws_lc_rs::rand::fill(&mut id).ok()?;
        let id = u64::from_be_bytes(id);
        Some(Self(format!("{prefix}{id:016x}").into()))
    }

    /// The base with this storage key.
    pub(super) fn from_key(key: &str) -> Option<Self> {
        Self::parse(key.strip_prefix(BASE_KEY_PREFIX)?)
    }

    fn parse(name: &str) -> Option<Self> {
        let digits = name.len().checked_sub(2 * ID_BYTES)?;
        let is_id = |id: &str| id.bytes().all(|b| b.is_ascii_hexdigit());
        let valid = name.len() <= MAX_BASE_NAME_BYTES && name.get(digits..).is_some_and(is_id);
        valid.then(|| Self(name.into()))
    }

    /// The storage key of the base.
    pub(super) fn key(&self) -> String {
        format!("{BASE_KEY_PREFIX}{}", self.0)
    }

    /// The prefix of the keys that may refer to the base.
    pub(super) fn prefix(&self) -> &str {
        &self.0[..self.0.len() - 2 * ID_BYTES]
    }
}

/// A delta as it is stored.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DeltaValue {
    /// `None`: the delta needs no base.
    pub(super) base: Option<BaseName>,
    delta: Bytes,
}

impl DeltaValue {
    /// The delta that a stored value is; `None` when it is whole.
    ///
    /// # Errors
    /// The reason why this program cannot read it.
    pub(super) fn parse(stored: &Bytes) -> Result<Option<Self>, String> {
        if !stored.starts_with(DELTA_MARK) {
            return Ok(None);
        }
        let unknown = || "it is stored in a form that this version does not know".to_owned();
        let rest = stored.strip_prefix(DELTA_HEADER.as_bytes());
        let rest = rest.ok_or_else(unknown)?;
        let name = rest.split(|b| *b == b':').next().unwrap_or_default();
        let delta_start = DELTA_HEADER.len() + name.len() + 1;
        let name = std::str::from_utf8(name).map_err(|_| unknown())?;
        if delta_start > stored.len() {
            return Err(unknown());
        }
        let base = match name {
            "" => None,
            name => Some(BaseName::parse(name).ok_or_else(unknown)?),
        };
        Ok(Some(Self {
            base,
            delta: stored.slice(delta_start..),
        }))
    }

    /// The value, given the content of the base.
    ///
    /// # Errors
    /// The reason why the delta cannot be read.
    pub(super) fn decode(&self, base: &[u8]) -> Result<Bytes, String> {
        let value = delta_codec::decode(base, &self.delta).map_err(|e| e.to_string())?;
        Ok(value.into())
    }
}

/// The stored form of a delta.
pub(super) fn encode_delta(base: &BaseName, delta: &[u8]) -> Vec<u8> {
    [DELTA_HEADER.as_bytes(), base.0.as_bytes(), b":", delta].concat()
}

/// The stored form of a whole value.
pub(super) fn encode_whole_value(value: &[u8]) -> Vec<u8> {
    if value.starts_with(DELTA_MARK) {
        return [
            DELTA_HEADER.as_bytes(),
            b":",
            &delta_codec::encode(&[], value),
        ]
        .concat();
    }
    value.to_vec()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const PREFIX: &str = "/registry/works/";

    #[test]
    fn names_of_bases_are_their_keys() {
        let base = BaseName::new_random(PREFIX).unwrap();
        assert_eq!(base.prefix(), PREFIX);
        assert!(
            base.key()
                .starts_with("/registry/flotilla/bases/registry/works/")
        );
        assert_eq!(BaseName::from_key(&base.key()), Some(base));
        for key in [
            "/registry/works/0123456789abcdef",
            "/registry/flotilla/bases",
            "/registry/flotilla/bases/0123456789abcde",
            "/registry/flotilla/bases/registry/works/0123456789abcdeg",
        ] {
            assert_eq!(BaseName::from_key(key), None, "{key}");
        }
    }

    #[test]
    fn deltas_name_their_base_in_text() {
        let base = BaseName::new_random(PREFIX).unwrap();
        let value = b"{\"kind\":\"Work\",\"metadata\":{\"name\":\"web\"}}";
        let stored = Bytes::from(encode_delta(&base, &delta_codec::encode(value, value)));
        assert!(stored.starts_with(b"flotilla:delta:v1:/registry/works/"));
        let delta = DeltaValue::parse(&stored).unwrap().unwrap();
        assert_eq!(delta.base, Some(base));
        assert_eq!(delta.decode(value).unwrap(), &value[..]);
        assert!(delta.decode(b"another base").is_err());
        assert_eq!(DeltaValue::parse(&Bytes::from_static(value)), Ok(None));
    }

    #[test]
    fn unknown_forms_are_errors() {
        for stored in [
            "flotilla:delta:",
            "flotilla:delta:v2:x:",
            "flotilla:delta:v1:",
            "flotilla:delta:v1:/registry/works/0123456789abcdef",
            "flotilla:delta:v1:short:x",
        ] {
            let parsed = DeltaValue::parse(&Bytes::from(stored));
            assert!(parsed.is_err(), "{stored}: {parsed:?}");
        }
    }

    proptest! {
        #[test]
        fn a_whole_value_that_looks_like_a_delta_is_read_back(rest in vec(any::<u8>(), 0..80)) {
            let value = [DELTA_MARK, &rest].concat();
            let stored = Bytes::from(encode_whole_value(&value));
            let delta = DeltaValue::parse(&stored).unwrap().unwrap();
            prop_assert_eq!(&delta.base, &None);
            prop_assert_eq!(delta.decode(&[]).unwrap(), value);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(rest in vec(any::<u8>(), 0..80)) {
            let stored = Bytes::from([DELTA_HEADER.as_bytes(), &rest].concat());
            if let Ok(Some(delta)) = DeltaValue::parse(&stored) {
                let _ = delta.decode(&rest);
            }
        }
    }
}

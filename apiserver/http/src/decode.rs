//! Reads and decodes request bodies: JSON, YAML or protobuf bytes become a value.
//!
//! Size and depth are bounded, and duplicate JSON keys are reported by their paths.

use std::cell::RefCell;
use std::fmt;

use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use machinery::Status;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::negotiation::BodyType;

/// Largest request body in bytes (kube-apiserver's `MaxRequestBodyBytes`).
pub(crate) const MAX_BODY: usize = 3 * 1024 * 1024;
/// An oversized body is read and discarded up to this many bytes: a client that is
/// still writing when the connection closes would not see the error.
const MAX_DISCARDED: usize = 4 * MAX_BODY;
/// Bound on reported duplicate keys.
const MAX_DUPLICATES: usize = 100;

/// Reads a body up to [`MAX_REQUEST_BODY_BYTES`]. Fails with 413 beyond it.
pub(crate) async fn read(mut body: Incoming) -> Result<Vec<u8>, Status> {
    let expected = body.size_hint().lower();
    let mut bytes = Vec::with_capacity(expected.min(MAX_BODY as u64) as usize);
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| Status::bad_request(format!("cannot read the body: {e}")))?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        length += data.len();
        if expected <= MAX_BODY as u64 && length <= MAX_BODY {
            bytes.extend_from_slice(data);
        } else if length > MAX_DISCARDED {
            break;
        }
    }
    if length > MAX_BODY {
        return Err(Status::too_large(format!("limit is {MAX_BODY}")));
    }
    Ok(bytes)
}

/// A decoded body and the paths of its duplicate keys, such as `spec.a[0].b`.
pub(crate) struct Decoded {
    pub(crate) value: Value,
    pub(crate) duplicates: Vec<String>,
}

/// Decodes a body that holds an object. Fails with 400 when it is malformed or not an
/// object.
pub(crate) fn object(bytes: &[u8], body_type: BodyType) -> Result<Decoded, Status> {
    let decoded = match body_type {
        BodyType::Json => json(bytes)?,
        BodyType::Yaml => Decoded {
            value: yaml(bytes)?,
            duplicates: Vec::new(),
        },
        BodyType::Protobuf => Decoded {
            value: protobuf(bytes)?,
            duplicates: Vec::new(),
        },
    };
    if decoded.value.is_object() {
        return Ok(decoded);
    }
    Err(Status::bad_request(
        "couldn't get version/kind; json parse error: the body is not an object",
    ))
}

fn protobuf(bytes: &[u8]) -> Result<Value, Status> {
    let (gvk, mut value) = openapi::proto::decode(bytes).map_err(Status::bad_request)?;
    if let Some(map) = value.as_object_mut()
        && !gvk.kind.is_empty()
    {
        map.entry("apiVersion")
            .or_insert_with(|| gvk.api_version().into());
        map.entry("kind")
            .or_insert_with(|| gvk.kind.as_ref().into());
    }
    Ok(value)
}

fn yaml(bytes: &[u8]) -> Result<Value, Status> {
    let text =
        std::str::from_utf8(bytes).map_err(|_| Status::bad_request("yaml: invalid UTF-8"))?;
    serde_saphyr::from_str(text)
        .map_err(|e| Status::bad_request(format!("error converting YAML to JSON: {e}")))
}

/// Decodes JSON. The last of duplicate keys wins; all of them are reported.
pub(crate) fn json(bytes: &[u8]) -> Result<Decoded, Status> {
    let found = Found::default();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Tree { found: &found }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|e| {
            Status::bad_request(format!("couldn't get version/kind; json parse error: {e}"))
        })?;
    Ok(Decoded {
        value,
        duplicates: found.duplicates.into_inner(),
    })
}

/// The path of the value being decoded, and the duplicate keys found so far.
#[derive(Default)]
struct Found {
    path: RefCell<String>,
    duplicates: RefCell<Vec<String>>,
}

impl Found {
    /// Runs `inside` with the path extended by `step`.
    fn at<T>(&self, step: impl FnOnce(&mut String), inside: impl FnOnce() -> T) -> T {
        let before = self.path.borrow().len();
        step(&mut self.path.borrow_mut());
        let result = inside();
        self.path.borrow_mut().truncate(before);
        result
    }

    fn duplicate(&self) {
        let mut all = self.duplicates.borrow_mut();
        let path = self.path.borrow();
        if all.len() < MAX_DUPLICATES && !all.contains(&path) {
            all.push(path.clone());
        }
    }
}

#[derive(Clone, Copy)]
struct Tree<'f> {
    found: &'f Found,
}

impl<'de> DeserializeSeed<'de> for Tree<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_f64<E: serde::de::Error>(self, v: f64) -> Result<Value, E> {
        Number::from_f64(v)
            .map(Value::Number)
            .ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(Value::String(v))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        use std::fmt::Write as _;
        let mut items = Vec::new();
        loop {
            let step = |path: &mut String| {
                let _ = write!(path, "[{}]", items.len());
            };
            match self.found.at(step, || seq.next_element_seed(self))? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let step = |path: &mut String| {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(&key);
            };
            let value = self.found.at(step, || {
                if map.contains_key(&key) {
                    self.found.duplicate();
                }
                access.next_value_seed(self)
            });
            map.insert(key, value?);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn duplicates_are_named() {
        let text = br#"{"a":1,"spec":{"x":1,"x":2,"l":[{},{"y":1,"y":1}]},"a":3}"#;
        let got = json(text).unwrap();
        assert_eq!(got.duplicates, ["spec.x", "spec.l[1].y", "a"]);
        assert_eq!(
            (&got.value["a"], &got.value["spec"]["x"]),
            (&3.into(), &2.into())
        );
    }

    #[test]
    fn malformed_bodies_are_refused() {
        let deep = "[".repeat(5000);
        for bad in ["", "{", "{}x", "[1]", "\"a\"", "nul", deep.as_str()] {
            let code = object(bad.as_bytes(), BodyType::Json).err().map(|s| s.code);
            assert_eq!(code, Some(400), "{bad:.20}");
        }
        assert!(object(b"a: [", BodyType::Yaml).is_err());
        assert!(object(b"xx", BodyType::Protobuf).is_err());
    }

    #[test]
    fn yaml_is_taken() {
        let got = object(b"kind: X\nspec:\n  n: 3\n", BodyType::Yaml).unwrap();
        assert_eq!(got.value["spec"]["n"], 3);
    }

    proptest! {
        #[test]
        fn decodes_the_same_as_serde_json(text in "[\\[\\]{}:,\"a0.e ]{0,24}") {
            let theirs = serde_json::from_str::<Value>(&text).ok();
            prop_assert_eq!(json(text.as_bytes()).ok().map(|d| d.value), theirs);
        }
    }
}

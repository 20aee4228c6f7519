//! Reads and decodes request bodies: JSON, YAML or protobuf bytes become a value.
//!
//! Size, depth and memory are bounded, and duplicate JSON keys are reported by their paths.

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::Deref;

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt;
use machinery::bounded_text::{
    MAX_MESSAGE_BYTES, MAX_QUOTED_BYTES, child_path, push_path_step, rendered, truncated,
};
use machinery::json_errors::value_type_name;
use machinery::tree_memory::{estimate_json_tree_bytes, estimate_yaml_tree_bytes};
use machinery::value_visitor::{CompoundReader, ValueVisitor};
use machinery::{Status, go_numbers, json, yaml};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess};
use serde_json::{Map, Value};

use crate::lone_surrogates::replace_lone_surrogates;
use crate::negotiation::RequestBodySerialization;
use crate::request_memory::MemoryCharge;
use crate::yaml_body::{conversion_error, decode_yaml};

pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

/// Largest request body in bytes (kube-apiserver's `MaxRequestBodyBytes`).
pub(crate) const MAX_REQUEST_BODY_BYTES: usize = 3 * 1024 * 1024;
/// A body that is refused is read and discarded up to this many bytes: a client that is
/// still writing when the connection closes would not see the error.
const MAX_DISCARDED_BYTES: usize = 4 * MAX_REQUEST_BODY_BYTES;
/// Bound on reported duplicate keys.
const MAX_REPORTED_DUPLICATES: usize = 100;

/// A body is read into room for so many bytes more at a time.
const READ_BYTES: usize = 64 * 1024;
/// The bytes of a request until its body arrives, roughly.
const WAITING_BYTES: usize = 16 * 1024;
/// The bytes of a tree for each byte of protobuf, at most and roughly: the decoder bounds the values.
const PROTOBUF_TREE_FACTOR: usize = 16;

/// The extension of a request whose body a proxy of this server has read and replaced.
#[derive(Clone)]
pub(crate) struct ReplacedBody(pub(crate) Bytes);

/// The bytes of a body, and the memory charged for them and for what they are decoded to.
pub(crate) struct ChargedRequestBody {
    bytes: Vec<u8>,
    charge: MemoryCharge,
}

impl ChargedRequestBody {
    /// A body of which nothing is read.
    pub(crate) fn empty(charge: MemoryCharge) -> Self {
        Self {
            bytes: Vec::new(),
            charge,
        }
    }
}

impl Deref for ChargedRequestBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl ChargedRequestBody {
    /// Charges the trees of a write before its body is decoded. Fails with 413 or 429.
    pub(crate) fn charge_write(
        &mut self,
        body_type: RequestBodySerialization,
    ) -> Result<(), Status> {
        let tree = self.estimate_tree_bytes(body_type);
        self.charge.add_trees_of_write(tree)
    }

    /// As [`Self::charge_write`], for a body that is only read: JSON.
    pub(crate) fn charge_review(&mut self) -> Result<(), Status> {
        let tree = self.estimate_tree_bytes(RequestBodySerialization::Json);
        self.charge.add_tree(tree)
    }

    fn estimate_tree_bytes(&self, body_type: RequestBodySerialization) -> usize {
        match body_type {
            RequestBodySerialization::Json => estimate_json_tree_bytes(&self.bytes),
            RequestBodySerialization::Yaml => estimate_yaml_tree_bytes(&self.bytes),
            RequestBodySerialization::Protobuf => PROTOBUF_TREE_FACTOR * self.bytes.len(),
        }
    }

    /// As [`Self::charge_write`], for a configuration: YAML, which clients mostly send as JSON.
    pub(crate) fn charge_configuration(&mut self) -> Result<(), Status> {
        self.charge_write(match self.bytes.trim_ascii_start().first() {
            Some(b'{') => RequestBodySerialization::Json,
            _ => RequestBodySerialization::Yaml,
        })
    }

    /// Charges and copies more of the body.
    fn extend(&mut self, data: &[u8]) -> Result<(), Status> {
        if self.bytes.capacity() - self.bytes.len() < data.len() {
            let room = data.len().next_multiple_of(READ_BYTES);
            self.charge.add(room)?;
            self.bytes.reserve_exact(room);
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }

    /// The bytes, and the charge for as long as they and what they are decoded to are used.
    pub(crate) fn into_parts(self) -> (Bytes, MemoryCharge) {
        (self.bytes.into(), self.charge)
    }
}

/// Reads a body up to [`MAX_REQUEST_BODY_BYTES`]. Fails with 413 beyond it, and with 429 if
/// other bodies of the same holder take its share of the memory.
pub(crate) async fn read_body<B>(
    mut body: B,
    mut charge: MemoryCharge,
) -> Result<ChargedRequestBody, Status>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Display,
{
    // A request that waits for its body takes memory, too.
    charge.add(WAITING_BYTES)?;
    let expected = body.size_hint().lower();
    let mut read = ChargedRequestBody::empty(charge);
    let mut length = 0;
    let mut failure = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| Status::bad_request(format!("cannot read the body: {e}")))?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        length += data.len();
        if failure.is_none()
            && expected <= MAX_REQUEST_BODY_BYTES as u64
            && length <= MAX_REQUEST_BODY_BYTES
        {
            failure = read.extend(data).err();
        } else if length > MAX_DISCARDED_BYTES {
            break;
        }
    }
    if length > MAX_REQUEST_BODY_BYTES {
        return Err(Status::request_entity_too_large(format!(
            "limit is {MAX_REQUEST_BODY_BYTES}"
        )));
    }
    failure.map_or(Ok(read), Err)
}

/// A decoded body and the paths of its duplicate keys, such as `spec.a[0].b`.
pub struct DecodedBody {
    pub value: Value,
    pub duplicate_keys: Vec<String>,
}

/// The characters of a malformed body that its error shows.
const MAX_BODY_SUMMARY: usize = 30;

/// Decodes a body that holds an object of the kind. Fails with 400 when it is malformed or
/// not an object, with the beginning of the body. `names_kind`: a body without a kind is
/// malformed, as for custom resources.
pub fn decode_object_of_kind(
    bytes: &[u8],
    body_type: RequestBodySerialization,
    kind: &str,
    names_kind: bool,
) -> Result<DecodedBody, Status> {
    let decoded = match bytes.trim_ascii() {
        b"null" if names_kind => Err("Object 'Kind' is missing in 'null'".to_owned()),
        _ => decode_object(bytes, body_type),
    };
    let decoded = decoded.and_then(|decoded| {
        check_type_meta(&decoded.value)?;
        if names_kind && decoded.value["kind"].as_str().is_none_or(str::is_empty) {
            let text = match body_type {
                RequestBodySerialization::Json => {
                    let truncated = &bytes[..bytes.len().min(MAX_MESSAGE_BYTES)];
                    String::from_utf8_lossy(truncated).into_owned()
                }
                _ => rendered(&decoded.value, MAX_MESSAGE_BYTES),
            };
            return Err(format!("Object 'Kind' is missing in '{text}'"));
        }
        Ok(decoded)
    });
    decoded.map_err(|message| {
        let summary = body_summary(bytes);
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {message} ({summary})"
        ))
    })
}

/// Checks that version and kind, if any, are strings and the version is one.
fn check_type_meta(value: &Value) -> Result<(), String> {
    for field in ["apiVersion", "kind"] {
        let field_value = &value[field];
        if !field_value.is_null() && !field_value.is_string() {
            return Err(format!(
                "{UNRECOGNIZED}: json: cannot unmarshal {} into Go struct field .{field} of type string",
                value_type_name(field_value)
            ));
        }
    }
    match value["apiVersion"].as_str() {
        Some(version) if version.matches('/').count() > 1 => {
            let version = truncated(version, MAX_QUOTED_BYTES);
            Err(format!("unexpected GroupVersion string: {version}"))
        }
        _ => Ok(()),
    }
}

/// The beginning of a body: text if it begins like JSON, else hexadecimal.
fn body_summary(bytes: &[u8]) -> String {
    let truncated = &bytes[..bytes.len().min(MAX_BODY_SUMMARY)];
    let ellipsis = if truncated.len() < bytes.len() {
        " ..."
    } else {
        ""
    };
    match bytes.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{ellipsis}", String::from_utf8_lossy(truncated)),
        Some(_) => {
            let hex: String = truncated.iter().map(|b| format!("{b:02x}")).collect();
            format!("{hex}{ellipsis}")
        }
    }
}

const UNRECOGNIZED: &str = "couldn't get version/kind; json parse error";

/// Decodes a body that holds an object; the error is Kubernetes' text.
pub(crate) fn decode_object(
    bytes: &[u8],
    body_type: RequestBodySerialization,
) -> Result<DecodedBody, String> {
    let decoded = match body_type {
        RequestBodySerialization::Json => {
            decode_json(bytes).map_err(|message| format!("{UNRECOGNIZED}: {message}"))?
        }
        RequestBodySerialization::Yaml => DecodedBody {
            value: decode_yaml(bytes)?,
            duplicate_keys: Vec::new(),
        },
        RequestBodySerialization::Protobuf => DecodedBody {
            value: decode_protobuf(bytes)?,
            duplicate_keys: Vec::new(),
        },
    };
    if decoded.value.is_object() {
        return Ok(decoded);
    }
    Err(format!(
        "{UNRECOGNIZED}: json: cannot unmarshal {} into Go value of type struct {{ APIVersion \
         string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
        value_type_name(&decoded.value)
    ))
}

/// A decoded configuration, and what strict decoding says about its duplicate keys.
pub(crate) struct DecodedConfiguration {
    pub(crate) value: Value,
    pub(crate) strict_errors: Vec<String>,
}

/// Decodes a configuration to apply: YAML, which clients mostly send as JSON. The last of
/// duplicate keys wins.
pub(crate) fn decode_configuration(bytes: &[u8]) -> Result<DecodedConfiguration, Status> {
    let mut decoded = decode_configuration_text(bytes)?;
    go_numbers::normalize_applied(&mut decoded.value);
    Ok(decoded)
}

fn decode_configuration_text(bytes: &[u8]) -> Result<DecodedConfiguration, Status> {
    if bytes.trim_ascii_start().starts_with(b"{")
        && let Ok(decoded) = decode_json(bytes)
    {
        let duplicates = decoded.duplicate_keys.iter();
        return Ok(DecodedConfiguration {
            value: decoded.value,
            strict_errors: duplicates
                .map(|path| format!("duplicate field {path:?}"))
                .collect(),
        });
    }
    let malformed =
        |message: &dyn Display| Status::bad_request(format!("error decoding YAML: {message}"));
    let text = std::str::from_utf8(bytes).map_err(|_| malformed(&"yaml: invalid UTF-8"))?;
    // Few texts have duplicate keys, and are read again.
    let (read, strict_error) = match yaml::from_str(text) {
        Ok(value) => (Ok(value), None),
        Err(error) => (yaml::from_str_with_duplicate_keys(text), Some(error)),
    };
    let value = read.map_err(|e| malformed(&conversion_error(&e)))?;
    if !value.is_object() {
        return Err(malformed(&format!(
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            value_type_name(&value)
        )));
    }
    Ok(DecodedConfiguration {
        value,
        strict_errors: strict_error.iter().map(conversion_error).collect(),
    })
}

/// A decoded patch, and what strict decoding says about it.
pub struct DecodedPatch {
    pub value: Value,
    pub strict_errors: Vec<String>,
}

impl DecodedPatch {
    fn new(decoded: DecodedBody, operations: bool) -> Self {
        let mut strict_errors: Vec<String> = Vec::new();
        let prefix = if operations { "json patch " } else { "" };
        for path in &decoded.duplicate_keys {
            strict_errors.push(format!("{prefix}duplicate field {path:?}"));
        }
        if operations {
            let unknown = unknown_operation_fields(&decoded.value);
            strict_errors.extend(unknown.map(|path| format!("{prefix}unknown field {path:?}")));
        }
        Self {
            value: decoded.value,
            strict_errors,
        }
    }
}

/// The paths of fields that operations of a JSON patch do not have.
fn unknown_operation_fields(patch: &Value) -> impl Iterator<Item = String> {
    let operations = patch.as_array().into_iter().flatten().enumerate();
    let fields = operations.flat_map(|(i, operation)| {
        let names = operation.as_object().into_iter().flatten();
        names.map(move |(name, _)| (i, name))
    });
    fields
        .filter(|(_, name)| !matches!(name.as_str(), "op" | "path" | "from" | "value"))
        .map(|(i, name)| child_path(&format!("[{i}]"), name))
        .take(MAX_REPORTED_DUPLICATES)
}

/// Decodes the body of a patch, which is a list of operations or an object. Fails with 400.
pub fn decode_patch(bytes: &[u8], content_type: &str) -> Result<DecodedPatch, Status> {
    let operations = content_type == JSON_PATCH;
    let target = if operations {
        "[]handlers.jsonPatchOp"
    } else {
        "map[string]interface {}"
    };
    let message = match decode_json(bytes) {
        Ok(decoded) if decoded.value.is_array() && operations => {
            let items = decoded.value.as_array().into_iter().flatten();
            match items
                .into_iter()
                .find(|item| !item.is_object() && !item.is_null())
            {
                None => return Ok(DecodedPatch::new(decoded, true)),
                Some(other) => format!(
                    "json: cannot unmarshal {} into Go value of type handlers.jsonPatchOp",
                    value_type_name(other)
                ),
            }
        }
        Ok(decoded) if decoded.value.is_object() && !operations => {
            return Ok(DecodedPatch::new(decoded, false));
        }
        Ok(decoded) if decoded.value.is_null() && content_type == MERGE_PATCH => {
            return Err(Status::bad_request("Invalid JSON Patch"));
        }
        Ok(decoded) => format!(
            "json: cannot unmarshal {} into Go value of type {target}",
            value_type_name(&decoded.value)
        ),
        Err(message) => message,
    };
    let prefix = match content_type {
        STRATEGIC_PATCH => "",
        _ => "error decoding patch: ",
    };
    Err(Status::bad_request(format!("{prefix}{message}")))
}

pub(crate) fn decode_protobuf(bytes: &[u8]) -> Result<Value, String> {
    let (gvk, mut value) = openapi::protobuf::decode(bytes)?;
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

/// Decodes JSON. The last of duplicate keys wins; all of them are reported.
pub(crate) fn decode_json(bytes: &[u8]) -> Result<DecodedBody, String> {
    let decoded = decode_strict_json(bytes);
    if decoded.is_err()
        && let Some(replaced) = replace_lone_surrogates(bytes)
    {
        return decode_strict_json(&replaced);
    }
    decoded
}

/// As [`decode_json`]; lone surrogates are errors.
fn decode_strict_json(bytes: &[u8]) -> Result<DecodedBody, String> {
    let tracker = DuplicateKeyTracker::default();
    let mut deserializer = json::deserializer(bytes).map_err(|e| e.to_string())?;
    let value = JsonValueSeed { tracker: &tracker }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|e| e.to_string())?;
    Ok(DecodedBody {
        value,
        duplicate_keys: tracker.duplicates.into_inner(),
    })
}

/// The bounded path of the value being decoded, and the duplicate keys found so far.
#[derive(Default)]
struct DuplicateKeyTracker {
    path: RefCell<String>,
    duplicates: RefCell<Vec<String>>,
}

impl DuplicateKeyTracker {
    /// Runs `inside` with the path extended by `step`.
    fn with_path_step<T>(&self, step: impl FnOnce(&mut String), visit: impl FnOnce() -> T) -> T {
        let before = self.path.borrow().len();
        step(&mut self.path.borrow_mut());
        let result = visit();
        self.path.borrow_mut().truncate(before);
        result
    }

    fn record_duplicate(&self) {
        let mut all = self.duplicates.borrow_mut();
        let path = self.path.borrow();
        if all.len() < MAX_REPORTED_DUPLICATES && !all.contains(&path) {
            all.push(path.clone());
        }
    }
}

#[derive(Clone, Copy)]
struct JsonValueSeed<'f> {
    tracker: &'f DuplicateKeyTracker,
}

impl<'de> DeserializeSeed<'de> for JsonValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(ValueVisitor(self))
    }
}

impl<'de> CompoundReader<'de> for JsonValueSeed<'_> {
    const EXPECTED: &'static str = "any JSON value";

    fn read_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let step = |path: &mut String| push_path_step(path, "", &format!("[{}]", items.len()));
            match self
                .tracker
                .with_path_step(step, || seq.next_element_seed(self))?
            {
                Some(item) => items.push(item),
                None => {
                    // A list grows by doubling, and of one item it has room for four.
                    items.shrink_to_fit();
                    return Ok(Value::Array(items));
                }
            }
        }
    }

    fn read_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let step = |path: &mut String| {
                let separator = if path.is_empty() { "" } else { "." };
                push_path_step(path, separator, &key);
            };
            let value = self.tracker.with_path_step(step, || {
                if map.contains_key(&key) {
                    self.tracker.record_duplicate();
                }
                access.next_value_seed(self)
            });
            map.insert(key, value?);
        }
        Ok(Value::Object(map))
    }

    fn non_finite<E: serde::de::Error>() -> Result<Value, E> {
        Err(E::custom("number out of range"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn duplicate_keys_are_reported_by_path() {
        let text = br#"{"a":1,"spec":{"x":1,"x":2,"l":[{},{"y":1,"y":1}]},"a":3}"#;
        let decoded = decode_json(text).unwrap();
        assert_eq!(decoded.duplicate_keys, ["spec.x", "spec.l[1].y", "a"]);
        assert_eq!(
            (&decoded.value["a"], &decoded.value["spec"]["x"]),
            (&3.into(), &2.into())
        );
    }

    #[test]
    fn malformed_bodies_are_rejected() {
        let deep_json = "[".repeat(5000);
        for malformed in ["", "{", "{}x", "[1]", "\"a\"", "nul", deep_json.as_str()] {
            let decoded = decode_object(malformed.as_bytes(), RequestBodySerialization::Json);
            assert!(decoded.is_err(), "{malformed:.20}");
        }
        assert!(decode_object(b"a: [", RequestBodySerialization::Yaml).is_err());
        assert!(decode_object(b"xx", RequestBodySerialization::Protobuf).is_err());
    }

    #[test]
    fn yaml_is_decoded() {
        let body = b"kind: X\nspec:\n  a: 3\n  n: 4\n  0x10: 0644\n";
        let decoded = decode_object(body, RequestBodySerialization::Yaml).unwrap();
        let expected = serde_json::json!({"a": 3, "false": 4, "16": 420});
        assert_eq!(decoded.value["spec"], expected);
    }

    proptest! {
        #[test]
        fn decodes_the_same_as_serde_json(text in "[\\[\\]{}:,\"a0.e ]{0,24}") {
            let expected = json::from_str::<Value>(&text).ok();
            prop_assert_eq!(decode_json(text.as_bytes()).ok().map(|d| d.value), expected);
        }
    }
}

//! An object at one revision: its encoded JSON, its parsed [`ObjectMeta`], and typed views
//! that are decoded on demand and cached.
//!
//! The JSON comes from the store or from a server and is canonical. An object keeps no
//! parsed JSON tree, which would take ten times the memory.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::decode_cache::{self, DecodeSlot};
use crate::label_keys;

/// The error for bytes that are not an object.
#[derive(Debug, thiserror::Error)]
pub enum MalformedObject {
    /// Not JSON, or a field of `metadata` has the wrong type.
    #[error("not a Kubernetes object: {0}")]
    Json(#[from] serde_json::Error),
    /// JSON without the `metadata` that every stored object has.
    #[error("not a Kubernetes object: no metadata")]
    NoMetadata,
}

/// One entry of `metadata.ownerReferences`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference {
    #[serde(default)]
    pub api_version: Box<str>,
    #[serde(default)]
    pub kind: Box<str>,
    #[serde(default)]
    pub name: Box<str>,
    #[serde(default)]
    pub uid: Box<str>,
    #[serde(default)]
    pub controller: bool,
    #[serde(default)]
    pub block_owner_deletion: bool,
}

/// Key and value of a label; equal keys share memory across objects.
pub type Label = (Arc<str>, Box<str>);

/// The fields of `metadata` that are parsed for every object.
#[derive(Clone, Debug, Default)]
pub struct ObjectMeta {
    /// Empty for cluster-scoped objects.
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
    /// Sorted by key.
    pub labels: Box<[Label]>,
    /// `metadata.resourceVersion`; 0 when absent or not decimal.
    pub revision: u64,
    pub generation: i64,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    pub owner_references: Box<[OwnerReference]>,
}

impl ObjectMeta {
    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        Some(&self.labels[at].1)
    }

    /// `namespace/name`, or `name` for a cluster-scoped object (`MetaNamespaceKeyFunc`).
    pub fn key(&self) -> String {
        if self.namespace.is_empty() {
            self.name.to_string()
        } else {
            format!("{}/{}", self.namespace, self.name)
        }
    }

    /// The owner that is the controller of this object, if any (`GetControllerOf`).
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|o| o.controller)
    }
}

struct ObjectInner {
    meta: ObjectMeta,
    bytes: Bytes,
    decoded: DecodeSlot,
}

impl decode_cache::DecodeSlotOwner for ObjectInner {
    fn slot(&self) -> &DecodeSlot {
        &self.decoded
    }
}

/// An immutable object at one revision. Clones share its memory.
#[derive(Clone)]
pub struct Object(Arc<ObjectInner>);

impl Object {
    /// Creates an object from JSON with `resourceVersion`, as a server returns it.
    pub fn from_json(bytes: Bytes) -> Result<Self, MalformedObject> {
        let outer: ObjectRawMetadataJson<'_> = serde_json::from_slice(&bytes)?;
        let head = match outer.metadata {
            Some(raw) => parse_meta(raw.get())?,
            None => ObjectMeta::default(),
        };
        Ok(Self::assemble(head, bytes))
    }

    /// As [`Self::from_json`], without `metadata.managedFields`: in a cache of many objects
    /// they often take more memory than all other fields, and nothing reads them.
    pub fn from_json_trimmed(bytes: Bytes) -> Result<Self, MalformedObject> {
        let outer: ObjectRawMetadataJson<'_> = serde_json::from_slice(&bytes)?;
        let Some(raw) = outer.metadata else {
            return Ok(Self::assemble(ObjectMeta::default(), bytes));
        };
        let metadata: DeserializedObjectMeta<'_> = serde_json::from_str(raw.get())?;
        let Some(managed_fields) = metadata.managed_fields.map(RawValue::get) else {
            let head = metadata.into_meta();
            return Ok(Self::assemble(head, bytes));
        };
        // The value borrows from `bytes`, so its address gives its offset.
        let from = managed_fields.as_ptr() as usize - bytes.as_ptr() as usize;
        let (before, after) = cut_field(&bytes[..from], &bytes[from + managed_fields.len()..]);
        let mut rest = BytesMut::with_capacity(before.len() + after.len());
        rest.extend_from_slice(before);
        rest.extend_from_slice(after);
        let head = metadata.into_meta();
        Ok(Self::assemble(head, rest.freeze()))
    }

    /// Creates an object from stored JSON, which has no `resourceVersion`. The revision
    /// at which the key was last written is inserted as its `resourceVersion`.
    pub fn from_stored(stored: &[u8], revision: u64) -> Result<Self, MalformedObject> {
        let outer: ObjectRawMetadataJson<'_> = serde_json::from_slice(stored)?;
        let metadata = outer.metadata.ok_or(MalformedObject::NoMetadata)?.get();
        let mut head = parse_meta(metadata)?;
        head.revision = revision;
        // `metadata` borrows from `stored`, so its address gives its offset.
        let open = metadata.as_ptr() as usize - stored.as_ptr() as usize + 1;
        let empty = metadata[1..].trim_start().starts_with('}');
        let field = format!(
            "\"resourceVersion\":\"{revision}\"{}",
            if empty { "" } else { "," }
        );
        let mut bytes = BytesMut::with_capacity(stored.len() + field.len());
        bytes.extend_from_slice(&stored[..open]);
        bytes.extend_from_slice(field.as_bytes());
        bytes.extend_from_slice(&stored[open..]);
        Ok(Self::assemble(head, bytes.freeze()))
    }

    /// Creates an object from a JSON tree.
    pub fn from_value(value: &Value) -> Result<Self, MalformedObject> {
        Self::from_json(Bytes::from(serde_json::to_vec(value)?))
    }

    /// Returns the same content with another revision: a deletion event carries the last
    /// content with the revision of the deletion.
    pub fn with_revision(&self, revision: u64) -> Result<Self, MalformedObject> {
        let bytes = self.bytes();
        let outer: ObjectRawMetadataJson<'_> = serde_json::from_slice(bytes)?;
        let metadata = outer.metadata.ok_or(MalformedObject::NoMetadata)?.get();
        let open = metadata.as_ptr() as usize - bytes.as_ptr() as usize + 1;
        let old = format!("\"resourceVersion\":\"{}\"", self.revision());
        if !bytes[open..].starts_with(old.as_bytes()) {
            // Not inserted by `from_stored`: the field may be anywhere.
            let mut value = self.value()?;
            value["metadata"]["resourceVersion"] = revision.to_string().into();
            return Self::from_value(&value);
        }
        let field = format!("\"resourceVersion\":\"{revision}\"");
        let mut moved = BytesMut::with_capacity(bytes.len() + field.len() - old.len());
        moved.extend_from_slice(&bytes[..open]);
        moved.extend_from_slice(field.as_bytes());
        moved.extend_from_slice(&bytes[open + old.len()..]);
        let mut head = self.meta().clone();
        head.revision = revision;
        Ok(Self::assemble(head, moved.freeze()))
    }

    fn assemble(head: ObjectMeta, bytes: Bytes) -> Self {
        Self(Arc::new(ObjectInner {
            meta: head,
            bytes,
            decoded: DecodeSlot::default(),
        }))
    }

    pub fn meta(&self) -> &ObjectMeta {
        &self.0.meta
    }

    /// The encoded JSON, with `resourceVersion`.
    pub fn bytes(&self) -> &Bytes {
        &self.0.bytes
    }

    pub fn namespace(&self) -> &str {
        &self.0.meta.namespace
    }

    pub fn name(&self) -> &str {
        &self.0.meta.name
    }

    pub fn uid(&self) -> &str {
        &self.0.meta.uid
    }

    pub fn revision(&self) -> u64 {
        self.0.meta.revision
    }

    /// Parses a new JSON tree, to be kept only for one write or one interpretation.
    pub fn value(&self) -> Result<Value, MalformedObject> {
        Ok(serde_json::from_slice(&self.0.bytes)?)
    }

    /// Decodes the object into a typed view. The view of the first requested type is
    /// cached and shared by all clones of this object until the cache evicts it; views of
    /// other types are decoded on each call.
    pub fn decode<T: DeserializeOwned + Send + Sync + 'static>(
        &self,
    ) -> Result<Arc<T>, MalformedObject> {
        let cached = self.0.decoded.get();
        if let Some(view) = cached.and_then(|value| value.downcast::<T>().ok()) {
            return Ok(view);
        }
        let parsed: Arc<T> = Arc::new(serde_json::from_slice(&self.0.bytes)?);
        let view = Arc::clone(&parsed) as Arc<dyn Any + Send + Sync>;
        if self.0.decoded.fill(view) {
            let holder: Arc<dyn decode_cache::DecodeSlotOwner> = Arc::clone(&self.0) as _;
            decode_cache::DECODE_CACHE.insert(&holder);
        }
        Ok(parsed)
    }

    /// Whether both share one allocation; equal objects may not.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({}@{})", self.meta().key(), self.revision())
    }
}

#[derive(Deserialize)]
struct ObjectRawMetadataJson<'a> {
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeserializedObjectMeta<'a> {
    namespace: Option<Box<str>>,
    name: Option<Box<str>>,
    uid: Option<Box<str>>,
    labels: Option<BTreeMap<Box<str>, Box<str>>>,
    resource_version: Option<Box<str>>,
    generation: Option<i64>,
    deletion_timestamp: Option<Box<str>>,
    owner_references: Option<Box<[OwnerReference]>>,
    #[serde(borrow)]
    managed_fields: Option<&'a RawValue>,
}

impl DeserializedObjectMeta<'_> {
    fn into_meta(self) -> ObjectMeta {
        let labels = self.labels.unwrap_or_default().into_iter();
        ObjectMeta {
            namespace: self.namespace.unwrap_or_default(),
            name: self.name.unwrap_or_default(),
            uid: self.uid.unwrap_or_default(),
            labels: labels
                .map(|(k, v)| (label_keys::intern_label_key(k), v))
                .collect(),
            revision: self
                .resource_version
                .and_then(|v| v.parse().ok())
                .unwrap_or(0),
            generation: self.generation.unwrap_or(0),
            deleting: self.deletion_timestamp.is_some(),
            owner_references: self.owner_references.unwrap_or_default(),
        }
    }
}

fn parse_meta(metadata: &str) -> Result<ObjectMeta, MalformedObject> {
    Ok(serde_json::from_str::<DeserializedObjectMeta<'_>>(metadata)?.into_meta())
}

/// Returns the text before and after a field, given the text on both sides of its value:
/// removes its key and one comma.
fn cut_field<'a>(before: &'a [u8], after: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    let quote = |text: &[u8]| text.iter().rposition(|b| *b == b'"');
    let key = quote(before).and_then(|end| quote(&before[..end]));
    let before = before[..key.unwrap_or(0)].trim_ascii_end();
    if let [b',', rest @ ..] = after.trim_ascii_start() {
        return (before, rest);
    }
    (before.strip_suffix(b",").unwrap_or(before), after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(text: &str, revision: u64) -> Object {
        Object::from_stored(text.as_bytes(), revision).unwrap()
    }

    #[test]
    fn the_revision_is_spliced_into_the_metadata() {
        let o = stored(
            r#"{"kind":"X","metadata": {"name":"a","labels":{"b":"1","a":"2"}},"spec":{}}"#,
            7,
        );
        assert_eq!(o.value().unwrap()["metadata"]["resourceVersion"], "7");
        assert_eq!(
            (
                o.name(),
                o.revision(),
                o.meta().label("b"),
                o.meta().label("c")
            ),
            ("a", 7, Some("1"), None)
        );
        let empty = stored(r#"{"metadata":{ }}"#, 9);
        assert_eq!(empty.value().unwrap()["metadata"]["resourceVersion"], "9");
    }

    #[test]
    fn the_revision_is_replaced() {
        let objects = [
            stored(r#"{"kind":"X","metadata":{"name":"a"},"spec":{}}"#, 7),
            Object::from_json(Bytes::from_static(
                br#"{"kind":"X","metadata":{"name":"a","resourceVersion":"7"},"spec":{}}"#,
            ))
            .unwrap(),
        ];
        for object in objects {
            let moved = object.with_revision(12).unwrap();
            let mut expected = object.value().unwrap();
            expected["metadata"]["resourceVersion"] = "12".into();
            assert_eq!(moved.value().unwrap(), expected);
            assert_eq!((moved.revision(), moved.name()), (12, "a"));
        }
    }

    #[test]
    fn managed_fields_are_cut_out() {
        for (full, trimmed_json) in [
            (
                r#"{"kind":"X","metadata":{"name":"a","managedFields":[{"f":"}"}]},"spec":{"managedFields":1}}"#,
                r#"{"kind":"X","metadata":{"name":"a"},"spec":{"managedFields":1}}"#,
            ),
            (
                r#"{"metadata": { "managedFields" : [ ] , "name":"a" }}"#,
                r#"{"metadata": { "name":"a" }}"#,
            ),
            (r#"{"metadata":{"managedFields":[]}}"#, r#"{"metadata":{}}"#),
            (
                r#"{"metadata":{"name":"a","managedFields":[],"uid":"u"}}"#,
                r#"{"metadata":{"name":"a","uid":"u"}}"#,
            ),
            (
                r#"{"metadata":{"name":"a"}}"#,
                r#"{"metadata":{"name":"a"}}"#,
            ),
            (r#"{"spec":{}}"#, r#"{"spec":{}}"#),
        ] {
            let bytes = Bytes::copy_from_slice(full.as_bytes());
            let trimmed = Object::from_json_trimmed(bytes.clone()).unwrap();
            let expected: Value = serde_json::from_str(trimmed_json).unwrap();
            assert_eq!(trimmed.value().unwrap(), expected);
            assert_eq!(trimmed.name(), Object::from_json(bytes).unwrap().name());
        }
    }

    #[test]
    fn malformed_objects_are_rejected() {
        assert!(Object::from_stored(b"[]", 1).is_err());
        assert!(Object::from_stored(b"{}", 1).is_err());
        assert!(Object::from_stored(br#"{"metadata":{"name":3}}"#, 1).is_err());
    }

    #[test]
    fn a_view_is_decoded_once() {
        #[derive(Deserialize)]
        struct TestObjectWithSpec {
            spec: BTreeMap<String, i64>,
        }
        let o = stored(r#"{"metadata":{"name":"a"},"spec":{"x":1}}"#, 1);
        let first = o.decode::<TestObjectWithSpec>().unwrap();
        assert_eq!(first.spec["x"], 1);
        assert!(Arc::ptr_eq(
            &first,
            &o.decode::<TestObjectWithSpec>().unwrap()
        ));
        assert_eq!(o.decode::<Value>().unwrap()["spec"]["x"], 1);
    }
}

//! An object at one revision: its encoded JSON, its parsed [`ObjectMeta`], and typed views
//! that are decoded on demand and cached. A stored object keeps its `managedFields` apart.
//!
//! The JSON comes from the store or from a server and is canonical. An object keeps no
//! parsed JSON tree, which would take ten times the memory.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::decode_cache::{self, DecodeSlot};
use crate::field_text::{cut_field, move_position, offset_in, position_in};
use crate::managed_fields_text::{has_fields, splice, spliced_len};
pub use crate::object_meta::{Label, ObjectMeta, OwnerReference};
use crate::shared_bytes::ObjectBytes;

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

struct ObjectInner {
    meta: ObjectMeta,
    bytes: ObjectBytes,
    /// Where the value of `metadata.annotations` lies in the bytes; empty if there is none.
    annotations: Range<usize>,
    /// Where `resourceVersion` was inserted into the bytes; 0 if the field may be anywhere.
    resource_version: usize,
    managed_fields: Option<Box<ManagedFieldsPosition>>,
    decoded: DecodeSlot,
}

/// The managers of an object, and where its metadata begins in its bytes.
#[derive(Clone)]
struct ManagedFieldsPosition {
    text: Arc<str>,
    metadata_start: usize,
    /// Whether the metadata has other fields.
    has_fields: bool,
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
        crate::json::check_depth(&bytes)?;
        let outer: ObjectRawMetadataJson<'_> = crate::json::from_slice(&bytes)?;
        let (head, annotations) = match outer.metadata {
            Some(raw) => {
                let metadata: DeserializedObjectMeta<'_> = crate::json::from_str(raw.get())?;
                let annotations = position_in(&bytes, metadata.annotations);
                (metadata.into_meta(), annotations)
            }
            None => (ObjectMeta::default(), 0..0),
        };
        Ok(Self::assemble(head, annotations, bytes))
    }

    /// Copies an object out of a larger text, without `metadata.managedFields`: in a cache of
    /// many objects they often take more memory than all other fields, and nothing reads them.
    pub fn from_json_trimmed(text: &[u8]) -> Result<Self, MalformedObject> {
        crate::json::check_depth(text)?;
        let outer: ObjectRawMetadataJson<'_> = crate::json::from_slice(text)?;
        let Some(raw) = outer.metadata else {
            let bytes = Bytes::copy_from_slice(text);
            return Ok(Self::assemble(ObjectMeta::default(), 0..0, bytes));
        };
        let metadata: DeserializedObjectMeta<'_> = crate::json::from_str(raw.get())?;
        let (before, after) = match metadata.managed_fields.map(RawValue::get) {
            Some(managed_fields) => cut_field(text, managed_fields),
            None => (text, &text[text.len()..]),
        };
        let bytes = Bytes::from([before, after].concat());
        let position = position_in(text, metadata.annotations);
        let annotations = move_position(position, text.len(), before.len(), 0, bytes.len());
        Ok(Self::assemble(metadata.into_meta(), annotations, bytes))
    }

    /// Creates an object from stored JSON, which has no `resourceVersion`. The revision
    /// at which the key was last written is inserted as its `resourceVersion`, and
    /// `metadata.managedFields` are taken out of its bytes.
    pub fn from_stored(stored: &[u8], revision: u64) -> Result<Self, MalformedObject> {
        let outer: ObjectRawMetadataJson<'_> = crate::json::from_slice(stored)?;
        let raw = outer.metadata.ok_or(MalformedObject::NoMetadata)?.get();
        let metadata: DeserializedObjectMeta<'_> = crate::json::from_str(raw)?;
        let open = offset_in(stored, raw) + 1;
        let managed_fields = metadata.managed_fields.map(RawValue::get);
        let (before, after) = match managed_fields {
            Some(text) => cut_field(stored, text),
            None => stored.split_at(open),
        };
        let fields_before = &before[open..];
        let is_empty =
            fields_before.trim_ascii().is_empty() && after.trim_ascii_start().starts_with(b"}");
        let comma = if is_empty { "" } else { "," };
        let field = format!("\"resourceVersion\":\"{revision}\"{comma}");
        let mut bytes = BytesMut::with_capacity(before.len() + field.len() + after.len());
        bytes.extend_from_slice(&before[..open]);
        bytes.extend_from_slice(field.as_bytes());
        bytes.extend_from_slice(fields_before);
        bytes.extend_from_slice(after);
        let managed_fields = managed_fields.map(|text| {
            Box::new(ManagedFieldsPosition {
                text: text.into(),
                metadata_start: open,
                // The resource version.
                has_fields: true,
            })
        });
        let position = position_in(stored, metadata.annotations);
        let annotations = move_position(
            position,
            stored.len(),
            before.len(),
            field.len(),
            bytes.len(),
        );
        let mut head = metadata.into_meta();
        head.revision = revision;
        let object = Self::assemble(head, annotations, bytes.freeze());
        Ok(object.with_inner(|inner| {
            (inner.resource_version, inner.managed_fields) = (open, managed_fields);
        }))
    }

    /// Creates an object from a JSON tree.
    pub fn from_value(value: &Value) -> Result<Self, MalformedObject> {
        Self::from_json(Bytes::from(serde_json::to_vec(value)?))
    }

    /// Returns the same content with another revision: a deletion event carries the last
    /// content with the revision of the deletion.
    pub fn with_revision(&self, revision: u64) -> Result<Self, MalformedObject> {
        let mut head = self.meta().clone();
        head.revision = revision;
        self.replace_resource_version(head, &revision.to_string())
    }

    /// Returns the same content and revision with another text as `resourceVersion`, such as
    /// one that stands for the revisions of several servers.
    pub fn with_resource_version(&self, text: &str) -> Result<Self, MalformedObject> {
        self.replace_resource_version(self.meta().clone(), text)
    }

    fn replace_resource_version(
        &self,
        head: ObjectMeta,
        text: &str,
    ) -> Result<Self, MalformedObject> {
        let bytes = self.bytes();
        let open = match self.0.resource_version {
            0 => metadata_start(&bytes)?,
            position => position,
        };
        let old = format!("\"resourceVersion\":\"{}\"", self.revision());
        if !bytes[open..].starts_with(old.as_bytes()) {
            // Not inserted by `from_stored`: the field may be anywhere.
            let mut value = self.value()?;
            value["metadata"]["resourceVersion"] = text.into();
            let replaced = Self::from_value(&value)?;
            let annotations = replaced.0.annotations.clone();
            return Ok(Self::assemble(head, annotations, replaced.bytes()));
        }
        let field = format!("\"resourceVersion\":{}", serde_json::to_string(text)?);
        let mut replaced = BytesMut::with_capacity(bytes.len() + field.len());
        replaced.extend_from_slice(&bytes[..open]);
        replaced.extend_from_slice(field.as_bytes());
        replaced.extend_from_slice(&bytes[open + old.len()..]);
        let position = self.0.annotations.clone();
        let annotations = move_position(position, bytes.len(), open, 0, replaced.len());
        let object = Self::assemble(head, annotations, replaced.freeze());
        let managed_fields = self.0.managed_fields.clone();
        Ok(object.with_inner(|inner| {
            (inner.resource_version, inner.managed_fields) = (open, managed_fields);
        }))
    }

    /// Returns the object with the managers of another one: of the same object in another
    /// version.
    pub fn with_managed_fields_of(self, other: &Self) -> Result<Self, MalformedObject> {
        self.with_managed_fields(other.managed_fields_json())
    }

    /// Returns the object with the text of `metadata.managedFields`.
    pub fn with_managed_fields(self, text: Option<&str>) -> Result<Self, MalformedObject> {
        let Some(text) = text else {
            return Ok(self);
        };
        let bytes = self.bytes();
        let metadata_start = metadata_start(&bytes)?;
        let managed_fields = ManagedFieldsPosition {
            text: text.into(),
            metadata_start,
            has_fields: has_fields(&bytes[metadata_start..]),
        };
        Ok(self.with_inner(|inner| inner.managed_fields = Some(Box::new(managed_fields))))
    }

    /// Returns the same object with its bytes and its labels, which are equal, in another place.
    pub(crate) fn with_shared(self, bytes: ObjectBytes, labels: Arc<[Label]>) -> Self {
        self.with_inner(|inner| (inner.bytes, inner.meta.labels) = (bytes, labels))
    }

    /// Changes the object in place, unless others share it.
    fn with_inner(mut self, change: impl FnOnce(&mut ObjectInner)) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            change(inner);
            return self;
        }
        let mut inner = ObjectInner {
            meta: self.0.meta.clone(),
            bytes: self.0.bytes.clone(),
            annotations: self.0.annotations.clone(),
            resource_version: self.0.resource_version,
            managed_fields: self.0.managed_fields.clone(),
            decoded: DecodeSlot::default(),
        };
        change(&mut inner);
        Self(Arc::new(inner))
    }

    pub(crate) fn encoded(&self) -> &ObjectBytes {
        &self.0.bytes
    }

    fn assemble(head: ObjectMeta, annotations: Range<usize>, bytes: Bytes) -> Self {
        Self(Arc::new(ObjectInner {
            meta: head,
            bytes: ObjectBytes::Own(bytes),
            annotations,
            resource_version: 0,
            managed_fields: None,
            decoded: DecodeSlot::default(),
        }))
    }

    pub fn meta(&self) -> &ObjectMeta {
        &self.0.meta
    }

    /// The encoded JSON, with `resourceVersion`, without the `managedFields` of a stored
    /// object. Bytes that are a difference are put together at each call.
    pub fn bytes(&self) -> Bytes {
        self.0.bytes.get()
    }

    /// The length of [`Self::bytes`].
    pub fn encoded_len(&self) -> usize {
        self.0.bytes.len()
    }

    /// The encoded value of `metadata.annotations`; empty if there is none.
    pub(crate) fn annotations_json(&self) -> Bytes {
        self.bytes().slice(self.0.annotations.clone())
    }

    /// The encoded JSON with `managedFields`, as clients receive it.
    pub fn served_bytes(&self) -> Bytes {
        match &self.0.managed_fields {
            Some(managed) => splice(&self.bytes(), managed.metadata_start, &managed.text),
            None => self.bytes(),
        }
    }

    /// The length of [`Self::served_bytes`], which are not put together for it.
    pub fn served_len(&self) -> usize {
        let Some(managed) = &self.0.managed_fields else {
            return self.encoded_len();
        };
        spliced_len(self.encoded_len(), managed.has_fields, managed.text.len())
    }

    /// The text of the `metadata.managedFields` of a stored object.
    pub fn managed_fields_json(&self) -> Option<&str> {
        self.0.managed_fields.as_ref().map(|managed| &*managed.text)
    }

    /// The bytes that the encoded object takes in memory, without those that it shares.
    pub fn memory_bytes(&self) -> usize {
        self.0.bytes.memory_bytes() + self.managed_fields_json().map_or(0, str::len)
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

    pub fn owner_references(&self) -> &[OwnerReference] {
        &self.0.meta.owner_references
    }

    /// Parses a new JSON tree, to be kept only for one write or one interpretation.
    pub fn value(&self) -> Result<Value, MalformedObject> {
        Ok(crate::json::from_slice(&self.bytes())?)
    }

    /// Parses a new JSON tree that has the `managedFields`, as clients receive them.
    pub fn served_value(&self) -> Result<Value, MalformedObject> {
        Ok(crate::json::from_slice(&self.served_bytes())?)
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
        let parsed: Arc<T> = Arc::new(crate::json::from_slice(&self.bytes())?);
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

/// Where the fields of the metadata begin in an encoded object.
fn metadata_start(bytes: &[u8]) -> Result<usize, MalformedObject> {
    let outer: ObjectRawMetadataJson<'_> = crate::json::from_slice(bytes)?;
    let metadata = outer.metadata.ok_or(MalformedObject::NoMetadata)?.get();
    Ok(offset_in(bytes, metadata) + 1)
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
    annotations: Option<&'a RawValue>,
    #[serde(borrow)]
    managed_fields: Option<&'a RawValue>,
}

impl DeserializedObjectMeta<'_> {
    fn into_meta(self) -> ObjectMeta {
        ObjectMeta {
            namespace: self.namespace.unwrap_or_default(),
            name: self.name.unwrap_or_default(),
            uid: self.uid.unwrap_or_default(),
            labels: self.labels.unwrap_or_default().into_iter().collect(),
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
    fn an_object_of_another_server_has_a_bounded_depth() {
        for (depth, is_read) in [(1_000, true), (50_000, false)] {
            let nested = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            let text = format!(r#"{{"metadata":{{"name":"a"}},"spec":{nested}}}"#);
            assert_eq!(Object::from_json_trimmed(text.as_bytes()).is_ok(), is_read);
            assert_eq!(Object::from_json(text.into()).is_ok(), is_read);
        }
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
            let newer = object.with_revision(12).unwrap();
            let mut expected = object.value().unwrap();
            expected["metadata"]["resourceVersion"] = "12".into();
            assert_eq!(newer.value().unwrap(), expected);
            assert_eq!((newer.revision(), newer.name()), (12, "a"));
            let renamed = object.with_resource_version("e30\"").unwrap();
            expected["metadata"]["resourceVersion"] = "e30\"".into();
            assert_eq!(renamed.value().unwrap(), expected);
            assert_eq!((renamed.revision(), renamed.name()), (7, "a"));
        }
    }

    #[test]
    fn managed_fields_are_cut_out() {
        for (full_json, trimmed_json) in [
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
            let trimmed = Object::from_json_trimmed(full_json.as_bytes()).unwrap();
            let expected: Value = crate::json::from_str(trimmed_json).unwrap();
            assert_eq!(trimmed.value().unwrap(), expected);
            let full_object =
                Object::from_json(Bytes::copy_from_slice(full_json.as_bytes())).unwrap();
            assert_eq!(trimmed.name(), full_object.name());
        }
    }

    #[test]
    fn managed_fields_of_stored_objects_are_apart() {
        for text in [
            r#"{"kind":"X","metadata":{"managedFields":[{"f":"}"}],"name":"a"},"spec":{}}"#,
            r#"{"kind":"X","metadata":{"name":"a","managedFields":[{"f":"}"}]},"spec":{}}"#,
            r#"{"metadata":{"managedFields":[{"f":"}"}]}}"#,
        ] {
            let object = stored(text, 7);
            let mut expected: Value = crate::json::from_str(text).unwrap();
            expected["metadata"]["resourceVersion"] = "7".into();
            let served: Value = crate::json::from_slice(&object.served_bytes()).unwrap();
            assert_eq!(served, expected);
            assert_eq!(object.served_len(), object.served_bytes().len());
            let decoded_again = Object::from_value(&object.value().unwrap()).unwrap();
            let decoded_again = decoded_again.with_managed_fields_of(&object).unwrap();
            let served: Value = crate::json::from_slice(&decoded_again.served_bytes()).unwrap();
            assert_eq!(served, expected);
            let newer = object.with_revision(9).unwrap();
            expected["metadata"]["resourceVersion"] = "9".into();
            let served: Value = crate::json::from_slice(&newer.served_bytes()).unwrap();
            assert_eq!(served, expected);
            let metadata = expected["metadata"].as_object_mut().unwrap();
            metadata.remove("managedFields");
            assert_eq!(newer.value().unwrap(), expected);
            let managed = newer.managed_fields_json().unwrap();
            assert_eq!(managed, r#"[{"f":"}"}]"#);
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

//! An object at one revision: its encoded JSON and the few fields everybody asks
//! for.
//!
//! Enters: encoded JSON from the store or from a server. Leaves: shared bytes, a
//! [`Head`], and typed views, parsed once for as long as they are asked for. The bytes
//! are canonical; no tree of values is kept (it would weigh ten times as much).

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::shared;
use crate::views::{self, Slot};

/// Why bytes are not an object.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// Not JSON, or the head has fields of the wrong type.
    #[error("not a Kubernetes object: {0}")]
    Json(#[from] serde_json::Error),
    /// JSON, but without the `metadata` every stored object has.
    #[error("not a Kubernetes object: no metadata")]
    NoMetadata,
}

/// One entry of `metadata.ownerReferences`, as far as routing needs it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
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

/// Key and value; equal keys of objects are one in memory.
pub type Label = (Arc<str>, Box<str>);

/// The parsed part of an object.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// Empty for cluster-scoped objects.
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
    /// Sorted by key.
    pub labels: Box<[Label]>,
    /// `metadata.resourceVersion`; 0 when absent or not decimal.
    pub revision: u64,
    pub generation: i64,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    pub owners: Box<[Owner]>,
}

impl Head {
    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        Some(&self.labels[at].1)
    }

    /// `namespace/name`, or `name` of a cluster-scoped object.
    pub fn key(&self) -> String {
        if self.namespace.is_empty() {
            self.name.to_string()
        } else {
            format!("{}/{}", self.namespace, self.name)
        }
    }

    /// The owner that manages this object, if any.
    pub fn controller(&self) -> Option<&Owner> {
        self.owners.iter().find(|o| o.controller)
    }
}

struct Inner {
    head: Head,
    bytes: Bytes,
    view: Slot,
}

impl views::Holder for Inner {
    fn slot(&self) -> &Slot {
        &self.view
    }
}

/// An immutable object at one revision. Cloning shares it.
#[derive(Clone)]
pub struct Object(Arc<Inner>);

impl Object {
    /// From JSON that carries its `resourceVersion`, as a server replies it.
    pub fn from_json(bytes: Bytes) -> Result<Self, Malformed> {
        let outer: Outer<'_> = serde_json::from_slice(&bytes)?;
        let head = match outer.metadata {
            Some(raw) => parse_head(raw.get())?,
            None => Head::default(),
        };
        Ok(Self::assemble(head, bytes))
    }

    /// As [`Self::from_json`], without `metadata.managedFields`: in a copy of many
    /// objects they often weigh more than all the rest, and nobody reads them.
    pub fn from_json_trimmed(bytes: Bytes) -> Result<Self, Malformed> {
        let outer: Outer<'_> = serde_json::from_slice(&bytes)?;
        let Some(raw) = outer.metadata else {
            return Ok(Self::assemble(Head::default(), bytes));
        };
        let metadata: Metadata<'_> = serde_json::from_str(raw.get())?;
        let Some(ballast) = metadata.managed_fields.map(RawValue::get) else {
            let head = metadata.head();
            return Ok(Self::assemble(head, bytes));
        };
        // The value borrows from `bytes`, so its address tells where to cut.
        let from = ballast.as_ptr() as usize - bytes.as_ptr() as usize;
        let (before, after) = cut(&bytes[..from], &bytes[from + ballast.len()..]);
        let mut rest = BytesMut::with_capacity(before.len() + after.len());
        rest.extend_from_slice(before);
        rest.extend_from_slice(after);
        let head = metadata.head();
        Ok(Self::assemble(head, rest.freeze()))
    }

    /// From JSON as it is stored, without `resourceVersion`: the revision at which
    /// the key was last written is put in.
    pub fn from_stored(stored: &[u8], revision: u64) -> Result<Self, Malformed> {
        let outer: Outer<'_> = serde_json::from_slice(stored)?;
        let metadata = outer.metadata.ok_or(Malformed::NoMetadata)?.get();
        let mut head = parse_head(metadata)?;
        head.revision = revision;
        // `metadata` borrows from `stored`, so its address tells where to splice.
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

    /// From a tree of values.
    pub fn from_value(value: &Value) -> Result<Self, Malformed> {
        Self::from_json(Bytes::from(serde_json::to_vec(value)?))
    }

    /// The same content as of another revision: what a deletion shows is the last
    /// state with the deletion's revision.
    pub fn at_revision(&self, revision: u64) -> Result<Self, Malformed> {
        let bytes = self.bytes();
        let outer: Outer<'_> = serde_json::from_slice(bytes)?;
        let metadata = outer.metadata.ok_or(Malformed::NoMetadata)?.get();
        let open = metadata.as_ptr() as usize - bytes.as_ptr() as usize + 1;
        let old = format!("\"resourceVersion\":\"{}\"", self.revision());
        if !bytes[open..].starts_with(old.as_bytes()) {
            // Not spliced by `from_stored`: the field may be anywhere.
            let mut value = self.value()?;
            value["metadata"]["resourceVersion"] = revision.to_string().into();
            return Self::from_value(&value);
        }
        let field = format!("\"resourceVersion\":\"{revision}\"");
        let mut moved = BytesMut::with_capacity(bytes.len() + field.len() - old.len());
        moved.extend_from_slice(&bytes[..open]);
        moved.extend_from_slice(field.as_bytes());
        moved.extend_from_slice(&bytes[open + old.len()..]);
        let mut head = self.head().clone();
        head.revision = revision;
        Ok(Self::assemble(head, moved.freeze()))
    }

    fn assemble(head: Head, bytes: Bytes) -> Self {
        Self(Arc::new(Inner {
            head,
            bytes,
            view: Slot::default(),
        }))
    }

    pub fn head(&self) -> &Head {
        &self.0.head
    }

    /// The encoded JSON, with `resourceVersion`.
    pub fn bytes(&self) -> &Bytes {
        &self.0.bytes
    }

    pub fn namespace(&self) -> &str {
        &self.0.head.namespace
    }

    pub fn name(&self) -> &str {
        &self.0.head.name
    }

    pub fn uid(&self) -> &str {
        &self.0.head.uid
    }

    pub fn revision(&self) -> u64 {
        self.0.head.revision
    }

    /// A fresh tree of values: transient, for one write or one interpretation.
    pub fn value(&self) -> Result<Value, Malformed> {
        Ok(serde_json::from_slice(&self.0.bytes)?)
    }

    /// A typed view. The first type asked for is shared by all holders of this object
    /// while it is among those that were asked for lately; further types are parsed on
    /// each call.
    pub fn view<T: DeserializeOwned + Send + Sync + 'static>(&self) -> Result<Arc<T>, Malformed> {
        if let Some(view) = self.0.view.get().and_then(|kept| kept.downcast::<T>().ok()) {
            return Ok(view);
        }
        let parsed: Arc<T> = Arc::new(serde_json::from_slice(&self.0.bytes)?);
        let view = Arc::clone(&parsed) as Arc<dyn Any + Send + Sync>;
        if self.0.view.fill(view) {
            let holder: Arc<dyn views::Holder> = Arc::clone(&self.0) as _;
            views::KEPT.enter(&holder);
        }
        Ok(parsed)
    }

    /// Whether both are the same version in memory (not merely equal).
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({}@{})", self.head().key(), self.revision())
    }
}

#[derive(Deserialize)]
struct Outer<'a> {
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    namespace: Option<Box<str>>,
    name: Option<Box<str>>,
    uid: Option<Box<str>>,
    labels: Option<BTreeMap<Box<str>, Box<str>>>,
    resource_version: Option<Box<str>>,
    generation: Option<i64>,
    deletion_timestamp: Option<Box<str>>,
    owner_references: Option<Box<[Owner]>>,
    #[serde(borrow)]
    managed_fields: Option<&'a RawValue>,
}

impl Metadata<'_> {
    fn head(self) -> Head {
        let labels = self.labels.unwrap_or_default().into_iter();
        Head {
            namespace: self.namespace.unwrap_or_default(),
            name: self.name.unwrap_or_default(),
            uid: self.uid.unwrap_or_default(),
            labels: labels.map(|(k, v)| (shared::key(k), v)).collect(),
            revision: self
                .resource_version
                .and_then(|v| v.parse().ok())
                .unwrap_or(0),
            generation: self.generation.unwrap_or(0),
            deleting: self.deletion_timestamp.is_some(),
            owners: self.owner_references.unwrap_or_default(),
        }
    }
}

fn parse_head(metadata: &str) -> Result<Head, Malformed> {
    Ok(serde_json::from_str::<Metadata<'_>>(metadata)?.head())
}

/// What is left on both sides of a field's value once its key and one comma are
/// gone too.
fn cut<'a>(before: &'a [u8], after: &'a [u8]) -> (&'a [u8], &'a [u8]) {
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
                o.head().label("b"),
                o.head().label("c")
            ),
            ("a", 7, Some("1"), None)
        );
        let empty = stored(r#"{"metadata":{ }}"#, 9);
        assert_eq!(empty.value().unwrap()["metadata"]["resourceVersion"], "9");
    }

    #[test]
    fn an_object_is_moved_to_another_revision() {
        let objects = [
            stored(r#"{"kind":"X","metadata":{"name":"a"},"spec":{}}"#, 7),
            Object::from_json(Bytes::from_static(
                br#"{"kind":"X","metadata":{"name":"a","resourceVersion":"7"},"spec":{}}"#,
            ))
            .unwrap(),
        ];
        for object in objects {
            let moved = object.at_revision(12).unwrap();
            let mut expected = object.value().unwrap();
            expected["metadata"]["resourceVersion"] = "12".into();
            assert_eq!(moved.value().unwrap(), expected);
            assert_eq!((moved.revision(), moved.name()), (12, "a"));
        }
    }

    #[test]
    fn managed_fields_are_cut_out() {
        for (whole, rest) in [
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
            let bytes = Bytes::copy_from_slice(whole.as_bytes());
            let trimmed = Object::from_json_trimmed(bytes.clone()).unwrap();
            let expected: Value = serde_json::from_str(rest).unwrap();
            assert_eq!(trimmed.value().unwrap(), expected);
            assert_eq!(trimmed.name(), Object::from_json(bytes).unwrap().name());
        }
    }

    #[test]
    fn what_is_not_an_object_is_refused() {
        assert!(Object::from_stored(b"[]", 1).is_err());
        assert!(Object::from_stored(b"{}", 1).is_err());
        assert!(Object::from_stored(br#"{"metadata":{"name":3}}"#, 1).is_err());
    }

    #[test]
    fn a_view_is_parsed_once() {
        #[derive(Deserialize)]
        struct Spec {
            spec: BTreeMap<String, i64>,
        }
        let o = stored(r#"{"metadata":{"name":"a"},"spec":{"x":1}}"#, 1);
        let first = o.view::<Spec>().unwrap();
        assert_eq!(first.spec["x"], 1);
        assert!(Arc::ptr_eq(&first, &o.view::<Spec>().unwrap()));
        assert_eq!(o.view::<Value>().unwrap()["spec"]["x"], 1);
    }
}

//! A Work as the execution controller reads it: its manifests stay encoded, as parts of
//! the Work's bytes. A tree of a manifest is made for one comparison and goes before the
//! member is written to.
//!
//! Members that do not answer therefore hold one version of each Work that is being
//! applied, and those fields of the objects to write that differ from its manifests.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;

use bytes::Bytes;
use client::{EncodedObjectBody, InvolvedObject};
use controller_context::WorkHealth;
use flotilla_runtime::RestMapping;
use karmada_api::binding::{Condition, KarmadaObjectMeta};
use karmada_api::well_known_keys::{OVERRIDDEN_FIELDS, TEMPLATE_UID};
use machinery::{Gvk, Object};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// Fields of fewer bytes are not worth sharing.
const MIN_SHARED_BYTES: usize = 8 << 10;

pub(crate) struct EncodedWork {
    pub(crate) finalizers: Vec<String>,
    pub(crate) suspend_dispatching: bool,
    pub(crate) preserve_resources_on_deletion: bool,
    pub(crate) conditions: Vec<Condition>,
    /// The fields in which overrides win over what the member retains, as JSON pointers.
    pub(crate) overridden_fields: Vec<String>,
    /// The health of each object that has reported.
    health: Vec<String>,
    /// Each one encoded.
    pub(crate) manifests: Vec<Bytes>,
}

impl EncodedWork {
    pub(crate) fn parse(object: &Object) -> serde_json::Result<Self> {
        let bytes = object.bytes();
        let work: WorkFields<'_> = machinery::json::from_slice(&bytes)?;
        let manifests = work.spec.workload.manifests.iter();
        let part = |raw: &&RawValue| bytes.slice_ref(raw.get().as_bytes());
        let overridden = work.metadata.annotations.get(OVERRIDDEN_FIELDS);
        let overridden = overridden.and_then(|text| machinery::json::from_str(text).ok());
        Ok(Self {
            overridden_fields: overridden.unwrap_or_default(),
            manifests: manifests.map(part).collect(),
            finalizers: work.metadata.finalizers,
            suspend_dispatching: work.spec.suspend_dispatching == Some(true),
            preserve_resources_on_deletion: work.spec.preserve_resources_on_deletion == Some(true),
            health: work.status.health(),
            conditions: work.status.conditions,
        })
    }

    /// The health of the objects as it was reported last.
    pub(crate) fn work_health(&self) -> WorkHealth<'_> {
        WorkHealth {
            manifests: self.manifests.len(),
            reported: self.health.iter().map(String::as_str).collect(),
        }
    }

    /// Parses which objects the manifests are.
    pub(crate) fn encoded_manifests(&self) -> impl Iterator<Item = EncodedManifest> {
        self.manifests.iter().cloned().map(EncodedManifest::new)
    }

    pub(crate) fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|c| c.condition_type == kind)
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WorkFields<'a> {
    metadata: KarmadaObjectMeta,
    #[serde(borrow)]
    spec: WorkSpecFields<'a>,
    status: WorkStatusFields,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WorkSpecFields<'a> {
    #[serde(borrow)]
    workload: WorkloadTemplateFields<'a>,
    suspend_dispatching: Option<bool>,
    preserve_resources_on_deletion: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WorkloadTemplateFields<'a> {
    #[serde(borrow)]
    manifests: Vec<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WorkStatusFields {
    conditions: Vec<Condition>,
    manifest_statuses: Vec<ManifestHealth>,
}

impl WorkStatusFields {
    fn health(&self) -> Vec<String> {
        let statuses = self.manifest_statuses.iter();
        statuses.map(|status| status.health.clone()).collect()
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ManifestHealth {
    health: String,
}

/// An encoded manifest, and which object it is. A field that is missing, or is no text, is
/// empty.
#[derive(Debug)]
pub(crate) struct EncodedManifest {
    bytes: Bytes,
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl EncodedManifest {
    pub(crate) fn new(bytes: Bytes) -> Self {
        let head: ManifestFields<'_> = machinery::json::from_slice(&bytes).unwrap_or_default();
        let metadata: ManifestMetadataFields<'_> = parse_or_default(head.metadata);
        Self {
            api_version: parse_or_default(head.api_version),
            kind: parse_or_default(head.kind),
            namespace: parse_or_default(metadata.namespace),
            name: parse_or_default(metadata.name),
            bytes,
        }
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    pub(crate) fn gvk(&self) -> Gvk {
        Gvk::from_api_version(&self.api_version, &self.kind)
    }

    /// The uid of the template that the manifest was made from.
    pub(crate) fn template_uid(&self) -> String {
        self.annotation(TEMPLATE_UID)
    }

    /// The template that the manifest was made from.
    pub(crate) fn template_reference(&self) -> InvolvedObject {
        InvolvedObject {
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: self.template_uid(),
            resource_version: String::new(),
        }
    }

    /// The value of an annotation; empty if there is none.
    pub(crate) fn annotation(&self, key: &str) -> String {
        let head: ManifestFields<'_> = machinery::json::from_slice(&self.bytes).unwrap_or_default();
        let metadata: ManifestMetadataFields<'_> = parse_or_default(head.metadata);
        let annotations: BTreeMap<String, Value> = parse_or_default(metadata.annotations);
        let value = annotations.get(key).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    }

    /// The name of the object among those of its Work.
    pub(crate) fn object_key(&self) -> String {
        match self.namespace.as_str() {
            "" => format!("{} {}", self.kind, self.name),
            namespace => format!("{} {namespace}/{}", self.kind, self.name),
        }
    }

    pub(crate) fn tree(&self) -> serde_json::Result<Value> {
        machinery::json::from_slice(&self.bytes)
    }

    /// The manifest as it is.
    pub(crate) fn body(&self) -> EncodedObjectBody {
        self.bytes.clone().into()
    }

    /// Encodes an object that was made from the manifest. Large fields that are as in the
    /// manifest share its bytes.
    pub(crate) fn encode(&self, object: &Value) -> serde_json::Result<EncodedObjectBody> {
        let mut encoder = SharedBytesEncoder {
            shared: &self.bytes,
            pieces: Vec::new(),
            text: Vec::new(),
        };
        encoder.write(object, &self.bytes)?;
        encoder.pieces.push(encoder.text.into());
        Ok(encoder.pieces.into_iter().collect())
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ManifestFields<'a> {
    #[serde(borrow)]
    api_version: Option<&'a RawValue>,
    #[serde(borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ManifestMetadataFields<'a> {
    #[serde(borrow)]
    namespace: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
}

fn parse_or_default<'a, T: Default + Deserialize<'a>>(field: Option<&'a RawValue>) -> T {
    let parsed = field.map(|raw| machinery::json::from_str(raw.get()));
    parsed.and_then(Result::ok).unwrap_or_default()
}

/// A manifest and the resource that it is applied to.
pub(crate) struct MappedManifest<'a> {
    pub(crate) mapping: Arc<RestMapping>,
    pub(crate) manifest: &'a EncodedManifest,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl<'a> MappedManifest<'a> {
    pub(crate) fn new(mapping: Arc<RestMapping>, manifest: &'a EncodedManifest) -> Self {
        Self {
            mapping,
            manifest,
            namespace: &manifest.namespace,
            name: &manifest.name,
        }
    }

    /// The name of the object among those of its Work.
    pub(crate) fn object_key(&self) -> String {
        self.manifest.object_key()
    }
}

/// A hash of what an object says: of all its fields but the metadata and the status.
pub(crate) fn content_hash(object: &Object) -> u64 {
    let bytes = object.bytes();
    let fields: BTreeMap<String, &RawValue> =
        machinery::json::from_slice(&bytes).unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    for (name, value) in fields {
        if !["apiVersion", "kind", "metadata", "status"].contains(&name.as_str()) {
            (name, value.get()).hash(&mut hasher);
        }
    }
    hasher.finish()
}

struct SharedBytesEncoder<'a> {
    shared: &'a Bytes,
    pieces: Vec<Bytes>,
    /// The text that follows the pieces.
    text: Vec<u8>,
}

impl SharedBytesEncoder<'_> {
    /// Writes a value; `like` are bytes of the manifest that may be its encoded form.
    fn write(&mut self, value: &Value, like: &[u8]) -> serde_json::Result<()> {
        if like.len() < MIN_SHARED_BYTES {
            return serde_json::to_writer(&mut self.text, value);
        }
        if is_encoding_of(like, value) {
            let text = std::mem::take(&mut self.text);
            self.pieces.push(text.into());
            self.pieces.push(self.shared.slice_ref(like));
            return Ok(());
        }
        let Value::Object(fields) = value else {
            return serde_json::to_writer(&mut self.text, value);
        };
        let like: BTreeMap<String, &RawValue> =
            machinery::json::from_slice(like).unwrap_or_default();
        let mut before = b'{';
        for (key, value) in fields {
            self.text.push(before);
            before = b',';
            serde_json::to_writer(&mut self.text, key)?;
            self.text.push(b':');
            let like = like.get(key).map_or("", |raw| raw.get());
            self.write(value, like.as_bytes())?;
        }
        if fields.is_empty() {
            self.text.push(b'{');
        }
        self.text.push(b'}');
        Ok(())
    }
}

/// Whether bytes are what a value would be encoded to.
fn is_encoding_of(bytes: &[u8], value: &Value) -> bool {
    let mut rest = ByteComparator(bytes);
    serde_json::to_writer(&mut rest, value).is_ok() && rest.0.is_empty()
}

/// Takes only the bytes that are expected, so that nothing has to be kept of them.
struct ByteComparator<'a>(&'a [u8]);

impl Write for ByteComparator<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let rest = self.0.strip_prefix(bytes);
        self.0 = rest.ok_or(ErrorKind::InvalidData)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::WriteBody;
    use serde_json::json;

    fn manifest(tree: &Value) -> EncodedManifest {
        EncodedManifest::new(tree.to_string().into())
    }

    #[test]
    fn manifests_are_parts_of_the_works_bytes() {
        let object = json!({"metadata": {"name": "w", "finalizers": ["f"]},
            "spec": {"suspendDispatching": true, "workload": {"manifests": [{"kind": "X"}, 1]}},
            "status": {"conditions": [{"type": "Applied", "status": "True"}]}});
        let object = Object::from_value(&object).unwrap();
        let work = EncodedWork::parse(&object).unwrap();
        assert_eq!(work.manifests, [&b"{\"kind\":\"X\"}"[..], b"1"]);
        let work_bytes = object.bytes().as_ptr_range();
        assert!(work_bytes.contains(&work.manifests[0].as_ptr()));
        assert!(work.suspend_dispatching && !work.preserve_resources_on_deletion);
        assert_eq!(work.finalizers, ["f"]);
        assert_eq!(work.condition("Applied").unwrap().status, "True");
    }

    fn tree(body: EncodedObjectBody) -> Value {
        WriteBody::from(body).into_tree().unwrap()
    }

    #[test]
    fn a_manifest_tells_which_object_it_is() {
        let object = json!({"apiVersion": "v1", "kind": "X", "data": {"name": "d"}, "metadata":
            {"name": "a", "namespace": "n", "annotations": {"a": "b", TEMPLATE_UID: "u"}}});
        let parsed = manifest(&object);
        let names = [
            &*parsed.api_version,
            &parsed.kind,
            &parsed.namespace,
            &parsed.name,
        ];
        assert_eq!(names, ["v1", "X", "n", "a"]);
        assert_eq!(parsed.template_uid(), "u");
        assert_eq!(tree(parsed.body()), object);
        let odd = manifest(&json!({"apiVersion": 1, "kind": "X", "metadata": {"name": ["a"]}}));
        assert_eq!((&*odd.api_version, &*odd.kind, &*odd.name), ("", "X", ""));
        assert_eq!(odd.template_uid(), "");
        for none in [json!("x"), json!({"kind": "X", "metadata": 3})] {
            assert_eq!(manifest(&none).name, "");
        }
    }

    #[test]
    fn what_is_as_in_the_manifest_shares_its_bytes() {
        let long = "x\n".repeat(MIN_SHARED_BYTES);
        let full_object = json!({"a": {}, "data": {"k": long}, "metadata": {"name": "a"},
            "spec": {"deep": {"k": long, "n": 1}, "list": [long]}});
        let parsed = manifest(&full_object);
        let mut object = full_object.clone();
        object["metadata"]["resourceVersion"] = "5".into();
        object["spec"]["deep"]["n"] = 2.into();
        object["spec"]["list"][0] = "short".into();
        let body = parsed.encode(&object).unwrap();
        let own = parsed.bytes().as_ptr_range();
        let pieces = body.pieces().iter();
        let shared = pieces.filter(|piece| own.contains(&piece.as_ptr()));
        assert_eq!(
            shared.map(|piece| piece.len() / long.len()).sum::<usize>(),
            2
        );
        assert_eq!(tree(body), object);
        for other in [
            json!({}),
            json!([]),
            json!({"data": {}}),
            json!("x"),
            full_object,
        ] {
            let body = parsed.encode(&other).unwrap();
            assert_eq!(tree(body), other);
        }
    }
}

//! The document of an object, in the form of Karmada: `spec` and `status` are JSON in strings, so
//! that their fields need no mapping. The field `cluster` is an addition, by which the documents
//! of a member are found.

use std::collections::BTreeMap;

use machinery::Object;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::indexed_resource::IndexedSelection;

/// The fields of an object that are in its document.
#[derive(Deserialize)]
struct ObjectFields<'a> {
    metadata: MetadataFields,
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetadataFields {
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    api_version: String,
    kind: &'a str,
    metadata: DocumentMetadata<'a>,
    spec: &'a str,
    status: &'a str,
    cluster: DocumentCluster<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DocumentMetadata<'a> {
    name: &'a str,
    namespace: &'a str,
    creation_timestamp: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    deletion_timestamp: Option<String>,
}

#[derive(Serialize)]
struct DocumentCluster<'a> {
    name: &'a str,
    uid: &'a str,
}

/// The document of a cached object, on one line.
pub(crate) fn encode_document(
    object: &Object,
    selection: &IndexedSelection,
) -> Result<Vec<u8>, serde_json::Error> {
    let bytes = object.bytes();
    let fields: ObjectFields<'_> = machinery::json::from_slice(&bytes)?;
    let document = Document {
        api_version: selection.kind.api_version(),
        kind: &selection.kind.kind,
        metadata: DocumentMetadata {
            name: object.name(),
            namespace: object.namespace(),
            creation_timestamp: fields.metadata.creation_timestamp,
            labels: fields.metadata.labels,
            annotations: fields.metadata.annotations,
            deletion_timestamp: fields.metadata.deletion_timestamp,
        },
        spec: json_text(fields.spec),
        status: json_text(fields.status),
        cluster: DocumentCluster {
            name: &selection.cluster,
            uid: &selection.cluster_uid,
        },
    };
    serde_json::to_vec(&document)
}

fn json_text(value: Option<&RawValue>) -> &str {
    value.map_or("null", RawValue::get)
}

/// The body that creates an index. Without it OpenSearch would make a field of each label and
/// annotation, and refuse `app.kubernetes.io/name` beside `app`. Labels can be searched where
/// `flat_labels` are supported, from OpenSearch 2.7; of the annotations only the cluster.
pub(crate) fn index_body(flat_labels: bool) -> Value {
    // As dynamic mapping has it, so that queries fit an index that Karmada has made.
    let text = json!({"type": "text",
        "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}});
    let time = json!({"type": "date", "ignore_malformed": true});
    let labels = match flat_labels {
        true => json!({"type": "flat_object"}),
        false => json!({"type": "object", "enabled": false}),
    };
    // `resource.karmada.io/cached-from-cluster`: dots separate objects.
    let origin = json!({"properties": {"karmada": {"properties": {
        "io/cached-from-cluster": text}}}});
    json!({"mappings": {"dynamic": false, "properties": {
        "apiVersion": text,
        "kind": text,
        "cluster": {"properties": {"name": text, "uid": text}},
        "metadata": {"properties": {
            "name": text,
            "namespace": text,
            "creationTimestamp": time,
            "deletionTimestamp": time,
            "labels": labels,
            "annotations": {"dynamic": false, "properties": {"resource": origin}},
        }},
        "spec": {"type": "text"},
        "status": {"type": "text"},
    }}})
}

/// The query for the documents of a resource of a member that this control plane has written.
pub(crate) fn documents_query(selection: &IndexedSelection) -> Value {
    json!({"bool": {"filter": [
        {"term": {"cluster.uid.keyword": selection.cluster_uid}},
        {"term": {"apiVersion.keyword": selection.kind.api_version()}},
    ]}})
}

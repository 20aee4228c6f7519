//! Puts encoded messages into the envelopes of responses: `runtime.Unknown` after the magic
//! for an object or a list, and length-delimited `WatchEvent`s for a watch
//! (`apimachinery/pkg/runtime/serializer/protobuf`).

use machinery::Gvk;
use serde_json::{Map, Value};

use super::encoder::{ProtobufEncoder, put_bytes, put_varint_field};
use super::{MAGIC, definition};
use crate::catalog::catalog;
use crate::model::SchemaDefinition;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The metadata of a list (`metav1.ListMeta`).
#[derive(Clone, Copy, Debug)]
pub struct ListMetadata<'a> {
    /// None: the items are not stored.
    pub resource_version: Option<u64>,
    /// Empty: the list is complete.
    pub continue_token: &'a str,
    pub remaining_item_count: Option<u64>,
}

impl ListMetadata<'_> {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let version = self.resource_version.map(|version| version.to_string());
        let version = version.unwrap_or_default();
        put_bytes(&mut out, 2, version.as_bytes());
        put_bytes(&mut out, 3, self.continue_token.as_bytes());
        if let Some(count) = self.remaining_item_count {
            put_varint_field(&mut out, 4, count);
        }
        out
    }
}

/// Encodes an object of a built-in kind. The error names what has no protobuf form.
pub fn encode_object(gvk: &Gvk, object: &Value) -> Result<Vec<u8>, String> {
    let definition = definition(gvk).ok_or_else(|| format!("{gvk} has no protobuf form"))?;
    let message = encode_fields(definition, object)?;
    Ok(wrap(&gvk.api_version(), &gvk.kind, &message))
}

/// Encodes a list item by item, so that a caller can pause between items.
pub struct ListEncoder {
    /// `None`: the items are PartialObjectMetadata.
    item: Option<&'static SchemaDefinition>,
    message: Vec<u8>,
}

impl ListEncoder {
    /// For a list of objects of a built-in kind. The error names what has no protobuf form.
    pub fn of_objects(gvk: &Gvk, metadata: &ListMetadata<'_>) -> Result<Self, String> {
        let definition = definition(gvk).ok_or_else(|| format!("{gvk} has no protobuf form"))?;
        Ok(Self::new(Some(definition), metadata))
    }

    /// For a PartialObjectMetadataList.
    pub fn of_partial_metadata(metadata: &ListMetadata<'_>) -> Self {
        Self::new(None, metadata)
    }

    fn new(item: Option<&'static SchemaDefinition>, metadata: &ListMetadata<'_>) -> Self {
        let mut message = Vec::new();
        put_bytes(&mut message, 1, &metadata.encode());
        Self { item, message }
    }

    /// Adds an object, or the metadata of one.
    pub fn push(&mut self, item: &Value) -> Result<(), String> {
        let encoded = match self.item {
            Some(definition) => encode_fields(definition, item)?,
            None => partial_metadata(item)?,
        };
        put_bytes(&mut self.message, 2, &encoded);
        Ok(())
    }

    /// The whole list.
    pub fn finish(self, api_version: &str, list_kind: &str) -> Vec<u8> {
        wrap(api_version, list_kind, &self.message)
    }
}

/// Encodes a PartialObjectMetadata from the metadata of an object of any kind.
pub fn encode_partial_metadata(api_version: &str, metadata: &Value) -> Result<Vec<u8>, String> {
    let message = partial_metadata(metadata)?;
    Ok(wrap(api_version, "PartialObjectMetadata", &message))
}

/// A frame of a watch: the length, and an event with an encoded object.
pub fn encode_watch_event(event_type: &str, object: &[u8]) -> Vec<u8> {
    let mut raw = Vec::with_capacity(object.len() + 8);
    put_bytes(&mut raw, 1, object);
    let mut event = Vec::with_capacity(raw.len() + 24);
    put_bytes(&mut event, 1, event_type.as_bytes());
    put_bytes(&mut event, 2, &raw);
    let length = u32::try_from(event.len()).unwrap_or(u32::MAX);
    let mut frame = length.to_be_bytes().to_vec();
    frame.append(&mut event);
    frame
}

fn partial_metadata(metadata: &Value) -> Result<Vec<u8>, String> {
    let definition = catalog().definition(OBJECT_META);
    let definition = definition.ok_or("ObjectMeta has no protobuf form")?;
    let mut message = Vec::new();
    put_bytes(&mut message, 1, &encode_fields(definition, metadata)?);
    Ok(message)
}

fn encode_fields(definition: &SchemaDefinition, object: &Value) -> Result<Vec<u8>, String> {
    let no_fields = Map::new();
    let fields = object.as_object().unwrap_or(&no_fields);
    ProtobufEncoder::new(catalog().definitions()).encode_message(definition, fields, 0)
}

fn wrap(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let mut type_meta = Vec::new();
    put_bytes(&mut type_meta, 1, api_version.as_bytes());
    put_bytes(&mut type_meta, 2, kind.as_bytes());
    let mut out = Vec::with_capacity(message.len() + 64);
    out.extend_from_slice(MAGIC);
    put_bytes(&mut out, 1, &type_meta);
    put_bytes(&mut out, 2, message);
    put_bytes(&mut out, 3, b"");
    put_bytes(&mut out, 4, b"");
    out
}

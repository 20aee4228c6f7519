//! Decodes request bodies in Kubernetes' protobuf encoding, which typed Go clients send,
//! into the JSON that the same client would have sent; and encodes the replies that they
//! ask for.
//!
//! A body is the magic `k8s\0` and a `runtime.Unknown`, whose `raw` is the object. The
//! schema files give the field numbers; nothing is generated. Depth and the number of
//! values are bounded.
//!
//! Go's protobuf encoder writes every field that is not a pointer, zero or not, while its
//! JSON encoder omits zeros; so optional zeros are dropped here unless the field is a pointer.

mod encoder;
mod envelope;
mod message;
mod value;
mod wire;

#[cfg(test)]
mod tests;

use machinery::Gvk;
use serde_json::{Map, Value};

use crate::catalog::catalog;
use crate::model::SchemaDefinition;
pub use envelope::{
    ListEncoder, ListMetadata, encode_object, encode_partial_metadata, encode_watch_event,
};
use message::ProtobufDecoder;
pub(crate) use message::{JsonSchemaUnion, json_schema_union};
use wire::WireFieldIterator;

const MAGIC: &[u8] = b"k8s\0";

/// Types that occur only in request bodies, with their apiVersion and kind.
const REQUEST_BODY_TYPES: &[(&str, &str, &str)] = &[
    ("v1", "Binding", "io.k8s.api.core.v1.Binding"),
    (
        "v1",
        "Status",
        "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
    ),
    ("autoscaling/v1", "Scale", "io.k8s.api.autoscaling.v1.Scale"),
    ("policy/v1", "Eviction", "io.k8s.api.policy.v1.Eviction"),
    (
        "authentication.k8s.io/v1",
        "TokenRequest",
        "io.k8s.api.authentication.v1.TokenRequest",
    ),
];

/// Decodes a protobuf body. The value gets `apiVersion` and `kind` from the envelope. The
/// error says what is malformed, for a 400.
///
/// Encoding: `apimachinery/pkg/runtime/serializer/protobuf`.
pub fn decode(body: &[u8]) -> Result<(Gvk, Value), String> {
    let Some(envelope) = body.strip_prefix(MAGIC) else {
        return Err("the body does not start with the protobuf magic number".into());
    };
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for field in WireFieldIterator::new(envelope) {
        let field = field?;
        match field.number {
            1 => {
                for part in WireFieldIterator::new(field.bytes()?) {
                    let part = part?;
                    match part.number {
                        1 => api_version = part.text()?.to_owned(),
                        2 => kind = part.text()?.to_owned(),
                        _ => {}
                    }
                }
            }
            2 => raw = field.bytes()?,
            3 if !field.bytes()?.is_empty() => {
                return Err("encoded protobuf content is not supported".into());
            }
            _ => {}
        }
    }
    let gvk = Gvk::from_api_version(&api_version, &kind);
    let Some(definition) = definition(&gvk) else {
        return Err(format!(
            "no protobuf form of kind {kind:?} in version {api_version:?}"
        ));
    };
    let mut object = Map::new();
    object.insert("kind".into(), kind.into());
    object.insert("apiVersion".into(), api_version.into());
    ProtobufDecoder::new(catalog().definitions()).decode_message(definition, raw, &mut object)?;
    Ok((gvk, Value::Object(object)))
}

/// Whether protobuf bodies of this kind are accepted.
pub fn supports(gvk: &Gvk) -> bool {
    definition(gvk).is_some()
}

fn definition(gvk: &Gvk) -> Option<&'static SchemaDefinition> {
    let catalog = catalog();
    if let Some(kind) = catalog.kind(gvk).filter(|kind| kind.protobuf) {
        return catalog.definition(&kind.definition);
    }
    // `DeleteOptions` exists in every group.
    if gvk.kind == "DeleteOptions" {
        return catalog.definition("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions");
    }
    let api_version = gvk.api_version();
    let (_, _, name) = REQUEST_BODY_TYPES
        .iter()
        .find(|(version, kind, _)| *version == api_version && *kind == gvk.kind)?;
    catalog.definition(name)
}

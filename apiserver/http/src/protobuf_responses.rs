//! Renders objects, lists and watch events in Kubernetes' protobuf encoding, which typed Go
//! clients and metadata informers prefer. Does no I/O.

use machinery::{Gvk, Object, Status};
use openapi::protobuf::{self, ListEncoder, ListMetadata};
use registry::ObjectListPage;
use serde_json::Value;

use crate::negotiation::Representation;
use crate::response_body::ITEMS_PER_YIELD;
use crate::table;

/// Encodes a value that has `apiVersion` and `kind`. The error says what has no protobuf
/// form.
pub(crate) fn encode_value(value: &Value) -> Result<Vec<u8>, String> {
    let text = |field: &str| value[field].as_str().unwrap_or_default();
    let gvk = Gvk::from_api_version(text("apiVersion"), text("kind"));
    protobuf::encode_object(&gvk, value)
}

/// Encodes an object, or its metadata.
pub(crate) fn encode_object(object: &Object, view: Representation) -> Result<Vec<u8>, Status> {
    let value = object.served_value().map_err(|e| unreadable(object, e))?;
    let encoded = match view {
        Representation::Object => encode_value(&value),
        Representation::Metadata { beta } => {
            let api_version = table::meta_api_version(beta);
            protobuf::encode_partial_metadata(api_version, &value["metadata"])
        }
        Representation::Table { .. } | Representation::MetadataList { .. } => {
            return Err(Status::not_acceptable(&["application/json"]));
        }
    };
    encoded.map_err(|e| unreadable(object, e))
}

/// Encodes a list of objects, or of their metadata.
pub(crate) async fn encode_list(
    list: &ObjectListPage,
    view: Representation,
) -> Result<Vec<u8>, Status> {
    let metadata = ListMetadata {
        resource_version: list.revision,
        continue_token: list.continue_token.as_deref().unwrap_or_default(),
        remaining_item_count: list.remaining_item_count,
    };
    let kind = &list.resource.kind;
    let (mut encoder, api_version, list_kind, has_full_objects) = match view {
        Representation::Object => {
            let encoder =
                ListEncoder::of_objects(&kind.gvk, &metadata).map_err(Status::internal)?;
            (encoder, kind.gvk.api_version(), &*kind.list_kind, true)
        }
        Representation::MetadataList { beta } => (
            ListEncoder::of_partial_metadata(&metadata),
            table::meta_api_version(beta).to_owned(),
            "PartialObjectMetadataList",
            false,
        ),
        Representation::Table { .. } | Representation::Metadata { .. } => {
            return Err(Status::not_acceptable(&["application/json"]));
        }
    };
    for (index, object) in list.items.iter().enumerate() {
        if index > 0 && index % ITEMS_PER_YIELD == 0 {
            tokio::task::yield_now().await;
        }
        let value = object.served_value().map_err(|e| unreadable(object, e))?;
        let item = if has_full_objects {
            &value
        } else {
            &value["metadata"]
        };
        encoder.push(item).map_err(|e| unreadable(object, e))?;
    }
    Ok(encoder.finish(&api_version, list_kind))
}

fn unreadable(object: &Object, message: impl std::fmt::Display) -> Status {
    let key = object.meta().key();
    Status::internal(format_args!("unable to encode {key:?}: {message}"))
}

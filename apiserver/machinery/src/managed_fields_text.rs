//! `metadata.managedFields` as text beside an object: in the cache apart from the other
//! bytes, in the store and in responses as the first field of `metadata`.
//!
//! Only servers and clients read the managers; controllers never do. So an object is
//! cached without them, and they are inserted where they are needed.

use bytes::{Bytes, BytesMut};
use serde_json::Value;

use crate::go_numbers;

const FIELD: &[u8] = b"\"managedFields\":";

/// Inserts `metadata.managedFields` into an encoded object, at the offset of the first field
/// of its metadata.
pub(crate) fn splice(object: &[u8], metadata_start: usize, text: &str) -> Bytes {
    let (before, after) = object.split_at(metadata_start);
    let has_fields = has_fields(after);
    let length = spliced_len(object.len(), has_fields, text.len());
    let mut out = BytesMut::with_capacity(length);
    out.extend_from_slice(before);
    out.extend_from_slice(FIELD);
    out.extend_from_slice(text.as_bytes());
    if has_fields {
        out.extend_from_slice(b",");
    }
    out.extend_from_slice(after);
    out.freeze()
}

/// The length of what [`splice`] returns for an object and a text of these lengths.
pub(crate) fn spliced_len(object_len: usize, has_fields: bool, text_len: usize) -> usize {
    object_len + FIELD.len() + text_len + usize::from(has_fields)
}

/// Whether there are fields before the end of the metadata.
pub(crate) fn has_fields(metadata: &[u8]) -> bool {
    !metadata.trim_ascii_start().starts_with(b"}")
}

/// Encodes a tree without `metadata.managedFields` as an object that has them.
pub fn encode_with_managed_fields(
    object: &Value,
    managed_fields: Option<&str>,
) -> serde_json::Result<Vec<u8>> {
    let (Some(text), Some(fields)) = (managed_fields, object.as_object()) else {
        let mut out = Vec::with_capacity(1024);
        go_numbers::write_json(&mut out, object)?;
        return Ok(out);
    };
    let mut out = Vec::with_capacity(1024 + text.len());
    out.push(b'{');
    for (key, value) in fields {
        if out.len() > 1 {
            out.push(b',');
        }
        serde_json::to_writer(&mut out, key)?;
        out.push(b':');
        match key.as_str() {
            "metadata" => write_metadata(&mut out, value, Some(text))?,
            _ => go_numbers::write_json(&mut out, value)?,
        }
    }
    out.push(b'}');
    Ok(out)
}

/// Encodes metadata, with the text of `managedFields` if there is any.
pub fn write_metadata(
    out: &mut Vec<u8>,
    metadata: &Value,
    managed_fields: Option<&str>,
) -> serde_json::Result<()> {
    let (Some(text), Some(fields)) = (managed_fields, metadata.as_object()) else {
        return serde_json::to_writer(out, metadata);
    };
    out.push(b'{');
    out.extend_from_slice(FIELD);
    out.extend_from_slice(text.as_bytes());
    if !fields.is_empty() {
        out.push(b',');
    }
    let start = out.len();
    serde_json::to_writer(&mut *out, metadata)?;
    // Its opening brace is there already.
    out.remove(start);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn managed_fields_are_inserted_into_the_metadata() {
        let text = r#"[{"manager":"a"}]"#;
        for metadata in [json!({}), json!({"name": "a", "uid": "u"})] {
            let object = json!({"kind": "X", "metadata": metadata, "spec": {"metadata": {}}});
            let mut expected = object.clone();
            expected["metadata"]["managedFields"] = crate::json::from_str(text).unwrap();
            let encoded = encode_with_managed_fields(&object, Some(text)).unwrap();
            assert_eq!(
                crate::json::from_slice::<Value>(&encoded).unwrap(),
                expected
            );
            let without_managers = encode_with_managed_fields(&object, None).unwrap();
            assert_eq!(without_managers, serde_json::to_vec(&object).unwrap());
        }
    }
}

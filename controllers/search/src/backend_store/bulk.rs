//! The bodies of `_bulk`: actions and documents, one a line, and the results in the same order.

use serde::Deserialize;
use serde_json::json;

use super::client::error_type;
use super::document_queue::DocumentId;

/// The lines of one document; without a body it is deleted. With a version, the write fails
/// with 409 if the document has a greater one.
pub(crate) fn action_lines(id: &DocumentId, version: Option<u64>, body: Option<&[u8]>) -> Vec<u8> {
    let mut action = json!({"_index": &*id.index, "_id": &*id.uid});
    if let Some(version) = version {
        action["version"] = version.into();
        action["version_type"] = "external_gte".into();
    }
    let action = match body {
        Some(_) => json!({ "index": action }),
        None => json!({ "delete": action }),
    };
    let mut lines = action.to_string().into_bytes();
    lines.push(b'\n');
    if let Some(body) = body {
        lines.extend_from_slice(body);
        lines.push(b'\n');
    }
    lines
}

/// The result of the write of one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ItemResult {
    Written,
    /// The document has a greater version.
    Conflict,
    /// The index does not exist, and OpenSearch may not create it.
    IndexMissing,
    /// It may succeed later; with the type of the error.
    Failed(String),
    /// It will never succeed; with the type of the error.
    Rejected(String),
}

#[derive(Deserialize)]
struct BulkResponse {
    items: Vec<BulkItem>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum BulkItem {
    Index(BulkItemResult),
    Delete(BulkItemResult),
}

#[derive(Deserialize)]
struct BulkItemResult {
    status: u16,
    error: Option<serde_json::Value>,
}

impl BulkItem {
    fn result(&self) -> ItemResult {
        let (item, is_delete) = match self {
            Self::Index(item) => (item, false),
            Self::Delete(item) => (item, true),
        };
        let kind = error_type(item.error.as_ref());
        match item.status {
            200..=299 => ItemResult::Written,
            // It is gone already.
            404 if is_delete => ItemResult::Written,
            404 => ItemResult::IndexMissing,
            409 => ItemResult::Conflict,
            // 403 is also that of an index whose disk is full.
            400 | 413 => ItemResult::Rejected(kind),
            _ => ItemResult::Failed(kind),
        }
    }
}

/// The results of a request, one for each document.
pub(crate) fn parse_results(body: &[u8], documents: usize) -> Result<Vec<ItemResult>, String> {
    let response = machinery::json::from_slice::<BulkResponse>(body);
    let items = response
        .map_err(|e| format!("not a result of _bulk (line {})", e.line()))?
        .items;
    if items.len() != documents {
        return Err(format!("{} results for {documents} documents", items.len()));
    }
    Ok(items.iter().map(BulkItem::result).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_an_action_and_a_document_for_each_object() {
        let id = DocumentId {
            index: "kubernetes-pod".into(),
            uid: "u\"1".into(),
        };
        let lines = |version, body| String::from_utf8(action_lines(&id, version, body)).unwrap();
        assert_eq!(
            lines(Some(7), Some(b"{}")),
            "{\"index\":{\"_id\":\"u\\\"1\",\"_index\":\"kubernetes-pod\",\"version\":7,\
             \"version_type\":\"external_gte\"}}\n{}\n"
        );
        assert_eq!(
            lines(None, None),
            "{\"delete\":{\"_id\":\"u\\\"1\",\"_index\":\"kubernetes-pod\"}}\n"
        );
    }

    #[test]
    fn each_document_has_its_own_result() {
        let body = json!({"took": 1, "errors": true, "items": [
            {"index": {"status": 201, "_id": "a", "result": "created"}},
            {"delete": {"status": 404, "_id": "b", "result": "not_found"}},
            {"index": {"status": 409, "error": {"type": "version_conflict_engine_exception"}}},
            {"index": {"status": 429, "error": {"type": "rejected_execution_exception",
                "reason": "queue full: token=abc"}}},
            {"index": {"status": 403, "error": {"type": "cluster_block_exception"}}},
            {"index": {"status": 400, "error": {"type": "mapper_parsing_exception",
                "reason": "Preview of field's value: 'secret'"}}},
            {"index": {"status": 404, "error": {"type": "index_not_found_exception"}}},
        ]});
        let results = parse_results(body.to_string().as_bytes(), 7).unwrap();
        let failed = |kind: &str| ItemResult::Failed(kind.to_owned());
        assert_eq!(
            results,
            [
                ItemResult::Written,
                ItemResult::Written,
                ItemResult::Conflict,
                failed("rejected_execution_exception"),
                failed("cluster_block_exception"),
                ItemResult::Rejected("mapper_parsing_exception".to_owned()),
                ItemResult::IndexMissing,
            ]
        );
        assert!(parse_results(body.to_string().as_bytes(), 6).is_err());
        assert!(parse_results(b"<html>", 1).is_err());
    }
}

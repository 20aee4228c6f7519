//! Prints objects of several servers as JSON, YAML and names.

use serde_json::{Value, json};

use super::query::{Query, ServerAnswer};
use super::sort::{SortField, SortKey};

/// Karmada's search marks the cluster of an object with this annotation
/// (`CacheSourceAnnotationKey`).
const SOURCE_CLUSTER: &str = "resource.karmada.io/cached-from-cluster";

/// One document: the object if one server was asked for one, else a list. In the answers of
/// several servers the objects of members name their cluster in an annotation. `None` if a
/// named object was not found.
pub(super) fn merge(answers: Vec<ServerAnswer>, query: &Query) -> Option<Value> {
    let is_alone = answers.len() == 1;
    let mut items = Vec::new();
    for answer in answers {
        let cluster = (!is_alone && !answer.is_control_plane).then_some(answer.cluster);
        for mut object in answer.resources.into_iter().flat_map(|r| r.objects) {
            if let Some(cluster) = &cluster {
                object["metadata"]["annotations"][SOURCE_CLUSTER] = json!(cluster);
            }
            if !query.show_managed_fields
                && let Some(metadata) = object["metadata"].as_object_mut()
            {
                metadata.remove("managedFields");
            }
            items.push(object);
        }
    }
    if let Some(field) = &query.sort_by {
        items.sort_by_cached_key(|item| field.key_of(item));
    }
    if is_alone && query.selection.is_single_object() {
        return items.pop();
    }
    Some(
        json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items}),
    )
}

/// Refuses a field to sort by that no object or row has.
pub(super) fn ensure_sortable(answers: &[ServerAnswer], field: &SortField) -> anyhow::Result<()> {
    let resources = || answers.iter().flat_map(|answer| &answer.resources);
    let objects = resources().flat_map(|answered| &answered.objects);
    let rows = resources().flat_map(|answered| answered.tables.iter().flat_map(|t| &t.rows));
    let keys = objects.map(|object| field.key_of(object));
    let keys = keys.chain(rows.filter_map(|row| row.sort_key.clone()));
    field.ensure_found(keys.collect::<Vec<_>>().iter())
}

/// A line `kind.group/name` for each object.
pub(super) fn names(answers: &[ServerAnswer], sort_by: Option<&SortField>) -> String {
    let resources = answers.iter().flat_map(|answer| &answer.resources);
    let lines = resources.flat_map(|answered| {
        let group = &answered.resource.resource.group;
        let dot = if group.is_empty() { "" } else { "." };
        let kind = answered.resource.kind.to_lowercase();
        let name = |object: &Value| {
            object["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let line = move |object| {
            let key = sort_by.map(|field| field.key_of(object));
            (key, format!("{kind}{dot}{group}/{}", name(object)))
        };
        answered.objects.iter().map(line)
    });
    let mut lines: Vec<(Option<SortKey>, String)> = lines.collect();
    lines.sort_by(|(a, _), (b, _)| a.cmp(b));
    let lines: Vec<String> = lines.into_iter().map(|(_, line)| line).collect();
    lines.join("\n")
}

//! The `scale` subresource: reads and sets the replicas of an object (contract B4.5,
//! `apiextensions-apiserver/pkg/registry/customresource/etcd.go`).

use std::sync::LazyLock;

use machinery::{FieldError, Gvk, LabelSelector, Status};
use openapi::{ScalePaths, Schema};
use serde_json::{Map, Value, json};

use crate::resource_table::ResourceInfo;
use crate::write_pipeline::decode_error;

pub(crate) static SCALE_SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    openapi::catalog()
        .definition_schema("io.k8s.api.autoscaling.v1.Scale")
        .unwrap_or_else(Schema::preserving_unknown_fields)
});
pub(crate) const SCALE_KIND: Gvk = Gvk::from_static("autoscaling", "v1", "Scale");

fn path_segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('.').filter(|s| !s.is_empty())
}

fn find_path<'a>(parent: &'a Value, path: &str) -> Option<&'a Value> {
    let value = path_segments(path).try_fold(parent, |node, segment| node.get(segment))?;
    (!value.is_null()).then_some(value)
}

/// The Scale of an object.
pub(crate) fn scale_of(paths: &ScalePaths, parent: &Value) -> Result<Value, Status> {
    let metadata = &parent["metadata"];
    let mut meta = Map::new();
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let Some(v) = metadata.get(field) {
            meta.insert(field.into(), v.clone());
        }
    }
    let mut spec = Map::new();
    if let Some(replicas) = find_path(parent, &paths.spec) {
        spec.insert("replicas".into(), replicas.clone());
    }
    let mut status = Map::new();
    let replicas = find_path(parent, &paths.status).cloned();
    status.insert("replicas".into(), replicas.unwrap_or_else(|| json!(0)));
    if let Some(selector) = find_path(parent, &paths.selector) {
        let text = match selector {
            Value::String(text) => text.clone(),
            other => selector_text(other)?,
        };
        if !text.is_empty() {
            status.insert("selector".into(), text.into());
        }
    }
    Ok(json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
              "metadata": meta, "spec": spec, "status": status}))
}

/// 500 if a custom resource has no replicas: its scale can be written, but not read.
pub(crate) fn check_replicas_exist(paths: &ScalePaths, parent: &Value) -> Result<(), Status> {
    match find_path(parent, &paths.spec) {
        Some(_) => Ok(()),
        None => Err(Status::internal(format_args!(
            "the spec replicas field {:?} does not exist",
            paths.spec
        ))),
    }
}

/// Formats a `metav1.LabelSelector`, or a map of labels, in query syntax.
fn selector_text(selector: &Value) -> Result<String, Status> {
    let map = selector.as_object();
    let is_label_map = map.is_some_and(|m| m.values().all(Value::is_string));
    let parsed = if is_label_map {
        let labels = map.into_iter().flatten();
        LabelSelector::from_labels(labels.map(|(k, v)| (k.as_str(), v.as_str().unwrap_or(""))))
    } else {
        LabelSelector::from_value(selector)
    };
    Ok(parsed.map_err(Status::internal)?.to_string())
}

/// Checks that a body or the result of a patch is a Scale: 400, or 422 for a patch.
pub(crate) fn check_body(
    resource: &ResourceInfo,
    value: &Value,
    patched: bool,
) -> Result<(), Status> {
    let text = |field: &str| value[field].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let is_scale = (kind.is_empty() || kind == "Scale")
        && (api_version.is_empty() || api_version == SCALE_KIND.api_version());
    let message = match is_scale {
        true => SCALE_SCHEMA.decode_error(value),
        false => Some(format!(
            "no kind {kind:?} is registered for version {api_version:?}"
        )),
    };
    let Some(message) = message else {
        return Ok(());
    };
    if patched {
        return Err(decode_error(resource, value, true, &message));
    }
    // Kubernetes' answer for custom resources says nothing about the body.
    Err(Status::bad_request(match resource.has_go_type() {
        true => format!("Scale in version \"v1\" cannot be handled as a Scale: {message}"),
        false => "no kind is registered for the type v1.Scale in scheme \"k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go:781\"".to_owned(),
    }))
}

/// Sets the replicas of a Scale in the object. For a custom resource, validation refuses
/// numbers that are negative or too large.
pub(crate) fn apply_scale(
    paths: &ScalePaths,
    scale: &Value,
    parent: &mut Value,
    is_custom: bool,
) -> Result<(), Status> {
    let replicas = &scale["spec"]["replicas"];
    let name = parent["metadata"]["name"].as_str().unwrap_or("").to_owned();
    let refuse = |message: &str| {
        let error = FieldError::invalid("spec.replicas", replicas, message);
        Status::invalid(&SCALE_KIND, &name, &[error])
    };
    let count = match replicas {
        Value::Null => 0,
        other => other.as_i64().ok_or_else(|| refuse("must be an integer"))?,
    };
    if count < 0 && !is_custom {
        return Err(refuse("must be greater than or equal to 0"));
    }
    if i32::try_from(count).is_err() && !is_custom {
        return Err(refuse("must be a 32-bit integer"));
    }
    let mut node = parent;
    let mut path = path_segments(&paths.spec).peekable();
    while let Some(segment) = path.next() {
        let map = node.as_object_mut().ok_or_else(|| {
            Status::internal(format!(
                "the spec replicas field {:?} does not exist",
                paths.spec
            ))
        })?;
        if path.peek().is_none() {
            map.insert(segment.to_owned(), count.into());
            return Ok(());
        }
        node = map
            .entry(segment.to_owned())
            .or_insert_with(|| Value::Object(Map::new()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_reads_and_sets_replicas() {
        let paths = ScalePaths {
            spec: ".spec.replicas".into(),
            status: ".status.replicas".into(),
            selector: ".spec.selector".into(),
        };
        let mut parent = json!({"metadata": {"name": "a", "uid": "u", "labels": {"x": "y"}},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "a"}}}, "status": {}});
        let mut scale = scale_of(&paths, &parent).unwrap();
        assert_eq!(
            scale,
            json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": {"name": "a", "uid": "u"}, "spec": {"replicas": 2},
            "status": {"replicas": 0, "selector": "app=a"}})
        );
        scale["spec"]["replicas"] = 5.into();
        apply_scale(&paths, &scale, &mut parent, false).unwrap();
        assert_eq!(parent["spec"]["replicas"], 5);
        for invalid in [json!(-1), json!("3"), json!(1i64 << 40)] {
            scale["spec"]["replicas"] = invalid;
            assert_eq!(
                apply_scale(&paths, &scale, &mut parent, false)
                    .unwrap_err()
                    .code,
                422
            );
        }
    }
}

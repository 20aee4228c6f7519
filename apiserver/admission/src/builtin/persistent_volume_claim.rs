//! Validates PersistentVolumeClaim, and the claims that are created for volumes of pods.

use machinery::FieldError;
use machinery::names::validate_dns1123_subdomain;
use serde_json::{Map, Value};

use super::label_selectors::{SelectorValues, validate_label_selector};
use super::persistent_volume::{
    validate_access_modes, validate_class_and_mode, validate_immutable_mode, validate_positive,
};
use crate::metadata;
use crate::resource_list::resource_quantity;
use crate::unstructured::{entries, get, has, object_mut, report_invalid, text};

const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
const IMMUTABLE_SPEC: &str = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";

pub(super) fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let old_spec = old.map_or(&Value::Null, |old| get(old, "/spec"));
    validate_spec("spec", get(new, "/spec"), old_spec, errors);
    if let Some(old) = old {
        validate_update(new, old, errors);
    }
}

/// Validates the template of a claim that is created with a pod.
pub(super) fn validate_claim_template(field: &str, template: &Value, errors: &mut Vec<FieldError>) {
    let meta = get(template, "/metadata");
    let path = format!("{field}.metadata");
    metadata::validate_annotations(
        &format!("{path}.annotations"),
        get(meta, "/annotations"),
        errors,
    );
    metadata::validate_labels(&format!("{path}.labels"), get(meta, "/labels"), errors);
    let is_allowed = |name: &str| matches!(name, "annotations" | "labels" | "creationTimestamp");
    for (name, _) in entries(meta, "").filter(|(name, value)| !is_allowed(name) && !value.is_null())
    {
        errors.push(FieldError::forbidden(
            format!("{path}.{name}"),
            "cannot be set",
        ));
    }
    let path = format!("{field}.spec");
    validate_spec(&path, get(template, "/spec"), &Value::Null, errors);
}

fn validate_spec(field: &str, spec: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let selector = get(spec, "/selector");
    let values = SelectorValues::of_old([get(old, "/selector")]);
    validate_label_selector(&format!("{field}.selector"), selector, values, errors);
    validate_access_modes(field, spec, "at least 1 access mode is required", errors);
    let field_path = format!("{field}.resources[storage]");
    if has(spec, "/resources/requests/storage") {
        validate_positive(
            &field_path,
            get(spec, "/resources/requests/storage"),
            errors,
        );
    } else {
        errors.push(FieldError::required(field_path, ""));
    }
    validate_class_and_mode(field, spec, errors);
    let keeps_group = ["/dataSource/apiGroup", "/dataSourceRef/apiGroup"]
        .iter()
        .any(|path| has(old, path));
    for name in ["dataSource", "dataSourceRef"] {
        if has(spec, &format!("/{name}")) && !is_ignored(name, spec, old) {
            let source = get(spec, &format!("/{name}"));
            validate_data_source(&format!("{field}.{name}"), source, keeps_group, errors);
        }
    }
    validate_both_sources(field, spec, errors);
    let class = text(spec, "/volumeAttributesClassName");
    if !class.is_empty() {
        let result = validate_dns1123_subdomain(class);
        let field_path = format!("{field}.volumeAttributesClassName");
        report_invalid(field_path, class, result, errors);
    }
}

/// Whether Kubernetes drops a data source. It drops a `dataSourceRef` to another namespace, which
/// is an alpha feature, and the `dataSource` of a new claim if it names neither a claim nor a
/// snapshot.
fn is_ignored(name: &str, spec: &Value, old: &Value) -> bool {
    if name == "dataSourceRef" {
        return !text(spec, "/dataSourceRef/namespace").is_empty();
    }
    let source = get(spec, "/dataSource");
    let is_old_kind = matches!(
        (text(source, "/apiGroup"), text(source, "/kind")),
        ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
    );
    let had_source = has(old, "/dataSource") || has(old, "/dataSourceRef");
    let is_unchanged = get(old, "/dataSource") == source;
    !is_old_kind && (!had_source || is_unchanged) && !has(spec, "/dataSourceRef")
}

fn validate_data_source(
    field: &str,
    source: &Value,
    keeps_group: bool,
    errors: &mut Vec<FieldError>,
) {
    for name in ["name", "kind"] {
        if text(source, &format!("/{name}")).is_empty() {
            errors.push(FieldError::required(format!("{field}.{name}"), ""));
        }
    }
    let (group, kind) = (text(source, "/apiGroup"), text(source, "/kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.push(FieldError::invalid(field, &kind.into(), detail));
    }
    if !group.is_empty() && !keeps_group {
        let result = validate_dns1123_subdomain(group);
        report_invalid(format!("{field}.apiGroup"), group, result, errors);
    }
}

/// The old and the new name of the data source must agree.
fn validate_both_sources(field: &str, spec: &Value, errors: &mut Vec<FieldError>) {
    let (source, reference) = (get(spec, "/dataSource"), get(spec, "/dataSourceRef"));
    let is_compared = !source.is_null() && text(reference, "/namespace").is_empty();
    let are_equal = ["/apiGroup", "/kind", "/name"]
        .iter()
        .all(|path| get(source, path) == get(reference, path));
    if is_compared && !reference.is_null() && !are_equal {
        let source_path = format!("{field}.dataSource");
        errors.push(FieldError::invalid(
            field,
            &source_path.into(),
            "must match dataSourceRef",
        ));
    }
}

fn class_annotation(claim: &Value) -> Option<&str> {
    get(claim, "/metadata/annotations")
        .get(CLASS_ANNOTATION)?
        .as_str()
}

fn validate_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (old_spec, new_spec) = (get(old, "/spec"), get(new, "/spec"));
    let (old_class, class) = (class_annotation(old), class_annotation(new));
    let class_name = get(new_spec, "/storageClassName");
    let had_no_class = !has(old_spec, "/storageClassName") && !class_name.is_null();
    // The class may move from the annotation to the field.
    let moves_class = had_no_class
        && old_class.is_some_and(|old| class_name == old)
        && class.is_none_or(|class| Some(class) == old_class);
    let gets_class = had_no_class && old_class.is_none_or(|old| class_name == old);
    if !moves_class && old_class.unwrap_or("") != class.unwrap_or("") {
        errors.push(FieldError::invalid(
            format!("metadata.annotations.{CLASS_ANNOTATION}"),
            &class.unwrap_or("").into(),
            "field is immutable",
        ));
    }
    let mut expected = new_spec.clone();
    if moves_class || gets_class {
        restore(&mut expected, old_spec, "storageClassName");
    }
    if text(old_spec, "/volumeName").is_empty() {
        restore(&mut expected, old_spec, "volumeName");
    }
    if text(new, "/status/phase") == "Bound" {
        let amount = get(old_spec, "/resources/requests/storage");
        if let Some(requests) = object_mut(&mut expected, &["resources", "requests"]) {
            requests.insert("storage".to_owned(), amount.clone());
        }
        if has(new_spec, "/volumeAttributesClassName") {
            restore(&mut expected, old_spec, "volumeAttributesClassName");
        }
    }
    if !is_equal(&expected, old_spec) {
        errors.push(FieldError::forbidden("spec", IMMUTABLE_SPEC));
    }
    validate_amount(new, old, errors);
    validate_immutable_mode(new_spec, old_spec, errors);
    let path = "/volumeAttributesClassName";
    if has(old_spec, path)
        && get(old_spec, path) != get(new_spec, path)
        && text(new_spec, path).is_empty()
    {
        let emptiness = if has(new_spec, path) {
            "an empty string"
        } else {
            "nil"
        };
        errors.push(FieldError::forbidden(
            "spec.volumeAttributesClassName",
            &format!("update from non-nil value to {emptiness} is forbidden"),
        ));
    }
}

/// An amount may be reduced to what the volume has, after an expansion that failed.
fn validate_amount(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let requests = |claim| get(claim, "/spec/resources/requests");
    let (old, amount) = (
        resource_quantity(requests(old), "storage"),
        resource_quantity(requests(new), "storage"),
    );
    let capacity = resource_quantity(get(new, "/status/capacity"), "storage");
    if amount < old && amount <= capacity {
        errors.push(FieldError::forbidden(
            "spec.resources.requests.storage",
            "field can not be less than status.capacity",
        ));
    }
}

fn restore(spec: &mut Value, old_spec: &Value, name: &str) {
    if let Some(fields) = spec.as_object_mut() {
        match old_spec.get(name) {
            Some(old) => fields.insert(name.to_owned(), old.clone()),
            None => fields.remove(name),
        };
    }
}

/// Whether specs are equal, but for fields that are null or empty.
fn is_equal(a: &Value, b: &Value) -> bool {
    let set = |spec: &Value| -> Map<String, Value> {
        let fields = spec.as_object().into_iter().flatten();
        let fields = fields.filter(|(_, value)| !value.is_null() && **value != "");
        fields
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    };
    set(a) == set(b)
}

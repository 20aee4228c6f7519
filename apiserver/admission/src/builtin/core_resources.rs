//! Validates ConfigMap, Secret, Event, Namespace and Binding: keys, size, encoding, immutability.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use karmada_api::well_known_keys::NAMESPACE_GATE;
use machinery::names::validate_qualified_name;
use machinery::{FieldError, Status};
use serde_json::{Map, Value};

use super::config_keys::validate_config_key;
use crate::metadata::validate_switch;
use crate::unstructured::{
    entries, flag, get, has, report_invalid, text, texts, validate_immutable_field,
};

/// Bound on the bytes of all values together.
const MAX_DATA_BYTES: usize = 1 << 20;

/// Fails with 400 when data is not base64, because Kubernetes cannot decode such a
/// Secret.
pub(super) fn check_secret_encoding(secret: &Value) -> Result<(), Status> {
    for (_, value) in entries(secret, "/data") {
        if let Some(value) = value.as_str()
            && let Err(detail) = decode_base64(value)
        {
            return Err(Status::bad_request(format!(
                "Secret in version \"v1\" cannot be handled as a Secret: illegal base64 data: {detail}"
            )));
        }
    }
    Ok(())
}

fn decode_base64(value: &str) -> Result<Vec<u8>, base64::DecodeError> {
    // Line breaks are allowed, as in Go.
    if value.contains(['\n', '\r']) {
        return STANDARD.decode(value.replace(['\n', '\r'], ""));
    }
    STANDARD.decode(value)
}

pub(super) fn validate_config_map(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let mut bytes = 0;
    for (key, value) in entries(new, "/data") {
        report_invalid(
            format!("data[{key}]"),
            key,
            validate_config_key(key),
            errors,
        );
        if get(new, "/binaryData").get(key).is_some() {
            errors.push(FieldError::invalid(
                format!("data[{key}]"),
                &key.into(),
                "duplicate of key present in binaryData",
            ));
        }
        bytes += value.as_str().map_or(0, str::len);
    }
    for (key, value) in entries(new, "/binaryData") {
        report_invalid(
            format!("binaryData[{key}]"),
            key,
            validate_config_key(key),
            errors,
        );
        bytes += decode_base64(value.as_str().unwrap_or("")).map_or(0, |v| v.len());
    }
    if bytes > MAX_DATA_BYTES {
        // Kubernetes' path of the whole object.
        errors.push(FieldError::too_long("[]", MAX_DATA_BYTES));
    }
    validate_immutable_data(new, old, &["data", "binaryData"], errors);
}

pub(super) fn validate_secret(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let mut data = BTreeMap::new();
    for (key, value) in entries(new, "/data") {
        report_invalid(
            format!("data[{key}]"),
            key,
            validate_config_key(key),
            errors,
        );
        data.insert(
            key,
            decode_base64(value.as_str().unwrap_or("")).unwrap_or_default(),
        );
    }
    if data.values().map(Vec::len).sum::<usize>() > MAX_DATA_BYTES {
        errors.push(FieldError::too_long("data", MAX_DATA_BYTES));
    }
    validate_secret_type(new, &data, errors);
    if let Some(old) = old {
        validate_immutable_field(new, old, "type", errors);
    }
    validate_immutable_data(new, old, &["data"], errors);
}

/// Requires the keys of Kubernetes' typed Secrets.
fn validate_secret_type(
    secret: &Value,
    data: &BTreeMap<&str, Vec<u8>>,
    errors: &mut Vec<FieldError>,
) {
    let mut require = |key: &str| {
        if !data.contains_key(key) {
            errors.push(FieldError::required(format!("data[{key}]"), ""));
        }
    };
    let has_credentials = data.contains_key("username") || data.contains_key("password");
    match text(secret, "/type") {
        "kubernetes.io/tls" => {
            require("tls.crt");
            require("tls.key");
        }
        "kubernetes.io/ssh-auth" if data.get("ssh-privatekey").is_none_or(Vec::is_empty) => {
            errors.push(FieldError::required("data[ssh-privatekey]", ""));
        }
        "kubernetes.io/basic-auth" if !has_credentials => {
            require("username");
            require("password");
        }
        "kubernetes.io/dockercfg" => validate_docker_config(".dockercfg", data, errors),
        "kubernetes.io/dockerconfigjson" => {
            validate_docker_config(".dockerconfigjson", data, errors)
        }
        "kubernetes.io/service-account-token" => {
            let key = "kubernetes.io/service-account.name";
            let name = get(secret, "/metadata/annotations").get(key);
            if name.and_then(Value::as_str).unwrap_or("").is_empty() {
                errors.push(FieldError::required(
                    format!("metadata.annotations[{key}]"),
                    "",
                ));
            }
        }
        _ => {}
    }
}

fn validate_docker_config(key: &str, data: &BTreeMap<&str, Vec<u8>>, errors: &mut Vec<FieldError>) {
    let field = format!("data[{key}]");
    match data.get(key) {
        None => errors.push(FieldError::required(field, "")),
        Some(bytes) => {
            if let Err(detail) = machinery::json::from_slice::<Map<String, Value>>(bytes) {
                errors.push(FieldError::invalid(
                    field,
                    &"<secret contents redacted>".into(),
                    detail.to_string(),
                ));
            }
        }
    }
}

/// Forbids changes of data, and of `immutable` itself, once it is set.
fn validate_immutable_data(
    new: &Value,
    old: Option<&Value>,
    fields: &[&str],
    errors: &mut Vec<FieldError>,
) {
    let Some(old) = old.filter(|old| flag(old, "/immutable")) else {
        return;
    };
    let detail = "field is immutable when `immutable` is set";
    if !flag(new, "/immutable") {
        errors.push(FieldError::forbidden("immutable", detail));
    }
    for field in fields {
        let path = format!("/{field}");
        let empty = |v: &Value| v.as_object().is_none_or(Map::is_empty);
        let (old_value, new_value) = (get(old, &path), get(new, &path));
        if old_value != new_value && !(empty(old_value) && empty(new_value)) {
            errors.push(FieldError::forbidden(*field, detail));
        }
    }
}

/// The bounds on texts of an event, in bytes.
const EVENT_TEXT_LIMITS: [(&str, usize); 4] = [
    ("reportingInstance", 128),
    ("action", 128),
    ("reason", 128),
    ("message", 1024),
];

/// Requires an event to be in the namespace of its object, and one of the new form to say who
/// reports it.
pub(super) fn validate_event(new: &Value, errors: &mut Vec<FieldError>) {
    let about = text(new, "/involvedObject/namespace");
    let namespace = text(new, "/metadata/namespace");
    let is_new_form = has(new, "/eventTime");
    let is_valid = match about {
        "" if is_new_form => matches!(namespace, "default" | "kube-system"),
        "" => matches!(namespace, "" | "default"),
        _ => is_new_form || about == namespace,
    };
    if !is_valid {
        errors.push(FieldError::invalid(
            "involvedObject.namespace",
            &about.into(),
            "does not match event.namespace",
        ));
    }
    if !is_new_form {
        return;
    }
    // The field is named for a component in version v1.
    let controller = text(new, "/reportingComponent");
    if controller.is_empty() {
        errors.push(FieldError::required("reportingController", ""));
    }
    let result = validate_qualified_name(controller);
    report_invalid("reportingController", controller, result, errors);
    for (name, limit) in EVENT_TEXT_LIMITS {
        let length = text(new, &format!("/{name}")).len();
        if length == 0 && name != "message" {
            errors.push(FieldError::required(name, ""));
        }
        if length > limit {
            let detail = format!("can have at most {limit} characters");
            errors.push(FieldError::invalid(name, &"".into(), detail));
        }
    }
}

/// Validates the finalizers of a namespace's spec, and the annotation of its gate.
pub(super) fn validate_namespace(new: &Value, errors: &mut Vec<FieldError>) {
    validate_switch(new, NAMESPACE_GATE, errors);
    for name in texts(new, "/spec/finalizers") {
        let field = "spec.finalizers";
        let result = validate_qualified_name(name);
        let is_valid = result.is_ok();
        report_invalid(field, name, result, errors);
        let is_standard = matches!(name, "kubernetes" | "orphan" | "foregroundDeletion");
        if is_valid && !name.contains('/') && !is_standard {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(field, &name.into(), detail));
        }
    }
}

//! ConfigMap, Secret, PersistentVolumeClaim and Event: keys, size, encoding,
//! immutability.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery::{FieldError, Status};
use serde_json::{Map, Value};

use super::config_keys::validate_config_key;
use super::persistent_volume::{validate_access_modes, validate_class_and_mode, validate_positive};
use crate::cluster_affinity;
use crate::unstructured::{
    entries, flag, get, has, report_invalid, text, validate_immutable_field,
};

/// Bound on the bytes of all values together.
const MAX_DATA_BYTES: usize = 1 << 20;

/// Fails with 400 when data is not base64, because Kubernetes cannot decode such a
/// Secret.
pub(super) fn check_secret_encoding(secret: &Value) -> Result<(), Status> {
    for (_, value) in entries(secret, "/data") {
        if let Some(value) = value.as_str()
            && let Err(why) = decode_base64(value)
        {
            return Err(Status::bad_request(format!(
                "Secret in version \"v1\" cannot be handled as a Secret: illegal base64 data: {why}"
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
        errors.push(FieldError::too_long("data", MAX_DATA_BYTES));
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
    match text(secret, "/type") {
        "kubernetes.io/tls" => {
            require("tls.crt");
            require("tls.key");
        }
        "kubernetes.io/ssh-auth" => require("ssh-privatekey"),
        "kubernetes.io/basic-auth" if !data.contains_key("username") => require("password"),
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
            if let Err(why) = serde_json::from_slice::<Map<String, Value>>(bytes) {
                errors.push(FieldError::invalid(
                    field,
                    &"<secret contents redacted>".into(),
                    why.to_string(),
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
    let why = "field is immutable when `immutable` is set";
    if !flag(new, "/immutable") {
        errors.push(FieldError::forbidden("immutable", why));
    }
    for field in fields {
        let path = format!("/{field}");
        let empty = |v: &Value| v.as_object().is_none_or(Map::is_empty);
        let (was, is) = (get(old, &path), get(new, &path));
        if was != is && !(empty(was) && empty(is)) {
            errors.push(FieldError::forbidden(*field, why));
        }
    }
}

pub(super) fn validate_persistent_volume_claim(
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let spec = get(new, "/spec");
    validate_access_modes("spec", spec, "at least 1 access mode is required", errors);
    validate_class_and_mode("spec", spec, errors);
    let amount = get(spec, "/resources/requests/storage");
    validate_positive("spec.resources[storage]", amount, errors);
    let selector = get(spec, "/selector");
    cluster_affinity::validate_label_selector("spec.selector", selector, errors);
    if !has(spec, "/resources/requests/storage") {
        errors.push(FieldError::required("spec.resources[storage]", ""));
    }
    let Some(old) = old else {
        return;
    };
    if immutable_claim_spec(get(old, "/spec"), spec) != immutable_claim_spec(spec, spec) {
        errors.push(FieldError::forbidden(
            "spec",
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        ));
    }
}

/// The immutable fields of a claim. Its volume name may be set once, when it is bound.
fn immutable_claim_spec(spec: &Value, new: &Value) -> Value {
    let mut spec = spec.clone();
    let named = has(&spec, "/volumeName");
    if let Some(map) = spec.as_object_mut() {
        map.remove("resources");
        map.remove("volumeAttributesClassName");
        if !named {
            map.insert("volumeName".into(), get(new, "/volumeName").clone());
        }
        map.retain(|_, v| !v.is_null());
    }
    spec
}

/// Requires an event to be in the namespace of its object; those of cluster-scoped
/// objects belong to `default`.
pub(super) fn validate_event(new: &Value, errors: &mut Vec<FieldError>) {
    let about = text(new, "/involvedObject/namespace");
    let namespace = text(new, "/metadata/namespace");
    let fits = match about {
        "" => matches!(namespace, "default" | "kube-system"),
        about => about == namespace,
    };
    if !fits {
        errors.push(FieldError::invalid(
            "involvedObject.namespace",
            &about.into(),
            "does not match event.namespace",
        ));
    }
}

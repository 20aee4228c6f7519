//! Validates CSIDrivers, CSINodes, CSIStorageCapacities and VolumeAttachments (Kubernetes
//! `pkg/apis/storage/validation`).

use std::collections::HashSet;

use machinery::names::{validate_dns1123_subdomain, validate_qualified_name};
use machinery::{FieldError, Quantity};
use serde_json::{Map, Value};

use super::label_selectors::{SelectorValues, validate_label_selector};
use crate::unstructured::{
    flag, get, has, index_path, int, items, report_invalid, text, texts, validate_immutable_field,
};

const MAX_DRIVER_NAME_LENGTH: usize = 63;
const MAX_NODE_ID_LENGTH: usize = 256;
const MIN_TOKEN_SECONDS: i64 = 600;
const MAX_TOKEN_SECONDS: i64 = 1 << 32;
const MIN_ALLOCATABLE_UPDATE_SECONDS: i64 = 10;

pub(super) fn validate_csi_driver(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let modes = ["Persistent", "Ephemeral"];
    for mode in texts(new, "/spec/volumeLifecycleModes").filter(|mode| !modes.contains(mode)) {
        let field = "spec.volumeLifecycleModes";
        errors.push(FieldError::not_supported(field, &mode.into(), &modes));
    }
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    let policy = text(new, "/spec/fsGroupPolicy");
    if has(new, "/spec/fsGroupPolicy") && !policies.contains(&policy) {
        let field = "spec.fsGroupPolicy";
        errors.push(FieldError::not_supported(field, &policy.into(), &policies));
    }
    validate_token_requests(items(new, "/spec/tokenRequests"), errors);
    if let Some(seconds) = int(new, "/spec/nodeAllocatableUpdatePeriodSeconds")
        && seconds < MIN_ALLOCATABLE_UPDATE_SECONDS
    {
        errors.push(FieldError::invalid(
            "spec.nodeAllocatableUpdatePeriodSeconds",
            &seconds.into(),
            format!("must be greater than or equal to {MIN_ALLOCATABLE_UPDATE_SECONDS} seconds"),
        ));
    }
    if has(new, "/spec/serviceAccountTokenInSecrets") && !has(new, "/spec/tokenRequests") {
        errors.push(FieldError::invalid(
            "spec.serviceAccountTokenInSecrets",
            &flag(new, "/spec/serviceAccountTokenInSecrets").into(),
            "serviceAccountTokenInSecrets is only valid when tokenRequests is non-empty",
        ));
    }
    if let Some(old) = old {
        let (is_required, was_required) = (
            get(new, "/spec/attachRequired"),
            get(old, "/spec/attachRequired"),
        );
        if is_required != was_required {
            // Kubernetes' own name of the field here.
            let field = "spec.attachedRequired";
            errors.push(FieldError::invalid(
                field,
                is_required,
                "field is immutable",
            ));
        }
        validate_immutable_field(new, old, "spec.volumeLifecycleModes", errors);
    }
}

fn validate_driver_name(field: &str, name: &str, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        errors.push(FieldError::required(field, ""));
        return;
    }
    if name.len() > MAX_DRIVER_NAME_LENGTH {
        errors.push(FieldError::too_long(field, MAX_DRIVER_NAME_LENGTH));
    }
    let lower = name.to_ascii_lowercase();
    report_invalid(field, name, validate_dns1123_subdomain(&lower), errors);
}

fn validate_token_requests(requests: &[Value], errors: &mut Vec<FieldError>) {
    for (i, request) in requests.iter().enumerate() {
        let field = index_path("spec.tokenRequests", i);
        let audience = text(request, "/audience");
        if requests[..i]
            .iter()
            .any(|r| text(r, "/audience") == audience)
        {
            let field = format!("{field}.audience");
            errors.push(FieldError::duplicate(field, &audience.into()));
            continue;
        }
        let Some(seconds) = int(request, "/expirationSeconds") else {
            continue;
        };
        let detail = match seconds {
            ..MIN_TOKEN_SECONDS => "may not specify a duration less than 10 minutes",
            MIN_TOKEN_SECONDS..=MAX_TOKEN_SECONDS => continue,
            _ => "may not specify a duration larger than 2^32 seconds",
        };
        let field = format!("{field}.expirationSeconds");
        errors.push(FieldError::invalid(field, &seconds.into(), detail));
    }
}

pub(super) fn validate_csi_node(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let drivers = items(new, "/spec/drivers");
    for (i, driver) in drivers.iter().enumerate() {
        let field = index_path("spec.drivers", i);
        let (name, node) = (text(driver, "/name"), text(driver, "/nodeID"));
        validate_driver_name(&format!("{field}.name"), name, errors);
        if drivers[..i].iter().any(|d| text(d, "/name") == name) {
            errors.push(FieldError::duplicate(format!("{field}.name"), &name.into()));
        }
        if node.is_empty() {
            errors.push(FieldError::required(format!("{field}.nodeID"), ""));
        } else if node.len() > MAX_NODE_ID_LENGTH {
            let detail = format!("must be {MAX_NODE_ID_LENGTH} characters or less");
            errors.push(FieldError::invalid(
                format!("{field}.nodeID"),
                &node.into(),
                detail,
            ));
        }
        if let Some(count) = int(driver, "/allocatable/count")
            && count < 0
        {
            errors.push(FieldError::invalid(
                format!("{field}.allocatable.count"),
                &count.into(),
                "must be greater than or equal to 0",
            ));
        }
        validate_topology_keys(&field, driver, errors);
    }
    if let Some(old) = old {
        validate_fixed_drivers(drivers, items(old, "/spec/drivers"), errors);
    }
}

/// Reports keys of a driver at the driver itself, as Kubernetes does.
fn validate_topology_keys(field: &str, driver: &Value, errors: &mut Vec<FieldError>) {
    let mut visited = HashSet::new();
    for key in texts(driver, "/topologyKeys") {
        if key.is_empty() {
            errors.push(FieldError::required(field, ""));
        }
        if !visited.insert(key) {
            errors.push(FieldError::duplicate(field, &key.into()));
        }
        report_invalid(field, key, validate_qualified_name(key), errors);
    }
}

/// A driver that stays on the node may change how many volumes it attaches there.
fn validate_fixed_drivers(new: &[Value], old: &[Value], errors: &mut Vec<FieldError>) {
    let fixed = |driver: &Value| -> Map<String, Value> {
        let mut fixed = driver.as_object().cloned().unwrap_or_default();
        fixed.remove("allocatable");
        fixed
    };
    for driver in new {
        let name = text(driver, "/name");
        let mut namesakes = old.iter().filter(|old| text(old, "/name") == name);
        if namesakes.any(|old| fixed(old) != fixed(driver)) {
            let detail = "field is immutable";
            errors.push(FieldError::invalid("spec.drivers", driver, detail));
        }
    }
}

pub(super) fn validate_csi_storage_capacity(
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let class = text(new, "/storageClassName");
    report_invalid(
        "storageClassName",
        class,
        validate_dns1123_subdomain(class),
        errors,
    );
    let capacity = get(new, "/capacity");
    if Quantity::from_value(capacity).is_ok_and(|amount| amount < Quantity::ZERO) {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("capacity", capacity, detail));
    }
    let values = SelectorValues::of_old(old.map(|old| get(old, "/nodeTopology")));
    let topology = get(new, "/nodeTopology");
    validate_label_selector("nodeTopology", topology, values, errors);
    if let Some(old) = old {
        for field in ["nodeTopology", "storageClassName"] {
            validate_immutable_field(new, old, field, errors);
        }
    }
}

pub(super) fn validate_volume_attachment(
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    validate_attacher(new, old.is_none(), errors);
    let node = text(new, "/spec/nodeName");
    report_invalid(
        "spec.nodeName",
        node,
        validate_dns1123_subdomain(node),
        errors,
    );
    let source = get(new, "/spec/source");
    let field = "spec.source";
    match (
        has(source, "/persistentVolumeName"),
        has(source, "/inlineVolumeSpec"),
    ) {
        (false, false) => errors.push(FieldError::required(
            field,
            "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
        )),
        (true, true) => errors.push(FieldError::forbidden(
            field,
            "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
        )),
        (true, false) if text(source, "/persistentVolumeName").is_empty() => {
            errors.push(FieldError::required(
                "spec.source.persistentVolumeName",
                "must specify non empty persistentVolumeName",
            ))
        }
        _ => {}
    }
    if let Some(old) = old {
        validate_immutable_field(new, old, "spec", errors);
    }
}

/// Requires an attacher. A new attachment names a driver and a volume that can exist.
fn validate_attacher(new: &Value, is_new: bool, errors: &mut Vec<FieldError>) {
    let attacher = text(new, "/spec/attacher");
    if is_new {
        validate_driver_name("spec.attacher", attacher, errors);
    } else if attacher.is_empty() {
        errors.push(FieldError::required("spec.attacher", ""));
    }
    let volume = text(new, "/spec/source/persistentVolumeName");
    if is_new && !volume.is_empty() {
        let field = "spec.source.persistentVolumeName";
        report_invalid(field, volume, validate_dns1123_subdomain(volume), errors);
    }
}

//! Validates the sources that volumes of pods and persistent volumes share: file systems, disks
//! and drivers.

use machinery::FieldError;
use machinery::names::{validate_dns1123_label, validate_dns1123_subdomain};
use serde_json::Value;

use super::volume_paths::validate_no_backsteps;
use crate::unstructured::{entries, flag, get, has, int, items, report_invalid, text};

const HOST_PATH_TYPES: [&str; 8] = [
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];
const MAX_DRIVER_NAME_LENGTH: usize = 63;
/// The bound on a volume's name and its portal together, if an initiator is named.
const MAX_INITIATOR_LENGTH: usize = 64;
const MAX_TENANT_LENGTH: usize = 64;
const REGISTRY_FORM: &str = "must be a host:port pair or multiple pairs separated by commas";
/// The fields that a source requires, beside what is looked at below.
const REQUIRED_FIELDS: [(&str, &[&str]); 15] = [
    ("awsElasticBlockStore", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("azureFile", &["secretName", "shareName"]),
    ("cephfs", &["monitors"]),
    ("cinder", &["volumeID"]),
    ("flexVolume", &["driver"]),
    ("gcePersistentDisk", &["pdName"]),
    ("glusterfs", &["endpoints", "path"]),
    ("nfs", &["server", "path"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("rbd", &["monitors", "image"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
    ("storageos", &["volumeName"]),
    ("vsphereVolume", &["volumePath"]),
];

/// The path by which Kubernetes' errors call a source of a volume at `field`.
pub(super) fn error_path(field: &str, source: &str) -> String {
    match source {
        "gcePersistentDisk" => format!("{field}.persistentDisk"),
        _ => format!("{field}.{source}"),
    }
}

/// Requires fields that are neither absent nor empty.
pub(super) fn require(field: &str, part: &Value, names: &[&str], errors: &mut Vec<FieldError>) {
    for name in names {
        let is_set = match get(part, &format!("/{name}")) {
            Value::String(text) => !text.is_empty(),
            Value::Array(list) => !list.is_empty(),
            value => !value.is_null(),
        };
        if !is_set {
            errors.push(FieldError::required(format!("{field}.{name}"), ""));
        }
    }
}

/// Validates a source; one of a persistent volume names the namespace of its Secret.
pub(super) fn validate(
    field: &str,
    name: &str,
    source: &Value,
    is_persistent: bool,
    errors: &mut Vec<FieldError>,
) {
    let required = REQUIRED_FIELDS.iter().find(|(other, _)| *other == name);
    require(
        field,
        source,
        required.map_or(&[], |(_, fields)| *fields),
        errors,
    );
    match name {
        "hostPath" => validate_host_path(field, source, errors),
        "local" => validate_local(field, source, errors),
        "awsElasticBlockStore" | "gcePersistentDisk" => {
            validate_byte(field, source, "partition", 1, errors);
        }
        "nfs" if !text(source, "/path").starts_with('/') => errors.push(FieldError::invalid(
            format!("{field}.path"),
            &text(source, "/path").into(),
            "must be an absolute path",
        )),
        "flocker" => validate_flocker(field, source, errors),
        "fc" => validate_fibre_channel(field, source, errors),
        "flexVolume" => validate_flex_options(field, source, errors),
        "quobyte" => validate_quobyte(field, source, errors),
        "storageos" => validate_storage_os(field, source, errors),
        "azureDisk" => validate_azure_disk(field, source, errors),
        "csi" => validate_csi(field, source, is_persistent, errors),
        _ => {}
    }
    if matches!(name, "cinder" | "storageos") && has(source, "/secretRef") {
        let names: &[&str] = if is_persistent {
            &["name", "namespace"]
        } else {
            &["name"]
        };
        let secret = get(source, "/secretRef");
        require(&format!("{field}.secretRef"), secret, names, errors);
    }
    if is_persistent && get(source, "/secretNamespace") == "" && name == "azureFile" {
        errors.push(FieldError::required(format!("{field}.secretNamespace"), ""));
    }
    if is_persistent && has(source, "/endpointsNamespace") && name == "glusterfs" {
        let namespace = text(source, "/endpointsNamespace");
        let result = match namespace {
            "" => Err("if the endpointnamespace is set, it must be a valid namespace name".into()),
            _ => validate_dns1123_label(namespace),
        };
        report_invalid(
            format!("{field}.endpointsNamespace"),
            namespace,
            result,
            errors,
        );
    }
}

/// Requires a number of one byte; the error text says from which number on.
fn validate_byte(field: &str, part: &Value, name: &str, from: u8, errors: &mut Vec<FieldError>) {
    if let Some(number) = int(part, &format!("/{name}"))
        && !(0..=255).contains(&number)
    {
        let detail = format!("must be between {from} and 255, inclusive");
        errors.push(FieldError::invalid(
            format!("{field}.{name}"),
            &number.into(),
            detail,
        ));
    }
}

fn validate_host_path(field: &str, source: &Value, errors: &mut Vec<FieldError>) {
    let path = text(source, "/path");
    if path.is_empty() {
        errors.push(FieldError::required(format!("{field}.path"), ""));
        return;
    }
    validate_no_backsteps(&format!("{field}.path"), path, errors);
    let kind = text(source, "/type");
    if !HOST_PATH_TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(
            format!("{field}.type"),
            &kind.into(),
            &HOST_PATH_TYPES,
        ));
    }
}

fn validate_local(field: &str, source: &Value, errors: &mut Vec<FieldError>) {
    require(field, source, &["path"], errors);
    validate_no_backsteps(&format!("{field}.path"), text(source, "/path"), errors);
}

fn validate_flocker(field: &str, source: &Value, errors: &mut Vec<FieldError>) {
    let (name, uuid) = (text(source, "/datasetName"), text(source, "/datasetUUID"));
    match (name.is_empty(), uuid.is_empty()) {
        (true, true) => {
            let detail = "one of datasetName and datasetUUID is required";
            errors.push(FieldError::required(field, detail));
        }
        (false, false) => {
            let detail = "datasetName and datasetUUID can not be specified simultaneously";
            errors.push(FieldError::invalid(field, &"resource".into(), detail));
        }
        _ => {}
    }
    if name.contains('/') {
        let path = format!("{field}.datasetName");
        errors.push(FieldError::invalid(
            path,
            &name.into(),
            "must not contain '/'",
        ));
    }
}

fn validate_fibre_channel(field: &str, source: &Value, errors: &mut Vec<FieldError>) {
    let (targets, ids) = (items(source, "/targetWWNs"), items(source, "/wwids"));
    let path = format!("{field}.targetWWNs");
    match (targets.is_empty(), ids.is_empty()) {
        (true, true) => {
            let detail = "must specify either targetWWNs or wwids, but not both";
            errors.push(FieldError::required(path, detail));
        }
        (false, false) => {
            let detail = "targetWWNs and wwids can not be specified simultaneously";
            errors.push(FieldError::invalid(path, &targets.into(), detail));
        }
        _ => {}
    }
    if targets.is_empty() {
        return;
    }
    if has(source, "/lun") {
        validate_byte(field, source, "lun", 0, errors);
    } else {
        let detail = "lun is required if targetWWNs is specified";
        errors.push(FieldError::required(format!("{field}.lun"), detail));
    }
}

fn validate_flex_options(field: &str, source: &Value, errors: &mut Vec<FieldError>) {
    for (option, _) in entries(source, "/options") {
        let namespace = option
            .split_once('/')
            .map_or(option, |(namespace, _)| namespace);
        let dotted = format!(".{}", namespace.to_lowercase());
        if dotted.ends_with(".kubernetes.io") || dotted.ends_with(".k8s.io") {
            let path = format!("{field}.options[{option}]");
            let detail = "kubernetes.io and k8s.io namespaces are reserved";
            errors.push(FieldError::invalid(path, &option.into(), detail));
        }
    }
}

fn validate_quobyte(field: &str, source: &Value, errors: &mut Vec<FieldError>) {
    let registry = text(source, "/registry");
    let path = format!("{field}.registry");
    if registry.is_empty() {
        errors.push(FieldError::required(path, REGISTRY_FORM));
    } else if text(source, "/tenant").len() > MAX_TENANT_LENGTH {
        let detail = "must be a UUID and may not exceed a length of 64 characters";
        errors.push(FieldError::required(format!("{field}.tenant"), detail));
    } else {
        for _ in registry.split(',').filter(|pair| !is_host_and_port(pair)) {
            errors.push(FieldError::invalid(&path, &registry.into(), REGISTRY_FORM));
        }
    }
    require(field, source, &["volume"], errors);
}

fn is_host_and_port(pair: &str) -> bool {
    match pair.rsplit_once(':') {
        Some((host, _)) => !host.contains(':') || host.starts_with('[') && host.ends_with(']'),
        None => false,
    }
}

fn validate_storage_os(field: &str, source: &Value, errors: &mut Vec<FieldError>) {
    for name in ["volumeName", "volumeNamespace"] {
        let value = text(source, &format!("/{name}"));
        if !value.is_empty() {
            let result = validate_dns1123_label(value);
            report_invalid(format!("{field}.{name}"), value, result, errors);
        }
    }
}

fn validate_azure_disk(field: &str, source: &Value, errors: &mut Vec<FieldError>) {
    let uri = text(source, "/diskURI");
    let (prefix, form) = match text(source, "/kind") {
        "" => return,
        "Managed" => (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        ),
        _ => (
            "https://",
            "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd",
        ),
    };
    if !uri.starts_with(prefix) {
        let path = format!("{field}.diskURI");
        errors.push(FieldError::not_supported(path, &uri.into(), &[form]));
    }
}

fn validate_csi(field: &str, source: &Value, is_persistent: bool, errors: &mut Vec<FieldError>) {
    let driver = text(source, "/driver");
    let path = format!("{field}.driver");
    if driver.is_empty() {
        errors.push(FieldError::required(&path, ""));
    }
    if driver.len() > MAX_DRIVER_NAME_LENGTH {
        errors.push(FieldError::too_long(&path, MAX_DRIVER_NAME_LENGTH));
    }
    let result = validate_dns1123_subdomain(&driver.to_lowercase());
    report_invalid(path, driver, result, errors);
    if !is_persistent {
        let secret = text(source, "/nodePublishSecretRef/name");
        if has(source, "/nodePublishSecretRef") && secret.is_empty() {
            let path = format!("{field}.nodePublishSecretRef.name");
            errors.push(FieldError::required(path, ""));
        } else if !secret.is_empty() {
            let result = validate_dns1123_subdomain(secret);
            report_invalid(format!("{field}.name"), secret, result, errors);
        }
        return;
    }
    require(field, source, &["volumeHandle"], errors);
    for name in [
        "controllerPublish",
        "controllerExpand",
        "nodePublish",
        "nodeExpand",
    ] {
        let path = format!("{field}.{name}SecretRef");
        let reference = get(source, &format!("/{name}SecretRef"));
        for (name, check) in [
            (
                "name",
                validate_dns1123_subdomain as fn(&str) -> Result<(), String>,
            ),
            ("namespace", validate_dns1123_label),
        ] {
            let value = text(reference, &format!("/{name}"));
            if !value.is_empty() {
                report_invalid(format!("{path}.{name}"), value, check(value), errors);
            } else if !reference.is_null() {
                errors.push(FieldError::required(format!("{path}.{name}"), ""));
            }
        }
    }
}

/// Validates an iSCSI source at `source_path` of the volume `name`. The field `error_field`, with its value, is
/// that of the error for a name that is too long with its portal.
pub(super) fn validate_iscsi(
    source_path: &str,
    source: &Value,
    name: &str,
    error_field: (&str, &str),
    errors: &mut Vec<FieldError>,
) {
    let portal = text(source, "/targetPortal");
    require(source_path, source, &["targetPortal"], errors);
    let has_initiator = has(source, "/initiatorName");
    if has_initiator && name.len() + 1 + portal.len() > MAX_INITIATOR_LENGTH {
        let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
        errors.push(FieldError::invalid(
            error_field.0,
            &error_field.1.into(),
            detail,
        ));
    }
    let target = text(source, "/iqn");
    if target.is_empty() {
        errors.push(FieldError::required(format!("{source_path}.iqn"), ""));
    } else {
        report_invalid(
            format!("{source_path}.iqn"),
            target,
            validate_iscsi_name(target),
            errors,
        );
    }
    validate_byte(source_path, source, "lun", 0, errors);
    let authenticates = ["/chapAuthDiscovery", "/chapAuthSession"].iter();
    if authenticates.clone().any(|path| flag(source, path)) && !has(source, "/secretRef") {
        errors.push(FieldError::required(format!("{source_path}.secretRef"), ""));
    }
    if has_initiator {
        let initiator = text(source, "/initiatorName");
        let result = validate_iscsi_name(initiator);
        report_invalid(
            format!("{source_path}.initiatorname"),
            initiator,
            result,
            errors,
        );
    }
}

fn validate_iscsi_name(name: &str) -> Result<(), String> {
    let has_suffix = |length: usize| {
        let suffix = name.get(4..).unwrap_or("");
        suffix.len() == length && suffix.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    let is_valid = match name.get(..3) {
        Some("iqn") => is_iscsi_qualified_name(name),
        Some("eui") => has_suffix(16),
        Some("naa") => has_suffix(32),
        _ => return Err("must be valid format starting with iqn, eui, or naa".into()),
    };
    if is_valid {
        Ok(())
    } else {
        Err("must be valid format".into())
    }
}

/// `iqn.YYYY-MM.REVERSED-DOMAIN:NAME`
fn is_iscsi_qualified_name(name: &str) -> bool {
    let Some((date, rest)) = name
        .strip_prefix("iqn.")
        .and_then(|rest| rest.split_once('.'))
    else {
        return false;
    };
    let Some((authority, unique)) = rest.split_once(':') else {
        return false;
    };
    let digits = |text: &str, n: usize| text.len() == n && text.bytes().all(|b| b.is_ascii_digit());
    let is_date = date
        .split_once('-')
        .is_some_and(|(year, month)| digits(year, 4) && digits(month, 2));
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
    is_date
        && !authority.is_empty()
        && authority.chars().all(is_allowed)
        && !unique.is_empty()
        && !unique
            .chars()
            .any(|c| ",;*&$|".contains(c) || c.is_whitespace())
}

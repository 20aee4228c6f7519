//! Validates where a container mounts volumes, and which block devices it uses.

use std::collections::{HashMap, HashSet};

use machinery::FieldError;
use serde_json::Value;

use super::volume_paths::{has_backsteps, validate_descending_path};
use super::volumes::MountableVolumes;
use crate::unstructured::{flag, has, index_path, items, text};

const PROPAGATIONS: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];
const RECURSIVE_MODES: [&str; 3] = ["Disabled", "Enabled", "IfPossible"];

/// Validates `volumeMounts` and `volumeDevices` of a container at `field`.
pub(super) fn validate(
    field: &str,
    container: &Value,
    volumes: &MountableVolumes<'_>,
    errors: &mut Vec<FieldError>,
) {
    let paths_by_name = |list: &str, path: &str| -> HashMap<String, String> {
        let entries = items(container, &format!("/{list}")).iter();
        let entries = entries.map(|entry| (text(entry, "/name"), text(entry, path)));
        entries.map(|(a, b)| (a.to_owned(), b.to_owned())).collect()
    };
    let devices = paths_by_name("volumeDevices", "/devicePath");
    let mounts = paths_by_name("volumeMounts", "/mountPath");
    let mut paths = HashSet::new();
    let list = format!("{field}.volumeMounts");
    for (i, mount) in items(container, "/volumeMounts").iter().enumerate() {
        let mount_path = index_path(&list, i);
        let (name, path) = (text(mount, "/name"), text(mount, "/mountPath"));
        if name.is_empty() {
            errors.push(FieldError::required(format!("{mount_path}.name"), ""));
        }
        if !volumes.contains_key(name) {
            errors.push(FieldError::not_found(
                format!("{mount_path}.name"),
                &name.into(),
            ));
        }
        if path.is_empty() {
            errors.push(FieldError::required(format!("{mount_path}.mountPath"), ""));
        }
        let at_path = format!("{mount_path}.mountPath");
        let mut refuse = |field: String, value: &str, detail: &str| {
            errors.push(FieldError::invalid(field, &value.into(), detail));
        };
        if !paths.insert(path) {
            refuse(at_path.clone(), path, "must be unique");
        }
        if devices.contains_key(name) {
            let detail = "must not already exist in volumeDevices";
            refuse(format!("{mount_path}.name"), name, detail);
        }
        if devices.values().any(|device| device == path) {
            refuse(
                at_path,
                path,
                "must not already exist as a path in volumeDevices",
            );
        }
        validate_sub_path(&list, &mount_path, mount, errors);
        let is_privileged = flag(container, "/securityContext/privileged");
        validate_propagation(&list, mount, is_privileged, errors);
    }
    validate_devices(field, container, volumes, &mounts, errors);
}

/// Kubernetes gives the paths of some fields of a mount without its index: `list`, not `mount_path`.
fn validate_sub_path(list: &str, mount_path: &str, mount: &Value, errors: &mut Vec<FieldError>) {
    let (path, expression) = (text(mount, "/subPath"), text(mount, "/subPathExpr"));
    validate_descending_path(&format!("{list}.subPath"), path, errors);
    if !path.is_empty() && !expression.is_empty() {
        errors.push(FieldError::invalid(
            format!("{mount_path}.subPathExpr"),
            &expression.into(),
            "subPathExpr and subPath are mutually exclusive",
        ));
    }
    validate_descending_path(&format!("{list}.subPathExpr"), expression, errors);
}

fn validate_propagation(
    list: &str,
    mount: &Value,
    is_privileged: bool,
    errors: &mut Vec<FieldError>,
) {
    let path = format!("{list}.mountPropagation");
    let propagation = text(mount, "/mountPropagation");
    let is_propagated = has(mount, "/mountPropagation");
    if is_propagated && !PROPAGATIONS.contains(&propagation) {
        let error = FieldError::not_supported(&path, &propagation.into(), &PROPAGATIONS);
        errors.push(error);
    }
    if propagation == "Bidirectional" && !is_privileged {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        errors.push(FieldError::forbidden(path, detail));
    }
    let path = format!("{list}.recursiveReadOnly");
    match text(mount, "/recursiveReadOnly") {
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if !flag(mount, "/readOnly") {
                let detail = "may only be specified when readOnly is true";
                errors.push(FieldError::forbidden(&path, detail));
            }
            if is_propagated && propagation != "None" {
                let detail = "may only be specified when mountPropagation is None or not specified";
                errors.push(FieldError::forbidden(path, detail));
            }
        }
        mode if has(mount, "/recursiveReadOnly") => {
            errors.push(FieldError::not_supported(
                path,
                &mode.into(),
                &RECURSIVE_MODES,
            ));
        }
        _ => {}
    }
}

fn validate_devices(
    field: &str,
    container: &Value,
    volumes: &MountableVolumes<'_>,
    mounts: &HashMap<String, String>,
    errors: &mut Vec<FieldError>,
) {
    let (mut names, mut paths) = (HashSet::new(), HashSet::new());
    for (i, device) in items(container, "/volumeDevices").iter().enumerate() {
        let device_path = index_path(&format!("{field}.volumeDevices"), i);
        let (name_path, path_path) = (
            format!("{device_path}.name"),
            format!("{device_path}.devicePath"),
        );
        let (name, path) = (text(device, "/name"), text(device, "/devicePath"));
        if name.is_empty() {
            errors.push(FieldError::required(&name_path, ""));
        }
        match volumes.get(name) {
            None => errors.push(FieldError::not_found(&name_path, &name.into())),
            Some(volume) if has(volume, "/persistentVolumeClaim") || has(volume, "/ephemeral") => {}
            Some(_) => errors.push(FieldError::invalid(
                &name_path,
                &name.into(),
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
            )),
        }
        if path.is_empty() {
            errors.push(FieldError::required(&path_path, ""));
        }
        let mut refuse = |field: &str, value: &str, detail: &str| {
            errors.push(FieldError::invalid(field, &value.into(), detail));
        };
        if !name.is_empty() && !names.insert(name) {
            refuse(&name_path, name, "must be unique");
        }
        if has_backsteps(path) {
            refuse(&path_path, path, "can not contain backsteps ('..')");
        } else if !paths.insert(path) {
            refuse(&path_path, path, "must be unique");
        }
        if mounts.contains_key(name) {
            refuse(&name_path, name, "must not already exist in volumeMounts");
        }
        if mounts.values().any(|mount| mount == path) {
            refuse(
                &path_path,
                path,
                "must not already exist as a path in volumeMounts",
            );
        }
    }
}

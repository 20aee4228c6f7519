//! Validates the volumes of pods.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use machinery::names::{validate_dns1123_label, validate_dns1123_subdomain};
use machinery::{FieldError, Quantity};
use serde_json::{Value, json};

use super::persistent_volume_claim::validate_claim_template;
use super::validated_pod_spec::ValidatedPodSpec;
use super::volume_paths::validate_descending_path;
use super::{projected_volumes, volume_files, volume_sources};
use crate::unstructured::{get, has, index_path, items, report_invalid, text};

/// The volumes that containers may use, by name.
pub(super) type MountableVolumes<'a> = HashMap<&'a str, &'a Value>;

/// The volume that a StatefulSet makes of a claim template.
pub(super) static CLAIM: LazyLock<Value> = LazyLock::new(|| json!({"persistentVolumeClaim": {}}));

/// The sources of a volume, in the order in which Kubernetes looks at them: the first counts.
const SOURCES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];
/// Sources that Kubernetes' error for a second source of a volume names otherwise.
const SECOND_SOURCE_NAMES: [(&str, &str); 2] =
    [("cephfs", "cephFS"), ("downwardAPI", "downwarAPI")];

/// Validates the volumes of a pod spec; returns the valid ones.
pub(super) fn validate_all<'a>(
    pod_spec: ValidatedPodSpec<'a>,
    errors: &mut Vec<FieldError>,
) -> MountableVolumes<'a> {
    let mut mountable = MountableVolumes::new();
    let volumes = items(pod_spec.spec, "/volumes");
    let created = created_claims(pod_spec);
    for (i, volume) in volumes.iter().enumerate() {
        let path = index_path(&pod_spec.at("volumes"), i);
        let at_name = format!("{path}.name");
        let name = text(volume, "/name");
        let before = errors.len();
        validate(&path, volume, pod_spec, errors);
        if name.is_empty() {
            errors.push(FieldError::required(&at_name, ""));
        } else {
            report_invalid(&at_name, name, validate_dns1123_label(name), errors);
        }
        if mountable.contains_key(name) {
            errors.push(FieldError::duplicate(at_name, &name.into()));
        }
        if errors.len() == before {
            mountable.insert(name, volume);
        }
        let claim = text(volume, "/persistentVolumeClaim/claimName");
        if created.contains(claim) {
            errors.push(FieldError::invalid(
                format!("{path}.persistentVolumeClaim.claimName"),
                &claim.into(),
                "must not reference a PVC that gets created for an ephemeral volume",
            ));
        }
    }
    mountable
}

/// The names of the claims that are created with the pod, for its ephemeral volumes.
fn created_claims(pod_spec: ValidatedPodSpec<'_>) -> HashSet<String> {
    let pod = pod_spec.pod.map_or("", |pod| text(pod, "/metadata/name"));
    let volumes = items(pod_spec.spec, "/volumes").iter();
    let ephemeral = volumes.filter(|v| !pod.is_empty() && has(v, "/ephemeral"));
    ephemeral
        .map(|v| format!("{pod}-{}", text(v, "/name")))
        .collect()
}

/// Validates a volume at `field`. One without a source is an empty directory.
fn validate(
    field: &str,
    volume: &Value,
    pod_spec: ValidatedPodSpec<'_>,
    errors: &mut Vec<FieldError>,
) {
    let is_set = |source: &&&str| has(volume, &format!("/{source}"));
    let mut present = SOURCES.iter().filter(is_set);
    let Some(first) = present.next() else {
        return;
    };
    let source = get(volume, &format!("/{first}"));
    let path = volume_sources::error_path(field, first);
    match *first {
        "emptyDir" => {
            let limit = get(source, "/sizeLimit");
            if Quantity::from_value(limit).is_ok_and(Quantity::is_negative) {
                let detail = "SizeLimit field must be a valid resource quantity";
                errors.push(FieldError::forbidden(format!("{path}.sizeLimit"), detail));
            }
        }
        "secret" | "configMap" => volume_files::validate_keyed(&path, first, source, errors),
        "downwardAPI" => volume_files::validate_downward(&path, source, errors),
        "projected" => projected_volumes::validate(&path, source, pod_spec, errors),
        "persistentVolumeClaim" => volume_sources::require(&path, source, &["claimName"], errors),
        "gitRepo" => {
            volume_sources::require(&path, source, &["repository"], errors);
            let directory = text(source, "/directory");
            validate_descending_path(&format!("{path}.directory"), directory, errors);
        }
        "ephemeral" => validate_ephemeral(field, volume, pod_spec.pod, errors),
        "image" => {
            if pod_spec.pod.is_some() {
                volume_sources::require(&path, source, &["reference"], errors);
            }
        }
        "iscsi" => {
            let name = text(volume, "/name");
            let error_field = (&*format!("{field}.name"), name);
            volume_sources::validate_iscsi(&path, source, name, error_field, errors);
        }
        name => volume_sources::validate(&path, name, source, false, errors),
    }
    for extra in present {
        let renamed = SECOND_SOURCE_NAMES.iter().find(|(name, _)| name == extra);
        let name = renamed.map_or(*extra, |(_, name)| *name);
        let detail = "may not specify more than 1 volume type";
        errors.push(FieldError::forbidden(format!("{field}.{name}"), detail));
    }
}

/// Validates the claim that is created with a pod for one of its volumes.
fn validate_ephemeral(
    field: &str,
    volume: &Value,
    pod: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let path = format!("{field}.ephemeral.volumeClaimTemplate");
    let template = get(volume, "/ephemeral/volumeClaimTemplate");
    if template.is_null() {
        errors.push(FieldError::required(path, ""));
    } else {
        validate_claim_template(&path, template, errors);
    }
    let pod = pod.map_or("", |pod| text(pod, "/metadata/name"));
    let name = text(volume, "/name");
    if !pod.is_empty() && !name.is_empty() {
        let claim = format!("{pod}-{name}");
        let result = validate_dns1123_subdomain(&claim)
            .map_err(|detail| format!("PVC name {claim:?}: {detail}"));
        report_invalid(format!("{field}.name"), name, result, errors);
    }
}

//! Warns of volume plugins that are deprecated or gone.

use serde_json::Value;

use super::byte_amounts::claim_spec;
use super::virtual_paths::overlapping_paths;
use crate::unstructured::{get, has, items};

/// The plugins of pods, with what Kubernetes says of each.
const POD_PLUGINS: [(&str, &str); 9] = [
    ("photonPersistentDisk", PHOTON),
    (
        "gitRepo",
        "deprecated in v1.11, and disabled by default in v1.33+",
    ),
    ("scaleIO", SCALE_IO),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", STORAGE_OS),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", GLUSTERFS),
    ("cephfs", CEPH),
    ("rbd", CEPH),
];
/// The plugins of persistent volumes.
const PERSISTENT_VOLUME_PLUGINS: [(&str, &str); 6] = [
    ("cephfs", CEPH),
    ("photonPersistentDisk", PHOTON),
    ("rbd", CEPH),
    ("scaleIO", SCALE_IO),
    ("storageos", STORAGE_OS),
    ("glusterfs", GLUSTERFS),
];
const PHOTON: &str = "deprecated in v1.11, non-functional in v1.16+";
const SCALE_IO: &str = "deprecated in v1.16, non-functional in v1.22+";
const STORAGE_OS: &str = "deprecated in v1.22, non-functional in v1.25+";
const GLUSTERFS: &str = "deprecated in v1.25, non-functional in v1.26+";
const CEPH: &str = "deprecated in v1.28, non-functional in v1.31+";

/// Warns of the volumes of a pod spec at `field`.
pub(super) fn pod_volumes(field: &str, spec: &Value, out: &mut Vec<String>) {
    let volumes = items(spec, "/volumes");
    for (i, volume) in volumes.iter().enumerate() {
        let path = format!("{field}.volumes[{i}]");
        warn_of_plugins(&path, volume, &POD_PLUGINS, out);
        let template = "ephemeral.volumeClaimTemplate.spec";
        let claim = get(volume, "/ephemeral/volumeClaimTemplate/spec");
        claim_spec(&format!("{path}.{template}"), claim, out);
    }
    for volume in volumes {
        overlapping_paths(volume, out);
    }
}

/// Warns of the plugin of a persistent volume.
pub(super) fn persistent_volume_plugins(spec: &Value, out: &mut Vec<String>) {
    warn_of_plugins("spec", spec, &PERSISTENT_VOLUME_PLUGINS, out);
}

fn warn_of_plugins(field: &str, source: &Value, plugins: &[(&str, &str)], out: &mut Vec<String>) {
    for (plugin, detail) in plugins {
        if has(source, &format!("/{plugin}")) {
            out.push(format!("{field}.{plugin}: {detail}"));
        }
    }
}

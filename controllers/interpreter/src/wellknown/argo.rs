//! Third-party rules of Argo's Workflow.

use openapi::karmada::Dependency;
use serde_json::{Map, Value, json};

use super::Rules;
use super::pods::{core, count, needs};
use super::tree::{Error, at, keep_in_spec, list, needed, put, put_in_spec, said, text};
use crate::native::Replicas;

pub(super) static WORKFLOW: Rules = Rules {
    healthy: Some(|observed| {
        let phase = text(observed, "/status/phase");
        Ok(phase.is_some_and(|phase| !["", "Error", "Failed"].contains(&phase)))
    }),
    replicas: Some(|workflow| {
        let mut pod = Map::new();
        for field in ["affinity", "nodeSelector", "tolerations"] {
            if let Some(value) = at(workflow, &format!("/spec/{field}")) {
                pod.insert(field.into(), value.clone());
            }
        }
        Ok(Replicas {
            count: count(workflow, "/spec/parallelism", Some(1.0))?,
            requirements: needs(&json!({ "spec": pod }))?,
        })
    }),
    revise: Some(|copy, replicas| put_in_spec(copy, "parallelism", replicas.into())),
    retain: Some(|desired, observed| {
        keep_in_spec(desired, observed, "suspend")?;
        if let Some(status) = at(observed, "/status") {
            put(desired, "status", status.clone());
        }
        Ok(())
    }),
    dependencies: Some(dependencies),
    ..Rules::NONE
};

/// The fields of a volume that name a Secret. Karmada's rule reads `secret.name`, not
/// `secret.secretName`.
const SECRETS: [&str; 10] = [
    "/azureFile/secretName",
    "/cephfs/secretRef/name",
    "/cinder/secretRef/name",
    "/csi/nodePublishSecretRef/name",
    "/flexVolume/secretRef/name",
    "/iscsi/secretRef/name",
    "/rbd/secretRef/name",
    "/scaleIO/secretRef/name",
    "/secret/name",
    "/storageos/secretRef/name",
];

fn dependencies(workflow: &Value) -> Result<Vec<Dependency>, Error> {
    let mut found = Vec::new();
    let mut add_dependency = |kind: &str, from: &Value, pointer: &str| {
        found.extend(said(from, pointer).map(|name| core(workflow, kind, name)));
    };
    add_dependency(
        "ServiceAccount",
        workflow,
        "/spec/executor/serviceAccountName",
    );
    let account = "/spec/serviceAccountName";
    if text(workflow, account) != Some("default") {
        add_dependency("ServiceAccount", workflow, account);
    }
    for claim in list(workflow, "/spec/volumeClaimTemplates") {
        needed(claim, "/metadata", "an object")?;
        add_dependency("PersistentVolumeClaim", claim, "/metadata/name");
    }
    for secret in list(workflow, "/spec/imagePullSecrets") {
        add_dependency("Secret", secret, "/name");
    }
    for volume in list(workflow, "/spec/volumes") {
        add_dependency("ConfigMap", volume, "/configMap/name");
        add_dependency(
            "PersistentVolumeClaim",
            volume,
            "/persistentVolumeClaim/claimName",
        );
        for source in list(volume, "/projected/sources") {
            add_dependency("ConfigMap", source, "/configMap/name");
            add_dependency("Secret", source, "/secret/name");
        }
        for pointer in SECRETS {
            add_dependency("Secret", volume, pointer);
        }
    }
    Ok(found)
}

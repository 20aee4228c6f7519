//! Third-party rules of Argo's Workflow.

use karmada_api::DependentObjectReference;
use serde_json::{Map, Value, json};

use super::ThirdPartyKindRules;
use super::json_map::{
    Error, list_at, non_empty_string_at, required_value, retain_spec_field, set_field,
    set_spec_field, string_at, value_at,
};
use super::pod_templates::{core_dependency, count_at, pod_template_requirements};
use crate::native::TemplateReplicas;

pub(super) static WORKFLOW: ThirdPartyKindRules = ThirdPartyKindRules {
    interpret_health: Some(|observed| {
        let phase = string_at(observed, "/status/phase");
        Ok(phase.is_some_and(|phase| !["", "Error", "Failed"].contains(&phase)))
    }),
    replicas: Some(|workflow| {
        let mut pod = Map::new();
        for field in ["affinity", "nodeSelector", "tolerations"] {
            if let Some(value) = value_at(workflow, &format!("/spec/{field}")) {
                pod.insert(field.into(), value.clone());
            }
        }
        Ok(TemplateReplicas {
            count: count_at(workflow, "/spec/parallelism", Some(1.0))?,
            requirements: pod_template_requirements(&json!({ "spec": pod }))?,
        })
    }),
    revise_replica: Some(|copy, replicas| set_spec_field(copy, "parallelism", replicas.into())),
    retain: Some(|desired, observed| {
        retain_spec_field(desired, observed, "suspend")?;
        if let Some(status) = value_at(observed, "/status") {
            set_field(desired, "status", status.clone());
        }
        Ok(())
    }),
    dependencies: Some(workflow_dependencies),
    ..ThirdPartyKindRules::NONE
};

/// The fields of a volume that name a Secret. Karmada's rule reads `secret.name`, not
/// `secret.secretName`.
const VOLUME_SECRET_POINTERS: [&str; 10] = [
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

fn workflow_dependencies(workflow: &Value) -> Result<Vec<DependentObjectReference>, Error> {
    let mut dependencies = Vec::new();
    let mut add_dependency = |kind: &str, from: &Value, pointer: &str| {
        dependencies.extend(
            non_empty_string_at(from, pointer).map(|name| core_dependency(workflow, kind, name)),
        );
    };
    add_dependency(
        "ServiceAccount",
        workflow,
        "/spec/executor/serviceAccountName",
    );
    let account = "/spec/serviceAccountName";
    if string_at(workflow, account) != Some("default") {
        add_dependency("ServiceAccount", workflow, account);
    }
    for claim in list_at(workflow, "/spec/volumeClaimTemplates") {
        required_value(claim, "/metadata", "an object")?;
        add_dependency("PersistentVolumeClaim", claim, "/metadata/name");
    }
    for secret in list_at(workflow, "/spec/imagePullSecrets") {
        add_dependency("Secret", secret, "/name");
    }
    for volume in list_at(workflow, "/spec/volumes") {
        add_dependency("ConfigMap", volume, "/configMap/name");
        add_dependency(
            "PersistentVolumeClaim",
            volume,
            "/persistentVolumeClaim/claimName",
        );
        for source in list_at(volume, "/projected/sources") {
            add_dependency("ConfigMap", source, "/configMap/name");
            add_dependency("Secret", source, "/secret/name");
        }
        for pointer in VOLUME_SECRET_POINTERS {
            add_dependency("Secret", volume, pointer);
        }
    }
    Ok(dependencies)
}

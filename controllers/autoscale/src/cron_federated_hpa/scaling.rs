//! Scales the target of a CronFederatedHPA.

use client::{Api, Patch, ResourcePath, WriteOptions};
use karmada_api::cron_federated_hpa::{CronFederatedHpaRule, ScaleTargetReference};
use karmada_api::resources::FEDERATED_HPAS;
use serde_json::{Map, Value, json};

use crate::scale_target::resolve_resource;

const FEDERATED_HPA_API_VERSION: &str = "autoscaling.karmada.io/v1alpha1";
const FEDERATED_HPA_KIND: &str = "FederatedHPA";

/// Brings the target to what the rule says, and writes nothing if it is there. `owner` is the
/// CronFederatedHPA in errors.
pub(crate) async fn scale(
    api: &dyn Api,
    namespace: &str,
    owner: &str,
    target: &ScaleTargetReference,
    rule: &CronFederatedHpaRule,
) -> Result<(), String> {
    if target.api_version != FEDERATED_HPA_API_VERSION {
        return scale_workload(api, namespace, target, rule).await;
    }
    if target.kind != FEDERATED_HPA_KIND {
        let ScaleTargetReference {
            api_version, kind, ..
        } = target;
        return Err(format!(
            "CronFederatedHPA({namespace}/{owner}) do not support scale target {api_version}/{kind}"
        ));
    }
    scale_federated_hpa(api, namespace, &target.name, rule).await
}

/// Sets the bounds of a FederatedHPA.
async fn scale_federated_hpa(
    api: &dyn Api,
    namespace: &str,
    name: &str,
    rule: &CronFederatedHpaRule,
) -> Result<(), String> {
    let at = ResourcePath::object(&FEDERATED_HPAS, namespace, name);
    let current = api.get(at).await.map_err(|e| e.to_string())?;
    let current = current.value().map_err(|e| e.to_string())?;
    let bounds = [
        ("minReplicas", rule.target_min_replicas),
        ("maxReplicas", rule.target_max_replicas),
    ];
    let mut spec = Map::new();
    for (field, value) in bounds {
        if let Some(value) = value.filter(|value| current["spec"][field] != *value) {
            spec.insert(field.into(), value.into());
        }
    }
    if spec.is_empty() {
        return Ok(());
    }
    patch(api, at, json!({"spec": spec})).await
}

/// Sets the replicas of a workload through its subresource `scale`.
async fn scale_workload(
    api: &dyn Api,
    namespace: &str,
    target: &ScaleTargetReference,
    rule: &CronFederatedHpaRule,
) -> Result<(), String> {
    let Some(replicas) = rule.target_replicas else {
        return Err(format!("targetReplicas of rule {:?} is not set", rule.name));
    };
    let resource = resolve_resource(api, target).await;
    let Some(resource) = resource.map_err(|e| e.to_string())? else {
        let ScaleTargetReference {
            api_version, kind, ..
        } = target;
        return Err(format!(
            "no matches for kind \"{kind}\" in version \"{api_version}\""
        ));
    };
    let at = ResourcePath::object(&resource, namespace, &target.name).subresource("scale");
    let scale = api.get(at).await.map_err(|e| e.to_string())?;
    let scale = scale.value().map_err(|e| e.to_string())?;
    // Replicas of zero are left out of a Scale.
    if scale["spec"]["replicas"].as_i64().unwrap_or(0) == i64::from(replicas) {
        return Ok(());
    }
    patch(api, at, json!({"spec": {"replicas": replicas}})).await
}

async fn patch(api: &dyn Api, at: ResourcePath<'_>, body: Value) -> Result<(), String> {
    let options = WriteOptions::default();
    let written = api.patch(at, Patch::Merge(body), &options).await;
    written.map(drop).map_err(|e| e.to_string())
}

//! The strategy of CustomResourceDefinitions: records stored versions, and lets deletion wait
//! for the custom resources to be deleted (`apiextensions-apiserver/pkg/registry`).

use machinery::conditions::set_json_condition;
use serde_json::{Value, json};

use super::{DEFAULT_STRATEGY, GenerationPolicy, RestStrategy};

const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

pub(super) static STRATEGY: RestStrategy = RestStrategy {
    generation: GenerationPolicy::Spec,
    create,
    update,
    begin_delete,
    status_depends_on_spec: true,
    ..DEFAULT_STRATEGY
};

fn storage_version(crd: &Value) -> Option<&Value> {
    let versions = crd["spec"]["versions"].as_array()?;
    versions
        .iter()
        .find(|v| v["storage"] == true)
        .map(|v| &v["name"])
}

fn create(new: &mut Value) {
    let stored: Vec<Value> = storage_version(new).cloned().into_iter().collect();
    new["status"] = json!({
        "conditions": null,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": stored,
    });
}

fn update(new: &mut Value, _old: &Value) {
    let Some(version) = storage_version(new).cloned() else {
        return;
    };
    if !new["status"]["storedVersions"].is_array() {
        new["status"]["storedVersions"] = json!([]);
    }
    if let Some(stored) = new["status"]["storedVersions"].as_array_mut()
        && !stored.contains(&version)
    {
        stored.push(version);
    }
}

fn begin_delete(new: &mut Value, now: &str) {
    // Kubernetes does not count the deletion of a definition as a change.
    if let Some(generation) = new["metadata"]["generation"].as_i64() {
        new["metadata"]["generation"] = (generation - 1).into();
    }
    if let Some(meta) = new["metadata"].as_object_mut() {
        meta.remove("deletionGracePeriodSeconds");
    }
    if !new["metadata"]["finalizers"].is_array() {
        new["metadata"]["finalizers"] = json!([]);
    }
    if let Some(finalizers) = new["metadata"]["finalizers"].as_array_mut()
        && !finalizers.iter().any(|f| f == CLEANUP_FINALIZER)
    {
        finalizers.push(CLEANUP_FINALIZER.into());
    }
    let terminating = json!({
        "type": "Terminating", "status": "True", "lastTransitionTime": now,
        "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    });
    set_json_condition(&mut new["status"]["conditions"], terminating);
}

//! What of a template does not belong into a member cluster, and the record of
//! what does.
//!
//! Enters: a manifest. Leaves: the same manifest without the fields a cluster
//! fills in itself. Pure and idempotent. Rules of Karmada's
//! `resourceinterpreter/default/native/prune` and `util/annotation.go`.

use serde_json::{Map, Value};

use crate::karmada::labels::{MANAGED_ANNOTATIONS, MANAGED_LABELS};

const METADATA: [&str; 10] = [
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
    "ownerReferences",
    "finalizers",
];

/// Removes what the member cluster decides. `job_ttl` also drops a Job's
/// `ttlSecondsAfterFinished`, so that a finished Job is not made again and again.
pub fn prune(manifest: &mut Value, job_ttl: bool) {
    for field in METADATA {
        remove(manifest, "/metadata", field);
    }
    remove(manifest, "", "status");
    let kind = manifest["kind"].as_str().unwrap_or("").to_owned();
    match kind.as_str() {
        "Deployment" => {
            for key in ["revision", "revision-history"] {
                let key = format!("deployment.kubernetes.io/{key}");
                remove(manifest, "/metadata/annotations", &key);
            }
        }
        "Job" => job(manifest, job_ttl),
        "Secret" => service_account_token(manifest),
        "ServiceAccount" => token_secrets(manifest),
        "Service" => {
            let address = manifest.pointer("/spec/clusterIP");
            // A headless service is the template's wish.
            if address
                .and_then(Value::as_str)
                .is_some_and(|ip| ip != "None")
            {
                remove(manifest, "/spec", "clusterIP");
                remove(manifest, "/spec", "clusterIPs");
            }
        }
        "PersistentVolumeClaim" => {
            remove(
                manifest,
                "/metadata/annotations",
                "volume.kubernetes.io/selected-node",
            );
        }
        _ => {}
    }
}

fn job(manifest: &mut Value, ttl: bool) {
    let manual = manifest.pointer("/spec/manualSelector") == Some(&Value::Bool(true));
    if !manual {
        for key in ["controller-uid", "batch.kubernetes.io/controller-uid"] {
            remove(manifest, "/spec/selector/matchLabels", key);
            remove(manifest, "/spec/template/metadata/labels", key);
        }
        for key in ["job-name", "batch.kubernetes.io/job-name"] {
            remove(manifest, "/spec/template/metadata/labels", key);
        }
    }
    if ttl {
        remove(manifest, "/spec", "ttlSecondsAfterFinished");
    }
}

fn service_account_token(manifest: &mut Value) {
    if manifest["type"].as_str() != Some("kubernetes.io/service-account-token") {
        return;
    }
    remove(
        manifest,
        "/metadata/annotations",
        "kubernetes.io/service-account.uid",
    );
    if let Some(secret) = manifest.as_object_mut() {
        secret.insert("data".into(), Value::Null);
    }
}

fn token_secrets(manifest: &mut Value) {
    let name = manifest
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or("");
    let prefix = format!("{name}-token-");
    if let Some(Value::Array(secrets)) = manifest.get_mut("secrets") {
        secrets.retain(|s| !s["name"].as_str().unwrap_or("").starts_with(&prefix));
    }
}

fn remove(manifest: &mut Value, parent: &str, field: &str) {
    if let Some(Value::Object(fields)) = manifest.pointer_mut(parent) {
        fields.remove(field);
    }
}

/// Writes down which labels and annotations the manifest brings, so that others
/// found in the member can be told apart. The two records list themselves.
pub fn record_managed(manifest: &mut Value) {
    let Some(metadata) = child(manifest, "metadata") else {
        return;
    };
    let labels = keys(metadata.get("labels"));
    let mut annotations = keys(metadata.get("annotations"));
    annotations.extend([MANAGED_ANNOTATIONS.to_owned(), MANAGED_LABELS.to_owned()]);
    annotations.sort_unstable();
    annotations.dedup();
    let mut metadata = Value::Object(std::mem::take(metadata));
    if let Some(map) = child(&mut metadata, "annotations") {
        map.insert(MANAGED_LABELS.into(), labels.join(",").into());
        map.insert(MANAGED_ANNOTATIONS.into(), annotations.join(",").into());
    }
    if let Some(fields) = manifest.as_object_mut() {
        fields.insert("metadata".into(), metadata);
    }
}

/// Keys in order (the map is sorted).
fn keys(map: Option<&Value>) -> Vec<String> {
    let map = map.and_then(Value::as_object);
    let mut keys: Vec<String> = map.into_iter().flat_map(Map::keys).cloned().collect();
    keys.sort_unstable();
    keys
}

fn child<'a>(value: &'a mut Value, name: &str) -> Option<&'a mut Map<String, Value>> {
    let child = value.as_object_mut()?.entry(name).or_insert(Value::Null);
    if child.is_null() {
        *child = Value::Object(Map::new());
    }
    child.as_object_mut()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(mut manifest: Value, expect: Value) {
        prune(&mut manifest, true);
        assert_eq!(manifest, expect);
        prune(&mut manifest, true);
        assert_eq!(manifest, expect, "pruning twice");
    }

    // proves: PRU-metadata, PRU-deployment, PRU-job, PRU-service, PRU-token, PRU-account, PRU-claim
    #[test]
    fn what_the_member_decides_is_removed() {
        check(
            json!({"kind": "X", "metadata": {"name": "a", "uid": "u", "resourceVersion": "1", "generation": 2,
                "ownerReferences": [], "finalizers": ["f"], "labels": {"a": "b"}}, "status": {}, "spec": {"a": 1}}),
            json!({"kind": "X", "metadata": {"name": "a", "labels": {"a": "b"}}, "spec": {"a": 1}}),
        );
        check(
            json!({"kind": "Deployment", "metadata": {"annotations": {"deployment.kubernetes.io/revision": "3", "x": "y"}}}),
            json!({"kind": "Deployment", "metadata": {"annotations": {"x": "y"}}}),
        );
        let labels = json!({"controller-uid": "u", "job-name": "j", "app": "x"});
        let job = |manual: bool| {
            json!({"kind": "Job", "metadata": {}, "spec": {"manualSelector": manual, "ttlSecondsAfterFinished": 5,
            "selector": {"matchLabels": {"controller-uid": "u"}}, "template": {"metadata": {"labels": labels}}}})
        };
        check(
            job(false),
            json!({"kind": "Job", "metadata": {}, "spec": {"manualSelector": false,
                "selector": {"matchLabels": {}}, "template": {"metadata": {"labels": {"app": "x"}}}}}),
        );
        let mut kept = job(true);
        kept["spec"]
            .as_object_mut()
            .unwrap()
            .remove("ttlSecondsAfterFinished");
        check(job(true), kept);
        check(
            json!({"kind": "Service", "metadata": {}, "spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]}}),
            json!({"kind": "Service", "metadata": {}, "spec": {}}),
        );
        let headless = json!({"kind": "Service", "metadata": {}, "spec": {"clusterIP": "None", "clusterIPs": ["None"]}});
        check(headless.clone(), headless);
        let single =
            json!({"kind": "Service", "metadata": {}, "spec": {"clusterIPs": ["10.0.0.1"]}});
        check(single.clone(), single);
        check(
            json!({"kind": "Secret", "type": "kubernetes.io/service-account-token", "data": {"token": "x"},
                "metadata": {"annotations": {"kubernetes.io/service-account.uid": "u"}}}),
            json!({"kind": "Secret", "type": "kubernetes.io/service-account-token", "data": null, "metadata": {"annotations": {}}}),
        );
        check(
            json!({"kind": "ServiceAccount", "metadata": {"name": "a"}, "secrets": [{"name": "a-token-x"}, {"name": "b"}]}),
            json!({"kind": "ServiceAccount", "metadata": {"name": "a"}, "secrets": [{"name": "b"}]}),
        );
        check(
            json!({"kind": "ServiceAccount", "metadata": {"name": "a"}, "secrets": [{"name": "a-token-x"}]}),
            json!({"kind": "ServiceAccount", "metadata": {"name": "a"}, "secrets": []}),
        );
        check(
            json!({"kind": "PersistentVolumeClaim", "metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n", "x": "y"}}}),
            json!({"kind": "PersistentVolumeClaim", "metadata": {"annotations": {"x": "y"}}}),
        );
    }

    // proves: WRK-managed-keys
    #[test]
    fn managed_keys_are_recorded() {
        let mut manifest =
            json!({"metadata": {"labels": {"b": "1", "a": "2"}, "annotations": {"z": ""}}});
        record_managed(&mut manifest);
        let once = manifest.clone();
        assert_eq!(manifest["metadata"]["annotations"][MANAGED_LABELS], "a,b");
        assert_eq!(
            manifest["metadata"]["annotations"][MANAGED_ANNOTATIONS],
            format!("{MANAGED_ANNOTATIONS},{MANAGED_LABELS},z")
        );
        record_managed(&mut manifest);
        assert_eq!(manifest, once);
        let mut scalar = json!(3);
        record_managed(&mut scalar);
        assert_eq!(scalar, json!(3));
    }
}

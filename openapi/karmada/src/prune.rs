//! Prunes fields from a template that must not be propagated to member clusters, and
//! records the labels and annotations that the template manages.
//!
//! Idempotent. Rules of Karmada's `resourceinterpreter/default/native/prune` and
//! `util/annotation.go`.

use serde_json::{Map, Value};

use crate::well_known_keys::{MANAGED_ANNOTATIONS, MANAGED_LABELS};

const PRUNED_METADATA_FIELDS: [&str; 10] = [
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

/// Removes the fields that the member cluster sets itself. `job_ttl` also removes
/// `ttlSecondsAfterFinished` of a Job, so that a finished Job is not deleted and
/// recreated again and again.
pub fn prune(manifest: &mut Value, job_ttl: bool) {
    for field in PRUNED_METADATA_FIELDS {
        remove_field(manifest, "/metadata", field);
    }
    remove_field(manifest, "", "status");
    let kind = manifest["kind"].as_str().unwrap_or("").to_owned();
    match kind.as_str() {
        "Deployment" => {
            for key in ["revision", "revision-history"] {
                let key = format!("deployment.kubernetes.io/{key}");
                remove_field(manifest, "/metadata/annotations", &key);
            }
        }
        "Job" => prune_job(manifest, job_ttl),
        "Secret" => prune_service_account_token(manifest),
        "ServiceAccount" => prune_token_secrets(manifest),
        "Service" => {
            let address = manifest.pointer("/spec/clusterIP");
            // A template may ask for a headless service.
            if address
                .and_then(Value::as_str)
                .is_some_and(|ip| ip != "None")
            {
                remove_field(manifest, "/spec", "clusterIP");
                remove_field(manifest, "/spec", "clusterIPs");
            }
        }
        "PersistentVolumeClaim" => {
            remove_field(
                manifest,
                "/metadata/annotations",
                "volume.kubernetes.io/selected-node",
            );
        }
        _ => {}
    }
}

fn prune_job(manifest: &mut Value, ttl: bool) {
    let manual = manifest.pointer("/spec/manualSelector") == Some(&Value::Bool(true));
    if !manual {
        for key in ["controller-uid", "batch.kubernetes.io/controller-uid"] {
            remove_field(manifest, "/spec/selector/matchLabels", key);
            remove_field(manifest, "/spec/template/metadata/labels", key);
        }
        for key in ["job-name", "batch.kubernetes.io/job-name"] {
            remove_field(manifest, "/spec/template/metadata/labels", key);
        }
    }
    if ttl {
        remove_field(manifest, "/spec", "ttlSecondsAfterFinished");
    }
}

fn prune_service_account_token(manifest: &mut Value) {
    if manifest["type"].as_str() != Some("kubernetes.io/service-account-token") {
        return;
    }
    remove_field(
        manifest,
        "/metadata/annotations",
        "kubernetes.io/service-account.uid",
    );
    if let Some(secret) = manifest.as_object_mut() {
        secret.insert("data".into(), Value::Null);
    }
}

fn prune_token_secrets(manifest: &mut Value) {
    let name = manifest
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or("");
    let prefix = format!("{name}-token-");
    if let Some(Value::Array(secrets)) = manifest.get_mut("secrets") {
        secrets.retain(|s| !s["name"].as_str().unwrap_or("").starts_with(&prefix));
    }
}

fn remove_field(manifest: &mut Value, parent: &str, field: &str) {
    if let Some(Value::Object(fields)) = manifest.pointer_mut(parent) {
        fields.remove(field);
    }
}

/// Records the label and annotation keys of the manifest in two annotations, which list
/// themselves too, to distinguish them from keys that were added in the member cluster.
pub fn record_managed_keys(manifest: &mut Value) {
    let Some(metadata) = child_object(manifest, "metadata") else {
        return;
    };
    let labels = sorted_keys(metadata.get("labels"));
    let mut annotations = sorted_keys(metadata.get("annotations"));
    annotations.extend([MANAGED_ANNOTATIONS.to_owned(), MANAGED_LABELS.to_owned()]);
    annotations.sort_unstable();
    annotations.dedup();
    let mut metadata = Value::Object(std::mem::take(metadata));
    if let Some(map) = child_object(&mut metadata, "annotations") {
        map.insert(MANAGED_LABELS.into(), labels.join(",").into());
        map.insert(MANAGED_ANNOTATIONS.into(), annotations.join(",").into());
    }
    if let Some(fields) = manifest.as_object_mut() {
        fields.insert("metadata".into(), metadata);
    }
}

/// The keys of a map, sorted.
fn sorted_keys(map: Option<&Value>) -> Vec<String> {
    let map = map.and_then(Value::as_object);
    let mut keys: Vec<String> = map.into_iter().flat_map(Map::keys).cloned().collect();
    keys.sort_unstable();
    keys
}

fn child_object<'a>(value: &'a mut Value, name: &str) -> Option<&'a mut Map<String, Value>> {
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

    // proves: PRU-metadata, PRU-status
    #[test]
    fn server_side_fields_are_removed() {
        let mut manifest = json!({"kind": "X", "metadata": {"name": "a", "namespace": "n", "generateName": "a-",
            "labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": {"status": 1}});
        let pruned = manifest.clone();
        for field in PRUNED_METADATA_FIELDS {
            manifest["metadata"][field] = json!("written");
        }
        manifest["status"] = json!({"ready": true});
        check(manifest, pruned);
        for field in [
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
        ] {
            check(
                json!({"kind": "X", "metadata": {"name": "a", field: 1}}),
                json!({"kind": "X", "metadata": {"name": "a"}}),
            );
        }
    }

    // proves: PRU-deployment
    #[test]
    fn revisions_of_a_deployment_are_removed() {
        let object_with = |kind: &str, annotations: Value| json!({"kind": kind, "apiVersion": "any/v1", "metadata": {"annotations": annotations}});
        let revisions = json!({"deployment.kubernetes.io/revision": "3", "deployment.kubernetes.io/revision-history": "1,2",
            "deployment.kubernetes.io/desired-replicas": "1", "x": "y"});
        let pruned = json!({"deployment.kubernetes.io/desired-replicas": "1", "x": "y"});
        check(
            object_with("Deployment", revisions.clone()),
            object_with("Deployment", pruned),
        );
        let other = object_with("ReplicaSet", revisions);
        check(other.clone(), other);
    }

    // proves: PRU-job, PRU-job-ttl
    #[test]
    fn generated_fields_of_a_job_are_removed() {
        let prefixed = "batch.kubernetes.io/";
        let all = |extra: &str| json!({"controller-uid": "u", format!("{prefixed}controller-uid"): "u", "job-name": "j", format!("{prefixed}job-name"): "j", extra: "x"});
        let job = |manual: Value, ttl: Value| {
            json!({"kind": "Job", "metadata": {}, "spec": {"manualSelector": manual, "ttlSecondsAfterFinished": ttl,
                "selector": {"matchLabels": all("s")}, "template": {"metadata": {"labels": all("t")}}}})
        };
        let without_ttl = |mut job: Value| {
            remove_field(&mut job, "/spec", "ttlSecondsAfterFinished");
            job
        };
        for manual in [json!(false), Value::Null] {
            let mut pruned = without_ttl(job(manual.clone(), Value::Null));
            // The selector keeps keys that the Job controller never generates.
            pruned["spec"]["selector"]["matchLabels"] =
                json!({"job-name": "j", format!("{prefixed}job-name"): "j", "s": "x"});
            pruned["spec"]["template"]["metadata"]["labels"] = json!({"t": "x"});
            check(job(manual, json!(5)), pruned);
        }
        let with_own_selector = job(json!(true), json!(5));
        check(
            with_own_selector.clone(),
            without_ttl(with_own_selector.clone()),
        );
        // The object observed in a member is compared without this removal.
        let mut observed = with_own_selector.clone();
        prune(&mut observed, false);
        assert_eq!(observed, with_own_selector);
    }

    // proves: PRU-service, PRU-headless
    #[test]
    fn addresses_of_a_service_are_removed_unless_it_is_headless() {
        let service = |spec: Value| json!({"kind": "Service", "metadata": {}, "spec": spec});
        for (spec, pruned) in [
            (
                json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": []}),
                json!({"ports": []}),
            ),
            (json!({"clusterIP": "", "clusterIPs": [""]}), json!({})),
            (
                json!({"clusterIP": "None", "clusterIPs": ["None"]}),
                json!({"clusterIP": "None", "clusterIPs": ["None"]}),
            ),
            (
                json!({"clusterIPs": ["10.0.0.1"]}),
                json!({"clusterIPs": ["10.0.0.1"]}),
            ),
        ] {
            check(service(spec), service(pruned));
        }
    }

    // proves: PRU-token, PRU-account, PRU-claim
    #[test]
    fn fields_set_by_the_member_are_removed() {
        check(
            json!({"kind": "Secret", "type": "kubernetes.io/service-account-token", "data": {"token": "x"},
                "metadata": {"annotations": {"kubernetes.io/service-account.uid": "u", "kubernetes.io/service-account.name": "n"}}}),
            json!({"kind": "Secret", "type": "kubernetes.io/service-account-token", "data": null,
                "metadata": {"annotations": {"kubernetes.io/service-account.name": "n"}}}),
        );
        let opaque = json!({"kind": "Secret", "type": "Opaque", "data": {"k": "v"}, "metadata": {"annotations": {"kubernetes.io/service-account.uid": "u"}}});
        check(opaque.clone(), opaque);
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
        record_managed_keys(&mut manifest);
        let recorded = manifest.clone();
        assert_eq!(manifest["metadata"]["annotations"][MANAGED_LABELS], "a,b");
        assert_eq!(
            manifest["metadata"]["annotations"][MANAGED_ANNOTATIONS],
            format!("{MANAGED_ANNOTATIONS},{MANAGED_LABELS},z")
        );
        record_managed_keys(&mut manifest);
        assert_eq!(manifest, recorded);
        let mut scalar = json!(3);
        record_managed_keys(&mut scalar);
        assert_eq!(scalar, json!(3));
    }
}

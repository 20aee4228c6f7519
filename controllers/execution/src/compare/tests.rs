//! Tests of the comparison and of the updates that it leads to.

use serde_json::json;

use super::*;

fn manifest() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {MANAGED: "true", "own": "1"},
        "annotations": {MANAGED_LABELS: format!("{MANAGED},own"), MANAGED_ANNOTATIONS: format!("{MANAGED_ANNOTATIONS},{MANAGED_LABELS}")}},
        "data": {"k": "v"}})
}

fn observed() -> Value {
    let mut observed = manifest();
    observed["metadata"]["resourceVersion"] = "5".into();
    observed["metadata"]["uid"] = "u".into();
    observed["metadata"]["finalizers"] = json!(["f"]);
    observed["metadata"]["labels"]["theirs"] = "2".into();
    observed
}

/// The body of the update; `None` if nothing is written.
fn update(
    manifest: &Value,
    observed: &Value,
    mode: UpdateMode,
    rule: &RemovalRule<'_>,
) -> Option<Value> {
    let desired = desired_object(manifest.clone(), observed).unwrap();
    update_of(desired.tree, observed, None, mode, rule).body
}

// proves: EXE-no-write, EXE-exact
#[test]
fn an_up_to_date_object_is_not_written() {
    for mode in [UpdateMode::Repair, UpdateMode::Edit] {
        let body = update(&manifest(), &observed(), mode, &RemovalRule::Everything);
        assert_eq!(body, None);
    }
    let mut defaulted = observed();
    defaulted["immutable"] = json!(false);
    let check = |mode, rule| update(&manifest(), &defaulted, mode, &rule);
    assert_eq!(check(UpdateMode::Repair, RemovalRule::Nothing), None);
    assert_eq!(check(UpdateMode::Edit, RemovalRule::Nothing), None);
    let body = check(UpdateMode::Edit, RemovalRule::Everything).unwrap();
    assert_eq!(body.get("immutable"), None, "what the manifest lost goes");
}

// proves: EXE-retain-labels, EXE-drop-labels, EXE-keeps-finalizers, EXE-put
#[test]
fn an_update_keeps_the_members_metadata() {
    let mut changed = manifest();
    changed["data"]["k"] = "w".into();
    changed["metadata"]["finalizers"] = json!(["the-templates"]);
    changed["metadata"]["ownerReferences"] = json!([{"uid": "the-templates"}]);
    let labels = changed["metadata"]["labels"].as_object_mut().unwrap();
    labels.remove("own");
    let mut observed = observed();
    observed["metadata"]["ownerReferences"] = json!([{"uid": "theirs"}]);
    observed["status"] = json!({"s": 1});
    let body = update(
        &changed,
        &observed,
        UpdateMode::Repair,
        &RemovalRule::Nothing,
    );
    let body = body.unwrap();
    let owners = json!([{"uid": "theirs"}]);
    assert_eq!(body["metadata"]["ownerReferences"], owners);
    assert_eq!(body["metadata"]["resourceVersion"], "5");
    assert_eq!(body["metadata"]["finalizers"], json!(["f"]));
    assert_eq!(body["metadata"].get("uid"), None);
    assert_eq!(
        body["metadata"]["labels"],
        json!({MANAGED: "true", "theirs": "2"}),
        "theirs stays, ours that is gone goes"
    );
    assert_eq!(body["data"], json!({"k": "w"}));
    assert_eq!(body["status"], json!({"s": 1}), "it may be no subresource");
}

#[test]
fn a_released_object_loses_labels_only() {
    let mut released = manifest();
    released["metadata"]["labels"] = json!({});
    let mut observed = observed();
    observed["data"]["theirs"] = "x".into();
    let body = update(
        &released,
        &observed,
        UpdateMode::Release,
        &RemovalRule::Nothing,
    );
    let body = body.unwrap();
    assert_eq!(body["metadata"]["labels"], json!({"theirs": "2"}));
    assert_eq!(body["data"], observed["data"]);
}

// proves: EXE-conflict-abort, EXE-conflict-overwrite
#[test]
fn an_unmanaged_object_is_adopted_only_with_overwrite() {
    let mut foreign = observed();
    foreign["metadata"]["labels"] = json!({});
    assert!(desired_object(manifest(), &foreign).is_none());
    let mut overwrite = manifest();
    overwrite["metadata"]["annotations"][CONFLICT_RESOLUTION] = "overwrite".into();
    assert!(desired_object(overwrite.clone(), &foreign).unwrap().adopts);
    assert!(!desired_object(overwrite, &observed()).unwrap().adopts);
}

// proves: ROL-job-foreign
#[test]
fn the_job_of_a_gate_and_its_work_belong_to_each_other() {
    let of_work = |work: &str, is_gate_job: bool| {
        let mut object = observed();
        object["metadata"]["annotations"][WORK_NAMESPACE] = "karmada-es-m1".into();
        object["metadata"]["annotations"][WORK_NAME] = work.into();
        if is_gate_job {
            object["metadata"]["labels"][JOB_OF] = "key".into();
        }
        object
    };
    for (manifest, observed, expected) in [
        (of_work("gate", true), of_work("gate", true), true),
        (of_work("gate", true), of_work("other", false), false),
        (of_work("gate", true), observed(), false),
        (of_work("other", false), of_work("gate", true), false),
        (of_work("other", false), of_work("another", false), true),
    ] {
        let is_updated = desired_object(manifest, &observed).is_some();
        assert_eq!(is_updated, expected, "{observed}");
    }
}

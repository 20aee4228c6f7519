//! Tests of argoproj.io.

use super::*;

const WORKFLOW: &str = "argoproj.io/v1alpha1 Workflow";

// proves: CRD-workflow
#[test]
fn a_workflow_is_healthy_unless_it_has_gone_wrong() {
    let phase = |phase: &str| json!({"phase": phase});
    check_health_by_status(
        WORKFLOW,
        &[
            (phase("Succeeded"), Some(true)),
            (phase("Running"), Some(true)),
            (phase("Pending"), Some(true)),
            (phase("Failed"), Some(false)),
            (phase("Error"), Some(false)),
            (phase(""), Some(false)),
            (json!({}), Some(false)),
        ],
    );
}

// proves: CRD-workflow
#[test]
fn parallel_pods_are_its_replicas() {
    let spec = json!({"parallelism": 4, "nodeSelector": {"a": "b"}, "tolerations": [], "templates": [pod_template("1")]});
    let actual = ThirdPartyInterpreter
        .replicas(&gvk(WORKFLOW), &namespaced_object(spec))
        .unwrap()
        .unwrap();
    let claim = json!({"nodeClaim": {"nodeSelector": {"a": "b"}}});
    assert_eq!((actual.count, actual.requirements), (4, Some(claim)));
    let actual = ThirdPartyInterpreter
        .replicas(&gvk(WORKFLOW), &namespaced_object(json!({})))
        .unwrap()
        .unwrap();
    assert_eq!((actual.count, actual.requirements), (1, None));
    let revised = ThirdPartyInterpreter
        .revise_replica(&gvk(WORKFLOW), &namespaced_object(json!({})), 2)
        .unwrap();
    assert_eq!(revised, Some(namespaced_object(json!({"parallelism": 2}))));
}

// proves: CRD-workflow-status
#[test]
fn suspension_and_status_of_the_member_are_retained() {
    let desired = json!({"spec": {"a": 1}, "status": {"phase": "Pending"}});
    let observed = json!({"spec": {}, "status": {"phase": "Running", "nodes": {}, "none": []}});
    let kept = ThirdPartyInterpreter
        .retain(&gvk(WORKFLOW), &desired, &observed)
        .unwrap()
        .unwrap();
    assert_eq!(
        kept,
        json!({"spec": {"a": 1}, "status": {"phase": "Running", "nodes": {}, "none": []}})
    );
    let kept = ThirdPartyInterpreter
        .retain(&gvk(WORKFLOW), &desired, &json!({"spec": {}}))
        .unwrap();
    assert_eq!(kept, Some(desired));
}

// proves: CRD-workflow-deps
#[test]
fn dependencies_of_a_workflow() {
    let secret = |source: &str| json!({source: {"secretRef": {"name": source}}});
    let spec = json!({
        "serviceAccountName": "default",
        "executor": {"serviceAccountName": "default"},
        "imagePullSecrets": [{"name": "pull"}, {"name": ""}, {}],
        "volumeClaimTemplates": [{"metadata": {"name": "work"}}],
        "volumes": [
            {"configMap": {"name": "files"}}, {"persistentVolumeClaim": {"claimName": "disk"}},
            {"secret": {"secretName": "unseen"}}, {"secret": {"name": "seen"}},
            {"projected": {"sources": [{"secret": {"name": "mixed"}}, {"configMap": {"name": "mixed"}}]}},
            {"azureFile": {"secretName": "azure"}}, {"csi": {"nodePublishSecretRef": {"name": "csi"}}},
            secret("rbd"), secret("cephfs"),
        ],
        "templates": [{"container": {"envFrom": [{"secretRef": {"name": "unseen"}}]}}],
    });
    let expected = [
        "ConfigMap n/files",
        "ConfigMap n/mixed",
        "PersistentVolumeClaim n/disk",
        "PersistentVolumeClaim n/work",
        "Secret n/azure",
        "Secret n/cephfs",
        "Secret n/csi",
        "Secret n/mixed",
        "Secret n/pull",
        "Secret n/rbd",
        "Secret n/seen",
        "ServiceAccount n/default",
    ];
    assert_eq!(
        dependencies(WORKFLOW, &namespaced_object(spec)).unwrap(),
        expected
    );
    let robot = namespaced_object(json!({"serviceAccountName": "robot"}));
    assert_eq!(
        dependencies(WORKFLOW, &robot).unwrap(),
        ["ServiceAccount n/robot"]
    );
    assert_eq!(
        dependencies(WORKFLOW, &namespaced_object(json!({}))),
        Some(Vec::new())
    );
    assert_eq!(
        dependencies(
            WORKFLOW,
            &namespaced_object(json!({"volumeClaimTemplates": [{}]}))
        ),
        None
    );
}

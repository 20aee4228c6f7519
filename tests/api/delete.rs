//! Deletion with `kubectl`: waits, finalizers, dependents, namespaces.

use crate::api::kubectl::{Kubectl, fails, succeeds, succeeds_with_input, with_each_kubectl};

const CONFIG_MAP_WITH_FINALIZER: &str = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held", "finalizers": ["x.io/y"]}}"#;

#[test]
fn deletion_waits_for_finalizers() {
    with_each_kubectl("finalizers", |kubectl| {
        kubectl.run_commands(&[
            succeeds_with_input(
                "create -f -",
                CONFIG_MAP_WITH_FINALIZER,
                &["configmap/held created"],
            ),
            fails(
                "delete configmap held --timeout=5s",
                &["timed out waiting for the condition on configmaps/held"],
            ),
            succeeds(
                "get configmap held -o jsonpath='{.metadata.deletionTimestamp}'",
                &["20"],
            ),
            // On a busy machine kubectl says that its rate limiter has no time left.
            fails("wait --for=delete configmap/held --timeout=1s", &[]),
            succeeds(
                r#"patch configmap held --type=merge -p '{"metadata":{"finalizers":null}}'"#,
                &["patched"],
            ),
            fails("get configmap held", &[r#"configmaps "held" not found"#]),
            fails("delete secret none", &[r#"secrets "none" not found"#]),
            succeeds("delete secret none --ignore-not-found", &[]),
            succeeds("create configmap a", &[]),
            succeeds("create configmap b", &[]),
            succeeds("label configmap a b x=y", &[]),
            succeeds(
                "delete configmap -l x=y --wait=false",
                &[r#"configmap "a" deleted"#, r#"configmap "b" deleted"#],
            ),
            succeeds("run alone --image=nginx", &[]),
            succeeds(
                "delete pod alone --grace-period=0 --force",
                &[r#"pod "alone" force deleted"#],
            ),
            succeeds("create service clusterip s --tcp=80", &[]),
            succeeds(
                "new: wait svc/s --for=jsonpath='{.spec.type}'=ClusterIP --timeout=5s",
                &["service/s condition met"],
            ),
            fails(
                "wait --for=condition=available deploy/none --timeout=1s",
                &[r#"deployments.apps "none" not found"#],
            ),
        ]);
    });
}

/// Creates an owner with one dependent.
fn create_owner_and_dependent(kubectl: &Kubectl, owner: &str) {
    let dependent = format!("{owner}-dependent");
    kubectl.run_commands(&[succeeds_with_input(
        &format!("create configmap {owner}"),
        "",
        &[],
    )]);
    let uid = kubectl.output(&format!(
        "get configmap {owner} -o jsonpath={{.metadata.uid}}"
    ));
    let manifest = format!(
        r#"{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": "{dependent}", "ownerReferences":
            [{{"apiVersion": "v1", "kind": "ConfigMap", "name": "{owner}", "uid": "{uid}", "blockOwnerDeletion": true}}]}}}}"#
    );
    kubectl.run_commands(&[succeeds_with_input("create -f -", &manifest, &[])]);
}

#[test]
fn cascading_deletion_deletes_or_orphans_dependents() {
    with_each_kubectl("cascade", |kubectl| {
        for policy in ["foreground", "background", "orphan"] {
            create_owner_and_dependent(kubectl, policy);
            kubectl.run_commands(&[succeeds(
                &format!("delete configmap {policy} --cascade={policy} --timeout=30s"),
                &["deleted"],
            )]);
        }
        for policy in ["foreground", "background"] {
            kubectl.wait_for_exit_code(&format!("get configmap {policy}-dependent"), 1);
        }
        kubectl.run_commands(&[succeeds(
            "get configmap orphan-dependent -o yaml",
            &["name: orphan-dependent", "!ownerReferences"],
        )]);
    });
}

#[test]
fn namespaces_are_emptied() {
    with_each_kubectl("namespaces", |kubectl| {
        kubectl.run_commands(&[
            succeeds("create namespace NS-gone", &[]),
            succeeds("create configmap a --namespace=NS-gone", &[]),
        ]);
        let line = format!("get configmaps --namespace={}-gone", kubectl.namespace);
        assert!(!kubectl.output(&line).is_empty());
        kubectl.run_commands(&[
            succeeds(
                "delete namespace NS-gone --timeout=30s",
                &[r#"namespace "NS-gone" deleted"#],
            ),
            fails(
                "get namespace NS-gone",
                &[r#"namespaces "NS-gone" not found"#],
            ),
            fails(
                "delete namespace default",
                &["this namespace may not be deleted"],
            ),
        ]);
        let manifest = CONFIG_MAP_WITH_FINALIZER.replace("\"held\"", "\"stays\"");
        kubectl.run_commands(&[
            succeeds_with_input("create -f -", &manifest, &[]),
            succeeds("delete namespace NS --wait=false", &["deleted"]),
            succeeds("get namespace NS", &["NS Terminating"]),
            fails(
                "create configmap late",
                &["unable to create new content in namespace NS because it is being terminated"],
            ),
            succeeds(
                r#"patch configmap stays --type=merge -p '{"metadata":{"finalizers":null}}'"#,
                &[],
            ),
        ]);
        kubectl.wait_for_exit_code("get namespace NS", 1);
    });
}

//! Deletion with `kubectl`: waits, finalizers, dependents, namespaces.

use crate::kubectl::{Kubectl, ok, refused, with, with_each};

const HELD: &str = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held", "finalizers": ["x.io/y"]}}"#;

#[test]
fn deletion_waits_for_finalizers() {
    with_each("finalizers", |kubectl| {
        kubectl.run(&[
            with("create -f -", HELD, &["configmap/held created"]),
            refused(
                "delete configmap held --timeout=1s",
                &["timed out waiting for the condition on configmaps/held"],
            ),
            ok(
                "get configmap held -o jsonpath='{.metadata.deletionTimestamp}'",
                &["20"],
            ),
            refused(
                "wait --for=delete configmap/held --timeout=1s",
                &["timed out waiting for the condition"],
            ),
            ok(
                r#"patch configmap held --type=merge -p '{"metadata":{"finalizers":null}}'"#,
                &["patched"],
            ),
            refused("get configmap held", &[r#"configmaps "held" not found"#]),
            refused("delete secret none", &[r#"secrets "none" not found"#]),
            ok("delete secret none --ignore-not-found", &[]),
            ok("create configmap a", &[]),
            ok("create configmap b", &[]),
            ok("label configmap a b x=y", &[]),
            ok(
                "delete configmap -l x=y --wait=false",
                &[r#"configmap "a" deleted"#, r#"configmap "b" deleted"#],
            ),
            ok("run alone --image=nginx", &[]),
            ok(
                "delete pod alone --grace-period=0 --force",
                &[r#"pod "alone" force deleted"#],
            ),
            ok("create service clusterip s --tcp=80", &[]),
            ok(
                "new: wait svc/s --for=jsonpath='{.spec.type}'=ClusterIP --timeout=5s",
                &["service/s condition met"],
            ),
            refused(
                "wait --for=condition=available deploy/none --timeout=1s",
                &[r#"deployments.apps "none" not found"#],
            ),
        ]);
    });
}

/// Creates an owner with one dependent.
fn pair(kubectl: &Kubectl, owner: &str) {
    let dependent = format!("{owner}-dependent");
    kubectl.run(&[with(&format!("create configmap {owner}"), "", &[])]);
    let uid = kubectl.output(&format!(
        "get configmap {owner} -o jsonpath={{.metadata.uid}}"
    ));
    let manifest = format!(
        r#"{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": "{dependent}", "ownerReferences":
            [{{"apiVersion": "v1", "kind": "ConfigMap", "name": "{owner}", "uid": "{uid}", "blockOwnerDeletion": true}}]}}}}"#
    );
    kubectl.run(&[with("create -f -", &manifest, &[])]);
}

#[test]
fn cascading_deletion_deletes_or_orphans_dependents() {
    with_each("cascade", |kubectl| {
        for policy in ["foreground", "background", "orphan"] {
            pair(kubectl, policy);
            kubectl.run(&[ok(
                &format!("delete configmap {policy} --cascade={policy} --timeout=30s"),
                &["deleted"],
            )]);
        }
        for policy in ["foreground", "background"] {
            kubectl.eventually(&format!("get configmap {policy}-dependent"), 1);
        }
        kubectl.run(&[ok(
            "get configmap orphan-dependent -o yaml",
            &["name: orphan-dependent", "!ownerReferences"],
        )]);
    });
}

#[test]
fn namespaces_are_emptied() {
    with_each("namespaces", |kubectl| {
        kubectl.run(&[
            ok("create namespace NS-gone", &[]),
            ok("create configmap a --namespace=NS-gone", &[]),
        ]);
        let line = format!("get configmaps --namespace={}-gone", kubectl.namespace);
        assert!(!kubectl.output(&line).is_empty());
        kubectl.run(&[
            ok(
                "delete namespace NS-gone --timeout=30s",
                &[r#"namespace "NS-gone" deleted"#],
            ),
            refused(
                "get namespace NS-gone",
                &[r#"namespaces "NS-gone" not found"#],
            ),
            refused(
                "delete namespace default",
                &["this namespace may not be deleted"],
            ),
        ]);
        let held = HELD.replace("\"held\"", "\"stays\"");
        kubectl.run(&[
            with("create -f -", &held, &[]),
            ok("delete namespace NS --wait=false", &["deleted"]),
            ok("get namespace NS", &["NS Terminating"]),
            refused(
                "create configmap late",
                &["unable to create new content in namespace NS because it is being terminated"],
            ),
            ok(
                r#"patch configmap stays --type=merge -p '{"metadata":{"finalizers":null}}'"#,
                &[],
            ),
        ]);
        kubectl.eventually("get namespace NS", 1);
    });
}

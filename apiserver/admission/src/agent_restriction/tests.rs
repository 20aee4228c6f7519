//! The writes that the agent of a cluster may make, in a table.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::*;
use crate::attributes::AdmissionOperation::{Create, Delete, Update};

fn agent(cluster: &str) -> UserInfo {
    UserInfo {
        name: format!("system:karmada:agent:{cluster}"),
        groups: vec![AGENTS_GROUP.into()],
        ..UserInfo::default()
    }
}

/// The API version and the kind of an object, and the decision about its write by the agent of `a`.
fn check(
    operation: AdmissionOperation,
    subresource: &str,
    new: &Value,
    old: &Value,
) -> Result<RequiredLookup, String> {
    let object = if new.is_null() { old } else { new };
    let api_version = text(object, "/apiVersion");
    let write = AgentWrite {
        group: api_version.split_once('/').map_or("", |(group, _)| group),
        kind: text(object, "/kind"),
        subresource,
        operation,
        namespace: text(object, "/metadata/namespace"),
        name: text(object, "/metadata/name"),
        new,
        old,
    };
    check_agent_write(&agent("a"), &write)
}

fn object(api_version: &str, kind: &str, namespace: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": namespace, "name": name}})
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let mut target = &mut object;
    for part in pointer.split('/').skip(1) {
        target = &mut target[part];
    }
    *target = value;
    object
}

fn cluster(name: &str) -> Value {
    let cluster = object("cluster.karmada.io/v1alpha1", "Cluster", "", name);
    with(
        cluster,
        "/spec",
        json!({"syncMode": "Pull", "region": "r", "secretRef": {"namespace": "karmada-cluster", "name": name}}),
    )
}

fn event(namespace: &str, reason: &str, kind: &str, of: &str, name: &str) -> Value {
    let involved = json!({"kind": kind, "namespace": of, "name": name});
    let event = with(
        object("v1", "Event", namespace, "e"),
        "/involvedObject",
        involved,
    );
    with(event, "/reason", reason.into())
}

fn work(namespace: &str, kind: &str) -> Value {
    let manifest = json!({"apiVersion": "discovery.k8s.io/v1", "kind": kind});
    let work = object("work.karmada.io/v1alpha1", "Work", namespace, "w");
    with(
        work,
        "/spec",
        json!({"workload": {"manifests": [manifest]}}),
    )
}

fn certificate_request(user: &str, signer: &str) -> Value {
    // The request of an unknown user cannot be read, and is nobody's.
    let request = STANDARD.encode(format!("no PEM of {user}"));
    let csr = object(
        "certificates.k8s.io/v1",
        "CertificateSigningRequest",
        "",
        "c",
    );
    with(
        csr,
        "/spec",
        json!({"signerName": signer, "request": request}),
    )
}

// proves: AGT-own
#[test]
fn an_agent_writes_its_own_objects() {
    let null = Value::Null;
    let allow = |operation, subresource: &str, new: &Value, old: &Value| {
        let decision = check(operation, subresource, new, old);
        assert!(decision.is_ok(), "{new}: {decision:?}");
    };
    allow(Create, "", &cluster("a"), &null);
    allow(
        Update,
        "status",
        &with(cluster("a"), "/metadata/labels", json!({"l": "v"})),
        &cluster("a"),
    );
    allow(Delete, "", &null, &cluster("a"));
    let lease =
        |namespace: &str, name: &str| object("coordination.k8s.io/v1", "Lease", namespace, name);
    allow(Create, "", &lease("karmada-cluster", "a"), &null);
    allow(
        Update,
        "",
        &lease("karmada-system", "karmada-agent-a"),
        &null,
    );
    for name in ["a", "a-impersonator"] {
        allow(
            Create,
            "",
            &object("v1", "Secret", "karmada-cluster", name),
            &null,
        );
    }
    allow(
        Create,
        "",
        &event("default", "x", "Cluster", "", "a"),
        &null,
    );
    allow(
        Create,
        "",
        &event("karmada-es-a", "x", "Work", "karmada-es-a", "w"),
        &null,
    );
    allow(
        Create,
        "",
        &event("s", "x", "Lease", "s", "karmada-agent-a"),
        &null,
    );
    let report = work("karmada-es-a", "EndpointSlice");
    allow(Create, "", &report, &null);
    let changed = with(
        report.clone(),
        "/metadata/labels",
        json!({"endpointslice.karmada.io/name": "web"}),
    );
    allow(Update, "", &changed, &report);
    let dispatched = with(
        work("karmada-es-a", "Deployment"),
        "/metadata/labels",
        json!({"l": "v"}),
    );
    let finalizer = json!(["karmada.io/execution-controller"]);
    let finalized = with(dispatched.clone(), "/metadata/finalizers", finalizer);
    allow(Update, "", &dispatched, &finalized);
    allow(Delete, "", &null, &dispatched);
    let template = check(
        Create,
        "",
        &event("n", "SyncSucceed", "Deployment", "n", "web"),
        &null,
    );
    assert_eq!(
        template,
        Ok(RequiredLookup::Work {
            namespace: "karmada-es-a".into(),
            name: work_name("Deployment", "web", "n")
        })
    );
    assert_eq!(
        check(Create, "", &cluster("a"), &null),
        Ok(RequiredLookup::Registration)
    );
    // Resources that do not concern agents, and users who are none, are left to their rights.
    allow(Create, "", &object("v1", "ConfigMap", "n", "x"), &null);
    let write = AgentWrite {
        group: "",
        kind: "Secret",
        subresource: "",
        operation: Create,
        namespace: "n",
        name: "b",
        new: &null,
        old: &null,
    };
    let other_user = UserInfo {
        groups: Vec::new(),
        ..agent("a")
    };
    assert_eq!(
        check_agent_write(&other_user, &write),
        Ok(RequiredLookup::None)
    );
}

// proves: AGT-foreign
#[test]
fn an_agent_writes_nothing_of_others() {
    let null = Value::Null;
    let deny = |operation, subresource: &str, new: &Value, old: &Value| {
        let decision = check(operation, subresource, new, old);
        let message = decision.expect_err(&format!("{operation:?} {new} {old}"));
        assert!(message.len() < 300, "{message}");
    };
    deny(Create, "", &cluster("b"), &null);
    deny(Update, "status", &cluster("b"), &cluster("b"));
    deny(Delete, "", &null, &cluster("b"));
    deny(Update, "", &cluster("a"), &cluster("a"));
    for (pointer, value) in [
        ("/spec/syncMode", json!("Push")),
        ("/metadata/labels", json!({"env": "prod"})),
        ("/metadata/annotations", json!({"x".repeat(1000): "y"})),
        ("/spec/secretRef/name", json!("b")),
        (
            "/spec/impersonatorSecretRef",
            json!({"namespace": "karmada-cluster", "name": "b-impersonator"}),
        ),
    ] {
        deny(Create, "", &with(cluster("a"), pointer, value), &null);
    }
    let lease =
        |namespace: &str, name: &str| object("coordination.k8s.io/v1", "Lease", namespace, name);
    for (namespace, name) in [
        ("karmada-cluster", "b"),
        ("kube-system", "a"),
        ("kube-system", "kube-controller-manager"),
        ("karmada-system", "karmada-agent-b"),
    ] {
        deny(Create, "", &lease(namespace, name), &null);
        deny(Update, "", &lease(namespace, name), &lease(namespace, name));
    }
    for name in ["b", "b-impersonator", "a-x"] {
        deny(
            Create,
            "",
            &object("v1", "Secret", "karmada-cluster", name),
            &null,
        );
    }
    let token = object("v1", "Secret", "karmada-cluster", "a");
    for kind in [
        "kubernetes.io/service-account-token",
        "bootstrap.kubernetes.io/token",
    ] {
        deny(
            Create,
            "",
            &with(token.clone(), "/type", kind.into()),
            &null,
        );
    }
    for other in [
        event("default", "x", "Cluster", "", "b"),
        event("n", "x", "Deployment", "n", "web"),
        event("m", "SyncFailed", "Deployment", "n", "web"),
        event("karmada-es-b", "x", "Work", "karmada-es-b", "w"),
        event("karmada-es-a", "x", "Work", "karmada-es-b", "w"),
        event(
            "kube-system",
            "x",
            "Lease",
            "kube-system",
            "kube-controller-manager",
        ),
    ] {
        deny(Create, "", &other, &null);
        deny(
            Update,
            "",
            &event("default", "x", "Cluster", "", "a"),
            &other,
        );
        deny(Delete, "", &null, &other);
    }
    let client = "kubernetes.io/kube-apiserver-client";
    deny(
        Create,
        "",
        &certificate_request("system:karmada:agent:b", client),
        &null,
    );
    deny(
        Create,
        "",
        &certificate_request("x", "kubernetes.io/kubelet-serving"),
        &null,
    );
}

// proves: AGT-works
#[test]
fn an_agent_cannot_give_a_work_to_a_binding_or_export_a_service() {
    let null = Value::Null;
    let report = work("karmada-es-a", "EndpointSlice");
    let dispatched = with(
        work("karmada-es-a", "Deployment"),
        "/metadata/labels",
        json!({"l": "v"}),
    );
    let binding = json!({"resourcebinding.karmada.io/permanent-id": "id"});
    for (operation, subresource, new, old) in [
        (
            Create,
            "",
            work("karmada-es-b", "EndpointSlice"),
            null.clone(),
        ),
        (
            Update,
            "status",
            work("karmada-es-b", "Deployment"),
            null.clone(),
        ),
        (
            Create,
            "",
            work("karmada-es-a", "ServiceExport"),
            null.clone(),
        ),
        (
            Create,
            "",
            with(report.clone(), "/metadata/labels", binding.clone()),
            null.clone(),
        ),
        (
            Create,
            "",
            with(
                report.clone(),
                "/metadata/annotations",
                json!({"endpointslice.karmada.io/provision-cluster": "b"}),
            ),
            null.clone(),
        ),
        (
            Create,
            "",
            with(report.clone(), "/spec/workload/manifests", json!([])),
            null,
        ),
        (
            Update,
            "",
            with(report.clone(), "/metadata/labels", binding.clone()),
            report.clone(),
        ),
        (
            Update,
            "",
            work("karmada-es-a", "ServiceExport"),
            report.clone(),
        ),
        (
            Update,
            "",
            with(dispatched.clone(), "/metadata/labels", binding),
            dispatched.clone(),
        ),
        (
            Update,
            "",
            with(
                dispatched.clone(),
                "/metadata/annotations",
                json!({"a": "b"}),
            ),
            dispatched.clone(),
        ),
        (
            Update,
            "",
            with(report, "/metadata/labels", json!({"l": "v"})),
            dispatched.clone(),
        ),
        (
            Update,
            "status",
            with(
                dispatched.clone(),
                "/status/manifestStatuses",
                json!(vec![json!({}); 1001]),
            ),
            dispatched.clone(),
        ),
        (
            Update,
            "status",
            with(
                dispatched.clone(),
                "/status/conditions",
                json!([{"message": "x".repeat(40 << 10)}]),
            ),
            dispatched.clone(),
        ),
        (
            Update,
            "status",
            with(
                dispatched.clone(),
                "/status/conditions",
                json!(vec![json!({}); 33]),
            ),
            dispatched,
        ),
    ] {
        let decision = check(operation, subresource, &new, &old);
        assert!(decision.is_err(), "{operation:?} {new} {old}");
    }
}

// proves: AGT-registered
#[test]
fn a_cluster_is_what_was_registered() {
    let registered = AgentRegistration {
        region: "r".into(),
        ..AgentRegistration::default()
    };
    assert!(check_registration(&cluster("a"), &registered).is_ok());
    for (pointer, value) in [
        ("/spec/region", json!("other")),
        ("/spec/provider", json!("p")),
        ("/spec/zones", json!(["z"])),
    ] {
        let changed = with(cluster("a"), pointer, value);
        assert!(
            check_registration(&changed, &registered).is_err(),
            "{pointer}"
        );
    }
}

#[test]
fn a_host_asks_the_same_rules() {
    let review = |user: &str, name: &str| {
        json!({"operation": "CREATE", "kind": {"group": "coordination.k8s.io", "version": "v1", "kind": "Lease"},
            "namespace": "karmada-cluster", "name": name, "object": {"kind": "Lease"}, "oldObject": null,
            "userInfo": {"username": user, "groups": [AGENTS_GROUP]}})
    };
    assert_eq!(
        review_agent_write(&review("system:karmada:agent:a", "a")),
        Ok(())
    );
    assert!(review_agent_write(&review("system:karmada:agent:a", "b")).is_err());
    assert!(review_agent_write(&json!({})).is_err());
}

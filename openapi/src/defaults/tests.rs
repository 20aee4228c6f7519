//! Table tests against the objects that Kubernetes stores for the same manifests.

use machinery::Gvk;
use serde_json::{Value, json};

use super::{apply, generate_job_selector};
use crate::catalog::catalog;

/// The stored form of a manifest; a second application must not change it.
fn stored(api_version: &str, kind: &str, mut manifest: Value) -> Value {
    let gvk = Gvk::from_api_version(api_version, kind);
    let catalog = catalog();
    if let Some(kind) = catalog.kind(&gvk) {
        catalog.schema(kind).apply_defaults(&mut manifest).unwrap();
    }
    apply(&gvk, &mut manifest);
    let mut defaulted_again = manifest.clone();
    apply(&gvk, &mut defaulted_again);
    assert_eq!(
        manifest, defaulted_again,
        "defaulting {kind} is not idempotent"
    );
    manifest
}

fn check(kind: (&str, &str), manifest: Value, expected: Value) {
    assert_eq!(stored(kind.0, kind.1, manifest), expected, "{kind:?}");
}

/// Checks a single field, by JSON pointer.
fn check_at(kind: (&str, &str), pointer: &str, manifest: Value, expected: Value) {
    let stored = stored(kind.0, kind.1, manifest);
    let actual = stored.pointer(pointer).cloned().unwrap_or_default();
    assert_eq!(actual, expected, "{kind:?} {pointer}");
}

#[test]
fn fields_that_go_omits_are_not_stored() {
    let pod = json!({"metadata": {"labels": {}}, "spec": {
        "hostNetwork": false, "nodeSelector": {}, "hostUsers": false, "securityContext": {},
        "containers": [{"name": "c", "image": "x:1", "env": [{"name": "A", "value": ""}], "args": [],
            "stdin": false, "resources": {"limits": {}}}],
        "volumes": [{"name": "v", "emptyDir": {}}],
    }});
    let pod = stored("v1", "Pod", pod);
    assert_eq!(pod["metadata"], json!({}));
    let spec = &pod["spec"];
    for omitted in ["hostNetwork", "nodeSelector"] {
        assert_eq!(spec.get(omitted), None);
    }
    assert_eq!(spec["hostUsers"], false);
    assert_eq!(spec["volumes"], json!([{"name": "v", "emptyDir": {}}]));
    let container = &spec["containers"][0];
    assert_eq!(container["env"], json!([{"name": "A"}]));
    assert_eq!(container["resources"], json!({}));
    assert_eq!(
        (container.get("args"), container.get("stdin")),
        (None, None)
    );

    let claim = json!({"spec": {"storageClassName": "", "volumeName": ""}});
    let claim = stored("v1", "PersistentVolumeClaim", claim);
    assert_eq!(claim["spec"]["storageClassName"], "");
    assert_eq!(claim["spec"].get("volumeName"), None);
    check_at(
        ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        "/rules",
        json!({"rules": []}),
        json!([]),
    );
    let cluster = json!({"spec": {"syncMode": "Push", "taints": []}});
    check_at(
        ("cluster.karmada.io/v1alpha1", "Cluster"),
        "/spec",
        cluster,
        json!({"syncMode": "Push"}),
    );
}

fn template() -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "nginx:1.27"}]},
    })
}

fn stored_template() -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "containers": [{
                "name": "c", "image": "nginx:1.27", "imagePullPolicy": "IfNotPresent",
                "resources": {}, "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }],
            "dnsPolicy": "ClusterFirst", "restartPolicy": "Always",
            "schedulerName": "default-scheduler", "securityContext": {},
            "terminationGracePeriodSeconds": 30,
        },
    })
}

#[test]
fn workloads() {
    let selector = json!({"matchLabels": {"app": "web"}});
    check(
        ("apps/v1", "Deployment"),
        json!({"spec": {"selector": selector, "template": template()}}),
        json!({
            "metadata": {}, "status": {},
            "spec": {
                "replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
                "selector": selector, "template": stored_template(),
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
                },
            },
        }),
    );
    check(
        ("apps/v1", "ReplicaSet"),
        json!({"spec": {"replicas": 0, "selector": selector, "template": template()}}),
        json!({
            "metadata": {}, "status": {"replicas": 0},
            "spec": {"replicas": 0, "selector": selector, "template": stored_template()},
        }),
    );
    check(
        ("apps/v1", "StatefulSet"),
        json!({"spec": {
            "selector": selector, "template": template(), "serviceName": "web",
            "volumeClaimTemplates": [{"metadata": {"name": "d"}, "spec": {}}],
        }}),
        json!({
            "metadata": {}, "status": {"replicas": 0, "availableReplicas": 0},
            "spec": {
                "replicas": 1, "revisionHistoryLimit": 10, "selector": selector,
                "serviceName": "web", "template": stored_template(),
                "podManagementPolicy": "OrderedReady",
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
                "persistentVolumeClaimRetentionPolicy":
                    {"whenDeleted": "Retain", "whenScaled": "Retain"},
                "volumeClaimTemplates": [{
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "metadata": {"name": "d"}, "status": {"phase": "Pending"},
                    "spec": {"volumeMode": "Filesystem", "resources": {}},
                }],
            },
        }),
    );
    let daemons = ("apps/v1", "DaemonSet");
    check_at(
        daemons,
        "/spec/updateStrategy",
        json!({"spec": {"selector": selector, "template": template()}}),
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}),
    );
    check_at(
        daemons,
        "/spec/updateStrategy",
        json!({"spec": {"updateStrategy": {"type": "OnDelete"}}}),
        json!({"type": "OnDelete"}),
    );
    check_at(
        ("apps/v1", "Deployment"),
        "/spec/strategy",
        json!({"spec": {"strategy": {"type": "Recreate"}}}),
        json!({"type": "Recreate"}),
    );
    check_at(
        ("v1", "ReplicationController"),
        "/spec/selector",
        json!({"spec": {"template": template()}}),
        json!({"app": "web"}),
    );
}

#[test]
fn jobs() {
    check(
        ("batch/v1", "Job"),
        json!({"metadata": {"name": "j"}, "spec": {"template": template()}}),
        json!({
            "metadata": {"name": "j", "labels": {"app": "web"}}, "status": {},
            "spec": {
                "completions": 1, "parallelism": 1, "backoffLimit": 6, "suspend": false,
                "completionMode": "NonIndexed", "manualSelector": false,
                "podReplacementPolicy": "TerminatingOrFailed", "template": stored_template(),
            },
        }),
    );
    let job = ("batch/v1", "Job");
    for (field, spec, expected) in [
        ("completions", json!({"parallelism": 3}), json!(null)),
        ("parallelism", json!({"completions": 3}), json!(1)),
        (
            "backoffLimit",
            json!({"backoffLimitPerIndex": 1}),
            json!(i32::MAX),
        ),
        (
            "podReplacementPolicy",
            json!({"podFailurePolicy": {"rules": []}}),
            json!("Failed"),
        ),
    ] {
        check_at(
            job,
            &format!("/spec/{field}"),
            json!({"spec": spec}),
            expected,
        );
    }
    check_at(
        job,
        "/spec/podFailurePolicy/rules/0/onPodConditions/0/status",
        json!({"spec": {"podFailurePolicy": {"rules":
            [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}}}),
        json!("True"),
    );
    check(
        ("batch/v1", "CronJob"),
        json!({"spec": {"schedule": "@daily", "jobTemplate": {"spec": {"template": template()}}}}),
        json!({
            "metadata": {}, "status": {},
            "spec": {
                "schedule": "@daily", "concurrencyPolicy": "Allow", "suspend": false,
                "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1,
                "jobTemplate": {"metadata": {}, "spec": {"template": stored_template()}},
            },
        }),
    );
}

#[test]
fn a_job_selects_its_own_pods() {
    let identity = json!({
        "batch.kubernetes.io/controller-uid": "u", "batch.kubernetes.io/job-name": "j",
        "controller-uid": "u", "job-name": "j",
    });
    let mut job = json!({"spec": {"template": {"spec": {}}}});
    generate_job_selector(&mut job, "j", "u");
    assert_eq!(job["spec"]["template"]["metadata"]["labels"], identity);
    assert_eq!(
        job["spec"]["selector"],
        json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}})
    );
    let mut manual = json!({"spec": {"manualSelector": true, "template": {}}});
    let before = manual.clone();
    generate_job_selector(&mut manual, "j", "u");
    assert_eq!(manual, before);
}

#[test]
fn pods() {
    let pod = ("v1", "Pod");
    check(
        pod,
        json!({"metadata": {"name": "p"}, "spec": {
            "serviceAccountName": "bot", "hostNetwork": true,
            "containers": [{
                "name": "c", "image": "app",
                "ports": [{"containerPort": 80}],
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m"}},
                "livenessProbe": {"httpGet": {"port": 80}},
                "readinessProbe": {"grpc": {"port": 9}, "timeoutSeconds": 0, "periodSeconds": 7},
                "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
            }],
        }}),
        json!({"metadata": {"name": "p"}, "status": {"phase": "Pending"}, "spec": {
            "serviceAccountName": "bot", "serviceAccount": "bot", "hostNetwork": true,
            "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "enableServiceLinks": true,
            "schedulerName": "default-scheduler", "securityContext": {},
            "terminationGracePeriodSeconds": 30,
            "containers": [{
                "name": "c", "image": "app", "imagePullPolicy": "Always",
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}],
                "resources": {
                    "limits": {"cpu": "1", "memory": "1Gi"},
                    "requests": {"cpu": "100m", "memory": "1Gi"},
                },
                "livenessProbe": {
                    "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1,
                    "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
                },
                "readinessProbe": {
                    "grpc": {"port": 9, "service": ""}, "timeoutSeconds": 1,
                    "periodSeconds": 7, "successThreshold": 1, "failureThreshold": 3,
                },
                "env": [{"name": "N", "valueFrom":
                    {"fieldRef": {"fieldPath": "spec.nodeName", "apiVersion": "v1"}}}],
            }],
        }}),
    );
    for (volume, expected) in [
        (json!({}), json!({"emptyDir": {}})),
        (
            json!({"secret": {"secretName": "s"}}),
            json!({"secret": {"secretName": "s", "defaultMode": 420}}),
        ),
        (
            json!({"configMap": {"name": "c", "defaultMode": 256}}),
            json!({"configMap": {"name": "c", "defaultMode": 256}}),
        ),
        (
            json!({"hostPath": {"path": "/x"}}),
            json!({"hostPath": {"path": "/x", "type": ""}}),
        ),
        (
            json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}),
            json!({"projected": {"defaultMode": 420, "sources":
                [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}]}}),
        ),
        (
            json!({"downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "x"}}]}}),
            json!({"downwardAPI": {"defaultMode": 420, "items":
                [{"path": "l", "fieldRef": {"fieldPath": "x", "apiVersion": "v1"}}]}}),
        ),
        (
            json!({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}),
            json!({"ephemeral": {"volumeClaimTemplate":
                {"metadata": {}, "spec": {"volumeMode": "Filesystem", "resources": {}}}}}),
        ),
    ] {
        let (mut volume, mut expected) = (volume, expected);
        volume["name"] = "v".into();
        expected["name"] = "v".into();
        let spec = json!({"spec": {"containers": [], "volumes": [volume]}});
        check_at(pod, "/spec/volumes/0", spec, expected);
    }
}

#[test]
fn services() {
    let service = ("v1", "Service");
    check(
        service,
        json!({"metadata": {"name": "s"}, "spec":
            {"selector": {"a": "b"}, "ports": [{"port": 80}]}}),
        json!({
            "metadata": {"name": "s"}, "status": {"loadBalancer": {}},
            "spec": {
                "type": "ClusterIP", "sessionAffinity": "None", "selector": {"a": "b"},
                "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack",
                "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
            },
        }),
    );
    for (spec, field, expected) in [
        (
            json!({"type": "NodePort"}),
            "externalTrafficPolicy",
            json!("Cluster"),
        ),
        (
            json!({"type": "ClusterIP"}),
            "externalTrafficPolicy",
            json!(null),
        ),
        (
            json!({"externalIPs": ["192.0.2.1"]}),
            "externalTrafficPolicy",
            json!("Cluster"),
        ),
        (
            json!({"type": "LoadBalancer"}),
            "allocateLoadBalancerNodePorts",
            json!(true),
        ),
        (
            json!({"type": "ExternalName", "externalName": "x"}),
            "ipFamilies",
            json!(null),
        ),
        (
            json!({"type": "ExternalName"}),
            "internalTrafficPolicy",
            json!(null),
        ),
        (
            json!({"sessionAffinity": "ClientIP"}),
            "sessionAffinityConfig",
            json!({"clientIP": {"timeoutSeconds": 10800}}),
        ),
        (
            json!({"clusterIP": "None", "selector": {"a": "b"}}),
            "clusterIPs",
            json!(["None"]),
        ),
        (
            json!({"clusterIP": "None"}),
            "ipFamilies",
            json!(["IPv4", "IPv6"]),
        ),
        (
            json!({"clusterIP": "None"}),
            "ipFamilyPolicy",
            json!("RequireDualStack"),
        ),
        (
            json!({"ports": [{"port": 1, "targetPort": "web"}]}),
            "ports",
            json!([{"port": 1, "targetPort": "web", "protocol": "TCP"}]),
        ),
        (
            json!({"ports": [{"port": 1, "targetPort": 0}]}),
            "ports",
            json!([{"port": 1, "targetPort": 1, "protocol": "TCP"}]),
        ),
    ] {
        check_at(
            service,
            &format!("/spec/{field}"),
            json!({"spec": spec}),
            expected,
        );
    }
}

#[test]
fn configuration() {
    check(
        ("v1", "Secret"),
        json!({"metadata": {"name": "s"}, "data": {"a": "eA=="}, "stringData": {"a": "y", "b": "z"}}),
        json!({"metadata": {"name": "s"}, "type": "Opaque", "data": {"a": "eQ==", "b": "eg=="}}),
    );
    check(
        ("v1", "Namespace"),
        json!({"metadata": {"name": "n"}}),
        json!({
            "metadata": {"name": "n", "labels": {"kubernetes.io/metadata.name": "n"}},
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
        }),
    );
    check_at(
        ("v1", "Namespace"),
        "/spec",
        json!({"metadata": {"name": "n", "deletionTimestamp": "2026-01-02T03:04:05Z"}, "spec": {}}),
        json!({}),
    );
    check_at(
        ("v1", "LimitRange"),
        "/spec/limits/0",
        json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}}]}}),
        json!({
            "type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"},
            "default": {"cpu": "2"}, "defaultRequest": {"cpu": "2", "memory": "1Mi"},
        }),
    );
    check_at(
        ("rbac.authorization.k8s.io/v1", "RoleBinding"),
        "/subjects",
        json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [
            {"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}]}),
        json!([
            {"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"},
            {"kind": "ServiceAccount", "name": "s"},
        ]),
    );
    check_at(
        ("v1", "PersistentVolumeClaim"),
        "/spec",
        json!({"spec": {}}),
        json!({"volumeMode": "Filesystem", "resources": {}}),
    );
    check_at(
        ("networking.k8s.io/v1", "NetworkPolicy"),
        "/spec/policyTypes",
        json!({"spec": {"podSelector": {}, "egress": [{}]}}),
        json!(["Ingress", "Egress"]),
    );
    check_at(
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        "/spec/names",
        json!({"spec": {"names": {"kind": "FooBar", "plural": "foobars"}}}),
        json!({"kind": "FooBar", "plural": "foobars", "singular": "foobar", "listKind": "FooBarList"}),
    );
    check_at(
        ("scheduling.k8s.io/v1", "PriorityClass"),
        "",
        json!({"metadata": {"name": "p"}}),
        json!({"metadata": {"name": "p"}, "value": 0, "preemptionPolicy": "PreemptLowerPriority"}),
    );
}

#[test]
fn autoscalers() {
    let spec = json!({"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d"}});
    let v2 = ("autoscaling/v2", "HorizontalPodAutoscaler");
    let cpu = json!([{"type": "Resource", "resource":
        {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]);
    check_at(v2, "/spec/metrics", json!({"spec": spec}), cpu);
    check_at(v2, "/spec/minReplicas", json!({"spec": spec}), json!(1));
    check_at(v2, "/spec/behavior", json!({"spec": spec}), json!(null));
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
    check_at(
        v2,
        "/spec/behavior",
        json!({"spec": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}}}}),
        json!({
            "scaleDown":
                {"selectPolicy": "Max", "stabilizationWindowSeconds": 60, "policies": [percent]},
            "scaleUp": {"selectPolicy": "Max", "stabilizationWindowSeconds": 0,
                "policies": [pods, percent]},
        }),
    );
    let v1 = ("autoscaling/v1", "HorizontalPodAutoscaler");
    check_at(v1, "/spec/metrics", json!({"spec": spec}), json!(null));
}

#[test]
fn quantities_and_times_are_canonical() {
    let resources = |hard: Value| json!({"spec": {"hard": hard}});
    for (quantity, expected) in [
        (json!("0.5"), json!("500m")),
        (json!(" 1\t"), json!("1")),
        (json!("1000m"), json!("1")),
        (json!("1024Mi"), json!("1Gi")),
        (json!("1e3"), json!("1e3")),
        (json!(2), json!("2")),
        (json!(0.25), json!("250m")),
        (json!("much"), json!("much")),
        (json!(true), json!(true)),
    ] {
        let quota = ("v1", "ResourceQuota");
        check_at(
            quota,
            "/spec/hard/cpu",
            resources(json!({"cpu": quantity})),
            expected,
        );
    }
    check_at(
        ("v1", "ConfigMap"),
        "/metadata/creationTimestamp",
        json!({"metadata": {"creationTimestamp": "2026-01-02T05:04:05.9+02:00"}}),
        json!("2026-01-02T03:04:05Z"),
    );
    check_at(
        ("coordination.k8s.io/v1", "Lease"),
        "/spec/renewTime",
        json!({"spec": {"renewTime": "2026-01-02T03:04:05Z"}}),
        json!("2026-01-02T03:04:05.000000Z"),
    );
}

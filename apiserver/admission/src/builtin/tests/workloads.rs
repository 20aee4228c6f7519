//! Tests of workloads and their pods.

use serde_json::{Value, json};

use super::{check, check_reasons, check_update, errors, with};

pub(super) fn workload(restart: &str) -> Value {
    json!({"metadata": {"name": "w"}, "spec": {"selector": {"matchLabels": {"app": "x"}},
        "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"restartPolicy": restart,
            "containers": [{"name": "c", "image": "i"}]}}}})
}

#[test]
fn deployments() {
    let template = |c: Value| json!({"spec": {"template": {"spec": c}}});
    let rolling = |s: Value| json!({"spec": {"strategy": s}});
    let base = workload("Always");
    check(
        "apps/v1",
        "Deployment",
        &base,
        &[
            (json!({}), &[]),
            (
                json!({"spec": {"selector": null}}),
                &["spec.selector", "spec.template.metadata.labels"],
            ),
            (
                json!({"spec": {"selector": {"matchLabels": null}}}),
                &["spec.selector"],
            ),
            (
                json!({"spec": {"selector": {"matchLabels": {"app": "y"}}}}),
                &["spec.template.metadata.labels"],
            ),
            (json!({"spec": {"replicas": -1}}), &["spec.replicas"]),
            (
                json!({"spec": {"progressDeadlineSeconds": 5, "minReadySeconds": 5}}),
                &["spec.progressDeadlineSeconds"],
            ),
            (
                template(json!({"restartPolicy": "Never"})),
                &["spec.template.spec.restartPolicy"],
            ),
            (
                rolling(json!({"type": "Recreate", "rollingUpdate": {}})),
                &["spec.strategy.rollingUpdate"],
            ),
            (
                rolling(json!({"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}})),
                &[],
            ),
            (
                rolling(json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}})),
                &["spec.strategy.rollingUpdate.maxUnavailable"],
            ),
            (
                rolling(json!({"rollingUpdate": {"maxSurge": "x"}})),
                &["spec.strategy.rollingUpdate.maxSurge"],
            ),
        ],
    );
    check_update(
        "apps/v1",
        "Deployment",
        &base,
        &[
            (json!({"spec": {"replicas": 3}}), &[]),
            (
                json!({"spec": {"selector": {"matchLabels": {"b": "y"}}, "template": {"metadata": {"labels": {"b": "y"}}}}}),
                &["spec.selector"],
            ),
        ],
    );
    let text = errors(
        "apps/v1",
        "Deployment",
        &with(
            &base,
            &json!({"spec": {"selector": {"matchLabels": {"app": "y"}}}}),
        ),
        None,
    );
    assert_eq!(
        text[0].to_string(),
        "spec.template.metadata.labels: Invalid value: {\"app\":\"x\"}: `selector` does not match template `labels`"
    );
}

#[test]
fn containers() {
    let base = workload("Always");
    let all = "spec.template.spec";
    let first = format!("{all}.containers[0]");
    let change = |c: Value| {
        let mut container = json!({"name": "c", "image": "i"});
        container = with(&container, &c);
        json!({"spec": {"template": {"spec": {"volumes": [{"name": "v"}], "containers": [container]}}}})
    };
    let table: Vec<(Value, Vec<String>)> = vec![
        (
            change(
                json!({"ports": [{"containerPort": 80, "name": "http"}], "env": [{"name": "A"}], "volumeMounts": [{"name": "v", "mountPath": "/x"}]}),
            ),
            vec![],
        ),
        (
            json!({"spec": {"template": {"spec": {"containers": []}}}}),
            vec![format!("{all}.containers")],
        ),
        (
            json!({"spec": {"template": {"spec": {"initContainers": [{"name": "c", "image": "i"}]}}}}),
            vec![format!("{all}.initContainers[0].name")],
        ),
        (
            json!({"spec": {"template": {"spec": {"volumes": [{"name": "v"}, {"name": "v"}]}}}}),
            vec![format!("{all}.volumes[1].name")],
        ),
        (change(json!({"name": "C"})), vec![format!("{first}.name")]),
        (change(json!({"name": null})), vec![format!("{first}.name")]),
        (change(json!({"image": ""})), vec![format!("{first}.image")]),
        (change(json!({"image": " i"})), vec![]),
        (
            change(json!({"ports": [{"containerPort": 0}]})),
            vec![format!("{first}.ports[0].containerPort")],
        ),
        (
            change(json!({"ports": [{"containerPort": 65536}]})),
            vec![format!("{first}.ports[0].containerPort")],
        ),
        (
            change(json!({"ports": [{"containerPort": 1, "protocol": "ICMP"}]})),
            vec![format!("{first}.ports[0].protocol")],
        ),
        (
            change(json!({"ports": [{"containerPort": 1, "name": "a--b"}]})),
            vec![format!("{first}.ports[0].name")],
        ),
        (
            change(
                json!({"ports": [{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]}),
            ),
            vec![format!("{first}.ports[1].name")],
        ),
        (
            change(json!({"env": [{"name": "A=B"}]})),
            vec![format!("{first}.env[0].name")],
        ),
        (
            change(json!({"env": [{"name": "A", "value": "x", "valueFrom": {}}]})),
            vec![format!("{first}.env[0].valueFrom")],
        ),
        (
            change(json!({"volumeMounts": [{"name": "w", "mountPath": "/x"}]})),
            vec![format!("{first}.volumeMounts[0].name")],
        ),
        (
            change(
                json!({"volumeMounts": [{"name": "v", "mountPath": "/x"}, {"name": "v", "mountPath": "/x"}]}),
            ),
            vec![format!("{first}.volumeMounts[1].mountPath")],
        ),
        (
            change(json!({"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}})),
            vec![],
        ),
        (
            change(json!({"resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "2"}}})),
            vec![format!("{first}.resources.requests")],
        ),
        (
            change(json!({"resources": {"limits": {"cpu": "-2"}}})),
            vec![format!("{first}.resources.limits[cpu]")],
        ),
    ];
    for (change, expect) in &table {
        let expect: Vec<&str> = expect.iter().map(String::as_str).collect();
        check("apps/v1", "Deployment", &base, &[(change.clone(), &expect)]);
    }
}

#[test]
fn other_workloads() {
    let base = workload("Always");
    let moved = json!({"spec": {"selector": {"matchLabels": {"b": "y"}}, "template": {"metadata": {"labels": {"b": "y"}}}}});
    let labels = "spec.template.metadata.labels";
    for (kind, unselected) in [
        ("ReplicaSet", &["spec.selector", labels][..]),
        ("DaemonSet", &[labels]),
    ] {
        check(
            "apps/v1",
            kind,
            &base,
            &[
                (json!({}), &[]),
                (json!({"spec": {"selector": null}}), unselected),
            ],
        );
        check_update(
            "apps/v1",
            kind,
            &base,
            &[(json!({}), &[]), (moved.clone(), &["spec.selector"])],
        );
    }
    check_update(
        "apps/v1",
        "StatefulSet",
        &base,
        &[
            (json!({"spec": {"replicas": 2, "minReadySeconds": 1}}), &[]),
            (json!({"spec": {"serviceName": "other"}}), &["spec"]),
        ],
    );
    let claims = json!({"spec": {"volumeClaimTemplates": [{"metadata": {"name": "data"}}],
        "template": {"spec": {"containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "data", "mountPath": "/d"}]}]}}}});
    check("apps/v1", "StatefulSet", &base, &[(claims, &[])]);

    check(
        "v1",
        "Pod",
        &json!({"spec": {"containers": [{"name": "c", "image": "i"}]}}),
        &[
            (json!({}), &[]),
            (json!({"spec": {"containers": null}}), &["spec.containers"]),
            (
                json!({"spec": {"restartPolicy": "Sometimes"}}),
                &["spec.restartPolicy"],
            ),
        ],
    );
}

#[test]
fn strategies_and_older_workloads() {
    let base = workload("Always");
    let update = |u: Value| json!({"spec": {"updateStrategy": u}});
    let deadline = json!({"spec": {"template": {"spec": {"activeDeadlineSeconds": 5}}}});
    let at_deadline = &["spec.template.spec.activeDeadlineSeconds"][..];
    let rolling = "spec.updateStrategy.rollingUpdate";
    check(
        "apps/v1",
        "DaemonSet",
        &base,
        &[
            (
                update(json!({"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}})),
                &[],
            ),
            (
                update(json!({"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}})),
                &[&format!("{rolling}.maxSurge")],
            ),
            (
                update(json!({"rollingUpdate": {"maxUnavailable": 0}})),
                &[&format!("{rolling}.maxUnavailable")],
            ),
            (deadline.clone(), at_deadline),
        ],
    );
    check(
        "apps/v1",
        "StatefulSet",
        &base,
        &[
            (json!({"spec": {"podManagementPolicy": "Parallel"}}), &[]),
            (
                json!({"spec": {"podManagementPolicy": "Random", "ordinals": {"start": -1}}}),
                &["spec.podManagementPolicy", "spec.ordinals.start"],
            ),
            (
                update(json!({"type": "OnDelete", "rollingUpdate": {}})),
                &[rolling],
            ),
            (
                update(json!({"type": "Recreate"})),
                &["spec.updateStrategy"],
            ),
            (
                update(json!({"rollingUpdate": {"partition": -1}})),
                &[&format!("{rolling}.partition")],
            ),
            (deadline.clone(), at_deadline),
        ],
    );
    check("apps/v1", "Deployment", &base, &[(deadline, at_deadline)]);
    let controller = with(
        &base,
        &json!({"spec": {"selector": {"matchLabels": null, "app": "x"}}}),
    );
    check(
        "v1",
        "ReplicationController",
        &controller,
        &[
            (json!({}), &[]),
            (json!({"spec": {"selector": null}}), &["spec.selector"]),
            (json!({"spec": {"template": null}}), &["spec.template"]),
            (
                json!({"spec": {"selector": {"app": "y"}}}),
                &["spec.template.metadata.labels"],
            ),
        ],
    );
    check(
        "v1",
        "PodTemplate",
        &json!({"template": base["spec"]["template"]}),
        &[
            (json!({}), &[]),
            (
                json!({"template": {"spec": {"containers": []}}}),
                &["template.spec.containers"],
            ),
        ],
    );
}

#[test]
fn update_strategies_and_revisions() {
    let base = workload("Always");
    let spec = |fields: Value| json!({ "spec": fields });
    let kind = |kind| ("apps/v1", kind);
    let rolling = |rolling: Value| {
        spec(json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}))
    };
    let unavailable = "Invalid spec.strategy.rollingUpdate.maxUnavailable";
    check_reasons(
        kind("Deployment"),
        &base,
        None,
        &[
            (
                rolling(json!({"maxUnavailable": "100%", "maxSurge": "200%"})),
                &[],
            ),
            (
                rolling(json!({"maxUnavailable": "101%", "maxSurge": 0})),
                &[unavailable],
            ),
            (
                rolling(json!({"maxUnavailable": "00%", "maxSurge": 0})),
                &[unavailable],
            ),
            (
                spec(json!({"strategy": {"type": "Blue"}})),
                &["NotSupported spec.strategy"],
            ),
            (
                spec(json!({"progressDeadlineSeconds": -1, "minReadySeconds": -2})),
                &[
                    "Invalid spec.minReadySeconds",
                    "Invalid spec.progressDeadlineSeconds",
                ],
            ),
            (
                spec(json!({"selector": {"matchLabels": {"a b": "c"}}})),
                &["Invalid spec.selector.matchLabels", "Invalid spec.selector"],
            ),
        ],
    );
    let update = |strategy: Value| spec(json!({ "updateStrategy": strategy }));
    let path = "spec.updateStrategy.rollingUpdate";
    check_reasons(
        kind("DaemonSet"),
        &base,
        None,
        &[
            (update(json!({"type": "OnDelete"})), &[]),
            (
                update(json!({"type": "Later"})),
                &["NotSupported spec.updateStrategy"],
            ),
            (
                update(json!({"rollingUpdate": {"maxUnavailable": 0, "maxSurge": "101%"}})),
                &[&format!("Invalid {path}.maxSurge")],
            ),
            (
                spec(json!({"template": {"spec": {"activeDeadlineSeconds": 0}}})),
                &[
                    "Forbidden spec.template.spec.activeDeadlineSeconds",
                    "Invalid spec.template.spec.activeDeadlineSeconds",
                ],
            ),
        ],
    );
    let unavailable = format!("Invalid {path}.maxUnavailable");
    let retention = "spec.persistentVolumeClaimRetentionPolicy";
    check_reasons(
        kind("StatefulSet"),
        &base,
        None,
        &[
            (
                update(json!({"rollingUpdate": {"maxUnavailable": "50%"}})),
                &[],
            ),
            (
                update(json!({"rollingUpdate": {"maxUnavailable": 0}})),
                &[&unavailable],
            ),
            (
                update(json!({"rollingUpdate": {"maxUnavailable": "101%"}})),
                &[&unavailable],
            ),
            (
                spec(
                    json!({"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Keep"}}),
                ),
                &[&format!("NotSupported {retention}.whenScaled")],
            ),
            (spec(json!({"revisionHistoryLimit": -1})), &[]),
            (
                json!({"metadata": {"name": "a.b"}, "spec": {"serviceName": "S"}}),
                &["Invalid metadata.name", "Invalid spec.serviceName"],
            ),
        ],
    );
    let stored = with(
        &base,
        &json!({"metadata": {"name": "a.b"}, "spec": {"serviceName": "S", "template": {"spec": {"containers": [{}]}}}}),
    );
    check_reasons(
        kind("StatefulSet"),
        &stored,
        Some(&stored),
        &[
            (spec(json!({"replicas": 2, "revisionHistoryLimit": 3})), &[]),
            (
                spec(json!({"template": {"spec": {"hostNetwork": true}}})),
                &[
                    "Required spec.template.spec.containers[0].name",
                    "Required spec.template.spec.containers[0].image",
                ],
            ),
        ],
    );
    let revision = json!({"data": {"a": 1}, "revision": 1});
    check_reasons(
        kind("ControllerRevision"),
        &revision,
        None,
        &[
            (json!({"revision": null}), &[]),
            (
                json!({"data": null, "revision": -1}),
                &["Required data", "Invalid revision"],
            ),
        ],
    );
    check_reasons(
        kind("ControllerRevision"),
        &revision,
        Some(&revision),
        &[
            (json!({"revision": 2}), &[]),
            (json!({"data": {"a": 2}}), &["Invalid data"]),
        ],
    );
}

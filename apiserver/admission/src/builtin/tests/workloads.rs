//! Tests of workloads and their pods.

use serde_json::{Value, json};

use super::{check, check_update, errors, with};

fn workload(restart: &str) -> Value {
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
            (json!({"spec": {"selector": null}}), &["spec.selector"]),
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
        let mut full = json!({"name": "c", "image": "i"});
        full = with(&full, &c);
        json!({"spec": {"template": {"spec": {"volumes": [{"name": "v"}], "containers": [full]}}}})
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
            vec![format!("{first}.name")],
        ),
        (
            json!({"spec": {"template": {"spec": {"volumes": [{"name": "v"}, {"name": "v"}]}}}}),
            vec![format!("{all}.volumes[1].name")],
        ),
        (change(json!({"name": "C"})), vec![format!("{first}.name")]),
        (change(json!({"name": null})), vec![format!("{first}.name")]),
        (change(json!({"image": ""})), vec![format!("{first}.image")]),
        (
            change(json!({"image": " i"})),
            vec![format!("{first}.image")],
        ),
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
    for kind in ["ReplicaSet", "DaemonSet"] {
        check(
            "apps/v1",
            kind,
            &base,
            &[
                (json!({}), &[]),
                (json!({"spec": {"selector": null}}), &["spec.selector"]),
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

    let job = workload("Never");
    check(
        "batch/v1",
        "Job",
        &job,
        &[
            (json!({"spec": {"selector": null}}), &[]),
            (json!({"spec": {"parallelism": -1}}), &["spec.parallelism"]),
            (
                json!({"spec": {"completionMode": "Sorted", "backoffLimitPerIndex": 1}}),
                &["spec.completionMode", "spec.backoffLimitPerIndex"],
            ),
            (
                json!({"spec": {"completionMode": "Indexed", "completions": 1, "parallelism": 100_001}}),
                &["spec.parallelism"],
            ),
            (
                json!({"spec": {"podFailurePolicy": {}, "template": {"spec": {"restartPolicy": "OnFailure"}}}}),
                &["spec.template.spec.restartPolicy"],
            ),
            (
                json!({"spec": {"template": {"spec": {"restartPolicy": "Always"}}}}),
                &["spec.template.spec.restartPolicy"],
            ),
        ],
    );
    check_update(
        "batch/v1",
        "Job",
        &job,
        &[
            (json!({"spec": {"parallelism": 2}}), &[]),
            (json!({"spec": {"completions": 2}}), &["spec.completions"]),
            (
                json!({"spec": {"completionMode": "Indexed"}}),
                &["spec.completions", "spec.completionMode"],
            ),
            (
                json!({"spec": {"template": {"spec": {"hostNetwork": true}}}}),
                &["spec.template"],
            ),
        ],
    );
    let cron = json!({"metadata": {"name": "c"}, "spec": {"schedule": "@daily", "jobTemplate": {"spec": with(&job["spec"], &json!({"selector": null}))}}});
    check(
        "batch/v1",
        "CronJob",
        &cron,
        &[
            (json!({}), &[]),
            (json!({"spec": {"schedule": ""}}), &["spec.schedule"]),
            (json!({"spec": {"schedule": "* * *"}}), &["spec.schedule"]),
            (
                json!({"metadata": {"name": "c".repeat(53)}}),
                &["metadata.name"],
            ),
            (json!({"spec": {"schedule": "@every 1h30m"}}), &[]),
            (
                json!({"spec": {"schedule": "TZ=UTC * * * * *"}}),
                &["spec.schedule"],
            ),
            (json!({"spec": {"timeZone": "Europe/Paris"}}), &[]),
            (json!({"spec": {"timeZone": ""}}), &["spec.timeZone"]),
            (json!({"spec": {"timeZone": "local"}}), &["spec.timeZone"]),
            (
                json!({"spec": {"timeZone": "europe/paris"}}),
                &["spec.timeZone"],
            ),
            (
                json!({"spec": {"jobTemplate": {"spec": {"selector": {}, "manualSelector": true}}}}),
                &[
                    "spec.jobTemplate.spec.selector",
                    "spec.jobTemplate.spec.manualSelector",
                ],
            ),
            (
                json!({"spec": {"successfulJobsHistoryLimit": -1}}),
                &["spec.successfulJobsHistoryLimit"],
            ),
        ],
    );
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

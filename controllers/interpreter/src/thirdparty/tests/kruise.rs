//! Tests of apps.kruise.io.

use karmada_api::well_known_keys::TEMPLATE_GENERATION;

use super::*;

const CLONE_SET: &str = "apps.kruise.io/v1alpha1 CloneSet";
const STATEFUL_SET: &str = "apps.kruise.io/v1beta1 StatefulSet";
const DAEMON_SET: &str = "apps.kruise.io/v1alpha1 DaemonSet";
const UNITED: &str = "apps.kruise.io/v1alpha1 UnitedDeployment";
const BROADCAST: &str = "apps.kruise.io/v1alpha1 BroadcastJob";
const ADVANCED: &str = "apps.kruise.io/v1alpha1 AdvancedCronJob";
const SIDECAR: &str = "apps.kruise.io/v1alpha1 SidecarSet";
const REPLICATED: [&str; 3] = [CLONE_SET, STATEFUL_SET, UNITED];

fn observed(
    generation: i64,
    observed: i64,
    replicas: Value,
    updated: i64,
    available: i64,
) -> Value {
    json!({"metadata": {"generation": generation}, "spec": {"replicas": replicas},
           "status": {"observedGeneration": observed, "updatedReplicas": updated, "availableReplicas": available}})
}

// proves: CRD-kruise-health
#[test]
fn replicated_kinds_are_healthy_once_all_is_updated_and_available() {
    for kind in REPLICATED {
        check_health(
            kind,
            &[
                (observed(2, 2, json!(3), 3, 3), Some(true)),
                (observed(2, 2, json!(3), 4, 4), Some(true)),
                (observed(2, 1, json!(3), 3, 3), Some(false)),
                (observed(2, 2, json!(3), 2, 3), Some(false)),
                (observed(2, 2, json!(3), 3, 2), Some(false)),
                (observed(2, 2, Value::Null, 1, 1), Some(true)),
                (
                    json!({"metadata": {"generation": 2}, "spec": {"replicas": 1}, "status": {"observedGeneration": 1}}),
                    Some(false),
                ),
                (
                    json!({"metadata": {"generation": 2}, "spec": {"replicas": 1}, "status": {"observedGeneration": 2}}),
                    None,
                ),
            ],
        );
        let bare = json!({"metadata": {}, "spec": {}});
        let expected = (kind == UNITED).then_some(false);
        check_health(kind, &[(bare, expected)]);
    }
}

// proves: CRD-kruise-replicas
#[test]
fn replicas_are_those_of_the_spec() {
    for kind in REPLICATED {
        let template = namespaced_object(json!({"replicas": 3, "template": pod_template("100m")}));
        let actual = ThirdPartyInterpreter
            .replicas(&gvk(kind), &template)
            .unwrap()
            .unwrap();
        assert_eq!(
            (actual.count, actual.requirements),
            (3, Some(cpu_request("100m")))
        );
        for missing in [
            json!({"template": pod_template("1")}),
            json!({"replicas": 1}),
        ] {
            assert!(
                ThirdPartyInterpreter
                    .replicas(&gvk(kind), &namespaced_object(missing))
                    .is_err()
            );
        }
        let revised = ThirdPartyInterpreter.revise_replica(
            &gvk(kind),
            &namespaced_object(json!({"a": {}, "b": null})),
            5,
        );
        assert_eq!(
            revised.unwrap(),
            Some(namespaced_object(json!({"a": {}, "replicas": 5})))
        );
        assert!(
            ThirdPartyInterpreter
                .revise_replica(&gvk(kind), &json!({}), 5)
                .is_err()
        );
    }
}

// proves: CRD-kruise-deps
#[test]
fn dependencies_come_from_the_pod_template() {
    for kind in [CLONE_SET, STATEFUL_SET, UNITED, DAEMON_SET, BROADCAST] {
        let template = namespaced_object(json!({"template": template_with_dependencies()}));
        assert_eq!(
            dependencies(kind, &template),
            template_dependencies(),
            "{kind}"
        );
        let nothing = namespaced_object(json!({"template": pod_template("1")}));
        assert_eq!(dependencies(kind, &nothing), Some(Vec::new()), "{kind}");
        assert_eq!(
            dependencies(kind, &namespaced_object(json!({}))),
            None,
            "{kind}"
        );
        let homeless = json!({"spec": {"template": {"spec": {"serviceAccountName": "robot"}}}});
        let actual = dependencies(kind, &homeless).unwrap();
        assert_eq!(actual, ["ServiceAccount default/robot"]);
    }
}

// proves: CRD-kruise-status
#[test]
fn counters_add_up() {
    let report = |n: i64, revision: &str, template: i64| {
        json!({"replicas": n, "readyReplicas": 1, "updateRevision": revision, "observedGeneration": 1,
               "generation": 1, "resourceTemplateGeneration": template, "other": 1})
    };
    let template = json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1, "updateRevision": "old", "mine": 1}});
    let common = json!({"replicas": 5, "readyReplicas": 2, "updatedReplicas": 0, "availableReplicas": 0,
                        "updatedReadyReplicas": 0, "currentRevision": "", "mine": 1});
    for (kind, more) in [
        (
            CLONE_SET,
            json!({"expectedUpdatedReplicas": 0, "labelSelector": ""}),
        ),
        (STATEFUL_SET, json!({"currentReplicas": 0})),
    ] {
        let expected = |observed: i64, revision: &str| {
            let mut all = common.as_object().unwrap().clone();
            all.extend(more.as_object().unwrap().clone());
            all.insert("observedGeneration".into(), observed.into());
            all.insert("updateRevision".into(), revision.into());
            Value::Object(all)
        };
        let status = |all: &[Value]| aggregated(kind, &template, all).unwrap()["status"].clone();
        let all = [report(2, "x", 2), report(3, "", 2)];
        assert_eq!(status(&all), expected(2, "x"), "{kind}");
        let all = [report(2, "x", 2), report(3, "y", 1)];
        assert_eq!(status(&all), expected(1, "y"), "{kind}");
        let all = [report(2, "", 2), Value::Null, report(3, "", 2)];
        assert_eq!(status(&all), expected(1, ""), "{kind}");
    }
}

// proves: CRD-kruise-status
#[test]
fn status_without_items_is_reset() {
    let template = json!({"metadata": {}, "status": {"replicas": 4, "conditions": [], "mine": 1}});
    for (kind, counter, text) in [
        (CLONE_SET, "expectedUpdatedReplicas", None),
        (STATEFUL_SET, "currentReplicas", Some("currentRevision")),
        (UNITED, "unavailableReplicas", None),
        (DAEMON_SET, "numberUnavailable", None),
    ] {
        let result = aggregated_without_items(kind, &template);
        assert_eq!(result["metadata"], json!({"generation": 0}));
        let status = &result["status"];
        assert_eq!(
            (&status["observedGeneration"], &status[counter]),
            (&json!(0), &json!(0))
        );
        assert_eq!(
            (&status["mine"], status.get("conditions")),
            (&json!(1), None)
        );
        for revision in ["currentRevision", "labelSelector"] {
            let expected = (text == Some(revision)).then(|| json!(""));
            assert_eq!(status.get(revision).cloned(), expected, "{kind}");
        }
        let generation = json!({"metadata": {"generation": 7}});
        let result = aggregated(kind, &generation, &[]).unwrap();
        assert_eq!(result["status"]["observedGeneration"], 7, "{kind}");
    }
}

// proves: CRD-kruise-status
#[test]
fn counters_are_reflected_with_generations() {
    let copy = |status: Value| json!({"metadata": {"generation": 4, "annotations": {TEMPLATE_GENERATION: "2"}}, "status": status});
    for (kind, own) in [
        (
            CLONE_SET,
            json!({"expectedUpdatedReplicas": 1, "labelSelector": "a=b"}),
        ),
        (STATEFUL_SET, json!({"currentReplicas": 1})),
        (
            UNITED,
            json!({"conditions": [{"type": "A"}], "unavailableReplicas": 0}),
        ),
        (DAEMON_SET, json!({"daemonSetHash": "h", "numberReady": 2})),
    ] {
        let mut status = own.clone();
        status["observedGeneration"] = json!(4);
        let mut expected = status.clone();
        status["collisionCount"] = json!(1);
        expected["generation"] = json!(4);
        expected["resourceTemplateGeneration"] = json!(2);
        assert_eq!(reflected(kind, &copy(status)), expected, "{kind}");
    }
}

// proves: CRD-kruise-health, CRD-kruise-status
#[test]
fn daemons() {
    let report = |desired: i64, updated: i64, available: i64| {
        json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1, "desiredNumberScheduled": desired,
               "updatedNumberScheduled": updated, "numberAvailable": available}})
    };
    check_health(
        DAEMON_SET,
        &[
            (report(3, 3, 3), Some(true)),
            (report(3, 2, 3), Some(false)),
            (report(3, 3, 2), Some(false)),
            (
                json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1}}),
                Some(false),
            ),
            (
                json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1}}),
                None,
            ),
            (json!({"metadata": {}}), None),
        ],
    );
    let status = status_of(
        DAEMON_SET,
        &[
            json!({"numberReady": 1, "daemonSetHash": "h"}),
            json!({"numberReady": 2, "daemonSetHash": ""}),
        ],
    );
    assert_eq!(
        (&status["numberReady"], &status["daemonSetHash"]),
        (&json!(3), &json!("h"))
    );
    assert_eq!(status_of(DAEMON_SET, &[Value::Null])["daemonSetHash"], 0);
}

// proves: CRD-united-conditions
#[test]
fn conditions_of_united_deployments() {
    let report = |kind: &str, status: &str| json!({"type": kind, "status": status});
    let status = status_of(
        UNITED,
        &[
            json!({"conditions": [report("A", "True"), report("B", "True")]}),
            Value::Null,
            json!({"conditions": [report("C", "True"), report("A", "False")], "replicas": 2}),
        ],
    );
    assert_eq!(
        status["conditions"],
        json!([
            report("A", "False"),
            report("B", "True"),
            report("C", "True")
        ])
    );
    let template = json!({"metadata": {}, "status": {"conditions": [report("Old", "True")]}});
    let result = aggregated(UNITED, &template, &[json!({"replicas": 2}), Value::Null]).unwrap();
    // Even for generation 0 a cluster without a status is not up to date.
    assert_eq!(
        result["status"]["conditions"],
        json!([report("Old", "True")])
    );
    assert_eq!(result["status"]["observedGeneration"], 0);
}

// proves: CRD-broadcast
#[test]
fn broadcast_jobs() {
    let report = |desired: i64, failed: Value, succeeded: i64, active: i64| json!({"desired": desired, "failed": failed, "succeeded": succeeded, "active": active});
    check_health_by_status(
        BROADCAST,
        &[
            (report(3, json!(0), 3, 0), Some(true)),
            (report(3, json!(0), 0, 3), Some(true)),
            (report(3, json!(1), 2, 0), Some(false)),
            (report(0, json!(0), 0, 0), Some(false)),
            (report(3, json!(0), 0, 0), Some(false)),
            (report(3, Value::Null, 3, 0), Some(false)),
            (json!({"failed": 0}), Some(true)),
        ],
    );
    let job =
        |spec: Value| ThirdPartyInterpreter.replicas(&gvk(BROADCAST), &namespaced_object(spec));
    assert_eq!(
        job(json!({"template": pod_template("1")}))
            .unwrap()
            .unwrap()
            .count,
        1
    );
    assert_eq!(
        job(json!({"template": pod_template("1"), "parallelism": 4}))
            .unwrap()
            .unwrap()
            .count,
        4
    );
    assert!(job(json!({"template": pod_template("1"), "parallelism": "50%"})).is_err());
    let revised = ThirdPartyInterpreter
        .revise_replica(&gvk(BROADCAST), &namespaced_object(json!({})), 2)
        .unwrap();
    assert_eq!(revised, Some(namespaced_object(json!({"parallelism": 2}))));
}

// proves: CRD-broadcast-end
#[test]
fn broadcast_jobs_end_everywhere_or_fail_somewhere() {
    let ended = |kind: &str| json!({"succeeded": 1, "desired": 1, "phase": kind, "conditions": [{"type": "Other", "status": "True"}, {"type": kind, "status": "True"}]});
    let running = json!({"active": 1, "desired": 1, "startTime": "t"});
    let conditions = |all: &[Value]| {
        let status = status_of(BROADCAST, all);
        let list = status.get("conditions").cloned().unwrap_or_default();
        list.as_array().map_or(String::new(), |l| {
            l[0]["message"].as_str().unwrap().to_owned()
        })
    };
    assert_eq!(
        conditions(&[ended("Complete"), ended("Complete")]),
        "Job completed"
    );
    assert_eq!(conditions(&[running.clone(), ended("Complete")]), "");
    // The second cluster counts like the first.
    assert_eq!(
        conditions(&[ended("Complete"), running.clone()]),
        "Job completed"
    );
    assert_eq!(
        conditions(&[ended("Failed"), running.clone(), ended("Complete")]),
        "Job executed failed in member clusters: a, b"
    );
    let status = status_of(BROADCAST, &[ended("Complete"), Value::Null, running]);
    assert_eq!(
        status,
        json!({"active": 1, "succeeded": 1, "failed": 0, "desired": 2, "phase": "Complete",
               "conditions": [{"type": "Completed", "status": "True", "reason": "Completed", "message": "Job completed"}]})
    );
    assert_eq!(
        status_of(BROADCAST, &[]),
        json!({"active": 0, "succeeded": 0, "failed": 0, "desired": 0, "phase": ""})
    );
}

// proves: CRD-broadcast-retain
#[test]
fn broadcast_jobs_keep_the_members_labels() {
    let labelled = |labels: Value| json!({"spec": {"template": {"metadata": {"labels": labels, "name": "p"}}}});
    let retain = |desired: &Value, observed: &Value| {
        ThirdPartyInterpreter.retain(&gvk(BROADCAST), desired, observed)
    };
    let desired = labelled(json!({"a": "1"}));
    let kept = retain(&desired, &labelled(json!({"uid": "2"}))).unwrap();
    assert_eq!(kept, Some(labelled(json!({"uid": "2"}))));
    let kept = retain(&desired, &json!({"spec": {"template": {}}})).unwrap();
    assert_eq!(kept, Some(desired.clone()));
    assert!(retain(&desired, &json!({"spec": {}})).is_err());
    assert!(retain(&json!({"spec": {"template": {}}}), &desired).is_err());
}

// proves: CRD-advanced-cron
#[test]
fn advanced_cron_jobs() {
    let report = |job: &str, time: Value| json!({"active": [{"name": job}], "type": "Job", "lastScheduleTime": time});
    let status = status_of(
        ADVANCED,
        &[
            report("j1", json!("2026-01-02")),
            Value::Null,
            report("j2", json!("2026-01-01")),
        ],
    );
    assert_eq!(
        status,
        json!({"active": [{"name": "j1"}, {"name": "j2"}], "type": "Job", "lastScheduleTime": "2026-01-01"})
    );
    assert_eq!(status_of(ADVANCED, &[json!({})]), json!({"type": ""}));
    let template = json!({"metadata": {"name": "x"}, "status": {"type": "Old"}});
    assert_eq!(aggregated_without_items(ADVANCED, &template), template);

    let of = |kind: &str, pod: Value| {
        namespaced_object(json!({"template": {kind: {"spec": {"template": pod}}}}))
    };
    for kind in ["jobTemplate", "broadcastJobTemplate"] {
        assert_eq!(
            dependencies(ADVANCED, &of(kind, template_with_dependencies())),
            template_dependencies(),
            "{kind}"
        );
    }
    let mut both = of("jobTemplate", template_with_dependencies());
    both["spec"]["template"]["broadcastJobTemplate"] =
        json!({"spec": {"template": pod_template("1")}});
    assert_eq!(dependencies(ADVANCED, &both), Some(Vec::new()));
    assert_eq!(
        dependencies(ADVANCED, &namespaced_object(json!({"template": {}}))),
        Some(Vec::new())
    );
    assert_eq!(dependencies(ADVANCED, &namespaced_object(json!({}))), None);
}

// proves: CRD-sidecars
#[test]
fn sidecar_sets() {
    let report =
        |matched: i64, updated: i64| json!({"matchedPods": matched, "updatedPods": updated});
    check_health_by_status(
        SIDECAR,
        &[
            (report(3, 3), Some(true)),
            (report(3, 2), Some(false)),
            (report(0, 0), Some(true)),
            (json!({}), Some(true)),
            (json!({"matchedPods": 1}), Some(false)),
        ],
    );
    let copy = json!({"status": {"matchedPods": 3, "readyPods": null, "latestRevision": "r"}});
    assert_eq!(
        reflected(SIDECAR, &copy),
        json!({"matchedPods": 3, "updatedPods": 0, "readyPods": 0})
    );
    let template =
        json!({"metadata": {"name": "s"}, "spec": {"a": 1}, "status": {"latestRevision": "r"}});
    let result = aggregated(
        SIDECAR,
        &template,
        &[report(1, 1), Value::Null, report(2, 1)],
    )
    .unwrap();
    assert_eq!(
        result,
        json!({"metadata": {"name": "s"}, "status": {"matchedPods": 3, "updatedPods": 2, "readyPods": 0}})
    );
    assert_eq!(
        aggregated_without_items(SIDECAR, &template)["status"]["matchedPods"],
        0
    );
    let replicas = ThirdPartyInterpreter
        .replicas(&gvk(SIDECAR), &template)
        .unwrap();
    assert_eq!(replicas, Some(TemplateReplicas::default()));
    let kept = ThirdPartyInterpreter
        .retain(&gvk(SIDECAR), &template, &json!({"spec": {"b": 1}}))
        .unwrap();
    assert_eq!(kept, Some(template));
}

// proves: CRD-sidecars-deps
#[test]
fn sidecars_refer_without_a_namespace() {
    let spec = json!({
        "initContainers": [{"envFrom": [{"secretRef": {"name": "unseen"}}]}],
        "containers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "env"}}}, {"value": "x"}],
                        "envFrom": [{"configMapRef": {"name": "all"}}, {"secretRef": {"name": "env"}}]}],
        "volumes": [{"configMap": {"name": "files"}}, {"secret": {"secretName": "tls"}},
                    {"projected": {"sources": [{"configMap": {"name": "mixed"}}, {"secret": {"name": "mixed"}}]}}],
    });
    let expected = [
        "ConfigMap /all",
        "ConfigMap /files",
        "ConfigMap /mixed",
        "Secret /env",
        "Secret /mixed",
        "Secret /tls",
    ];
    let actual = dependencies(SIDECAR, &json!({"metadata": {"name": "s"}, "spec": spec}));
    assert_eq!(actual.unwrap(), expected);
    let nameless = json!({"spec": {"volumes": [{"configMap": {}}]}});
    assert_eq!(dependencies(SIDECAR, &nameless), None);
}

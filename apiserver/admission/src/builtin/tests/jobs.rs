//! Tests of Jobs.

use serde_json::{Value, json};

use super::workloads::workload;
use super::{check_reasons, with};

const JOB: (&str, &str) = ("batch/v1", "Job");

/// A Job that has its own selector.
fn job() -> Value {
    with(
        &workload("Never"),
        &json!({"spec": {"manualSelector": true}}),
    )
}

fn spec(fields: Value) -> Value {
    json!({ "spec": fields })
}

#[test]
fn job_specs() {
    let indexed = |fields: Value| {
        let modes = json!({"completionMode": "Indexed", "completions": 3});
        spec(with(&modes, &fields))
    };
    let with_many_completions = |fields: Value| {
        let modes = json!({"completions": 100_001, "backoffLimitPerIndex": 1});
        indexed(with(&modes, &fields))
    };
    let restart = |policy: &str| spec(json!({"template": {"spec": {"restartPolicy": policy}}}));
    let at_restart = "spec.template.spec.restartPolicy";
    let required_restart = format!("Required {at_restart}");
    check_reasons(
        JOB,
        &job(),
        None,
        &[
            (json!({}), &[]),
            (
                spec(
                    json!({"parallelism": -1, "completions": -1, "activeDeadlineSeconds": -1, "backoffLimit": -1,
                            "ttlSecondsAfterFinished": -1}),
                ),
                &[
                    "Invalid spec.parallelism",
                    "Invalid spec.completions",
                    "Invalid spec.activeDeadlineSeconds",
                    "Invalid spec.backoffLimit",
                    "Invalid spec.ttlSecondsAfterFinished",
                ],
            ),
            (restart("Always"), &[&required_restart]),
            (restart("OnFailure"), &[]),
            (spec(json!({"managedBy": "example.com/controller"})), &[]),
            (spec(json!({"managedBy": ""})), &["Required spec.managedBy"]),
            (
                spec(json!({"managedBy": "me"})),
                &["Invalid spec.managedBy"],
            ),
            (
                spec(json!({"managedBy": "a.b/c d"})),
                &["Invalid spec.managedBy"],
            ),
            (
                spec(json!({"managedBy": format!("a.b/{}", "c".repeat(60))})),
                &["TooLong spec.managedBy"],
            ),
            (
                spec(json!({"completionMode": "Sorted"})),
                &["NotSupported spec.completionMode"],
            ),
            (
                spec(json!({"backoffLimitPerIndex": 1, "maxFailedIndexes": 1})),
                &[
                    "Invalid spec.backoffLimitPerIndex",
                    "Invalid spec.maxFailedIndexes",
                ],
            ),
            (indexed(json!({})), &[]),
            (
                indexed(json!({"completions": null})),
                &["Required spec.completions"],
            ),
            (
                indexed(json!({"parallelism": 100_001})),
                &["Invalid spec.parallelism"],
            ),
            (
                indexed(json!({"maxFailedIndexes": 4, "backoffLimitPerIndex": 0})),
                &["Invalid spec.maxFailedIndexes"],
            ),
            (
                indexed(json!({"maxFailedIndexes": 3})),
                &["Required spec.backoffLimitPerIndex"],
            ),
            (
                with_many_completions(json!({})),
                &["Required spec.maxFailedIndexes"],
            ),
            (
                with_many_completions(json!({"maxFailedIndexes": 1, "parallelism": 10_000})),
                &[],
            ),
            (
                with_many_completions(json!({"maxFailedIndexes": 10_001, "parallelism": 10_001})),
                &["Invalid spec.parallelism", "Invalid spec.maxFailedIndexes"],
            ),
            (
                with(
                    &indexed(json!({})),
                    &json!({"metadata": {"name": "n".repeat(62)}}),
                ),
                &["Invalid metadata.name"],
            ),
            (json!({"metadata": {"name": "n".repeat(63)}}), &[]),
            (
                spec(json!({"podReplacementPolicy": "Never"})),
                &["NotSupported spec.podReplacementPolicy"],
            ),
            (
                spec(json!({"podReplacementPolicy": "TerminatingOrFailed"})),
                &[],
            ),
            (
                spec(json!({"template": {"metadata": {"labels": {"a b": "c"}}}})),
                &["Invalid spec.template.labels"],
            ),
        ],
    );
}

#[test]
fn selectors_of_jobs() {
    let generated = |uid: &str, selected: &str| {
        let prefixed = |name: &str| format!("batch.kubernetes.io/{name}");
        let labels = json!({"controller-uid": uid, "job-name": "w", prefixed("controller-uid"): uid,
            prefixed("job-name"): "w"});
        json!({"metadata": {"uid": "u"}, "spec": {
            "manualSelector": null,
            "selector": {"matchLabels": {"app": null, prefixed("controller-uid"): selected}},
            "template": {"metadata": {"labels": labels}},
        }})
    };
    let labels = "spec.template.metadata.labels";
    let unselected = format!("Invalid {labels}");
    let path = |label: &str| format!("{labels}[{label}]");
    let missing = ["controller-uid", "job-name"].map(|label| format!("Required {}", path(label)));
    let prefixed = ["controller-uid", "job-name"]
        .map(|label| format!("Required {}", path(&format!("batch.kubernetes.io/{label}"))));
    let wrong_uid = format!("Invalid {}", path("controller-uid"));
    let wrong_prefixed_uid = format!("Invalid {}", path("batch.kubernetes.io/controller-uid"));
    check_reasons(
        JOB,
        &job(),
        None,
        &[
            (generated("u", "u"), &[]),
            (
                generated("v", "v"),
                &[&wrong_uid, &wrong_prefixed_uid, "Invalid spec.selector"],
            ),
            (generated("u", "v"), &["Invalid spec.selector", &unselected]),
            (
                json!({"metadata": {"uid": "u"}, "spec": {"manualSelector": false}}),
                &[
                    &missing[0],
                    &missing[1],
                    &prefixed[0],
                    &prefixed[1],
                    "Invalid spec.selector",
                ],
            ),
            (spec(json!({"selector": {"matchLabels": null}})), &[]),
            (
                spec(json!({"selector": null})),
                &["Required spec.selector", &unselected],
            ),
            (
                spec(
                    json!({"selector": {"matchLabels": null, "matchExpressions": [{"key": "app", "operator": "In"}]}}),
                ),
                &["Required spec.selector.matchExpressions[0].values"],
            ),
        ],
    );
    // A Job from before the labels with a prefix does without them.
    let legacy = with(
        &generated("u", "u"),
        &json!({"spec": {
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": null, "controller-uid": "u"}},
            "template": {"metadata": {"labels": {"batch.kubernetes.io/controller-uid": null,
                "batch.kubernetes.io/job-name": null}}}}}),
    );
    let legacy = with(&with(&job(), &legacy), &json!({}));
    check_reasons(JOB, &legacy, Some(&legacy), &[(json!({}), &[])]);
}

#[test]
fn failure_policies_of_jobs() {
    let rules = |rules: Value| spec(json!({"podFailurePolicy": {"rules": rules}}));
    let on_codes = |codes: Value| {
        let all = json!({"operator": "In", "values": [1, 2]});
        rules(json!([{"action": "FailJob", "onExitCodes": with(&all, &codes)}]))
    };
    let path = "spec.podFailurePolicy.rules[0]";
    let [action, operator, container, values, second, kind, status] = [
        "action",
        "onExitCodes.operator",
        "onExitCodes.containerName",
        "onExitCodes.values",
        "onExitCodes.values[1]",
        "onPodConditions[0].type",
        "onPodConditions[0].status",
    ]
    .map(|field| format!("{path}.{field}"));
    let invalid = |field: &str| format!("Invalid {field}");
    let ignored = |fields: Value| {
        let pattern = json!({"type": "DisruptionTarget", "status": "True"});
        rules(json!([{"action": "Ignore", "onPodConditions": [with(&pattern, &fields)]}]))
    };
    let rule = json!({"action": "Count", "onExitCodes": {"operator": "NotIn", "values": [0]}});
    check_reasons(
        JOB,
        &job(),
        None,
        &[
            (rules(json!([])), &[]),
            (on_codes(json!({})), &[]),
            (ignored(json!({})), &[]),
            (
                spec(
                    json!({"podFailurePolicy": {}, "template": {"spec": {"restartPolicy": "OnFailure"}}}),
                ),
                &["Invalid spec.template.spec.restartPolicy"],
            ),
            (
                spec(
                    json!({"podFailurePolicy": {}, "podReplacementPolicy": "TerminatingOrFailed"}),
                ),
                &["NotSupported spec.podReplacementPolicy"],
            ),
            (
                rules(json!(vec![rule; 21])),
                &["TooMany spec.podFailurePolicy.rules"],
            ),
            (
                rules(json!([{"action": "Stop"}])),
                &[&format!("NotSupported {action}"), &invalid(path)],
            ),
            (
                rules(
                    json!([{"action": "", "onExitCodes": {"operator": "In", "values": [1]},
                    "onPodConditions": [{"type": "a", "status": "True"}]}]),
                ),
                &[&format!("Required {action}"), &invalid(path)],
            ),
            (
                rules(
                    json!([{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [1]}}]),
                ),
                &[&invalid(&action)],
            ),
            (
                on_codes(json!({"operator": "", "values": [], "containerName": "d"})),
                &[
                    &format!("Required {operator}"),
                    &invalid(&container),
                    &invalid(&values),
                ],
            ),
            (on_codes(json!({"containerName": "c"})), &[]),
            (
                on_codes(json!({"values": [1, 0]})),
                &[&invalid(&second), &invalid(&values)],
            ),
            (
                on_codes(json!({"operator": "Not", "values": [1, 1]})),
                &[
                    &format!("NotSupported {operator}"),
                    &format!("Duplicate {second}"),
                ],
            ),
            (
                on_codes(json!({"values": (1..257).collect::<Vec<_>>()})),
                &[&format!("TooMany {values}")],
            ),
            (
                ignored(json!({"type": "a b", "status": "Maybe"})),
                &[&invalid(&kind), &format!("NotSupported {status}")],
            ),
            (
                ignored(json!({"status": ""})),
                &[&format!("Required {status}")],
            ),
        ],
    );
}

#[test]
fn success_policies_of_jobs() {
    let with_rules = |rules: Value| {
        spec(
            json!({"completionMode": "Indexed", "completions": 5, "successPolicy": {"rules": rules}}),
        )
    };
    let rule = |rule: Value| with_rules(json!([rule]));
    let path = "spec.successPolicy.rules[0]";
    let indexes = format!("Invalid {path}.succeededIndexes");
    let count = format!("Invalid {path}.succeededCount");
    check_reasons(
        JOB,
        &job(),
        None,
        &[
            (
                rule(json!({"succeededIndexes": "0,2-4", "succeededCount": 4})),
                &[],
            ),
            (rule(json!({"succeededCount": 0})), &[]),
            (rule(json!({"succeededIndexes": ""})), &[]),
            (
                spec(json!({"successPolicy": {}})),
                &["Invalid spec.successPolicy"],
            ),
            (
                with_rules(json!([])),
                &["Required spec.successPolicy.rules"],
            ),
            (
                with_rules(json!(vec![json!({"succeededCount": 1}); 21])),
                &["TooMany spec.successPolicy.rules"],
            ),
            (rule(json!({})), &["Required spec.successPolicy.rules[0]"]),
            (rule(json!({"succeededIndexes": "5"})), &[&indexes]),
            (rule(json!({"succeededIndexes": "2-1"})), &[&indexes]),
            (rule(json!({"succeededIndexes": "1,1"})), &[&indexes]),
            (rule(json!({"succeededIndexes": "1-2-3"})), &[&indexes]),
            (rule(json!({"succeededIndexes": "a"})), &[&indexes]),
            (
                rule(json!({"succeededIndexes": "0,".repeat(40_000)})),
                &[&format!("TooLong {path}.succeededIndexes"), &indexes],
            ),
            (rule(json!({"succeededCount": -1})), &[&count]),
            (rule(json!({"succeededCount": 6})), &[&count]),
            (
                rule(json!({"succeededIndexes": "0-1", "succeededCount": 3})),
                &[&count],
            ),
        ],
    );
}

#[test]
fn updates_of_jobs() {
    let image = json!({"template": {"spec": {"containers": [{"name": "c", "image": "j"}]}}});
    let placed = json!({"template": {
        "metadata": {"labels": {"more": "x"}, "annotations": {"more": "x"}},
        "spec": {
            "nodeSelector": {"a": "b"},
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}},
            "schedulingGates": [{"name": "a"}],
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        },
    }});
    let running = job();
    check_reasons(
        JOB,
        &running,
        Some(&running),
        &[
            (
                spec(
                    json!({"parallelism": 2, "suspend": true, "backoffLimit": 3, "maxFailedIndexes": null,
                         "podReplacementPolicy": "Failed", "activeDeadlineSeconds": 5}),
                ),
                &[],
            ),
            (
                spec(json!({"completions": 2})),
                &["Invalid spec.completions"],
            ),
            (
                spec(
                    json!({"completionMode": "NonIndexed", "managedBy": "a.b/c", "podFailurePolicy": {}}),
                ),
                &[
                    "Invalid spec.completionMode",
                    "Invalid spec.podFailurePolicy",
                    "Invalid spec.managedBy",
                ],
            ),
            (
                spec(json!({"selector": {"matchLabels": null}})),
                &["Invalid spec.selector"],
            ),
            (spec(image.clone()), &["Invalid spec.template"]),
            (spec(placed.clone()), &["Invalid spec.template"]),
        ],
    );
    let elastic = with(
        &running,
        &spec(
            json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 1}),
        ),
    );
    check_reasons(
        JOB,
        &elastic,
        Some(&elastic),
        &[
            (spec(json!({"completions": 3, "parallelism": 3})), &[]),
            (spec(json!({"parallelism": 1})), &[]),
            (
                spec(json!({"completions": 3})),
                &["Invalid spec.completions"],
            ),
            (
                spec(json!({"backoffLimitPerIndex": 2})),
                &["Invalid spec.backoffLimitPerIndex"],
            ),
        ],
    );
    let suspended = with(&running, &spec(json!({"suspend": true})));
    let started = with(
        &suspended,
        &json!({"status": {"startTime": "2026-01-01T00:00:00Z"}}),
    );
    let stopped = with(
        &started,
        &json!({"status": {"conditions": [{"type": "Suspended", "status": "True"}]}}),
    );
    let active = with(&suspended, &json!({"status": {"active": 1}}));
    for old in [&suspended, &stopped] {
        check_reasons(
            JOB,
            old,
            Some(old),
            &[
                (spec(placed.clone()), &[]),
                (spec(image.clone()), &["Invalid spec.template.spec"]),
                (
                    spec(json!({"template": {"spec": {"affinity": {"podAffinity": {}}}}})),
                    &["Invalid spec.template.spec"],
                ),
            ],
        );
    }
    for old in [&started, &active] {
        let table = [(spec(placed.clone()), &["Invalid spec.template"][..])];
        check_reasons(JOB, old, Some(old), &table);
    }
}

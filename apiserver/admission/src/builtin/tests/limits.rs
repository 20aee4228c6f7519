//! Tests of quotas, limit ranges, classes, leases and namespaces.

use serde_json::{Value, json};

use super::{check, check_update, with};

#[test]
fn quotas_classes_and_leases() {
    check(
        "coordination.k8s.io/v1",
        "Lease",
        &json!({}),
        &[
            (
                json!({"spec": {"leaseDurationSeconds": 15, "leaseTransitions": 0}}),
                &[],
            ),
            (
                json!({"spec": {"leaseDurationSeconds": 0}}),
                &["spec.leaseDurationSeconds"],
            ),
            (
                json!({"spec": {"leaseTransitions": -1}}),
                &["spec.leaseTransitions"],
            ),
        ],
    );
    let scoped = |e: Value| json!({"spec": {"scopeSelector": {"matchExpressions": [e]}}});
    let quota =
        json!({"spec": {"hard": {"pods": "5", "requests.cpu": "1"}, "scopes": ["Terminating"]}});
    check(
        "v1",
        "ResourceQuota",
        &quota,
        &[
            (json!({}), &[]),
            (
                json!({"spec": {"hard": {"pods": "-1"}}}),
                &["spec.hard[pods]"],
            ),
            (
                json!({"spec": {"hard": {"apples": "1"}}}),
                &["spec.hard[apples]", "spec.hard[apples]"],
            ),
            (
                json!({"spec": {"scopes": ["Terminating", "NotTerminating", "Sunny"]}}),
                &["spec.scopes", "spec.scopes"],
            ),
            (
                json!({"spec": {"scopes": ["BestEffort"], "hard": {"count/jobs.batch": "1"}}}),
                &["spec.scopes"],
            ),
            (
                json!({"spec": {"scopes": ["VolumeAttributesClass"], "hard": {"pods": null, "requests.cpu": null, "requests.storage": "1"}}}),
                &[],
            ),
            (
                scoped(json!({"scopeName": "PriorityClass", "operator": "In", "values": ["high"]})),
                &[],
            ),
            (
                scoped(json!({"scopeName": "PriorityClass", "operator": "In"})),
                &["spec.scopeSelector.matchExpressions.values"],
            ),
            (
                scoped(
                    json!({"scopeName": "Terminating", "operator": "DoesNotExist", "values": ["x"]}),
                ),
                &[
                    "spec.scopeSelector.matchExpressions.operator",
                    "spec.scopeSelector.matchExpressions.values",
                ],
            ),
            (
                scoped(json!({"scopeName": "Sunny", "operator": "Near"})),
                &[
                    "spec.scopeSelector.matchExpressions.scopeName",
                    "spec.scopeSelector.matchExpressions.operator",
                ],
            ),
        ],
    );
    check_update(
        "v1",
        "ResourceQuota",
        &quota,
        &[
            (json!({"spec": {"hard": {"pods": "6"}}}), &[]),
            (json!({"spec": {"scopes": null}}), &["spec.scopes"]),
            (
                scoped(json!({"scopeName": "Terminating", "operator": "Exists"})),
                &[],
            ),
        ],
    );
    let limit = |l: Value| json!({"spec": {"limits": [l]}});
    check(
        "v1",
        "LimitRange",
        &json!({}),
        &[
            (
                limit(
                    json!({"type": "Container", "min": {"cpu": "1"}, "default": {"cpu": "2"}, "max": {"cpu": "3"}}),
                ),
                &[],
            ),
            (
                limit(json!({"type": "Container", "min": {"cpu": "4"}, "max": {"cpu": "3"}})),
                &["spec.limits[0].min[cpu]"],
            ),
            (
                limit(json!({"type": "Container", "max": {"cpu": "x"}})),
                &["spec.limits[0].max[cpu]"],
            ),
            (
                limit(json!({"type": "Pod", "default": {"cpu": "1"}})),
                &["spec.limits[0].default"],
            ),
            (
                json!({"spec": {"limits": [{"type": "Pod"}, {"type": "Pod"}]}}),
                &["spec.limits[1].type"],
            ),
            (limit(json!({"type": "Node"})), &["spec.limits[0].type"]),
            (
                limit(json!({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}})),
                &[],
            ),
            (
                limit(json!({"type": "PersistentVolumeClaim", "max": {"cpu": "1"}})),
                &["spec.limits[0].limits"],
            ),
            (
                limit(json!({"type": "Container", "max": {"storage": "1"}})),
                &["spec.limits[0].max[storage]"],
            ),
            (
                limit(
                    json!({"type": "Container", "min": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}, "default": {"cpu": "1"}}),
                ),
                &[
                    "spec.limits[0].defaultRequest[cpu]",
                    "spec.limits[0].default[cpu]",
                ],
            ),
            (
                limit(
                    json!({"type": "Container", "defaultRequest": {"cpu": "3"}, "default": {"cpu": "2"}, "max": {"cpu": "1"}}),
                ),
                &[
                    "spec.limits[0].defaultRequest[cpu]",
                    "spec.limits[0].defaultRequest[cpu]",
                    "spec.limits[0].default[cpu]",
                ],
            ),
            (
                limit(
                    json!({"type": "Container", "default": {"a.b/gpu": "2"}, "defaultRequest": {"a.b/gpu": "1"}}),
                ),
                &["spec.limits[0].defaultRequest[a.b/gpu]"],
            ),
            (
                limit(
                    json!({"type": "Pod", "min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "2"}}),
                ),
                &[],
            ),
            (
                limit(
                    json!({"type": "Pod", "min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "3", "memory": "500m"}}),
                ),
                &[
                    "spec.limits[0].maxLimitRequestRatio[cpu]",
                    "spec.limits[0].maxLimitRequestRatio[memory]",
                ],
            ),
        ],
    );
    let class = |name: &str, value: i64| json!({"metadata": {"name": name}, "value": value});
    check(
        "scheduling.k8s.io/v1",
        "PriorityClass",
        &json!({}),
        &[
            (class("high", 1_000_000_000), &[]),
            (class("high", 1_000_000_001), &["value"]),
            (class("system-mine", 1), &["metadata.name"]),
            (class("system-node-critical", 2_000_001_000), &[]),
            (class("system-node-critical", 1), &["metadata.name"]),
            (
                with(
                    &class("system-node-critical", 2_000_001_000),
                    &json!({"globalDefault": true}),
                ),
                &["metadata.name"],
            ),
            (
                json!({"preemptionPolicy": "Sometimes"}),
                &["preemptionPolicy"],
            ),
            (json!({"preemptionPolicy": ""}), &["preemptionPolicy"]),
        ],
    );
    check_update(
        "scheduling.k8s.io/v1",
        "PriorityClass",
        &class("a", 1),
        &[
            (json!({"description": "x"}), &[]),
            (json!({"value": 2}), &["value"]),
            (json!({"preemptionPolicy": "Never"}), &["preemptionPolicy"]),
        ],
    );
}

// proves: DET-namespace-gate-invalid
#[test]
fn the_gate_of_a_namespace_is_on_or_off() {
    let gate =
        |value: &str| json!({"metadata": {"annotations": {"flotilla.io/namespace-gate": value}}});
    let invalid: &[&str] = &["metadata.annotations[flotilla.io/namespace-gate]"];
    check(
        "v1",
        "Namespace",
        &json!({}),
        &[
            (gate("true"), &[]),
            (gate("false"), &[]),
            (gate("yes"), invalid),
        ],
    );
}

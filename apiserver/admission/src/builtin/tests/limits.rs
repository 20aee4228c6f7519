//! Tests of quotas, limit ranges, classes and leases.

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
                &["spec.hard[apples]"],
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

//! Tests of HorizontalPodAutoscalers.

use serde_json::{Value, json};

use super::{check_reasons, with};

const SCALER: (&str, &str) = ("autoscaling/v2", "HorizontalPodAutoscaler");

fn scaler() -> Value {
    json!({"spec": {"minReplicas": 1, "maxReplicas": 2,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}})
}

#[test]
fn autoscalers() {
    let target = |t: Value| json!({"spec": {"scaleTargetRef": t}});
    let bounds = |min: i64, max: i64| json!({"spec": {"minReplicas": min, "maxReplicas": max}});
    let version = "Invalid spec.scaleTargetRef.apiVersion";
    check_reasons(
        SCALER,
        &scaler(),
        None,
        &[
            (json!({}), &[]),
            (bounds(3, 2), &["Invalid spec.maxReplicas"]),
            (
                bounds(1, 0),
                &["Invalid spec.maxReplicas", "Invalid spec.maxReplicas"],
            ),
            (
                bounds(0, 2),
                &["Invalid spec.minReplicas", "Forbidden spec.metrics"],
            ),
            (target(json!({"apiVersion": null})), &[version]),
            (target(json!({"apiVersion": "v1"})), &[version]),
            (target(json!({"apiVersion": "a/b/c"})), &[version]),
            (
                target(json!({"apiVersion": null, "kind": "ReplicationController"})),
                &[],
            ),
            (
                target(json!({"kind": "a/b", "name": ""})),
                &[
                    "Invalid spec.scaleTargetRef.kind",
                    "Required spec.scaleTargetRef.name",
                ],
            ),
        ],
    );
    let stored = with(&scaler(), &target(json!({"apiVersion": null})));
    check_reasons(
        SCALER,
        &stored,
        Some(&stored),
        &[
            (json!({"spec": {"maxReplicas": 9}}), &[]),
            (target(json!({"apiVersion": "v1"})), &[version]),
        ],
    );
    let idle = with(&scaler(), &bounds(0, 2));
    check_reasons(
        SCALER,
        &idle,
        Some(&idle),
        &[
            (json!({}), &["Forbidden spec.metrics"]),
            (bounds(1, 2), &[]),
        ],
    );
}

#[test]
fn metrics() {
    let metrics = |metric: Value| json!({"spec": {"metrics": [metric]}});
    let of = |kind: &str, field: &str, source: Value| metrics(json!({"type": kind, field: source}));
    let path = |field: &str| format!("spec.metrics[0].{field}");
    let [required_type, unsupported_type] =
        ["Required", "NotSupported"].map(|reason| format!("{reason} {}", path("type")));
    let value = json!({"metric": {"name": "m"}, "target": {"type": "Value", "value": "1"}});
    let object = with(
        &value,
        &json!({"describedObject": {"kind": "Service", "name": "s", "apiVersion": "v1"}}),
    );
    let average =
        json!({"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}});
    let cpu = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}});
    let in_container = with(&cpu, &json!({"container": "c"}));
    let target = |change: Value| json!({ "target": change });
    let required = |field: &str| format!("Required {}", path(field));
    let invalid = |field: &str| format!("Invalid {}", path(field));
    let forbidden = |field: &str| format!("Forbidden {}", path(field));
    check_reasons(
        SCALER,
        &scaler(),
        None,
        &[
            (of("External", "external", value.clone()), &[]),
            (of("External", "external", average.clone()), &[]),
            (of("Object", "object", object.clone()), &[]),
            (of("Pods", "pods", average.clone()), &[]),
            (of("Resource", "resource", cpu.clone()), &[]),
            (
                of(
                    "ContainerResource",
                    "containerResource",
                    in_container.clone(),
                ),
                &[],
            ),
            (metrics(json!({})), &[&required_type, &unsupported_type]),
            (metrics(json!({"type": "Other"})), &[&unsupported_type]),
            (metrics(json!({"type": "Pods"})), &[&required("pods")]),
            (of("Pods", "resource", cpu.clone()), &[&required("pods")]),
            (
                metrics(json!({"type": "Resource", "resource": cpu, "pods": average})),
                &[&forbidden("pods")],
            ),
            (
                of(
                    "Object",
                    "object",
                    with(
                        &object,
                        &json!({"describedObject": {"name": "", "apiVersion": "a/b/c"},
                    "metric": {"name": "a/b"}}),
                    ),
                ),
                &[
                    &required("object.describedObject.name"),
                    &invalid("object.describedObject.apiVersion"),
                    &invalid("object.metric.name"),
                ],
            ),
            (
                of(
                    "Object",
                    "object",
                    with(&object, &target(json!({"value": null}))),
                ),
                &[&required("object.target.averageValue")],
            ),
            (
                of(
                    "External",
                    "external",
                    with(&value, &target(json!({"averageValue": "1"}))),
                ),
                &[&forbidden("external.target.value")],
            ),
            (
                of(
                    "External",
                    "external",
                    with(&value, &json!({"metric": null, "target": {"value": null}})),
                ),
                &[
                    &required("external.metric.name"),
                    &required("external.target.averageValue"),
                ],
            ),
            (
                of("Pods", "pods", value.clone()),
                &[&required("pods.target.averageValue")],
            ),
            (
                of(
                    "Pods",
                    "pods",
                    with(
                        &average,
                        &target(json!({"type": "", "averageValue": "0", "value": "-1"})),
                    ),
                ),
                &[
                    &required("pods.target.type"),
                    &invalid("pods.target.type"),
                    &invalid("pods.target.value"),
                    &invalid("pods.target.averageValue"),
                ],
            ),
            (
                of(
                    "Resource",
                    "resource",
                    with(
                        &cpu,
                        &json!({"name": "", "target": {"averageUtilization": 0}}),
                    ),
                ),
                &[
                    &required("resource.name"),
                    &invalid("resource.target.averageUtilization"),
                ],
            ),
            (
                of(
                    "Resource",
                    "resource",
                    with(&cpu, &target(json!({"averageUtilization": null}))),
                ),
                &[&required("resource.target.averageUtilization")],
            ),
            (
                of(
                    "Resource",
                    "resource",
                    with(&cpu, &target(json!({"averageValue": "1"}))),
                ),
                &[&forbidden("resource.target.averageValue")],
            ),
            (
                of(
                    "ContainerResource",
                    "containerResource",
                    with(&in_container, &json!({"name": "apples", "container": ""})),
                ),
                &[
                    &invalid("containerResource.name"),
                    &required("containerResource.container"),
                ],
            ),
        ],
    );
}

#[test]
fn behaviors() {
    let up = |rules: Value| {
        let all = json!({"policies": [{"type": "Pods", "value": 1, "periodSeconds": 1}]});
        json!({"spec": {"behavior": {"scaleUp": with(&all, &rules)}}})
    };
    let policy = |kind: &str, value: i64, period: i64| {
        up(json!({"policies": [{"type": kind, "value": value, "periodSeconds": period}]}))
    };
    let path = |field: &str| format!("spec.behavior.scaleUp.{field}");
    let window = format!("Invalid {}", path("stabilizationWindowSeconds"));
    let period = format!("Invalid {}", path("policies[0].periodSeconds"));
    check_reasons(
        SCALER,
        &scaler(),
        None,
        &[
            (
                up(json!({"stabilizationWindowSeconds": 3600, "tolerance": "0"})),
                &[],
            ),
            (up(json!({"stabilizationWindowSeconds": 3601})), &[&window]),
            (up(json!({"stabilizationWindowSeconds": -1})), &[&window]),
            (
                up(json!({"selectPolicy": ""})),
                &[&format!("NotSupported {}", path("selectPolicy"))],
            ),
            (
                up(json!({"policies": []})),
                &[&format!("Required {}", path("policies"))],
            ),
            (
                up(json!({"tolerance": "-0.1"})),
                &[&format!("Invalid {}", path("tolerance"))],
            ),
            (policy("Percent", 1, 1800), &[]),
            (policy("Percent", 1, 1801), &[&period]),
            (
                policy("Nodes", 0, 0),
                &[
                    &format!("NotSupported {}", path("policies[0].type")),
                    &format!("Invalid {}", path("policies[0].value")),
                    &period,
                ],
            ),
        ],
    );
}

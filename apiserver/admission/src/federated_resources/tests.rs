//! Tests of the rules of FederatedHPA, CronFederatedHPA, MultiClusterService and
//! MultiClusterIngress.

use serde_json::json;

use super::*;

fn fields(errors: &[FieldError]) -> Vec<&str> {
    errors.iter().map(|e| e.field.as_str()).collect()
}

fn hpa(change: Value) -> Value {
    let mut spec = json!({"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d"}});
    for (k, v) in change.as_object().unwrap() {
        spec[k] = v.clone();
    }
    json!({"metadata": {"name": "h"}, "spec": spec})
}

#[test]
fn hpa_defaults_are_applied() {
    let filled = |spec: Value| {
        let mut new = hpa(spec);
        mutate_hpa(&mut new);
        let mutated_once = new.clone();
        mutate_hpa(&mut new);
        assert_eq!(new, mutated_once);
        new["spec"].take()
    };
    let spec = filled(json!({}));
    assert_eq!(spec["minReplicas"], 1);
    let cpu = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}});
    assert_eq!(
        spec["metrics"],
        json!([{"type": "Resource", "resource": cpu}])
    );
    assert_eq!(spec.get("behavior"), None);
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
    let up = json!({"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [pods, percent]});
    let down = json!({"selectPolicy": "Max", "policies": [percent]});
    assert_eq!(
        filled(json!({"behavior": {}}))["behavior"],
        json!({"scaleUp": up, "scaleDown": down})
    );
    let user_value = json!({"scaleDown": {"stabilizationWindowSeconds": 5, "selectPolicy": "Min"}});
    let mut mixed = down;
    mixed["stabilizationWindowSeconds"] = 5.into();
    mixed["selectPolicy"] = "Min".into();
    assert_eq!(
        filled(json!({ "behavior": user_value }))["behavior"],
        json!({"scaleUp": up, "scaleDown": mixed})
    );
    let user_value = json!([{"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 5}}}]);
    assert_eq!(
        filled(json!({"minReplicas": 2, "metrics": user_value}))["metrics"],
        user_value
    );
}

#[test]
fn federated_hpas_are_validated() {
    let mut new = hpa(json!({"behavior": {"scaleUp": {"selectPolicy": "Min"}}}));
    mutate_hpa(&mut new);
    assert_eq!(new["spec"]["minReplicas"], 1);
    assert_eq!(
        new["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"],
        80
    );
    assert_eq!(new["spec"]["behavior"]["scaleUp"]["selectPolicy"], "Min");
    assert_eq!(validate_hpa(&new), []);

    let metric = |m: Value| json!({ "metrics": [m] });
    let cpu = |target: Value| {
        metric(json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}))
    };
    let up = |rules: Value| json!({"behavior": {"scaleUp": rules}});
    let policy = |kind: &str, value: i64, period: i64| json!({"policies": [{"type": kind, "value": value, "periodSeconds": period}]});
    let path = "spec.behavior.scaleUp";
    let mut reported = hpa(json!({}));
    reported["status"] = json!({"currentReplicas": -1, "desiredReplicas": -1});
    assert_eq!(
        fields(&validate_hpa(&reported)),
        ["status.currentReplicas", "status.desiredReplicas"]
    );
    let table = [
        (json!({"minReplicas": 1}), vec![]),
        (
            json!({"minReplicas": 0}),
            vec!["spec.minReplicas", "spec.metrics"],
        ),
        (json!({"maxReplicas": 0}), vec!["spec.maxReplicas"]),
        (json!({"minReplicas": 4}), vec!["spec.maxReplicas"]),
        (
            json!({"scaleTargetRef": {"kind": "Deployment"}}),
            vec!["spec.scaleTargetRef.name"],
        ),
        (
            json!({"scaleTargetRef": {"kind": "a/b", "name": "d"}}),
            vec!["spec.scaleTargetRef.kind"],
        ),
        (
            cpu(json!({"type": "Utilization", "averageUtilization": 50})),
            vec![],
        ),
        (
            cpu(json!({"type": "Utilization", "averageUtilization": 0})),
            vec!["spec.metrics[0].resource.target.averageUtilization"],
        ),
        (
            cpu(json!({"type": "Value"})),
            vec!["spec.metrics[0].resource.target.averageUtilization"],
        ),
        (
            cpu(json!({})),
            vec![
                "spec.metrics[0].resource.target.type",
                "spec.metrics[0].resource.target.type",
                "spec.metrics[0].resource.target.averageUtilization",
            ],
        ),
        (
            metric(json!({"type": "External", "external": {}})),
            vec!["spec.metrics[0].type"],
        ),
        (
            metric(json!({"type": "Pods"})),
            vec!["spec.metrics[0].pods"],
        ),
        (
            metric(
                json!({"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}},
                    "resource": {}}),
            ),
            vec!["spec.metrics[0].resource"],
        ),
        (up(policy("Pods", 1, 1)), vec![]),
        (up(json!({})), vec!["spec.behavior.scaleUp.policies"]),
        (
            up(policy("Nodes", 1, 1)),
            vec!["spec.behavior.scaleUp.policies[0].type"],
        ),
        (
            up(policy("Pods", 0, 1)),
            vec!["spec.behavior.scaleUp.policies[0].value"],
        ),
        (
            up(policy("Pods", 1, 1801)),
            vec!["spec.behavior.scaleUp.policies[0].periodSeconds"],
        ),
    ];
    for (change, expect) in table {
        assert_eq!(
            fields(&validate_hpa(&hpa(change.clone()))),
            expect,
            "{change}"
        );
    }
    for (name, value) in [
        ("stabilizationWindowSeconds", json!(3601)),
        ("selectPolicy", json!("Any")),
    ] {
        let mut rules = policy("Pods", 1, 1);
        rules[name] = value;
        assert_eq!(
            fields(&validate_hpa(&hpa(up(rules)))),
            [format!("{path}.{name}")]
        );
    }
}

#[test]
fn cron_federated_hpas_are_validated() {
    let check = |api_version: &str, kind: &str, rule: Value, expect: &[&str]| {
        let mut complete_rule = json!({"name": "r", "schedule": "0 9 * * *"});
        for (k, v) in rule.as_object().unwrap() {
            complete_rule[k] = v.clone();
        }
        let cron = json!({"spec": {"scaleTargetRef": {"apiVersion": api_version, "kind": kind, "name": "x"}, "rules": [complete_rule]}});
        assert_eq!(fields(&validate_cron_hpa(&cron)), expect, "{cron}");
    };
    let autoscaling_version = "autoscaling.karmada.io/v1alpha1";
    check("apps/v1", "Deployment", json!({"targetReplicas": 0}), &[]);
    check(
        "apps/v1",
        "Deployment",
        json!({}),
        &["spec.rules[0].targetReplicas"],
    );
    check(
        "apps/v1",
        "Deployment",
        json!({"targetReplicas": -1}),
        &["spec.rules[0].targetReplicas"],
    );
    check(
        "apps/v1",
        "Deployment",
        json!({"targetReplicas": 1, "schedule": "x"}),
        &["spec.rules[0].schedule"],
    );
    check(
        "apps/v1",
        "Deployment",
        json!({"targetReplicas": 1, "timeZone": "UTC"}),
        &[],
    );
    check(
        autoscaling_version,
        "FederatedHPA",
        json!({"targetMinReplicas": 1, "targetMaxReplicas": 2}),
        &[],
    );
    check(
        autoscaling_version,
        "CronFederatedHPA",
        json!({"targetMinReplicas": 1}),
        &["spec.scaleTargetRef.kind"],
    );
    check(
        autoscaling_version,
        "FederatedHPA",
        json!({}),
        &["spec.rules[0].targetMaxReplicas"],
    );
    check(
        autoscaling_version,
        "FederatedHPA",
        json!({"targetMaxReplicas": 0}),
        &[
            "spec.rules[0].targetMaxReplicas",
            "spec.rules[0].targetMinReplicas",
        ],
    );
    check(
        autoscaling_version,
        "FederatedHPA",
        json!({"targetMinReplicas": 3, "targetMaxReplicas": 2}),
        &["spec.rules[0].targetMinReplicas"],
    );
    let rule = json!({"name": "r", "schedule": "@daily", "targetReplicas": 1});
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"});
    let repeated_rule = json!({"spec": {"scaleTargetRef": target, "rules": [rule, rule]}});
    assert_eq!(
        fields(&validate_cron_hpa(&repeated_rule)),
        ["spec.rules[1].name"]
    );
    let nameless = json!({"spec": {"scaleTargetRef": {"kind": "Deployment"}, "rules": [rule]}});
    assert_eq!(
        fields(&validate_cron_hpa(&nameless)),
        ["spec.scaleTargetRef.name"]
    );
}

#[test]
fn multi_cluster_services_are_validated() {
    let service = |spec: Value| json!({"metadata": {"name": "s"}, "spec": spec});
    let cross = || service(json!({"types": ["CrossCluster"]}));
    let table = [
        (
            service(
                json!({"types": ["CrossCluster"], "ports": [{"name": "a", "port": 80}, {"port": 81}]}),
            ),
            vec![],
        ),
        (
            service(json!({"types": ["Other"]})),
            vec!["spec.types", "spec.types[0]"],
        ),
        (
            service(json!({"types": ["CrossCluster", "LoadBalancer"]})),
            vec!["spec.types", "spec.types"],
        ),
        (
            service(json!({"types": ["CrossCluster"], "ports": [{"port": 0}]})),
            vec!["spec.ports[0].port"],
        ),
        (
            service(
                json!({"types": ["CrossCluster"], "ports": [{"name": "a", "port": 1}, {"name": "a", "port": 2}]}),
            ),
            vec!["spec.ports[1].name"],
        ),
        (
            service(json!({"types": ["CrossCluster"], "providerClusters": [{"name": "M"}]})),
            vec!["spec.range.providerClusters[0]"],
        ),
    ];
    for (new, expect) in table {
        assert_eq!(
            fields(&validate_multi_cluster_service(&new, Some(&cross()))),
            expect,
            "{new}"
        );
    }
    let mut with_name = cross();
    with_name["metadata"]["name"] = "1s".into();
    assert_eq!(
        fields(&validate_multi_cluster_service(&with_name, None)),
        ["metadata.name"]
    );
    mutate_multi_cluster_service(&mut with_name);
    assert!(with_name["metadata"]["labels"][MULTI_CLUSTER_SERVICE_ID].is_string());
    let typed = |types: Value| service(json!({ "types": types }));
    let changed = validate_multi_cluster_service(&typed(json!(["LoadBalancer"])), Some(&cross()));
    assert_eq!(
        changed[0].to_string(),
        r#"spec.types: Invalid value: ["CrossCluster"]: MultiClusterService types are immutable"#
    );
    let unknown = validate_multi_cluster_service(&typed(json!(["Other"])), None);
    assert_eq!(
        unknown[0].to_string(),
        r#"spec.types[0]: Invalid value: "Other": ExposureType Error"#
    );
}

#[test]
fn multi_cluster_ingresses_are_validated() {
    let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
    let path = |kind: &str| json!({"path": "/", "pathType": kind, "backend": backend});
    let host = |host: &str| json!({"spec": {"rules": [{"host": host, "http": {"paths": [path("Prefix")]}}]}});
    let tls = |secret: &str| {
        let mut ingress = host("a.b");
        ingress["spec"]["tls"] = json!([{"hosts": ["a.b"], "secretName": secret}]);
        ingress
    };
    let table = [
        (json!({"spec": {"defaultBackend": backend}}), vec![]),
        (host("*.a.b"), vec![]),
        (tls("s"), vec![]),
        (json!({"spec": {}}), vec!["spec"]),
        (host("a.*.b"), vec!["spec.rules[0].host"]),
        (host("10.0.0.1"), vec!["spec.rules[0].host"]),
        (tls("S"), vec!["spec.tls[0].secretName"]),
        (
            json!({"spec": {"rules": [{"http": {"paths": []}}]}}),
            vec!["spec.rules[0].http.paths"],
        ),
        (
            json!({"spec": {"rules": [{"http": {"paths": [path("Other")]}}]}}),
            vec!["spec.rules[0].http.paths[0].pathType"],
        ),
    ];
    for (ingress, expected) in table {
        assert_eq!(
            fields(&validate_multi_cluster_ingress(&ingress)),
            expected,
            "{ingress}"
        );
    }
}

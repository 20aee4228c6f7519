//! One accepted and at least one rejected object per rule, by the field paths of the
//! errors.

mod access;
mod autoscaling;
mod cron_jobs;
mod definition;
mod jobs;
mod limits;
mod network;
mod pods;
mod routing;
mod storage;
mod webhooks;
mod workloads;

use serde_json::json;

use super::*;

/// Validates `new`, as an update of `old` if there is one.
fn errors(api: &str, kind: &str, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let gvk = Gvk::from_api_version(api, kind);
    validate_builtin(&gvk, new, old)
}

/// Applies a merge patch: `null` removes.
fn with(base: &Value, change: &Value) -> Value {
    let (Value::Object(_), Value::Object(changes)) = (base, change) else {
        return change.clone();
    };
    let mut out = base.clone();
    let fields = out.as_object_mut().unwrap();
    for (key, value) in changes {
        let merged = with(fields.get(key).unwrap_or(&Value::Null), value);
        if value.is_null() {
            fields.remove(key);
        } else {
            fields.insert(key.clone(), merged);
        }
    }
    out
}

fn check(api: &str, kind: &str, base: &Value, table: &[(Value, &[&str])]) {
    for (change, expect) in table {
        let actual = errors(api, kind, &with(base, change), None);
        let fields: Vec<&str> = actual.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(fields, *expect, "{kind} {change}\n{actual:?}");
    }
}

fn check_update(api: &str, kind: &str, base: &Value, table: &[(Value, &[&str])]) {
    for (change, expect) in table {
        let actual = errors(api, kind, &with(base, change), Some(base));
        let fields: Vec<&str> = actual.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(fields, *expect, "{kind} {change}\n{actual:?}");
    }
}

/// As [`check`], with the types of the errors: `Required spec.selector`. With `old` the objects
/// are updates.
fn check_reasons(
    (api, kind): (&str, &str),
    base: &Value,
    old: Option<&Value>,
    table: &[(Value, &[&str])],
) {
    for (change, expect) in table {
        let actual = errors(api, kind, &with(base, change), old);
        let reasons: Vec<String> = actual
            .iter()
            .map(|e| format!("{:?} {}", e.error_type, e.field))
            .collect();
        assert_eq!(reasons, *expect, "{kind} {change}\n{actual:?}");
    }
}

#[test]
fn services() {
    let base =
        json!({"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1", "ports": [{"port": 80}]}});
    let ports = |p: Value| json!({"spec": { "ports": p }});
    check(
        "v1",
        "Service",
        &base,
        &[
            (json!({}), &[]),
            (json!({"spec": {"type": "Other"}}), &["spec.type"]),
            (json!({"spec": {"clusterIP": "x"}}), &["spec.clusterIPs[0]"]),
            (json!({"spec": {"clusterIP": "None", "ports": []}}), &[]),
            (
                json!({"spec": {"clusterIP": "None", "type": "NodePort"}}),
                &["spec.clusterIPs[0]"],
            ),
            (
                json!({"spec": {"type": "ExternalName", "clusterIP": null, "externalName": "a.b", "ports": []}}),
                &[],
            ),
            (
                json!({"spec": {"type": "ExternalName", "clusterIP": null}}),
                &["spec.externalName"],
            ),
            (
                json!({"spec": {"sessionAffinity": "Always"}}),
                &["spec.sessionAffinity"],
            ),
            (ports(json!([])), &["spec.ports"]),
            (ports(json!([{"port": 0}])), &["spec.ports[0].port"]),
            (ports(json!([{"port": 65536}])), &["spec.ports[0].port"]),
            (
                ports(
                    json!([{"port": 53, "name": "a"}, {"port": 53, "name": "b", "protocol": "UDP"}]),
                ),
                &[],
            ),
            (
                ports(
                    json!([{"port": 53, "name": "a"}, {"port": 53, "name": "b", "protocol": "TCP"}]),
                ),
                &["spec.ports[1]"],
            ),
            (
                ports(json!([{"port": 1, "name": "a"}, {"port": 2}])),
                &["spec.ports[1].name"],
            ),
            (
                ports(json!([{"port": 1, "name": "a"}, {"port": 2, "name": "a"}])),
                &["spec.ports[1].name"],
            ),
            (ports(json!([{"port": 1, "targetPort": "http"}])), &[]),
            (
                ports(json!([{"port": 1, "targetPort": 0}])),
                &["spec.ports[0].targetPort"],
            ),
            (
                ports(json!([{"port": 1, "nodePort": 30000}])),
                &["spec.ports[0].nodePort"],
            ),
            (
                json!({"spec": {"externalIPs": ["10.1.1.1", "010.1.1.1", "127.0.0.1", "::"]}}),
                &[
                    "spec.externalIPs[1]",
                    "spec.externalIPs[2]",
                    "spec.externalIPs[3]",
                ],
            ),
            (
                json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}}),
                &["spec.loadBalancerSourceRanges"],
            ),
            (
                json!({"spec": {"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.1/8"]}}),
                &["spec.loadBalancerSourceRanges[0]"],
            ),
            (
                json!({"spec": {"externalTrafficPolicy": "Local"}}),
                &["spec.externalTrafficPolicy"],
            ),
            (
                json!({"spec": {"internalTrafficPolicy": "Near", "trafficDistribution": "Far"}}),
                &["spec.internalTrafficPolicy", "spec.trafficDistribution"],
            ),
            (
                json!({"spec": {"healthCheckNodePort": 30000}}),
                &["spec.healthCheckNodePort"],
            ),
            (
                json!({"spec": {"loadBalancerClass": "a/b", "allocateLoadBalancerNodePorts": true}}),
                &[
                    "spec.allocateLoadBalancerNodePorts",
                    "spec.loadBalancerClass",
                ],
            ),
            (
                json!({"spec": {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 86401}}}}),
                &["spec.sessionAffinityConfig.clientIP.timeoutSeconds"],
            ),
            (
                json!({"spec": {"sessionAffinityConfig": {}}}),
                &["spec.sessionAffinityConfig"],
            ),
            (
                json!({"spec": {"clusterIPs": ["10.0.0.2", "10.0.0.3"]}}),
                &["spec.clusterIPs", "spec.clusterIPs"],
            ),
            (
                json!({"spec": {"ipFamilies": ["IPv4", "IPv4", "IPv5"], "ipFamilyPolicy": "x"}}),
                &[
                    "spec.ipFamilies[1]",
                    "spec.ipFamilies[2]",
                    "spec.ipFamilyPolicy",
                ],
            ),
            (
                json!({"spec": {"selector": {"a b": "c"}}}),
                &["spec.selector"],
            ),
            (
                json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 10250}]}}),
                &["spec.ports[0].port"],
            ),
        ],
    );
    let octal = json!({"spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80}], "externalIPs": ["010.1.1.1"]}});
    check_update(
        "v1",
        "Service",
        &octal,
        &[
            (ports(json!([{"port": 81}])), &[]),
            (
                json!({"spec": {"externalIPs": ["010.1.1.1", "010.1.1.2"]}}),
                &["spec.externalIPs[1]"],
            ),
        ],
    );
    check_update(
        "v1",
        "Service",
        &base,
        &[
            (ports(json!([{"port": 81}])), &[]),
            (
                json!({"spec": {"clusterIP": "10.0.0.2"}}),
                &["spec.clusterIPs[0]"],
            ),
            (
                json!({"spec": {"type": "ExternalName", "clusterIP": null, "externalName": "a"}}),
                &[],
            ),
        ],
    );
    let mut silent = json!({"spec": {"ports": [{"port": 80}]}});
    service::mutate(&mut silent, Some(&base));
    assert_eq!(silent["spec"]["clusterIP"], "10.0.0.1");
}

#[test]
fn nodes() {
    let taints = |t: Value| json!({"spec": {"taints": t}});
    check(
        "v1",
        "Node",
        &json!({}),
        &[
            (json!({}), &[]),
            (
                taints(
                    json!([{"key": "a/b", "value": "c", "effect": "NoSchedule"}, {"key": "a/b", "effect": "PreferNoSchedule"}]),
                ),
                &[],
            ),
            (
                taints(json!([{"key": "a b", "value": "c d", "effect": "Never"}])),
                &[
                    "spec.taints[0].key",
                    "spec.taints[0].value",
                    "spec.taints[0].effect",
                ],
            ),
            (
                taints(json!([{"effect": ""}])),
                &["spec.taints[0].key", "spec.taints[0].effect"],
            ),
            (
                taints(
                    json!([{"key": "a", "effect": "NoExecute"}, {"key": "a", "value": "b", "effect": "NoExecute"}]),
                ),
                &["spec.taints[1]"],
            ),
            (
                json!({"spec": {"podCIDRs": ["10.0.0.0/24", "10.1.0.0/24"]}}),
                &["spec.podCIDRs"],
            ),
            (json!({"spec": {"podCIDRs": ["x"]}}), &["spec.podCIDRs[0]"]),
        ],
    );
    let named = json!({"spec": {"providerID": "p", "podCIDRs": ["10.0.0.0/24"]}});
    check_update(
        "v1",
        "Node",
        &named,
        &[
            (taints(json!([])), &[]),
            (
                json!({"spec": {"providerID": "q", "podCIDRs": ["10.1.0.0/24"]}}),
                &["spec.podCIDRs", "spec.providerID"],
            ),
        ],
    );
    check_update("v1", "Node", &json!({}), &[(named, &[])]);
}

#[test]
fn configuration_and_secrets() {
    let big = "x".repeat((1 << 20) + 1);
    check(
        "v1",
        "ConfigMap",
        &json!({}),
        &[
            (
                json!({"data": {"a.b_C-1": "x"}, "binaryData": {"b": "eA=="}}),
                &[],
            ),
            (json!({"data": {"a b": "x"}}), &["data[a b]"]),
            (json!({"data": {"..a": "x"}}), &["data[..a]"]),
            (
                json!({"data": {"a": "x"}, "binaryData": {"a": "eA=="}}),
                &["data[a]"],
            ),
            (json!({"data": {"a": big}}), &["data"]),
        ],
    );
    let frozen = json!({"immutable": true, "data": {"a": "eA=="}, "type": "Opaque"});
    check_update(
        "v1",
        "ConfigMap",
        &frozen,
        &[
            (json!({"metadata": {"labels": {"a": "b"}}}), &[]),
            (json!({"immutable": false}), &["immutable"]),
            (json!({"data": {"a": "y"}}), &["data"]),
            (json!({"binaryData": {"b": "eA=="}}), &["binaryData"]),
        ],
    );
    check_update(
        "v1",
        "Secret",
        &frozen,
        &[
            (json!({"data": {"a": "eQ=="}}), &["data"]),
            (json!({"type": "other"}), &["type"]),
        ],
    );
    let typed = |t: &str, data: Value| json!({"type": t, "data": data});
    check(
        "v1",
        "Secret",
        &json!({}),
        &[
            (typed("Opaque", json!({"a": "eA=="})), &[]),
            (
                typed("kubernetes.io/tls", json!({"tls.crt": ""})),
                &["data[tls.key]"],
            ),
            (
                typed("kubernetes.io/ssh-auth", json!({})),
                &["data[ssh-privatekey]"],
            ),
            (
                typed("kubernetes.io/basic-auth", json!({"username": ""})),
                &[],
            ),
            (
                typed("kubernetes.io/basic-auth", json!({})),
                &["data[password]"],
            ),
            (
                typed(
                    "kubernetes.io/dockerconfigjson",
                    json!({".dockerconfigjson": "e30="}),
                ),
                &[],
            ),
            (
                typed(
                    "kubernetes.io/dockerconfigjson",
                    json!({".dockerconfigjson": "eA=="}),
                ),
                &["data[.dockerconfigjson]"],
            ),
            (
                typed("kubernetes.io/service-account-token", json!({})),
                &["metadata.annotations[kubernetes.io/service-account.name]"],
            ),
        ],
    );
    assert_eq!(
        core_resources::check_secret_encoding(&json!({"data": {"a": "e\nA=="}})),
        Ok(())
    );
    assert_eq!(
        core_resources::check_secret_encoding(&json!({"data": {"a": "?"}}))
            .unwrap_err()
            .code,
        400
    );
}

#[test]
fn claims_events_and_pods() {
    let claim = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    check(
        "v1",
        "PersistentVolumeClaim",
        &claim,
        &[
            (json!({}), &[]),
            (
                json!({"spec": {"accessModes": ["Foo"]}}),
                &["spec.accessModes"],
            ),
            (
                json!({"spec": {"accessModes": null}}),
                &["spec.accessModes"],
            ),
            (
                json!({"spec": {"resources": null}}),
                &["spec.resources[storage]"],
            ),
            (
                json!({"spec": {"resources": {"requests": {"storage": "0"}}, "volumeMode": "Tape"}}),
                &["spec.volumeMode", "spec.resources[storage]"],
            ),
        ],
    );
    check_update(
        "v1",
        "PersistentVolumeClaim",
        &claim,
        &[
            (
                json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}),
                &[],
            ),
            (json!({"spec": {"volumeName": "v"}}), &[]),
            (json!({"spec": {"storageClassName": "x"}}), &["spec"]),
        ],
    );
    let event = json!({"metadata": {"namespace": "a"}, "involvedObject": {"namespace": "a"}});
    check(
        "v1",
        "Event",
        &event,
        &[
            (json!({}), &[]),
            (
                json!({"involvedObject": {"namespace": "b"}}),
                &["involvedObject.namespace"],
            ),
            (
                json!({"involvedObject": null}),
                &["involvedObject.namespace"],
            ),
            (
                json!({"involvedObject": null, "metadata": {"namespace": "default"}}),
                &[],
            ),
        ],
    );
    let pod = json!({"spec": {"containers": [{"name": "c", "image": "x"}], "tolerations": [{"key": "a"}]}});
    check_update(
        "v1",
        "Pod",
        &pod,
        &[
            (
                json!({"spec": {"containers": [{"name": "c", "image": "y"}]}}),
                &[],
            ),
            (json!({"spec": {"activeDeadlineSeconds": 5}}), &[]),
            (
                json!({"spec": {"tolerations": [{"key": "a"}, {"key": "b"}]}}),
                &[],
            ),
            (json!({"spec": {"tolerations": []}}), &["spec.tolerations"]),
            (json!({"spec": {"hostname": "h"}}), &["spec"]),
        ],
    );
}

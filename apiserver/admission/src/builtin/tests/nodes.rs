//! Tests of the rules of Nodes, ConfigMaps, Secrets, Events and Namespaces.

use serde_json::{Value, json};

use super::{check, check_update};

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
                    "metadata.taints[0].key",
                    "metadata.taints[0].value",
                    "metadata.taints[0].effect",
                ],
            ),
            (
                taints(json!([{"effect": ""}])),
                &["metadata.taints[0].key", "metadata.taints[0].effect"],
            ),
            (
                taints(
                    json!([{"key": "a", "effect": "NoExecute"}, {"key": "a", "value": "b", "effect": "NoExecute"}]),
                ),
                &["metadata.taints[1]"],
            ),
            (
                json!({"spec": {"podCIDRs": ["10.0.0.0/24", "10.1.0.0/24"]}}),
                &["spec.podCIDRs"],
            ),
            (json!({"spec": {"podCIDRs": ["x"]}}), &["spec.podCIDRs[0]"]),
            (
                json!({"spec": {"podCIDRs": ["10.0.0.0/24", "10.0.0.0/24"]}}),
                &["spec.podCIDRs", "spec.podCIDRs[1]"],
            ),
            (
                json!({"status": {"capacity": {"cpu": "4", "memory": "1500m"}, "allocatable": {"pods": "110"}}}),
                &[],
            ),
            (
                json!({"status": {"capacity": {"cpu": "-1"}, "allocatable": {"a.b/gpu": "500m"}}}),
                &["status.capacity.cpu", "status.allocatable.a.b/gpu"],
            ),
        ],
    );
    let provider_and_cidrs = json!({"spec": {"providerID": "p", "podCIDRs": ["10.0.0.0/24"]}});
    check_update(
        "v1",
        "Node",
        &provider_and_cidrs,
        &[
            (taints(json!([])), &[]),
            (
                json!({"spec": {"providerID": "q", "podCIDRs": ["10.1.0.0/24"]}}),
                &["spec.podCIDRs", "spec.providerID"],
            ),
            (json!({"spec": {"unschedulable": true}}), &[]),
            (json!({"spec": {"externalID": "e"}}), &["spec.externalID"]),
            (
                json!({"status": {"addresses": [
                    {"type": "InternalIP", "address": "10.1.1.1"}, {"type": "ExternalIP", "address": "10.1.1.1"},
                    {"type": "InternalIP", "address": "10.1.1.1"}]}}),
                &["status.addresses[2]"],
            ),
        ],
    );
    check_update("v1", "Node", &json!({}), &[(provider_and_cidrs, &[])]);
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
            (json!({"data": {"a": big}}), &["[]"]),
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
                &["data[username]", "data[password]"],
            ),
            (
                typed("kubernetes.io/ssh-auth", json!({"ssh-privatekey": ""})),
                &["data[ssh-privatekey]"],
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
        super::super::core_resources::check_secret_encoding(&json!({"data": {"a": "e\nA=="}})),
        Ok(())
    );
    assert_eq!(
        super::super::core_resources::check_secret_encoding(&json!({"data": {"a": "?"}}))
            .unwrap_err()
            .code,
        400
    );
}

#[test]
fn events_and_namespaces() {
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
            (
                json!({"eventTime": "2026-01-01T00:00:00.000000Z"}),
                &[
                    "reportingController",
                    "reportingController",
                    "reportingInstance",
                    "action",
                    "reason",
                ],
            ),
            (
                json!({"eventTime": "2026-01-01T00:00:00.000000Z", "reportingComponent": "a/b", "reportingInstance": "i",
                    "action": "a", "reason": "x".repeat(129), "message": "x".repeat(1025)}),
                &["reason", "message"],
            ),
        ],
    );
    let finalizers = |f: Value| json!({"spec": {"finalizers": f}});
    check(
        "v1",
        "Namespace",
        &json!({}),
        &[
            (finalizers(json!(["kubernetes", "a.b/c"])), &[]),
            (
                finalizers(json!(["mine", "a b"])),
                &["spec.finalizers", "spec.finalizers"],
            ),
        ],
    );
}

//! Tests of the rules of Services.

use serde_json::{Value, json};

use super::super::service;
use super::{check, check_update};

const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

#[test]
fn services() {
    let at_annotation = format!("metadata.annotations[{SOURCE_RANGES}]");
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
                &["spec.LoadBalancerSourceRanges"],
            ),
            (
                json!({"spec": {"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.1/8"]}}),
                &["spec.LoadBalancerSourceRanges[0]"],
            ),
            (
                json!({"spec": {"type": "LoadBalancer"}, "metadata": {"annotations": {SOURCE_RANGES: " 10.0.0.0/8, 11.0.0.0/8 "}}}),
                &[],
            ),
            (
                json!({"metadata": {"annotations": {SOURCE_RANGES: "x"}}}),
                &[&at_annotation, &at_annotation],
            ),
            (
                json!({"metadata": {"annotations": {
                    "service.kubernetes.io/topology-mode": "a",
                    "service.kubernetes.io/topology-aware-hints": "b"}}}),
                &["metadata.annotations[service.kubernetes.io/topology-mode]"],
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
                json!({"spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 70000}}),
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
                json!({"spec": {"clusterIPs": ["10.0.0.1", "fd00::1"], "ipFamilies": ["IPv4", "IPv6"]}}),
                &[],
            ),
            (
                json!({"spec": {"clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv6"]}}),
                &["spec.clusterIPs[0]"],
            ),
            (
                json!({"spec": {"clusterIP": "None", "clusterIPs": ["None", "fd00::1"]}}),
                &["spec.clusterIPs"],
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
                json!({"spec": {"type": "ExternalName", "clusterIP": null, "externalName": "a",
                    "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}}),
                &["spec.ipFamilies", "spec.ipFamilyPolicy"],
            ),
            (
                ports(json!([{"port": 1, "appProtocol": "a b"}])),
                &["spec.ports[0].appProtocol"],
            ),
            (
                json!({"spec": {"selector": {"a b": "c"}}}),
                &["spec.selector"],
            ),
            (
                json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 10250}]}}),
                &[],
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
fn addresses_and_balancers_of_services_last() {
    let dual = json!({"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "fd00::1"],
        "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack", "ports": [{"port": 80}]}});
    check_update(
        "v1",
        "Service",
        &dual,
        &[
            (
                json!({"spec": {"clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}}),
                &[],
            ),
            (
                json!({"spec": {"clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"]}}),
                &["spec.ipFamilyPolicy", "spec.ipFamilyPolicy"],
            ),
            (
                json!({"spec": {"clusterIPs": ["10.0.0.1", "fd00::2"]}}),
                &["spec.clusterIPs[1]"],
            ),
            (
                json!({"spec": {"ipFamilies": ["IPv6", "IPv4"]}}),
                &[
                    "spec.ipFamilies[0]",
                    "spec.clusterIPs[0]",
                    "spec.clusterIPs[1]",
                ],
            ),
        ],
    );
    let balanced = json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1", "loadBalancerClass": "a/b",
        "externalTrafficPolicy": "Local", "healthCheckNodePort": 30000, "ports": [{"port": 80}]}});
    check_update(
        "v1",
        "Service",
        &balanced,
        &[
            (json!({"spec": {"ports": [{"port": 81}]}}), &[]),
            (
                json!({"spec": {"loadBalancerClass": "a/c"}}),
                &["spec.loadBalancerClass"],
            ),
            (
                json!({"spec": {"healthCheckNodePort": 30001}}),
                &["spec.healthCheckNodePort"],
            ),
        ],
    );
}

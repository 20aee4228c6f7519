//! Tests of network policies, endpoints, and storage.

use serde_json::{Value, json};

use super::{check, check_reasons, check_update};

#[test]
fn network_policies() {
    let ingress = |rule: Value| json!({"spec": {"podSelector": {}, "ingress": [rule]}});
    let from = |peer: Value| ingress(json!({"from": [peer]}));
    let port = |port: Value| ingress(json!({"ports": [port]}));
    let peer = "spec.ingress[0].from[0]";
    check(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        &json!({}),
        &[
            (
                from(json!({"podSelector": {}, "namespaceSelector": {}})),
                &[],
            ),
            (
                from(json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}})),
                &[],
            ),
            (from(json!({})), &[peer]),
            (
                from(json!({"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}})),
                &[peer],
            ),
            (
                from(json!({"ipBlock": {}})),
                &[&format!("{peer}.ipBlock.cidr")],
            ),
            (
                from(json!({"ipBlock": {"cidr": "10.0.0.1/8"}})),
                &[&format!("{peer}.ipBlock.cidr")],
            ),
            (
                from(json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}})),
                &[&format!("{peer}.ipBlock.except[0]")],
            ),
            (port(json!({"port": 80, "endPort": 90})), &[]),
            (
                port(json!({"port": 80, "endPort": 79})),
                &["spec.ingress[0].ports[0].endPort"],
            ),
            (
                port(json!({"endPort": 79})),
                &["spec.ingress[0].ports[0].endPort"],
            ),
            (
                port(json!({"port": 0, "protocol": "ICMP"})),
                &[
                    "spec.ingress[0].ports[0].protocol",
                    "spec.ingress[0].ports[0].port",
                ],
            ),
            (
                json!({"spec": {"policyTypes": ["Both"]}}),
                &["spec.policyTypes[0]"],
            ),
        ],
    );
    let stored = from(json!({"ipBlock": {"cidr": "10.0.0.1/8"}}));
    check_update(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        &stored,
        &[(json!({}), &[])],
    );
    let port = |port: Value| json!({"spec": {"podSelector": {}, "ingress": [{"ports": [port]}]}});
    let path = "spec.ingress[0].ports[0]";
    let [end, protocol] = ["endPort", "protocol"].map(|field| format!("{path}.{field}"));
    check_reasons(
        ("networking.k8s.io/v1", "NetworkPolicy"),
        &json!({}),
        None,
        &[
            (
                port(json!({"port": 80, "endPort": 80, "protocol": "SCTP"})),
                &[],
            ),
            (
                port(json!({"port": 80, "endPort": 0, "protocol": ""})),
                &[
                    &format!("NotSupported {protocol}"),
                    &format!("Invalid {end}"),
                    &format!("Invalid {end}"),
                ],
            ),
            (
                port(json!({"port": 80, "endPort": 65_536})),
                &[&format!("Invalid {end}")],
            ),
            (
                json!({"spec": {"podSelector": {"matchLabels": {"a": "/"}}, "policyTypes": ["Any"]}}),
                &[
                    "Invalid spec.podSelector.matchLabels",
                    "NotSupported spec.policyTypes[0]",
                ],
            ),
        ],
    );
}

#[test]
fn endpoints_and_slices() {
    let slice = json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.1.1"]}], "ports": [{"port": 80}]});
    check(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        &slice,
        &[
            (json!({}), &[]),
            (json!({"addressType": "MAC"}), &["addressType"]),
            (
                json!({"addressType": "IPv6"}),
                &["endpoints[0].addresses[0]"],
            ),
            (
                json!({"endpoints": [{"addresses": []}]}),
                &["endpoints[0].addresses"],
            ),
            (
                json!({"endpoints": [{"addresses": ["x"], "hostname": "a.b"}]}),
                &["endpoints[0].addresses[0]", "endpoints[0].hostname"],
            ),
            (
                json!({"ports": [{"port": 80}, {"port": 0}]}),
                &["ports[1].name"],
            ),
            (
                json!({"ports": [{"port": 0, "appProtocol": "a b"}]}),
                &["ports[0].appProtocol"],
            ),
            (
                json!({"endpoints": [{"addresses": ["127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1"]}]}),
                &[
                    "endpoints[0].addresses[0]",
                    "endpoints[0].addresses[1]",
                    "endpoints[0].addresses[2]",
                    "endpoints[0].addresses[3]",
                ],
            ),
            (
                json!({"addressType": "IPv6", "endpoints": [{"addresses": ["fd00::1", "::1", "fe80::1"]}]}),
                &["endpoints[0].addresses[1]", "endpoints[0].addresses[2]"],
            ),
            (
                json!({"addressType": "FQDN", "endpoints": [{"addresses": ["a.b", "a"]}]}),
                &["endpoints[0].addresses[1]"],
            ),
            (
                json!({"endpoints": [{"addresses": ["10.1.1.1"], "nodeName": "N",
                    "hints": {"forZones": [{"name": "a"}, {"name": "a"}, {"name": "-"}], "forNodes": [{"name": "n"}]}}]}),
                &[
                    "endpoints[0].nodeName",
                    "endpoints[0].hints.forZones[1].name",
                    "endpoints[0].hints.forZones[2].name",
                ],
            ),
        ],
    );
    check_update(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        &slice,
        &[(
            json!({"addressType": "FQDN", "endpoints": []}),
            &["addressType"],
        )],
    );
    let local = json!({"addressType": "IPv4", "endpoints": [{"addresses": ["127.0.0.1"]}]});
    check_update(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        &local,
        &[
            (json!({"ports": [{"port": 1}]}), &[]),
            (
                json!({"endpoints": [{"addresses": ["127.0.0.2"]}]}),
                &["endpoints[0].addresses[0]"],
            ),
        ],
    );
    let local = json!({"subsets": [{"addresses": [{"ip": "127.0.0.1"}]}]});
    check_update(
        "v1",
        "Endpoints",
        &local,
        &[(json!({"metadata": {"labels": {"a": "b"}}}), &[])],
    );
    check(
        "v1",
        "Endpoints",
        &json!({}),
        &[
            (
                json!({"subsets": [{"addresses": [{"ip": "10.1.1.1"}], "ports": [{"port": 80}]}]}),
                &[],
            ),
            (json!({"subsets": [{}]}), &["subsets[0]"]),
            (
                json!({"subsets": [{"addresses": [{"ip": "127.0.0.1", "hostname": "a.b", "nodeName": "N"}],
                    "ports": [{"port": 1, "name": "A"}, {"port": 2}]}]}),
                &[
                    "subsets[0].addresses[0].hostname",
                    "subsets[0].addresses[0].nodeName",
                    "subsets[0].addresses[0].ip",
                    "subsets[0].ports[0].name",
                    "subsets[0].ports[1].name",
                ],
            ),
            (
                json!({"subsets": [{"notReadyAddresses": [{"ip": "01.2.3.4"}], "ports": [{"port": 0}]}]}),
                &[
                    "subsets[0].notReadyAddresses[0].ip",
                    "subsets[0].ports[0].port",
                ],
            ),
        ],
    );
}

#[test]
fn persistent_volumes_and_classes() {
    let volume = json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/a"}}});
    check(
        "v1",
        "PersistentVolume",
        &volume,
        &[
            (json!({}), &[]),
            (json!({"spec": {"hostPath": null}}), &["spec"]),
            (
                json!({"spec": {"csi": {"driver": "d", "volumeHandle": "h"}}}),
                &["spec.csi"],
            ),
            (
                json!({"spec": {"capacity": {"storage": "0"}}}),
                &["spec.capacity[storage]"],
            ),
            (
                json!({"spec": {"capacity": {"storage": null, "cpu": "1"}}}),
                &["spec.capacity"],
            ),
            (
                json!({"spec": {"accessModes": ["ReadWriteOncePod", "ReadOnlyMany"]}}),
                &["spec.accessModes"],
            ),
            (
                json!({"spec": {"persistentVolumeReclaimPolicy": "Recycle", "hostPath": {"path": "/"}}}),
                &["spec.persistentVolumeReclaimPolicy"],
            ),
            (
                json!({"spec": {"persistentVolumeReclaimPolicy": "Keep", "volumeMode": "Tape", "storageClassName": "A"}}),
                &[
                    "spec.persistentVolumeReclaimPolicy",
                    "spec.storageClassName",
                    "spec.volumeMode",
                ],
            ),
            (
                json!({"spec": {"hostPath": null, "local": {"path": "/a"}}}),
                &["spec.nodeAffinity"],
            ),
        ],
    );
    check_update(
        "v1",
        "PersistentVolume",
        &volume,
        &[
            (json!({"spec": {"capacity": {"storage": "2Gi"}}}), &[]),
            (
                json!({"spec": {"hostPath": {"path": "/b"}, "volumeMode": "Block"}}),
                &["spec.persistentvolumesource", "volumeMode"],
            ),
        ],
    );
    check(
        "storage.k8s.io/v1",
        "StorageClass",
        &json!({"provisioner": "p"}),
        &[(
            json!({"reclaimPolicy": "Keep", "volumeBindingMode": "Later"}),
            &["reclaimPolicy", "volumeBindingMode"],
        )],
    );
}

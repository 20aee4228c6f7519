//! One object per warning, by the whole text.

use serde_json::json;

use super::*;

fn check(api_version: &str, kind: &str, object: &Value, expected: &[&str]) {
    let gvk = Gvk::from_api_version(api_version, kind);
    assert_eq!(warnings(&gvk, object, None), expected, "{kind} {object}");
}

#[test]
fn pods_with_deprecated_and_duplicate_fields_are_warned_of() {
    let pod = json!({
        "metadata": {"name": "w", "annotations": {"seccomp.security.alpha.kubernetes.io/pod": "runtime/default"}},
        "spec": {
            "nodeSelector": {"beta.kubernetes.io/os": "linux"},
            "hostAliases": [{"ip": "1.2.3.4"}, {"ip": "1.2.3.4"}],
            "imagePullSecrets": [{"name": ""}],
            "terminationGracePeriodSeconds": -1,
            "volumes": [{"name": "g", "gitRepo": {"repository": "x"}}],
            "containers": [{
                "name": "c",
                "image": "x",
                "ports": [{"containerPort": 80, "name": "p"}, {"containerPort": 80, "name": "p", "hostPort": 1}],
                "env": [{"name": "A", "value": "b"}, {"name": "A", "value": "c"}, {"name": "A", "value": "$(A)d"}],
                "resources": {"limits": {"memory": "100m"}},
            }],
        },
    });
    let expected = [
        r#"spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead"#,
        "spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+",
        r#"spec.hostAliases[1].ip: duplicate ip "1.2.3.4""#,
        r#"spec.imagePullSecrets[0].name: invalid empty name """#,
        r#"metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: non-functional in v1.27+; use the "seccompProfile" field instead"#,
        r#"spec.containers[0].resources.limits[memory]: fractional byte value "100m" is invalid, must be an integer"#,
        r#"spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply"#,
        "spec.containers[0].ports[1]: overlapping port definition with spec.containers[0].ports[0]",
        r#"spec.containers[0].ports[1]: duplicate port name "p" with spec.containers[0].ports[0], services and probes that select ports by name will use spec.containers[0].ports[0]"#,
        "spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1",
    ];
    check("v1", "Pod", &pod, &expected);
    let gvk = Gvk::from_static("", "v1", "Pod");
    assert_eq!(warnings(&gvk, &pod, Some(&pod)), [""; 0]);
}

#[test]
fn templates_are_warned_of_when_their_spec_changes() {
    let new = json!({"metadata": {"name": "a.b"}, "spec": {"template": {"spec": {
    "topologySpreadConstraints": [{"topologyKey": "beta.kubernetes.io/arch"}],
    "affinity": {
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]},
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"preference": {"matchExpressions": [{"key": "a", "values": ["b c"]}]}}]},
    }}}}});
    let prefix = "spec.template.spec";
    let spread = format!("{prefix}.topologySpreadConstraints[0]");
    let of_spec = [
        format!(
            "{prefix}.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].values[0]: b c is invalid, {}",
            machinery::names::validate_label_value("b c").unwrap_err()
        ),
        format!(
            r#"{spread}.topologyKey: beta.kubernetes.io/arch is deprecated since v1.14; use "kubernetes.io/arch" instead"#
        ),
        format!("{spread}.labelSelector: a null labelSelector results in matching no pod"),
        format!(
            "{prefix}.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a null labelSelector results in matching no pod"
        ),
    ];
    let name = "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]";
    let deployment = Gvk::from_static("apps", "v1", "Deployment");
    let created = warnings(&deployment, &new, None);
    assert_eq!(created[0], name);
    assert_eq!(created[1..], of_spec);
    assert_eq!(warnings(&deployment, &new, Some(&new)), [""; 0]);
    let old = json!({"metadata": {"name": "a.b"}, "spec": {}});
    assert_eq!(warnings(&deployment, &new, Some(&old)), of_spec);
    let daemons = Gvk::from_static("apps", "v1", "DaemonSet");
    assert_eq!(warnings(&daemons, &new, None), of_spec);
    // An annotation makes a new generation of a Deployment, and a DaemonSet only its template.
    let mut annotated = new.clone();
    annotated["metadata"]["annotations"] = json!({"a": "b"});
    assert_eq!(warnings(&deployment, &annotated, Some(&new)), of_spec);
    let mut slower = new.clone();
    slower["spec"]["minReadySeconds"] = json!(5);
    assert_eq!(warnings(&daemons, &slower, Some(&new)), [""; 0]);
}

#[test]
fn stateful_sets_are_warned_of() {
    let gvk = Gvk::from_static("apps", "v1", "StatefulSet");
    let claim = json!({"spec": {"resources": {"requests": {"storage": "100m"}}}});
    let old = json!({"metadata": {"name": "a"}, "spec": {}});
    let new = json!({"metadata": {"name": "a"},
        "spec": {"revisionHistoryLimit": -1, "volumeClaimTemplates": [claim]}});
    let expected = |path: &str| {
        [
            format!(
                r#"spec.volumeClaimTemplates[0]{path}.resources.requests[storage]: fractional byte value "100m" is invalid, must be an integer"#
            ),
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended".to_owned(),
        ]
    };
    assert_eq!(warnings(&gvk, &new, None), expected(""));
    assert_eq!(warnings(&gvk, &new, Some(&old)), expected(".Spec"));
}

#[test]
fn files_of_volumes_that_hide_each_other_are_warned_of() {
    let volumes = json!([
        {"name": "a", "configMap": {"name": "m", "items": [{"path": "x"}, {"path": "x/y"}, {"path": "xy"}]}},
        {"name": "b", "projected": {"sources": [{"secret": {"name": "s", "items": [{"path": "token"}]}},
            {"serviceAccountToken": {"path": "token"}}, {}]}},
    ]);
    check(
        "v1",
        "Pod",
        &json!({"metadata": {"name": "p"}, "spec": {"volumes": volumes}}),
        &[
            r#"volume "a" (ConfigMap "m"): overlapping paths: "x/y" with "x""#,
            r#"volume "b" (Projected): overlapping paths: "token" (ServiceAccountToken) with "token" (Secret "s")"#,
            r#"volume "b" (Projected) has no sources provided"#,
        ],
    );
}

#[test]
fn services_are_warned_of() {
    for (spec, expected) in [
        (
            json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]}),
            &[][..],
        ),
        (
            json!({"externalIPs": ["0::1"]}),
            &[
                r#"spec.externalIPs[0]: IPv6 address "0::1" should be in RFC 5952 canonical format ("::1")"#,
                "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
            ],
        ),
        (
            json!({"clusterIP": "None", "loadBalancerIP": "1.2.3.4", "sessionAffinity": "ClientIP"}),
            &[
                "spec.loadBalancerIP is ignored for headless services",
                "spec.SessionAffinity is ignored for headless services",
            ],
        ),
        (
            json!({"externalName": "a", "trafficDistribution": "PreferClose"}),
            &[
                "spec.externalName is ignored when spec.type is not \"ExternalName\"",
                "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
            ],
        ),
    ] {
        check(
            "v1",
            "Service",
            &json!({"metadata": {}, "spec": spec}),
            expected,
        );
    }
}

#[test]
fn other_kinds_are_warned_of() {
    let annotated = |key: &str| json!({"metadata": {"annotations": {key: "x"}}, "spec": {}});
    check(
        "networking.k8s.io/v1",
        "Ingress",
        &annotated("kubernetes.io/ingress.class"),
        &[
            r#"annotation "kubernetes.io/ingress.class" is deprecated, please use 'spec.ingressClassName' instead"#,
        ],
    );
    check(
        "v1",
        "PersistentVolume",
        &json!({"spec": {"persistentVolumeReclaimPolicy": "Recycle", "rbd": {}}}),
        &[
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.",
            "spec.rbd: deprecated in v1.28, non-functional in v1.31+",
        ],
    );
    check(
        "v1",
        "PersistentVolumeClaim",
        &json!({"spec": {"resources": {"requests": {"storage": "1500m"}}}}),
        &[
            r#"spec.resources.requests[storage]: fractional byte value "1500m" is invalid, must be an integer"#,
        ],
    );
    check(
        "v1",
        "ServiceAccount",
        &annotated("kubernetes.io/enforce-mountable-secrets"),
        &[
            "metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets",
        ],
    );
    check(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        &json!({"spec": {"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.1/8"}}]}]}}),
        &[
            r#"spec.ingress[0].from[0].ipBlock.cidr: CIDR value "10.0.0.1/8" is ambiguous in this context (should be "10.0.0.0/8" or "10.0.0.1/32"?)"#,
        ],
    );
    check(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        &json!({"addressType": "FQDN"}),
        &["addressType: FQDN endpoints are deprecated"],
    );
    check(
        "storage.k8s.io/v1",
        "StorageClass",
        &json!({"allowedTopologies": [{"matchLabelExpressions": [{"key": "failure-domain.beta.kubernetes.io/zone"}]}]}),
        &[
            r#"allowedTopologies[0].matchLabelExpressions[0].key: failure-domain.beta.kubernetes.io/zone is deprecated since v1.17; use "topology.kubernetes.io/zone" instead"#,
        ],
    );
}

//! Tests of the rules of pod specs: containers, volumes, scheduling, security.

use serde_json::{Value, json};

use super::{check, with};

/// Checks changes of a pod; fields are relative to its spec.
fn check_pod(table: &[(Value, &[&str])]) {
    let base = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (change, expected) in table {
        let fields: Vec<String> = expected.iter().map(|f| format!("spec.{f}")).collect();
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        check("v1", "Pod", &base, &[(json!({"spec": change}), &fields)]);
    }
}

/// As [`check_pod`] for the only container.
fn check_container(table: &[(Value, &[&str])]) {
    for (change, expected) in table {
        let container = with(&json!({"name": "c", "image": "i"}), change);
        let fields: Vec<String> = expected
            .iter()
            .map(|f| format!("containers[0].{f}"))
            .collect();
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        let volumes = json!([{"name": "v"}]);
        check_pod(&[(
            json!({"containers": [container], "volumes": volumes}),
            &fields,
        )]);
    }
}

#[test]
fn probes_and_lifecycles() {
    let probe = |p: Value| json!({"livenessProbe": with(&json!({"httpGet": {"port": 80}}), &p)});
    check_container(&[
        (probe(json!({})), &[]),
        (
            probe(json!({"httpGet": {"port": "http", "path": "/x"}})),
            &[],
        ),
        (probe(json!({"httpGet": null})), &["livenessProbe"]),
        (probe(json!({"grpc": {"port": 1}})), &["livenessProbe.grpc"]),
        (
            probe(json!({"httpGet": {"port": 0}})),
            &["livenessProbe.httpGet.port"],
        ),
        (
            probe(json!({"httpGet": {"scheme": "FTP"}})),
            &["livenessProbe.httpGet.scheme"],
        ),
        (
            probe(json!({"httpGet": {"httpHeaders": [{"name": "a b"}]}})),
            &["livenessProbe.httpGet.httpHeaders[0].name"],
        ),
        (
            probe(json!({"periodSeconds": -1})),
            &["livenessProbe.periodSeconds"],
        ),
        (
            probe(json!({"successThreshold": 2})),
            &["livenessProbe.successThreshold"],
        ),
        (
            probe(json!({"terminationGracePeriodSeconds": 0})),
            &["livenessProbe.terminationGracePeriodSeconds"],
        ),
        (
            json!({"readinessProbe": {"exec": {"command": []}, "terminationGracePeriodSeconds": 1}}),
            &[
                "readinessProbe.exec.command",
                "readinessProbe.terminationGracePeriodSeconds",
            ],
        ),
        (
            json!({"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}),
            &[],
        ),
        (
            json!({"lifecycle": {"postStart": {}}}),
            &["lifecycle.postStart"],
        ),
    ]);
    let init = |c: Value| json!({"initContainers": [with(&json!({"name": "a", "image": "i", "startupProbe": {"tcpSocket": {"port": 1}}}), &c)]});
    check_pod(&[
        (init(json!({})), &["initContainers[0].startupProbe"]),
        (init(json!({"restartPolicy": "Always"})), &[]),
    ]);
}

#[test]
fn environments_mounts_and_ports() {
    let from = |s: Value| json!({"env": [{"name": "A", "valueFrom": s}]});
    let at = "env[0].valueFrom";
    check_container(&[
        (
            from(json!({"fieldRef": {"fieldPath": "metadata.labels['a']"}})),
            &[],
        ),
        (from(json!({})), &[at]),
        (
            from(json!({"fieldRef": {"fieldPath": "spec.x"}})),
            &[&format!("{at}.fieldRef.fieldPath")],
        ),
        (
            from(
                json!({"secretKeyRef": {"name": "s", "key": "k"}, "configMapKeyRef": {"key": "a b"}}),
            ),
            &[
                at,
                &format!("{at}.configMapKeyRef.name"),
                &format!("{at}.configMapKeyRef.key"),
            ],
        ),
        (
            from(json!({"resourceFieldRef": {}})),
            &[&format!("{at}.resourceFieldRef.resource")],
        ),
        (
            json!({"envFrom": [{"secretRef": {"name": "s"}, "prefix": "P_"}]}),
            &[],
        ),
        (
            json!({"envFrom": [{"prefix": "="}]}),
            &["envFrom[0].prefix", "envFrom[0]"],
        ),
        (
            json!({"envFrom": [{"configMapRef": {}}]}),
            &["envFrom[0].configMapRef.name"],
        ),
        (
            json!({"volumeMounts": [{"name": "v", "mountPath": "/a", "subPath": "/b", "subPathExpr": "../c"}]}),
            &[
                "volumeMounts[0].subPathExpr",
                "volumeMounts[0].subPath",
                "volumeMounts[0].subPathExpr",
            ],
        ),
        (
            json!({"volumeDevices": [{"name": "w"}]}),
            &["volumeDevices[0].name", "volumeDevices[0].devicePath"],
        ),
        (
            json!({"ports": [{"containerPort": 1, "hostPort": 5}, {"containerPort": 2, "hostPort": 5}]}),
            &["ports[1].hostPort"],
        ),
    ]);
    check_pod(&[(
        json!({"hostNetwork": true, "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 1, "hostPort": 2}]}]}),
        &["containers[0].ports[0].containerPort"],
    )]);
}

#[test]
fn exclusive_resources_and_security() {
    let resources = |r: Value| json!({"resources": r});
    let context = |c: Value| json!({"securityContext": c});
    check_container(&[
        (
            resources(json!({"requests": {"a.b/gpu": "1"}, "limits": {"a.b/gpu": "1"}})),
            &[],
        ),
        (
            resources(json!({"requests": {"a.b/gpu": "1"}})),
            &["resources.limits"],
        ),
        (
            resources(json!({"requests": {"a.b/gpu": "1"}, "limits": {"a.b/gpu": "2"}})),
            &["resources.requests"],
        ),
        (
            resources(json!({"limits": {"a.b/gpu": "500m"}})),
            &["resources.limits[a.b/gpu]"],
        ),
        (
            resources(json!({"limits": {"hugepages-2Mi": "2Mi"}})),
            &["resources"],
        ),
        (context(json!({"runAsUser": 0, "privileged": true})), &[]),
        (
            context(json!({"runAsUser": -1})),
            &["securityContext.runAsUser"],
        ),
        (
            context(json!({"privileged": true, "allowPrivilegeEscalation": false})),
            &["securityContext"],
        ),
        (
            context(
                json!({"capabilities": {"add": ["SYS_ADMIN"]}, "allowPrivilegeEscalation": false}),
            ),
            &["securityContext"],
        ),
        (
            context(json!({"seccompProfile": {"type": "Localhost"}})),
            &["securityContext.seccompProfile.localhostProfile"],
        ),
        (
            context(json!({"appArmorProfile": {"type": "None"}})),
            &["securityContext.appArmorProfile.type"],
        ),
    ]);
    check_pod(&[
        (
            json!({"shareProcessNamespace": true, "hostPID": true}),
            &["shareProcessNamespace"],
        ),
        (
            json!({"securityContext": {"fsGroup": -1, "supplementalGroups": [-1]}}),
            &[
                "securityContext.fsGroup",
                "securityContext.supplementalGroups[0]",
            ],
        ),
    ]);
}

#[test]
fn volumes() {
    let volume = |v: Value| json!({"volumes": [with(&json!({"name": "v"}), &v)]});
    check_pod(&[
        (
            volume(json!({"hostPath": {"path": "/a", "type": "Directory"}})),
            &[],
        ),
        (
            volume(json!({"emptyDir": {}, "secret": {"secretName": "s"}})),
            &["volumes[0].secret"],
        ),
        (
            volume(json!({"hostPath": {"path": "/a/../b", "type": "Link"}})),
            &["volumes[0].hostPath.path", "volumes[0].hostPath.type"],
        ),
        (
            volume(json!({"secret": {}})),
            &["volumes[0].secret.secretName"],
        ),
        (
            volume(json!({"nfs": {"server": "s", "path": "p"}})),
            &["volumes[0].nfs.path"],
        ),
        (
            volume(
                json!({"configMap": {"name": "m", "defaultMode": 512, "items": [{"key": "a b", "path": "../x"}]}}),
            ),
            &[
                "volumes[0].configMap.defaultMode",
                "volumes[0].configMap.items[0].path",
                "volumes[0].configMap.items[0].key",
            ],
        ),
        (
            volume(json!({"downwardAPI": {"items": [{"path": "p"}]}})),
            &["volumes[0].downwardAPI.items[0]"],
        ),
        (
            volume(
                json!({"projected": {"sources": [{"serviceAccountToken": {"path": "", "expirationSeconds": 1}}]}}),
            ),
            &[
                "volumes[0].projected.sources[0].serviceAccountToken.path",
                "volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds",
            ],
        ),
    ]);
}

#[test]
fn scheduling_and_names() {
    let node = |n: Value| json!({"affinity": {"nodeAffinity": n}});
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let term = format!("affinity.nodeAffinity.{required}.nodeSelectorTerms");
    let expression =
        |e: Value| node(json!({required: {"nodeSelectorTerms": [{"matchExpressions": [e]}]}}));
    let spread = |c: Value| json!({"topologySpreadConstraints": [c]});
    check_pod(&[
        (
            expression(json!({"key": "a", "operator": "In", "values": ["b"]})),
            &[],
        ),
        (node(json!({required: {"nodeSelectorTerms": []}})), &[&term]),
        (
            expression(json!({"key": "a b", "operator": "Exists", "values": ["b"]})),
            &[
                &format!("{term}[0].matchExpressions[0].values"),
                &format!("{term}[0].matchExpressions[0].key"),
            ],
        ),
        (
            expression(json!({"key": "a", "operator": "Near"})),
            &[&format!("{term}[0].matchExpressions[0].operator")],
        ),
        (
            json!({"affinity": {"podAffinity": {preferred: [{"weight": 0, "podAffinityTerm": {}}]}}}),
            &[
                &format!("affinity.podAffinity.{preferred}[0].weight"),
                &format!("affinity.podAffinity.{preferred}[0].podAffinityTerm.topologyKey"),
            ],
        ),
        (json!({"tolerations": [{"operator": "Exists"}]}), &[]),
        (
            json!({"tolerations": [{"value": "x"}]}),
            &["tolerations[0].operator"],
        ),
        (
            json!({"tolerations": [{"key": "a", "operator": "Exists", "value": "x", "effect": "Never", "tolerationSeconds": 1}]}),
            &[
                "tolerations[0].effect",
                "tolerations[0].operator",
                "tolerations[0].effect",
            ],
        ),
        (
            spread(
                json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}),
            ),
            &[],
        ),
        (
            spread(json!({"maxSkew": 0, "minDomains": 0, "whenUnsatisfiable": "ScheduleAnyway"})),
            &[
                "topologySpreadConstraints[0].maxSkew",
                "topologySpreadConstraints[0].minDomains",
                "topologySpreadConstraints[0].topologyKey",
                "topologySpreadConstraints[0].minDomains",
            ],
        ),
        (json!({"nodeSelector": {"a b": "c"}}), &["nodeSelector"]),
        (
            json!({"nodeName": "A", "hostname": "a.b", "serviceAccountName": "s_", "activeDeadlineSeconds": 0}),
            &[
                "nodeName",
                "serviceAccountName",
                "hostname",
                "activeDeadlineSeconds",
            ],
        ),
        (
            json!({"schedulingGates": [{"name": "a b"}]}),
            &["schedulingGates[0].name"],
        ),
        (
            json!({"hostAliases": [{"ip": "1.2.3", "hostnames": ["A"]}]}),
            &["hostAliases[0].ip", "hostAliases[0].hostnames"],
        ),
        (json!({"dnsPolicy": "None"}), &["dnsConfig.nameservers"]),
        (
            json!({"dnsConfig": {"nameservers": ["x"]}}),
            &["dnsConfig.nameservers[0]"],
        ),
    ]);
}

//! Tests of the rules of pod specs: containers, volumes, scheduling, security.

use serde_json::{Value, json};

use super::{check, with};

/// Checks changes of a pod; fields are relative to its spec.
pub(super) fn check_pod(table: &[(Value, &[&str])]) {
    let base = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
    let path = |field: &&str| match *field {
        "" => "spec".to_owned(),
        field => format!("spec.{field}"),
    };
    for (change, expected) in table {
        let fields: Vec<String> = expected.iter().map(path).collect();
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        check("v1", "Pod", &base, &[(json!({"spec": change}), &fields)]);
    }
}

/// As [`check_pod`] for the only container.
pub(super) fn check_container(table: &[(Value, &[&str])]) {
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
            &["livenessProbe.httpGet.httpHeaders"],
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
            probe(json!({"successThreshold": 0})),
            &["livenessProbe.successThreshold"],
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
        (
            init(json!({"name": "c", "startupProbe": null})),
            &["initContainers[0].name"],
        ),
        (
            init(json!({"startupProbe": null, "restartPolicy": "Never"})),
            &[],
        ),
        (
            json!({"terminationGracePeriodSeconds": 5, "containers": [{"name": "c", "image": "i",
                "lifecycle": {"preStop": {"sleep": {"seconds": 6}}}}]}),
            &["containers[0].lifecycle.preStop.sleep"],
        ),
        (
            json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "restartPolicy": "Sometimes",
                "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"},
                    {"resourceName": "cpu", "restartPolicy": "NotRequired"}]}]}),
            &[
                "containers[0].resizePolicy",
                "containers[0].resizePolicy[1]",
                "containers[0].restartPolicy",
            ],
        ),
        (
            json!({"containers": [{"name": "c", "image": "i", "restartPolicyRules": [{"action": "Restart"}]}]}),
            &[
                "containers[0].restartPolicy",
                "containers[0].restartPolicyRules[0].exitCodes",
            ],
        ),
    ]);
}

#[test]
fn environments_mounts_and_ports() {
    let from = |s: Value| json!({"env": [{"name": "A", "valueFrom": s}]});
    let path = "env[0].valueFrom";
    check_container(&[
        (
            from(json!({"fieldRef": {"fieldPath": "metadata.labels['a']"}})),
            &[],
        ),
        (from(json!({})), &[path]),
        (
            from(json!({"fieldRef": {"fieldPath": "spec.x"}})),
            &[&format!("{path}.fieldRef.fieldPath")],
        ),
        (
            from(
                json!({"secretKeyRef": {"name": "s", "key": "k"}, "configMapKeyRef": {"key": "a b"}}),
            ),
            &[
                &format!("{path}.configMapKeyRef.name"),
                &format!("{path}.configMapKeyRef.key"),
                path,
            ],
        ),
        (
            from(json!({"resourceFieldRef": {}})),
            &[&format!("{path}.resourceFieldRef.resource")],
        ),
        (
            from(json!({"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}})),
            &[],
        ),
        (
            from(json!({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1Mi"}})),
            &[&format!("{path}.resourceFieldRef.divisor")],
        ),
        (
            from(json!({"resourceFieldRef": {"resource": "limits.disk"}})),
            &[&format!("{path}.resourceFieldRef.resource")],
        ),
        (
            from(json!({"fieldRef": {"fieldPath": "metadata.annotations['A/b']"}})),
            &[],
        ),
        (
            from(json!({"fieldRef": {"fieldPath": "metadata.labels['a b']"}})),
            &[&format!("{path}.fieldRef")],
        ),
        (
            from(json!({"fieldRef": {"fieldPath": "status.phase"}})),
            &[&format!("{path}.fieldRef.fieldPath")],
        ),
        (
            from(json!({"fileKeyRef": {"volumeName": "v", "path": "../x", "key": "k"}})),
            &[&format!("{path}.fileKeyRef.path")],
        ),
        (
            json!({"envFrom": [{"secretRef": {"name": "s"}, "prefix": "P_"}]}),
            &[],
        ),
        (
            json!({"envFrom": [{"prefix": "="}]}),
            &["envFrom[0].prefix", "envFrom"],
        ),
        (
            json!({"envFrom": [{"configMapRef": {}}]}),
            &["envFrom[0].configMapRef.name"],
        ),
        (
            json!({"volumeMounts": [{"name": "v", "mountPath": "/a", "subPath": "/b", "subPathExpr": "../c"}]}),
            &[
                "volumeMounts.subPath",
                "volumeMounts[0].subPathExpr",
                "volumeMounts.subPathExpr",
            ],
        ),
        (
            json!({"volumeMounts": [{"name": "v", "mountPath": "/a", "mountPropagation": "HostToContainer"},
                {"name": "v", "mountPath": "/b", "recursiveReadOnly": "Enabled", "readOnly": true}]}),
            &[],
        ),
        (
            json!({"volumeMounts": [{"name": "v", "mountPath": "/a", "mountPropagation": "Bidirectional", "recursiveReadOnly": "Enabled"}]}),
            &[
                "volumeMounts.mountPropagation",
                "volumeMounts.recursiveReadOnly",
                "volumeMounts.recursiveReadOnly",
            ],
        ),
        (
            json!({"securityContext": {"privileged": true},
                "volumeMounts": [{"name": "v", "mountPath": "/a", "mountPropagation": "Bidirectional"}]}),
            &[],
        ),
        (
            json!({"volumeMounts": [{"name": "w", "mountPath": "/a"}, {"name": "v", "mountPath": "/a"}]}),
            &["volumeMounts[0].name", "volumeMounts[1].mountPath"],
        ),
        (
            json!({"volumeDevices": [{"name": "v", "devicePath": "/a/../b"}]}),
            &["volumeDevices[0].name", "volumeDevices[0].devicePath"],
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
        &["containers[0].ports[0].hostPort"],
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
        (
            resources(json!({"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}})),
            &["resources.limits[hugepages-2Mi]"],
        ),
        (
            resources(json!({"limits": {"disk": "1"}})),
            &["resources.limits[disk]", "resources.limits[disk]"],
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
                json!({"capabilities": {"add": ["CAP_SYS_ADMIN"]}, "allowPrivilegeEscalation": false}),
            ),
            &["securityContext"],
        ),
        (
            context(
                json!({"capabilities": {"add": ["SYS_ADMIN"]}, "allowPrivilegeEscalation": false}),
            ),
            &[],
        ),
        (
            context(json!({"procMount": "Unmasked"})),
            &["securityContext.procMount"],
        ),
        (
            context(json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "/a"}})),
            &["securityContext.seccompProfile.localhostProfile"],
        ),
        (
            context(json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": " a"}})),
            &["securityContext.appArmorProfile.localhostProfile"],
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
            &["securityContext.shareProcessNamespace"],
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
            ],
        ),
        (
            volume(json!({"downwardAPI": {"items": [{"path": "p"}]}})),
            &["volumes[0].downwardAPI"],
        ),
        (
            volume(
                json!({"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.labels"}},
                {"path": "q", "resourceFieldRef": {"resource": "limits.cpu", "containerName": "c"}}]}}),
            ),
            &[],
        ),
        (
            volume(
                json!({"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "spec.nodeName"}}]}}),
            ),
            &["volumes[0].downwardAPI.fieldRef.fieldPath"],
        ),
        (
            volume(json!({"csi": {"driver": "a_b"}})),
            &["volumes[0].csi.driver"],
        ),
        (
            volume(json!({"flexVolume": {"driver": "d", "options": {"x.kubernetes.io/y": "z"}}})),
            &["volumes[0].flexVolume.options[x.kubernetes.io/y]"],
        ),
        (
            volume(json!({"rbd": {"image": "i"}})),
            &["volumes[0].rbd.monitors"],
        ),
        (
            volume(json!({"image": {}})),
            &["volumes[0].image.reference"],
        ),
        (
            volume(
                json!({"ephemeral": {"volumeClaimTemplate": {"metadata": {"name": "x"}, "spec": {"accessModes": ["ReadWriteOnce"]}}}}),
            ),
            &[
                "volumes[0].ephemeral.volumeClaimTemplate.metadata.name",
                "volumes[0].ephemeral.volumeClaimTemplate.spec.resources[storage]",
            ],
        ),
        (
            volume(json!({"projected": {"sources": [
                {"configMap": {"name": "a", "items": [{"key": "k", "path": "p"}]}},
                {"secret": {"name": "b", "items": [{"key": "k", "path": "p"}]}, "configMap": {"name": "a"}}]}})),
            &["volumes[0].projected", "volumes[0].projected.sources[1]"],
        ),
        (
            volume(
                json!({"projected": {"sources": [{"serviceAccountToken": {"path": "", "expirationSeconds": 1}}]}}),
            ),
            &[
                "volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds",
                "volumes[0].projected.path",
                "volumes[0].projected.sources[0].serviceAccountToken",
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
                &format!("affinity.podAffinity.{preferred}[0].podAffinityTerm.topologyKey"),
            ],
        ),
        (
            json!({"affinity": {"podAffinity": {required: [{"topologyKey": "zone", "matchLabelKeys": ["a"]}]}}}),
            &[&format!(
                "affinity.podAffinity.{required}[0].matchLabelKeys"
            )],
        ),
        (
            json!({"affinity": {"podAffinity": {required: [{"topologyKey": "zone", "labelSelector": {},
                "matchLabelKeys": ["a"], "mismatchLabelKeys": ["a"]}]}}}),
            &[&format!(
                "affinity.podAffinity.{required}[0].matchLabelKeys[0]"
            )],
        ),
        (
            node(
                json!({required: {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}}),
            ),
            &[],
        ),
        (
            node(
                json!({required: {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.uid", "operator": "Exists"}]}]}}),
            ),
            &[
                &format!("{term}[0].matchFields[0].operator"),
                &format!("{term}[0].matchFields[0].key"),
            ],
        ),
        (
            expression(json!({"key": "a", "operator": "In", "values": ["b c"]})),
            &[&format!("{term}[0].matchExpressions[0].values[0]")],
        ),
        (
            node(
                json!({preferred: [{"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b c"]}]}}]}),
            ),
            &[],
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
                "topologySpreadConstraints[0].topologyKey",
                "topologySpreadConstraints[0].minDomains",
                "topologySpreadConstraints[0].minDomains",
            ],
        ),
        (
            json!({"topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "a b", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["x"]},
                {"maxSkew": 1, "topologyKey": "a b", "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": "Never",
                    "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}]}),
            &[
                "topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}",
                "topologySpreadConstraints[0].matchLabelKeys",
                "topologySpreadConstraints[1].nodeTaintsPolicy",
                "topologySpreadConstraints[1].labelSelector.matchExpressions[0].operator",
            ],
        ),
        (json!({"nodeSelector": {"a b": "c"}}), &["nodeSelector"]),
        (
            json!({"nodeName": "A", "hostname": "a.b", "serviceAccountName": "s_", "activeDeadlineSeconds": 0}),
            &[
                "serviceAccountName",
                "nodeName",
                "hostname",
                "activeDeadlineSeconds",
            ],
        ),
        (
            json!({"schedulingGates": [{"name": "a b"}, {"name": "a"}, {"name": "a"}]}),
            &["schedulingGates[0]", "schedulingGates[2]"],
        ),
        (
            json!({"nodeName": "n", "schedulingGates": [{"name": "a"}]}),
            &["nodeName"],
        ),
        (
            json!({"hostnameOverride": "a.b", "setHostnameAsFQDN": true}),
            &["hostnameOverride"],
        ),
        (
            json!({"hostAliases": [{"ip": "1.2.3", "hostnames": ["A"]}]}),
            &["hostAliases[0].ip", "hostAliases[0].hostnames[0]"],
        ),
        (json!({"dnsPolicy": "None"}), &["dnsConfig"]),
        (
            json!({"dnsPolicy": "None", "dnsConfig": {}}),
            &["dnsConfig.nameservers"],
        ),
        (
            json!({"dnsConfig": {"searches": ["a_b.c.", ".", "_x.y", "A"], "options": [{"name": "ndots"}, {"value": "1"}]}}),
            &["dnsConfig.searches[3]", "dnsConfig.options[1]"],
        ),
        (
            json!({"dnsConfig": {"nameservers": ["x"]}}),
            &["dnsConfig.nameservers[0]"],
        ),
    ]);
}

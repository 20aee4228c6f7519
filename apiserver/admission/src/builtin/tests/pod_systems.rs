//! Tests of what a pod may have on its system, of its resources and of its annotations.

use serde_json::{Value, json};

use super::pods::{check_container, check_pod};
use super::{check, check_update};

#[test]
fn systems_have_their_fields() {
    let windows = |mut spec: Value| {
        spec["os"] = json!({"name": "windows"});
        spec
    };
    check_pod(&[
        (json!({"os": {"name": "linux"}}), &[]),
        (json!({"os": {}}), &["os.name"]),
        (json!({"os": {"name": "plan9"}}), &["os"]),
        (
            windows(
                json!({"securityContext": {"windowsOptions": {"runAsUserName": "DOMAIN\\user"}}, "hostPID": false}),
            ),
            &[],
        ),
        (
            windows(
                json!({"hostPID": true, "securityContext": {"fsGroup": 1, "seccompProfile": {"type": "Unconfined"}}}),
            ),
            &[
                "hostPID",
                "securityContext.seccompProfile",
                "securityContext.fsGroup",
            ],
        ),
        (
            windows(
                json!({"containers": [{"name": "c", "image": "i", "securityContext": {"privileged": false, "runAsUser": 1}}]}),
            ),
            &[
                "containers[0].securityContext.privileged",
                "containers[0].securityContext.runAsUser",
            ],
        ),
        (
            json!({"os": {"name": "linux"}, "securityContext": {"windowsOptions": {}}}),
            &["securityContext.windowsOptions"],
        ),
        (
            json!({"hostUsers": false, "hostNetwork": true, "hostPID": true}),
            &["hostNetwork", "HostPID"],
        ),
        (
            json!({"hostNetwork": true, "securityContext": {"windowsOptions": {"hostProcess": true}}}),
            &[],
        ),
        (
            json!({"securityContext": {"windowsOptions": {"hostProcess": true}},
                "containers": [{"name": "c", "image": "i", "securityContext": {"windowsOptions": {"hostProcess": false}}},
                    {"name": "d", "image": "i"}]}),
            &[
                "containers[0].securityContext.windowsOptions.hostProcess",
                "",
                "hostNetwork",
            ],
        ),
    ]);
    let user = |name: &str| json!({"securityContext": {"windowsOptions": {"runAsUserName": name}}});
    let path = "securityContext.windowsOptions.runAsUserName";
    check_container(&[
        (user("a.example\\user name"), &[]),
        (user(""), &[path]),
        (user("a\\b\\c"), &[path]),
        (user("a:b\\.. "), &[path, path]),
        (user("a\\us<er"), &[path]),
    ]);
}

#[test]
fn sysctls_are_those_of_the_pod() {
    let sysctls = |spec: Value, names: &[&str]| {
        let mut spec = spec;
        let names = names.iter().map(|name| json!({"name": name, "value": "1"}));
        spec["securityContext"] = json!({"sysctls": names.collect::<Vec<_>>()});
        spec
    };
    let path = |i: usize| format!("securityContext.sysctls[{i}].name");
    check_pod(&[
        (
            sysctls(
                json!({}),
                &[
                    "net.ipv4.ip_forward",
                    "kernel.shm_rmid_forced",
                    "net/ipv4/tcp.x",
                ],
            ),
            &[],
        ),
        (
            sysctls(json!({}), &["a.b", "a.b", "A", ""]),
            &[&path(1), &path(2), &path(3)],
        ),
        (
            sysctls(
                json!({"hostNetwork": true, "hostIPC": true}),
                &["net.core.somaxconn", "kernel.sem", "vm.x", "net/a.b"],
            ),
            &[&path(0), &path(1), &path(3)],
        ),
    ]);
    let choices = |c: Value| json!({"securityContext": c});
    check_pod(&[
        (
            choices(
                json!({"fsGroupChangePolicy": "Always", "supplementalGroupsPolicy": "Strict", "seLinuxChangePolicy": "Recursive"}),
            ),
            &[],
        ),
        (
            choices(json!({"fsGroupChangePolicy": "Never"})),
            &["securityContext.fsGroupChangePolicy"],
        ),
    ]);
}

#[test]
fn resource_claims_are_those_of_the_pod() {
    let pod = |claims: Value, used: Value| json!({"resourceClaims": claims, "containers": [{"name": "c", "image": "i", "resources": {"claims": used}}]});
    let gpu = json!({"name": "gpu", "resourceClaimTemplateName": "t"});
    let path = "containers[0].resources.claims";
    check_pod(&[
        (pod(json!([gpu]), json!([{"name": "gpu"}])), &[]),
        (
            pod(
                json!([gpu]),
                json!([{"name": "gpu", "request": "a"}, {"name": "gpu", "request": "b"}]),
            ),
            &[],
        ),
        (
            pod(
                json!([gpu]),
                json!([{"name": "gpu", "request": "a"}, {"name": "gpu"}]),
            ),
            &[&format!("{path}[1]")],
        ),
        (
            pod(json!([gpu]), json!([{"name": "tpu"}])),
            &[&format!("{path}[0]")],
        ),
        (
            pod(
                json!([gpu, gpu, {"name": "A", "resourceClaimName": "c", "resourceClaimTemplateName": "t"}, {"name": "b"}]),
                json!([]),
            ),
            &[
                "resourceClaims[1].name",
                "resourceClaims[2].name",
                "resourceClaims[2]",
                "resourceClaims[3]",
            ],
        ),
    ]);
    let shared = |resources: Value| {
        json!({"resources": resources, "containers": [{"name": "c", "image": "i",
            "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}}}]})
    };
    check_pod(&[
        (
            shared(json!({"requests": {"cpu": "1"}, "limits": {"cpu": "3"}})),
            &[],
        ),
        (
            shared(json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "2"}})),
            &[
                "resources.requests[cpu]",
                "resources.containers[0][cpu].limits",
            ],
        ),
        (
            shared(json!({"limits": {"ephemeral-storage": "1"}, "claims": [{"name": "gpu"}]})),
            &["resources.claims", "resources.limits[ephemeral-storage]"],
        ),
    ]);
}

#[test]
fn annotations_of_pods_act_as_fields() {
    let base = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
    let annotated = |key: &str, value: &str| json!({"metadata": {"annotations": {key: value}}});
    let seccomp = "seccomp.security.alpha.kubernetes.io/pod";
    let armor = "container.apparmor.security.beta.kubernetes.io/c";
    let cost = "controller.kubernetes.io/pod-deletion-cost";
    let mirror = "kubernetes.io/config.mirror";
    let path = |key: &str| format!("metadata.annotations[{key}]");
    let mut contradiction = annotated(seccomp, "runtime/default");
    contradiction["spec"] = json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}});
    check(
        "v1",
        "Pod",
        &base,
        &[
            (annotated(seccomp, "runtime/default"), &[]),
            (
                annotated(seccomp, "x"),
                &[&format!("metadata.annotations.{seccomp}")],
            ),
            (contradiction, &["spec.securityContext.seccompProfile.type"]),
            (annotated(armor, "localhost/p"), &[]),
            (annotated(armor, "p"), &[&path(armor)]),
            (
                annotated(&format!("{armor}x"), "unconfined"),
                &[&path(&format!("{armor}x"))],
            ),
            (annotated(cost, "-7"), &[]),
            (annotated(cost, "+7"), &[&path(cost)]),
            (annotated(mirror, "x"), &[&path(mirror)]),
        ],
    );
    let armored = super::with(&base, &annotated(armor, "unconfined"));
    check_update(
        "v1",
        "Pod",
        &armored,
        &[
            (annotated(armor, "runtime/default"), &[&path(armor)]),
            (annotated("other", "x"), &[]),
        ],
    );
    check(
        "v1",
        "PodTemplate",
        &json!({"template": base}),
        &[
            (
                json!({"template": annotated(cost, "x")}),
                &[&format!("template.annotations[{cost}]")],
            ),
            (
                json!({"template": {"spec": {"containers": [{"name": "c", "image": " i "}], "hostNetwork": true}}}),
                &[],
            ),
            (
                json!({"template": {"spec": {"ephemeralContainers": [{"name": "e", "image": "i"}]}}}),
                &["template.spec.ephemeralContainers"],
            ),
        ],
    );
}

//! Tests of what an update of a pod may change.

use serde_json::{Value, json};

use super::{check_update, with};

fn pod(spec: Value) -> Value {
    let base = json!({"containers": [{"name": "c", "image": "i"}], "tolerations": [{"key": "a"}]});
    json!({"spec": with(&base, &spec)})
}

#[test]
fn few_fields_of_a_pod_change() {
    check_update(
        "v1",
        "Pod",
        &pod(json!({})),
        &[
            (
                pod(json!({"containers": [{"name": "c", "image": "y"}]})),
                &[],
            ),
            (
                pod(
                    json!({"containers": [{"name": "c", "image": "y", "env": []}], "nodeSelector": {}}),
                ),
                &[],
            ),
            (
                pod(json!({"containers": [{"name": "c", "image": " y"}]})),
                &["spec.containers[0].image"],
            ),
            (
                pod(
                    json!({"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]}),
                ),
                &["spec.containers"],
            ),
            (pod(json!({"activeDeadlineSeconds": 5})), &[]),
            (
                pod(
                    json!({"tolerations": [{"key": "b"}, {"key": "a", "tolerationSeconds": 5, "effect": "NoExecute"}]}),
                ),
                &["spec.tolerations"],
            ),
            (
                pod(json!({"tolerations": [{"key": "b"}, {"key": "a"}]})),
                &[],
            ),
            (pod(json!({"tolerations": []})), &["spec.tolerations"]),
            (pod(json!({"hostname": "h"})), &["spec"]),
            (pod(json!({"nodeSelector": {"a": "b"}})), &["spec"]),
            (
                pod(json!({"schedulingGates": [{"name": "g"}]})),
                &["spec.schedulingGates[0].name"],
            ),
            (json!({"metadata": {"labels": {"a": "b"}}}), &[]),
        ],
    );
    let limited = pod(json!({"activeDeadlineSeconds": 5, "terminationGracePeriodSeconds": -1}));
    check_update(
        "v1",
        "Pod",
        &limited,
        &[
            (json!({"spec": {"activeDeadlineSeconds": 4}}), &[]),
            (
                json!({"spec": {"activeDeadlineSeconds": 6}}),
                &["spec.activeDeadlineSeconds"],
            ),
            (
                json!({"spec": {"activeDeadlineSeconds": null}}),
                &["spec.activeDeadlineSeconds"],
            ),
            (json!({"spec": {"terminationGracePeriodSeconds": 1}}), &[]),
            (
                json!({"spec": {"terminationGracePeriodSeconds": 2}}),
                &["spec"],
            ),
        ],
    );
}

#[test]
fn gated_pods_narrow_their_nodes() {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let terms = |terms: Value| json!({"affinity": {"nodeAffinity": {required: {"nodeSelectorTerms": terms}}}});
    let expression = |key: &str| json!({"key": key, "operator": "Exists"});
    let one_term = json!([{"matchExpressions": [expression("a")]}]);
    let gated = pod(with(
        &json!({"schedulingGates": [{"name": "g"}], "nodeSelector": {"a": "b"}}),
        &terms(one_term.clone()),
    ));
    let change = |spec: Value| json!({"spec": spec});
    let path = format!("spec.affinity.nodeAffinity.{required}.nodeSelectorTerms");
    check_update(
        "v1",
        "Pod",
        &gated,
        &[
            (change(json!({"schedulingGates": []})), &[]),
            (change(json!({"nodeSelector": {"c": "d"}})), &[]),
            (
                change(json!({"nodeSelector": {"a": "c"}})),
                &["spec.nodeSelector"],
            ),
            (
                change(terms(
                    json!([{"matchExpressions": [expression("a"), expression("b")]}]),
                )),
                &[],
            ),
            (
                change(terms(json!([{"matchExpressions": [expression("b")]}]))),
                &[&format!("{path}[0]")],
            ),
            (change(terms(json!([one_term[0], one_term[0]]))), &[&path]),
            (
                change(json!({"affinity": {"podAffinity": {required: [{"topologyKey": "zone"}]}}})),
                &["spec"],
            ),
        ],
    );
    let without_affinity = pod(json!({"schedulingGates": [{"name": "g"}]}));
    check_update(
        "v1",
        "Pod",
        &without_affinity,
        &[(change(terms(one_term)), &[])],
    );
}

#[test]
fn an_unchanged_spec_stays_valid() {
    let stored = pod(json!({"dnsPolicy": "None", "os": {"name": "plan9"}}));
    check_update(
        "v1",
        "Pod",
        &stored,
        &[
            (json!({"metadata": {"finalizers": null}}), &[]),
            (
                json!({"spec": {"containers": [{"name": "c", "image": "j"}]}}),
                &["spec.dnsConfig", "spec.os"],
            ),
        ],
    );
}

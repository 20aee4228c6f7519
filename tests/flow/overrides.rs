//! Override policies: every overrider, cluster selection, failures and validation.

use serde_json::{Value, json};

use crate::flow::cache_waits::{wait_until_overrides_are_seen, wait_until_scheduler_sees};
use crate::flow::fleet::{ApiServerClient, FleetFixture, find_condition};
use crate::flow::objects::{
    BINDINGS, CLUSTER_OVERRIDES, CONFIG_MAPS, DEPLOYMENTS, EVENTS, OVERRIDES, WORKS,
    cluster_scoped, config_map, deployment, execution_space, override_policy, policy,
};

const APPLIED_OVERRIDES: &str = "policy.karmada.io/applied-overrides";
const APPLIED_CLUSTER_OVERRIDES: &str = "policy.karmada.io/applied-cluster-overrides";

/// The messages of events about an object with this reason.
async fn event_messages(
    control: &ApiServerClient,
    ns: &str,
    about: &str,
    reason: &str,
) -> Vec<String> {
    let events = control.list(&EVENTS, ns).await;
    let fits = |e: &&Value| e["involvedObject"]["name"] == about && e["reason"] == reason;
    let message = |e: &Value| e["message"].as_str().unwrap_or_default().to_owned();
    events.iter().filter(fits).map(message).collect()
}

async fn wait_for_work(
    control: &ApiServerClient,
    cluster: &str,
    kind: &str,
    name: &str,
    ns: &str,
) -> Value {
    let name = karmada_api::names::work_name(kind, name, ns);
    control
        .wait_until_exists(&WORKS, &execution_space(cluster), &name)
        .await
}

// proves: OVR-cluster-first, OVR-recorded, WRK-record-goes, BND-override-events
#[tokio::test]
async fn every_overrider_of_namespaced_and_cluster_policies() {
    let ns = "overriders";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let mut template = deployment(ns, "web", 1);
    let container =
        json!({"name": "c", "image": "nginx:1.27", "command": ["run"], "args": ["-a", "-b"]});
    template["spec"]["template"]["spec"]["containers"] = json!([container]);
    template["metadata"]["labels"] = json!({"app": "web", "tier": "front"});
    let everything = json!({
        "imageOverrider": [{"component": "Registry", "operator": "add", "value": "reg.example.org"}],
        "commandOverrider": [{"containerName": "c", "operator": "add", "value": ["fast"]}],
        "argsOverrider": [{"containerName": "c", "operator": "remove", "value": ["-a"]}],
        "labelsOverrider": [{"operator": "replace", "value": {"tier": "edge"}}],
        "annotationsOverrider": [{"operator": "add", "value": {"example.org/a": "b"}}],
        "plaintext": [{"path": "/spec/minReadySeconds", "operator": "add", "value": 3}],
    });
    let only = |cluster: &str, overriders: &Value| json!([{"targetCluster": {"clusterNames": [cluster]}, "overriders": overriders}]);
    control
        .create(override_policy(
            ns,
            "web",
            &template,
            &only("member1", &everything),
        ))
        .await;
    // The cluster-scoped policy is applied first, so the namespaced one wins.
    let tag = json!({
        "imageOverrider": [{"component": "Tag", "operator": "replace", "value": "1.28"}],
        "labelsOverrider": [{"operator": "add", "value": {"tier": "wide", "from": "cluster"}}],
    });
    let wide = override_policy(
        "",
        "overriders-web",
        &template,
        &json!([{"overriders": tag}]),
    );
    control.create(cluster_scoped(wide)).await;
    control
        .create(policy(ns, "web", &template, &["member1", "member2"]))
        .await;
    control.create(template).await;

    let changed = fleet
        .member("member1")
        .wait_until(&DEPLOYMENTS, ns, "web", "overridden", |d| {
            d["spec"]["minReadySeconds"] == 3
        })
        .await;
    let pod = &changed["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(pod["image"], "reg.example.org/nginx:1.28");
    assert_eq!(
        (&pod["command"], &pod["args"]),
        (&json!(["run", "fast"]), &json!(["-b"]))
    );
    let label = |d: &Value, key: &str| d["metadata"]["labels"][key].clone();
    assert_eq!(
        (label(&changed, "tier"), label(&changed, "from")),
        (json!("edge"), json!("cluster"))
    );
    assert_eq!(changed["metadata"]["annotations"]["example.org/a"], "b");
    let other = fleet
        .member("member2")
        .wait_until(&DEPLOYMENTS, ns, "web", "overridden", |d| {
            d["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:1.28"
        })
        .await;
    assert_eq!(label(&other, "tier"), "wide");
    assert_eq!(
        other["spec"]["template"]["spec"]["containers"][0]["args"],
        json!(["-a", "-b"])
    );

    let recorded = |work: &Value, key: &str| {
        let text = work["metadata"]["annotations"][key].as_str();
        text.map(|t| machinery::json::from_str::<Value>(t).unwrap())
    };
    let first = wait_for_work(control, "member1", "Deployment", "web", ns).await;
    assert_eq!(
        recorded(&first, APPLIED_OVERRIDES),
        Some(json!([{"policyName": "web", "overriders": everything}]))
    );
    let of_cluster = Some(json!([{"policyName": "overriders-web", "overriders": tag}]));
    assert_eq!(recorded(&first, APPLIED_CLUSTER_OVERRIDES), of_cluster);
    let second = wait_for_work(control, "member2", "Deployment", "web", ns).await;
    assert_eq!(
        (
            recorded(&second, APPLIED_OVERRIDES),
            recorded(&second, APPLIED_CLUSTER_OVERRIDES)
        ),
        (None, of_cluster)
    );

    // Deleting the policies removes their changes.
    control
        .delete(&CLUSTER_OVERRIDES, "", "overriders-web")
        .await;
    control.delete(&OVERRIDES, ns, "web").await;
    fleet
        .member("member1")
        .wait_until(&DEPLOYMENTS, ns, "web", "as the template", |d| {
            let pod = &d["spec"]["template"]["spec"]["containers"][0];
            pod["image"] == "nginx:1.27"
                && pod["command"] == json!(["run"])
                && label(d, "tier") == "front"
                && label(d, "from").is_null()
                && d["metadata"]["annotations"]["example.org/a"].is_null()
                && d["spec"]["minReadySeconds"].as_i64().unwrap_or(0) == 0
        })
        .await;
    let first = wait_for_work(control, "member1", "Deployment", "web", ns).await;
    assert_eq!(
        (
            recorded(&first, APPLIED_OVERRIDES),
            recorded(&first, APPLIED_CLUSTER_OVERRIDES)
        ),
        (None, None)
    );
}

// proves: OVR-field-json, OVR-field-yaml
#[tokio::test]
async fn field_overriders_edit_documents_in_a_config_map() {
    let ns = "override-text";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let mut map = config_map(ns, "c", "v");
    map["data"] = json!({
        "app.yaml": "server:\n  port: 80\n  hosts:\n    - a\nname: x\n",
        "app.json": "{ \"z\": 1, \"list\": [ 1 ] }",
    });
    let rules = json!([{"overriders": {"fieldOverrider": [
        {"fieldPath": "/data/app.yaml", "yaml": [
            {"subPath": "/server/port", "operator": "replace", "value": 8080},
            {"subPath": "/server/hosts/-", "operator": "add", "value": "yes"},
            {"subPath": "/name", "operator": "remove"}]},
        {"fieldPath": "/data/app.json", "json": [
            {"subPath": "/list/0", "operator": "replace", "value": "<2>"}]},
    ]}}]);
    control.create(override_policy(ns, "c", &map, &rules)).await;
    control.create(policy(ns, "c", &map, &["member1"])).await;
    control.create(map).await;
    let edited = json!({
        "app.yaml": "server:\n  hosts:\n  - a\n  - \"yes\"\n  port: 8080\n",
        "app.json": "{\"z\":1,\"list\":[\"\\u003c2\\u003e\"]}",
    });
    fleet
        .member("member1")
        .wait_until(&CONFIG_MAPS, ns, "c", "edited", |c| c["data"] == edited)
        .await;
}

// proves: OVR-cluster-selector
#[tokio::test]
async fn clusters_are_chosen_by_labels_and_by_exclusion() {
    let ns = "override-clusters";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let label = json!({"metadata": {"labels": {"flow-override": "yes"}}});
    control
        .merge_patch(&crate::flow::objects::CLUSTERS, "", "member2", label)
        .await;
    // The scheduler and the overrides have one cache of clusters.
    wait_until_scheduler_sees(control, ns, &["member2"]).await;
    let map = config_map(ns, "c", "v");
    let with = |target: Value, key: &str| json!({"targetCluster": target, "overriders": {"plaintext": [{"path": format!("/data/{key}"), "operator": "add", "value": "1"}]}});
    let rules = json!([
        with(
            json!({"labelSelector": {"matchLabels": {"flow-override": "yes"}}}),
            "labelled"
        ),
        with(json!({"exclude": ["member1"]}), "others"),
        with(Value::Null, "all"),
    ]);
    control.create(override_policy(ns, "c", &map, &rules)).await;
    control
        .create(policy(ns, "c", &map, &["member1", "member2", "member3"]))
        .await;
    control.create(map).await;
    for (cluster, expected) in [
        ("member1", json!({"k": "v", "all": "1"})),
        (
            "member2",
            json!({"k": "v", "labelled": "1", "others": "1", "all": "1"}),
        ),
        ("member3", json!({"k": "v", "others": "1", "all": "1"})),
    ] {
        let description = format!("overridden with {expected}");
        let is_overridden = |c: &Value| c["data"] == expected;
        fleet
            .member(cluster)
            .wait_until(&CONFIG_MAPS, ns, "c", &description, is_overridden)
            .await;
    }
}

// proves: OVR-failure, OVR-failure-event, BND-failure-event
#[tokio::test]
async fn failing_override_names_its_path_and_affects_no_other_cluster() {
    let ns = "override-refused";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let map = config_map(ns, "c", "v");
    let rule = |path: &str| {
        json!([
            {"overriders": {}},
            {"targetCluster": {"clusterNames": ["member1"]}, "overriders": {"plaintext": [
                {"path": "/data/k", "operator": "replace", "value": "w"},
                {"path": path, "operator": "replace", "value": "1"}]}},
        ])
    };
    control
        .create(override_policy(ns, "o", &map, &rule("/data/none")))
        .await;
    // A copy from before the policy is seen would stay in member1.
    wait_until_overrides_are_seen(control, fleet.member("member2"), ns).await;
    control
        .create(policy(ns, "p", &map, &["member1", "member2"]))
        .await;
    control.create(map).await;
    fleet
        .member("member2")
        .wait_until_exists(&CONFIG_MAPS, ns, "c")
        .await;
    let what = "spec.overrideRules[1].overriders.plaintext[1]: \"/data/none\": there is nothing at this path";
    let full = format!(
        "override policy(override-refused/o) cannot be applied for cluster(member1): {what}"
    );
    harness::api_server_client::wait_until("the events about the failure", async || {
        event_messages(control, ns, "c-configmap", "SyncWorkFailed")
            .await
            .contains(&full)
            && event_messages(control, ns, "c", "SyncWorkFailed")
                .await
                .contains(&full)
            && event_messages(control, ns, "c", "ApplyOverridePolicyFailed")
                .await
                .contains(&format!(
                    "Apply override policy(override-refused/o) for cluster(member1) failed. {what}"
                ))
    })
    .await;
    let binding = control
        .wait_until(
            &BINDINGS,
            ns,
            "c-configmap",
            "not applied everywhere",
            |b| {
                find_condition(b, "FullyApplied")["status"] == "False"
                    && b["status"]["aggregatedStatus"]
                        .as_array()
                        .is_some_and(|a| a.len() == 1)
            },
        )
        .await;
    assert_eq!(
        binding["status"]["aggregatedStatus"][0]["clusterName"],
        "member2"
    );
    assert_eq!(
        fleet.member("member1").get(&CONFIG_MAPS, ns, "c").await,
        None
    );

    // The corrected policy is applied.
    let mended = json!({"spec": {"overrideRules": rule("/data/k")}});
    control.merge_patch(&OVERRIDES, ns, "o", mended).await;
    fleet
        .member("member1")
        .wait_until(&CONFIG_MAPS, ns, "c", "overridden", |c| {
            c["data"]["k"] == "1"
        })
        .await;
    control
        .wait_until(&BINDINGS, ns, "c-configmap", "applied", |b| {
            find_condition(b, "FullyApplied")["status"] == "True"
        })
        .await;
}

#[tokio::test]
async fn invalid_override_policies_are_denied_with_their_field() {
    let ns = "override-admission";
    let fleet = FleetFixture::shared(ns).await;
    let map = config_map(ns, "c", "v");
    let base = "spec.overrideRules[0].overriders";
    let table = [
        (
            json!({"labelsOverrider": [{"operator": "add", "value": {"a": "b c"}}]}),
            format!("{base}.labelsOverrider[0].value"),
        ),
        (
            json!({"annotationsOverrider": [{"operator": "add", "value": {"a b": "c"}}]}),
            format!("{base}.annotationsOverrider[0].value"),
        ),
        (
            json!({"imageOverrider": [{"predicate": {"path": "spec"}, "component": "Tag", "operator": "remove"}]}),
            format!("{base}.imageOverrider[0].predicate.path"),
        ),
        (
            json!({"imageOverrider": [{"component": "Size", "operator": "remove"}]}),
            format!("{base}.imageOverrider[0].component"),
        ),
        (
            json!({"plaintext": [{"path": "/a", "operator": "move"}]}),
            format!("{base}.plaintext[0].operator"),
        ),
        (
            json!({"fieldOverrider": [{"fieldPath": "/data/k"}]}),
            format!("{base}.fieldOverrider[0]"),
        ),
        (
            json!({"fieldOverrider": [{"fieldPath": "/data/k", "yaml": [{"subPath": "/a", "operator": "add"}]}]}),
            format!("{base}.fieldOverrider[0].yaml[0].value"),
        ),
    ];
    for (overriders, field) in table {
        let invalid_policy = override_policy(ns, "o", &map, &json!([{"overriders": overriders}]));
        let message = fleet
            .control
            .try_create(invalid_policy)
            .await
            .unwrap_err()
            .to_string();
        assert!(message.contains(&field), "{overriders}: {message}");
    }
}

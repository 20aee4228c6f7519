//! The commands `flotilla why` and `flotilla plan` against a running control plane.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::flow::fleet::{FleetFixture, find_condition, run_with_kubeconfig};
use crate::flow::objects::{
    BINDINGS, CLUSTERS, CONFIG_MAPS, DEPLOYMENTS, POLICIES, config_map, deployment, divided_policy,
    override_policy, policy,
};

/// Waits until all replicas are ready in the status of the template, and the binding is
/// healthy.
async fn wait_until_healthy(fleet: &FleetFixture, ns: &str, name: &str, replicas: i64) {
    fleet
        .control
        .wait_until(&DEPLOYMENTS, ns, name, "ready", |d| {
            d["status"]["readyReplicas"] == replicas
        })
        .await;
    let healthy = |b: &Value| {
        let items = b["status"]["aggregatedStatus"].as_array();
        items.is_some_and(|all| all.iter().all(|item| item["health"] == "Healthy"))
    };
    let binding = format!("{name}-deployment");
    fleet
        .control
        .wait_until(&BINDINGS, ns, &binding, "healthy", healthy)
        .await;
}

fn assert_has(output: &str, parts: &[&str]) {
    // The width of the columns depends on their content.
    let output = output.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in parts {
        assert!(output.contains(part), "no {part:?} in: {output}");
    }
}

#[tokio::test]
async fn why_explains_the_placement_of_a_template() {
    let ns = "why";
    let fleet = FleetFixture::shared(ns).await;
    let (control, config) = (&fleet.control, fleet.kubeconfig());
    let web = deployment(ns, "web", 3);
    control.create(web.clone()).await;
    let (code, output) = run_with_kubeconfig(&config, &["why", "deploy/web", "-n", ns]).await;
    assert_eq!(code, Some(0), "{output}");
    assert_has(
        &output,
        &[
            "Deployment why/web",
            "Policy: none: no policy selects it",
            "Pending: no policy selects it",
        ],
    );

    let weights = [("member1", 2), ("member2", 1)];
    control
        .create(divided_policy(ns, "web", &web, &weights))
        .await;
    wait_until_healthy(&fleet, ns, "web", 3).await;
    let (code, output) = run_with_kubeconfig(&config, &["why", "deploy/web", "-n", ns]).await;
    assert_eq!(code, Some(0), "{output}");
    assert_has(
        &output,
        &[
            "Policy: PropagationPolicy why/web: it alone selects the template (by its name)",
            "Binding: web-deployment, generation",
            "strategy StaticWeight, rule StaticWeight (by the weights of the policy); of",
            "CLUSTER MEMBER FITS SCORE AVAILABLE REPLICAS WORK HEALTH WHY",
            "2 Applied Healthy chosen, weight 2",
            "1 Applied Healthy chosen, weight 1",
            "member3 Ready no - - - - - ClusterAffinity: cluster(s) did not match the placement cluster affinity constraint",
            "Nothing is pending.",
        ],
    );
    let (_, output) = run_with_kubeconfig(
        &config,
        &["why", "rb", "web-deployment", "-n", ns, "-o", "json"],
    )
    .await;
    let report: Value = machinery::json::from_str(&output).unwrap();
    assert_eq!(report["template"]["kind"], "Deployment");
    assert_eq!(
        report["claim"]["policy"],
        json!({"kind": "PropagationPolicy", "namespace": ns, "name": "web"})
    );
    assert_eq!(report["decision"]["rule"], "StaticWeight");
    let rows = report["clusters"].as_array().unwrap();
    let first = rows.iter().find(|row| row["name"] == "member1").unwrap();
    assert_eq!(
        (&first["replicas"], &first["work"]["applied"]),
        (&json!(2), &json!("True")),
        "{first:#}"
    );
    assert_eq!(report["pending"], json!([]));
    for (arguments, code, message) in [
        (
            &["why", "deploy/nothing", "-n", ns][..],
            1,
            "deployments.apps \"nothing\" not found",
        ),
        (
            &["why", "dragons/web", "-n", ns],
            1,
            "the server has no resource type \"dragons\"",
        ),
        (&["why", "web", "-n", ns], 1, "TYPE/NAME"),
    ] {
        let (ended, output) = run_with_kubeconfig(&config, arguments).await;
        assert_eq!(ended, Some(code), "{output}");
        assert_has(&output, &[message]);
    }
}

#[tokio::test]
async fn why_explains_why_a_template_is_pending() {
    let ns = "why-not";
    let fleet = FleetFixture::shared(ns).await;
    let (control, config) = (&fleet.control, fleet.kubeconfig());
    let object = config_map(ns, "c", "v");
    // The member has an unmanaged object of this name.
    let member = fleet.member("member1");
    member
        .wait_until_exists(&crate::flow::objects::NAMESPACES, "", ns)
        .await;
    member.create(config_map(ns, "c", "mine")).await;
    control.create(policy(ns, "c", &object, &["member1"])).await;
    control.create(object).await;
    let is_refused = |b: &Value| {
        let items = b["status"]["aggregatedStatus"].as_array();
        items.is_some_and(|all| all.iter().any(|i| !i["appliedMessage"].is_null()))
            && b["status"]["schedulerObservedGeneration"] == 1
    };
    control
        .wait_until(&BINDINGS, ns, "c-configmap", "not applied", is_refused)
        .await;
    let (code, output) = run_with_kubeconfig(&config, &["why", "cm/c", "-n", ns]).await;
    assert_eq!(code, Some(0), "{output}");
    assert_has(&output, &["NotApplied", "Pending: member1: not applied: "]);

    // No cluster fits.
    let nowhere = config_map(ns, "d", "v");
    control
        .create(policy(ns, "d", &nowhere, &["atlantis"]))
        .await;
    control.create(nowhere).await;
    let unfit = |b: &Value| find_condition(b, "Scheduled")["status"] == "False";
    control
        .wait_until(&BINDINGS, ns, "d-configmap", "unscheduled", unfit)
        .await;
    let (code, output) = run_with_kubeconfig(&config, &["why", "cm", "d", "-n", ns]).await;
    assert_eq!(code, Some(0), "{output}");
    assert_has(
        &output,
        &[
            "scheduled: no: NoClusterFit: 0/",
            "failed: 0/",
            "Pending: not scheduled: NoClusterFit",
        ],
    );
}

fn write_policies(fleet: &FleetFixture, name: &str, policies: &[&Value]) -> PathBuf {
    let path = fleet.up.dir().join(name);
    let documents: Vec<String> = policies.iter().map(|p| p.to_string()).collect();
    std::fs::write(&path, documents.join("\n---\n")).unwrap();
    path
}

#[tokio::test]
async fn plan_reports_moves_and_changes_nothing() {
    let ns = "plan";
    let fleet = FleetFixture::shared(ns).await;
    let (control, config) = (&fleet.control, fleet.kubeconfig());
    let web = deployment(ns, "web", 4);
    control.create(web.clone()).await;
    let before = divided_policy(ns, "web", &web, &[("member1", 1), ("member2", 1)]);
    let planned = async |policies: &[&Value], more: &[&str]| {
        let path = write_policies(&fleet, "plan.yaml", policies)
            .display()
            .to_string();
        run_with_kubeconfig(&config, &[&["plan", "-n", ns, "-f", &path], more].concat()).await
    };
    // The template is in no cluster yet.
    let (code, output) = planned(&[&before], &[]).await;
    assert_eq!(code, Some(1), "{output}");
    assert_has(
        &output,
        &[
            "Deployment plan/web PropagationPolicy plan/web nowhere member1:2, member2:2",
            "1 of 1 templates would move.",
        ],
    );
    assert_eq!(control.get(&POLICIES, ns, "web").await, None);

    control.create(before.clone()).await;
    wait_until_healthy(&fleet, ns, "web", 4).await;
    let (code, output) = planned(&[&before], &[]).await;
    assert_eq!(code, Some(0), "{output}");
    assert_has(
        &output,
        &["member1:2, member2:2 stays", "0 of 1 templates would move."],
    );

    let after = divided_policy(ns, "web", &web, &[("member1", 3), ("member3", 1)]);
    let (code, output) = planned(&[&after], &["-o", "json"]).await;
    assert_eq!(code, Some(1), "{output}");
    let plan: Value = machinery::json::from_str(&output).unwrap();
    let then = &plan["templates"][0]["then"];
    assert_eq!(
        (&plan["moving"], then),
        (
            &json!(1),
            &json!([{"name": "member1", "replicas": 3}, {"name": "member3", "replicas": 1}])
        ),
        "{plan:#}"
    );

    // The policy, once applied, has the planned result.
    let there = control.get(&BINDINGS, ns, "web-deployment").await.unwrap();
    assert_eq!(there["spec"]["clusters"].as_array().unwrap().len(), 2);
    let spec = json!({"spec": after["spec"]});
    control.merge_patch(&POLICIES, ns, "web", spec).await;
    let moved = |b: &Value| &b["spec"]["clusters"] == then;
    control
        .wait_until(&BINDINGS, ns, "web-deployment", "moved", moved)
        .await;
    control.wait_until_exists(&CLUSTERS, "", "member3").await;
}

// proves: CLI-plan-template, CLI-plan-unknown-field
#[tokio::test]
async fn plan_reports_releasing_competing_and_invalid_policies() {
    let ns = "plan-more";
    let fleet = FleetFixture::shared(ns).await;
    let (control, config) = (&fleet.control, fleet.kubeconfig());
    let object = config_map(ns, "c", "v");
    let first = policy(ns, "first", &object, &["member1"]);
    control.create(first.clone()).await;
    control.create(object.clone()).await;
    fleet
        .member("member1")
        .wait_until_exists(&CONFIG_MAPS, ns, "c")
        .await;
    let planned = async |policies: &[&Value]| {
        let path = write_policies(&fleet, "plan-more.yaml", policies)
            .display()
            .to_string();
        run_with_kubeconfig(&config, &["plan", "-f", &path]).await
    };
    // A second policy does not preempt the first one; when the first one no longer selects the
    // template, the second one claims it.
    let second = policy(ns, "second", &object, &["member2"]);
    let (code, output) = planned(&[&second]).await;
    assert_eq!(code, Some(0), "{output}");
    assert_has(
        &output,
        &["ConfigMap plan-more/c PropagationPolicy plan-more/first member1 stays"],
    );
    let mut other = first.clone();
    other["spec"]["resourceSelectors"][0]["name"] = "other".into();
    let (code, output) = planned(&[&second, &other]).await;
    assert_eq!(code, Some(1), "{output}");
    assert_has(
        &output,
        &["PropagationPolicy plan-more/second member1 member2"],
    );
    let (code, output) = planned(&[&other]).await;
    assert_eq!(code, Some(0), "{output}");
    assert_has(&output, &["it stays where it is, without a policy"]);

    let mut wrong = first;
    wrong["spec"]["placement"]["clusterTolerations"] = json!([{"operator": "Perhaps"}]);
    let (code, output) = planned(&[&wrong]).await;
    assert_eq!(code, Some(2), "{output}");
    assert_has(&output, &["the policy \"first\" would be refused"]);
    wrong["spec"]["placement"] = json!({"clusterAffinityy": {"clusterNames": ["member1"]}});
    let (code, output) = planned(&[&wrong]).await;
    assert_eq!(code, Some(2), "{output}");
    assert_has(
        &output,
        &["unknown field \"spec.placement.clusterAffinityy\""],
    );
    let overriding = override_policy(ns, "o", &object, &json!([]));
    let (code, output) = planned(&[&overriding]).await;
    assert_eq!(code, Some(2), "{output}");
    assert_has(
        &output,
        &["\"OverridePolicy\" of \"policy.karmada.io/v1alpha1\" is no policy that moves templates"],
    );
    let nowhere = policy(ns, "third", &object, &["member1", "mars"]);
    let (_, output) = planned(&[&nowhere]).await;
    assert_has(
        &output,
        &["NOTE: policies name clusters that do not exist: mars"],
    );
    // A template whose changes are not staged.
    let (code, output) = planned(&[&object]).await;
    assert_eq!(code, Some(0), "{output}");
    assert_has(
        &output,
        &["ConfigMap plan-more/c: nothing of a revision changes"],
    );
    let (code, output) = planned(&[&config_map(ns, "c", "w")]).await;
    assert_eq!(code, Some(1), "{output}");
    assert_has(
        &output,
        &[
            "no RolloutPolicy selects it, all clusters get the change at once",
            "member1 - - the change -",
            "data.k: \"v\" -> \"w\"",
        ],
    );
    let (code, output) = run_with_kubeconfig(&config, &["plan"]).await;
    assert_eq!(code, Some(2), "{output}");
}

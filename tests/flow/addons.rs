//! Addons are switched off and on again while the control plane runs.

use std::cell::Cell;

use harness::http_client::HttpTestClient;
use harness::shared_services::{share_service, wait_for_service_endpoints};
use serde_json::{Value, json};

use crate::flow::fleet::{
    ApiServerClient, FleetFixture, find_condition, run_with_kubeconfig, wait_for_namespace,
    wait_until,
};
use crate::flow::node_estimates::{
    cordon_nodes, decide_for_fast_nodes, oversized_pods_in_member1, policy_by_available_replicas,
    replicas_in,
};
use crate::flow::objects::{
    BINDINGS, CONFIG_MAPS, FEDERATED_HPAS, NODES, RESOURCE_REGISTRIES, SERVICES, config_map,
    cpu_utilization, deployment, divided_policy, federated_hpa, policy,
};

const CONFIG_MAP: &str = "flotilla-addons";
const NAMESPACE: &str = "karmada-system";

/// Runs `flotilla addons ARGUMENTS`, which must succeed.
async fn addons(fleet: &FleetFixture, arguments: &str) -> String {
    let words = ["addons"].into_iter().chain(arguments.split(' '));
    let words: Vec<&str> = words.collect();
    let (code, output) = run_with_kubeconfig(&fleet.kubeconfig(), &words).await;
    assert_eq!(code, Some(0), "{arguments}: {output}");
    output
}

/// The administrator over HTTP.
fn administrator(fleet: &FleetFixture) -> HttpTestClient {
    let read = |name: &str| std::fs::read(fleet.up.dir().join("pki").join(name)).unwrap();
    let (certificate, key) = (read("admin.crt"), read("admin.key"));
    let identity = Some((&*certificate, &*key));
    HttpTestClient::new(fleet.up.address(), "127.0.0.1", &read("ca.crt"), identity)
}

/// Waits until an object that is created now has reached a member: what the controllers do about
/// older objects they have done, or never do.
async fn wait_for_propagation(fleet: &FleetFixture, ns: &str, name: &str) {
    let object = config_map(ns, name, "1");
    let control = &fleet.control;
    control
        .create(policy(ns, name, &object, &["member1", "member2"]))
        .await;
    control.create(object).await;
    for member in ["member1", "member2"] {
        let member = fleet.member(member);
        member.wait_until_exists(&CONFIG_MAPS, ns, name).await;
    }
}

// proves: ADD-search, ADD-metrics-adapter, ADD-invalid, ADD-report, ADD-cli
#[tokio::test]
async fn endpoints_of_addons_are_refused_while_they_are_disabled() {
    let ns = "addon-endpoints";
    let fleet = FleetFixture::with_flags(&[], ns).await;
    let (control, client) = (&fleet.control, administrator(&fleet));
    wait_for_namespace(&fleet, ns).await;
    let registry = json!({"apiVersion": "search.karmada.io/v1alpha1", "kind": "ResourceRegistry",
        "metadata": {"name": ns}, "spec": {"targetCluster": {"clusterNames": ["member1"]},
            "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap", "namespace": ns}]}});
    control.create(registry).await;
    let search = "/apis/search.karmada.io/v1alpha1";
    let maps = format!("api/v1/namespaces/{ns}/configmaps");
    let proxied = format!("{search}/proxying/karmada/proxy/{maps}");
    let paths = [
        format!("{search}/search/cache/{maps}"),
        proxied.clone(),
        "/apis/metrics.k8s.io/v1beta1/nodes".to_owned(),
        format!("/apis/metrics.k8s.io/v1beta1/namespaces/{ns}/pods"),
    ];
    let all_answer = async || {
        for path in &paths {
            if client.get(path).await.code != 200 {
                return false;
            }
        }
        true
    };
    wait_until("answers of all", &all_answer).await;

    // An operator applies the ConfigMap, with errors.
    let data = json!({"karmada-search": "disabled", "karmada-metrics-adapter": "disabled",
        "karmada-descheduler": "off", "karmada-serch": "enabled"});
    let map = json!({"data": data});
    control
        .wait_until_exists(&CONFIG_MAPS, NAMESPACE, CONFIG_MAP)
        .await;
    control
        .merge_patch(&CONFIG_MAPS, NAMESPACE, CONFIG_MAP, map)
        .await;
    let reported = |name: &str, words: [&str; 2]| {
        let words = words.map(str::to_owned);
        let name = name.to_owned();
        move |list: &Value| {
            let rows = list.as_array().into_iter().flatten();
            let mut rows = rows.filter(|row| row["name"] == name.as_str());
            rows.any(|row| [&row["status"], &row["reason"]] == [&json!(words[0]), &json!(words[1])])
        }
    };
    for (name, words) in [
        ("karmada-search", ["disabled", "Configured"]),
        ("karmada-metrics-adapter", ["disabled", "Configured"]),
        ("karmada-descheduler", ["disabled", "InvalidValue"]),
        ("karmada-serch", ["unknown", "UnknownAddon"]),
        ("flotilla-autoscalers", ["enabled", "Default"]),
    ] {
        let is_reported = reported(name, words);
        wait_until(name, async || {
            let output = addons(&fleet, "list -o json").await;
            is_reported(&machinery::json::from_str(&output).unwrap())
        })
        .await;
    }
    for path in &paths {
        let rejection = client.get(path).await;
        assert_eq!(rejection.code, 503, "{path}");
        let status = rejection.json();
        assert_eq!(status["reason"], "ServiceUnavailable");
        let addon = match path.contains("metrics") {
            true => "karmada-metrics-adapter",
            false => "karmada-search",
        };
        let text =
            format!("the addon {addon} is disabled; \"flotilla addons enable {addon}\" enables it");
        assert_eq!(status["message"], text.as_str(), "{path}");
    }
    let discovery = client.get("/apis/custom.metrics.k8s.io/v1beta2").await;
    assert_eq!(
        (discovery.code, &discovery.json()["resources"]),
        (200, &json!([]))
    );

    let output = addons(&fleet, "enable karmada-search karmada-metrics-adapter").await;
    assert!(
        output.contains("Successfully enable addon karmada-metrics-adapter"),
        "{output}"
    );
    wait_until("answers of all", &all_answer).await;
    assert_eq!(client.get(&proxied).await.json()["kind"], "ConfigMapList");
    control.delete(&RESOURCE_REGISTRIES, "", ns).await;
}

async fn create_hpa(control: &ApiServerClient, ns: &str, name: &str) {
    let metrics = json!([cpu_utilization(25)]);
    control
        .create(federated_hpa(ns, name, "scaled", 4, &metrics))
        .await;
}

// proves: ADD-autoscalers, ADD-services, ADD-kept, ADD-report
#[tokio::test]
async fn controllers_of_addons_stop_and_start_again() {
    let ns = "addon-controllers";
    let mut fleet = FleetFixture::with_flags(&[], ns).await;
    wait_for_namespace(&fleet, ns).await;
    addons(
        &fleet,
        "disable flotilla-autoscalers flotilla-multicluster-services --force",
    )
    .await;
    let control = &fleet.control;
    let scaled = deployment(ns, "scaled", 1);
    let weights = [("member1", 1)];
    control
        .create(divided_policy(ns, "scaled", &scaled, &weights))
        .await;
    control.create(scaled).await;
    create_hpa(control, ns, "first").await;
    share_service(control, ns, "member1", "member2").await;
    wait_for_propagation(&fleet, ns, "fence").await;
    let is_active = |hpa: &Value| find_condition(hpa, "AbleToScale")["status"] == "True";
    let idle = control.get(&FEDERATED_HPAS, ns, "first").await.unwrap();
    assert!(!is_active(&idle), "{idle}");
    assert!(control.get(&SERVICES, ns, "derived-web").await.is_none());

    addons(&fleet, "enable all").await;
    control
        .wait_until(&FEDERATED_HPAS, ns, "first", "conditions", is_active)
        .await;
    let importer = fleet.member("member2");
    wait_for_service_endpoints(importer, ns, "derived-web", 2).await;

    // Their objects stay, and a restart keeps the configuration and writes nothing.
    addons(
        &fleet,
        "disable flotilla-autoscalers flotilla-multicluster-services -f",
    )
    .await;
    let map = control.get(&CONFIG_MAPS, NAMESPACE, CONFIG_MAP).await;
    std::sync::Arc::get_mut(&mut fleet.up).unwrap().restart();
    let fleet = FleetFixture {
        control: fleet.up.control_plane(),
        members: fleet.up.members(),
        up: fleet.up,
    };
    let control = &fleet.control;
    create_hpa(control, ns, "second").await;
    wait_for_propagation(&fleet, ns, "second-fence").await;
    let idle = control.get(&FEDERATED_HPAS, ns, "second").await.unwrap();
    assert!(!is_active(&idle), "{idle}");
    assert!(control.get(&SERVICES, ns, "derived-web").await.is_some());
    wait_for_service_endpoints(fleet.member("member2"), ns, "derived-web", 2).await;
    assert_eq!(control.get(&CONFIG_MAPS, NAMESPACE, CONFIG_MAP).await, map);
}

// Slow: each attempt to see an estimate places another Deployment. On a busy machine none had one
// within the limit once.
// proves: ADD-scheduler-estimator, ADD-descheduler
#[harness::slow]
#[tokio::test]
async fn estimates_by_nodes_and_the_descheduler_are_switched() {
    let ns = "addon-estimators";
    let flags = [
        "--descheduling-interval=200ms",
        "--unschedulable-threshold=1s",
    ];
    let fleet = FleetFixture::with_flags(&flags, ns).await;
    let control = &fleet.control;
    control.create(policy_by_available_replicas(ns)).await;
    // The sums of member1 do not know that its workloads fit on one node only.
    let member = fleet.member("member1");
    let nodes = member.list(&NODES, "").await;
    let node = nodes[0]["metadata"]["name"].as_str().unwrap();
    let label = json!({"metadata": {"labels": {"disk": "fast"}}});
    member.merge_patch(&NODES, "", node, label).await;
    // Whether a new decision has an estimate by the nodes of member1.
    let attempt = Cell::new(0);
    let by_nodes = async || {
        attempt.set(attempt.get() + 1);
        let name = format!("web-{}", attempt.get());
        decide_for_fast_nodes(control, ns, &name).await;
        let template = format!("deploy/{name}");
        let arguments = ["why", &template, "-n", ns, "-o", "wide"];
        let (_, output) = run_with_kubeconfig(&fleet.kubeconfig(), &arguments).await;
        let row = output.lines().find(|line| line.starts_with("member1"));
        row.is_some_and(|row| row.split_whitespace().any(|word| word == "Nodes"))
    };
    assert!(!by_nodes().await);
    addons(&fleet, "enable karmada-scheduler-estimator").await;
    wait_until("estimates by nodes", &by_nodes).await;
    addons(&fleet, "disable karmada-scheduler-estimator --force").await;
    assert!(!by_nodes().await);

    // Without nodes the scheduler believes the sums of member1; the descheduler corrects it.
    addons(
        &fleet,
        "enable karmada-descheduler karmada-scheduler-estimator",
    )
    .await;
    let moved = deployment(ns, "moved", 6);
    let mut oversized = oversized_pods_in_member1(ns, &moved);
    oversized["metadata"]["name"] = "moved".into();
    control.create(oversized).await;
    control.create(moved).await;
    control
        .wait_until(&BINDINGS, ns, "moved-deployment", "replicas", |b| {
            replicas_in(b, "member1") > 0
        })
        .await;
    cordon_nodes(fleet.member("member1")).await;
    control
        .wait_until(
            &BINDINGS,
            ns,
            "moved-deployment",
            "replicas elsewhere",
            |b| replicas_in(b, "member2") + replicas_in(b, "member3") == 6,
        )
        .await;
}

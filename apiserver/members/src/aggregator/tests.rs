//! Tests of the aggregation of nodes and pods.

use std::time::Duration;

use client::ShutdownToken;
use client_fake::FakeApi;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn quantity(text: &str) -> Quantity {
    Quantity::parse(text).unwrap()
}

fn node(name: &str, cpu: &str, pods: &str, ready: bool) -> Value {
    let ready = if ready { "True" } else { "False" };
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
           "status": {"allocatable": {"cpu": cpu, "pods": pods}, "conditions": [{"type": "Ready", "status": ready}]}})
}

fn pod(name: &str, node: &str, cpu: &str, phase: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns"},
           "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": cpu}}}]}, "status": {"phase": phase}})
}

async fn wait_until(condition: impl Fn() -> bool) {
    let poll = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(300), poll)
        .await
        .unwrap();
}

fn models() -> Vec<ResourceModelGradeMinimums> {
    let grade = |cpu: &str| ResourceModelGradeMinimums {
        minimums: vec![("cpu".into(), quantity(cpu))],
    };
    vec![grade("0"), grade("2"), grade("4")]
}

// proves: CST-summary, CST-models
#[tokio::test(start_paused = true)]
async fn sums_follow_nodes_and_pods() {
    let fake = FakeApi::new();
    let tasks = TaskGroup::new(ShutdownToken::new());
    fake.seed(&NODES, node("a", "4", "2", true));
    fake.seed(&NODES, node("b", "8", "1", false));
    fake.seed(&PODS, pod("p", "a", "500m", "Running"));
    fake.seed(&PODS, pod("q", "b", "1", "Running"));
    fake.seed(&PODS, pod("done", "a", "3", "Succeeded"));
    fake.seed(&PODS, pod("waiting", "", "250m", "Pending"));
    let api: Arc<dyn Api> = fake.clone();
    let fold = NodePodAggregator::start(&api, &tasks, true);
    wait_until(|| fold.summary().is_some()).await;
    let summary = fold.summary().unwrap();
    assert_eq!((summary.total_nodes, summary.ready_nodes), (2, 1));
    assert_eq!(
        summary.allocatable,
        [
            ("cpu".into(), quantity("12")),
            ("pods".into(), quantity("3"))
        ]
        .into()
    );
    assert_eq!(
        summary.allocated,
        [
            ("cpu".into(), quantity("1500m")),
            ("pods".into(), quantity("2"))
        ]
        .into()
    );
    assert_eq!(
        summary.allocating,
        [
            ("cpu".into(), quantity("250m")),
            ("pods".into(), quantity("1"))
        ]
        .into()
    );
    // Node a has 3.5 cpu free; b has cpu, but no pod slot.
    assert_eq!(fold.allocatable_modelings(&models()).unwrap(), [0, 1, 0]);

    fake.seed(&PODS, pod("p", "a", "500m", "Failed"));
    fake.seed(&PODS, pod("waiting", "a", "250m", "Running"));
    fake.remove(&PODS, "ns", "q");
    fake.remove(&NODES, "", "a");
    wait_until(|| {
        fold.summary().unwrap().total_nodes == 1 && fold.summary().unwrap().allocating.is_empty()
    })
    .await;
    wait_until(|| fold.summary().unwrap().allocated["pods"] == quantity("1")).await;
    assert_eq!(fold.allocatable_modelings(&models()).unwrap(), [0, 0, 1]);

    // Objects deleted while the watch is broken are subtracted after the next list.
    fake.on_call(|c| (c.verb == "watch").then(|| machinery::Status::expired("old").into()));
    fake.end_watches();
    fake.remove(&PODS, "ns", "waiting");
    fake.remove(&NODES, "", "b");
    wait_until(|| {
        let now = fold.summary().unwrap();
        now.total_nodes == 0 && now.allocated.is_empty() && now.allocatable.is_empty()
    })
    .await;
    tasks.stop().await;
}

/// The modelings of one node with these allocatable resources and pods.
fn grades(
    node: [(&str, &str); 3],
    pods: &[&[(&str, &str)]],
    models: &[&[(&str, &str)]],
) -> Vec<i64> {
    let mut sums = ResourceTotals::default();
    let mut amounts = |of: &[(&str, &str)]| -> AmountsByResourceId {
        of.iter()
            .map(|(name, amount)| (sums.intern_resource(name).unwrap(), quantity(amount)))
            .collect()
    };
    let allocatable = amounts(&node);
    let pod_amounts: Vec<AmountsByResourceId> = pods.iter().map(|of| amounts(of)).collect();
    let node = TrackedNode {
        ready: true,
        allocatable,
        scheduling: None,
    };
    sums.set_node("a", Some(node));
    for (n, requests) in pod_amounts.into_iter().enumerate() {
        sums.add_pod(&TrackedPod {
            node: Some("a".into()),
            terminated: n == 0,
            requests,
        });
    }
    let model = |ranges: &&[(&str, &str)]| ResourceModelGradeMinimums {
        minimums: ranges
            .iter()
            .map(|(name, min)| ((*name).into(), quantity(min)))
            .collect(),
    };
    let models: Vec<ResourceModelGradeMinimums> = models.iter().map(model).collect();
    sums.allocatable_modelings(&models)
}

// proves: SCH-models-build, CST-models
#[test]
fn a_node_is_in_the_highest_grade_that_it_has_free_of_everything() {
    let models: &[&[(&str, &str)]] = &[
        &[("cpu", "1"), ("memory", "1Gi")],
        &[("cpu", "2"), ("memory", "4Gi")],
        &[("cpu", "4"), ("memory", "8Gi")],
    ];
    let ended: &[(&str, &str)] = &[("cpu", "8"), ("pods", "1")];
    for (cpu, memory, used_cpu, expected) in [
        ("8", "16Gi", "0", [0, 0, 1]),
        ("4", "8Gi", "0", [0, 0, 1]),
        ("4", "7Gi", "0", [0, 1, 0]),
        ("3", "16Gi", "0", [0, 1, 0]),
        ("8", "1Gi", "0", [1, 0, 0]),
        ("8", "16Gi", "5", [0, 1, 0]),
        ("8", "16Gi", "7500m", [0, 0, 0]),
        ("500m", "16Gi", "0", [0, 0, 0]),
        ("8", "0", "0", [0, 0, 0]),
    ] {
        let node = [("cpu", cpu), ("memory", memory), ("pods", "10")];
        let actual = grades(node, &[ended, &[("cpu", used_cpu), ("pods", "1")]], models);
        assert_eq!(actual, expected, "{node:?} less {used_cpu}");
    }
}

#[test]
fn requests_are_those_the_scheduler_reserves() {
    let container = |cpu: &str, always: bool| json!({"restartPolicy": always.then_some("Always"), "resources": {"requests": {"cpu": cpu}}});
    let table = [
        (
            json!({"containers": [container("1", false), container("2", false)]}),
            "3",
        ),
        (
            json!({"containers": [container("1", false)], "initContainers": [container("5", false), container("2", false)]}),
            "5",
        ),
        (
            json!({"containers": [container("1", false)], "initContainers": [container("2", true), container("3", false)]}),
            "5",
        ),
        (
            json!({"containers": [container("1", false)], "initContainers": [container("2", true)], "overhead": {"cpu": "100m"}}),
            "3100m",
        ),
        (
            json!({"containers": [container("1", false)], "resources": {"requests": {"cpu": "4"}}}),
            "4",
        ),
        (
            json!({"containers": [container("1", false)], "resources": {"limits": {"cpu": "4"}}, "overhead": {"cpu": "100m"}}),
            "1100m",
        ),
        (
            json!({"containers": [{}], "resources": {"limits": {"cpu": "4"}}}),
            "4",
        ),
        (
            json!({"containers": [{"resources": {"limits": {"cpu": "2"}}}]}),
            "2",
        ),
    ];
    for (spec, expected) in table {
        let sum = pod_resource_requests(&serde_json::from_value(spec.clone()).unwrap());
        assert_eq!(
            (sum["cpu"], sum["pods"]),
            (quantity(expected), quantity("1")),
            "{spec}"
        );
    }
}

proptest! {
    #[test]
    fn running_sums_equal_sums_from_scratch(steps in prop::collection::vec((0_u8..6, 0_u8..3, 0_i64..5000, any::<bool>()), 0..80)) {
        let mut sums = ResourceTotals::default();
        let cpu = sums.intern_resource("cpu").unwrap();
        let mut pods: AHashMap<u8, TrackedPod> = AHashMap::new();
        let mut nodes: AHashMap<u8, TrackedNode> = AHashMap::new();
        let node_name = |n: u8| Box::<str>::from(format!("n{n}"));
        for (action, node_number, milli, flag) in steps {
            let amounts: AmountsByResourceId = Box::new([(cpu, Quantity::from_milli(milli + 1))]);
            if action < 2 {
                let node = (action == 0).then_some(TrackedNode { ready: flag, allocatable: amounts, scheduling: None });
                sums.set_node(&node_name(node_number), node.clone());
                match node { Some(n) => drop(nodes.insert(node_number, n)), None => drop(nodes.remove(&node_number)) }
            } else {
                let pod = TrackedPod { node: (node_number > 0).then(|| node_name(node_number)), terminated: flag, requests: amounts };
                if let Some(old) = pods.remove(&action) { sums.remove_pod(&old); }
                if milli % 3 > 0 { sums.add_pod(&pod); pods.insert(action, pod); }
            }
        }
        let mut fresh = ResourceTotals::default();
        fresh.intern_resource("cpu");
        for pod in pods.values() { fresh.add_pod(pod); }
        for (node_number, node) in &nodes { fresh.set_node(&node_name(*node_number), Some(node.clone())); }
        prop_assert_eq!(sums.summary(), fresh.summary());
        let models: Vec<ResourceModelGradeMinimums> = [0, 1000, 3000].iter().map(|m| ResourceModelGradeMinimums { minimums: vec![("cpu".into(), Quantity::from_milli(*m))] }).collect();
        prop_assert_eq!(sums.allocatable_modelings(&models), fresh.allocatable_modelings(&models));
    }
}

#[tokio::test(start_paused = true)]
async fn single_nodes_can_be_read_if_enabled() {
    let (fake, tasks) = (FakeApi::new(), TaskGroup::new(ShutdownToken::new()));
    let mut tainted = node("a", "4", "2", true);
    tainted["metadata"]["labels"] = json!({"zone": "x", "empty": "", "a.b/c": "1"});
    tainted["spec"] = json!({"unschedulable": true, "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}]});
    fake.seed(&NODES, tainted);
    fake.seed(&NODES, node("b", "8", "1", false));
    fake.seed(&PODS, pod("p", "a", "500m", "Running"));
    fake.seed(&PODS, pod("q", "gone", "1", "Running"));
    let api: Arc<dyn Api> = fake.clone();
    let fold = NodePodAggregator::start(&api, &tasks, true);
    let sums = NodePodAggregator::start(&api, &tasks, false);
    wait_until(|| fold.summary().is_some() && sums.summary().is_some()).await;
    let node_amounts = |fold: &NodePodAggregator| {
        let node_amounts = fold.with_nodes(|nodes| {
            let cpu = nodes.resource_id("cpu").unwrap();
            let line = |node: crate::NodeInfo<'_>| {
                let label = |key| node.label(key).map(str::to_owned);
                let taints: Vec<&str> = node.taints().iter().map(|t| &*t.key).collect();
                let labels = ["zone", "empty", "a.b/c", "zon"].map(label);
                (
                    node.name.to_owned(),
                    node.free(cpu).to_string(),
                    format!("{labels:?} {taints:?} {}", node.is_unschedulable()),
                )
            };
            let mut lines: Vec<_> = nodes.iter().map(line).collect();
            lines.sort();
            assert_eq!(nodes.resource_id("gpu"), None);
            lines
        });
        node_amounts.unwrap()
    };
    let expected = [
        (
            "a",
            "3500m",
            r#"[Some("x"), Some(""), Some("1"), None] ["k"] true"#,
        ),
        ("b", "8", r#"[None, None, None, None] [] false"#),
    ];
    let expected = expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
    assert_eq!(node_amounts(&fold), expected);
    assert!(node_amounts(&sums).is_empty());
    tasks.stop().await;
}

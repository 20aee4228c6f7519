//! Tests of the detector of a node and of the reporter, over fake API servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use client::{Api, ShutdownToken, TaskGroup};
use client_fake::FakeApi;
use futures_util::FutureExt;
use jiff::Timestamp;
use karmada_api::resources::CLUSTERS;
use karmada_api::well_known_keys::SERVICE_NAME_RESOLUTION_CONDITION as CONDITION;
use machinery::Object;
use machinery::time::Clock;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::cluster_reporter::{ClusterNameResolutionReporter, cluster_verdict};
use super::node_detector::NodeNameResolutionDetector;
use super::options::{NODES, NameResolutionOptions};

const START: i64 = 1_800_000_000;

/// Follows the paused time of tokio.
struct PausedClock(tokio::time::Instant);

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.0.elapsed().as_secs()).unwrap();
        Timestamp::from_second(START + passed).unwrap()
    }
}

fn node(name: &str, ready: &str, reported: Option<(&str, i64)>) -> Value {
    let mut conditions = vec![json!({"type": "Ready", "status": ready})];
    if let Some((status, at)) = reported {
        let at = Timestamp::from_second(START + at).unwrap().to_string();
        conditions.push(json!({"type": CONDITION, "status": status, "lastHeartbeatTime": at}));
    }
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"conditions": conditions}})
}

fn condition(object: &Value) -> Value {
    let all = object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    let mut all = all.filter(|condition| condition["type"] == CONDITION);
    all.next().cloned().unwrap_or_default()
}

async fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let waited = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(600), waited).await;
    assert!(in_time.is_ok(), "{what}");
}

// proves: SND-verdict
#[test]
fn names_are_not_resolved_if_all_ready_nodes_say_so() {
    let (yes, no) = (Some(("True", 0)), Some(("False", 0)));
    for (nodes, expected) in [
        (
            vec![node("a", "True", yes), node("b", "True", no)],
            Some(true),
        ),
        (
            vec![node("a", "True", no), node("b", "True", no)],
            Some(false),
        ),
        (
            vec![node("a", "True", no), node("b", "False", yes)],
            Some(false),
        ),
        // One that has not reported, or not lately, may be the one that resolves names.
        (vec![node("a", "True", no), node("b", "True", None)], None),
        (
            vec![
                node("a", "True", yes),
                node("b", "True", Some(("True", -100))),
            ],
            None,
        ),
        (vec![node("a", "True", Some(("Unknown", 0)))], None),
        (vec![node("a", "False", no)], None),
        (vec![], None),
    ] {
        let objects: Vec<Object> = nodes
            .iter()
            .map(|node| Object::from_value(node).unwrap())
            .collect();
        let now = Timestamp::from_second(START + 10).unwrap();
        let verdict = cluster_verdict(&objects, now, Duration::from_secs(60));
        assert_eq!(verdict, expected, "{nodes:?}");
    }
}

/// The answers of lookups: `None` hangs.
type LookupOutcome = Arc<Mutex<Option<Result<(), String>>>>;

fn start_detector(
    member: &Arc<FakeApi>,
    answer: &LookupOutcome,
    tasks: &TaskGroup,
) -> Arc<AtomicUsize> {
    let (answer, lookups) = (Arc::clone(answer), Arc::<AtomicUsize>::default());
    let count = Arc::clone(&lookups);
    let lookup = move || {
        count.fetch_add(1, Ordering::Relaxed);
        match answer.lock().clone() {
            Some(outcome) => futures_util::future::ready(outcome).boxed(),
            None => futures_util::future::pending().boxed(),
        }
    };
    let detector = NodeNameResolutionDetector {
        member: member.clone() as Arc<dyn Api>,
        node: "n".to_owned(),
        lookup: Box::new(lookup),
        options: NameResolutionOptions::default(),
        clock: Arc::new(PausedClock(tokio::time::Instant::now())),
    };
    detector.run(tasks);
    lookups
}

// proves: SND-node, SND-thresholds, SND-writes
#[tokio::test(start_paused = true)]
async fn a_node_has_the_outcome_that_lasts() {
    let member = FakeApi::new();
    let tasks = TaskGroup::new(ShutdownToken::new());
    member.seed(&NODES, node("n", "True", None));
    let answer: LookupOutcome = Arc::new(Mutex::new(Some(Ok(()))));
    let lookups = start_detector(&member, &answer, &tasks);
    let current = || condition(&member.get_object(&NODES, "", "n").unwrap());
    wait_until("the first outcome", || current()["status"] == "True").await;
    let first = current();
    assert_eq!(first["reason"], Value::Null);

    // The same outcome is written as often as its age requires.
    let began = tokio::time::Instant::now();
    wait_until("another heartbeat", || {
        current()["lastHeartbeatTime"] != first["lastHeartbeatTime"]
    })
    .await;
    assert!(
        began.elapsed() >= Duration::from_secs(14),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(current()["lastTransitionTime"], first["lastTransitionTime"]);

    *answer.lock() = Some(Err("no such host".to_owned()));
    let began = tokio::time::Instant::now();
    wait_until("a failure", || current()["status"] == "False").await;
    assert!(began.elapsed() >= Duration::from_secs(30));
    let failed = current();
    assert_eq!(
        (&failed["reason"], &failed["message"]),
        (
            &json!("ServiceDomainNameResolutionFailed"),
            &json!("no such host")
        )
    );
    assert_ne!(failed["lastTransitionTime"], first["lastTransitionTime"]);

    // A lookup that hangs fails, and no other begins meanwhile.
    *answer.lock() = None;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let hanging = lookups.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(lookups.load(Ordering::Relaxed), hanging);
    assert_eq!(current()["status"], "False");
    tasks.stop().await;
}

// proves: SND-cluster
#[tokio::test(start_paused = true)]
async fn the_cluster_has_the_verdict_of_its_nodes() {
    let (member, control) = (FakeApi::new(), FakeApi::new());
    let tasks = TaskGroup::new(ShutdownToken::new());
    let cluster = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "m"}, "spec": {"syncMode": "Push"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    control.seed(&CLUSTERS, cluster);
    member.seed(&NODES, node("a", "True", Some(("True", 0))));
    let reporter = ClusterNameResolutionReporter {
        control: control.clone() as Arc<dyn Api>,
        member: member.clone() as Arc<dyn Api>,
        cluster: "m".to_owned(),
        options: NameResolutionOptions::default(),
        clock: Arc::new(PausedClock(tokio::time::Instant::now())),
    };
    reporter.run(&tasks);
    let current = || condition(&control.get_object(&CLUSTERS, "", "m").unwrap());
    wait_until("ready", || current()["status"] == "True").await;
    assert_eq!(
        (&current()["reason"], &current()["message"]),
        (
            &json!("ServiceDomainNameResolutionReady"),
            &json!("service domain name resolution is ready")
        )
    );
    // A node that has not reported leaves the condition as it is.
    member.seed(&NODES, node("b", "True", None));
    member.seed(&NODES, node("a", "True", Some(("False", 0))));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(current()["status"], "True");
    member.seed(&NODES, node("b", "True", Some(("False", 0))));
    wait_until("failed", || current()["status"] == "False").await;
    assert_eq!(
        current()["message"],
        "service domain name resolution is unready"
    );
    let stored = control.get_object(&CLUSTERS, "", "m").unwrap();
    assert_eq!(stored["status"]["conditions"][0]["type"], "Ready");
    tasks.stop().await;
}

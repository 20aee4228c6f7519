//! Kills a server with SIGKILL after each write of the status of a Rollout, on the embedded store and
//! on etcd, until the rollout has gone through its three stages. One of the members fails, within the
//! budget. The recorded statuses and the objects in the members show that no step was repeated, left
//! out or taken too early.

use std::time::Duration;

use client::{ResourcePath, WatchEvent, WatchOptions};
use futures_util::StreamExt;
use harness::api_server_client::is_rolled_out;
use harness::objects::{
    DEPLOYMENTS, ROLLOUTS, deployment, override_policy, policy, resource_selector,
};
use harness::{ApiServerClient, EtcdCluster, etcd};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::replicas::flotilla_process::{FlotillaProcess, join};

const NAMESPACE: &str = "rollout-crashes";
const ROLLOUT: &str = "web-deployment";
const IMAGE: &str = "/spec/template/spec/containers/0/image";
const MEMBERS: [&str; 3] = ["member1", "member2", "member3"];
/// The clusters that may fail: the member whose image cannot be pulled.
const FAILURE_BUDGET: usize = 1;
/// The first cluster begins, is healthy, and is done when the second one begins; the third one begins
/// when the second has failed, is healthy, and is done.
const MIN_WRITES: usize = 6;
const MAX_WRITES: usize = 60;
/// By how much a change raises the generation of a member's Deployment: the control plane writes it, and
/// the member's controller writes the number of the new pod template into its annotations.
const GENERATIONS_OF_A_CHANGE: i64 = 2;
const WRITE_TIMEOUT: Duration = Duration::from_secs(90);

// proves: ROL-restart, ROL-invariants, ROL-budget
#[harness::slow]
#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_goes_on_after_a_kill_at_each_write() {
    roll_out_under_kills(&[]).await;
}

// proves: ROL-restart, ROL-invariants, ROL-budget
#[harness::slow]
#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_on_etcd_goes_on_after_a_kill_at_each_write() {
    let Some(etcd) = tokio::task::block_in_place(|| EtcdCluster::start(etcd::VERSION_3_5, 1))
    else {
        return;
    };
    let servers = format!("--etcd-servers={}", etcd.endpoints());
    roll_out_under_kills(&[&servers, "--leader-elect=false"]).await;
}

async fn roll_out_under_kills(flags: &[&str]) {
    let mut server = tokio::task::block_in_place(|| FlotillaProcess::serve(flags));
    let control = server.connect("control plane");
    let mut members = Vec::new();
    for name in MEMBERS {
        let member = tokio::task::block_in_place(FlotillaProcess::member);
        join(name, &member, &server.kubeconfig()).await;
        control.wait_until_cluster_ready(name).await;
        members.push(member);
    }
    let clients: Vec<ApiServerClient> = members
        .iter()
        .zip(MEMBERS)
        .map(|(member, name)| member.connect(name))
        .collect();
    let first = prepare_change(&control).await;
    let before = generations(&clients).await;
    let resumed = json!({"spec": {"paused": false}});
    control
        .merge_patch(&ROLLOUTS, NAMESPACE, ROLLOUT, resumed)
        .await;
    let mut history = vec![first];
    while history.last().unwrap()["status"]["state"] != "Degraded" {
        assert!(history.len() < MAX_WRITES, "no end: {history:#?}");
        let control = server.connect("control plane");
        let next = next_write(&control, history.last().unwrap()).await;
        history.push(next);
        server.kill();
        tokio::task::block_in_place(|| server.restart());
    }
    check_history(&history);
    let control = server.connect("control plane");
    let is_current = |web: &Value| {
        web["status"]["observedGeneration"] == web["metadata"]["generation"]
            && web["status"]["updatedReplicas"] == MEMBERS.len()
    };
    control
        .wait_until(&DEPLOYMENTS, NAMESPACE, "web", "reported", is_current)
        .await;
    let expected: Vec<i64> = before
        .iter()
        .map(|generation| generation + GENERATIONS_OF_A_CHANGE)
        .collect();
    assert_eq!(
        generations(&clients).await,
        expected,
        "a member was written twice"
    );
}

/// Lets all members have a first revision, and a second one be the target of a paused rollout.
async fn prepare_change(control: &ApiServerClient) -> Value {
    control.create_namespace(NAMESPACE).await;
    let web = deployment(NAMESPACE, "web", 1);
    let stages = MEMBERS.map(|member| {
        json!({"name": member, "clusterAffinity": {"clusterNames": [member]}, "gates": {"healthyFor": "1s"}})
    });
    let stages = json!({"apiVersion": "rollout.flotilla.io/v1alpha1", "kind": "RolloutPolicy",
        "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {"resourceSelectors": [resource_selector(&web)], "stages": stages,
            "progressDeadline": "15s", "failureBudget": FAILURE_BUDGET}});
    control.create(stages).await;
    control.create(web.clone()).await;
    control
        .create(policy(NAMESPACE, "web", &web, &MEMBERS))
        .await;
    let wait_for_pause = |before: Value| async move {
        control
            .wait_until(&ROLLOUTS, NAMESPACE, ROLLOUT, "paused", |rollout| {
                rollout["status"]["state"] == "Paused"
                    && rollout["status"]["targetRevision"] != before
            })
            .await
    };
    let target = |rollout: Value| rollout["status"]["targetRevision"].clone();
    let stable = control.wait_until(&ROLLOUTS, NAMESPACE, ROLLOUT, "in all members", |rollout| {
        is_rolled_out(rollout, MEMBERS.len())
    });
    let stable = target(stable.await);
    let paused = json!({"spec": {"paused": true}});
    control
        .merge_patch(&ROLLOUTS, NAMESPACE, ROLLOUT, paused)
        .await;
    let broken = json!([{"targetCluster": {"clusterNames": [MEMBERS[1]]},
        "overriders": {"plaintext": [{"path": IMAGE, "operator": "replace", "value": "fake/web"}]}}]);
    control
        .create(override_policy(NAMESPACE, "web", &web, &broken))
        .await;
    let overridden = target(wait_for_pause(stable).await);
    let change = json!({"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}});
    control
        .merge_patch(&DEPLOYMENTS, NAMESPACE, "web", change)
        .await;
    wait_for_pause(overridden).await
}

/// The next write of the status after one that was seen. A server that has just started may not have
/// the history any more: then it is the present one.
async fn next_write(control: &ApiServerClient, last: &Value) -> Value {
    let at = ResourcePath::object(&ROLLOUTS, NAMESPACE, ROLLOUT);
    let mut version = last["metadata"]["resourceVersion"].clone();
    let search = async {
        loop {
            let options = WatchOptions {
                resource_version: version.as_str().unwrap().to_owned(),
                ..WatchOptions::default()
            };
            if let Ok(mut events) = control.api.watch(at, &options).await {
                while let Some(Ok(event)) = events.next().await {
                    if let WatchEvent::Modified(rollout) | WatchEvent::Added(rollout) = event {
                        let rollout = rollout.value().unwrap();
                        if rollout["status"] != last["status"] {
                            return rollout;
                        }
                    }
                }
            }
            let present = control.get(&ROLLOUTS, NAMESPACE, ROLLOUT).await.unwrap();
            if present["status"] != last["status"] {
                return present;
            }
            version = present["metadata"]["resourceVersion"].clone();
        }
    };
    let next = timeout(WRITE_TIMEOUT, search).await;
    next.unwrap_or_else(|_| panic!("no write follows {last:#}"))
}

async fn generations(members: &[ApiServerClient]) -> Vec<i64> {
    let mut generations = Vec::new();
    for member in members {
        let web = member.get(&DEPLOYMENTS, NAMESPACE, "web").await.unwrap();
        generations.push(web["metadata"]["generation"].as_i64().unwrap());
    }
    generations
}

/// The clusters of a status in the order of the stages, of which each has one: whether they have the
/// target, and their phase.
fn clusters(rollout: &Value) -> Vec<(bool, String)> {
    let status = &rollout["status"];
    let stages = status["stages"].as_array().unwrap().iter();
    let clusters = stages.flat_map(|stage| stage["clusters"].as_array().into_iter().flatten());
    clusters
        .map(|cluster| {
            let phase = cluster["phase"].as_str().unwrap().to_owned();
            (cluster["revision"] == status["targetRevision"], phase)
        })
        .collect()
}

fn check_history(history: &[Value]) {
    assert!(history.len() > MIN_WRITES, "{history:#?}");
    for (before, after) in history.iter().zip(&history[1..]) {
        let target = &before["status"]["targetRevision"];
        assert_eq!(&after["status"]["targetRevision"], target);
        let (old, new) = (clusters(before), clusters(after));
        assert_eq!(new.len(), MEMBERS.len(), "{after:#}");
        for (i, (has_target, _)) in new.iter().enumerate() {
            let had_target = old[i].0;
            assert!(*has_target || !had_target, "{i} has returned: {after:#}");
            if !*has_target || had_target {
                continue;
            }
            let has_ended = |(has_target, phase): &(bool, String)| {
                *has_target && ["Done", "Failed"].contains(&phase.as_str())
            };
            assert!(new[..i].iter().all(has_ended), "{i} is ahead: {after:#}");
            let failed = new.iter().filter(|(_, phase)| phase == "Failed").count();
            assert!(
                failed <= FAILURE_BUDGET,
                "{i} is beyond the budget: {after:#}"
            );
        }
    }
    let last = history.last().unwrap();
    let phases: Vec<String> = clusters(last).into_iter().map(|(_, phase)| phase).collect();
    assert_eq!(phases, ["Done", "Failed", "Done"], "{last:#}");
}

//! A control plane that is killed under load.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use harness::FlotillaUpProcess;
use serde_json::{Value, json};

use crate::flow::fleet::{ApiServerClient, MEMBERS, find_condition, start_control_plane};
use crate::flow::objects::{BINDINGS, CLUSTERS, DEPLOYMENTS, SECRETS, deployment, policy};

const NAMESPACE: &str = "crash";
const WRITERS: usize = 4;
/// The process is killed after this many acknowledged writes; writers go on until their
/// call fails.
const WRITES_BEFORE_KILL: usize = 30;

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

/// The objects that `join` creates: names and uids of clusters and of their secrets.
async fn cluster_identities(control: &ApiServerClient) -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    for resource in [&CLUSTERS, &SECRETS] {
        for object in control.list(resource, "").await {
            let meta = &object["metadata"];
            let text = |key: &str| meta[key].as_str().unwrap().to_owned();
            all.push((
                text("name"),
                text("uid"),
                object["spec"]["secretRef"].to_string(),
            ));
        }
    }
    all.sort();
    all
}

/// Creates Deployments from several tasks until the server is killed. Returns the
/// acknowledged ones with their revisions.
async fn create_until_killed(
    server: ApiServerClient,
    up: &mut FlotillaUpProcess,
) -> BTreeMap<String, u64> {
    let (server, done) = (Arc::new(server), Arc::new(AtomicUsize::new(0)));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (server, done) = (Arc::clone(&server), Arc::clone(&done));
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                loop {
                    let name = format!("w{writer}-{}", acknowledged.len());
                    match server.try_create(deployment(NAMESPACE, &name, 1)).await {
                        Ok(created) => acknowledged.push((name, revision(&created))),
                        Err(_) => return acknowledged,
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    while done.load(Ordering::Relaxed) < WRITES_BEFORE_KILL {
        tokio::task::yield_now().await;
    }
    up.kill();
    let mut all = BTreeMap::new();
    for writer in writers {
        all.extend(writer.await.unwrap());
    }
    all
}

/// Waits until every Deployment of the namespace is ready in every member and in the status
/// of its template. Returns the members' objects by member and name, with revision and
/// generation.
async fn wait_until_synced(
    control: &ApiServerClient,
    members: &[ApiServerClient],
) -> BTreeMap<(String, String), (u64, Value)> {
    let mut versions = BTreeMap::new();
    for template in control.list(&DEPLOYMENTS, NAMESPACE).await {
        let name = template["metadata"]["name"].as_str().unwrap();
        control
            .wait_until(
                &BINDINGS,
                NAMESPACE,
                &format!("{name}-deployment"),
                "in step",
                |b| {
                    let all = b["status"]["aggregatedStatus"].as_array();
                    find_condition(b, "FullyApplied")["status"] == "True"
                        && all.is_some_and(|all| {
                            all.len() == MEMBERS
                                && all.iter().all(|i| i["status"]["readyReplicas"] == 1)
                        })
                },
            )
            .await;
        control
            .wait_until(&DEPLOYMENTS, NAMESPACE, name, "aggregated", |d| {
                d["status"]["readyReplicas"] == MEMBERS
            })
            .await;
        for member in members {
            let object = member.get(&DEPLOYMENTS, NAMESPACE, name).await.unwrap();
            let version = (revision(&object), object["metadata"]["generation"].clone());
            versions.insert((member.name.clone(), name.to_owned()), version);
        }
    }
    versions
}

async fn wait_until_all_ready(control: &ApiServerClient) {
    for n in 1..=MEMBERS {
        control
            .wait_until_cluster_ready(&format!("member{n}"))
            .await;
    }
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_and_a_restart_writes_nothing() {
    let mut up = tokio::task::spawn_blocking(|| start_control_plane(&[]))
        .await
        .unwrap();
    let server = up.control_plane();
    server.create_namespace(NAMESPACE).await;
    let mut everything = policy(
        NAMESPACE,
        "all",
        &deployment(NAMESPACE, "", 1),
        &["member1", "member2", "member3"],
    );
    everything["spec"]["resourceSelectors"] =
        json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
    server.create(everything).await;
    let before = cluster_identities(&server).await;
    let acknowledged = create_until_killed(server, &mut up).await;

    up.restart();
    let server = up.control_plane();
    for (name, created) in &acknowledged {
        let kept = server.get(&DEPLOYMENTS, NAMESPACE, name).await;
        let kept = kept.unwrap_or_else(|| panic!("{name} was acknowledged and is lost"));
        assert!(revision(&kept) >= *created, "{name} went back");
    }
    let last = acknowledged.values().max().unwrap();
    let next = server.create(deployment(NAMESPACE, "next", 1)).await;
    assert!(revision(&next) > *last, "revisions went back");
    wait_until_all_ready(&server).await;
    assert_eq!(cluster_identities(&server).await, before, "joined again");
    let in_step = wait_until_synced(&server, &up.members()).await;
    assert!(in_step.len() >= (acknowledged.len() + 1) * MEMBERS);

    up.restart();
    let server = up.control_plane();
    assert_eq!(wait_until_synced(&server, &up.members()).await, in_step);
    // A start under load may leave a cluster without fresh status, and the scheduler places
    // nothing new there.
    wait_until_all_ready(&server).await;
    // The members' queues process a later object after the existing ones.
    server.create(deployment(NAMESPACE, "later", 1)).await;
    let mut after = wait_until_synced(&server, &up.members()).await;
    after.retain(|(_, name), _| name != "later");
    assert_eq!(after, in_step, "a restart wrote to members");
    assert_eq!(cluster_identities(&server).await, before, "joined again");
}

//! Tests of which bindings a scheduler handles and what enqueues them.

use super::*;

fn named(name: &str, change: impl Fn(&mut Value)) -> Value {
    let mut binding = binding(json!({}));
    binding["metadata"]["name"] = name.into();
    change(&mut binding);
    binding
}

fn cluster(name: &str, pods: i64, more: Value) -> Value {
    crate::core::tests::cluster(name, pods, more)
        .value()
        .unwrap()
}

fn divided() -> Value {
    json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}})
}

// proves: SCH-claimed-only, SCH-scheduler-name
#[tokio::test]
async fn a_scheduler_handles_claimed_bindings_with_its_name() {
    type Case = (&'static str, &'static str, &'static str, [bool; 2]);
    // Label and its value, scheduler name; whether default-scheduler and `mine` handle it.
    let cases: [Case; 7] = [
        ("", "", "", [false, false]),
        (well_known_keys::POLICY_ID, "", "", [false, false]),
        (well_known_keys::POLICY_ID, "p", "mine", [false, true]),
        (well_known_keys::POLICY_ID, "p", "", [true, false]),
        (
            well_known_keys::CLUSTER_POLICY_ID,
            "p",
            "default-scheduler",
            [true, false],
        ),
        (
            well_known_keys::BINDING_MANAGED_BY,
            "somebody",
            "",
            [true, false],
        ),
        (well_known_keys::POLICY_ID, "p", "mine", [false, true]),
    ];
    for (at, scheduler) in ["default-scheduler", "mine"].into_iter().enumerate() {
        let fake = FakeApi::new();
        fake.seed(&CLUSTERS, cluster("m1", 10, json!({})));
        let mut claimed = Vec::new();
        for (n, (label, value, scheduler_name, by)) in cases.iter().enumerate() {
            let name = format!("b{n}");
            fake.seed(
                &BINDINGS,
                named(&name, |b| {
                    b["metadata"]["labels"] = json!({*label: value});
                    b["spec"]["schedulerName"] = (*scheduler_name).into();
                }),
            );
            if by[at] {
                claimed.push(name);
            }
        }
        let no_events = |_, _: &TaskGroup| EventRecorder::disabled();
        let plane = SchedulerFixture::with(fake, no_events, |options| {
            options.name = scheduler.into();
        });
        for name in &claimed {
            plane
                .wait_for_named_binding(name, |b| condition(b).0 == "True")
                .await;
        }
        let writes = plane.fake.writes();
        assert!(
            writes.iter().all(|w| claimed.contains(&w.name)),
            "{writes:?}"
        );
        plane.tasks.stop().await;
    }
}

// proves: SCH-generation
#[tokio::test]
async fn only_another_generation_is_scheduled() {
    let plane = SchedulerFixture::start(&["m1"], binding(json!({}))).await;
    let mut done = plane.wait_for_binding(|b| condition(b).0 == "True").await;
    done["spec"]["replicas"] = 7.into();
    done["status"]["aggregatedStatus"] = json!([{"clusterName": "m1", "health": "Unhealthy"}]);
    plane.fake.seed(&BINDINGS, done.clone());
    plane.fake.seed(&BINDINGS, named("other", |_| {}));
    plane
        .wait_for_named_binding("other", |b| condition(b).0 == "True")
        .await;
    let same = plane.wait_for_binding(|_| true).await;
    assert_eq!(same["spec"]["clusters"][0]["replicas"], 4);
    let generation = done["metadata"]["generation"].as_i64().unwrap();
    done["metadata"]["generation"] = (generation + 1).into();
    plane.fake.seed(&BINDINGS, done);
    plane
        .wait_for_binding(|b| b["spec"]["clusters"][0]["replicas"] == 7)
        .await;
    plane.tasks.stop().await;
}

// proves: SCH-comes-into-view
#[tokio::test]
async fn a_binding_that_becomes_its_own_counts_as_new() {
    let hidden: [fn(&mut Value); 3] = [
        |b| b["metadata"]["labels"] = json!({}),
        |b| b["spec"]["schedulerName"] = "other".into(),
        |b| b["spec"]["suspension"] = json!({"scheduling": true}),
    ];
    for hide in hidden {
        let plane = SchedulerFixture::start(&["m1"], named("web-deployment", hide)).await;
        plane.fake.seed(&BINDINGS, named("other", |_| {}));
        plane
            .wait_for_named_binding("other", |b| condition(b).0 == "True")
            .await;
        assert!(plane.fake.writes().iter().all(|w| w.name == "other"));
        plane.fake.seed(&BINDINGS, binding(json!({})));
        plane.wait_for_binding(|b| condition(b).0 == "True").await;
        plane.tasks.stop().await;
    }
}

// proves: SCH-suspended-queued, SCH-binding-gone
#[tokio::test]
async fn a_queued_binding_is_scheduled_in_its_latest_version() {
    let fake = FakeApi::new();
    fake.seed(&BINDINGS, binding(json!({})));
    fake.seed(&BINDINGS, named("gone", |_| {}));
    fake.seed(&CLUSTERS, cluster("m1", 10, json!({})));
    // Until the clusters are synced, all bindings wait in the queue.
    let is_written = Arc::new(AtomicBool::new(false));
    let (watched, mut began) = tokio::sync::mpsc::unbounded_channel();
    let hidden = Arc::clone(&is_written);
    fake.on_call(move |call| {
        if call.verb == "watch" && call.resource == Some(&BINDINGS) {
            let _ = watched.send(());
        }
        let early = call.resource == Some(&CLUSTERS) && !hidden.load(Ordering::Relaxed);
        early.then(|| machinery::Status::failure(500, "InternalError", "not yet").into())
    });
    let plane = SchedulerFixture::with_gates(fake, FeatureGates::default());
    began.recv().await.unwrap();
    plane.fake.remove(&BINDINGS, "n", "gone");
    plane.fake.seed(
        &BINDINGS,
        named("web-deployment", |b| {
            b["spec"]["suspension"] = json!({"scheduling": true});
        }),
    );
    plane.fake.seed(&BINDINGS, named("last", |_| {}));
    is_written.store(true, Ordering::Relaxed);
    plane
        .wait_for_named_binding("last", |b| condition(b).0 == "True")
        .await;
    plane.wait_for_binding(|b| condition(b).0 == "True").await;
    let writes = plane.fake.writes();
    assert!(writes.iter().all(|w| w.name != "gone"), "{writes:?}");
    plane.tasks.stop().await;
}

// proves: SCH-cluster-ending
#[tokio::test]
async fn replicas_in_a_terminating_cluster_move() {
    let plane = SchedulerFixture::start(&["m1", "m2"], binding(divided())).await;
    let done = plane.wait_for_binding(|b| condition(b).0 == "True").await;
    assert_eq!(
        done["spec"]["clusters"],
        json!([{"name": "m1", "replicas": 4}])
    );
    let ending = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    plane.fake.seed(&CLUSTERS, cluster("m1", 10, ending));
    let moved = json!([{"name": "m2", "replicas": 4}]);
    plane
        .wait_for_binding(|b| b["spec"]["clusters"] == moved)
        .await;
    plane.tasks.stop().await;
}

// proves: SCH-cluster-changed
#[tokio::test]
async fn the_old_and_the_new_version_of_a_cluster_affect_bindings() {
    let placement = json!({"clusterAffinity": {"labelSelector": {"matchLabels": {"ring": "one"}}}});
    let plane = SchedulerFixture::start(&["m1", "m2"], binding(placement)).await;
    let names = |b: &Value| {
        let all = b["spec"]["clusters"].as_array().into_iter().flatten();
        let names = all.filter_map(|c| c["name"].as_str().map(str::to_owned));
        names.collect::<Vec<_>>()
    };
    let ring = |of: &str| json!({"metadata": {"labels": {"ring": of}}});
    plane
        .wait_for_binding(|b| condition(b).1 == "NoClusterFit")
        .await;
    plane.fake.seed(&CLUSTERS, cluster("m1", 10, ring("one")));
    plane.wait_for_binding(|b| names(b) == ["m1"]).await;
    plane.fake.seed(&CLUSTERS, cluster("m2", 10, ring("one")));
    plane.wait_for_binding(|b| names(b) == ["m1", "m2"]).await;
    plane.fake.seed(&CLUSTERS, cluster("m1", 10, ring("two")));
    plane.wait_for_binding(|b| names(b) == ["m2"]).await;
    plane.tasks.stop().await;
}

// proves: SCH-no-placement
#[tokio::test(start_paused = true)]
async fn a_binding_without_a_placement_is_retried_until_it_has_one() {
    let plane = SchedulerFixture::start(
        &["m1"],
        named("web-deployment", |b| b["spec"]["placement"] = Value::Null),
    )
    .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(plane.fake.writes().len(), 0);
    // The generation is unchanged, so this update enqueues nothing.
    plane.fake.seed(&BINDINGS, binding(json!({})));
    tokio::time::sleep(Duration::from_secs(11)).await;
    plane.wait_for_binding(|b| condition(b).0 == "True").await;
    plane.tasks.stop().await;
}

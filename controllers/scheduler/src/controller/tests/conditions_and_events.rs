//! Tests of the conditions and events of a decision.

use client::event::EVENTS;

use super::*;

/// A fixture that records events.
fn fixture_with_events(clusters: &[&str], binding: Value) -> SchedulerFixture {
    let fake = FakeApi::new();
    for name in clusters {
        let member = crate::core::tests::cluster(name, 10, json!({}));
        fake.seed(&CLUSTERS, member.value().unwrap());
    }
    fake.seed(&BINDINGS, binding);
    let recorder = |api, tasks: &TaskGroup| {
        EventRecorder::new(api, "default-scheduler", Arc::new(SystemClock), tasks)
    };
    SchedulerFixture::with(fake, recorder, |_| {})
}

/// The events as `Kind type reason message`, once there are `count`.
async fn events(plane: &SchedulerFixture, count: usize) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let mut texts = Vec::new();
    for _ in 0..2000 {
        let events = plane.fake.list_objects(&EVENTS);
        texts = events
            .iter()
            .map(|e| {
                let kind = text(&e["involvedObject"]["kind"]);
                let parts = ["type", "reason", "message"].map(|field| text(&e[field]));
                format!("{kind} {}", parts.join(" "))
            })
            .collect();
        if texts.len() >= count {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    texts.sort();
    texts
}

/// The same events on both the binding and its template.
fn binding_and_template_events(rest: &[&str]) -> Vec<String> {
    let both = ["Deployment", "ResourceBinding"].iter();
    let mut all: Vec<String> = both
        .flat_map(|kind| rest.iter().map(move |rest| format!("{kind} {rest}")))
        .collect();
    all.sort();
    all
}

fn placed(clusters: &Value, placement: &Value, more: impl Fn(&mut Value)) -> Value {
    let mut scheduled = binding(placement.clone());
    scheduled["spec"]["clusters"] = clusters.clone();
    scheduled["metadata"]["annotations"] =
        json!({well_known_keys::APPLIED_PLACEMENT: placement.to_string()});
    scheduled["status"] = json!({"lastScheduledTime": "2026-01-01T00:00:00Z", "schedulerObservedGeneration": 1,
        "conditions": [{"type": "Scheduled", "status": "True", "reason": "Success", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    more(&mut scheduled);
    scheduled
}

fn divided() -> Value {
    json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}})
}

// proves: SCH-events
#[tokio::test]
async fn a_result_has_events_on_the_binding_and_its_template() {
    let plane = fixture_with_events(&["m1", "m2"], binding(json!({})));
    let event = "Normal ScheduleBindingSucceed Binding has been scheduled successfully. Result: {m1:4, m2:4}";
    assert_eq!(
        events(&plane, 2).await,
        binding_and_template_events(&[event])
    );
    plane.tasks.stop().await;
}

// proves: SCH-fit-error-empties, SCH-events
#[tokio::test]
async fn a_binding_that_no_longer_fits_loses_its_result() {
    let nowhere = json!({"clusterAffinity": {"clusterNames": ["m9"]}});
    let there = json!([{"name": "m1", "replicas": 4}]);
    let before = placed(&there, &json!({}), |b| {
        b["spec"]["placement"] = nowhere.clone();
        b["metadata"]["generation"] = 2.into();
    });
    let plane = fixture_with_events(&["m1"], before);
    let after = plane
        .wait_for_binding(|b| condition(b) == ("False", "NoClusterFit"))
        .await;
    assert_eq!(after["spec"].get("clusters"), None);
    let applied = &after["metadata"]["annotations"][well_known_keys::APPLIED_PLACEMENT];
    assert_eq!(applied, &json!(nowhere.to_string()));
    assert_eq!(after["status"]["schedulerObservedGeneration"], 1);
    let event = "Warning ScheduleBindingFailed 0/1 clusters are available: 1 cluster(s) did not match the placement cluster affinity constraint.";
    assert_eq!(
        events(&plane, 2).await,
        binding_and_template_events(&[event])
    );
    plane.tasks.stop().await;
}

// proves: SCH-nowhere
#[tokio::test]
async fn a_binding_is_placed_nowhere_on_purpose() {
    let nowhere = json!({"clusterAffinity": karmada_api::ClusterAffinity::nowhere()});
    let there = json!([{"name": "m1", "replicas": 4}]);
    let before = placed(&there, &json!({}), |b| {
        b["spec"]["placement"] = nowhere.clone();
        b["metadata"]["generation"] = 2.into();
    });
    let plane = fixture_with_events(&["m1"], before);
    let after = plane
        .wait_for_binding(|b| condition(b) == ("True", "PlacedNowhere"))
        .await;
    assert_eq!(after["spec"].get("clusters"), None);
    // The write of the result has raised the generation.
    assert!(after["status"]["schedulerObservedGeneration"].as_i64() >= Some(2));
    let event = "Normal ScheduleBindingSucceed Binding has been scheduled successfully. Result: {}";
    assert_eq!(
        events(&plane, 2).await,
        binding_and_template_events(&[event])
    );
    plane.tasks.stop().await;
}

// proves: SCH-error-keeps
#[tokio::test]
async fn other_failures_keep_the_result() {
    let there = json!([{"name": "m1", "replicas": 4}]);
    let spread = json!({"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 2, "maxGroups": 3}]});
    for (placement, reason) in [(divided(), "Unschedulable"), (spread, "SchedulerError")] {
        let before = placed(&there, &json!({}), |b| {
            b["spec"]["placement"] = placement.clone();
            b["spec"]["replicas"] = 50.into();
            b["metadata"]["generation"] = 2.into();
        });
        let plane = SchedulerFixture::start(&["m1"], before).await;
        let after = plane
            .wait_for_binding(|b| condition(b) == ("False", reason))
            .await;
        assert_eq!(after["spec"]["clusters"], there);
        assert_eq!(
            after["metadata"]["annotations"],
            json!({well_known_keys::APPLIED_PLACEMENT: "{}"})
        );
        assert_eq!(after["status"]["lastScheduledTime"], "2026-01-01T00:00:00Z");
        plane.tasks.stop().await;
    }
}

// proves: SCH-no-fit-refused
#[tokio::test(start_paused = true)]
async fn a_rejected_removal_is_reported_with_its_cause_and_retried() {
    let there = json!([{"name": "m1", "replicas": 4}]);
    let before = placed(&there, &json!({}), |b| {
        b["spec"]["placement"] = json!({"clusterAffinity": {"clusterNames": ["m9"]}});
    });
    let fake = FakeApi::new();
    let member = crate::core::tests::cluster("m1", 10, json!({}));
    fake.seed(&CLUSTERS, member.value().unwrap());
    fake.seed(&BINDINGS, before);
    fake.on_call(|call| {
        let result = call.verb == "patch" && call.subresource.is_empty();
        result.then(|| machinery::Status::failure(500, "InternalError", "broken").into())
    });
    let plane = SchedulerFixture::with_gates(fake, FeatureGates::default());
    let rejection = plane
        .wait_for_binding(|b| condition(b) == ("False", "NoClusterFit"))
        .await;
    assert_eq!(
        rejection["status"]["conditions"][0]["message"],
        "[0/1 clusters are available: 1 cluster(s) did not match the placement cluster affinity constraint., broken]"
    );
    assert_eq!(rejection["spec"]["clusters"], there);
    plane.fake.on_call(|_| None);
    tokio::time::sleep(Duration::from_secs(11)).await;
    plane
        .wait_for_binding(|b| b["spec"].get("clusters").is_none())
        .await;
    plane.tasks.stop().await;
}

fn terms(names: &[(&str, &str)]) -> Value {
    let term =
        |(name, cluster): &(&str, &str)| json!({"affinityName": name, "clusterNames": [cluster]});
    let mut placement = divided();
    placement["clusterAffinities"] = names.iter().map(term).collect();
    placement
}

// proves: SCH-terms-events
#[tokio::test]
async fn every_failed_term_has_an_event() {
    let plane = fixture_with_events(
        &["m1", "m2"],
        binding(terms(&[("x", "m8"), ("y", "m9"), ("z", "m2")])),
    );
    let failed = |index: usize| {
        format!(
            "Warning ScheduleBindingFailed failed to schedule ResourceBinding(n/web-deployment) with clusterAffiliates \
             index({index}): 0/2 clusters are available: 2 cluster(s) did not match the placement cluster affinity constraint."
        )
    };
    let done =
        "Normal ScheduleBindingSucceed Binding has been scheduled successfully. Result: {m2:4}";
    assert_eq!(
        events(&plane, 6).await,
        binding_and_template_events(&[&failed(0), &failed(1), done])
    );
    plane.tasks.stop().await;
}

// proves: SCH-terms-all-fail
#[tokio::test]
async fn if_all_terms_fail_the_first_failure_decides_about_the_result() {
    let there = json!([{"name": "m1", "replicas": 4}]);
    // The first term fits no cluster: the result is cleared. It lacks capacity: the result stays.
    for (first, second, reason, stays) in [
        ("m9", "m1", "NoClusterFit", false),
        ("m1", "m9", "Unschedulable", true),
    ] {
        let before = placed(&there, &json!({}), |b| {
            b["spec"]["placement"] = terms(&[("x", first), ("y", second)]);
            b["spec"]["replicas"] = 50.into();
            b["status"]["schedulerObservingAffinityName"] = "w".into();
        });
        let plane = SchedulerFixture::start(&["m1"], before).await;
        let after = plane
            .wait_for_binding(|b| condition(b) == ("False", reason))
            .await;
        assert_eq!(after["spec"].get("clusters").is_some(), stays, "{reason}");
        assert_eq!(after["status"]["schedulerObservingAffinityName"], "w");
        plane.tasks.stop().await;
    }
}

// proves: SCH-note
#[tokio::test]
async fn without_a_decision_the_generation_is_observed() {
    let there = json!([{"name": "m1", "replicas": 4}]);
    let before = placed(&there, &divided(), |b| {
        b["metadata"]["generation"] = 5.into()
    });
    let plane = SchedulerFixture::start(&["m1", "m2"], before.clone()).await;
    let after = plane
        .wait_for_binding(|b| b["status"]["schedulerObservedGeneration"] == 5)
        .await;
    for field in ["conditions", "lastScheduledTime"] {
        assert_eq!(after["status"][field], before["status"][field]);
    }
    let writes = plane.fake.writes();
    assert_eq!(writes.len(), 1, "{writes:?}");
    assert_eq!(
        writes[0].body["status"],
        json!({"schedulerObservedGeneration": 5})
    );
    plane.tasks.stop().await;
}

/// The process ended between the two writes of a result that followed a refusal.
// proves: SCH-unreported
#[tokio::test]
async fn a_result_without_its_condition_is_reported() {
    let there = json!([{"name": "m1", "replicas": 4}]);
    let before = placed(&there, &divided(), |b| {
        b["metadata"]["generation"] = 2.into();
        b["status"]["conditions"][0]["status"] = "False".into();
        b["status"]["conditions"][0]["reason"] = "NoClusterFit".into();
    });
    let plane = fixture_with_events(&["m1"], before);
    let after = plane
        .wait_for_binding(|b| condition(b) == ("True", "Success"))
        .await;
    assert_eq!(after["spec"]["clusters"], there);
    assert_eq!(after["status"]["schedulerObservedGeneration"], 2);
    assert_ne!(after["status"]["lastScheduledTime"], "2026-01-01T00:00:00Z");
    let event =
        "Normal ScheduleBindingSucceed Binding has been scheduled successfully. Result: {m1:4}";
    assert_eq!(
        events(&plane, 2).await,
        binding_and_template_events(&[event])
    );
    plane.tasks.stop().await;
}

// proves: SCH-binding-ending
#[tokio::test]
async fn a_terminating_binding_is_reported_and_ignored() {
    let mut ending = binding(json!({}));
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    ending["metadata"]["finalizers"] = json!(["karmada.io/binding-controller"]);
    let plane = fixture_with_events(&["m1"], ending);
    let event =
        "Warning ScheduleBindingFailed skip schedule deleting resourceBinding: n/web-deployment";
    assert_eq!(
        events(&plane, 2).await,
        binding_and_template_events(&[event])
    );
    let writes = plane.fake.writes();
    assert!(writes.iter().all(|w| w.resource == EVENTS), "{writes:?}");
    plane.tasks.stop().await;
}

/// The detector writes the new replicas together with their clusters.
// proves: SCH-events, SCH-scheduled
#[tokio::test]
async fn a_result_written_by_the_detector_is_reported_like_any_other() {
    let duplicated = json!({"replicaScheduling": {"replicaSchedulingType": "Duplicated"}});
    for (placement, before, after, result) in [
        (
            divided(),
            json!([{"name": "m1", "replicas": 4}]),
            json!([{"name": "m1", "replicas": 6}]),
            "{m1:6}",
        ),
        (
            duplicated,
            json!([{"name": "m1", "replicas": 4}, {"name": "m2", "replicas": 4}]),
            json!([{"name": "m1", "replicas": 6}, {"name": "m2", "replicas": 6}]),
            "{m1:6, m2:6}",
        ),
    ] {
        let old = "2026-01-01T00:00:00Z";
        let unseen = placed(&before, &placement, |b| {
            b["metadata"]["generation"] = 2.into()
        });
        let plane = fixture_with_events(&["m1", "m2"], unseen);
        // The first check of a scheduled binding records no event.
        plane
            .wait_for_binding(|b| b["status"]["schedulerObservedGeneration"] == 2)
            .await;
        let mut scaled = plane
            .fake
            .get_object(&BINDINGS, "n", "web-deployment")
            .unwrap();
        scaled["metadata"]["generation"] = 3.into();
        scaled["spec"]["replicas"] = 6.into();
        scaled["spec"]["clusters"] = after;
        plane.fake.seed(&BINDINGS, scaled);
        let done = plane
            .wait_for_binding(|b| b["status"]["schedulerObservedGeneration"] == 3)
            .await;
        assert_ne!(done["status"]["lastScheduledTime"], old);
        let condition = &done["status"]["conditions"][0];
        assert_eq!(
            (&condition["status"], &condition["lastTransitionTime"]),
            (&json!("True"), &json!(old))
        );
        let text = format!(
            "Normal ScheduleBindingSucceed Binding has been scheduled successfully. Result: {result}"
        );
        assert_eq!(
            events(&plane, 2).await,
            binding_and_template_events(&[&text])
        );
        plane.tasks.stop().await;
    }
}

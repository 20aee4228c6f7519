//! Tests of when a binding is retried.

use parking_lot::Mutex;
use tokio::time::Instant;

use super::*;

fn aggregated(replicas: i64) -> Value {
    let mut divided = binding(
        json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}}),
    );
    divided["spec"]["replicas"] = replicas.into();
    divided
}

fn larger_cluster() -> Value {
    crate::core::tests::cluster("m1", 50, json!({}))
        .value()
        .unwrap()
}

/// Times of the attempts to write a result, all of which fail with `refusal`.
fn attempts(
    fake: &FakeApi,
    refusal: impl Fn() -> machinery::Status + Send + Sync + 'static,
) -> Arc<Mutex<Vec<Instant>>> {
    let attempts: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let log = Arc::clone(&attempts);
    fake.on_call(move |call| {
        let result = call.verb == "patch" && call.subresource.is_empty();
        result.then(|| {
            log.lock().push(Instant::now());
            refusal().into()
        })
    });
    attempts
}

fn intervals(attempts: &Mutex<Vec<Instant>>) -> Vec<Duration> {
    let times = attempts.lock();
    times.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

fn start_fixture(
    gates: FeatureGates,
    binding: Value,
) -> (Arc<FakeApi>, impl FnOnce() -> SchedulerFixture) {
    let fake = FakeApi::new();
    let member = crate::core::tests::cluster("m1", 10, json!({}));
    fake.seed(&CLUSTERS, member.value().unwrap());
    fake.seed(&BINDINGS, binding);
    (Arc::clone(&fake), move || {
        SchedulerFixture::with_gates(fake, gates)
    })
}

fn without_priorities() -> FeatureGates {
    FeatureGates::default().with_feature(KarmadaFeature::PriorityBasedScheduling, false)
}

fn server_error() -> machinery::Status {
    machinery::Status::failure(500, "InternalError", "broken")
}

// proves: SCH-queue-backoff, SCH-queue-anew
#[tokio::test(start_paused = true)]
async fn failures_back_off_from_one_second_to_ten() {
    let (fake, start) = start_fixture(FeatureGates::default(), binding(json!({})));
    let attempts = attempts(&fake, server_error);
    let plane = start();
    tokio::time::sleep(Duration::from_secs(40)).await;
    let seconds: Vec<u64> = intervals(&attempts).iter().map(Duration::as_secs).collect();
    assert_eq!(seconds, [1, 2, 4, 8, 10, 10]);
    // A change is handled at once, and resets the count of failures.
    let mut changed = binding(json!({}));
    changed["metadata"]["generation"] = 2.into();
    let now = Instant::now();
    attempts.lock().clear();
    plane.fake.seed(&BINDINGS, changed);
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(attempts.lock()[0] - now < Duration::from_secs(1));
    let seconds: Vec<u64> = intervals(&attempts).iter().map(Duration::as_secs).collect();
    assert_eq!(seconds, [1, 2, 4]);
    plane.tasks.stop().await;
}

// proves: SCH-queue-gate
#[tokio::test(start_paused = true)]
async fn without_priorities_failures_have_the_default_backoff() {
    let (fake, start) = start_fixture(without_priorities(), binding(json!({})));
    let attempts = attempts(&fake, server_error);
    let plane = start();
    tokio::time::sleep(Duration::from_secs(3000)).await;
    let gaps = intervals(&attempts);
    assert!(
        gaps[0] >= Duration::from_millis(5) && gaps[0] < Duration::from_millis(10),
        "{gaps:?}"
    );
    for pair in gaps.windows(2) {
        let (first, second) = (pair[0].as_millis(), pair[1].as_millis());
        assert!(
            second >= (first * 2 - 8).min(1_000_000) && second <= 1_000_008,
            "{gaps:?}"
        );
    }
    assert!(gaps.last().unwrap().as_secs() == 1000, "{gaps:?}");
    plane.tasks.stop().await;
}

// proves: SCH-queue-unschedulable, SCH-cluster-quiet
#[tokio::test(start_paused = true)]
async fn unschedulable_bindings_are_retried_after_five_minutes_and_not_by_capacity_changes() {
    let (_, start) = start_fixture(FeatureGates::default(), aggregated(30));
    let plane = start();
    let began = Instant::now();
    plane
        .wait_for_binding(|b| condition(b).1 == "Unschedulable")
        .await;
    plane.fake.seed(&CLUSTERS, larger_cluster());
    tokio::time::sleep(Duration::from_secs(290)).await;
    assert_eq!(
        condition(&plane.wait_for_binding(|_| true).await).1,
        "Unschedulable"
    );
    tokio::time::sleep(Duration::from_secs(8)).await;
    plane.wait_for_binding(|b| condition(b).0 == "True").await;
    assert!(began.elapsed() >= Duration::from_secs(300));
    plane.tasks.stop().await;
}

// proves: SCH-queue-gate
#[tokio::test(start_paused = true)]
async fn without_priorities_unschedulable_bindings_have_the_default_backoff() {
    let (_, start) = start_fixture(without_priorities(), aggregated(30));
    let plane = start();
    plane
        .wait_for_binding(|b| condition(b).1 == "Unschedulable")
        .await;
    plane.fake.seed(&CLUSTERS, larger_cluster());
    let changed = Instant::now();
    plane.wait_for_binding(|b| condition(b).0 == "True").await;
    assert!(changed.elapsed() < Duration::from_secs(10));
    plane.tasks.stop().await;
}

// proves: SCH-no-fit-final
#[tokio::test(start_paused = true)]
async fn a_binding_that_fits_no_cluster_is_not_retried_by_itself() {
    let placement = json!({"clusterAffinity": {"fieldSelector": {"matchExpressions": [
        {"key": "provider", "operator": "In", "values": ["p"]}]}}});
    let (_, start) = start_fixture(FeatureGates::default(), binding(placement));
    let plane = start();
    plane
        .wait_for_binding(|b| condition(b).1 == "NoClusterFit")
        .await;
    // The generation is unchanged, so this update enqueues nothing.
    let more = json!({"spec": {"provider": "p"}, "metadata": {"generation": 1}});
    let fitting = crate::core::tests::cluster("m1", 10, more).value().unwrap();
    plane.fake.seed(&CLUSTERS, fitting);
    tokio::time::sleep(Duration::from_secs(5000)).await;
    assert_eq!(
        condition(&plane.wait_for_binding(|_| true).await).1,
        "NoClusterFit"
    );
    let mut changed = plane.wait_for_binding(|_| true).await;
    changed["metadata"]["generation"] = 9.into();
    plane.fake.seed(&BINDINGS, changed);
    plane.wait_for_binding(|b| condition(b).0 == "True").await;
    plane.tasks.stop().await;
}

// proves: SCH-queue-namespace
#[tokio::test(start_paused = true)]
async fn nothing_is_retried_in_a_terminating_namespace() {
    let (fake, start) = start_fixture(FeatureGates::default(), binding(json!({})));
    let attempts = attempts(&fake, || {
        let mut status = machinery::Status::failure(403, "Forbidden", "it ends");
        let cause = json!({"causes": [{"reason": "NamespaceTerminating", "message": "it ends"}]});
        status.details = serde_json::from_value(cause).unwrap();
        status
    });
    let plane = start();
    tokio::time::sleep(Duration::from_secs(1000)).await;
    assert_eq!(attempts.lock().len(), 1);
    assert_eq!(plane.fake.writes().len(), 0);
    plane.tasks.stop().await;
}

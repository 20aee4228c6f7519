//! Tests of the controller against a fake API, with a clock that stands still.

use std::sync::Arc;
use std::time::Duration;

use client::{Api, ApiResource, InformerFactory, ShutdownToken, TaskGroup};
use client_fake::FakeApi;
use flotilla_runtime::EventRecorder;
use karmada_api::resources::{CRON_FEDERATED_HPAS, FEDERATED_HPAS};
use machinery::Gvr;
use machinery::time::FakeClock;
use serde_json::{Value, json};

use crate::fixture::{context, options, pass, wait_until};
use crate::start;

static EVENTS: Gvr = Gvr::from_static("", "v1", "events");
const START: &str = "2026-01-01T00:01:00Z";
const MINUTE: Duration = Duration::from_mins(1);

struct CronFixture {
    api: Arc<FakeApi>,
    clock: Arc<FakeClock>,
    _informers: InformerFactory,
    _tasks: TaskGroup,
}

impl CronFixture {
    async fn start() -> Self {
        let api = FakeApi::new();
        api.add_resource(ApiResource {
            resource: FEDERATED_HPAS.clone(),
            kind: "FederatedHPA".into(),
            namespaced: true,
            verbs: vec!["get".into(), "patch".into()],
            subresources: vec![],
            categories: vec![],
            short_names: vec![],
        });
        api.seed(
            &FEDERATED_HPAS,
            json!({"apiVersion": "autoscaling.karmada.io/v1alpha1",
            "kind": "FederatedHPA", "metadata": {"name": "f", "namespace": "n"},
            "spec": {"minReplicas": 1, "maxReplicas": 9}}),
        );
        let clock = Arc::new(FakeClock::new(START.parse().unwrap()));
        let tasks = TaskGroup::new(ShutdownToken::new());
        let control: Arc<dyn Api> = api.clone();
        let mut context = context(&control, &tasks);
        let mut options = options(&context);
        options.enabled.federated_hpa = false;
        context.clock = clock.clone();
        context.recorder = EventRecorder::new(control, "manager", clock.clone(), &tasks);
        let informers = context.informers.clone();
        start(&context, &options).await;
        Self {
            api,
            clock,
            _informers: informers,
            _tasks: tasks,
        }
    }

    fn seed(&self, target: &str, rules: Value) {
        self.api.seed(
            &CRON_FEDERATED_HPAS,
            json!({"apiVersion": "autoscaling.karmada.io/v1alpha1",
            "kind": "CronFederatedHPA", "metadata": {"name": "c", "namespace": "n", "uid": "u"},
            "spec": {"rules": rules, "scaleTargetRef": {"name": target,
                "apiVersion": "autoscaling.karmada.io/v1alpha1", "kind": "FederatedHPA"}}}),
        );
    }

    /// Lets time pass, for the clock and for timers.
    async fn pass(&self, time: Duration) {
        pass(&self.clock, time).await;
    }

    fn history(&self) -> Value {
        let object = self.api.get_object(&CRON_FEDERATED_HPAS, "n", "c").unwrap();
        object["status"]["executionHistories"][0].clone()
    }

    fn bounds(&self) -> [Value; 2] {
        let object = self.api.get_object(&FEDERATED_HPAS, "n", "f").unwrap();
        ["minReplicas", "maxReplicas"].map(|field| object["spec"][field].clone())
    }

    async fn wait_until(&self, what: &str, done: impl Fn(&Self) -> bool) {
        wait_until(what, || self.history(), || done(self)).await;
    }
}

fn rule(schedule: &str, min: i64, max: i64) -> Value {
    json!({"name": "r", "schedule": schedule, "timeZone": "UTC", "targetMinReplicas": min,
        "targetMaxReplicas": max})
}

// proves: CRH-bounds, CRH-history
#[tokio::test(start_paused = true)]
async fn bounds_are_set_at_each_time() {
    let fixture = CronFixture::start().await;
    fixture.seed("f", json!([rule("*/5 * * * *", 3, 20)]));
    fixture
        .wait_until("the next time", |f| {
            f.history()["nextExecutionTime"] == "2026-01-01T00:05:00Z"
        })
        .await;
    fixture.pass(MINUTE * 3).await;
    assert_eq!(fixture.bounds(), [json!(1), json!(9)]);
    fixture.pass(MINUTE).await;
    fixture
        .wait_until("bounds", |f| f.bounds() == [json!(3), json!(20)])
        .await;
    let done = |time: &str| {
        json!({"scheduleTime": time, "executionTime": time, "appliedMinReplicas": 3,
            "appliedMaxReplicas": 20})
    };
    let first = done("2026-01-01T00:05:00Z");
    fixture
        .wait_until("the history", |f| {
            f.history()["successfulExecutions"] == json!([first])
                && f.history()["nextExecutionTime"] == "2026-01-01T00:10:00Z"
        })
        .await;
    let writes = fixture.api.writes().len();
    fixture.pass(MINUTE * 5).await;
    let both = json!([done("2026-01-01T00:10:00Z"), first]);
    fixture
        .wait_until("both", |f| f.history()["successfulExecutions"] == both)
        .await;
    // Bounds that are right already are not written again.
    assert_eq!(fixture.api.writes().len(), writes + 1);
}

// proves: CRH-failed, CRH-suspended
#[tokio::test(start_paused = true)]
async fn failures_are_recorded_and_suspended_rules_rest() {
    let fixture = CronFixture::start().await;
    fixture.seed("missing", json!([rule("*/5 * * * *", 3, 20)]));
    fixture
        .wait_until("a time", |f| f.history()["nextExecutionTime"].is_string())
        .await;
    fixture.pass(MINUTE * 4).await;
    fixture
        .wait_until("a failure", |f| f.history()["failedExecutions"].is_array())
        .await;
    let failed = fixture.history()["failedExecutions"].clone();
    let message = failed[0]["message"].as_str().unwrap();
    assert!(message.contains("missing"), "{message}");
    let failure = || {
        let mut events = fixture.api.list_objects(&EVENTS).into_iter();
        events.find(|event| event["reason"] == "ScaleFailed")
    };
    fixture
        .wait_until("the event", |_| failure().is_some())
        .await;
    let event = failure().unwrap();
    assert_eq!(event["source"]["component"], "cronfederatedhpa-controller");
    assert_eq!(event["message"], failed[0]["message"]);

    let mut suspended = fixture
        .api
        .get_object(&CRON_FEDERATED_HPAS, "n", "c")
        .unwrap();
    suspended["spec"]["rules"][0]["suspend"] = json!(true);
    fixture.api.seed(&CRON_FEDERATED_HPAS, suspended);
    fixture
        .wait_until("no next time", |f| {
            f.history()["nextExecutionTime"].is_null()
        })
        .await;
    fixture.pass(MINUTE * 30).await;
    assert_eq!(fixture.history()["failedExecutions"], failed);
}

// proves: CRH-conflict
#[tokio::test(start_paused = true)]
async fn executions_outlive_conflicts() {
    let fixture = CronFixture::start().await;
    fixture.seed("f", json!([rule("*/5 * * * *", 3, 20)]));
    fixture
        .wait_until("a time", |f| f.history()["nextExecutionTime"].is_string())
        .await;
    fixture.api.pause_watches(&CRON_FEDERATED_HPAS);
    // The informer does not see this change, so that the write of the status conflicts.
    let mut changed = fixture
        .api
        .get_object(&CRON_FEDERATED_HPAS, "n", "c")
        .unwrap();
    changed["metadata"]["labels"] = json!({"a": "b"});
    fixture.api.seed(&CRON_FEDERATED_HPAS, changed);
    fixture.pass(MINUTE * 4).await;
    fixture
        .wait_until("bounds", |f| f.bounds() == [json!(3), json!(20)])
        .await;
    assert!(fixture.history()["successfulExecutions"].is_null());
    fixture.api.resume_watches(&CRON_FEDERATED_HPAS);
    fixture
        .wait_until("the history", |f| {
            f.history()["successfulExecutions"]
                .as_array()
                .is_some_and(|all| all.len() == 1)
        })
        .await;
}

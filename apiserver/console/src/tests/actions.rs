//! Actions show their plan first, and write only what it said.

use http::StatusCode;
use karmada_api::rollout::ROLLOUTS;
use serde_json::json;

use super::fixture::{ConsoleFixture, DEPLOYMENTS, claimed_fleet, fleet};

const APPROVE: &str = "/workloads/shop/web%2Ddeployment/approve?stage=everywhere";
const SCALE: &str = "/workloads/shop/web%2Ddeployment/scale";

// proves: CON-plan-first, CON-approve
#[tokio::test]
async fn a_stage_is_approved_as_its_plan_says() {
    let fixture = ConsoleFixture::start(fleet()).await;
    let cookie = fixture.login().await;
    let plan = fixture.get(APPROVE, &cookie).await;
    assert_eq!(plan.status, StatusCode::OK, "{}", plan.text);
    assert!(plan.text.contains("<code>web-2</code>"), "{}", plan.text);
    assert!(
        plan.text.contains("<li class=\"chip\">west</li>"),
        "{}",
        plan.text
    );
    let title = "<h1>Approve stage everywhere of web</h1>";
    assert!(plan.text.contains(title), "{}", plan.text);
    assert!(plan.text.contains(">Back to web</a>"), "{}", plan.text);
    assert_eq!(fixture.api.writes(), []);
    let form = ConsoleFixture::plan_form(&plan, "&stage=everywhere");
    let done = fixture.post(APPROVE, &cookie, &form).await;
    assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.text);
    assert_eq!(
        done.location(),
        "/workloads/shop/web%2Ddeployment?done=approved"
    );
    let writes = fixture.api.writes();
    assert_eq!(writes.len(), 1);
    assert_eq!((writes[0].verb, &writes[0].resource), ("patch", &ROLLOUTS));
    let approvals = json!([{"stage": "everywhere", "revision": "web-2"}]);
    assert_eq!(writes[0].body["spec"]["approvals"], approvals);
    let page = fixture.get(done.location(), &cookie).await;
    assert!(
        page.text.contains("The stage is approved."),
        "{}",
        page.text
    );
}

// proves: CON-plan-stale
#[tokio::test]
async fn a_plan_that_is_out_of_date_writes_nothing() {
    let fixture = ConsoleFixture::start(fleet()).await;
    let cookie = fixture.login().await;
    let plan = fixture.get(APPROVE, &cookie).await;
    let mut changed = fixture
        .api
        .get_object(&ROLLOUTS, "shop", "web-deployment")
        .unwrap();
    changed["status"]["targetRevision"] = json!("web-3");
    fixture.api.seed(&ROLLOUTS, changed);
    let form = ConsoleFixture::plan_form(&plan, "&stage=everywhere");
    let page = fixture.post(APPROVE, &cookie, &form).await;
    assert_eq!(page.status, StatusCode::CONFLICT);
    assert!(
        page.text
            .contains("it has changed since the plan was shown"),
        "{}",
        page.text
    );
    assert_eq!(fixture.api.writes(), []);
}

// proves: CON-plan-stale
#[tokio::test]
async fn news_of_a_status_stop_no_plan() {
    let fixture = ConsoleFixture::start(fleet()).await;
    let cookie = fixture.login().await;
    let plan = fixture.get(APPROVE, &cookie).await;
    let rollout = fixture.api.get_object(&ROLLOUTS, "shop", "web-deployment");
    let mut rollout = rollout.unwrap();
    rollout["status"]["conditions"] = json!([]);
    fixture.api.seed(&ROLLOUTS, rollout);
    let approved = ConsoleFixture::plan_form(&plan, "&stage=everywhere");
    let done = fixture.post(APPROVE, &cookie, &approved).await;
    assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.text);

    let plan = fixture.get(&format!("{SCALE}?replicas=0"), &cookie).await;
    let mut template = fixture.api.get_object(&DEPLOYMENTS, "shop", "web").unwrap();
    template["status"]["readyReplicas"] = json!(1);
    fixture.api.seed(&DEPLOYMENTS, template);
    let scaled = ConsoleFixture::plan_form(&plan, "&replicas=0");
    let done = fixture.post(SCALE, &cookie, &scaled).await;
    assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.text);
}

#[tokio::test]
async fn what_cannot_be_done_is_said_instead_of_a_plan() {
    let fixture = ConsoleFixture::start(fleet()).await;
    let cookie = fixture.login().await;
    let base = "/workloads/shop/web%2Ddeployment";
    for (action, message) in [
        ("approve?stage=nowhere", "has no stage"),
        ("resume", "is not paused"),
        ("scale?replicas=many", "must be a whole number"),
        ("scale?replicas=-1", "must be a whole number"),
    ] {
        let page = fixture.get(&format!("{base}/{action}"), &cookie).await;
        assert_eq!(page.status, StatusCode::CONFLICT, "{action}");
        assert!(page.text.contains(message), "{action}: {}", page.text);
    }
}

// proves: CON-scale
#[tokio::test]
async fn replicas_are_planned_and_then_written() {
    let fixture = ConsoleFixture::start(claimed_fleet()).await;
    let cookie = fixture.login().await;
    let plan = fixture.get(&format!("{SCALE}?replicas=9"), &cookie).await;
    assert_eq!(plan.status, StatusCode::OK, "{}", plan.text);
    assert!(
        plan.text
            .contains("<strong>9</strong> replicas instead of 3"),
        "{}",
        plan.text
    );
    assert!(
        plan.text
            .contains("<caption class=\"visually-hidden\">Replicas by cluster")
    );
    assert_eq!(fixture.api.writes(), []);
    let form = ConsoleFixture::plan_form(&plan, "&replicas=9");
    let done = fixture.post(SCALE, &cookie, &form).await;
    assert_eq!(
        done.location(),
        "/workloads/shop/web%2Ddeployment?done=scaled"
    );
    let scaled = fixture.api.get_object(&DEPLOYMENTS, "shop", "web").unwrap();
    assert_eq!(scaled["spec"]["replicas"], 9);
    let again = fixture.post(SCALE, &cookie, &form).await;
    assert_eq!(again.status, StatusCode::CONFLICT, "{}", again.text);
}

//! Moves of workloads, and what takes them back.

use http::StatusCode;
use http::header::ORIGIN;
use karmada_api::history::TEMPLATE_HISTORIES;
use karmada_api::resources::{BINDINGS, CLUSTERS, POLICIES};
use serde_json::json;

use super::fixture::{ConsoleFixture, PlannedPage, binding, claimed_fleet, cluster, form_request};

const WEB: &str = "/workloads/shop/web%2Ddeployment";
const MOVE: &str = "/workloads/shop/web%2Ddeployment/move";
const EAST_TO_WEST: &str = "&from=east&to=west";

// proves: CON-move, CON-plan-first
#[tokio::test]
async fn a_move_changes_the_policy_that_names_the_cluster() {
    let fixture = ConsoleFixture::start(claimed_fleet()).await;
    let cookie = fixture.login().await;
    let page = fixture.get(WEB, &cookie).await;
    assert!(
        page.text.contains(&format!("href=\"{MOVE}\"")),
        "{}",
        page.text
    );
    let form = fixture.get(MOVE, &cookie).await;
    assert_eq!(form.status, StatusCode::OK, "{}", form.text);
    assert!(!form.text.contains("name=\"version\""), "{}", form.text);
    let planned = PlannedPage::open(claimed_fleet(), &format!("{MOVE}?{EAST_TO_WEST}")).await;
    planned.assert_shows(&[
        "clusterNames",
        "of 1 template would move",
        "Move web to west",
    ]);
    let done = planned.confirm(EAST_TO_WEST).await;
    assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.text);
    assert_eq!(done.location(), format!("{WEB}?done=moved"));
    let api = &planned.fixture.api;
    let policy = api.get_object(&POLICIES, "shop", "web").unwrap();
    let names = &policy["spec"]["placement"]["clusterAffinity"]["clusterNames"];
    assert_eq!(*names, json!(["west"]));
    assert_eq!(
        policy["metadata"]["labels"].as_object().map(|l| l.len()),
        Some(1)
    );
    let again = planned.confirm(EAST_TO_WEST).await;
    assert_eq!(again.status, StatusCode::CONFLICT);
    assert_eq!(api.writes().len(), 1);
}

// proves: CON-move, CON-plan-stale, CON-csrf
#[tokio::test]
async fn a_move_that_is_not_as_it_was_planned_writes_nothing() {
    let planned = PlannedPage::open(claimed_fleet(), &format!("{MOVE}?{EAST_TO_WEST}")).await;
    let confirmed = planned.form(EAST_TO_WEST);
    let elsewhere = planned.form("&from=east&to=%3Cb%3E");
    let PlannedPage {
        fixture, cookie, ..
    } = planned;
    for (query, message) in [
        ("from=west&to=east", "does not name the cluster west"),
        ("from=east&to=east", "choose two different clusters"),
    ] {
        let page = fixture.get(&format!("{MOVE}?{query}"), &cookie).await;
        assert_eq!(page.status, StatusCode::CONFLICT, "{query}");
        assert!(page.text.contains(message), "{}", page.text);
    }
    let mut foreign = form_request(MOVE, &cookie, &confirmed);
    let origin = "http://evil.example".parse().unwrap();
    foreign.headers_mut().insert(ORIGIN, origin);
    assert_eq!(fixture.send(foreign).await.status, StatusCode::FORBIDDEN);
    let page = fixture.post(MOVE, &cookie, &elsewhere).await;
    assert_eq!(page.status, StatusCode::CONFLICT, "{}", page.text);
    assert!(!page.text.contains("<b>"), "{}", page.text);
    let mut policy = fixture.api.get_object(&POLICIES, "shop", "web").unwrap();
    policy["spec"]["placement"]["clusterAffinity"]["clusterNames"] = json!(["east", "north"]);
    fixture.api.seed(&POLICIES, policy);
    let page = fixture.post(MOVE, &cookie, &confirmed).await;
    assert_eq!(page.status, StatusCode::CONFLICT);
    assert!(
        page.text
            .contains("it has changed since the plan was shown"),
        "{}",
        page.text
    );
    assert_eq!(fixture.api.writes(), []);
}

// proves: CON-undo-move, CON-plan-stale
#[tokio::test]
async fn the_last_move_is_planned_back_and_taken_back() {
    let api = claimed_fleet();
    api.seed(&CLUSTERS, cluster("west", "True", ""));
    let mut bound = binding("web", &[("east", 2), ("west", 1)]);
    bound["spec"]["placement"] = json!({"replicaScheduling": {"replicaSchedulingType": "Divided"}});
    api.seed(&BINDINGS, bound.clone());
    let changes =
        json!([{"cluster": "east", "from": 1, "to": 2}, {"cluster": "west", "from": 2, "to": 1}]);
    api.seed(
        &TEMPLATE_HISTORIES,
        json!({"metadata": {"name": "web-deployment", "namespace": "shop"}, "entries": [
            {"type": "Placement", "reason": "Rescheduled", "changes": changes}]}),
    );
    let fixture = ConsoleFixture::start(api).await;
    let cookie = fixture.login().await;
    let undo = format!("{WEB}/undo");
    let page = fixture.get(WEB, &cookie).await;
    assert!(
        page.text.contains(&format!("href=\"{undo}\"")),
        "{}",
        page.text
    );
    let plan = fixture.get(&undo, &cookie).await;
    assert_eq!(plan.status, StatusCode::OK, "{}", plan.text);
    assert!(
        plan.text.contains("had before its last move"),
        "{}",
        plan.text
    );
    assert_eq!(fixture.api.writes(), []);
    // The binding moves, and moves back: the plan is about the same state again.
    let mut moved = bound.clone();
    moved["spec"]["clusters"] = json!([{"name": "east", "replicas": 3}]);
    fixture.api.seed(&BINDINGS, moved);
    let confirmed = ConsoleFixture::plan_form(&plan, "");
    let stale = fixture.post(&undo, &cookie, &confirmed).await;
    assert_eq!(stale.status, StatusCode::CONFLICT, "{}", stale.text);
    let uid = fixture
        .api
        .get_object(&BINDINGS, "shop", "web-deployment")
        .unwrap()["metadata"]["uid"]
        .clone();
    bound["metadata"]["uid"] = uid;
    fixture.api.seed(&BINDINGS, bound);
    let plan = fixture.get(&undo, &cookie).await;
    let confirmed = ConsoleFixture::plan_form(&plan, "");
    let done = fixture.post(&undo, &cookie, &confirmed).await;
    assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.text);
    let bound = fixture
        .api
        .get_object(&BINDINGS, "shop", "web-deployment")
        .unwrap();
    let expected = json!([{"name": "east", "replicas": 1}, {"name": "west", "replicas": 2}]);
    assert_eq!(bound["spec"]["clusters"], expected);
}

// proves: CON-undo-move, CON-rollback
#[tokio::test]
async fn what_cannot_be_taken_back_is_said() {
    let fixture = ConsoleFixture::start(claimed_fleet()).await;
    let cookie = fixture.login().await;
    for (action, message) in [
        ("undo", "deployment/web has not moved"),
        ("rollback?revision=7", "unable to find specified revision 7"),
    ] {
        let page = fixture.get(&format!("{WEB}/{action}"), &cookie).await;
        assert_eq!(page.status, StatusCode::CONFLICT, "{}", page.text);
        assert!(page.text.contains(message), "{message} in {}", page.text);
    }
    let form = fixture.get(&format!("{WEB}/rollback"), &cookie).await;
    assert_eq!(form.status, StatusCode::OK, "{}", form.text);
    assert_eq!(fixture.api.writes(), []);
}

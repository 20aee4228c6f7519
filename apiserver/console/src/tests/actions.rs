//! Actions show their plan first, and write only what it said.

use client::Error;
use client_fake::FakeApi;
use http::StatusCode;
use karmada_api::rollout::ROLLOUTS;
use machinery::{Gvr, Status};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::fixture::{ConsoleFixture, DEPLOYMENTS, PlannedPage, claimed_fleet, fleet};

const APPROVE: &str = "/workloads/shop/web%2Ddeployment/approve?stage=everywhere";
static CONTROLLER_REVISIONS: Gvr = Gvr::from_static("apps", "v1", "controllerrevisions");
const SCALE: &str = "/workloads/shop/web%2Ddeployment/scale";

// proves: CON-plan-first, CON-approve
#[tokio::test]
async fn a_stage_is_approved_as_its_plan_says() {
    let planned = PlannedPage::open(fleet(), APPROVE).await;
    planned.assert_shows(&[
        "<code>web-2</code>",
        "<li class=\"chip\">west</li>",
        "<h1>Approve stage everywhere of web</h1>",
        ">Back to web</a>",
    ]);
    let done = planned.confirm("&stage=everywhere").await;
    let PlannedPage {
        fixture, cookie, ..
    } = planned;
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

fn revision_content(image: &str) -> Value {
    let template = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop"}, "spec": {"image": image}});
    json!({"template": template, "overridePolicies": []})
}

/// Stores a revision of `web`, and returns its name.
fn seed_revision(api: &FakeApi, number: i64, content: &Value) -> String {
    // The name of a revision has the hash of its content.
    let hash = Sha256::digest(content.to_string().as_bytes());
    let hash: String = hash[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let name = format!("web-deployment-{hash}");
    api.seed(
        &CONTROLLER_REVISIONS,
        json!({"metadata": {"name": name, "namespace": "shop"}, "revision": number, "data": content}),
    );
    name
}

/// The plan of an approval for a cluster that has one content, and its revision; the target has the
/// other content.
async fn planned_approval(before: &Value, after: &Value) -> (PlannedPage, String) {
    let api = fleet();
    let (old, new) = (
        seed_revision(&api, 1, before),
        seed_revision(&api, 2, after),
    );
    let mut staged = api.get_object(&ROLLOUTS, "shop", "web-deployment").unwrap();
    staged["status"]["targetRevision"] = json!(new);
    staged["status"]["stages"][1]["clusters"][0]["revision"] = json!(old);
    api.seed(&ROLLOUTS, staged);
    (PlannedPage::open(api, APPROVE).await, old)
}

// proves: CON-approve, CON-escape
#[tokio::test]
async fn an_approval_shows_what_each_cluster_gets() {
    let (before, after) = (revision_content("web:1"), revision_content("<b>:2"));
    let (planned, old) = planned_approval(&before, &after).await;
    planned.assert_shows(&[
        &format!("In west, which has <code>{old}</code>"),
        "spec.image: &quot;web:1&quot; -&gt; &quot;&lt;b&gt;:2&quot;",
    ]);
    let text = &planned.plan.text;
    assert!(!text.contains("cannot be shown"), "{text}");
}

// proves: CON-approve
#[tokio::test]
async fn an_approval_shows_what_override_policies_change() {
    let before = revision_content("web:1");
    let mut after = before.clone();
    after["overridePolicies"] = json!([{"metadata": {"name": "web", "namespace": "shop"},
        "spec": {"resourceSelectors": [{"kind": "Deployment"}], "overrideRules": [{"overriders":
            {"imageOverrider": [{"component": "Tag", "operator": "replace", "value": "2"}]}}]}}]);
    let (planned, _) = planned_approval(&before, &after).await;
    planned.assert_shows(&[
        "OverridePolicy shop/web (added): spec.overrideRules[0].overriders.imageOverrider[0].value: (absent) -&gt; &quot;2&quot;",
    ]);
    let text = &planned.plan.text;
    assert!(!text.contains("stays the same"), "{text}");
}

// proves: CON-approve
#[tokio::test]
async fn an_approval_says_that_the_content_is_the_same_only_of_the_same_revision() {
    let content = revision_content("web:1");
    let (planned, _) = planned_approval(&content, &content).await;
    planned.assert_shows(&["Its content stays the same."]);
    // The labels that Works add are not compared.
    let mut relabeled = content.clone();
    relabeled["template"]["metadata"]["labels"] = json!({"a.karmada.io/b": "c"});
    let (planned, _) = planned_approval(&content, &relabeled).await;
    planned.assert_shows(&["Its content changes; in which fields is not known."]);
}

// proves: CON-approve, CON-rights
#[tokio::test]
async fn a_stage_is_approved_without_the_right_to_read_revisions() {
    let api = fleet();
    api.on_call(|call| {
        let is_revision = call.resource == Some(&CONTROLLER_REVISIONS);
        is_revision.then(|| Error::from(Status::failure(403, "Forbidden", "no <revisions>")))
    });
    let planned = PlannedPage::open(api, APPROVE).await;
    planned.assert_shows(&["What it changes cannot be shown</strong><p>no &lt;revisions&gt;"]);
}

// proves: CON-plan-stale
#[tokio::test]
async fn a_plan_that_is_out_of_date_writes_nothing() {
    let planned = PlannedPage::open(fleet(), APPROVE).await;
    let fixture = &planned.fixture;
    let mut changed = fixture
        .api
        .get_object(&ROLLOUTS, "shop", "web-deployment")
        .unwrap();
    changed["status"]["targetRevision"] = json!("web-3");
    fixture.api.seed(&ROLLOUTS, changed);
    let page = planned.confirm("&stage=everywhere").await;
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
    let planned = PlannedPage::open(fleet(), APPROVE).await;
    let api = &planned.fixture.api;
    let rollout = api.get_object(&ROLLOUTS, "shop", "web-deployment");
    let mut rollout = rollout.unwrap();
    rollout["status"]["conditions"] = json!([]);
    api.seed(&ROLLOUTS, rollout);
    let done = planned.confirm("&stage=everywhere").await;
    assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.text);

    let planned = PlannedPage::open(fleet(), &format!("{SCALE}?replicas=0")).await;
    let api = &planned.fixture.api;
    let mut template = api.get_object(&DEPLOYMENTS, "shop", "web").unwrap();
    template["status"]["readyReplicas"] = json!(1);
    api.seed(&DEPLOYMENTS, template);
    let done = planned.confirm("&replicas=0").await;
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
    let planned = PlannedPage::open(claimed_fleet(), &format!("{SCALE}?replicas=9")).await;
    planned.assert_shows(&[
        "<strong>9</strong> replicas instead of 3",
        "<caption class=\"visually-hidden\">Replicas by cluster",
    ]);
    let done = planned.confirm("&replicas=9").await;
    assert_eq!(
        done.location(),
        "/workloads/shop/web%2Ddeployment?done=scaled"
    );
    let api = &planned.fixture.api;
    let scaled = api.get_object(&DEPLOYMENTS, "shop", "web").unwrap();
    assert_eq!(scaled["spec"]["replicas"], 9);
    let again = planned.confirm("&replicas=9").await;
    assert_eq!(again.status, StatusCode::CONFLICT, "{}", again.text);
}

//! Queries of gates, which the control plane asks in members.

use karmada_api::rollout::{ROLLOUT_POLICIES, ROLLOUTS};
use serde_json::json;

use super::PropagationFixture;
use super::rollouts::rollout_policy;

// proves: ROL-query, ROL-query-service
#[tokio::test]
async fn a_query_is_asked_in_the_member() {
    let plane = PropagationFixture::new().with_web_deployment();
    let mut policy = rollout_policy();
    policy["spec"]["stages"][0]["gates"]["query"] = json!({
        "prometheus": {"name": "prom", "port": 9090, "scheme": "http"},
        "expression": "errors", "operator": "AtMost", "threshold": 0.5, "interval": "1m"});
    plane.control_plane.seed(&ROLLOUT_POLICIES, policy);
    let path = "/api/v1/namespaces/n/services/http:prom:9090/proxy/api/v1/query?query=errors&timeout=5s&limit=2";
    let answer = json!({"status": "success", "data": {"resultType": "vector",
        "result": [{"metric": {}, "value": [1.5, "0.25"]}]}});
    plane.members[0].set_raw_body(path, answer.to_string());
    let plane = plane.started().await;
    plane.complete().await;
    let rollout = plane
        .control_plane
        .get_object(&ROLLOUTS, "n", "web-deployment");
    let stages = &rollout.unwrap()["status"]["stages"];
    let clusters = [0, 1].map(|stage| &stages[stage]["clusters"][0]);
    assert_eq!(clusters[0]["query"]["value"], "0.25", "{stages}");
    assert_eq!(clusters[0]["query"]["satisfied"], true, "{stages}");
    assert_eq!(clusters[1].get("query"), None, "{stages}");
    plane.tasks.stop().await;
}

//! Namespaces in all members.

use serde_json::json;

use crate::fleet::{Fleet, spread};
use crate::objects::{CONFIG_MAPS, NAMESPACES, WORKS, config_map, policy, works_of};

const SKIP: &str = "namespace.karmada.io/skip-auto-propagation";

#[tokio::test]
async fn a_namespace_comes_to_all_members_and_goes_with_all_in_it() {
    let ns = "spaces";
    let fleet = Fleet::shared(ns).await;
    let control = &fleet.control;
    control
        .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "spaces-skipped", "labels": {SKIP: "true"}}}))
        .await;
    control
        .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "spaces-labelled", "labels": {"team": "a"}}}))
        .await;
    spread(&fleet, ns).await;
    spread(&fleet, "spaces-labelled").await;
    let one = fleet.member("member1");
    let there = one.get(&NAMESPACES, "", "spaces-labelled").await.unwrap();
    assert_eq!(there["metadata"]["labels"]["team"], "a");
    assert_eq!(one.get(&NAMESPACES, "", "spaces-skipped").await, None);

    let object = config_map(ns, "c", "v");
    control.create(policy(ns, "p", &object, &["member1"])).await;
    control.create(object).await;
    one.until_there(&CONFIG_MAPS, ns, "c").await;
    control.delete(&NAMESPACES, "", ns).await;
    control.until_gone(&NAMESPACES, "", ns).await;
    for member in &fleet.members {
        member.until_gone(&NAMESPACES, "", ns).await;
        let work = openapi::karmada::names::work("Namespace", ns, "");
        control
            .until_gone(&WORKS, &works_of(&member.name), &work)
            .await;
    }
    assert_eq!(one.get(&CONFIG_MAPS, ns, "c").await, None);

    // The same name may be used again.
    control.namespace(ns).await;
    spread(&fleet, ns).await;
}

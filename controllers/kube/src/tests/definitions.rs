//! Tests of the CustomResourceDefinition controller.

use super::*;
use crate::custom_resource_definitions::DEFINITIONS;

async fn wait_until_established(fixture: &KubeControllersFixture, name: &str) {
    wait_until(&format!("{name} is established"), async || {
        let definition = fixture.get(&DEFINITIONS, "", name).await;
        definition.is_some_and(|d| condition(&d, "Established") == "True")
    })
    .await;
}

fn condition(definition: &Value, kind: &str) -> String {
    let all = definition["status"]["conditions"].as_array();
    let condition = all.and_then(|all| all.iter().find(|c| c["type"] == kind));
    condition.map_or(String::new(), |c| c["status"].as_str().unwrap().to_owned())
}

/// Creates an instance as soon as the server serves the kind.
async fn create_thing(fixture: &KubeControllersFixture, name: &str, finalizers: Value) -> Value {
    let body = json!({"apiVersion": "g.io/v1", "kind": "Thing",
        "metadata": {"name": name, "namespace": "default", "finalizers": finalizers}});
    let at = ResourcePath::collection(&THINGS, "default");
    wait_until("instances are served", async || {
        let options = WriteOptions::default();
        fixture
            .api
            .create(at, body.clone().into(), &options)
            .await
            .is_ok()
    })
    .await;
    fixture.get(&THINGS, "default", name).await.unwrap()
}

#[tokio::test]
async fn names_go_to_the_first_and_then_to_the_next() {
    let fixture = KubeControllersFixture::new().await;
    fixture
        .create(&DEFINITIONS, definition("things", "Thing"))
        .await;
    fixture
        .create(&DEFINITIONS, definition("others", "Thing"))
        .await;
    wait_until_established(&fixture, "things.g.io").await;
    wait_until("the second is rejected", async || {
        let second = fixture.get(&DEFINITIONS, "", "others.g.io").await.unwrap();
        condition(&second, "NamesAccepted") == "False"
            && condition(&second, "Established") == "False"
    })
    .await;
    fixture.delete(&DEFINITIONS, "", "things.g.io", None).await;
    fixture
        .wait_until_gone(&DEFINITIONS, "", "things.g.io")
        .await;
    wait_until_established(&fixture, "others.g.io").await;
    fixture.tasks.stop().await;
}

#[tokio::test]
async fn instances_go_with_their_definition() {
    let fixture = KubeControllersFixture::new().await;
    fixture
        .create(&DEFINITIONS, definition("things", "Thing"))
        .await;
    wait_until_established(&fixture, "things.g.io").await;
    create_thing(&fixture, "free", json!([])).await;
    create_thing(&fixture, "held", json!(["g.io/held"])).await;
    fixture.delete(&DEFINITIONS, "", "things.g.io", None).await;
    fixture.wait_until_gone(&THINGS, "default", "free").await;
    wait_until("the held one is marked", async || {
        let instance = fixture.get(&THINGS, "default", "held").await.unwrap();
        instance["metadata"]["deletionTimestamp"].is_string()
    })
    .await;
    let definition_now = fixture.get(&DEFINITIONS, "", "things.g.io").await.unwrap();
    assert_eq!(condition(&definition_now, "Terminating"), "True");
    fixture
        .merge(
            &THINGS,
            "default",
            "held",
            json!({"metadata": {"finalizers": null}}),
        )
        .await;
    fixture
        .wait_until_gone(&DEFINITIONS, "", "things.g.io")
        .await;

    // A new definition of the same name has no instances.
    fixture
        .create(&DEFINITIONS, definition("things", "Thing"))
        .await;
    wait_until_established(&fixture, "things.g.io").await;
    let parent = create_thing(&fixture, "parent", json!([])).await;
    assert_eq!(fixture.list(&THINGS, "default").await.len(), 1);
    fixture
        .create_config_map("default", "child", owner("g.io/v1", "Thing", &parent))
        .await;
    let of = owner("g.io/v1", "Thing", &parent);
    let sibling = create_thing(&fixture, "sibling", json!([])).await;
    assert_eq!(sibling["metadata"]["name"], "sibling");
    fixture
        .merge(
            &THINGS,
            "default",
            "sibling",
            json!({"metadata": {"ownerReferences": of}}),
        )
        .await;
    fixture.delete(&THINGS, "default", "parent", None).await;
    fixture
        .wait_until_gone(&CONFIG_MAPS, "default", "child")
        .await;
    fixture.wait_until_gone(&THINGS, "default", "sibling").await;
    fixture.tasks.stop().await;
}

//! `adopt`: what runs in a member becomes templates with policies, and nothing in the member
//! changes but the marks of its Works.

use std::collections::BTreeMap;

use harness::ApiServerClient;
use harness::objects::{
    CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, PODS, SECRETS, config_map, deployment, secret,
};
use machinery::Gvr;
use serde_json::Value;

use crate::cli::fixture::{CliFixture, rows};

const NAMESPACE: &str = "orders";

/// The uid and the pod template of each object of some kinds, by kind and name. The generation of a
/// Deployment counts changes of annotations, too.
pub(crate) async fn identities(
    member: &ApiServerClient,
    namespace: &str,
) -> BTreeMap<String, (Value, Value)> {
    let kinds: [&Gvr; 4] = [&CONFIG_MAPS, &SECRETS, &DEPLOYMENTS, &PODS];
    let mut identities = BTreeMap::new();
    for kind in kinds {
        for object in member.list(kind, namespace).await {
            let metadata = &object["metadata"];
            // Every namespace has it, soon.
            if metadata["name"] == "kube-root-ca.crt" {
                continue;
            }
            let key = format!("{} {}", kind.resource, metadata["name"]);
            let template = object["spec"]["template"].clone();
            let identity = (metadata["uid"].clone(), template);
            identities.insert(key, identity);
        }
    }
    identities
}

// proves: ADO-equal, ADO-cluster
#[test]
fn a_namespace_is_adopted_as_it_runs() {
    let fixture = CliFixture::with_changing_clusters();
    let _branch = fixture.join_member("branch", &[]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let member = runtime.block_on(async {
        let kubeconfig = fixture.dir().join("branch/kubeconfig");
        let member = ApiServerClient::connect("branch", &kubeconfig);
        member.create_namespace(NAMESPACE).await;
        for object in [
            config_map(NAMESPACE, "settings", "red"),
            secret(NAMESPACE, "password", "x"),
            deployment(NAMESPACE, "web", 2),
        ] {
            member.create(object).await;
        }
        let is_ready = |d: &Value| d["status"]["readyReplicas"] == 2;
        member
            .wait_until(&DEPLOYMENTS, NAMESPACE, "web", "ready", is_ready)
            .await;
        member
    });
    let before = runtime.block_on(identities(&member, NAMESPACE));
    fixture.run_examples("adopt");
    fixture.run_examples("adopt cluster");
    fixture
        .run(&format!("get deployment web -n {NAMESPACE}"))
        .failed_with("not found");
    fixture.run_examples("adopt namespace");

    let (after, space) = runtime.block_on(async {
        let space = member.get(&NAMESPACES, "", NAMESPACE).await.unwrap();
        (identities(&member, NAMESPACE).await, space)
    });
    assert_eq!(before, after);
    assert_eq!(space["metadata"]["labels"]["karmada.io/managed"], "true");
    let shown = fixture
        .run(&format!("get deployments -n {NAMESPACE} -s all"))
        .succeeded();
    let shown = rows(&shown);
    assert!(
        shown
            .iter()
            .any(|row| row.starts_with("web branch 2/2") && row.ends_with('Y')),
        "{shown:?}"
    );
    let elsewhere = format!("get namespace {NAMESPACE} -C member1");
    fixture.run(&elsewhere).failed_with("not found");

    // A template that says something else would change the member.
    fixture.create(config_map(NAMESPACE, "prices", "template"));
    runtime.block_on(member.create(config_map(NAMESPACE, "prices", "member")));
    let line = format!("adopt namespace {NAMESPACE} -C branch");
    let different = fixture.run(&line);
    assert_eq!(different.code, 1, "{different:?}");
    assert!(
        different
            .out
            .contains("ConfigMap orders/prices, member -> Work:"),
        "{different:?}"
    );
    let report = fixture
        .run(&format!("{line} --allow-changes -o json"))
        .succeeded();
    let report: Value = machinery::json::from_str(&report).unwrap();
    let mut objects = report["objects"].as_array().unwrap().iter();
    let prices = objects.find(|o| o["name"] == "prices").unwrap();
    assert_eq!(prices["result"], "Adopted");
    let line = format!("get configmap prices -n {NAMESPACE} -C branch -o json");
    fixture.wait_for_output(&line, |out| out.contains("\"template\""));
    fixture
        .run("adopt namespace kube-system -C branch")
        .failed_with("belongs to the system");
}

//! The expected objects after a rollout: for each template exactly one binding, one Work in the
//! execution space of each member, and one object in each member.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use harness::ApiServerClient;
use harness::objects::{BINDINGS, DEPLOYMENTS, WORKS, deployment, execution_space, policy};
use serde_json::{Value, json};

/// How long a rollout may make no progress. How long all of it takes depends on the machine.
const STALL_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A policy that propagates every Deployment of the namespace to all `clusters`.
pub(crate) fn policy_for_all_deployments(namespace: &str, clusters: &[&str]) -> Value {
    let mut all = policy(namespace, "all", &deployment(namespace, "", 1), clusters);
    all["spec"]["resourceSelectors"] = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
    all
}

fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or("")
}

fn names<'a>(objects: impl IntoIterator<Item = &'a Value>) -> BTreeSet<String> {
    let name = |o: &Value| text(o, "/metadata/name").to_owned();
    objects.into_iter().map(name).collect()
}

/// Uid and spec of the objects in members, by member and name.
pub(crate) type MemberObjects = BTreeMap<(String, String), (String, Value)>;

/// Waits until exactly the Deployments `expected` are rolled out. If nothing changes any more, the
/// panic shows the difference.
pub(crate) async fn wait_until_rolled_out(
    control: &ApiServerClient,
    members: &[ApiServerClient],
    namespace: &str,
    expected: &BTreeSet<String>,
) -> MemberObjects {
    let mut last_difference = String::new();
    let mut end = Instant::now() + STALL_TIMEOUT;
    loop {
        match check_rollout(control, members, namespace, expected).await {
            Ok(objects) => return objects,
            Err(difference) if difference != last_difference => {
                last_difference = difference;
                end = Instant::now() + STALL_TIMEOUT;
            }
            Err(difference) => assert!(Instant::now() < end, "{difference}"),
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn compare_names(
    description: &str,
    actual: &BTreeSet<String>,
    expected: &BTreeSet<String>,
) -> Result<(), String> {
    let (more, less): (Vec<_>, Vec<_>) = (
        actual.difference(expected).collect(),
        expected.difference(actual).collect(),
    );
    match more.is_empty() && less.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "{description}: too many: {more:?}, missing: {less:?}"
        )),
    }
}

async fn check_rollout(
    control: &ApiServerClient,
    members: &[ApiServerClient],
    namespace: &str,
    expected: &BTreeSet<String>,
) -> Result<MemberObjects, String> {
    let count = members.len();
    let templates = control.list(&DEPLOYMENTS, namespace).await;
    compare_names("templates", &names(&templates), expected)?;
    let done = |t: &&Value| {
        t["status"]["readyReplicas"] == json!(count)
            && t["status"]["observedGeneration"] == t["metadata"]["generation"]
    };
    let finished = names(templates.iter().filter(done));
    compare_names("finished templates", &finished, expected)?;
    let bindings = control.list(&BINDINGS, namespace).await;
    let binding_names = expected.iter().map(|n| format!("{n}-deployment")).collect();
    compare_names("bindings", &names(&bindings), &binding_names)?;
    let mut member_objects = MemberObjects::new();
    for member in members {
        let works = control.list(&WORKS, &execution_space(&member.name)).await;
        let manifests = works
            .iter()
            .filter_map(|work| work.pointer("/spec/workload/manifests/0"));
        let own_manifests: Vec<&Value> = manifests
            .filter(|m| text(m, "/kind") == "Deployment")
            .filter(|m| text(m, "/metadata/namespace") == namespace)
            .collect();
        let name = &member.name;
        let of_works = names(own_manifests.iter().copied());
        compare_names(&format!("works of {name}"), &of_works, expected)?;
        if of_works.len() != own_manifests.len() {
            return Err(format!("{name}: two Works of one object"));
        }
        let objects = member.list(&DEPLOYMENTS, namespace).await;
        compare_names(&format!("objects in {name}"), &names(&objects), expected)?;
        for object in &objects {
            if object["metadata"]["generation"] != 1 {
                return Err(format!("{name}: written twice: {object:#}"));
            }
            let meta = |field: &str| text(object, &format!("/metadata/{field}")).to_owned();
            let identity = (meta("uid"), object["spec"].clone());
            member_objects.insert((name.clone(), meta("name")), identity);
        }
    }
    Ok(member_objects)
}

//! What everybody must have when a rollout is over: each template one binding, one
//! work in each member's space and one object in each member, no more and no less.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use harness::Server;
use harness::objects::{BINDINGS, DEPLOYMENTS, WORKS, deployment, policy, works_of};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(100);

/// A policy that brings every Deployment of the namespace to all of `clusters`.
pub(crate) fn everything(namespace: &str, clusters: &[&str]) -> Value {
    let mut all = policy(namespace, "all", &deployment(namespace, "", 1), clusters);
    all["spec"]["resourceSelectors"] = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
    all
}

fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or("")
}

fn names(objects: &[Value]) -> BTreeSet<String> {
    let name = |o: &Value| text(o, "/metadata/name").to_owned();
    objects.iter().map(name).collect()
}

/// Objects of members by member and name: uid and spec.
pub(crate) type Seen = BTreeMap<(String, String), (String, Value)>;

/// Waits until the rollout of `wanted` is complete, and shows that it is exact.
pub(crate) async fn until_exact(
    control: &Server,
    members: &[Server],
    namespace: &str,
    wanted: &BTreeSet<String>,
) -> Seen {
    let end = Instant::now() + PATIENCE;
    let count = members.len();
    loop {
        let templates = control.list(&DEPLOYMENTS, namespace).await;
        let done = |t: &Value| {
            t["status"]["readyReplicas"] == json!(count)
                && t["status"]["observedGeneration"] == t["metadata"]["generation"]
        };
        let undone: Vec<&str> = templates
            .iter()
            .filter(|t| !done(t))
            .map(|t| text(t, "/metadata/name"))
            .collect();
        if undone.is_empty() && names(&templates) == *wanted {
            break;
        }
        assert!(
            Instant::now() < end,
            "{} of {} are not done: {undone:?}",
            undone.len(),
            templates.len()
        );
        tokio::time::sleep(PAUSE).await;
    }
    let bindings = names(&control.list(&BINDINGS, namespace).await);
    let expected: BTreeSet<String> = wanted.iter().map(|n| format!("{n}-deployment")).collect();
    assert_eq!(bindings, expected, "bindings");
    let mut seen = Seen::new();
    for member in members {
        let works = control.list(&WORKS, &works_of(&member.name)).await;
        let of_ours = works.iter().filter_map(|work| {
            let manifest = work.pointer("/spec/workload/manifests/0")?;
            let ours = text(manifest, "/kind") == "Deployment"
                && text(manifest, "/metadata/namespace") == namespace;
            ours.then(|| text(manifest, "/metadata/name").to_owned())
        });
        let mut of_ours: Vec<String> = of_ours.collect();
        of_ours.sort();
        let all: Vec<String> = wanted.iter().cloned().collect();
        assert_eq!(of_ours, all, "works of {}", member.name);
        let objects = member.list(&DEPLOYMENTS, namespace).await;
        assert_eq!(names(&objects), *wanted, "objects in {}", member.name);
        for object in &objects {
            assert_eq!(
                object["metadata"]["generation"], 1,
                "written twice: {object:#}"
            );
            let meta = |field: &str| text(object, &format!("/metadata/{field}")).to_owned();
            let found = (meta("uid"), object["spec"].clone());
            seen.insert((member.name.clone(), meta("name")), found);
        }
    }
    seen
}

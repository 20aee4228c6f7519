//! The families of Karmada's user guide (`guide.yaml`): what they tell users to apply is applied by kubectl, then
//! each of their effects has to come, in any control plane with the members `member1` and `member2`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use harness::ApiServerClient;
use harness::kubectl::Kubectl;
use serde::Deserialize;
use serde_json::{Value, json};

/// The namespace of the objects.
pub(crate) const NAMESPACE: &str = "guide";
/// The gates of the families that Karmada ships disabled.
pub(crate) const FEATURE_GATES: [&str; 2] = [
    "--feature-gates",
    "Failover=true,MultiClusterService=true,PropagationPolicyPreemption=true,WorkloadAffinity=true",
];
const EFFECT_TIMEOUT: Duration = Duration::from_secs(90);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Family {
    family: String,
    /// The pages of the guide.
    pages: Vec<String>,
    /// Objects that are in `member1` before.
    #[serde(default)]
    members: Vec<Value>,
    /// Commands before the objects.
    #[serde(default)]
    run: Vec<String>,
    objects: Vec<Value>,
    /// Commands after the objects.
    #[serde(default)]
    then: Vec<String>,
    /// By `SERVER PATH`, the fields of the reply, or [`ABSENT`].
    effects: Vec<BTreeMap<String, Value>>,
}

/// The effect that an object is not there.
const ABSENT: u64 = 404;

/// Applies all families with a kubectl of the control plane, in their order, then waits for each effect.
pub(crate) async fn follow_guide(
    kubectl: Kubectl,
    control: &ApiServerClient,
    members: [&ApiServerClient; 2],
) {
    let families: Vec<Family> =
        serde_saphyr::from_multiple(include_str!("guide.yaml")).unwrap_or_else(|e| panic!("{e}"));
    let families = std::sync::Arc::new(families);
    for object in families.iter().flat_map(|family| &family.members) {
        members[0].create(object.clone()).await;
    }
    let applied = families.clone();
    let apply = move || {
        applied
            .iter()
            .for_each(|family| apply_family(&kubectl, family))
    };
    tokio::task::spawn_blocking(apply).await.unwrap();
    let end = Instant::now() + EFFECT_TIMEOUT;
    loop {
        let mut missing = Vec::new();
        for family in families.iter() {
            for (request, expected) in family.effects.iter().flatten() {
                if let Some(difference) = difference(control, members, request, expected).await {
                    let Family { family, pages, .. } = family;
                    missing.push(format!("{family} {pages:?}: {request}: {difference}"));
                }
            }
        }
        if missing.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "{}", missing.join("\n"));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn apply_family(kubectl: &Kubectl, family: &Family) {
    let run = |line: &str, input: &str| {
        let (code, output) = kubectl.run_with_input(line, input);
        assert_eq!(code, 0, "{}: kubectl {line}: {output}", family.family);
    };
    family.run.iter().for_each(|line| run(line, ""));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": family.objects});
    run("apply --namespace='' -f -", &list.to_string());
    family.then.iter().for_each(|line| run(line, ""));
}

/// Why the reply to a request, `SERVER PATH`, is not as expected yet.
async fn difference(
    control: &ApiServerClient,
    members: [&ApiServerClient; 2],
    request: &str,
    expected: &Value,
) -> Option<String> {
    let (server, path) = request.split_once(' ').unwrap();
    let client = match server {
        "control" => control,
        "member1" => members[0],
        "member2" => members[1],
        _ => panic!("{request}: no such server"),
    };
    match client.api.get_raw(path).await {
        Ok(_) if *expected == ABSENT => Some("it is there".to_owned()),
        Ok(body) => {
            let reply: Value = machinery::json::from_slice(&body).unwrap();
            (!has(&reply, expected)).then(|| format!("{reply}\nhas not {expected}"))
        }
        Err(error) if *expected == ABSENT && error.is_not_found() => None,
        Err(error) => Some(error.to_string()),
    }
}

/// Whether a value has all fields of another, and lists an element for each of its elements.
fn has(value: &Value, expected: &Value) -> bool {
    match expected {
        Value::Object(fields) => fields
            .iter()
            .all(|(name, expected)| has(&value[name], expected)),
        Value::Array(items) => items.iter().all(|expected| {
            let elements = value.as_array().into_iter().flatten();
            elements.into_iter().any(|element| has(element, expected))
        }),
        _ => value == expected,
    }
}

//! A change that goes through twelve members in three stages, as its user sees it through kubectl: one
//! member fails and holds the rest, the change is repaired, restarted, and cannot be undone by kubectl.

use std::time::{Duration, Instant};

use harness::api_server_client::is_rolled_out;
use harness::kubectl::Kubectl;
use harness::objects::{deployment, override_policy, policy, resource_selector};
use harness::{FlotillaUpProcess, sleep_blocking};
use serde_json::{Value, json};

use crate::flow::fleet::BINARY;

pub(crate) const NAMESPACE: &str = "rollout-story";
pub(crate) const MEMBERS: [&str; 12] = [
    "member1", "member2", "member3", "member4", "member5", "member6", "member7", "member8",
    "member9", "member10", "member11", "member12",
];
const FAILING: &str = "member3";
/// The members of the first two stages; the others are the third one.
const FIRST_STAGES: [(&str, &[&str]); 2] = [
    ("canary", &["member1"]),
    ("region", &["member2", FAILING, "member4"]),
];
const IMAGE: &str = "/spec/template/spec/containers/0/image";
const ROLLOUT: &str = "get rollouts.rollout.flotilla.io web-deployment -o json";
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);

// proves: ROL-stages, ROL-deadline, ROL-status, ROL-restart-pods
#[harness::slow]
#[tokio::test(flavor = "multi_thread")]
async fn a_change_goes_through_twelve_members() {
    tokio::task::block_in_place(|| {
        if harness::tools(["kubectl-1.36"]).is_none() {
            return;
        }
        let up = FlotillaUpProcess::start(BINARY, MEMBERS.len(), &[]);
        let kubeconfig = up.dir().join("kubeconfig");
        let kubectl = Kubectl::of_1_36(&kubeconfig, up.dir(), NAMESPACE).unwrap();
        run_story(&kubectl);
    });
}

/// Runs the story in a namespace of a control plane that has the twelve members.
pub(crate) fn run_story(kubectl: &Kubectl) {
    let web = deployment(NAMESPACE, "web", 1);
    apply(kubectl, &rollout_policy(&web));
    apply(kubectl, &web);
    apply(kubectl, &policy(NAMESPACE, "web", &web, &MEMBERS));
    wait_for(kubectl, "in all members", |rollout| {
        is_rolled_out(rollout, MEMBERS.len())
    });
    kubectl.output("rollout status deployment/web --timeout=60s");
    // The image and the override that breaks it in one member come as one change.
    set_paused(kubectl, true);
    let broken = json!([{"targetCluster": {"clusterNames": [FAILING]},
        "overriders": {"plaintext": [{"path": IMAGE, "operator": "replace", "value": "fake/web"}]}}]);
    let broken = override_policy(NAMESPACE, "web", &web, &broken);
    let before = target(&rollout(kubectl));
    apply(kubectl, &broken);
    let overridden = wait_for_target(kubectl, &before);
    kubectl.output("set image deployment/web c=nginx:1.28");
    wait_for_target(kubectl, &overridden);
    set_paused(kubectl, false);
    wait_for_state(kubectl, "FailureBudgetExceeded");
    let stopped = rollout(kubectl);
    for (cluster, stage, phase, has_target) in clusters(&stopped) {
        let expected = match &*stage {
            "remaining" => ("Blocked", false),
            _ if cluster == FAILING => ("Failed", true),
            _ => ("Done", true),
        };
        assert_eq!((&*phase, has_target), expected, "{cluster}: {stopped:#}");
    }
    let (code, printed) = kubectl.run_with_input("rollout status deployment/web --timeout=2s", "");
    assert_eq!(code, 1, "{printed}");
    let web = object(kubectl, "get deployment web -o json");
    let number = |path: &str| web.pointer(path).and_then(Value::as_i64).unwrap_or(0);
    let updated = number("/status/updatedReplicas");
    assert!((3..=4).contains(&updated), "{web:#}");
    assert!(
        number("/status/observedGeneration") < number("/metadata/generation"),
        "{web:#}"
    );
    // Without the override the image can be pulled everywhere, and the newer revision overtakes.
    kubectl.output("delete overridepolicy web");
    check_rolled_out(kubectl);
    let restarted = kubectl.output("rollout restart deployment/web");
    assert!(restarted.contains("restarted"), "{restarted}");
    check_rolled_out(kubectl);
    let (code, printed) = kubectl.run_with_input("rollout undo deployment/web", "");
    assert_eq!(code, 1, "{printed}");
    assert!(printed.contains("no rollout history found"), "{printed}");
}

fn rollout_policy(web: &Value) -> Value {
    let stages = FIRST_STAGES.map(|(name, members)| {
        json!({"name": name, "clusterAffinity": {"clusterNames": members}, "gates": {"healthyFor": "1s"}})
    });
    json!({"apiVersion": "rollout.flotilla.io/v1alpha1", "kind": "RolloutPolicy",
        "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {"resourceSelectors": [resource_selector(web)], "stages": stages, "progressDeadline": "10s"}})
}

/// `kubectl rollout status` ends, and then all clusters have the revision of the present template.
fn check_rolled_out(kubectl: &Kubectl) {
    let last = target(&rollout(kubectl));
    wait_for(kubectl, "the change has reached the rollout", |rollout| {
        let web = object(kubectl, "get deployment web -o json");
        let observed = &rollout["status"]["observedTemplateGeneration"];
        *observed == web["metadata"]["generation"]
            && (target(rollout) != last || rollout["status"]["state"] != "Completed")
    });
    kubectl.output("rollout status deployment/web --timeout=120s");
    let rollout = rollout(kubectl);
    for (cluster, _, _, has_target) in clusters(&rollout) {
        assert!(has_target, "{cluster} has an older revision: {rollout:#}");
    }
    wait_for_state(kubectl, "Completed");
}

fn apply(kubectl: &Kubectl, manifest: &Value) {
    let (code, printed) = kubectl.run_with_input("apply -f -", &manifest.to_string());
    assert_eq!(code, 0, "{printed}");
}

fn set_paused(kubectl: &Kubectl, paused: bool) {
    let patch = format!(r#"{{"spec":{{"paused":{paused}}}}}"#);
    let rollout = "rollouts.rollout.flotilla.io web-deployment";
    kubectl.output(&format!("patch {rollout} --type=merge -p '{patch}'"));
}

fn object(kubectl: &Kubectl, line: &str) -> Value {
    machinery::json::from_str(&kubectl.output(line)).unwrap()
}

fn rollout(kubectl: &Kubectl) -> Value {
    object(kubectl, ROLLOUT)
}

fn target(rollout: &Value) -> Value {
    rollout["status"]["targetRevision"].clone()
}

/// Waits until the rollout, which may not exist yet, `holds`; returns it.
fn wait_for(kubectl: &Kubectl, description: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + WAIT_TIMEOUT;
    loop {
        let (code, printed) = kubectl.run_with_input(ROLLOUT, "");
        if code == 0 {
            let rollout = machinery::json::from_str(&printed).unwrap();
            if holds(&rollout) {
                return rollout;
            }
        }
        assert!(
            Instant::now() < end,
            "not in time: {description}: {printed}"
        );
        sleep_blocking(Duration::from_millis(200));
    }
}

fn wait_for_state(kubectl: &Kubectl, state: &str) {
    wait_for(kubectl, state, |rollout| {
        rollout["status"]["state"] == state
    });
}

fn wait_for_target(kubectl: &Kubectl, before: &Value) -> Value {
    let rollout = wait_for(kubectl, "another target", |rollout| {
        target(rollout) != *before
    });
    target(&rollout)
}

/// The clusters: name, stage, phase, and whether they have the target.
fn clusters(rollout: &Value) -> Vec<(String, String, String, bool)> {
    let status = &rollout["status"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let stages = status["stages"].as_array().unwrap().iter();
    let clusters: Vec<_> = stages
        .flat_map(|stage| {
            let clusters = stage["clusters"].as_array().into_iter().flatten();
            clusters.map(|cluster| {
                let has_target = cluster["revision"] == status["targetRevision"];
                let name = text(&cluster["name"]);
                (
                    name,
                    text(&stage["name"]),
                    text(&cluster["phase"]),
                    has_target,
                )
            })
        })
        .collect();
    assert_eq!(clusters.len(), MEMBERS.len(), "{rollout:#}");
    clusters
}

//! Tests that event handlers use indexes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use client::webhook::{Caller, Place};
use interpreter::{Interpreter, Limits, Outside};
use openapi::karmada::resources::{
    BINDINGS, CLUSTER_OVERRIDES, CUSTOMIZATIONS, OVERRIDES, POLICIES,
};
use flotilla_runtime::Select;
use serde_json::{Value, json};

use super::{DEPLOYMENTS, Plane, deployment, policy, until};
use crate::{Options, start};

struct Nobody;

#[async_trait]
impl Caller for Nobody {
    async fn call(&self, _hook: &Place, _body: Bytes, _: Duration) -> Result<Bytes, String> {
        Err("nobody answers".into())
    }
}

impl Plane {
    fn label(&self, member: usize, key: &str) -> Value {
        let copy = self.in_member(member, "web").unwrap_or_default();
        copy["metadata"]["labels"][key].clone()
    }
}

/// An override policy that adds a label to Deployments.
fn labels(kind: &str, key: &str) -> Value {
    let overrider = json!({"operator": "add", "value": {key: "yes"}});
    let mut value = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": kind,
        "metadata": {"name": key, "generation": 1},
        "spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
                 "overrideRules": [{"overriders": {"labelsOverrider": [overrider]}}]}});
    if kind == "OverridePolicy" {
        value["metadata"]["namespace"] = "n".into();
    }
    value
}

#[tokio::test]
async fn no_event_handler_iterates_over_all_bindings() {
    let mut plane = Plane::new();
    plane.control.seed(&POLICIES, policy(json!({})));
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    let mut deps = plane.deps(Options::default(), None);
    let outside = Outside {
        caller: Arc::new(Nobody),
        apply: |_, _| Err("nobody answers".into()),
    };
    deps.interpreter =
        Interpreter::follow(&deps.informers, &deps.control, Limits::default(), outside);
    let bindings = deps.informers.get(&deps.control, &Select::all(&BINDINGS));
    start(deps, &plane.tasks).await.unwrap();
    plane.applied("web").await;
    let both = |key: &str| (0..2).all(|member| plane.label(member, key) == "yes");

    plane
        .control
        .seed(&OVERRIDES, labels("OverridePolicy", "local"));
    until("the local policy", || both("local")).await;
    let of_cluster = labels("ClusterOverridePolicy", "global");
    plane.control.seed(&CLUSTER_OVERRIDES, of_cluster);
    until("the cluster policy", || both("global")).await;
    plane.control.remove(&OVERRIDES, "n", "local");
    let removed = || (0..2).all(|member| plane.label(member, "local").is_null());
    until("the end of the local policy", removed).await;

    let script = "function ReviseReplica(obj, replicas)
        obj.metadata.labels = {script = 'yes'} return obj end";
    let dependencies = "function GetDependencies(obj) return {} end";
    plane.control.seed(
        &CUSTOMIZATIONS,
        json!({"metadata": {"name": "c"}, "spec": {
            "target": {"apiVersion": "apps/v1", "kind": "Deployment"},
            "customizations": {"replicaRevision": {"luaScript": script},
                               "dependencyInterpretation": {"luaScript": dependencies}}}}),
    );
    until("the script", || both("script")).await;
    assert_eq!(bindings.walks_in_handlers(), 0);
    plane.tasks.stop().await;
}

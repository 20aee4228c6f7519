//! Tests that event handlers use indexes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use client::webhook::{WebhookClient, WebhookClientConfig};
use interpreter::{LuaLimits, ResourceInterpreter, WebhookInterpreterOptions};
use karmada_api::resources::{BINDINGS, CLUSTER_OVERRIDES, CUSTOMIZATIONS, OVERRIDES, POLICIES};
use machinery::Status;
use serde_json::{Value, json};

use super::default_options;
use super::{DEPLOYMENTS, PropagationFixture, deployment, policy, wait_until};
use crate::start;
use karmada_api::FeatureGates;

struct UnreachableWebhookClient;

#[async_trait]
impl WebhookClient for UnreachableWebhookClient {
    async fn call(
        &self,
        _hook: &WebhookClientConfig,
        _body: Bytes,
        _: Duration,
    ) -> Result<Bytes, String> {
        Err("nobody answers".into())
    }
}

impl PropagationFixture {
    fn label(&self, member: usize, key: &str) -> Value {
        let copy = self.deployment_in_member(member, "web").unwrap_or_default();
        copy["metadata"]["labels"][key].clone()
    }
}

/// An override policy that adds a label to Deployments.
fn label_override_policy(kind: &str, key: &str) -> Value {
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
    let mut plane = PropagationFixture::new();
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    let mut context = plane.context(FeatureGates::default(), None);
    let outside = WebhookInterpreterOptions {
        caller: Arc::new(UnreachableWebhookClient),
        apply_json_patch: |_, _| Err("nobody answers".into()),
    };
    context.interpreter = ResourceInterpreter::watch(
        &context.controller.informers,
        &context.controller.control_plane,
        LuaLimits::default(),
        outside,
    );
    let bindings = context.controller.informer(&BINDINGS);
    let options = default_options(&context);
    start(&context, options).await.unwrap();
    plane.wait_until_applied("web").await;
    let both = |key: &str| (0..2).all(|member| plane.label(member, key) == "yes");

    plane
        .control_plane
        .seed(&OVERRIDES, label_override_policy("OverridePolicy", "local"));
    wait_until("the local policy", || both("local")).await;
    let of_cluster = label_override_policy("ClusterOverridePolicy", "global");
    plane.control_plane.seed(&CLUSTER_OVERRIDES, of_cluster);
    wait_until("the cluster policy", || both("global")).await;
    plane.control_plane.remove(&OVERRIDES, "n", "local");
    let removed = || (0..2).all(|member| plane.label(member, "local").is_null());
    wait_until("the end of the local policy", removed).await;

    let script = "function ReviseReplica(obj, replicas)
        obj.metadata.labels = {script = 'yes'} return obj end";
    let dependencies = "function GetDependencies(obj) return {} end";
    plane.control_plane.seed(
        &CUSTOMIZATIONS,
        json!({"metadata": {"name": "c"}, "spec": {
            "target": {"apiVersion": "apps/v1", "kind": "Deployment"},
            "customizations": {"replicaRevision": {"luaScript": script},
                               "dependencyInterpretation": {"luaScript": dependencies}}}}),
    );
    wait_until("the script", || both("script")).await;
    assert_eq!(bindings.full_scans_in_handlers(), 0);
    plane.tasks.stop().await;
}

// proves: BND-override-selected
#[tokio::test(start_paused = true)]
async fn an_override_applies_to_a_template_that_is_not_listed_yet() {
    let mut plane = PropagationFixture::new();
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    plane.start().await;
    plane.wait_until_applied("web").await;
    plane.tasks.stop().await;
    plane.control_plane.on_call(|call| {
        let is_list = call.verb == "list" && call.resource == Some(&DEPLOYMENTS);
        is_list.then(|| Status::unavailable("not yet").into())
    });
    plane.start().await;
    // All bindings are reconciled without the policy.
    tokio::time::sleep(Duration::from_secs(1)).await;
    plane
        .control_plane
        .seed(&OVERRIDES, label_override_policy("OverridePolicy", "local"));
    wait_until("the policy", || plane.label(0, "local") == "yes").await;
    plane.tasks.stop().await;
}

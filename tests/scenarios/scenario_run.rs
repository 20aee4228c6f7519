//! Runs the steps of a scenario on a control plane, and returns the first failure with the
//! differences of the last comparison.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use client::{DeleteOptions, Error, ListOptions, Patch, ResourcePath, WriteOptions};
use harness::ApiServerClient;
use harness::api_server_client::wait_until;
use harness::objects::{
    CLUSTERS, CONFIG_MAPS, EVENTS, NAMESPACES, config_map, gvr, pod_template, policy,
};
use machinery::Gvr;
use serde_json::{Value, json};

use crate::scenarios::expected_state;
use crate::scenarios::observed_state::{ObservedState, differences, missing_fields, text_at};
use crate::scenarios::scenario::{ExpectedEvent, Scenario, ScenarioStep, TemplateExpectation};
use crate::scenarios::scenario_control_plane::ScenarioControlPlane;
use crate::scenarios::written_objects::WrittenObjects;

const STEP_TIMEOUT: Duration = Duration::from_secs(90);
/// Longer than the resolution of object timestamps.
const SECOND_STEP_TIME: Duration = Duration::from_millis(1001);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The prefix of the namespaces of [`ScenarioRun::wait_until_settled`].
const SETTLE_NAMESPACE_PREFIX: &str = "settled";

type StepResult = Result<(), String>;

/// A running scenario.
pub(crate) struct ScenarioRun<'a> {
    control_plane: &'a ScenarioControlPlane,
    namespace: &'a str,
    /// The clusters from before the scenario, if it may change them.
    clusters: Vec<Value>,
    /// The kinds of all objects in the steps so far.
    kinds: BTreeSet<String>,
    /// `Kind/name` of all applied objects.
    applied: BTreeSet<String>,
    settle_count: usize,
    /// Templates and policies, as last read.
    control_objects: BTreeMap<String, Value>,
    /// The same, as the steps wrote them.
    written: WrittenObjects,
}

impl<'a> ScenarioRun<'a> {
    pub(crate) async fn run(plane: &'a ScenarioControlPlane, scenario: &'a Scenario) -> StepResult {
        if scenario.alone {
            let _alone = plane.clusters.write().await;
            let before = plane.control.list(&CLUSTERS, "").await;
            let done = Self::run_steps(plane, scenario, before.clone()).await;
            restore_clusters(plane, &before).await;
            done
        } else {
            let _with_others = plane.clusters.read().await;
            Self::run_steps(plane, scenario, Vec::new()).await
        }
    }

    async fn run_steps(
        plane: &'a ScenarioControlPlane,
        scenario: &'a Scenario,
        clusters: Vec<Value>,
    ) -> StepResult {
        let mut stage = Self {
            control_plane: plane,
            clusters,
            namespace: &scenario.name,
            kinds: BTreeSet::new(),
            applied: BTreeSet::new(),
            settle_count: 0,
            control_objects: BTreeMap::new(),
            written: WrittenObjects::default(),
        };
        stage.create_namespace(stage.namespace).await;
        for (nth, step) in scenario.steps.iter().enumerate() {
            let result = stage.run_step(step).await;
            result.map_err(|message| format!("step {}: {message}", nth + 1))?;
        }
        stage.clean_up().await;
        Ok(())
    }

    /// Deletes all objects, so that they do not slow down later scenarios.
    async fn clean_up(&self) {
        let control = &self.control_plane.control;
        for kind_and_name in &self.applied {
            let _ = self.delete(control, kind_and_name).await;
        }
        let at = ResourcePath::object(&NAMESPACES, "", self.namespace);
        let _ = control.api.delete(at, &DeleteOptions::default()).await;
    }

    async fn create_namespace(&self, name: &str) {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let _ = self.control_plane.control.try_create(namespace).await;
        for member in &self.control_plane.members {
            member.wait_until_exists(&NAMESPACES, "", name).await;
        }
    }

    async fn run_step(&mut self, step: &ScenarioStep) -> StepResult {
        let server = self.control_plane.client(step.r#in.as_deref())?;
        for object in &step.apply {
            let object = self.complete_object(object.clone());
            self.kinds.insert(text_at(&object, "/kind").to_owned());
            if step.r#in.is_none() {
                let (kind, name) = (
                    text_at(&object, "/kind"),
                    text_at(&object, "/metadata/name"),
                );
                self.applied.insert(format!("{kind}/{name}"));
                self.written.apply(&object);
            }
            self.apply(server, object)
                .await
                .map_err(|e| e.to_string())?;
        }
        for patch in &step.merge {
            let patch = patch.clone();
            if step.r#in.is_none() {
                self.written.apply(&patch);
            }
            self.merge(server, patch).await.map_err(|e| e.to_string())?;
        }
        for kind_and_name in &step.delete {
            self.delete(server, kind_and_name)
                .await
                .map_err(|e| e.to_string())?;
            let (resource, namespace, name) = self.resource_of(kind_and_name);
            server.wait_until_deleted(resource, namespace, name).await;
            if step.r#in.is_none() {
                self.written.delete(kind_and_name);
            }
        }
        for (kind_and_name, replicas) in &step.scale {
            let (resource, namespace, name) = self.resource_of(kind_and_name);
            let at = ResourcePath::object(resource, namespace, name).subresource("scale");
            let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
            let done = server.api.patch(at, patch, &WriteOptions::default()).await;
            done.map_err(|e| e.to_string())?;
            if step.r#in.is_none() {
                self.written.scale(kind_and_name, *replicas);
            }
        }
        for (kind_and_name, patch) in &step.status {
            let (resource, namespace, name) = self.resource_of(kind_and_name);
            let at = ResourcePath::object(resource, namespace, name).subresource("status");
            let patch = Patch::Merge(json!({ "status": patch }));
            let done = server.api.patch(at, patch, &WriteOptions::default()).await;
            done.map_err(|e| e.to_string())?;
        }
        for (cluster, patch) in &step.cluster {
            let control = &self.control_plane.control;
            control
                .merge_patch(&CLUSTERS, "", cluster, patch.clone())
                .await;
        }
        if step.restore {
            restore_clusters(self.control_plane, &self.clusters).await;
        }
        if step.second {
            tokio::time::sleep(SECOND_STEP_TIME).await;
        }
        if let Some(attempt) = &step.refused {
            self.expect_refusal(attempt, step.code, &step.message)
                .await?;
        }
        if let Some(kind) = &step.served {
            let resource = gvr(&json!({ "kind": kind }));
            wait_until(kind, async || {
                let at = ResourcePath::collection(resource, self.namespace);
                let options = ListOptions::default();
                let listed = self.control_plane.control.api.list(at, &options).await;
                listed.is_ok()
            })
            .await;
        }
        if step.settle {
            self.wait_until_settled().await;
        }
        if let Some(expected) = &step.expect {
            self.expect_state(expected).await?;
        }
        for (kind_and_name, expected) in &step.shows {
            self.expect_fields(server, kind_and_name, expected).await?;
        }
        for kind_and_name in &step.gone {
            let (resource, namespace, name) = self.resource_of(kind_and_name);
            server.wait_until_deleted(resource, namespace, name).await;
        }
        for event in &step.events {
            self.expect_event(event).await?;
        }
        Ok(())
    }

    /// Completes the fields that a scenario may omit, see [`crate::scenarios::scenario`].
    fn complete_object(&self, mut object: Value) -> Value {
        let kind = text_at(&object, "/kind").to_owned();
        default_api_version(&mut object);
        if !is_cluster_scoped(&kind) {
            object["metadata"]["namespace"] = self.namespace.into();
        }
        if let Some(Value::Array(all)) = object.pointer_mut("/spec/resourceSelectors") {
            all.iter_mut().for_each(default_api_version);
        }
        let name = object["metadata"]["name"].clone();
        let spec = &mut object["spec"];
        if ["Deployment", "StatefulSet"].contains(&&*kind) && spec.get("template").is_none() {
            spec["selector"] = json!({"matchLabels": {"app": name}});
            spec["template"] = pod_template(name.as_str().unwrap_or_default());
        }
        object
    }

    fn resource_of<'b>(&'b self, kind_and_name: &'b str) -> (&'static Gvr, &'b str, &'b str) {
        let (kind, name) = kind_and_name.split_once('/').unwrap();
        let namespace = if is_cluster_scoped(kind) {
            ""
        } else {
            self.namespace
        };
        (gvr(&json!({ "kind": kind })), namespace, name)
    }

    /// Creates the object, or merges it into the existing one.
    async fn apply(&self, server: &ApiServerClient, object: Value) -> Result<(), Error> {
        match server.try_create(object.clone()).await {
            Err(error) if error.is_already_exists() => self.merge(server, object).await,
            done => done.map(drop),
        }
    }

    async fn merge(&self, server: &ApiServerClient, object: Value) -> Result<(), Error> {
        let kind_and_name = format!(
            "{}/{}",
            text_at(&object, "/kind"),
            text_at(&object, "/metadata/name")
        );
        let (resource, namespace, name) = self.resource_of(&kind_and_name);
        let at = ResourcePath::object(resource, namespace, name);
        let patch = Patch::Merge(object);
        let done = server.api.patch(at, patch, &WriteOptions::default()).await;
        done.map(drop)
    }

    async fn delete(&self, server: &ApiServerClient, kind_and_name: &str) -> Result<(), Error> {
        let (resource, namespace, name) = self.resource_of(kind_and_name);
        let at = ResourcePath::object(resource, namespace, name);
        let done = server.api.delete(at, &DeleteOptions::default()).await;
        done.map(drop)
    }

    async fn expect_refusal(&self, attempt: &Value, code: u16, message: &str) -> StepResult {
        let control = &self.control_plane.control;
        let done = if let Some(kind_and_name) = attempt["delete"].as_str() {
            self.delete(control, kind_and_name).await
        } else if attempt["merge"].is_object() {
            self.merge(control, attempt["merge"].clone()).await
        } else {
            let created = control
                .try_create(self.complete_object(attempt.clone()))
                .await;
            created.map(drop)
        };
        match done {
            Ok(()) => Err("the request succeeded".to_owned()),
            Err(Error::Status(status)) if status.code == code && status.message == message => {
                Ok(())
            }
            Err(Error::Status(status)) => Err(format!(
                "denied with {} {:?}, not {code} {message:?}",
                status.code, status.message
            )),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Propagates two new objects to every member. Queues are fair, so that the effects of
    /// earlier steps are complete then.
    async fn wait_until_settled(&mut self) {
        self.settle_count += 1;
        let space = format!("{SETTLE_NAMESPACE_PREFIX}-{}", self.namespace);
        self.create_namespace(&space).await;
        let control = &self.control_plane.control;
        for round in ["a", "b"] {
            let name = format!("{round}{}", self.settle_count);
            let object = config_map(&space, &name, "v");
            let mut everywhere = policy(&space, &name, &object, &[]);
            everywhere["spec"]["placement"] =
                json!({"clusterTolerations": [{"operator": "Exists"}]});
            control.create(everywhere).await;
            control.create(object).await;
            for member in &self.control_plane.members {
                member.wait_until_exists(&CONFIG_MAPS, &space, &name).await;
            }
        }
    }

    async fn expect_state(
        &mut self,
        expected: &BTreeMap<String, TemplateExpectation>,
    ) -> StepResult {
        for (kind_and_name, expected) in expected {
            let policies = expected.by.iter().chain(&expected.left);
            for kind_and_name in policies.chain([kind_and_name]) {
                let kind = kind_and_name.split_once('/').map_or("", |(kind, _)| kind);
                self.kinds.insert(kind.to_owned());
            }
        }
        let kinds: Vec<String> = self.kinds.iter().cloned().collect();
        let end = Instant::now() + STEP_TIMEOUT;
        loop {
            let before = std::mem::take(&mut self.control_objects);
            let mut observed =
                ObservedState::observe(self.control_plane, self.namespace, &kinds, before).await;
            for (kind_and_name, object) in &mut observed.control_objects {
                *object = self.written.with_defaults(kind_and_name, object);
            }
            let message = match expected_state::expected_tree(self.namespace, expected, &observed) {
                Ok(expected) => differences(&expected, &observed.normalized_tree()),
                Err(message) => vec![message],
            };
            self.control_objects = observed.control_objects;
            if message.is_empty() {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("\n  {}", message.join("\n  ")));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn expect_fields(
        &self,
        server: &ApiServerClient,
        kind_and_name: &str,
        expected: &Value,
    ) -> StepResult {
        let mut parts = kind_and_name.splitn(3, '/');
        let (kind, name) = (parts.next(), parts.next());
        let (kind, name) = (kind.unwrap_or_default(), name.ok_or("not Kind/name")?);
        let kind_and_name = format!("{kind}/{name}");
        let (resource, namespace, name) = self.resource_of(&kind_and_name);
        let at = ResourcePath::object(resource, namespace, name)
            .subresource(parts.next().unwrap_or_default());
        let end = Instant::now() + STEP_TIMEOUT;
        loop {
            let message = match server.api.get(at).await {
                Ok(object) => missing_fields(expected, &object.value().unwrap()),
                Err(message) => vec![message.to_string()],
            };
            if message.is_empty() {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("{kind_and_name}\n  {}", message.join("\n  ")));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn expect_event(&self, event: &ExpectedEvent) -> StepResult {
        let (kind, name) = event.on.split_once('/').ok_or("not Kind/name")?;
        let kind_and_name = if is_cluster_scoped(kind) {
            "default"
        } else {
            self.namespace
        };
        let end = Instant::now() + STEP_TIMEOUT;
        loop {
            let all = self
                .control_plane
                .control
                .list(&EVENTS, kind_and_name)
                .await;
            let mut about = all.iter().filter(|e| {
                text_at(e, "/involvedObject/kind") == kind
                    && text_at(e, "/involvedObject/name") == name
            });
            let fits = |e: &Value| {
                e["type"] == *event.r#type
                    && e["reason"] == *event.reason
                    && e["message"] == *event.message
            };
            if about.clone().any(fits) {
                return Ok(());
            }
            if Instant::now() > end {
                let recorded: String = about
                    .by_ref()
                    .map(|e| format!("\n  {} {} {}", e["type"], e["reason"], e["message"]))
                    .collect();
                return Err(format!("no event {event:?}, but{recorded}"));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Restores the labels and the mutable fields of the spec of clusters.
async fn restore_clusters(plane: &ScenarioControlPlane, before: &[Value]) {
    for was in before {
        let name = text_at(was, "/metadata/name");
        let mut patch = json!({"metadata": {"labels": null}, "spec": {}});
        for key in [
            "taints",
            "provider",
            "region",
            "zone",
            "zones",
            "apiEndpoint",
        ] {
            patch["spec"][key] = was["spec"][key].clone();
        }
        let control = &plane.control;
        control.merge_patch(&CLUSTERS, "", name, patch).await;
        let labels = json!({"metadata": {"labels": was["metadata"]["labels"]}});
        control.merge_patch(&CLUSTERS, "", name, labels).await;
    }
}

/// Whether a kind is cluster-scoped.
fn is_cluster_scoped(kind: &str) -> bool {
    [
        "Namespace",
        "Node",
        "PersistentVolume",
        "PriorityClass",
        "WorkloadRebalancer",
    ]
    .contains(&kind)
        || (kind.starts_with("Cluster"))
        || kind == "CustomResourceDefinition"
}

fn default_api_version(object: &mut Value) {
    if object.get("apiVersion").is_none() {
        let resource = gvr(object);
        let version = if resource.group.is_empty() {
            resource.version.to_string()
        } else {
            format!("{}/{}", resource.group, resource.version)
        };
        object["apiVersion"] = version.into();
    }
}

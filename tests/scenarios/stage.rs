//! Runs the steps of a scenario on a control plane, and returns the first failure with the
//! differences of the last comparison.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use client::{At, DeleteOptions, Error, ListOptions, Patch, WriteOptions};
use harness::objects::{CLUSTERS, CONFIG_MAPS, EVENTS, NAMESPACES, config_map, gvr, pods, policy};
use harness::server::until;
use harness::{Server, Up};
use machinery::Gvr;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::RwLock;

use crate::frame;
use crate::seen::{Seen, differences, lacks, text};
use crate::story::{Expected, Head, Scenario, Step, Told};
use crate::written::Written;

const PATIENCE: Duration = Duration::from_secs(20);
/// Longer than the resolution of object timestamps.
const SECOND: Duration = Duration::from_millis(1001);
const PAUSE: Duration = Duration::from_millis(50);
const MEMBERS: usize = 3;
/// The prefix of the namespaces of [`ScenarioRun::wait_until_settled`].
const SETTLED: &str = "settled";

type Done = Result<(), String>;

/// Clients of a control plane and its members.
pub(crate) struct Plane {
    pub(crate) control: Server,
    pub(crate) members: Vec<Server>,
    _up: Arc<Shared>,
    /// Write-locked by scenarios that change clusters.
    clusters: Arc<RwLock<u64>>,
}

struct Shared {
    up: Up,
    clusters: Arc<RwLock<u64>>,
}

impl Plane {
    /// The shared control plane, or a separate one for a theme with arguments. The last theme
    /// that holds the shared one ends it. Must be called where tokio runs.
    pub(crate) fn of(head: &Head) -> Self {
        static SHARED: Mutex<Weak<Shared>> = Mutex::new(Weak::new());
        let start = || {
            let more: Vec<&str> = head.arguments.iter().map(String::as_str).collect();
            let up = Up::start(env!("CARGO_BIN_EXE_flotilla"), MEMBERS, &more);
            let clusters = Arc::default();
            Arc::new(Shared { up, clusters })
        };
        let shared = if head.arguments.is_empty() {
            let mut shared = SHARED.lock();
            shared.upgrade().unwrap_or_else(|| {
                let started = start();
                *shared = Arc::downgrade(&started);
                started
            })
        } else {
            start()
        };
        Self {
            control: shared.up.control(),
            members: shared.up.members(),
            clusters: Arc::clone(&shared.clusters),
            _up: shared,
        }
    }

    fn server(&self, name: Option<&str>) -> Result<&Server, String> {
        let Some(name) = name else {
            return Ok(&self.control);
        };
        let found = self.members.iter().find(|m| m.name == name);
        found.ok_or_else(|| format!("no member {name}"))
    }
}

/// A running scenario.
pub(crate) struct Stage<'a> {
    plane: &'a Plane,
    namespace: &'a str,
    /// The clusters from before the scenario, if it may change them.
    clusters: Vec<Value>,
    /// The kinds of all objects in the steps so far.
    kinds: BTreeSet<String>,
    /// `Kind/name` of all applied objects.
    applied: BTreeSet<String>,
    settled: usize,
    /// Templates and policies, as last read.
    own: BTreeMap<String, Value>,
    /// The same, as the steps wrote them.
    written: Written,
}

impl<'a> Stage<'a> {
    pub(crate) async fn play(plane: &'a Plane, scenario: &'a Scenario) -> Done {
        if scenario.alone {
            let _alone = plane.clusters.write().await;
            let before = plane.control.list(&CLUSTERS, "").await;
            let done = Self::enter(plane, scenario, before.clone()).await;
            restore(plane, &before).await;
            done
        } else {
            let _with_others = plane.clusters.read().await;
            Self::enter(plane, scenario, Vec::new()).await
        }
    }

    async fn enter(plane: &'a Plane, scenario: &'a Scenario, clusters: Vec<Value>) -> Done {
        let mut stage = Self {
            plane,
            clusters,
            namespace: &scenario.name,
            kinds: BTreeSet::new(),
            applied: BTreeSet::new(),
            settled: 0,
            own: BTreeMap::new(),
            written: Written::default(),
        };
        stage.namespace(stage.namespace).await;
        for (nth, step) in scenario.steps.iter().enumerate() {
            let taken = stage.take(step).await;
            taken.map_err(|why| format!("step {}: {why}", nth + 1))?;
        }
        stage.leave().await;
        Ok(())
    }

    /// Deletes all objects, so that they do not slow down later scenarios.
    async fn leave(&self) {
        let control = &self.plane.control;
        for place in &self.applied {
            let _ = self.delete(control, place).await;
        }
        let at = At::one(&NAMESPACES, "", self.namespace);
        let _ = control.api.delete(at, &DeleteOptions::default()).await;
    }

    async fn namespace(&self, name: &str) {
        let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let _ = self.plane.control.try_create(made).await;
        for member in &self.plane.members {
            member.until_there(&NAMESPACES, "", name).await;
        }
    }

    async fn take(&mut self, step: &Step) -> Done {
        let server = self.plane.server(step.r#in.as_deref())?;
        for object in &step.apply {
            let object = self.whole(object.clone());
            self.kinds.insert(text(&object, "/kind").to_owned());
            if step.r#in.is_none() {
                let (kind, name) = (text(&object, "/kind"), text(&object, "/metadata/name"));
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
        for place in &step.delete {
            self.delete(server, place)
                .await
                .map_err(|e| e.to_string())?;
            let (resource, namespace, name) = self.at(place);
            server.until_gone(resource, namespace, name).await;
            if step.r#in.is_none() {
                self.written.delete(place);
            }
        }
        for (place, replicas) in &step.scale {
            let (resource, namespace, name) = self.at(place);
            let at = At::one(resource, namespace, name).sub("scale");
            let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
            let done = server.api.patch(at, patch, &WriteOptions::default()).await;
            done.map_err(|e| e.to_string())?;
            if step.r#in.is_none() {
                self.written.scale(place, *replicas);
            }
        }
        for (place, patch) in &step.status {
            let (resource, namespace, name) = self.at(place);
            let at = At::one(resource, namespace, name).sub("status");
            let patch = Patch::Merge(json!({ "status": patch }));
            let done = server.api.patch(at, patch, &WriteOptions::default()).await;
            done.map_err(|e| e.to_string())?;
        }
        for (cluster, patch) in &step.cluster {
            let control = &self.plane.control;
            control.merge(&CLUSTERS, "", cluster, patch.clone()).await;
        }
        if step.restore {
            restore(self.plane, &self.clusters).await;
        }
        if step.second {
            tokio::time::sleep(SECOND).await;
        }
        if let Some(attempt) = &step.refused {
            self.refused(attempt, step.code, &step.message).await?;
        }
        if let Some(kind) = &step.served {
            let resource = gvr(&json!({ "kind": kind }));
            until(kind, async || {
                let at = At::all(resource, self.namespace);
                let options = ListOptions::default();
                let listed = self.plane.control.api.list(at, &options).await;
                listed.is_ok()
            })
            .await;
        }
        if step.settle {
            self.settle().await;
        }
        if let Some(expected) = &step.expect {
            self.expect(expected).await?;
        }
        for (place, expected) in &step.shows {
            self.shows(server, place, expected).await?;
        }
        for place in &step.gone {
            let (resource, namespace, name) = self.at(place);
            server.until_gone(resource, namespace, name).await;
        }
        for told in &step.events {
            self.told(told).await?;
        }
        Ok(())
    }

    /// Completes the fields that a scenario may omit, see [`crate::scenario`].
    fn whole(&self, mut object: Value) -> Value {
        let kind = text(&object, "/kind").to_owned();
        fill_version(&mut object);
        if !wide(&kind) {
            object["metadata"]["namespace"] = self.namespace.into();
        }
        if let Some(Value::Array(all)) = object.pointer_mut("/spec/resourceSelectors") {
            all.iter_mut().for_each(fill_version);
        }
        let name = object["metadata"]["name"].clone();
        let spec = &mut object["spec"];
        if ["Deployment", "StatefulSet"].contains(&&*kind) && spec.get("template").is_none() {
            spec["selector"] = json!({"matchLabels": {"app": name}});
            spec["template"] = pods(name.as_str().unwrap_or_default());
        }
        object
    }

    fn at<'b>(&'b self, place: &'b str) -> (&'static Gvr, &'b str, &'b str) {
        let (kind, name) = place.split_once('/').unwrap();
        let namespace = if wide(kind) { "" } else { self.namespace };
        (gvr(&json!({ "kind": kind })), namespace, name)
    }

    /// Creates the object, or merges it into the existing one.
    async fn apply(&self, server: &Server, object: Value) -> Result<(), Error> {
        match server.try_create(object.clone()).await {
            Err(why) if why.is_already_exists() => self.merge(server, object).await,
            done => done.map(drop),
        }
    }

    async fn merge(&self, server: &Server, object: Value) -> Result<(), Error> {
        let place = format!(
            "{}/{}",
            text(&object, "/kind"),
            text(&object, "/metadata/name")
        );
        let (resource, namespace, name) = self.at(&place);
        let at = At::one(resource, namespace, name);
        let patch = Patch::Merge(object);
        let done = server.api.patch(at, patch, &WriteOptions::default()).await;
        done.map(drop)
    }

    async fn delete(&self, server: &Server, place: &str) -> Result<(), Error> {
        let (resource, namespace, name) = self.at(place);
        let at = At::one(resource, namespace, name);
        let done = server.api.delete(at, &DeleteOptions::default()).await;
        done.map(drop)
    }

    async fn refused(&self, attempt: &Value, code: u16, message: &str) -> Done {
        let control = &self.plane.control;
        let done = if let Some(place) = attempt["delete"].as_str() {
            self.delete(control, place).await
        } else if attempt["merge"].is_object() {
            self.merge(control, attempt["merge"].clone()).await
        } else {
            let made = control.try_create(self.whole(attempt.clone())).await;
            made.map(drop)
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
            Err(why) => Err(why.to_string()),
        }
    }

    /// Propagates two new objects to every member. Queues are fair, so that the effects of
    /// earlier steps are complete then.
    async fn settle(&mut self) {
        self.settled += 1;
        let space = format!("{SETTLED}-{}", self.namespace);
        self.namespace(&space).await;
        let control = &self.plane.control;
        for round in ["a", "b"] {
            let name = format!("{round}{}", self.settled);
            let object = config_map(&space, &name, "v");
            let mut everywhere = policy(&space, &name, &object, &[]);
            everywhere["spec"]["placement"] =
                json!({"clusterTolerations": [{"operator": "Exists"}]});
            control.create(everywhere).await;
            control.create(object).await;
            for member in &self.plane.members {
                member.until_there(&CONFIG_MAPS, &space, &name).await;
            }
        }
    }

    async fn expect(&mut self, expected: &BTreeMap<String, Expected>) -> Done {
        for (place, expected) in expected {
            let policies = expected.by.iter().chain(&expected.left);
            for place in policies.chain([place]) {
                let kind = place.split_once('/').map_or("", |(kind, _)| kind);
                self.kinds.insert(kind.to_owned());
            }
        }
        let kinds: Vec<String> = self.kinds.iter().cloned().collect();
        let end = Instant::now() + PATIENCE;
        loop {
            let before = std::mem::take(&mut self.own);
            let mut seen = Seen::now(self.plane, self.namespace, &kinds, before).await;
            for (place, object) in &mut seen.own {
                *object = self.written.completed(place, object);
            }
            let why = match frame::tree(self.namespace, expected, &seen) {
                Ok(expected) => differences(&expected, &seen.tree()),
                Err(why) => vec![why],
            };
            self.own = seen.own;
            if why.is_empty() {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("\n  {}", why.join("\n  ")));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn shows(&self, server: &Server, place: &str, expected: &Value) -> Done {
        let mut parts = place.splitn(3, '/');
        let (kind, name) = (parts.next(), parts.next());
        let (kind, name) = (kind.unwrap_or_default(), name.ok_or("not Kind/name")?);
        let place = format!("{kind}/{name}");
        let (resource, namespace, name) = self.at(&place);
        let at = At::one(resource, namespace, name).sub(parts.next().unwrap_or_default());
        let end = Instant::now() + PATIENCE;
        loop {
            let why = match server.api.get(at).await {
                Ok(object) => lacks(expected, &object.value().unwrap()),
                Err(why) => vec![why.to_string()],
            };
            if why.is_empty() {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("{place}\n  {}", why.join("\n  ")));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn told(&self, told: &Told) -> Done {
        let (kind, name) = told.on.split_once('/').ok_or("not Kind/name")?;
        let place = if wide(kind) {
            "default"
        } else {
            self.namespace
        };
        let end = Instant::now() + PATIENCE;
        loop {
            let all = self.plane.control.list(&EVENTS, place).await;
            let mut about = all.iter().filter(|e| {
                text(e, "/involvedObject/kind") == kind && text(e, "/involvedObject/name") == name
            });
            let fits = |e: &Value| {
                e["type"] == *told.r#type
                    && e["reason"] == *told.reason
                    && e["message"] == *told.message
            };
            if about.clone().any(fits) {
                return Ok(());
            }
            if Instant::now() > end {
                let recorded: String = about
                    .by_ref()
                    .map(|e| format!("\n  {} {} {}", e["type"], e["reason"], e["message"]))
                    .collect();
                return Err(format!("no event {told:?}, but{recorded}"));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Restores the labels and the mutable fields of the spec of clusters.
async fn restore(plane: &Plane, before: &[Value]) {
    for was in before {
        let name = text(was, "/metadata/name");
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
        control.merge(&CLUSTERS, "", name, patch).await;
        let labels = json!({"metadata": {"labels": was["metadata"]["labels"]}});
        control.merge(&CLUSTERS, "", name, labels).await;
    }
}

/// Whether a kind is cluster-scoped.
fn wide(kind: &str) -> bool {
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

fn fill_version(object: &mut Value) {
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

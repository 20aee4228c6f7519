//! A control plane with members, and how to ask them.
//!
//! Leaves: trees of values; a failed wait panics with what was seen last.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use client::remote::Remote;
use client::remote::kubeconfig::Source;
use client::{Api, At, DeleteOptions, Error, ListOptions, Patch, Tasks, WriteOptions};
use harness::Process;
use machinery::Gvr;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::objects::{CLUSTERS, NAMESPACES, gvr};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_flotilla");
pub(crate) const MEMBERS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

/// `flotilla up --members 3` in a directory that outlives the process.
pub(crate) struct Up {
    process: Option<Process>,
    dir: TempDir,
}

impl Up {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let process = Some(up(dir.path()));
        Self { process, dir }
    }

    /// The one of this moment. The last story that holds it ends it: a static
    /// would never be dropped.
    fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Up>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock();
        if let Some(running) = shared.upgrade() {
            return running;
        }
        let started = Arc::new(Self::start());
        *shared = Arc::downgrade(&started);
        started
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Again, on what the last one left.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.process = Some(up(self.dir.path()));
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }
}

fn up(dir: &Path) -> Process {
    let path = dir.display().to_string();
    let members = MEMBERS.to_string();
    let arguments = [
        "up",
        "--listen",
        "127.0.0.1:0",
        "--nodes",
        "3",
        "--members",
        &members,
        "--dir",
        &path,
    ];
    Process::start(BINARY, &arguments, &dir.join("log")).0
}

/// Connections to a control plane and its members.
pub(crate) struct Fleet {
    pub(crate) control: Server,
    pub(crate) members: Vec<Server>,
    pub(crate) up: Arc<Up>,
}

impl Fleet {
    /// The shared one, with a new namespace.
    pub(crate) async fn shared(namespace: &str) -> Self {
        let up = tokio::task::spawn_blocking(Up::shared).await.unwrap();
        let fleet = Self {
            control: Server::connect("control plane", &up.dir().join("kubeconfig")),
            members: members(&up),
            up,
        };
        fleet.control.namespace(namespace).await;
        fleet
    }

    /// By its name.
    pub(crate) fn member(&self, name: &str) -> &Server {
        self.members.iter().find(|m| m.name == name).unwrap()
    }
}

pub(crate) fn members(up: &Up) -> Vec<Server> {
    (1..=MEMBERS)
        .map(|n| {
            let name = format!("member{n}");
            Server::connect(&name, &up.dir().join(&name).join("kubeconfig"))
        })
        .collect()
}

/// `flotilla ARGUMENTS`, which must succeed; what it prints.
pub(crate) async fn flotilla(arguments: &[&str]) -> String {
    let mut command = Command::new(BINARY);
    command.args(arguments);
    let out = tokio::task::spawn_blocking(move || command.output());
    let out = out.await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    assert!(out.status.success(), "{arguments:?}: {said}");
    said
}

/// One API server.
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) api: Arc<dyn Api>,
}

impl Server {
    pub(crate) fn connect(name: &str, kubeconfig: &Path) -> Self {
        let config = Source::file(kubeconfig).load().unwrap();
        let tasks = Tasks::new(client::Shutdown::new());
        let api = Arc::new(Remote::new(config, &tasks).unwrap());
        Self {
            name: name.to_owned(),
            api,
        }
    }

    pub(crate) async fn create(&self, object: Value) -> Value {
        let made = self.try_create(object.clone()).await;
        made.unwrap_or_else(|why| panic!("{}: {why}: {object:#}", self.name))
    }

    pub(crate) async fn try_create(&self, object: Value) -> client::Result<Value> {
        let resource = gvr(&object);
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("");
        let at = At::all(resource, namespace);
        let options = WriteOptions::default();
        let made = self.api.create(at, object.clone(), &options);
        Ok(made.await?.value()?)
    }

    /// A namespace in which the control plane is done with its own first objects.
    pub(crate) async fn namespace(&self, name: &str) {
        self.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
            .await;
    }

    pub(crate) async fn get(&self, resource: &Gvr, namespace: &str, name: &str) -> Option<Value> {
        match self.api.get(At::one(resource, namespace, name)).await {
            Ok(object) => Some(object.value().unwrap()),
            Err(Error::Status(status)) if status.code == 404 => None,
            Err(why) => panic!("{} {resource:?} {namespace}/{name}: {why}", self.name),
        }
    }

    pub(crate) async fn list(&self, resource: &Gvr, namespace: &str) -> Vec<Value> {
        let options = ListOptions::default();
        let list = self.api.list(At::all(resource, namespace), &options);
        let list = list.await.unwrap();
        list.items.iter().map(|o| o.value().unwrap()).collect()
    }

    /// A merge patch.
    pub(crate) async fn merge(
        &self,
        resource: &Gvr,
        namespace: &str,
        name: &str,
        patch: Value,
    ) -> Value {
        let at = At::one(resource, namespace, name);
        let done = self
            .api
            .patch(at, Patch::Merge(patch), &WriteOptions::default())
            .await;
        let done = done.unwrap_or_else(|why| panic!("{} {namespace}/{name}: {why}", self.name));
        done.value().unwrap()
    }

    pub(crate) async fn delete(&self, resource: &Gvr, namespace: &str, name: &str) {
        let at = At::one(resource, namespace, name);
        let gone = self.api.delete(at, &DeleteOptions::default()).await;
        gone.unwrap_or_else(|why| panic!("{} {namespace}/{name}: {why}", self.name));
    }

    /// Until there is an object that fits.
    pub(crate) async fn until(
        &self,
        resource: &Gvr,
        namespace: &str,
        name: &str,
        what: &str,
        fits: impl Fn(&Value) -> bool,
    ) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let seen = self.get(resource, namespace, name).await;
            match seen {
                Some(object) if fits(&object) => return object,
                _ if Instant::now() < end => tokio::time::sleep(PAUSE).await,
                Some(object) => panic!("{}: {namespace}/{name}: not {what}: {object:#}", self.name),
                None => panic!(
                    "{}: no {} {namespace}/{name}: not {what}",
                    self.name, resource.resource
                ),
            }
        }
    }

    /// Until there is an object.
    pub(crate) async fn until_there(&self, resource: &Gvr, namespace: &str, name: &str) -> Value {
        self.until(resource, namespace, name, "there", |_| true)
            .await
    }

    /// Until there is none.
    pub(crate) async fn until_gone(&self, resource: &Gvr, namespace: &str, name: &str) {
        let end = Instant::now() + PATIENCE;
        while let Some(object) = self.get(resource, namespace, name).await {
            assert!(
                Instant::now() < end,
                "{}: still there: {object:#}",
                self.name
            );
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Until every cluster is Ready and tells what it serves.
    pub(crate) async fn until_ready(&self, cluster: &str) -> Value {
        self.until(&CLUSTERS, "", cluster, "ready", |c| {
            condition(c, "Ready")["status"] == "True"
                && condition(c, "CompleteAPIEnablements")["status"] == "True"
        })
        .await
    }
}

/// Until all members have the namespace, which is created on the control plane.
pub(crate) async fn spread(fleet: &Fleet, namespace: &str) {
    for member in &fleet.members {
        member.until_there(&NAMESPACES, "", namespace).await;
    }
}

/// A condition of an object; null when it does not say.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let all = object["status"]["conditions"].as_array();
    let mut all = all.into_iter().flatten();
    all.find(|c| c["type"] == kind).unwrap_or(&Value::Null)
}

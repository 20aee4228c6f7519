//! A console over a fake API server, and requests as a browser sends them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use client::{Api, ApiResource, ShutdownToken, TaskGroup};
use client_fake::FakeApi;
use flotilla_cli::doctor::report::{CheckResult, CheckStatus, DoctorReport};
use futures_util::stream::{self, StreamExt};
use http::header::{COOKIE, HOST, LOCATION, ORIGIN, SET_COOKIE};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use karmada_api::resources::{BINDINGS, CLUSTER_BINDINGS, CLUSTER_POLICIES, CLUSTERS, POLICIES};
use karmada_api::rollout::ROLLOUTS;
use karmada_api::well_known_keys::{POLICY_ID, POLICY_NAME, POLICY_NAMESPACE};
use machinery::{Gvr, Status};
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, Receiver, Sender};

use crate::access::{ConsoleAccess, LinkAccess};
use crate::console::{
    Console, ConsoleSubject, ControlPlaneExaminer, ResponseStream, StreamOpener, UserConnections,
};
use crate::guard::RequestGuard;
use crate::response::ConsoleResponse;
use crate::server::ConsoleServer;

pub(super) static DEPLOYMENTS: Gvr = Gvr::from_static("apps", "v1", "deployments");
pub(super) const ADDRESS: &str = "127.0.0.1:8001";
pub(super) const OWN_ORIGIN: &str = "http://127.0.0.1:8001";
/// Pieces of a response that are written before somebody reads them.
const STREAM_PIECES: usize = 64;
const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct FixedExaminer;

#[async_trait]
impl ControlPlaneExaminer for FixedExaminer {
    async fn examine(&self) -> DoctorReport {
        DoctorReport {
            server: "https://plane:6443".to_owned(),
            errors: 1,
            warnings: 0,
            checks: vec![CheckResult {
                check: "tunnels",
                status: CheckStatus::Error,
                message: "the agent of <edge> has lost its tunnel".to_owned(),
                remedy: "read the log of the agent".to_owned(),
            }],
        }
    }
}

/// Responses that go on, by their paths; each is opened once.
#[derive(Default)]
pub(super) struct FakeStreams(Mutex<HashMap<String, Receiver<client::Result<Bytes>>>>);

impl FakeStreams {
    /// The end of a response by which it is written.
    pub(super) fn add(&self, path: &str) -> Sender<client::Result<Bytes>> {
        let (sender, receiver) = mpsc::channel(STREAM_PIECES);
        self.0.lock().insert(path.to_owned(), receiver);
        sender
    }
}

#[async_trait]
impl StreamOpener for FakeStreams {
    async fn open(&self, path: &str) -> client::Result<ResponseStream> {
        let receiver = self.0.lock().remove(path);
        let receiver = receiver.ok_or_else(Status::path_not_found)?;
        let pieces = stream::unfold(receiver, |mut receiver| async move {
            Some((receiver.recv().await?, receiver))
        });
        Ok(pieces.boxed())
    }
}

/// A page as it came.
pub(super) struct ReceivedPage {
    pub(super) status: StatusCode,
    pub(super) headers: http::HeaderMap,
    pub(super) text: String,
}

impl ReceivedPage {
    pub(super) async fn read(response: ConsoleResponse) -> Self {
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Self {
            status: head.status,
            headers: head.headers,
            text: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    pub(super) fn location(&self) -> &str {
        self.headers[LOCATION].to_str().unwrap()
    }

    /// The value of a hidden field of the page's form.
    pub(super) fn field(&self, name: &str) -> String {
        let start = format!("name=\"{name}\" value=\"");
        let (_, rest) = self.text.split_once(&start).unwrap_or_else(|| {
            panic!("no field {name} in {}", self.text);
        });
        rest.split('"').next().unwrap().to_owned()
    }
}

pub(super) struct ConsoleFixture {
    pub(super) api: Arc<FakeApi>,
    pub(super) streams: Arc<FakeStreams>,
    pub(super) console: Arc<Console>,
    pub(super) server: Arc<ConsoleServer>,
    pub(super) links: Arc<Mutex<Vec<String>>>,
    pub(super) tasks: TaskGroup,
}

impl ConsoleFixture {
    /// Starts a console, and waits until it has listed everything.
    pub(super) async fn start(api: Arc<FakeApi>) -> Self {
        let fixture = Self::start_unlisted(api);
        fixture
            .wait_until(|console| console.inventory.remarks().is_empty())
            .await;
        fixture
    }

    pub(super) fn start_unlisted(api: Arc<FakeApi>) -> Self {
        let tasks = TaskGroup::new(ShutdownToken::new());
        let streams = Arc::new(FakeStreams::default());
        let connections = UserConnections {
            api: Arc::clone(&api) as Arc<dyn Api>,
            streams: Arc::clone(&streams) as Arc<dyn StreamOpener>,
            examiner: Arc::new(FixedExaminer),
        };
        let subject = ConsoleSubject {
            control_plane: "https://plane:6443".to_owned(),
            user_name: None,
            namespace: "shop".to_owned(),
        };
        let console = Console::start(connections, subject, &tasks);
        let links = Arc::new(Mutex::new(Vec::new()));
        let printed = Arc::clone(&links);
        let print = Box::new(move |link| printed.lock().push(link));
        let address: SocketAddr = ADDRESS.parse().unwrap();
        let access = LinkAccess::new(Arc::clone(&console), address, print);
        let server = Arc::new(ConsoleServer {
            access: ConsoleAccess::Link(access),
            guard: RequestGuard::loopback(address),
        });
        Self {
            api,
            streams,
            console,
            server,
            links,
            tasks,
        }
    }

    pub(super) async fn wait_until(&self, condition: impl Fn(&Console) -> bool) {
        let console = &self.console;
        let mut changes = console.inventory.changes();
        let wait = async {
            while !condition(console) {
                changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(TIMEOUT, wait).await.unwrap();
    }

    /// The cookie of a new session.
    pub(super) async fn login(&self) -> String {
        let link = self.links.lock().last().unwrap().clone();
        let path = link.strip_prefix(OWN_ORIGIN).unwrap();
        let response = self.send(request(Method::GET, path)).await;
        assert_eq!(response.status, StatusCode::SEE_OTHER);
        let cookie = response.headers[SET_COOKIE].to_str().unwrap();
        cookie.split(';').next().unwrap().to_owned()
    }

    pub(super) async fn respond(&self, request: Request<Full<Bytes>>) -> ConsoleResponse {
        self.server.respond(request).await
    }

    pub(super) async fn send(&self, request: Request<Full<Bytes>>) -> ReceivedPage {
        ReceivedPage::read(self.respond(request).await).await
    }

    /// A page in a new session.
    pub(super) async fn page(&self, path: &str) -> ReceivedPage {
        let cookie = self.login().await;
        self.get(path, &cookie).await
    }

    pub(super) async fn get(&self, path: &str, cookie: &str) -> ReceivedPage {
        let mut request = request(Method::GET, path);
        let headers = request.headers_mut();
        headers.insert(COOKIE, cookie.parse().unwrap());
        self.send(request).await
    }

    /// A form with a policy, URL-encoded.
    pub(super) fn manifest_form(plan: &ReceivedPage, manifest: &str) -> String {
        let token = plan.field("token");
        format!("token={token}{}", manifest_field(manifest))
    }

    /// The form of a plan without a policy, with more fields.
    pub(super) fn plan_form(plan: &ReceivedPage, more: &str) -> String {
        let (token, version) = (plan.field("token"), plan.field("version"));
        format!("token={token}&version={version}{more}")
    }

    pub(super) async fn post(&self, path: &str, cookie: &str, form: &str) -> ReceivedPage {
        self.send(form_request(path, cookie, form)).await
    }
}

/// A console with the page of an action that was opened and has written nothing.
pub(super) struct PlannedPage {
    pub(super) fixture: ConsoleFixture,
    pub(super) cookie: String,
    pub(super) plan: ReceivedPage,
    path: String,
}

impl PlannedPage {
    /// Starts a console, and opens the page of an action.
    pub(super) async fn open(api: Arc<FakeApi>, path: &str) -> Self {
        let fixture = ConsoleFixture::start(api).await;
        let cookie = fixture.login().await;
        let plan = fixture.get(path, &cookie).await;
        Self::new(fixture, cookie, plan, path)
    }

    /// The same, and has a policy planned in its form.
    pub(super) async fn of_manifest(api: Arc<FakeApi>, path: &str, manifest: &str) -> Self {
        let Self {
            fixture,
            cookie,
            plan: form,
            ..
        } = Self::open(api, path).await;
        let body = ConsoleFixture::manifest_form(&form, manifest);
        let plan = fixture.post(path, &cookie, &body).await;
        Self::new(fixture, cookie, plan, path)
    }

    fn new(fixture: ConsoleFixture, cookie: String, plan: ReceivedPage, path: &str) -> Self {
        assert_eq!(plan.status, StatusCode::OK, "{}", plan.text);
        assert_eq!(fixture.api.writes(), []);
        Self {
            fixture,
            cookie,
            plan,
            path: path.to_owned(),
        }
    }

    pub(super) fn assert_shows(&self, texts: &[&str]) {
        for text in texts {
            assert!(
                self.plan.text.contains(text),
                "{text} in {}",
                self.plan.text
            );
        }
    }

    /// The form of the plan, with more fields.
    pub(super) fn form(&self, more: &str) -> String {
        ConsoleFixture::plan_form(&self.plan, more)
    }

    /// Executes the plan.
    pub(super) async fn confirm(&self, more: &str) -> ReceivedPage {
        let form = self.form(more);
        self.fixture.post(&self.path, &self.cookie, &form).await
    }

    /// Executes the plan of a policy.
    pub(super) async fn confirm_manifest(&self, manifest: &str) -> ReceivedPage {
        self.confirm(&manifest_field(manifest)).await
    }
}

/// The field of a form with a policy, URL-encoded.
pub(super) fn manifest_field(manifest: &str) -> String {
    let manifest = utf8_percent_encode(manifest, NON_ALPHANUMERIC);
    format!("&manifest={manifest}")
}

/// A request of a browser without a session.
pub(super) fn request(method: Method, path: &str) -> Request<Full<Bytes>> {
    let request = Request::builder().method(method).uri(path);
    let request = request
        .header(HOST, ADDRESS)
        .header("sec-fetch-site", "none");
    request.body(Full::default()).unwrap()
}

/// A form as a page of the console sends it.
pub(super) fn form_request(path: &str, cookie: &str, form: &str) -> Request<Full<Bytes>> {
    let mut request = request(Method::POST, path);
    let headers = request.headers_mut();
    headers.insert("sec-fetch-site", "same-origin".parse().unwrap());
    headers.insert(ORIGIN, OWN_ORIGIN.parse().unwrap());
    headers.insert(COOKIE, cookie.parse().unwrap());
    *request.body_mut() = Full::from(form.to_owned());
    request
}

fn api_resource(resource: &Gvr, kind: &str, namespaced: bool) -> ApiResource {
    ApiResource {
        resource: resource.clone(),
        kind: kind.to_owned(),
        namespaced,
        verbs: ["get", "list", "watch", "delete", "patch"]
            .map(str::to_owned)
            .into(),
        subresources: vec![],
        categories: vec![],
        short_names: vec![],
    }
}

/// A fake API server that serves what the pages read.
pub(super) fn api() -> Arc<FakeApi> {
    let api = FakeApi::new();
    for (resource, kind, namespaced) in [
        (&CLUSTERS, "Cluster", false),
        (&BINDINGS, "ResourceBinding", true),
        (&CLUSTER_BINDINGS, "ClusterResourceBinding", false),
        (&ROLLOUTS, "Rollout", true),
        (&DEPLOYMENTS, "Deployment", true),
        (&POLICIES, "PropagationPolicy", true),
        (&CLUSTER_POLICIES, "ClusterPropagationPolicy", false),
    ] {
        api.add_resource(api_resource(resource, kind, namespaced));
    }
    api
}

pub(super) fn cluster(name: &str, ready: &str, message: &str) -> Value {
    json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
        "spec": {"syncMode": "Push", "region": "north",
            "taints": [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]},
        "status": {"kubernetesVersion": "v1.36.1", "nodeSummary": {"totalNum": 3, "readyNum": 2},
            "conditions": [{"type": "Ready", "status": ready, "reason": "ClusterNotReachable", "message": message}],
            "resourceSummary": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
                "allocated": {"cpu": "2500m", "memory": "31Gi", "pods": "11"}}}})
}

pub(super) fn deployment(name: &str, replicas: i64) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"), "generation": 1},
        "spec": {"replicas": replicas}})
}

/// The binding of a Deployment, healthy in its clusters.
pub(super) fn binding(name: &str, targets: &[(&str, i64)]) -> Value {
    let clusters: Vec<Value> = targets
        .iter()
        .map(|(name, replicas)| json!({"name": name, "replicas": replicas}))
        .collect();
    let statuses: Vec<Value> = targets
        .iter()
        .map(|(name, _)| json!({"clusterName": name, "applied": true, "health": "Healthy"}))
        .collect();
    let replicas: i64 = targets.iter().map(|(_, replicas)| replicas).sum();
    json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": format!("{name}-deployment"), "namespace": "shop"},
        "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": name},
            "replicas": replicas, "placement": {}, "clusters": clusters},
        "status": {"conditions": [{"type": "Scheduled", "status": "True", "reason": "Success"}],
            "aggregatedStatus": statuses}})
}

/// The rollout of a Deployment, whose stage `everywhere` waits for an approval.
pub(super) fn rollout(name: &str) -> Value {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": name,
        "uid": format!("uid-{name}"), "controller": true}]);
    json!({"apiVersion": "rollout.flotilla.io/v1alpha1", "kind": "Rollout",
        "metadata": {"name": format!("{name}-deployment"), "namespace": "shop", "ownerReferences": owner},
        "spec": {},
        "status": {"observedTemplateGeneration": 1, "targetRevision": "web-2", "stableRevision": "web-1",
            "state": "AwaitingApproval", "stage": "everywhere", "progress": "1/2", "policy": "RolloutPolicy/web u/1",
            "stages": [
                {"name": "canary", "phase": "Done",
                    "job": {"name": "smoke-1", "state": "Succeeded", "since": "2026-01-01T00:00:00Z"},
                    "clusters": [
                    {"name": "east", "phase": "Done", "revision": "web-2", "since": "2026-01-01T00:00:00Z"}]},
                {"name": "everywhere", "phase": "Blocked", "clusters": [
                    {"name": "west", "phase": "Blocked", "revision": "web-1", "since": "2026-01-01T00:00:00Z",
                        "reason": "AwaitingApproval"}]}]}})
}

/// Two clusters and the Deployment `web` in both, whose rollout waits for an approval.
pub(super) fn fleet() -> Arc<FakeApi> {
    let api = api();
    api.seed(&CLUSTERS, cluster("east", "True", ""));
    api.seed(&CLUSTERS, cluster("west", "False", "no <b>answer</b>"));
    api.seed(&DEPLOYMENTS, deployment("web", 3));
    api.seed(&BINDINGS, binding("web", &[("east", 2), ("west", 1)]));
    api.seed(&ROLLOUTS, rollout("web"));
    api
}

/// The fleet, whose Deployment a policy has claimed that names `east`.
pub(super) fn claimed_fleet() -> Arc<FakeApi> {
    let api = fleet();
    let claim = |object: &mut Value| {
        object["metadata"]["labels"] = json!({POLICY_ID: "p"});
        object["metadata"]["annotations"] = json!({POLICY_NAMESPACE: "shop", POLICY_NAME: "web"});
    };
    let (mut template, mut bound) = (
        deployment("web", 3),
        binding("web", &[("east", 2), ("west", 1)]),
    );
    claim(&mut template);
    claim(&mut bound);
    api.seed(&DEPLOYMENTS, template);
    api.seed(&BINDINGS, bound);
    let selector = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}]);
    api.seed(
        &POLICIES,
        json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {"name": "web", "namespace": "shop", "labels": {POLICY_ID: "p"}},
            "spec": {"resourceSelectors": selector,
                "placement": {"clusterAffinity": {"clusterNames": ["east"]}}}}),
    );
    api
}

//! The traffic of the soak test: tasks that create, change, read, watch, refuse and delete.
//!
//! A task panics on an answer that it does not expect.

use std::time::Duration;

use harness::http_client::{HttpTestRequest, HttpTestResponse, full_body};
use harness::objects::deployment;
use harness::{HttpTestClient, objects};
use http_body_util::BodyExt;
use hyper::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, timeout};

/// The number of members of the control plane under test.
pub(super) const MEMBERS: usize = 3;
const NAMESPACE: &str = "/api/v1/namespaces/default";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const POLICIES: &str = "/apis/policy.karmada.io/v1alpha1/namespaces/default/propagationpolicies";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const MERGE_PATCH: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
/// How many objects of a kind of traffic exist at once.
const LIVE_DEPLOYMENTS: usize = 40;
const LIVE_CONFIG_MAPS: usize = 200;
const SERVED_TIMEOUT: Duration = Duration::from_secs(60);

/// A client that stops its tasks at the end of the test.
#[derive(Clone)]
pub(super) struct SoakClient {
    pub(super) client: HttpTestClient,
    /// A client without a certificate, for requests with tokens.
    pub(super) anonymous: HttpTestClient,
    pub(super) end: Instant,
}

/// The steps of a task: one in a period, until the test ends.
struct TrafficSteps {
    ticks: Interval,
    end: Instant,
    next: usize,
}

impl TrafficSteps {
    async fn next(&mut self) -> Option<usize> {
        self.ticks.tick().await;
        let number = self.next;
        self.next += 1;
        (Instant::now() < self.end).then_some(number)
    }
}

/// Starts every kind of traffic.
pub(super) fn spawn_all(client: &SoakClient, tasks: &mut JoinSet<()>) {
    tasks.spawn(client.clone().replace_workloads());
    tasks.spawn(client.clone().replace_config_maps());
    tasks.spawn(client.clone().replace_definitions());
    tasks.spawn(client.clone().replace_namespaces());
    tasks.spawn(client.clone().delete_events());
    tasks.spawn(client.clone().read());
    tasks.spawn(client.clone().watch());
    tasks.spawn(client.clone().send_invalid_requests());
}

impl SoakClient {
    /// A number for each step of a task, until the test ends.
    fn steps(&self, period: Duration) -> TrafficSteps {
        let mut ticks = interval(period);
        // On a busy machine traffic gets less instead of coming in bursts.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        TrafficSteps {
            ticks,
            end: self.end,
            next: 0,
        }
    }

    async fn send(&self, code: u16, request: HttpTestRequest) -> HttpTestResponse {
        let reply = self.client.call(request).await;
        assert_eq!(reply.code, code, "{}", String::from_utf8_lossy(&reply.body));
        reply
    }

    /// A request with a token, which is refused with `code`.
    async fn refused(&self, code: u16, path: &str, token: &str) {
        let request = HttpTestRequest::new(Method::GET, path)
            .header("authorization", &format!("Bearer {token}"));
        let reply = self.anonymous.call(request).await;
        assert_eq!(reply.code, code, "{}", String::from_utf8_lossy(&reply.body));
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let request = HttpTestRequest::new(Method::POST, path).json(body);
        self.send(201, request).await.json()
    }

    async fn patch(&self, code: u16, path: &str, kind: &str, body: &Value) -> HttpTestResponse {
        let request = HttpTestRequest::new(Method::PATCH, path)
            .header("content-type", kind)
            .body(full_body(body.to_string()));
        self.send(code, request).await
    }

    async fn delete(&self, path: &str) {
        self.send(200, HttpTestRequest::new(Method::DELETE, path))
            .await;
    }

    /// Deployments that are propagated to all members, scaled and deleted.
    async fn replace_workloads(self) {
        let policy = json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {"name": "all"},
            "spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
                "placement": {"replicaScheduling": {"replicaSchedulingType": "Duplicated"}}},
        });
        self.post(POLICIES, &policy).await;
        let path = |number: usize| format!("{DEPLOYMENTS}/workload-{number}");
        let mut steps = self.steps(Duration::from_secs(1));
        while let Some(number) = steps.next().await {
            let name = format!("workload-{number}");
            self.post(DEPLOYMENTS, &deployment("default", &name, 1))
                .await;
            if let Some(scaled) = number.checked_sub(LIVE_DEPLOYMENTS / 2) {
                let replicas = json!({"spec": {"replicas": 3}});
                self.patch(200, &path(scaled), MERGE_PATCH, &replicas).await;
            }
            if let Some(oldest) = number.checked_sub(LIVE_DEPLOYMENTS) {
                self.delete(&path(oldest)).await;
            }
        }
    }

    /// ConfigMaps that are created, applied by two managers, patched and deleted.
    async fn replace_config_maps(self) {
        let all = format!("{NAMESPACE}/configmaps");
        let path = |number: usize| format!("{all}/map-{number}");
        let mut steps = self.steps(Duration::from_millis(250));
        while let Some(number) = steps.next().await {
            let map = objects::config_map("default", &format!("map-{number}"), "created");
            self.post(&all, &map).await;
            for manager in ["one", "two"] {
                let body = json!({"apiVersion": "v1", "kind": "ConfigMap",
                    "data": {manager: "x".repeat(1 + number % 4096)}});
                let applied = format!("{}?fieldManager={manager}", path(number));
                self.patch(200, &applied, APPLY, &body).await;
            }
            let body = json!({"data": {"k": number.to_string()}});
            self.patch(200, &path(number), MERGE_PATCH, &body).await;
            if let Some(oldest) = number.checked_sub(LIVE_CONFIG_MAPS) {
                self.delete(&path(oldest)).await;
            }
        }
    }

    /// Definitions with rules in CEL, and objects of theirs.
    async fn replace_definitions(self) {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "soaks.example.org"},
            "spec": {"group": "example.org", "scope": "Namespaced",
                "names": {"plural": "soaks", "singular": "soak", "kind": "Soak", "listKind": "SoakList"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {
                        "type": "object", "properties": {"size": {"type": "integer"}},
                        "x-kubernetes-validations": [{"rule": "self.size < 10"}]}}}}}]},
        });
        let soak = |name: String, size: usize| {
            json!({"apiVersion": "example.org/v1", "kind": "Soak",
                "metadata": {"name": name}, "spec": {"size": size}})
        };
        let all = "/apis/example.org/v1/namespaces/default/soaks";
        let own = format!("{DEFINITIONS}/soaks.example.org");
        let mut steps = self.steps(Duration::from_secs(10));
        while steps.next().await.is_some() {
            self.post(DEFINITIONS, &definition).await;
            self.wait_for_code(200, all).await;
            for size in 0..10 {
                self.post(all, &soak(format!("soak-{size}"), size)).await;
            }
            let invalid_request =
                HttpTestRequest::new(Method::POST, all).json(&soak("big".into(), 10));
            self.send(422, invalid_request).await;
            self.delete(&own).await;
            self.wait_for_code(404, &own).await;
        }
    }

    /// Namespaces with an account whose token may do nothing.
    async fn replace_namespaces(self) {
        let mut steps = self.steps(Duration::from_secs(5));
        while let Some(number) = steps.next().await {
            let name = format!("soak-{number}");
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            self.post("/api/v1/namespaces", &namespace).await;
            let path = format!("/api/v1/namespaces/{name}");
            let account =
                json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}});
            self.post(&format!("{path}/serviceaccounts"), &account)
                .await;
            self.post(
                &format!("{path}/secrets"),
                &objects::secret(&name, "s", "v"),
            )
            .await;
            let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
            let token = self
                .post(&format!("{path}/serviceaccounts/a/token"), &request)
                .await;
            let token = token["status"]["token"].as_str().unwrap();
            self.refused(403, &format!("{path}/secrets"), token).await;
            self.delete(&path).await;
            self.wait_for_code(404, &path).await;
        }
    }

    /// Events stay for an hour unless somebody deletes them. Those of Works are in the execution
    /// namespaces: twelve for each Deployment.
    async fn delete_events(self) {
        let spaces = (1..=MEMBERS).map(|n| format!("/api/v1/namespaces/karmada-es-member{n}"));
        let namespaces: Vec<String> = spaces.chain([NAMESPACE.to_owned()]).collect();
        let mut steps = self.steps(Duration::from_secs(60));
        while steps.next().await.is_some() {
            for namespace in &namespaces {
                self.delete(&format!("{namespace}/events")).await;
            }
        }
    }

    /// Every form of an answer.
    async fn read(self) {
        let maps = format!("{NAMESPACE}/configmaps");
        let forms = [
            (format!("{maps}?limit=50"), "application/json"),
            (maps.clone(), PROTOBUF),
            (maps, TABLE),
            (DEPLOYMENTS.to_owned(), TABLE),
            (
                "/apis/work.karmada.io/v1alpha2/resourcebindings".to_owned(),
                "application/json",
            ),
            ("/openapi/v3".to_owned(), "application/json"),
            ("/apis".to_owned(), "application/json"),
            ("/metrics".to_owned(), "text/plain"),
        ];
        let mut steps = self.steps(Duration::from_millis(500));
        while let Some(number) = steps.next().await {
            let (path, accept) = &forms[number % forms.len()];
            let request = HttpTestRequest::new(Method::GET, path)
                .header("accept", accept)
                .header("accept-encoding", ["identity", "gzip"][number % 2]);
            self.send(200, request).await;
        }
    }

    /// Watches that the server ends, and watches whose client goes away.
    async fn watch(self) {
        let mut steps = self.steps(Duration::from_millis(500));
        while let Some(number) = steps.next().await {
            let seconds = 1 + number % 5;
            let path = format!("{NAMESPACE}/configmaps?watch=true&timeoutSeconds={seconds}");
            let accept = ["application/json", PROTOBUF, TABLE][number % 3];
            let request = HttpTestRequest::new(Method::GET, &path).header("accept", accept);
            let response = self.client.send_http2(request).await;
            assert_eq!(response.status(), 200);
            let body = response.into_body();
            tokio::spawn(async move {
                // Half of the clients go away before the server ends the watch.
                let limit = Duration::from_millis(if number % 2 == 0 { 500 } else { 20_000 });
                let _ = timeout(limit, body.collect()).await;
            });
        }
    }

    /// Requests that are refused before, while and after their body is read.
    async fn send_invalid_requests(self) {
        let maps = format!("{NAMESPACE}/configmaps");
        let mut steps = self.steps(Duration::from_millis(500));
        while let Some(number) = steps.next().await {
            let post = || HttpTestRequest::new(Method::POST, &maps);
            self.refused(401, &maps, &format!("token-{number}")).await;
            let json = "application/json";
            let malformed = post().header("content-type", json).body(full_body("{"));
            self.send(400, malformed).await;
            let named = objects::config_map("default", "Not A Name", "v");
            self.send(422, post().json(&named)).await;
            let missing = format!("{maps}/missing-{number}");
            self.send(404, HttpTestRequest::new(Method::GET, &missing))
                .await;
            let selector = format!("{maps}?labelSelector=a%20in%20({number}");
            self.send(400, HttpTestRequest::new(Method::GET, &selector))
                .await;
        }
    }

    async fn wait_for_code(&self, code: u16, path: &str) {
        let deadline = Instant::now() + SERVED_TIMEOUT;
        while self.client.get(path).await.code != code {
            assert!(Instant::now() < deadline, "{path}: never {code}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

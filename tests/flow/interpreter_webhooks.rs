//! Custom resources interpreted by webhooks, alone and together with Lua scripts.

use std::cell::Cell;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use harness::http_client::{TestHttpBody, full_body};
use harness::https_server::{FakeHttpsServer, TestRequestHandler};
use http_body_util::BodyExt;
use hyper::{Request, Response, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::flow::fleet::{ApiServerClient, FleetFixture, find_condition, wait_until};
use crate::flow::interpreter_customizations::{WIDGET_KIND, customization, fleet_with_widgets};
use crate::flow::objects::{
    BINDINGS, CONFIG_MAPS, CUSTOMIZATIONS, DEPLOYMENTS, EVENTS, HOOKS, WIDGETS, config_map,
    deployment, divided_policy, policy, widget,
};

/// How the webhook answers requests.
#[derive(Clone, Copy, Debug, PartialEq)]
enum WebhookBehavior {
    Answers,
    /// The webhook does not answer until the behavior changes.
    Hangs,
    Garbage,
    Refuses,
    Fails,
}

/// An interpreter webhook for widgets that records its requests.
struct FakeWidgetWebhook {
    server: FakeHttpsServer,
    requests: Arc<Mutex<Vec<Value>>>,
    behavior: watch::Sender<WebhookBehavior>,
}

impl FakeWidgetWebhook {
    async fn start(names: &[&str]) -> Self {
        let requests: Arc<Mutex<Vec<Value>>> = Arc::default();
        let (mood, behavior) = watch::channel(WebhookBehavior::Answers);
        let log = Arc::clone(&requests);
        let handler: TestRequestHandler = Arc::new(move |request| {
            let (log, behavior) = (Arc::clone(&log), behavior.clone());
            Box::pin(respond(request, log, behavior))
        });
        Self {
            server: FakeHttpsServer::start_with_names(names, handler).await,
            requests,
            behavior: mood,
        }
    }

    /// A configuration for these operations on widgets; `location` has the `url` or `service`
    /// of the client configuration.
    fn configuration(&self, location: Value, operations: &[&str], seconds: u64) -> Value {
        let mut client = json!({"caBundle": STANDARD.encode(&self.server.ca_pem)});
        for (field, value) in location.as_object().unwrap() {
            client[field] = value.clone();
        }
        json!({
            "apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterWebhookConfiguration",
            "metadata": {"name": "widgets"},
            "webhooks": [{
                "name": "widgets.example.org", "clientConfig": client, "timeoutSeconds": seconds,
                "rules": [{"operations": operations, "apiGroups": ["example.org"], "apiVersions": ["*"], "kinds": ["Widget"]}],
                "interpreterContextVersions": ["v1alpha1"],
            }],
        })
    }

    fn url(&self) -> Value {
        json!({"url": format!("https://{}/interpret", self.server.address)})
    }

    fn request_count(&self, operation: &str) -> usize {
        let requests = self.requests.lock();
        requests
            .iter()
            .filter(|r| r["operation"] == operation)
            .count()
    }

    fn set_behavior(&self, mood: WebhookBehavior) {
        self.behavior.send_replace(mood);
    }
}

async fn respond(
    request: Request<hyper::body::Incoming>,
    log: Arc<Mutex<Vec<Value>>>,
    mut behavior: watch::Receiver<WebhookBehavior>,
) -> Response<TestHttpBody> {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let context: Value = machinery::json::from_slice(&body).unwrap();
    assert_eq!(context["kind"], "ResourceInterpreterContext", "{context}");
    assert!(query.starts_with("timeout="), "{query}");
    let interpreter_request = context["request"].clone();
    log.lock().push(interpreter_request.clone());
    let mood = *behavior
        .wait_for(|mood| *mood != WebhookBehavior::Hangs)
        .await
        .unwrap();
    let mut response = match mood {
        WebhookBehavior::Garbage => return Response::new(full_body("<html>no</html>")),
        WebhookBehavior::Fails => {
            let mut failed = Response::new(full_body("out of order"));
            *failed.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            return failed;
        }
        WebhookBehavior::Refuses => {
            json!({"successful": false, "status": {"code": 403, "message": "not this one"}})
        }
        _ => interpret_widget(&interpreter_request),
    };
    response["uid"] = interpreter_request["uid"].clone();
    let reply = json!({"apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterContext", "response": response});
    Response::new(full_body(reply.to_string()))
}

/// The response of the interpreter for a widget.
fn interpret_widget(request: &Value) -> Value {
    let patch = |path: &str, value: &Value| {
        let steps = json!([{"op": "add", "path": path, "value": value}]);
        json!({"patchType": "JSONPatch", "patch": STANDARD.encode(steps.to_string())})
    };
    let object = &request["object"];
    let ready = |status: &Value| status["ready"].as_i64().unwrap_or(0);
    let mut response = match request["operation"].as_str().unwrap() {
        "InterpretReplica" => json!({"replicas": object["spec"]["size"].as_i64().unwrap() * 2}),
        "ReviseReplica" => patch("/spec/size", &request["replicas"]),
        "Retain" => match &request["observedObject"]["spec"]["node"] {
            Value::Null => json!({}),
            node => patch("/spec/node", node),
        },
        "InterpretStatus" => json!({"rawStatus": {"ready": ready(&object["status"])}}),
        "AggregateStatus" => {
            let items = request["aggregatedStatus"].as_array();
            let all = items.into_iter().flatten().map(|i| ready(&i["status"]));
            patch("/status", &json!({"ready": all.sum::<i64>()}))
        }
        "InterpretHealth" => {
            json!({"healthy": object["status"]["ready"] == object["spec"]["size"]})
        }
        "InterpretDependency" => json!({"dependencies": []}),
        _ => json!({}),
    };
    response["successful"] = true.into();
    response
}

/// Waits for an event about an object whose message contains `message`.
async fn wait_for_event(
    control: &ApiServerClient,
    ns: &str,
    (name, reason): (&str, &str),
    message: &str,
) {
    wait_until(&format!("{name}: {reason}: {message}"), async || {
        let events = control.list(&EVENTS, ns).await;
        events.iter().any(|e| {
            let text = e["message"].as_str().unwrap_or_default();
            let about = e["involvedObject"]["name"] == name;
            about && e["reason"] == reason && text.contains(message)
        })
    })
    .await;
}

/// Waits until the scripts count the replicas of a new widget and the webhook revises them: a copy
/// from before would not be revised later.
async fn wait_until_all_interpret(fleet: &FleetFixture, ns: &str) {
    let control = &fleet.control;
    let attempt = Cell::new(0);
    wait_until("the replicas by a script and their revision", async || {
        attempt.set(attempt.get() + 1);
        let name = format!("early-{}", attempt.get());
        let early = widget(ns, &name, 2);
        let halves = [("member1", 1), ("member2", 1)];
        let claim = divided_policy(ns, &name, &early, &halves);
        control.create(claim).await;
        control.create(early).await;
        let binding = format!("{name}-widget");
        let binding = control.wait_until_exists(&BINDINGS, ns, &binding).await;
        let copy = fleet.members[0]
            .wait_until_exists(&WIDGETS, ns, &name)
            .await;
        binding["spec"]["replicas"] == 2 && copy["spec"]["size"] == 1
    })
    .await;
}

// proves: WEB-order, WEB-operations, WEB-patch, WEB-service, WEB-tls, WEB-effective-at-once, INT-dependencies-of-all
#[tokio::test]
async fn two_customizations_and_a_webhook_interpret_a_kind() {
    let ns = "hooks";
    let fleet = fleet_with_widgets(ns).await;
    let control = &fleet.control;
    let hook = FakeWidgetWebhook::start(&["hook.hooks.svc"]).await;
    let port = hook.server.address.port();
    control
        .create(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook", "namespace": ns},
            "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}}))
        .await;
    let location =
        json!({"service": {"namespace": ns, "name": "hook", "port": port, "path": "/interpret"}});
    let operations = [
        "InterpretReplica",
        "ReviseReplica",
        "Retain",
        "InterpretStatus",
        "AggregateStatus",
    ];
    let configuration = hook.configuration(location, &operations, 10);
    control.create(configuration).await;
    let refers = |field: &str| {
        format!(
            "function GetDependencies(obj)
                return {{{{apiVersion = 'v1', kind = 'ConfigMap', namespace = obj.metadata.namespace, name = obj.spec.{field}}}}}
            end"
        )
    };
    let (one, other) = (refers("config"), refers("other"));
    let scripts = [
        (
            "replicaResource",
            "function GetReplicas(obj) return obj.spec.size, nil end",
        ),
        ("dependencyInterpretation", one.as_str()),
    ];
    control
        .create(customization("sizes", WIDGET_KIND, &scripts))
        .await;
    let scripts = [
        (
            "healthInterpretation",
            "function InterpretHealth(obj) return obj.status ~= nil and obj.status.ready == obj.spec.size end",
        ),
        ("dependencyInterpretation", other.as_str()),
    ];
    control
        .create(customization("health", WIDGET_KIND, &scripts))
        .await;

    wait_until_all_interpret(&fleet, ns).await;
    let asked_before = hook.request_count("InterpretReplica");
    let mut thing = widget(ns, "w", 4);
    thing["spec"]["config"] = "conf".into();
    thing["spec"]["other"] = "more".into();
    let mut claim = divided_policy(ns, "w", &thing, &[("member1", 3), ("member2", 1)]);
    claim["spec"]["propagateDeps"] = true.into();
    for name in ["conf", "more"] {
        control.create(config_map(ns, name, "v")).await;
    }
    control.create(thing).await;
    control.create(claim).await;
    let sized = |size: i64| move |w: &Value| w["spec"]["size"] == size;
    for (member, size) in fleet.members.iter().zip([3, 1]) {
        member
            .wait_until(&WIDGETS, ns, "w", "its share", sized(size))
            .await;
        for name in ["conf", "more"] {
            member.wait_until_exists(&CONFIG_MAPS, ns, name).await;
        }
        let copy = member
            .merge_patch(&WIDGETS, ns, "w", json!({"spec": {"node": "n1"}}))
            .await;
        let status = json!({"ready": size, "own": "x"});
        member.patch_status(&copy, status).await;
    }
    let binding = control
        .wait_until(&BINDINGS, ns, "w-widget", "healthy everywhere", |b| {
            let all = b["status"]["aggregatedStatus"].as_array();
            let all = all.map(|all| {
                let item = |i: &Value| (i["health"].clone(), i["status"].clone());
                all.iter().map(item).collect::<Vec<_>>()
            });
            let well = |ready: i64| (json!("Healthy"), json!({"ready": ready}));
            all.is_some_and(|all| all == [well(3), well(1)])
        })
        .await;
    assert_eq!(binding["spec"]["replicas"], 4, "{binding:#}");
    let summed = |w: &Value| w["status"] == json!({"ready": 4});
    control
        .wait_until(&WIDGETS, ns, "w", "summed up", summed)
        .await;
    // A change of the template retains the field that the member has set.
    let edit = json!({"spec": {"color": "red"}});
    control.merge_patch(&WIDGETS, ns, "w", edit).await;
    let kept = |w: &Value| w["spec"]["color"] == "red" && w["spec"]["node"] == "n1";
    for member in &fleet.members[..2] {
        member
            .wait_until(&WIDGETS, ns, "w", "red, kept", kept)
            .await;
    }
    assert_eq!(hook.request_count("InterpretReplica"), asked_before);

    // Without the scripts the webhook interprets these operations, at once.
    for name in ["sizes", "health"] {
        control.delete(&CUSTOMIZATIONS, "", name).await;
    }
    let doubled = |b: &Value| b["spec"]["replicas"] == 8;
    control
        .wait_until(&BINDINGS, ns, "w-widget", "counted by the hook", doubled)
        .await;
    for (member, size) in fleet.members.iter().zip([6, 2]) {
        let what = "its share of twice as many";
        member
            .wait_until(&WIDGETS, ns, "w", what, sized(size))
            .await;
    }
    control.delete(&HOOKS, "", "widgets").await;
    let uncounted = |b: &Value| b["spec"].get("replicas").is_none();
    control
        .wait_until(&BINDINGS, ns, "w-widget", "without replicas", uncounted)
        .await;
}

// proves: WEB-failure, WEB-response, WEB-timeout, WEB-tls, WEB-again
#[tokio::test]
async fn failing_webhook_is_reported_and_retried() {
    let ns = "bad-hooks";
    let fleet = fleet_with_widgets(ns).await;
    let control = &fleet.control;
    let hook = FakeWidgetWebhook::start(&["127.0.0.1"]).await;
    let operations = [
        "InterpretReplica",
        "ReviseReplica",
        "AggregateStatus",
        "InterpretHealth",
    ];
    let mut configuration = hook.configuration(hook.url(), &operations, 1);
    let ca = configuration["webhooks"][0]["clientConfig"]["caBundle"].take();
    let stranger = FakeWidgetWebhook::start(&["127.0.0.1"]).await;
    configuration["webhooks"][0]["clientConfig"]["caBundle"] =
        STANDARD.encode(&stranger.server.ca_pem).into();
    control.create(configuration.clone()).await;
    let named = "Internal error occurred: failed calling webhook \"widgets/widgets.example.org\": ";
    let replicas = "GetReplicasFailed";
    // An object that is propagated before the webhook is seen has a binding; the webhook is called
    // for it afterwards.
    let early = widget(ns, "early", 1);
    control
        .create(policy(ns, "early", &early, &["member1"]))
        .await;
    control.create(early).await;
    wait_for_event(control, ns, ("early", replicas), named).await;
    let thing = widget(ns, "w", 1);
    let claim = divided_policy(ns, "w", &thing, &[("member1", 1), ("member2", 1)]);
    control.create(claim).await;
    control.create(thing).await;
    let distrusted = format!("{named}failed to call webhook: {}: ", hook.server.address);
    wait_for_event(control, ns, ("w", replicas), &distrusted).await;
    wait_for_event(control, ns, ("w", replicas), "invalid peer certificate").await;
    assert_eq!(hook.requests.lock().len(), 0);
    // There is no binding until the webhook answers.
    assert_eq!(control.get(&BINDINGS, ns, "w-widget").await, None);
    let mut webhooks = configuration["webhooks"].clone();
    webhooks[0]["clientConfig"]["caBundle"] = ca;
    let mended = json!({"webhooks": webhooks});
    control.merge_patch(&HOOKS, "", "widgets", mended).await;
    let sized = |size: i64| move |w: &Value| w["spec"]["size"] == size;
    for member in &fleet.members[..2] {
        member
            .wait_until(&WIDGETS, ns, "w", "its share", sized(1))
            .await;
    }
    // Each kind of failure, for the detector and for the binding controller.
    let sizes = [(
        "replicaResource",
        "function GetReplicas(obj) return obj.spec.size, nil end",
    )];
    for (mood, message) in [
        (
            WebhookBehavior::Garbage,
            "failed to call webhook: the response is not a ResourceInterpreterContext: ",
        ),
        (
            WebhookBehavior::Refuses,
            "webhook call failed, get status code: 403, msg: not this one",
        ),
        (
            WebhookBehavior::Fails,
            "failed to call webhook: 500 Internal Server Error: out of order",
        ),
        (
            WebhookBehavior::Hangs,
            "failed to call webhook: no answer within 1s",
        ),
    ] {
        hook.set_behavior(mood);
        let (name, message) = (
            format!("{mood:?}").to_lowercase(),
            format!("{named}{message}"),
        );
        let thing = widget(ns, &name, 2);
        let weights = [("member1", 1), ("member2", 1)];
        control
            .create(divided_policy(ns, &name, &thing, &weights))
            .await;
        control.create(thing).await;
        wait_for_event(control, ns, (&name, replicas), &message).await;
        // With a script for the replicas, revising the replicas of a Work still fails.
        let scripts = customization("sizes", WIDGET_KIND, &sizes);
        control.create(scripts).await;
        let bound = format!("{name}-widget");
        wait_for_event(control, ns, (&bound, "SyncWorkFailed"), &message).await;
        // Other kinds are still propagated.
        let other = deployment(ns, &name, 1);
        let brings = policy(ns, &format!("{name}-other"), &other, &["member1"]);
        control.create(brings).await;
        control.create(other).await;
        fleet.members[0]
            .wait_until_exists(&DEPLOYMENTS, ns, &name)
            .await;
        // The retry succeeds with the next answer.
        hook.set_behavior(WebhookBehavior::Answers);
        for member in &fleet.members[..2] {
            let what = "its share";
            member.wait_until(&WIDGETS, ns, &name, what, sized(1)).await;
        }
        control.delete(&CUSTOMIZATIONS, "", "sizes").await;
    }
    let again = |b: &Value| b["spec"]["replicas"] == 2;
    control
        .wait_until(&BINDINGS, ns, "w-widget", "counted by the hook", again)
        .await;
    for member in &fleet.members[..2] {
        member
            .wait_until(&WIDGETS, ns, "w", "its share", sized(1))
            .await;
    }
    // An unknown health is reported as Unknown, and retried until the webhook answers.
    hook.set_behavior(WebhookBehavior::Fails);
    let copy = fleet.members[0].wait_until_exists(&WIDGETS, ns, "w").await;
    fleet.members[0]
        .patch_status(&copy, json!({"ready": 1}))
        .await;
    let healths = |expected: &'static str| {
        move |b: &Value| {
            let all = b["status"]["aggregatedStatus"].as_array();
            let mut all = all.into_iter().flatten();
            all.any(|i| i["clusterName"] == "member1" && i["health"] == expected)
        }
    };
    control
        .wait_until(
            &BINDINGS,
            ns,
            "w-widget",
            "of unknown health",
            healths("Unknown"),
        )
        .await;
    wait_for_event(control, ns, ("w", "AggregateStatusFailed"), named).await;
    hook.set_behavior(WebhookBehavior::Answers);
    control
        .wait_until(&BINDINGS, ns, "w-widget", "healthy", healths("Healthy"))
        .await;
    let summed = |w: &Value| w["status"] == json!({"ready": 1});
    control
        .wait_until(&WIDGETS, ns, "w", "summed up", summed)
        .await;
}

/// More objects than any controller has workers wait for a webhook that does not answer.
// proves: WEB-others
#[tokio::test]
async fn hanging_webhook_delays_no_other_object() {
    const HANGING_CALLS: usize = 24;
    let ns = "hung-hooks";
    let fleet = fleet_with_widgets(ns).await;
    let control = &fleet.control;
    let hook = FakeWidgetWebhook::start(&["127.0.0.1"]).await;
    hook.set_behavior(WebhookBehavior::Hangs);
    let configuration = hook.configuration(hook.url(), &["InterpretReplica"], 30);
    control.create(configuration).await;
    for at in 0..HANGING_CALLS {
        let name = format!("w{at}");
        let thing = widget(ns, &name, 1);
        control
            .create(policy(ns, &name, &thing, &["member1"]))
            .await;
        control.create(thing).await;
    }
    wait_until("a request for each", async || {
        hook.request_count("InterpretReplica") == HANGING_CALLS
    })
    .await;
    let other = deployment(ns, "web", 1);
    control
        .create(policy(ns, "web", &other, &["member1"]))
        .await;
    control.create(other).await;
    let applied = |b: &Value| find_condition(b, "FullyApplied")["status"] == "True";
    control
        .wait_until(&BINDINGS, ns, "web-deployment", "applied", applied)
        .await;
    fleet.members[0]
        .wait_until_exists(&DEPLOYMENTS, ns, "web")
        .await;
    // All calls still wait: none was given up or repeated.
    assert_eq!(hook.request_count("InterpretReplica"), HANGING_CALLS);
    hook.set_behavior(WebhookBehavior::Answers);
    for at in 0..HANGING_CALLS {
        let name = format!("w{at}");
        fleet.members[0]
            .wait_until_exists(&WIDGETS, ns, &name)
            .await;
    }
}

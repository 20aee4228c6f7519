//! Tests of the webhook level among the others; closures stand for the webhooks.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use client::webhook::WebhookClientConfig;
use client::{ShutdownToken, TaskGroup};
use client_fake::FakeApi;
use jiff::Timestamp;
use karmada_api::binding::AggregatedStatusItem;
use karmada_api::resources::CUSTOMIZATIONS;
use machinery::Object;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use super::concurrency::MAX_CALLS_IN_FLIGHT;
use super::*;
use crate::native::fixtures::object;
use crate::{LuaLimits, ResourceInterpreter};

const THING: Gvk = Gvk::from_static("example.io", "v1", "Thing");
const DEPLOYMENT: Gvk = Gvk::from_static("apps", "v1", "Deployment");

type WebhookHandler = Box<dyn Fn(&Value) -> Result<Value, String> + Send + Sync>;

/// Answers every webhook call with a closure and records the requests.
struct FakeInterpreterWebhookClient {
    handler: WebhookHandler,
    hangs: bool,
    requests: Mutex<Vec<Value>>,
}

#[async_trait]
impl WebhookClient for FakeInterpreterWebhookClient {
    async fn call(
        &self,
        _: &WebhookClientConfig,
        body: Bytes,
        _: Duration,
    ) -> Result<Bytes, String> {
        let context: Value = machinery::json::from_slice(&body).unwrap();
        let request = context["request"].clone();
        self.requests.lock().push(request.clone());
        if self.hangs {
            std::future::pending::<()>().await;
        }
        let mut response = (self.handler)(&request)?;
        response["uid"] = request["uid"].clone();
        response["successful"] = true.into();
        Ok(json!({"response": response}).to_string().into())
    }
}

/// The part of RFC 6902 that these tests need.
fn apply(object: &Value, steps: &Value) -> Result<Value, String> {
    let mut object = object.clone();
    for step in steps.as_array().ok_or("no list")? {
        let (parent, last) = step["path"]
            .as_str()
            .and_then(|p| p.rsplit_once('/'))
            .ok_or("no path")?;
        let parent = object.pointer_mut(parent).ok_or("no such path")?;
        parent[last] = step["value"].clone();
    }
    Ok(object)
}

fn patch(path: &str, value: Value) -> Value {
    let steps = json!([{"op": "add", "path": path, "value": value}]);
    json!({"patchType": "JSONPatch", "patch": STANDARD.encode(steps.to_string())})
}

fn configuration(operations: &[&str]) -> Value {
    json!({"apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterWebhookConfiguration",
        "metadata": {"name": "c"},
        "webhooks": [{"name": "h", "clientConfig": {"url": "https://h"}, "timeoutSeconds": 5,
            "rules": [{"operations": operations, "apiGroups": ["*"], "apiVersions": ["*"], "kinds": ["*"]}],
            "interpreterContextVersions": ["v1alpha1"]}]})
}

struct WebhookFixture {
    caller: Arc<FakeInterpreterWebhookClient>,
    api: Arc<FakeApi>,
    interpreter: ResourceInterpreter,
    _tasks: TaskGroup,
    _informers: InformerFactory,
}

async fn start_fixture(
    operations: &[&str],
    scripts: Value,
    hangs: bool,
    hook: WebhookHandler,
) -> WebhookFixture {
    let api = FakeApi::new();
    api.seed(&WEBHOOK_CONFIGURATIONS, configuration(operations));
    let customization = json!({"apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterCustomization",
        "metadata": {"name": "s"},
        "spec": {"target": {"apiVersion": "example.io/v1", "kind": "Thing"}, "customizations": scripts}});
    api.seed(&CUSTOMIZATIONS, customization);
    let lab = Arc::new(FakeInterpreterWebhookClient {
        handler: hook,
        hangs,
        requests: Mutex::default(),
    });
    let tasks = TaskGroup::new(ShutdownToken::new());
    let outside = WebhookInterpreterOptions {
        caller: Arc::clone(&lab) as Arc<dyn WebhookClient>,
        apply_json_patch: apply,
    };
    let informers = InformerFactory::new(&tasks);
    let served: Arc<dyn Api> = Arc::clone(&api) as Arc<dyn Api>;
    let interpreter =
        ResourceInterpreter::watch(&informers, &served, LuaLimits::default(), outside);
    interpreter.wait_for_cache_sync().await;
    WebhookFixture {
        caller: lab,
        api,
        interpreter,
        _tasks: tasks,
        _informers: informers,
    }
}

fn thing() -> Object {
    // Without apiVersion and kind, as in a list.
    object(json!({"metadata": {"name": "t", "namespace": "n"}, "spec": {"size": 4}}))
}

// proves: WEB-operations, WEB-patch
#[tokio::test]
async fn every_operation_can_use_a_webhook() {
    let answers = |request: &Value| {
        Ok(match request["operation"].as_str().unwrap() {
            "InterpretReplica" => {
                json!({"replicas": 4, "replicaRequirements": {"resourceRequest": {"cpu": "1000m"}}})
            }
            "InterpretComponent" => json!({"components": [{"name": "a", "replicas": 4}]}),
            "ReviseReplica" => patch("/spec/size", request["replicas"].clone()),
            "Retain" => patch(
                "/spec/node",
                request["observedObject"]["spec"]["node"].clone(),
            ),
            "AggregateStatus" => patch("/status", json!({"all": request["aggregatedStatus"]})),
            "InterpretStatus" => json!({"rawStatus": {"seen": request["object"]["kind"]}}),
            "InterpretHealth" => json!({"healthy": false}),
            _ => {
                json!({"dependencies": [{"apiVersion": "v1", "kind": "Secret", "namespace": "n", "name": "s"}]})
            }
        })
    };
    let fixture = start_fixture(&["*"], json!({}), false, Box::new(answers)).await;
    let (interpreter, thing) = (&fixture.interpreter, thing());
    let mut tree: Value = machinery::json::from_slice(&thing.bytes()).unwrap();
    set_type_meta(&mut tree, &THING);
    let replicas = interpreter.replicas(&THING, &thing).await.unwrap().unwrap();
    let cpu = json!({"resourceRequest": {"cpu": "1"}});
    assert_eq!((replicas.count, replicas.requirements), (4, Some(cpu)));
    let components = interpreter.components(&THING, &thing).await.unwrap();
    assert_eq!(json!(components), json!([{"name": "a", "replicas": 4}]));
    let revised = interpreter
        .revise_replica(&THING, tree.clone(), 3)
        .await
        .unwrap();
    assert_eq!(revised["spec"]["size"], 3);
    let observed = json!({"spec": {"node": "m"}});
    let retained = interpreter.retain(&THING, tree, &observed).await.unwrap();
    assert_eq!(retained["spec"], json!({"size": 4, "node": "m"}));
    assert_eq!(
        interpreter.interpret_health(&THING, &thing).await.unwrap(),
        Some(false)
    );
    let status = interpreter.reflect_status(&THING, &thing).await.unwrap();
    assert_eq!(status, Some(json!({"seen": "Thing"})));
    let items: Vec<AggregatedStatusItem> =
        serde_json::from_value(json!([{"clusterName": "m1", "status": {"x": 1}}])).unwrap();
    let now = Timestamp::UNIX_EPOCH;
    let summed = interpreter
        .aggregate_status(&THING, &thing, &items, &BTreeSet::new(), now)
        .await
        .unwrap();
    assert_eq!(summed.unwrap()["all"][0]["clusterName"], "m1");
    let dependencies = interpreter
        .dependencies(&THING, &thing)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(dependencies.len(), 1);
    assert_eq!(dependencies[0].name, "s");
    let requests = fixture.caller.requests.lock();
    let has_type = |r: &Value| {
        r["object"]["apiVersion"] == "example.io/v1"
            && r["kind"] == json!({"group": "example.io", "version": "v1", "kind": "Thing"})
    };
    assert!(requests.iter().all(has_type), "{requests:?}");
}

// proves: WEB-order, WEB-failure
#[tokio::test]
async fn webhooks_come_after_scripts_and_before_built_in_rules() {
    let scripts = json!({"replicaResource": {"luaScript": "function GetReplicas(o) return 7 end"}});
    let operations = ["InterpretReplica", "InterpretHealth"];
    let hook = |_: &Value| Err("connection refused".to_owned());
    let fixture = start_fixture(&operations, scripts, false, Box::new(hook)).await;
    let interpreter = &fixture.interpreter;
    let replicas = interpreter.replicas(&THING, &thing()).await.unwrap();
    assert_eq!(replicas.unwrap().count, 7);
    assert!(fixture.caller.requests.lock().is_empty());
    // The error of the webhook is returned although a built-in rule exists.
    let web = object(
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w"}, "spec": {"replicas": 2}}),
    );
    let failed = interpreter.replicas(&DEPLOYMENT, &web).await.unwrap_err();
    assert_eq!(
        failed.to_string(),
        "Internal error occurred: failed calling webhook \"c/h\": failed to call webhook: connection refused"
    );
    assert!(failed.is_retryable());
    let revised = json!({"spec": {"replicas": 2}});
    let revised = interpreter
        .revise_replica(&DEPLOYMENT, revised, 1)
        .await
        .unwrap();
    assert_eq!(revised["spec"]["replicas"], 1);
}

// proves: WEB-enabled
#[tokio::test]
async fn health_rules_of_every_level_are_known() {
    let hook = |_: &Value| Err("not asked".to_owned());
    let scripts = json!({"healthInterpretation": {"luaScript": "function InterpretHealth(o) return true end"}});
    let fixture = start_fixture(&["InterpretReplica"], scripts, false, Box::new(hook)).await;
    let interpreter = &fixture.interpreter;
    let other = Gvk::from_static("example.io", "v1", "Other");
    let check = |group: &str, version: &str, kind: &str, tells: bool| {
        let kind = Gvk::new(group, version, kind);
        assert_eq!(interpreter.has_health_rule(&kind), tells, "{kind:?}");
    };
    for kind in ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"] {
        check("apps", "v1", kind, true);
    }
    for (kind, tells) in [
        ("Pod", true),
        ("Service", true),
        ("PersistentVolumeClaim", true),
        ("ConfigMap", false),
        ("PersistentVolume", false),
    ] {
        check("", "v1", kind, tells);
    }
    check("networking.k8s.io", "v1", "Ingress", true);
    check("policy", "v1", "PodDisruptionBudget", true);
    check("batch", "v1", "Job", false);
    check("argoproj.io", "v1alpha1", "Workflow", true);
    check("example.io", "v1", "Thing", true);
    assert!(!interpreter.has_health_rule(&other));
    let notified = Arc::new(Mutex::new(0));
    let count = Arc::clone(&notified);
    interpreter.add_change_listener(move |changed| {
        assert!(changed.affects_operations(&[InterpreterOperation::InterpretHealth]));
        assert!(changed.affects_kind(&other, &[InterpreterOperation::InterpretHealth]));
        assert!(!changed.affects_kind(&other, &[InterpreterOperation::InterpretReplica]));
        *count.lock() += 1;
    });
    let more = configuration(&["InterpretReplica", "InterpretHealth"]);
    fixture.api.seed(&WEBHOOK_CONFIGURATIONS, more);
    let deadline = Instant::now() + Duration::from_secs(10);
    while *notified.lock() == 0 {
        assert!(Instant::now() < deadline, "no listener was notified");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    check("example.io", "v1", "Other", true);
}

// proves: WEB-timeout, WEB-bounded
#[tokio::test(start_paused = true)]
async fn hanging_webhook_times_out_and_further_calls_fail_fast() {
    let hook = |_: &Value| Err("never".to_owned());
    let fixture = start_fixture(&["InterpretHealth"], json!({}), true, Box::new(hook)).await;
    let began = Instant::now();
    let ask = || async {
        let thing = thing();
        let failed = fixture
            .interpreter
            .interpret_health(&THING, &thing)
            .await
            .unwrap_err();
        (failed.to_string(), began.elapsed())
    };
    let all = (0..MAX_CALLS_IN_FLIGHT + 8).map(|_| ask());
    let all = futures_util::future::join_all(all).await;
    let hung = all.iter().filter(|(reason, after)| {
        reason.ends_with("failed to call webhook: no answer within 5s")
            && *after == Duration::from_secs(5)
    });
    assert_eq!(hung.count(), MAX_CALLS_IN_FLIGHT, "{all:?}");
    let rejection = all.iter().filter(|(reason, after)| {
        reason.contains("the webhook does not respond and 32 calls are in flight")
            && *after == Duration::from_secs(1)
    });
    assert_eq!(rejection.count(), 8, "{all:?}");
}

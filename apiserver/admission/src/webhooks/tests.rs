//! Tests with webhooks as closures behind a fake caller.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use client::webhook::WebhookClientConfig;
use client_fake::FakeApi;
use machinery::{Gvk, UserInfo};
use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::attributes::{AdmissionOperation, OperationOptions};
use crate::audit_annotations::AuditAnnotations;
use crate::dynamic_admission::DynamicAdmission;
use crate::policies::{KindResources, PolicyDispatcher, PolicyParamReader};

type FakeWebhookResponder = Box<dyn Fn(&Value) -> Result<Value, String> + Send + Sync>;

/// Webhooks by path, and the requests they got.
#[derive(Default)]
struct FakeWebhookClient {
    webhooks: Mutex<BTreeMap<String, FakeWebhookResponder>>,
    requests: Mutex<Vec<(String, Value)>>,
}

struct ApiVersionConverter;

#[async_trait]
impl VersionConverter for ApiVersionConverter {
    async fn to_version(&self, version: usize, object: &Value) -> Result<Value, Status> {
        let mut object = object.clone();
        object["apiVersion"] = ["v1beta1", "v1alpha1"][version].into();
        Ok(object)
    }

    async fn to_requested_version(&self, _: usize, mut object: Value) -> Result<Value, Status> {
        object["apiVersion"] = "v1beta1".into();
        Ok(object)
    }

    fn merge_configuration(&self, _: usize, _: &Value, _: &Value) -> Result<Value, String> {
        Err("webhooks send patches".into())
    }
}

#[async_trait]
impl WebhookClient for FakeWebhookClient {
    async fn call(
        &self,
        webhook: &WebhookClientConfig,
        body: Bytes,
        _: Duration,
    ) -> Result<Bytes, String> {
        let review: Value = machinery::json::from_slice(&body).unwrap();
        let request = review["request"].clone();
        let result = match self.webhooks.lock().get(&webhook.path) {
            Some(webhook) => webhook(&request),
            None => Err("connection refused".into()),
        };
        self.requests
            .lock()
            .push((webhook.path.clone(), request.clone()));
        let mut response = result?;
        if response["uid"].is_null() {
            response["uid"] = request["uid"].clone();
        }
        let reply = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                           "response": response});
        Ok(reply.to_string().into())
    }
}

/// Lets a user do what is called as the user is.
struct UserNameAuthorizer;

#[async_trait]
impl ExpressionAuthorizer for UserNameAuthorizer {
    async fn authorize(
        &self,
        requester: &UserInfo,
        check: &kubernetes_cel::AuthorizationCheck,
    ) -> kubernetes_cel::AuthorizationDecision {
        kubernetes_cel::AuthorizationDecision {
            allowed: requester.name == check.verb,
            ..kubernetes_cel::AuthorizationDecision::default()
        }
    }
}

struct NoKindResources;

impl KindResources for NoKindResources {
    fn resource_of(&self, _: &Gvk) -> Option<(Gvr, bool)> {
        None
    }
}

struct FixedLabelsNamespaceLookup;

#[async_trait]
impl NamespaceLookup for FixedLabelsNamespaceLookup {
    async fn get_namespace(&self, name: &str) -> Result<Option<Object>, Status> {
        let body = json!({"apiVersion": "v1", "kind": "Namespace",
                          "metadata": {"name": name, "labels": {"env": "prod"}}});
        Ok(Some(Object::from_value(&body).unwrap()))
    }
}

/// Applies the subset of RFC 6902 that these tests need.
fn apply(doc: &Value, patch: &Value) -> Result<Value, String> {
    let mut doc = doc.clone();
    for step in patch.as_array().ok_or("no list")? {
        let path = step["path"].as_str().ok_or("no path")?;
        let (parent, last) = path.rsplit_once('/').ok_or("no pointer")?;
        let parent = doc.pointer_mut(parent).ok_or("no such place")?;
        parent[last] = step["value"].clone();
    }
    Ok(doc)
}

fn patch(steps: Value) -> Value {
    json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(steps.to_string())})
}

fn set(path: &str, value: &str) -> Value {
    patch(json!([{"op": "add", "path": path, "value": value}]))
}

fn configuration(name: &str, hooks: Value) -> Object {
    let mut hooks = hooks;
    for webhook in hooks.as_array_mut().unwrap() {
        let path = format!("https://hook/{}", webhook["name"].as_str().unwrap());
        webhook["clientConfig"] = json!({"url": path});
        if webhook["rules"].is_null() {
            webhook["rules"] = json!([{"operations": ["*"], "apiGroups": ["policy.karmada.io"],
                "apiVersions": ["v1alpha1"], "resources": ["overridepolicies"]}]);
        }
        if webhook["sideEffects"].is_null() {
            webhook["sideEffects"] = json!("None");
        }
    }
    let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "X",
                      "metadata": {"name": name}, "webhooks": hooks});
    Object::from_value(&body).unwrap()
}

/// A request and its webhooks.
struct WebhookDispatcherFixture {
    client: Arc<FakeWebhookClient>,
    dispatcher: Arc<WebhookDispatcher>,
    operation: AdmissionOperation,
    dry_run: bool,
    namespace: &'static str,
    subresource: &'static str,
    annotations: AuditAnnotations,
}

impl WebhookDispatcherFixture {
    fn new() -> Self {
        let client = Arc::new(FakeWebhookClient::default());
        Self {
            dispatcher: WebhookDispatcher::new(
                Arc::clone(&client) as _,
                Arc::new(FixedLabelsNamespaceLookup),
                apply,
                Arc::new(UserNameAuthorizer),
            ),
            client,
            operation: AdmissionOperation::Create,
            dry_run: false,
            namespace: "ns",
            subresource: "",
            annotations: AuditAnnotations::default(),
        }
    }

    fn add_webhook(
        &self,
        webhook: &str,
        respond: impl Fn(&Value) -> Result<Value, String> + Send + Sync + 'static,
    ) {
        let mut hooks = self.client.webhooks.lock();
        hooks.insert(format!("/{webhook}"), Box::new(respond));
    }

    /// Runs all webhooks; returns the object and the warnings.
    async fn write(
        &self,
        mut new: Value,
        old: Option<&Value>,
    ) -> Result<(Value, Vec<String>), Status> {
        let user = UserInfo {
            name: "jane".into(),
            ..UserInfo::default()
        };
        let kind = |version: &str| {
            (
                Gvk::new("policy.karmada.io", version, "OverridePolicy"),
                Gvr::new("policy.karmada.io", version, "overridepolicies"),
            )
        };
        let (stored, other) = (kind("v1beta1"), kind("v1alpha1"));
        let attributes = AdmissionAttributes {
            gvk: &stored.0,
            gvr: &stored.1,
            namespace: self.namespace,
            name: "x",
            subresource: self.subresource,
            operation: self.operation,
            user: &user,
            dry_run: self.dry_run,
            options: OperationOptions::None,
            audit_annotations: Some(&self.annotations),
        };
        let versions = EquivalentVersions {
            kinds: vec![stored.clone(), other],
            converter: &ApiVersionConverter,
        };
        let mut warnings = Vec::new();
        let policies = PolicyDispatcher::new(
            Arc::new(FixedLabelsNamespaceLookup),
            PolicyParamReader::new(FakeApi::new(), Arc::new(NoKindResources)),
            Arc::new(UserNameAuthorizer),
            apply,
        );
        let admission = DynamicAdmission::new(Arc::clone(&self.dispatcher), policies);
        admission
            .mutate(&attributes, &versions, &mut new, old, &mut warnings)
            .await?;
        admission
            .validate(&attributes, &versions, &new, old, &mut warnings)
            .await?;
        Ok((new, warnings))
    }

    fn called_webhooks(&self) -> Vec<String> {
        let mut requests = self.client.requests.lock();
        requests
            .drain(..)
            .map(|(path, _)| path[1..].to_owned())
            .collect()
    }
}

fn object() -> Value {
    json!({"apiVersion": "v1beta1", "kind": "OverridePolicy",
           "metadata": {"name": "x", "namespace": "ns", "labels": {"app": "a"}}, "spec": {}})
}

#[tokio::test]
async fn mutating_webhooks_run_in_order_and_are_reinvoked() {
    let case = WebhookDispatcherFixture::new();
    case.dispatcher.set_mutating(&[
        configuration("b", json!([{"name": "third"}])),
        configuration(
            "a",
            json!([{"name": "first", "reinvocationPolicy": "IfNeeded"}, {"name": "second"}]),
        ),
    ]);
    case.add_webhook("first", |r| {
        let third = r["object"]["spec"]["third"].as_str().unwrap_or("none");
        Ok(set("/spec/first", third))
    });
    case.add_webhook("second", |_| {
        Ok(json!({"allowed": true, "warnings": ["careful"]}))
    });
    case.add_webhook("third", |_| Ok(set("/spec/third", "was here")));
    let (new, warnings) = case.write(object(), None).await.unwrap();
    assert_eq!(
        new["spec"],
        json!({"first": "was here", "third": "was here"})
    );
    assert_eq!(new["apiVersion"], "v1beta1");
    assert_eq!(warnings, ["careful"]);
    assert_eq!(
        case.called_webhooks(),
        ["first", "second", "third", "first"]
    );
}

#[tokio::test]
async fn review_has_all_fields() {
    let mut case = WebhookDispatcherFixture::new();
    case.dispatcher
        .set_validating(&[configuration("a", json!([{"name": "h"}]))]);
    case.add_webhook("h", |_| Ok(json!({"allowed": true})));
    case.operation = AdmissionOperation::Update;
    case.dry_run = true;
    let old = object();
    case.write(object(), Some(&old)).await.unwrap();
    let (_, mut request) = case.client.requests.lock().remove(0);
    assert!(request["uid"].as_str().unwrap().len() == 36);
    request["uid"] = Value::Null;
    let kind = |version: &str| json!({"group": "policy.karmada.io", "version": version, "kind": "OverridePolicy"});
    let resource = |version: &str| json!({"group": "policy.karmada.io", "version": version, "resource": "overridepolicies"});
    let mut converted = object();
    converted["apiVersion"] = "v1alpha1".into();
    let expected = json!({
        "uid": null, "operation": "UPDATE", "name": "x", "namespace": "ns",
        "kind": kind("v1alpha1"), "resource": resource("v1alpha1"),
        "requestKind": kind("v1beta1"), "requestResource": resource("v1beta1"),
        "userInfo": {"username": "jane"}, "dryRun": true,
        "options": {"apiVersion": "meta.k8s.io/v1", "kind": "UpdateOptions", "dryRun": ["All"]},
        "object": converted, "oldObject": converted,
    });
    assert_eq!(request, expected);
}

#[tokio::test]
async fn denials_carry_the_webhook_message() {
    let case = WebhookDispatcherFixture::new();
    case.dispatcher
        .set_validating(&[configuration("a", json!([{"name": "h"}, {"name": "late"}]))]);
    case.add_webhook("late", |_| Ok(json!({"allowed": false})));
    for (status, code, text) in [
        (
            json!({"code": 422, "message": "too big"}),
            422,
            "denied the request: too big",
        ),
        (json!({"message": "no"}), 400, "denied the request: no"),
        (
            json!({"code": 200, "reason": "Forbidden"}),
            400,
            "denied the request: Forbidden",
        ),
        (Value::Null, 400, "denied the request without explanation"),
    ] {
        let denial = status.clone();
        case.add_webhook("h", move |_| {
            Ok(json!({"allowed": false, "status": denial}))
        });
        let rejection = case.write(object(), None).await.unwrap_err();
        assert_eq!(rejection.code, code, "{status}");
        assert_eq!(rejection.message, format!("admission webhook \"h\" {text}"));
        assert_eq!(rejection.status, "Failure");
    }
}

#[tokio::test]
async fn failure_policy_is_applied() {
    let case = WebhookDispatcherFixture::new();
    let set_up = |policy: &str| {
        let hooks = json!([{"name": "h", "failurePolicy": policy}]);
        case.dispatcher.set_mutating(&[configuration("a", hooks)]);
    };
    let failures: [fn() -> Result<Value, String>; 4] = [
        || Err("connection refused".into()),
        || Ok(json!({"allowed": true, "uid": "another"})),
        || Ok(json!({"allowed": true, "patch": "e30="})),
        || Ok(json!({"allowed": true, "patchType": "JSONPatch", "patch": "?"})),
    ];
    for (n, fails) in failures.into_iter().enumerate() {
        case.add_webhook("h", move |_| fails());
        set_up("Fail");
        let failed = case.write(object(), None).await.unwrap_err();
        assert_eq!(failed.code, 500, "{n}");
        assert!(
            failed.message.contains("failed calling webhook \"h\""),
            "{failed}"
        );
        set_up("Ignore");
        let (new, _) = case.write(object(), None).await.unwrap();
        assert_eq!(new, object(), "{n}");
    }
    for patch in ["/nowhere/at/all", "/metadata/name"] {
        case.add_webhook("h", move |_| Ok(set(patch, "x2")));
        let failed = case.write(object(), None).await.unwrap_err();
        assert_eq!(failed.code, 500, "{patch}");
    }
}

#[tokio::test]
async fn namespaces_are_selected_by_their_own_labels() {
    let case = WebhookDispatcherFixture::new();
    let user = UserInfo::default();
    let gvk = Gvk::from_static("", "v1", "Namespace");
    let gvr = Gvr::from_static("", "v1", "namespaces");
    case.add_webhook("h", |_| Ok(json!({"allowed": false})));
    let set_up = |change: Value| {
        let mut webhook = json!({"name": "h", "rules": [{"operations": ["CREATE"], "scope": "Cluster",
            "apiGroups": [""], "apiVersions": ["v1"], "resources": ["namespaces"]}]});
        for (key, value) in change.as_object().unwrap() {
            webhook[key] = value.clone();
        }
        let webhooks = json!([webhook]);
        case.dispatcher
            .set_validating(&[configuration("a", webhooks)]);
    };
    let write = async || {
        let attributes = AdmissionAttributes {
            gvk: &gvk,
            gvr: &gvr,
            namespace: "x",
            name: "x",
            subresource: "",
            operation: AdmissionOperation::Create,
            user: &user,
            dry_run: false,
            options: OperationOptions::None,
            audit_annotations: None,
        };
        let versions = EquivalentVersions {
            kinds: vec![(gvk.clone(), gvr.clone())],
            converter: &ApiVersionConverter,
        };
        let new = json!({"metadata": {"name": "x", "labels": {"env": "new"}}});
        let warnings = &mut Vec::new();
        case.dispatcher
            .validate(&attributes, &versions, &new, None, warnings)
            .await
    };
    set_up(json!({"namespaceSelector": {"matchLabels": {"env": "new"}}}));
    assert!(write().await.is_err());
    // The stored labels, which the lookup returns, do not matter.
    set_up(json!({"namespaceSelector": {"matchLabels": {"env": "prod"}}}));
    assert!(write().await.is_ok());
    assert!(
        !case
            .dispatcher
            .has_webhook_for(&Gvr::new(ADMISSION_GROUP, "v1", "namespaces"), "")
    );
}

#[tokio::test]
async fn v1beta1_webhooks_get_v1beta1_reviews() {
    let case = WebhookDispatcherFixture::new();
    let hooks = json!([{"name": "h", "admissionReviewVersions": ["v1beta1"]}]);
    case.dispatcher.set_validating(&[configuration("a", hooks)]);
    // The UID and the version of a v1beta1 response are not compared.
    case.add_webhook("h", |_| Ok(json!({"allowed": true, "uid": ""})));
    case.write(object(), None).await.unwrap();
}

#[tokio::test]
async fn only_matching_webhooks_are_called() {
    let rule = |change: Value| {
        let mut rule = json!({"operations": ["CREATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]});
        for (key, value) in change.as_object().unwrap() {
            rule[key] = value.clone();
        }
        json!({"rules": [rule]})
    };
    let check = async |webhook: Value, subresource: &'static str, expect: bool| {
        let mut case = WebhookDispatcherFixture::new();
        case.subresource = subresource;
        let mut webhook = webhook;
        webhook["name"] = json!("h");
        let webhook_text = webhook.to_string();
        case.add_webhook("h", |_| Ok(json!({"allowed": true})));
        case.dispatcher
            .set_validating(&[configuration("a", json!([webhook]))]);
        case.write(object(), None).await.unwrap();
        assert_eq!(
            !case.called_webhooks().is_empty(),
            expect,
            "{webhook_text} {subresource}"
        );
    };
    check(rule(json!({})), "", true).await;
    check(rule(json!({})), "status", false).await;
    check(rule(json!({"resources": ["*/*"]})), "status", true).await;
    check(rule(json!({"resources": ["*/status"]})), "status", true).await;
    check(
        rule(json!({"resources": ["overridepolicies/*"]})),
        "status",
        true,
    )
    .await;
    check(rule(json!({"resources": ["works"]})), "", false).await;
    check(rule(json!({"operations": ["UPDATE"]})), "", false).await;
    check(rule(json!({"apiGroups": [""]})), "", false).await;
    check(rule(json!({"scope": "Cluster"})), "", false).await;
    check(rule(json!({"scope": "Namespaced"})), "", true).await;
    check(rule(json!({"apiVersions": ["v1alpha1"]})), "", true).await;
    let mut exact = rule(json!({"apiVersions": ["v1alpha1"]}));
    exact["matchPolicy"] = json!("Exact");
    check(exact, "", false).await;
    for (selector, value, expect) in [
        ("objectSelector", json!({"matchLabels": {"app": "a"}}), true),
        (
            "objectSelector",
            json!({"matchLabels": {"app": "b"}}),
            false,
        ),
        (
            "namespaceSelector",
            json!({"matchLabels": {"env": "prod"}}),
            true,
        ),
        (
            "namespaceSelector",
            json!({"matchLabels": {"env": "test"}}),
            false,
        ),
        ("namespaceSelector", json!({}), true),
    ] {
        let mut webhook = rule(json!({}));
        webhook[selector] = value;
        check(webhook, "", expect).await;
    }
}

#[tokio::test]
async fn dry_run_rejects_webhooks_with_side_effects() {
    let mut case = WebhookDispatcherFixture::new();
    case.dry_run = true;
    case.add_webhook("h", |_| Ok(json!({"allowed": true})));
    for (effects, code) in [
        ("Some", 400),
        ("Unknown", 400),
        ("None", 0),
        ("NoneOnDryRun", 0),
    ] {
        let hooks = json!([{"name": "h", "sideEffects": effects}]);
        case.dispatcher.set_mutating(&[configuration("a", hooks)]);
        let actual = case
            .write(object(), None)
            .await
            .map_or_else(|s| s.code, |_| 0);
        assert_eq!(actual, code, "{effects}");
    }
}

#[tokio::test]
async fn deletion_passes_the_old_object() {
    let mut case = WebhookDispatcherFixture::new();
    case.operation = AdmissionOperation::Delete;
    case.dispatcher
        .set_mutating(&[configuration("a", json!([{"name": "m"}]))]);
    let webhook = json!([{"name": "v", "objectSelector": {"matchLabels": {"app": "a"}}}]);
    case.dispatcher
        .set_validating(&[configuration("a", webhook)]);
    case.add_webhook("m", |_| Ok(json!({"allowed": true})));
    case.add_webhook("v", |r| {
        assert!(r["object"].is_null());
        Ok(json!({"allowed": r["oldObject"]["spec"] != json!({})}))
    });
    let old = object();
    assert_eq!(
        case.write(Value::Null, Some(&old)).await.unwrap_err().code,
        400
    );
    assert_eq!(case.called_webhooks(), ["m", "v"]);
    case.add_webhook("m", |_| Ok(set("/spec/x", "y")));
    let failure = case.write(Value::Null, Some(&old)).await.unwrap_err();
    assert_eq!(failure.code, 500);
    let message = "admission webhook \"m\" attempted to modify the object, which is not supported for this operation";
    assert!(failure.message.ends_with(message), "{}", failure.message);
    assert_eq!(case.called_webhooks(), ["m"]);
}

#[tokio::test]
async fn webhook_calls_are_annotated_by_round_and_index() {
    let case = WebhookDispatcherFixture::new();
    let hooks = json!([{"name": "first", "reinvocationPolicy": "IfNeeded"}, {"name": "second"}]);
    case.dispatcher.set_mutating(&[configuration("a", hooks)]);
    case.add_webhook("first", |_| {
        Ok(json!({"allowed": true, "auditAnnotations": {"seen": "yes"}}))
    });
    case.add_webhook("second", |_| Ok(set("/spec/x", "y")));
    case.write(object(), None).await.unwrap();
    let annotations = case.annotations.to_map(false);
    let keys: Vec<&str> = annotations.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        [
            "first/seen",
            "mutation.webhook.admission.k8s.io/round_0_index_0",
            "mutation.webhook.admission.k8s.io/round_0_index_1",
            "mutation.webhook.admission.k8s.io/round_1_index_0",
        ]
    );
    let with_patches = case.annotations.to_map(true);
    assert!(with_patches.contains_key("patch.webhook.admission.k8s.io/round_0_index_1"));
}

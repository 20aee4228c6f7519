//! Tests of what mutating admission may make of the writes of controllers and of users.

use std::time::Duration;

use admission::policies::{PolicyDispatcher, PolicyParamReader};
use admission::webhooks::WebhookDispatcher;
use admission::{DynamicAdmission, ExpressionAuthorizer, SignerAuthorizer};
use async_trait::async_trait;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use client::webhook::{WebhookClient, WebhookClientConfig};
use client::{Api, WriteOptions};
use kubernetes_cel::{AuthorizationCheck, AuthorizationDecision};
use machinery::UserInfo;

use super::*;
use crate::{LoopbackApi, apply_policy_patch, apply_webhook_patch};

const RBAC: &str = "rbac.authorization.k8s.io";
static ROLES: Gvr = Gvr::from_static(RBAC, "v1", "clusterroles");
static REQUESTS: Gvr = Gvr::from_static("certificates.k8s.io", "v1", "certificatesigningrequests");
const COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

struct NoWebhooks;

#[async_trait]
impl WebhookClient for NoWebhooks {
    async fn call(&self, _: &WebhookClientConfig, _: Bytes, _: Duration) -> Result<Bytes, String> {
        Err("there are no webhooks".into())
    }
}

struct EverySigner;

#[async_trait]
impl SignerAuthorizer for EverySigner {
    async fn may(&self, _: &UserInfo, _: &str, _: &str) -> Result<bool, Status> {
        Ok(true)
    }
}

struct NoAuthorizer;

#[async_trait]
impl ExpressionAuthorizer for NoAuthorizer {
    async fn authorize(&self, _: &UserInfo, _: &AuthorizationCheck) -> AuthorizationDecision {
        AuthorizationDecision::default()
    }
}

/// A registry whose policy makes `patch`, an expression, of each update of a resource.
async fn fixture_with_mutation(resource: &Gvr, subresource: &str, patch: &str) -> RegistryFixture {
    let options = admission::AdmissionChainOptions {
        signer_authorizer: Some(Arc::new(EverySigner)),
        ..admission::AdmissionChainOptions::default()
    };
    let fixture = fixture_with_admission(options).await;
    let loopback = LoopbackApi::new(Arc::clone(&fixture.registry), UserInfo::internal());
    let api: Arc<dyn Api> = loopback.clone();
    let policies = PolicyDispatcher::new(
        loopback.clone(),
        PolicyParamReader::new(api, loopback.clone()),
        Arc::new(NoAuthorizer),
        apply_policy_patch,
    );
    let path = format!("{}{subresource}", resource.resource);
    let rule = json!({"apiGroups": [&*resource.group], "apiVersions": ["*"],
        "operations": ["UPDATE"], "resources": [path]});
    let policy = json!({"metadata": {"name": "p"}, "spec": {"reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [rule]},
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}]}});
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p"}});
    policies.set_mutating(&[Object::from_value(&policy).unwrap()]);
    policies.set_mutating_bindings(&[Object::from_value(&binding).unwrap()]);
    let webhooks = WebhookDispatcher::new(
        Arc::new(NoWebhooks),
        loopback,
        apply_webhook_patch,
        Arc::new(NoAuthorizer),
    );
    fixture
        .registry
        .set_dynamic_admission(DynamicAdmission::new(webhooks, policies));
    fixture
}

/// The result of a controller's removal of the owners of a ClusterRole.
async fn remove_owners_as_collector(fixture: &RegistryFixture) -> Result<Value, client::Error> {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "owned", "ownerReferences": [
            {"apiVersion": "v1", "kind": "Namespace", "name": "a", "uid": "u"}]},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
    fixture.create(&ROLES, role).await.unwrap();
    let user = UserInfo::kube_controller("generic-garbage-collector");
    let collector = LoopbackApi::new(Arc::clone(&fixture.registry), user);
    let path = ResourcePath::object(&ROLES, "", "owned");
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
    let patched = collector
        .patch(path, patch, &WriteOptions::default())
        .await?;
    Ok(patched.value().unwrap())
}

const ADD_RULE: &str = "[JSONPatch{op: 'add', path: '/rules/-', value: {'apiGroups': ['*'], 'resources': ['*'], 'verbs': ['*']}}]";

#[tokio::test]
async fn admission_does_not_grant_rights_through_a_controller() {
    for (patch, field) in [
        (ADD_RULE, "rules"),
        (
            "[JSONPatch{op: 'add', path: '/aggregationRule', value: {'clusterRoleSelectors': [{'matchLabels': {'a': 'b'}}]}}]",
            "aggregationRule",
        ),
        (
            "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'rbac.authorization.k8s.io/aggregate-to-view': 'true'}}]",
            "the labels so that ClusterRole \"view\" aggregates it",
        ),
    ] {
        let fixture = fixture_with_mutation(&ROLES, "", patch).await;
        let denial = remove_owners_as_collector(&fixture).await.unwrap_err();
        let denial = denial.status().unwrap().clone();
        let expected = format!(
            "clusterroles.rbac.authorization.k8s.io \"owned\" is forbidden: admission may not change {field}"
        );
        assert_eq!(denial.code, 403);
        assert!(denial.message.starts_with(&expected), "{denial}");
        let path = ResourcePath::object(&ROLES, "", "owned");
        let stored = fixture.get(path).await.unwrap();
        assert_eq!(stored["rules"].as_array().map(Vec::len), Some(1));
        assert!(stored["metadata"]["ownerReferences"].is_array());
    }
}

#[tokio::test]
async fn admission_sees_controllers_as_their_own_users() {
    let patch = "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'by': request.userInfo.username}}]";
    let fixture = fixture_with_mutation(&ROLES, "", patch).await;
    let patched = remove_owners_as_collector(&fixture).await.unwrap();
    assert_eq!(patched["metadata"]["annotations"], json!({"by": COLLECTOR}));
    assert!(patched["metadata"]["ownerReferences"].is_null());
}

#[tokio::test]
async fn admission_does_not_change_whom_a_controller_lets_others_trust() {
    let maps = Gvr::from_static("", "v1", "configmaps");
    let patch = "[JSONPatch{op: 'replace', path: '/data/ca.crt', value: 'forged'}]";
    let fixture = fixture_with_mutation(&maps, "", patch).await;
    let user = UserInfo::kube_controller("root-ca-certificate-publisher");
    let publisher = LoopbackApi::new(Arc::clone(&fixture.registry), user);
    for (name, expected) in [
        ("kube-root-ca.crt", None),
        ("cluster-info", None),
        ("extension-apiserver-authentication", None),
        ("other", Some("forged")),
    ] {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "default", "name": name}, "data": {"ca.crt": "a"}});
        fixture.create(&maps, map).await.unwrap();
        let path = ResourcePath::object(&maps, "default", name);
        let patch = Patch::Merge(json!({"data": {"ca.crt": "b"}}));
        let written = publisher.patch(path, patch, &WriteOptions::default()).await;
        match expected {
            Some(data) => assert_eq!(written.unwrap().value().unwrap()["data"]["ca.crt"], data),
            None => {
                let rejection = written.unwrap_err().status().unwrap().clone();
                assert_eq!(rejection.code, 403, "{name}");
                assert!(
                    rejection.message.contains("admission may not change data"),
                    "{rejection}"
                );
                assert_eq!(fixture.get(path).await.unwrap()["data"]["ca.crt"], "a");
            }
        }
    }
}

#[tokio::test]
async fn rules_that_admission_adds_are_rights_that_the_user_needs() {
    let fixture = fixture_with_mutation(&ROLES, "", ADD_RULE).await;
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let role = json!({"metadata": {"name": "mine"}, "rules": rules});
    fixture.create(&ROLES, role).await.unwrap();
    let ctx = RequestContext {
        user: Arc::new(UserInfo {
            name: "someone".into(),
            ..UserInfo::default()
        }),
        is_from_controller: false,
        ..RequestContext::internal()
    };
    let path = ResourcePath::object(&ROLES, "", "mine");
    let update = |patch| {
        let options = RegistryWriteOptions::default();
        let (registry, ctx) = (&fixture.registry, &ctx);
        async move {
            registry
                .patch(ctx, path, Patch::Merge(patch), &options)
                .await
        }
    };
    // The request itself changes no more than the garbage collector would.
    let result = update(json!({"metadata": {"finalizers": ["example.io/a"]}})).await;
    assert_eq!(result.unwrap_err().code, 403);
    assert_eq!(fixture.get(path).await.unwrap()["rules"], rules);
}

const CERTIFICATE_REQUEST: &str = "-----BEGIN CERTIFICATE REQUEST-----
MIHFMG4CAQAwDDEKMAgGA1UEAwwBYTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IA
BN2kZHhqEUbN1FBAnCkT8JuQ7UA/LICQro1JmZhmD21nH6KDouXyc2kCnub55IPV
8GU+JiLZ9kBmpLqeJOVKXiWgADAKBggqhkjOPQQDAgNHADBEAiAesihnM2E2xrRg
WkzI+zqAcXi2YxTBaoJCmUkcUDcsfwIgXBYgwTNYmgeVsJ4ReyKq5pBkFHr2xjMa
TcPU2cr1IXI=
-----END CERTIFICATE REQUEST-----
";

#[tokio::test]
async fn admission_changes_no_request_for_a_certificate_while_it_is_approved() {
    let patch = "[JSONPatch{op: 'replace', path: '/spec/username', value: 'system:admin'}, JSONPatch{op: 'replace', path: '/spec/groups', value: ['system:masters']}]";
    let fixture = fixture_with_mutation(&REQUESTS, "/approval", patch).await;
    let request = json!({"metadata": {"name": "r"}, "spec": {
        "request": BASE64_STANDARD.encode(CERTIFICATE_REQUEST),
        "signerName": "example.io/signer", "usages": ["client auth"]}});
    let created = fixture.create(&REQUESTS, request).await.unwrap();
    let ctx = RequestContext {
        is_from_controller: false,
        ..RequestContext::internal()
    };
    let path = ResourcePath {
        subresource: "approval",
        ..ResourcePath::object(&REQUESTS, "", "r")
    };
    let mut approved = created.clone();
    approved["status"] = json!({"conditions": [{"type": "Approved", "status": "True",
        "reason": "Checked", "message": "m"}]});
    let body = ObjectBody::from(approved);
    let options = RegistryWriteOptions::default();
    let written = fixture.registry.update(&ctx, path, body, &options).await;
    let written = written.unwrap().object.value().unwrap();
    assert_eq!(written["spec"], created["spec"]);
    assert_eq!(written["status"]["conditions"][0]["type"], "Approved");
}

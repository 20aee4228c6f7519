//! Tests of service account tokens over a fake API.

use client_fake::FakeApi;
use machinery::time::{SystemClock, rfc3339_seconds};
use serde_json::{Value, json};

use super::*;
use crate::token::ISSUER;
use crate::token::tests::{claims, signer};

/// An authenticator with the account `ns/bot`, and a token of that account.
fn with_account(
    options: LocalAuthenticatorOptions,
) -> (Arc<LocalAuthenticator>, Arc<FakeApi>, String) {
    let signer = Arc::new(signer());
    let fake = FakeApi::new();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "bot", "namespace": "ns", "uid": "u1"}});
    fake.seed(&SERVICE_ACCOUNTS, account);
    let now = Timestamp::now();
    let mut claims = claims(now.as_second() + 600);
    if let [audience, ..] = options.audiences.as_slice() {
        claims.audiences = vec![audience.clone()];
    }
    let token = signer.issue(&claims, now).unwrap();
    let authenticator = LocalAuthenticator::new(None, signer, Arc::new(SystemClock), options);
    authenticator.set_api(fake.clone());
    (authenticator, fake, token)
}

fn bearer(token: &str) -> RequestCredentials<'_> {
    RequestCredentials {
        bearer: Some(token.as_bytes()),
        ..RequestCredentials::default()
    }
}

async fn code(authenticator: &LocalAuthenticator, token: &str) -> u16 {
    match authenticator.authenticate(bearer(token)).await {
        Ok(_) => 200,
        Err(AuthenticationError::InvalidCredential(_)) => 401,
        Err(AuthenticationError::Undecided(status)) => {
            assert!(status.details.is_some_and(|d| d.retry_after_seconds > 0));
            status.code
        }
    }
}

#[tokio::test]
async fn store_failures_do_not_reject_tokens() {
    let (authenticator, fake, token) = with_account(LocalAuthenticatorOptions::default());
    assert_eq!(code(&authenticator, &token).await, 200);
    for (error, expected) in [
        (Status::server_timeout(&SERVICE_ACCOUNTS, "get"), 500),
        (Status::unavailable("etcd does not answer"), 503),
        (Status::timeout("too late"), 504),
        (
            Status::too_many_requests("the cache is being filled", 1),
            503,
        ),
    ] {
        fake.on_call(move |_| Some(error.clone().into()));
        assert_eq!(code(&authenticator, &token).await, expected);
        let review = json!({"spec": {"token": token}});
        let result = crate::reviews::token_review(&authenticator, review).await;
        assert_eq!(result.unwrap_err().code, expected);
    }
    fake.on_call(|_| {
        Some(Error::Transport {
            host: "etcd".into(),
            message: "reset".into(),
        })
    });
    assert_eq!(code(&authenticator, &token).await, 503);
    fake.on_call(|_| None);
    assert_eq!(code(&authenticator, &token).await, 200);
    fake.remove(&SERVICE_ACCOUNTS, "ns", "bot");
    assert_eq!(code(&authenticator, &token).await, 401);
}

#[tokio::test]
async fn tokens_get_503_until_api_is_set() {
    let signer = Arc::new(signer());
    let now = Timestamp::now();
    let token = signer.issue(&claims(now.as_second() + 600), now).unwrap();
    let clock = Arc::new(SystemClock);
    let authenticator =
        LocalAuthenticator::new(None, signer, clock, LocalAuthenticatorOptions::default());
    assert_eq!(code(&authenticator, &token).await, 503);
}

#[tokio::test]
async fn tokens_end_with_the_account_and_the_object_that_they_are_bound_to() {
    let (authenticator, fake, token) = with_account(LocalAuthenticatorOptions::default());
    let now = Timestamp::now();
    let signer = authenticator.signer();
    let mut bound = Vec::new();
    for (gvr, kind, namespace) in [
        (PODS, "Pod", "ns"),
        (SECRETS, "Secret", "ns"),
        (NODES, "Node", ""),
    ] {
        let mut claims = claims(now.as_second() + 600);
        claims.bound = Some(crate::token::TokenBoundObject {
            kind: kind.into(),
            name: "b".into(),
            uid: "u2".into(),
        });
        let token = signer.issue(&claims, now).unwrap();
        let object = json!({"apiVersion": "v1", "kind": kind,
            "metadata": {"name": "b", "namespace": namespace, "uid": "u2"}});
        fake.seed(&gvr, object.clone());
        bound.push((gvr, token, object));
    }
    let account = fake.get_object(&SERVICE_ACCOUNTS, "ns", "bot").unwrap();
    bound.push((SERVICE_ACCOUNTS, token, account));
    let deleted_at = |object: &Value, seconds: i64| {
        let mut object = object.clone();
        let at = now + SignedDuration::from_secs(seconds);
        object["metadata"]["deletionTimestamp"] = rfc3339_seconds(at).into();
        object["metadata"]["finalizers"] = json!(["example.com/hold"]);
        object
    };
    for (gvr, token, object) in &bound {
        assert_eq!(code(&authenticator, token).await, 200, "{gvr}");
        // A pod is deleted when its grace period ends.
        for (seconds, expected) in [(30, 200), (-20, 200), (-90, 401)] {
            fake.seed(gvr, deleted_at(object, seconds));
            assert_eq!(
                code(&authenticator, token).await,
                expected,
                "{gvr} {seconds}"
            );
        }
        fake.seed(gvr, object.clone());
        assert_eq!(code(&authenticator, token).await, 200, "{gvr}");
    }
}

#[tokio::test]
async fn tokens_in_secrets_end_at_once() {
    let (authenticator, fake, _) = with_account(LocalAuthenticatorOptions::default());
    let stored = authenticator
        .signer()
        .issue_for_secret("ns", "bot", "u1", "s");
    let stored = stored.unwrap();
    let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &stored);
    let secret = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "s", "namespace": "ns"}, "data": {"token": encoded}});
    let account = fake.get_object(&SERVICE_ACCOUNTS, "ns", "bot").unwrap();
    for (gvr, object) in [(&SECRETS, &secret), (&SERVICE_ACCOUNTS, &account)] {
        fake.seed(&SECRETS, secret.clone());
        assert_eq!(code(&authenticator, &stored).await, 200, "{gvr}");
        let mut deleting = object.clone();
        deleting["metadata"]["deletionTimestamp"] = rfc3339_seconds(Timestamp::now()).into();
        fake.seed(gvr, deleting);
        assert_eq!(code(&authenticator, &stored).await, 401, "{gvr}");
        fake.seed(gvr, object.clone());
    }
    let mut invalid = secret.clone();
    invalid["metadata"]["labels"] =
        json!({"kubernetes.io/legacy-token-invalid-since": "2026-01-02"});
    fake.seed(&SECRETS, invalid);
    assert_eq!(code(&authenticator, &stored).await, 401);
}

#[tokio::test]
async fn anonymous_auth_and_audiences_are_configurable() {
    let options = LocalAuthenticatorOptions {
        anonymous: AnonymousRequests::all(false),
        audiences: vec!["us".into(), "them".into()],
        ..LocalAuthenticatorOptions::default()
    };
    let (authenticator, fake, token) = with_account(options);
    let result = authenticator
        .authenticate(RequestCredentials::default())
        .await;
    assert!(
        matches!(result, Err(AuthenticationError::InvalidCredential(_))),
        "{result:?}"
    );
    assert_eq!(code(&authenticator, &token).await, 200);
    let account = fake.get_object(&SERVICE_ACCOUNTS, "ns", "bot").unwrap();
    let account = Object::from_value(&account).unwrap();
    let request = json!({"spec": {}});
    let granted = authenticator
        .token_request(&account, request)
        .await
        .unwrap();
    assert_eq!(granted["spec"]["audiences"], json!(["us", "them"]));
    let request = json!({"spec": {"audiences": [ISSUER]}});
    let granted = authenticator
        .token_request(&account, request)
        .await
        .unwrap();
    let foreign = granted["status"]["token"].as_str().unwrap();
    assert_eq!(code(&authenticator, foreign).await, 401);
    // A token in a secret is for this server, whatever its audiences are called.
    let stored = authenticator
        .signer()
        .issue_for_secret("ns", "bot", "u1", "s");
    let stored = stored.unwrap();
    let secret = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "s", "namespace": "ns"},
        "data": {"token": base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &stored)}});
    fake.seed(&SECRETS, secret);
    assert_eq!(code(&authenticator, &stored).await, 200);
}

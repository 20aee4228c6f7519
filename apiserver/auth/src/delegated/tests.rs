//! Tests against a fake host, with certificates created here.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use client::TaskGroup;
use client_fake::FakeApi;
use machinery::Gvr;
use machinery::time::SystemClock;
use machinery::user::SYSTEM_PRIVILEGED_GROUP;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};

use super::*;
use crate::PeerCertificates;
use crate::pki::{LeafCertificateProfile, ca_params, sign_certificate};
use crate::rbac::{AuthorizationSelectors, AuthorizationTarget};
use crate::request_auth::{RequestAuthenticator, RequestAuthorizer};

const CONFIGMAPS: Gvr = Gvr::from_static("", "v1", "configmaps");
const TOKENS: Gvr = Gvr::from_static("authentication.k8s.io", "v1", "tokenreviews");
const ACCESS: Gvr = Gvr::from_static("authorization.k8s.io", "v1", "subjectaccessreviews");

struct TestCa {
    pem: String,
    key: String,
}

impl TestCa {
    fn new() -> Self {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let params = ca_params(SystemClock.now());
        Self {
            pem: params.self_signed(&key).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    fn peer(&self, user: &str, groups: &[&str]) -> PeerCertificates {
        let leaf = LeafCertificateProfile::Client {
            user: user.into(),
            groups: groups.iter().map(|g| (*g).into()).collect(),
        };
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let signed =
            sign_certificate(&self.pem, &self.key, &leaf, &key, SystemClock.now()).unwrap();
        let der = CertificateDer::from_pem_slice(signed.certificate_pem.as_bytes()).unwrap();
        PeerCertificates::new(Some(&[der]))
    }
}

/// A host with two CAs, and an authenticator that has read them.
struct DelegatedAuthenticationFixture {
    fake: Arc<FakeApi>,
    client_ca: TestCa,
    proxy_ca: TestCa,
    authentication: RequestAuthenticator,
    authenticator: Arc<DelegatingAuthenticator>,
    tasks: TaskGroup,
}

fn config_map(clients: &TestCa, proxies: &TestCa, allowed: &[&str]) -> Value {
    let list = |names: &[&str]| json!(names).to_string();
    json!({"apiVersion": "v1", "kind": "ConfigMap",
    "metadata": {"namespace": "kube-system", "name": "extension-apiserver-authentication"},
    "data": {
        "client-ca-file": clients.pem,
        "requestheader-client-ca-file": proxies.pem,
        "requestheader-allowed-names": list(allowed),
        "requestheader-username-headers": list(&["X-Remote-User"]),
        "requestheader-uid-headers": list(&["X-Remote-Uid"]),
        "requestheader-group-headers": list(&["X-Remote-Group", "X-Other-Group"]),
        "requestheader-extra-headers-prefix": list(&["X-Remote-Extra-"]),
    }})
}

impl DelegatedAuthenticationFixture {
    async fn new(allowed: &[&str], options: DelegatedAuthOptions) -> Self {
        let fake = FakeApi::new();
        let (clients, proxies) = (TestCa::new(), TestCa::new());
        fake.seed(&CONFIGMAPS, config_map(&clients, &proxies, allowed));
        let host: Arc<dyn Api> = fake.clone();
        let authenticator =
            DelegatingAuthenticator::new(Arc::clone(&host), Arc::new(SystemClock), &options);
        let tasks = TaskGroup::new(ShutdownToken::new());
        tasks.spawn(authenticator.run(host, tasks.shutdown().clone()));
        authenticator.wait_ready().await;
        Self {
            fake,
            client_ca: clients,
            proxy_ca: proxies,
            authentication: Arc::clone(&authenticator).into(),
            authenticator,
            tasks,
        }
    }

    async fn authenticate(
        &self,
        peer: Option<&PeerCertificates>,
        bearer: Option<&str>,
        headers: &[(&str, &str)],
    ) -> Result<Arc<UserInfo>, AuthenticationError> {
        self.authenticate_with(peer, bearer.map(str::as_bytes), headers)
            .await
    }

    /// Authenticates with a token and headers of any bytes.
    async fn authenticate_with<V: AsRef<[u8]> + Sync>(
        &self,
        peer: Option<&PeerCertificates>,
        bearer: Option<&[u8]>,
        headers: &[(&str, V)],
    ) -> Result<Arc<UserInfo>, AuthenticationError> {
        let visit_headers = |show: &mut dyn FnMut(&str, &[u8])| {
            for (name, value) in headers {
                show(name, value.as_ref());
            }
        };
        let credentials = RequestCredentials {
            peer,
            bearer,
            headers: Some(&visit_headers),
            ..RequestCredentials::default()
        };
        self.authentication.authenticate(credentials).await
    }

    async fn name(&self, peer: &PeerCertificates, headers: &[(&str, &str)]) -> String {
        match self.authenticate(Some(peer), None, headers).await {
            Ok(user) => user.name.clone(),
            Err(AuthenticationError::InvalidCredential(_)) => "401".into(),
            Err(AuthenticationError::Undecided(status)) => status.code.to_string(),
        }
    }
}

const ADMIN: &[(&str, &str)] = &[
    ("x-remote-user", "admin"),
    ("x-remote-group", SYSTEM_PRIVILEGED_GROUP),
];

#[tokio::test]
async fn identity_headers_need_a_front_proxy() {
    let fixture = DelegatedAuthenticationFixture::new(
        &["front-proxy-client"],
        DelegatedAuthOptions::default(),
    )
    .await;
    let proxy = fixture.proxy_ca.peer("front-proxy-client", &[]);
    let other_name = fixture.proxy_ca.peer("somebody", &[]);
    let user = fixture.client_ca.peer("jane", &["devs"]);
    let same_name = fixture.client_ca.peer("front-proxy-client", &[]);
    let foreign_proxy = TestCa::new().peer("front-proxy-client", &[]);
    for (peer, headers, expected) in [
        (&proxy, ADMIN, "admin"),
        (&other_name, ADMIN, "401"),
        (&user, ADMIN, "jane"),
        (&same_name, ADMIN, "front-proxy-client"),
        (&foreign_proxy, ADMIN, "401"),
        // A proxy's certificate without identity headers does not authenticate a
        // client.
        (&proxy, &[], "401"),
        (&proxy, &[("x-remote-user", "")], "401"),
        (&PeerCertificates::default(), ADMIN, "system:anonymous"),
    ] {
        assert_eq!(fixture.name(peer, headers).await, expected, "{headers:?}");
    }
    let any_name = DelegatedAuthenticationFixture::new(&[], DelegatedAuthOptions::default()).await;
    let proxy = any_name.proxy_ca.peer("whoever", &[]);
    assert_eq!(any_name.name(&proxy, ADMIN).await, "admin");
    fixture.tasks.stop().await;
    any_name.tasks.stop().await;
}

#[tokio::test]
async fn identity_headers_carry_the_full_user() {
    let fixture = DelegatedAuthenticationFixture::new(&[], DelegatedAuthOptions::default()).await;
    let proxy = fixture.proxy_ca.peer("p", &[]);
    let headers = [
        ("x-remote-user", "jürgen"),
        ("x-remote-uid", "7"),
        ("x-remote-group", "a"),
        ("x-remote-group", "b"),
        ("x-other-group", "c"),
        ("x-remote-extra-acme.com%2fproject", "one"),
        ("x-remote-extra-acme.com%2fproject", "two"),
        ("accept", "x"),
    ];
    let user = fixture
        .authenticate(Some(&proxy), None, &headers)
        .await
        .unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("jürgen", "7"));
    assert_eq!(user.groups, ["a", "b", "c", "system:authenticated"]);
    assert_eq!(user.extra["acme.com/project"], ["one", "two"]);
    let anonymous = [
        ("x-remote-user", "system:anonymous"),
        ("x-remote-group", "system:unauthenticated"),
    ];
    let user = fixture
        .authenticate(Some(&proxy), None, &anonymous)
        .await
        .unwrap();
    assert_eq!(user.groups, ["system:unauthenticated"]);
    for header in [
        "authorization",
        "x-remote-user",
        "x-other-group",
        "impersonate-user",
    ] {
        assert!(fixture.authentication.is_credential(header), "{header}");
    }
    assert!(!fixture.authentication.is_credential("accept"));
    fixture.tasks.stop().await;
}

#[tokio::test]
async fn valid_config_changes_apply_and_invalid_ones_do_not() {
    let fixture =
        DelegatedAuthenticationFixture::new(&["p"], DelegatedAuthOptions::default()).await;
    let (old, new) = (&fixture.proxy_ca, TestCa::new());
    let mut broken = config_map(&fixture.client_ca, old, &["p"]);
    broken["data"]["client-ca-file"] = json!("no certificate");
    fixture.fake.seed(&CONFIGMAPS, broken);
    fixture.fake.remove(
        &CONFIGMAPS,
        "kube-system",
        "extension-apiserver-authentication",
    );
    let (before, after) = (old.peer("p", &[]), new.peer("p", &[]));
    assert_eq!(fixture.name(&before, ADMIN).await, "admin");
    fixture.authenticator.ready().unwrap();
    fixture
        .fake
        .seed(&CONFIGMAPS, config_map(&fixture.client_ca, &new, &["p"]));
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while fixture.name(&after, ADMIN).await != "admin" {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the change was not applied"
        );
        tokio::task::yield_now().await;
    }
    assert_eq!(fixture.name(&before, ADMIN).await, "401");
    fixture.tasks.stop().await;
}

#[tokio::test]
async fn malformed_credentials_are_rejected() {
    let fixture = DelegatedAuthenticationFixture::new(&[], DelegatedAuthOptions::default()).await;
    let proxy = fixture.proxy_ca.peer("p", &[]);
    let user = ("x-remote-user", &b"admin"[..]);
    for headers in [
        vec![("x-remote-user", &b"j\xffrgen"[..])],
        vec![user, ("x-remote-group", b"\xff")],
        vec![user, ("x-remote-uid", b"\xff")],
        vec![user, ("x-remote-extra-scope", b"\xff")],
        vec![user, ("x-remote-extra-a%ffb", b"v")],
    ] {
        let result = fixture
            .authenticate_with(Some(&proxy), None, &headers)
            .await;
        assert!(
            matches!(result, Err(AuthenticationError::InvalidCredential(_))),
            "{headers:?}: {result:?}"
        );
    }
    let result = fixture
        .authenticate_with::<&[u8]>(None, Some(b"\xff\xfe"), &[])
        .await;
    assert!(
        matches!(result, Err(AuthenticationError::InvalidCredential(_))),
        "{result:?}"
    );
    fixture.tasks.stop().await;
}

#[tokio::test]
async fn authentication_needs_the_config_map() {
    let fake = FakeApi::new();
    let host: Arc<dyn Api> = fake.clone();
    let authenticator = DelegatingAuthenticator::new(
        host,
        Arc::new(SystemClock),
        &DelegatedAuthOptions::default(),
    );
    assert!(authenticator.ready().is_err());
    let peer = TestCa::new().peer("x", &[]);
    let credentials = RequestCredentials {
        peer: Some(&peer),
        ..RequestCredentials::default()
    };
    let Err(AuthenticationError::Undecided(status)) = authenticator.authenticate(credentials).await
    else {
        panic!("an answer without trust");
    };
    assert_eq!(status.code, 503);
}

#[tokio::test(start_paused = true)]
async fn token_reviews_are_cached() {
    let options = DelegatedAuthOptions {
        audiences: vec!["us".into()],
        anonymous: false,
        ..DelegatedAuthOptions::default()
    };
    let fixture = DelegatedAuthenticationFixture::new(&[], options).await;
    let reviews = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&reviews);
    fixture.fake.respond_to_create(&TOKENS, move |mut review| {
        count.fetch_add(1, Ordering::Relaxed);
        assert_eq!(review["spec"]["audiences"], json!(["us"]));
        review["metadata"] = json!({"name": "x"});
        review["status"] = match review["spec"]["token"].as_str() {
            Some("good") => json!({"authenticated": true, "audiences": ["us", "them"],
                                   "user": {"username": "bot", "groups": ["g"]}}),
            Some("theirs") => json!({"authenticated": true, "audiences": ["them"],
                                     "user": {"username": "bot"}}),
            _ => json!({"user": {}, "error": "no"}),
        };
        review
    });
    for _ in 0..3 {
        let user = fixture.authenticate(None, Some("good"), &[]).await.unwrap();
        assert_eq!(user.groups, ["g", "system:authenticated"]);
        for token in ["bad", "theirs"] {
            let result = fixture.authenticate(None, Some(token), &[]).await;
            assert!(
                matches!(result, Err(AuthenticationError::InvalidCredential(_))),
                "{result:?}"
            );
        }
    }
    assert_eq!(
        reviews.load(Ordering::Relaxed),
        3,
        "both results are cached"
    );
    tokio::time::advance(Duration::from_secs(11)).await;
    fixture.authenticate(None, Some("good"), &[]).await.unwrap();
    assert_eq!(reviews.load(Ordering::Relaxed), 4, "cached for ten seconds");
    assert!(matches!(
        fixture.authenticate(None, None, &[]).await,
        Err(AuthenticationError::InvalidCredential(_))
    ));
    fixture.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn failed_reviews_are_errors() {
    let fixture = DelegatedAuthenticationFixture::new(&[], DelegatedAuthOptions::default()).await;
    let tries = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tries);
    fixture.fake.on_call(move |call| {
        (call.verb == "create").then(|| {
            count.fetch_add(1, Ordering::Relaxed);
            Status::unavailable("down").into()
        })
    });
    let result = fixture.authenticate(None, Some("t"), &[]).await;
    let Err(AuthenticationError::Undecided(status)) = result else {
        panic!("{result:?}");
    };
    assert_eq!(status.code, 500);
    assert_eq!(tries.load(Ordering::Relaxed), 5);
    let host: Arc<dyn Api> = fixture.fake.clone();
    let rights: RequestAuthorizer =
        DelegatingAuthorizer::new(host, &DelegatedAuthOptions::default()).into();
    let user = UserInfo::default();
    let path = AuthorizationTarget::NonResource("/metrics");
    assert_eq!(
        rights.authorize(&user, "get", path).await.unwrap_err().code,
        500
    );
    assert_eq!(
        rights.authorize(&user, "get", path).await.unwrap_err().code,
        500
    );
    assert_eq!(tries.load(Ordering::Relaxed), 15, "a failure is not cached");
    fixture.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn subject_access_reviews_are_cached() {
    let fake = FakeApi::new();
    let reviews = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let log = Arc::clone(&reviews);
    fake.respond_to_create(&ACCESS, move |mut review| {
        log.lock().push(review["spec"].clone());
        let spec = &review["spec"];
        let allowed = spec["resourceAttributes"]["verb"] == "get";
        review["metadata"] = json!({"name": "x"});
        review["status"] = json!({"allowed": allowed, "reason": "because"});
        review
    });
    let host: Arc<dyn Api> = fake.clone();
    let rights: RequestAuthorizer =
        DelegatingAuthorizer::new(host, &DelegatedAuthOptions::default()).into();
    let jane = UserInfo {
        name: "jane".into(),
        uid: "7".into(),
        groups: vec!["g".into()],
        extra: [("k".to_owned(), vec!["v".to_owned()])].into(),
    };
    let target = AuthorizationTarget::Resource {
        group: "work.karmada.io",
        version: "v1alpha1",
        resource: "works",
        subresource: "status",
        namespace: "ns",
        name: "w",
        selectors: AuthorizationSelectors {
            fields: "metadata.name=w,spec.x!=y",
            labels: "a in (c,b),!d,e,f!=g,h>1",
        },
    };
    for _ in 0..3 {
        rights.authorize(&jane, "get", target).await.unwrap();
        let denial = rights.authorize(&jane, "update", target).await.unwrap_err();
        assert_eq!(denial.code, 403);
        assert_eq!(
            denial.message,
            "works.work.karmada.io \"w\" is forbidden: User \"jane\" cannot update resource \"works/status\" in API group \"work.karmada.io\" in the namespace \"ns\": because"
        );
    }
    let first = json!({"user": "jane", "uid": "7", "groups": ["g"], "extra": {"k": ["v"]},
        "resourceAttributes": {"namespace": "ns", "verb": "get", "group": "work.karmada.io",
            "version": "v1alpha1", "resource": "works", "subresource": "status", "name": "w",
            "fieldSelector": {"requirements": [
                {"key": "metadata.name", "operator": "In", "values": ["w"]},
                {"key": "spec.x", "operator": "NotIn", "values": ["y"]}]},
            "labelSelector": {"requirements": [
                {"key": "a", "operator": "In", "values": ["b", "c"]},
                {"key": "d", "operator": "DoesNotExist"}, {"key": "e", "operator": "Exists"},
                {"key": "f", "operator": "NotIn", "values": ["g"]}]}}});
    assert_eq!(reviews.lock().len(), 2);
    assert_eq!(reviews.lock()[0], first);
    tokio::time::advance(Duration::from_secs(11)).await;
    rights.authorize(&jane, "get", target).await.unwrap();
    assert_eq!(reviews.lock().len(), 3);
    // These need no review.
    let master = UserInfo {
        groups: vec![SYSTEM_PRIVILEGED_GROUP.into()],
        ..UserInfo::default()
    };
    rights.authorize(&master, "delete", target).await.unwrap();
    for open in ["/healthz", "/livez/ping", "/readyz"] {
        rights
            .authorize(
                &UserInfo::default(),
                "get",
                AuthorizationTarget::NonResource(open),
            )
            .await
            .unwrap();
    }
    assert_eq!(reviews.lock().len(), 3);
}

//! Tests of the whole server over TLS, on an in-memory store, with a plain hyper
//! client.

mod identity;
mod metric_series;
mod streams;
mod unreadable_objects;

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use auth::pki::{CertKeyPair, Pki};
use auth::rbac::RbacAuthorizer;
use auth::{LocalAuthenticator, tls, token};
use bytes::Bytes;
use client::Api;
use http::{HeaderMap, HeaderValue, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use machinery::UserInfo;
use machinery::time::SystemClock;
use registry::{LoopbackApi, Registry};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::{ApiServer, ApiServerOptions, creators};

struct TestApiServer {
    address: std::net::SocketAddr,
    pki: Pki,
    stop: Option<oneshot::Sender<()>>,
    tasks: JoinSet<()>,
    registry: Arc<Registry>,
    store: Arc<dyn storage::Store>,
    _dir: tempfile::TempDir,
}

struct TestHttpResponse {
    code: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl TestHttpResponse {
    fn json(&self) -> Value {
        machinery::json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {:?}", self.body))
    }
}

async fn start_server() -> TestApiServer {
    let dir = tempfile::tempdir().unwrap();
    let now = jiff::Timestamp::now();
    let pki = Pki::open(dir.path(), &[], now).unwrap();
    let signer = Arc::new(token::ServiceAccountTokens::new(&pki.token_key_pem).unwrap());
    let authenticator = LocalAuthenticator::new(
        Some(pki.verifier().unwrap()),
        signer,
        Arc::new(SystemClock),
        auth::authenticator::LocalAuthenticatorOptions::default(),
    );
    let authorizer = RbacAuthorizer::new();
    let store: Arc<dyn storage::Store> = Arc::new(
        storage::EmbeddedStore::in_memory(storage::EmbeddedStoreOptions::default()).unwrap(),
    );
    let watch_caches =
        watchcache::WatchCaches::new(Arc::clone(&store), watchcache::WatchCacheConfig::default());
    let mut options = registry::RegistryOptions::new(Arc::new(admission::AdmissionChain::new(
        admission::AdmissionChainOptions::default(),
    )));
    options.create_handlers = creators(&authenticator, &Arc::clone(&authorizer).into());
    let registry = Registry::new(Arc::clone(&store), watch_caches, options);
    registry.bootstrap().await.unwrap();
    let api: Arc<dyn Api> = LoopbackApi::new(Arc::clone(&registry), UserInfo::internal());
    authenticator.set_api(Arc::clone(&api));
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&authorizer).run(api));
    authorizer.wait_synced().await;
    let server = ApiServer::new(
        Arc::clone(&registry),
        authenticator,
        authorizer,
        ApiServerOptions::default(),
    );
    let (chain, key) = pki.serving_der().unwrap();
    let tls =
        tls::server_config(tls::ReplaceableServingCertificate::new(chain, key).unwrap()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    tasks.spawn(async move {
        let stopped = async {
            let _ = stopped.await;
        };
        server.serve(listener, tls, stopped).await.unwrap();
    });
    TestApiServer {
        address,
        pki,
        stop: Some(stop),
        tasks,
        registry,
        store,
        _dir: dir,
    }
}

type Http1Sender = hyper::client::conn::http1::SendRequest<Full<Bytes>>;

impl TestApiServer {
    fn tls(&self, identity: Option<&CertKeyPair>, alpn: &[u8]) -> tokio_rustls::TlsConnector {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.pki.ca_pem.as_bytes()).unwrap())
            .unwrap();
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            Some(id) => builder
                .with_client_auth_cert(
                    vec![CertificateDer::from_pem_slice(id.certificate_pem.as_bytes()).unwrap()],
                    PrivateKeyDer::from_pem_slice(id.key_pem.as_bytes()).unwrap(),
                )
                .unwrap(),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![alpn.to_vec()];
        tokio_rustls::TlsConnector::from(Arc::new(config))
    }

    async fn connect(&self, identity: Option<&CertKeyPair>) -> Http1Sender {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let tls = self.tls(identity, b"http/1.1");
        let stream = tls.connect(name, stream).await.unwrap();
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(async move {
            let _ = connection.await;
        });
        sender
    }

    async fn admin(&self) -> TestHttpClient {
        TestHttpClient(self.connect(Some(&self.pki.admin)).await)
    }

    async fn anonymous(&self) -> TestHttpClient {
        TestHttpClient(self.connect(None).await)
    }
}

struct TestHttpClient(Http1Sender);

impl TestHttpClient {
    async fn send<V: AsRef<[u8]>>(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, V)],
        body: impl Into<Bytes>,
    ) -> http::Response<Incoming> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, HeaderValue::from_bytes(value.as_ref()).unwrap());
        }
        self.0.ready().await.unwrap();
        let request = request.body(Full::new(body.into())).unwrap();
        self.0.send_request(request).await.unwrap()
    }

    async fn call(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> TestHttpResponse {
        self.call_with(method, path, headers, body).await
    }

    /// Sends a request whose header values may be any bytes.
    async fn call_with<V: AsRef<[u8]>>(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, V)],
        body: impl Into<Bytes>,
    ) -> TestHttpResponse {
        let response = self.send(method, path, headers, body).await;
        let (parts, body) = response.into_parts();
        TestHttpResponse {
            code: parts.status.as_u16(),
            headers: parts.headers,
            body: body.collect().await.unwrap().to_bytes(),
        }
    }

    async fn get(&mut self, path: &str) -> TestHttpResponse {
        self.call(Method::GET, path, &[], "").await
    }

    async fn get_as(&mut self, path: &str, accept: &str) -> TestHttpResponse {
        self.call(Method::GET, path, &[("accept", accept)], "")
            .await
    }

    async fn post(&mut self, path: &str, body: Value) -> TestHttpResponse {
        let json = [("content-type", "application/json")];
        self.call(Method::POST, path, &json, body.to_string()).await
    }
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_authenticated_and_authorized() {
    let running = start_server().await;
    let mut anonymous = running.anonymous().await;
    let denial = anonymous.get("/api/v1/namespaces/default/pods").await;
    assert_eq!(denial.code, 403);
    assert_eq!(
        denial.json()["message"],
        "pods is forbidden: User \"system:anonymous\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""
    );
    for (path, code) in [
        ("/livez", 200),
        ("/readyz", 200),
        ("/readyz/ping", 200),
        ("/metrics", 403),
    ] {
        assert_eq!(anonymous.get(path).await.code, code, "{path}");
    }
    let token = [("authorization", "Bearer nonsense")];
    assert_eq!(
        anonymous.call(Method::GET, "/livez", &token, "").await.code,
        401
    );
    // Front-proxy headers from a client that is no front proxy are ignored.
    let forged = [
        ("x-remote-user", "admin"),
        ("x-remote-group", "system:masters"),
    ];
    assert_eq!(
        anonymous
            .call(Method::GET, CONFIG_MAPS, &forged, "")
            .await
            .code,
        403
    );
    // A certificate of another CA fails authentication, not the handshake.
    let other = tempfile::tempdir().unwrap();
    let foreign = Pki::open(other.path(), &[], jiff::Timestamp::now()).unwrap();
    let mut foreign_client = TestHttpClient(running.connect(Some(&foreign.admin)).await);
    assert_eq!(foreign_client.get("/livez").await.code, 401);

    let mut admin = running.admin().await;
    assert_eq!(admin.get(CONFIG_MAPS).await.code, 200);
    let as_ann = [("impersonate-user", "ann")];
    assert_eq!(
        admin.call(Method::GET, CONFIG_MAPS, &as_ann, "").await.code,
        403
    );
    let ann = running
        .pki
        .sign_client_certificate("ann", &["staff".into()], jiff::Timestamp::now())
        .unwrap();
    let mut ann = TestHttpClient(running.connect(Some(&ann)).await);
    let as_root = [
        ("impersonate-user", "root"),
        ("impersonate-group", "system:masters"),
    ];
    let denial = ann.call(Method::GET, "/version", &as_root, "").await;
    assert_eq!(denial.code, 403);
    assert!(
        denial.json()["message"]
            .as_str()
            .unwrap()
            .contains("cannot impersonate")
    );
    assert_eq!(ann.get("/version").await.code, 200);
    let rules = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "default"}});
    let rules_review = ann
        .post(
            "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
            rules,
        )
        .await
        .json();
    assert!(
        rules_review["status"]["nonResourceRules"]
            .as_array()
            .unwrap()
            .len()
            > 1,
        "{rules_review}"
    );
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let me = ann
        .post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
        .await;
    assert_eq!(me.code, 201, "{:?}", me.body);
    assert_eq!(me.json()["status"]["userInfo"]["groups"][0], "staff");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_invalid_after_account_deletion() {
    let running = start_server().await;
    let mut admin = running.admin().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}});
    assert_eq!(admin.post(accounts, account).await.code, 201);
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let granted = admin.post(&format!("{accounts}/bot/token"), request).await;
    assert_eq!(granted.code, 201, "{:?}", granted.body);
    let token = granted.json()["status"]["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let bearer = format!("Bearer {token}");
    let bearer = [("authorization", bearer.as_str())];
    let mut bot = running.anonymous().await;
    let rejection = bot.call(Method::GET, CONFIG_MAPS, &bearer, "").await;
    assert_eq!(rejection.code, 403);
    let text = rejection.json()["message"].to_string();
    assert!(text.contains("system:serviceaccount:default:bot"), "{text}");
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let reviewed = admin.post(reviews, review).await.json();
    assert_eq!(reviewed["status"]["authenticated"], true, "{reviewed}");
    let short = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 1}});
    let rejection = admin.post(&format!("{accounts}/bot/token"), short).await;
    assert_eq!(rejection.code, 422);

    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "bot"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "bot", "namespace": "default"}]});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    assert_eq!(admin.post(bindings, binding).await.code, 201);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while bot.call(Method::GET, CONFIG_MAPS, &bearer, "").await.code != 200 {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the binding has no effect"
        );
    }
    let deleted = admin
        .call(Method::DELETE, &format!("{accounts}/bot"), &[], "")
        .await;
    assert_eq!(deleted.code, 200);
    while bot.call(Method::GET, CONFIG_MAPS, &bearer, "").await.code != 401 {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the token outlives its account"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn create_on_update_needs_create_permission() {
    let running = start_server().await;
    let mut admin = running.admin().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "leaser"},
        "rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "update"]}]});
    assert_eq!(
        admin.post(&format!("{rbac}/clusterroles"), role).await.code,
        201
    );
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "leaser"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "leaser"},
        "subjects": [{"kind": "User", "name": "ann"}]});
    let created = admin
        .post(&format!("{rbac}/clusterrolebindings"), binding)
        .await;
    assert_eq!(created.code, 201);
    let ann = running
        .pki
        .sign_client_certificate("ann", &[], jiff::Timestamp::now())
        .unwrap();
    let mut ann = TestHttpClient(running.connect(Some(&ann)).await);
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while ann.get(path).await.code != 404 {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the binding has no effect"
        );
    }
    let lease =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}});
    let headers = [("content-type", "application/json")];
    let denial = ann
        .call(Method::PUT, path, &headers, lease.to_string())
        .await;
    assert_eq!(denial.code, 403, "{:?}", denial.body);
    let created = admin
        .call(Method::PUT, path, &headers, lease.to_string())
        .await;
    assert_eq!(created.code, 201, "{:?}", created.body);
    let current = admin.get(path).await.body;
    assert_eq!(
        ann.call(Method::PUT, path, &headers, current).await.code,
        200
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_served_in_every_representation() {
    let running = start_server().await;
    let mut admin = running.admin().await;
    let created = admin.post(CONFIG_MAPS, config_map("a")).await;
    assert_eq!(created.code, 201, "{:?}", created.body);
    assert_eq!(created.json()["kind"], "ConfigMap");
    assert!(created.headers.contains_key("audit-id"));
    assert_eq!(
        admin.post(CONFIG_MAPS, config_map("a")).await.json()["reason"],
        "AlreadyExists"
    );
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: b\n";
    let as_yaml = [("content-type", "application/yaml")];
    assert_eq!(
        admin
            .call(Method::POST, CONFIG_MAPS, &as_yaml, yaml)
            .await
            .code,
        201
    );
    let duplicate_keys = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"x":"1","x":"2"}}"#;
    let json_type = [("content-type", "application/json")];
    let strict = format!("{CONFIG_MAPS}?fieldValidation=Strict");
    let rejection = admin
        .call(Method::POST, &strict, &json_type, duplicate_keys)
        .await;
    assert_eq!(rejection.code, 400, "{:?}", rejection.body);
    let warned = admin
        .call(Method::POST, CONFIG_MAPS, &json_type, duplicate_keys)
        .await;
    assert_eq!(warned.code, 201);
    assert!(
        warned.headers["warning"]
            .to_str()
            .unwrap()
            .contains("data.x")
    );

    let list = admin.get(CONFIG_MAPS).await.json();
    assert_eq!(list["kind"], "ConfigMapList");
    assert!(list["items"].as_array().unwrap().len() >= 3);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let table = admin.get_as(CONFIG_MAPS, table).await.json();
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let partial = admin.get_as(CONFIG_MAPS, partial).await.json();
    assert_eq!(partial["items"][0].get("data"), None);
    let unacceptable = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    assert_eq!(admin.get_as(CONFIG_MAPS, unacceptable).await.code, 406);
    assert_eq!(
        admin
            .get_as(CONFIG_MAPS, "application/vnd.kubernetes.protobuf")
            .await
            .code,
        200
    );
    let yaml = admin
        .get_as(&format!("{CONFIG_MAPS}/a"), "application/yaml")
        .await;
    assert!(
        std::str::from_utf8(&yaml.body)
            .unwrap()
            .contains("kind: ConfigMap")
    );

    let url = format!("{CONFIG_MAPS}/a");
    let patch = [("content-type", "application/merge-patch+json")];
    let patched = admin
        .call(Method::PATCH, &url, &patch, r#"{"data":{"b":"2"}}"#)
        .await;
    assert_eq!(patched.json()["data"], json!({"a": "1", "b": "2"}));
    let unknown = [("content-type", "application/apply-patch+cbor")];
    let rejection = admin.call(Method::PATCH, &url, &unknown, "{}").await;
    assert_eq!(rejection.code, 415);
    assert!(
        rejection.json()["message"]
            .as_str()
            .unwrap()
            .contains("application/merge-patch+json")
    );
    assert_eq!(admin.post(&url, config_map("a")).await.code, 405);
    assert_eq!(admin.get("/api/v1/nonsense").await.code, 404);
    assert_eq!(admin.get(&format!("{url}/nonsense")).await.code, 404);
    let huge = format!("{{\"a\":\"{}\"}}", "x".repeat(3 << 20));
    assert_eq!(
        admin
            .call(Method::POST, CONFIG_MAPS, &json_type, huge)
            .await
            .code,
        413
    );
    let mut admin = running.admin().await;
    let options = r#"{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"x"}}"#;
    let rejection = admin.call(Method::DELETE, &url, &json_type, options).await;
    assert_eq!(rejection.code, 409);
    assert_eq!(admin.call(Method::DELETE, &url, &[], "").await.code, 200);
    assert_eq!(admin.get(&url).await.json()["reason"], "NotFound");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_are_served_with_etags() {
    let running = start_server().await;
    let mut admin = running.admin().await;
    let aggregated =
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    for path in ["/api", "/apis"] {
        let first = admin.get_as(path, aggregated).await;
        assert_eq!(first.json()["kind"], "APIGroupDiscoveryList");
        let tag = first.headers["etag"].to_str().unwrap().to_owned();
        let headers = [("accept", aggregated), ("if-none-match", tag.as_str())];
        let not_modified = admin.call(Method::GET, path, &headers, "").await;
        assert_eq!((not_modified.code, not_modified.body.len()), (304, 0));
    }
    assert_eq!(admin.get("/api").await.json()["versions"], json!(["v1"]));
    assert_eq!(admin.get("/apis").await.json()["kind"], "APIGroupList");
    assert_eq!(admin.get("/apis/apps").await.json()["name"], "apps");
    let core = admin.get("/api/v1").await.json();
    assert!(
        core["resources"]
            .as_array()
            .unwrap()
            .iter()
            .any(|r| r["name"] == "pods")
    );
    assert_eq!(admin.get("/apis/nonsense").await.code, 404);
    assert_eq!(admin.get("/version").await.json()["major"], "1");
    let paths = admin.get("/").await.json();
    assert!(
        paths["paths"]
            .as_array()
            .unwrap()
            .contains(&json!("/apis/apps/v1"))
    );

    let index = admin.get("/openapi/v3").await.json();
    let url = index["paths"]["api/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap()
        .to_owned();
    let group = admin.get(&url).await;
    assert_eq!(group.code, 200);
    assert!(
        group.headers["cache-control"]
            .to_str()
            .unwrap()
            .contains("immutable")
    );
    assert_eq!(admin.get("/openapi/v3/api/v1?hash=OLD").await.code, 301);
    let gzip = [("accept-encoding", "gzip")];
    let packed = admin.call(Method::GET, "/openapi/v2", &gzip, "").await;
    assert_eq!(packed.headers["content-encoding"], "gzip");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed.body[..])
        .read_to_string(&mut text)
        .unwrap();
    assert!(text.contains("\"swagger\""));
    let accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let binary = admin.get_as("/openapi/v2", accept).await;
    assert!(
        binary.headers["content-type"]
            .to_str()
            .unwrap()
            .contains("v2.v1.0+protobuf")
    );
    assert_eq!(admin.get_as("/openapi/v2", "text/html").await.code, 406);
}

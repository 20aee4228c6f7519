//! A console for many users, each with a bearer token and an API server that shows what its user may see.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use client::{Api, Error, ShutdownToken, TaskGroup};
use client_fake::FakeApi;
use http::header::{ACCEPT, AUTHORIZATION, COOKIE, HOST, ORIGIN, SET_COOKIE};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use karmada_api::resources::CLUSTERS;
use machinery::Status;
use parking_lot::Mutex;
use serde_json::json;

use super::fixture::{FakeStreams, FixedExaminer, ReceivedPage, api, cluster, fleet};
use super::live_pages::next_event;
use crate::access::ConsoleAccess;
use crate::console::{StreamOpener, UserConnections};
use crate::external_url::ExternalUrl;
use crate::guard::RequestGuard;
use crate::response::ConsoleResponse;
use crate::server::ConsoleServer;
use crate::users::{BearerToken, ConsoleUsers, SELF_SUBJECT_REVIEWS, UserConnector};

pub(super) const HOST_NAME: &str = "console.example.com";
pub(super) const EXTERNAL_ORIGIN: &str = "https://console.example.com";

/// Tokens that the control plane accepts, and what their users may see. It counts the connections.
#[derive(Default)]
struct FakeControlPlane {
    users: Mutex<HashMap<String, Arc<FakeApi>>>,
    connections: Mutex<usize>,
}

fn unauthorized() -> Error {
    Status::failure(401, "Unauthorized", "Unauthorized").into()
}

/// Has the API server refuse everything from now on.
pub(super) fn revoke(api: &FakeApi) {
    api.on_call(|_| Some(unauthorized()));
}

#[async_trait]
impl UserConnector for Arc<FakeControlPlane> {
    async fn connect(&self, token: &BearerToken, _: &TaskGroup) -> anyhow::Result<UserConnections> {
        *self.connections.lock() += 1;
        let user = self.users.lock().get(&token.secret().0).cloned();
        let user = user.unwrap_or_else(|| {
            let stranger = api();
            revoke(&stranger);
            stranger
        });
        Ok(UserConnections {
            api: user as Arc<dyn Api>,
            streams: Arc::new(FakeStreams::default()) as Arc<dyn StreamOpener>,
            examiner: Arc::new(FixedExaminer),
        })
    }
}

pub(super) struct UsersFixture {
    plane: Arc<FakeControlPlane>,
    server: ConsoleServer,
    pub(super) tasks: TaskGroup,
}

impl UsersFixture {
    pub(super) fn start() -> Self {
        let tasks = TaskGroup::new(ShutdownToken::new());
        let plane = Arc::new(FakeControlPlane::default());
        let connector = Box::new(Arc::clone(&plane));
        let users = ConsoleUsers::new(connector, "https://plane:6443".to_owned(), &tasks);
        let url = ExternalUrl::parse(EXTERNAL_ORIGIN).unwrap();
        let server = ConsoleServer {
            access: ConsoleAccess::Tokens(users),
            guard: RequestGuard::external(&url),
        };
        Self {
            plane,
            server,
            tasks,
        }
    }

    /// A user with a token, who sees a fleet and one further cluster.
    pub(super) fn add_user(&self, token: &str, name: &str, cluster_name: &str) -> Arc<FakeApi> {
        let user = fleet();
        user.seed(&CLUSTERS, cluster(cluster_name, "True", ""));
        let name = name.to_owned();
        user.respond_to_create(&SELF_SUBJECT_REVIEWS, move |mut review| {
            review["metadata"] = json!({});
            review["status"] = json!({"userInfo": {"username": name}});
            review
        });
        let added = Arc::clone(&user);
        self.plane.users.lock().insert(token.to_owned(), added);
        user
    }

    /// How often somebody was connected to the control plane.
    pub(super) fn connections(&self) -> usize {
        *self.plane.connections.lock()
    }

    pub(super) async fn respond(&self, request: Request<Full<Bytes>>) -> ConsoleResponse {
        self.server.respond(request).await
    }

    pub(super) async fn send(&self, request: Request<Full<Bytes>>) -> ReceivedPage {
        ReceivedPage::read(self.respond(request).await).await
    }

    pub(super) async fn submit_token(&self, token: &str) -> ReceivedPage {
        let form = format!("bearer-token={token}");
        self.send(external_form("/login", "", &form)).await
    }

    /// The cookie of a new session.
    pub(super) async fn login(&self, token: &str) -> String {
        let page = self.submit_token(token).await;
        assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.text);
        assert_eq!(page.location(), "/");
        let cookie = page.headers[SET_COOKIE].to_str().unwrap();
        cookie.split(';').next().unwrap().to_owned()
    }

    pub(super) async fn get(&self, path: &str, cookie: &str) -> ReceivedPage {
        self.send(with_header(
            external_request(Method::GET, path),
            COOKIE.as_str(),
            cookie,
        ))
        .await
    }

    pub(super) async fn get_with_token(&self, path: &str, token: &str) -> ReceivedPage {
        let token = format!("Bearer {token}");
        let request = external_request(Method::GET, path);
        self.send(with_header(request, AUTHORIZATION.as_str(), &token))
            .await
    }

    /// The page of a user as soon as a text is on it.
    pub(super) async fn page_with(&self, path: &str, cookie: &str, text: &str) -> String {
        for _ in 0..1000 {
            let page = self.get(path, cookie).await;
            assert_eq!(page.status, StatusCode::OK, "{}", page.text);
            if page.text.contains(text) {
                return page.text;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no {text} on {path}");
    }

    /// The events of a page that is kept up to date.
    pub(super) async fn follow(&self, path: &str, cookie: &str) -> ConsoleResponse {
        let request = with_header(external_request(Method::GET, path), COOKIE.as_str(), cookie);
        let request = with_header(request, ACCEPT.as_str(), "text/event-stream");
        self.respond(request).await
    }
}

pub(super) fn external_request(method: Method, path: &str) -> Request<Full<Bytes>> {
    let request = Request::builder().method(method).uri(path);
    let request = request
        .header(HOST, HOST_NAME)
        .header("sec-fetch-site", "none");
    request.body(Full::default()).unwrap()
}

pub(super) fn with_header(
    mut request: Request<Full<Bytes>>,
    name: &'static str,
    value: &str,
) -> Request<Full<Bytes>> {
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

/// A form as a page of the console sends it.
pub(super) fn external_form(path: &str, cookie: &str, form: &str) -> Request<Full<Bytes>> {
    let request = external_request(Method::POST, path);
    let request = with_header(request, "sec-fetch-site", "same-origin");
    let request = with_header(request, ORIGIN.as_str(), EXTERNAL_ORIGIN);
    let mut request = with_header(request, COOKIE.as_str(), cookie);
    *request.body_mut() = Full::from(form.to_owned());
    request
}

// proves: CON-users, CON-bearer-header
#[tokio::test(start_paused = true)]
async fn each_user_sees_its_own_fleet() {
    let fixture = UsersFixture::start();
    fixture.add_user("token-a", "alice", "alpha");
    fixture.add_user("token-b", "bob", "bravo");
    let (alice, bob) = (
        fixture.login("token-a").await,
        fixture.login("token-b").await,
    );
    assert_ne!(alice, bob);
    for _ in 0..2 {
        let page = fixture.page_with("/", &alice, "alpha").await;
        assert!(page.contains("alice") && !page.contains("bravo") && !page.contains("bob"));
        let page = fixture.page_with("/", &bob, "bravo").await;
        assert!(page.contains("bob") && !page.contains("alpha") && !page.contains("alice"));
        for (token, own, other) in [("token-a", "alpha", "bravo"), ("token-b", "bravo", "alpha")] {
            let page = fixture.get_with_token("/", token).await;
            assert!(
                page.text.contains(own) && !page.text.contains(other),
                "{}",
                page.text
            );
            assert!(!page.text.contains(token) && !page.text.contains("Log out"));
        }
    }
    // A proxy has set the header: the cookie of another user beside it says nothing.
    let request = external_request(Method::GET, "/");
    let request = with_header(request, COOKIE.as_str(), &alice);
    let request = with_header(request, AUTHORIZATION.as_str(), "Bearer token-b");
    let page = fixture.send(request).await;
    assert!(
        page.text.contains("bravo") && !page.text.contains("alpha"),
        "{}",
        page.text
    );
    assert_eq!(fixture.connections(), 2);
    for token in ["token-", "token-aa", "TOKEN-A", "token-c"] {
        let page = fixture.get_with_token("/", token).await;
        assert_eq!(page.status, StatusCode::UNAUTHORIZED, "{token}");
        assert!(!page.text.contains("alpha") && !page.text.contains("bravo"));
    }
    fixture.tasks.stop().await;
}

// proves: CON-users, CON-csrf
#[tokio::test(start_paused = true)]
async fn a_user_acts_with_its_own_token_and_only_by_its_own_forms() {
    const PAUSE: &str = "/workloads/shop/web%2Ddeployment/pause";
    let fixture = UsersFixture::start();
    let alice = fixture.add_user("token-a", "alice", "alpha");
    let bob = fixture.add_user("token-b", "bob", "bravo");
    let (by_alice, by_bob) = (
        fixture.login("token-a").await,
        fixture.login("token-b").await,
    );
    let form = |page: &ReceivedPage| {
        format!(
            "token={}&version={}",
            page.field("token"),
            page.field("version")
        )
    };
    fixture.page_with("/workloads", &by_alice, "web").await;
    fixture.page_with("/workloads", &by_bob, "web").await;
    let (of_alice, of_bob) = (
        fixture.get(PAUSE, &by_alice).await,
        fixture.get(PAUSE, &by_bob).await,
    );
    let foreign = fixture
        .send(external_form(PAUSE, &by_alice, &form(&of_bob)))
        .await;
    assert_eq!(foreign.status, StatusCode::FORBIDDEN);
    let without_origin = with_header(
        external_request(Method::POST, PAUSE),
        COOKIE.as_str(),
        &by_alice,
    );
    assert_eq!(
        fixture.send(without_origin).await.status,
        StatusCode::FORBIDDEN
    );
    // A proxy adds the header to forms of other sites, too.
    let by_header = fixture.get_with_token(PAUSE, "token-b").await;
    for (form, origin, status) in [
        (
            "token=&version=x".to_owned(),
            EXTERNAL_ORIGIN,
            StatusCode::FORBIDDEN,
        ),
        (form(&of_alice), EXTERNAL_ORIGIN, StatusCode::FORBIDDEN),
        (
            form(&by_header),
            "https://evil.example",
            StatusCode::FORBIDDEN,
        ),
        (form(&by_header), EXTERNAL_ORIGIN, StatusCode::SEE_OTHER),
    ] {
        let request = external_form(PAUSE, "", &form);
        let request = with_header(request, AUTHORIZATION.as_str(), "Bearer token-b");
        let request = with_header(request, ORIGIN.as_str(), origin);
        assert_eq!(
            fixture.send(request).await.status,
            status,
            "{form} {origin}"
        );
    }
    let done = fixture
        .send(external_form(PAUSE, &by_alice, &form(&of_alice)))
        .await;
    assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.text);
    assert_eq!((alice.writes().len(), bob.writes().len()), (1, 1));
    fixture.tasks.stop().await;
}

// proves: CON-token-ends
#[tokio::test(start_paused = true)]
async fn a_token_that_is_refused_ends_its_sessions_and_pages() {
    let fixture = UsersFixture::start();
    let alice = fixture.add_user("token-a", "alice", "alpha");
    fixture.add_user("token-b", "bob", "bravo");
    let (by_alice, by_bob) = (
        fixture.login("token-a").await,
        fixture.login("token-b").await,
    );
    fixture.page_with("/", &by_alice, "alpha").await;
    let mut live = fixture.follow("/", &by_alice).await;
    next_event(&mut live).await;
    revoke(&alice);
    let mut last = String::new();
    while let Some(frame) = live.body_mut().frame().await {
        last = String::from_utf8(frame.unwrap().into_data().unwrap().to_vec()).unwrap();
    }
    assert!(last.starts_with("event: session-end\n"), "{last}");
    for page in [
        fixture.get("/", &by_alice).await,
        fixture.get_with_token("/", "token-a").await,
    ] {
        assert_eq!(page.status, StatusCode::UNAUTHORIZED);
        assert!(
            !page.text.contains("alpha") && !page.text.contains("alice"),
            "{}",
            page.text
        );
    }
    let ended = fixture.get("/", &by_alice).await;
    assert!(
        ended.text.contains("The session has ended"),
        "{}",
        ended.text
    );
    let never = fixture.get("/", "").await;
    assert!(
        !never.text.contains("The session has ended"),
        "{}",
        never.text
    );
    fixture.page_with("/", &by_bob, "bravo").await;
    fixture.tasks.stop().await;
}

// proves: CON-token-ends
#[tokio::test(start_paused = true)]
async fn a_page_notices_a_refused_token_at_once_and_leaves_members_aside() {
    const WORKLOAD: &str = "/workloads/shop/web%2Ddeployment";
    let fixture = UsersFixture::start();
    let alice = fixture.add_user("token-a", "alice", "alpha");
    let cookie = fixture.login("token-a").await;
    fixture.page_with("/workloads", &cookie, "web").await;
    // A member refuses the credentials of the control plane.
    alice.on_call(|call| (call.verb == "get").then(unauthorized));
    let page = fixture.get(WORKLOAD, &cookie).await;
    assert_ne!(page.status, StatusCode::UNAUTHORIZED, "{}", page.text);
    revoke(&alice);
    let page = fixture.get(WORKLOAD, &cookie).await;
    assert_eq!(page.status, StatusCode::UNAUTHORIZED, "{}", page.text);
    assert!(page.text.contains("The session has ended"), "{}", page.text);
    // A control plane that does not answer ends nothing.
    let bob = fixture.add_user("token-b", "bob", "bravo");
    let cookie = fixture.login("token-b").await;
    fixture.page_with("/", &cookie, "bravo").await;
    bob.on_call(|_| Some(Status::failure(503, "ServiceUnavailable", "later").into()));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(fixture.get("/", &cookie).await.status, StatusCode::OK);
    fixture.tasks.stop().await;
}

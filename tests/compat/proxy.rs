//! The cluster proxy: requests, streams, impersonation and errors.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use harness::http_client::{
    HttpTestRequest, TestHttpBody, cluster_proxy_path, collect_response, full_body, within_timeout,
};
use harness::https_server::{FakeHttpsServer, TestRequestHandler};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{Method, Request, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::compat::test_server::CompatTestServer;

/// A handler that responds with the request it received: method, path, headers, length of the
/// body.
pub(crate) fn echo_handler() -> TestRequestHandler {
    Arc::new(|request: Request<Incoming>| {
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let mut headers = BTreeMap::<String, Vec<String>>::new();
            for (name, value) in &parts.headers {
                let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
                headers.entry(name.to_string()).or_default().push(value);
            }
            let length = body.collect().await.unwrap().to_bytes().len();
            let path = parts.uri.path_and_query().unwrap().as_str();
            let received = json!({"method": parts.method.as_str(), "path": path, "headers": headers, "length": length});
            Response::builder()
                .header("content-type", "application/json")
                .header("warning", "299 - heard")
                .header("x-hop", "1")
                .body(full_body(received.to_string()))
                .unwrap()
        })
    })
}

/// A body whose frames come from a channel.
fn channel_body() -> (mpsc::Sender<Bytes>, TestHttpBody) {
    let (feed, mut frames) = mpsc::channel::<Bytes>(8);
    let stream = futures_util::stream::poll_fn(move |cx| {
        frames.poll_recv(cx).map(|f| f.map(|f| Ok(Frame::data(f))))
    });
    (feed, BodyExt::boxed(StreamBody::new(stream)))
}

async fn next_frame(body: &mut Incoming) -> Option<Bytes> {
    let frame = within_timeout("a frame", body.frame()).await?;
    Some(frame.unwrap().into_data().unwrap())
}

/// A token of the service account `karmada-impersonator` without a valid signature: only the
/// member verifies it.
pub(crate) fn impersonator_token() -> String {
    let claims = json!({"sub": "system:serviceaccount:karmada-cluster:karmada-impersonator"});
    format!("e30.{}.none", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

// proves: IMP-groups, IMP-dropped-groups, IMP-accounts
#[tokio::test(flavor = "multi_thread")]
async fn users_are_impersonated_with_the_groups_that_the_member_grants() {
    let test_server = CompatTestServer::shared().await;
    let admin = &test_server.admin;
    let peer = FakeHttpsServer::start(echo_handler()).await;
    let token = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token-of-governed"},
        "data": {"token": STANDARD.encode(impersonator_token())}});
    let created = admin
        .post("/api/v1/namespaces/karmada-cluster/secrets", &token)
        .await;
    assert_eq!(created.code, 201);
    let reference = json!({"namespace": "karmada-cluster", "name": "token-of-governed"});
    test_server
        .register_cluster(
            "governed",
            &peer,
            json!({"impersonatorSecretRef": reference}),
        )
        .await;
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "governed"}, "rules": [{"apiGroups": ["cluster.karmada.io"],
            "resources": ["clusters/proxy"], "resourceNames": ["governed"], "verbs": ["*"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "governed"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "governed"},
        "subjects": [{"kind": "Group", "name": "dev", "apiGroup": "rbac.authorization.k8s.io"},
            {"kind": "ServiceAccount", "name": "bot", "namespace": "default"}]});
    for (path, body) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        assert_eq!(admin.post(&format!("{RBAC}/{path}"), &body).await.code, 201);
    }
    let groups_of = async |user: &str, groups: &[&str]| {
        let request = groups.iter().fold(
            HttpTestRequest::new(Method::GET, &cluster_proxy_path("governed", "/x"))
                .header("impersonate-user", user),
            |request, group| request.header("impersonate-group", group),
        );
        let reply = collect_response(admin.send(request.body(full_body(""))).await).await;
        (reply.code == 200).then(|| reply.json()["headers"]["impersonate-group"].clone())
    };
    // The grant acts some time after its binding is created.
    let granted = async {
        loop {
            let groups = groups_of("ann", &["ops", "dev"]).await;
            if groups == Some(json!(["dev"])) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    within_timeout("the groups of ann", granted).await;
    let account = "system:serviceaccount:default:bot";
    assert_eq!(groups_of(account, &[]).await, Some(Value::Null));
    assert_eq!(groups_of("bob", &["ops"]).await, None);

    let name = "karmada-impersonator-7cbb6bd5c9";
    let work =
        format!("/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-governed/works/{name}");
    let rules = async {
        loop {
            let work = admin.get(&work).await;
            let work = if work.code == 200 {
                work.json()
            } else {
                Value::Null
            };
            let rules = work["spec"]["workload"]["manifests"][0]["rules"].clone();
            let of = |resource: &str| {
                let mut rules = rules.as_array().into_iter().flatten();
                rules.find(|r| r["resources"] == json!([resource])).cloned()
            };
            if let (Some(users), Some(groups)) = (of("users"), of("groups"))
                && groups["resourceNames"]
                    .as_array()
                    .unwrap()
                    .contains(&json!("dev"))
            {
                return users;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let users = within_timeout("the rules of the impersonator", rules).await;
    assert_eq!(users["resourceNames"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_forwarded_unchanged_with_the_users_impersonation() {
    let test_server = CompatTestServer::shared().await;
    let peer = FakeHttpsServer::start(echo_handler()).await;
    test_server
        .register_cluster("mirror", &peer, json!({}))
        .await;
    let upload = vec![7u8; 300_000];
    let table: &[(Method, &str, &str, &[u8])] = &[
        (Method::GET, "", "/base/", b""),
        (
            Method::GET,
            "/api/v1/pods?watch=false&x=a%2Fb",
            "/base/api/v1/pods?watch=false&x=a%2Fb",
            b"",
        ),
        (
            Method::POST,
            "/api//v1/./namespaces",
            "/base/api/v1/namespaces",
            b"{}",
        ),
        (Method::PUT, "/a%20b/c%2Fd", "/base/a%20b/c%2Fd", &upload),
        (Method::PATCH, "/x/", "/base/x/", b"1"),
        (Method::DELETE, "/x", "/base/x", b""),
        (Method::OPTIONS, "/x", "/base/x", b""),
    ];
    for second in [false, true] {
        for (method, path, arrives, body) in table {
            let request = HttpTestRequest::new(method.clone(), &cluster_proxy_path("mirror", path))
                .header("accept", "application/x-own")
                .header("x-remote-user", "forged")
                .header("x-forwarded-for", "192.0.2.1")
                .body(full_body(body.to_vec()));
            let reply = match second {
                true => collect_response(test_server.admin.send_http2(request).await).await,
                false => collect_response(test_server.admin.send(request).await).await,
            };
            assert_eq!(reply.code, 200, "{method} {path}: {:?}", reply.body);
            assert_eq!(reply.headers["warning"], "299 - heard");
            assert_eq!(reply.headers["content-type"], "application/json");
            let received = reply.json();
            assert_eq!(received["method"], method.as_str());
            assert_eq!(received["path"], *arrives);
            assert_eq!(received["length"], body.len());
            let headers = &received["headers"];
            for (name, value) in [
                ("authorization", json!(["Bearer impersonator"])),
                ("impersonate-user", json!(["kubernetes-admin"])),
                ("impersonate-group", json!(["system:masters"])),
                ("accept", json!(["application/x-own"])),
                ("x-forwarded-for", json!(["192.0.2.1"])),
                ("x-remote-user", Value::Null),
                ("impersonate-uid", Value::Null),
            ] {
                assert_eq!(headers[name], value, "{name} of {headers}");
            }
        }
    }
    let head = test_server
        .admin
        .call(HttpTestRequest::new(
            Method::HEAD,
            &cluster_proxy_path("mirror", "/x"),
        ))
        .await;
    assert_eq!((head.code, head.body.len()), (200, 0));
    let metrics = test_server.admin.get("/metrics").await;
    let metrics = String::from_utf8(metrics.body.to_vec()).unwrap();
    for line in [
        "flotilla_cluster_proxy_requests_total{cluster=\"mirror\",code=\"200\"} 15",
        "flotilla_cluster_proxy_open{cluster=\"mirror\"} 0",
        "flotilla_cluster_proxy_bytes_total{cluster=\"mirror\",direction=\"sent\"} 6000",
        "flotilla_cluster_proxy_duration_seconds_count{cluster=\"mirror\"} 15",
    ] {
        assert!(metrics.contains(line), "no {line} in {metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_requests_are_authorized_and_impersonate_the_user() {
    let test_server = CompatTestServer::shared().await;
    let peer = FakeHttpsServer::start(echo_handler()).await;
    test_server
        .register_cluster("guarded", &peer, json!({}))
        .await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": "guarded-reader"}, "rules": [
        {"apiGroups": ["cluster.karmada.io"], "resources": ["clusters/proxy"],
         "resourceNames": ["guarded"], "verbs": ["get"]}]});
    let binding = json!({"metadata": {"name": "guarded-reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "guarded-reader"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "ann"}]});
    for (resource, body) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        let created = test_server
            .admin
            .post(&format!("{rbac}/{resource}"), &body)
            .await;
        assert_eq!(created.code, 201);
    }
    let request = |method: Method, cluster: &str, user: &str| {
        HttpTestRequest::new(method, &cluster_proxy_path(cluster, "/api/v1/pods"))
            .header("impersonate-user", user)
            .header("impersonate-group", "dev")
    };
    let reply = within_timeout("the right", async {
        loop {
            let reply = test_server
                .admin
                .call(request(Method::GET, "guarded", "ann"))
                .await;
            if reply.code != 403 {
                return reply;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(reply.code, 200);
    let headers = &reply.json()["headers"];
    // The user and groups that the caller impersonates, without system:authenticated.
    assert_eq!(headers["impersonate-user"], json!(["ann"]));
    assert_eq!(headers["impersonate-group"], json!(["dev"]));
    for (method, cluster, user) in [
        (Method::POST, "guarded", "ann"),
        (Method::DELETE, "guarded", "ann"),
        (Method::GET, "other", "ann"),
        (Method::GET, "guarded", "bob"),
    ] {
        let reply = test_server
            .admin
            .call(request(method.clone(), cluster, user))
            .await;
        assert_eq!(reply.code, 403, "{method} {cluster} {user}");
        assert_eq!(reply.json()["reason"], "Forbidden");
    }
    let forged = HttpTestRequest::new(Method::GET, &cluster_proxy_path("guarded", "/api"))
        .header("x-remote-user", "ann")
        .header("x-remote-group", "system:masters");
    assert_eq!(test_server.anonymous.call(forged).await.code, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_streamed() {
    let test_server = CompatTestServer::shared().await;
    let (received, mut receiver) = mpsc::channel::<Bytes>(8);
    let (feed, body) = channel_body();
    let body = Arc::new(Mutex::new(Some(body)));
    let handler: TestRequestHandler = Arc::new(move |request: Request<Incoming>| {
        let (received, body) = (received.clone(), Arc::clone(&body));
        Box::pin(async move {
            if request.uri().path().ends_with("/drip") {
                return Response::new(body.lock().take().unwrap());
            }
            let mut body = request.into_body();
            while let Some(frame) = body.frame().await {
                let data = frame.unwrap().into_data().unwrap();
                // The end of a stream may be an empty frame.
                if !data.is_empty() {
                    received.send(data).await.unwrap();
                }
            }
            Response::new(full_body("all"))
        })
    });
    let peer = FakeHttpsServer::start(handler).await;
    test_server
        .register_cluster("streams", &peer, json!({}))
        .await;
    // Request bodies: a frame arrives before the next one is sent.
    for second in [false, true] {
        let (sender, body) = channel_body();
        let request =
            HttpTestRequest::new(Method::POST, &cluster_proxy_path("streams", "/up")).body(body);
        let target = test_server.admin.clone();
        let sent = tokio::spawn(async move {
            collect_response(match second {
                true => target.send_http2(request).await,
                false => target.send(request).await,
            })
            .await
        });
        for part in ["one", "two"] {
            sender.send(part.into()).await.unwrap();
            assert_eq!(within_timeout(part, receiver.recv()).await.unwrap(), part);
        }
        drop(sender);
        assert_eq!(sent.await.unwrap().body, "all");
    }
    // Response bodies, as of a watch or a followed log.
    let path = cluster_proxy_path("streams", "/api/v1/pods/drip?watch=1");
    feed.send("first\n".into()).await.unwrap();
    let mut down = test_server
        .admin
        .send(HttpTestRequest::new(Method::GET, &path))
        .await
        .into_body();
    assert_eq!(next_frame(&mut down).await.unwrap(), "first\n");
    feed.send("second\n".into()).await.unwrap();
    assert_eq!(next_frame(&mut down).await.unwrap(), "second\n");
    // When the client disconnects, the connection to the cluster is closed.
    drop(down);
    within_timeout("the end", feed.closed()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_name_their_cause() {
    let test_server = CompatTestServer::shared().await;
    let handler: TestRequestHandler = Arc::new(|request: Request<Incoming>| {
        Box::pin(async move {
            let response = match request.uri().path() {
                "/base/moved" => Response::builder()
                    .status(302)
                    .header("location", "/base/there?x=1"),
                "/base/away" => Response::builder()
                    .status(302)
                    .header("location", "https://example.com/"),
                "/base/who" => Response::builder().status(401),
                _ => Response::builder().status(418),
            };
            response.body(full_body("a member's words")).unwrap()
        })
    });
    let peer = FakeHttpsServer::start(handler).await;
    let unreachable = FakeHttpsServer::start(echo_handler()).await;
    test_server
        .register_cluster("answers", &peer, json!({}))
        .await;
    test_server
        .register_cluster("gone", &unreachable, json!({}))
        .await;
    test_server
        .register_cluster("silent", &peer, json!({"impersonatorSecretRef": null}))
        .await;
    let bare = json!({"impersonatorSecretRef": null, "syncMode": "Push"});
    test_server.register_cluster("bare", &peer, bare).await;
    let other = json!({"namespace": "karmada-cluster", "name": "nowhere"});
    test_server
        .register_cluster("unsealed", &peer, json!({"impersonatorSecretRef": other}))
        .await;
    let stranger = json!({"secretRef": {"namespace": "karmada-cluster", "name": "gone"}});
    test_server
        .register_cluster("stranger", &peer, stranger.clone())
        .await;
    let mut trusting = stranger;
    trusting["insecureSkipTLSVerification"] = json!(true);
    test_server
        .register_cluster("trusting", &peer, trusting)
        .await;
    drop(unreachable);
    let table: &[(&str, &str, u16, &str)] = &[
        (
            "nobody",
            "/api",
            404,
            "clusters.cluster.karmada.io \"nobody\" not found",
        ),
        (
            "bare",
            "/api",
            500,
            "the impersonatorSecretRef of cluster \"bare\" is not set",
        ),
        (
            "silent",
            "/api",
            503,
            "the agent of cluster \"silent\" has no tunnel",
        ),
        (
            "unsealed",
            "/api",
            500,
            "\"karmada-cluster/nowhere\" of cluster \"unsealed\" does not exist",
        ),
        ("gone", "/api", 503, "cluster \"gone\" cannot be reached: "),
        ("stranger", "/api", 503, "certificate"),
        (
            "answers",
            "/who",
            503,
            "refused the token of its impersonator",
        ),
        ("answers", "/a/%2e%2e/b", 400, "cannot be passed on"),
        ("answers", "/tea", 418, "a member's words"),
        ("trusting", "/tea", 418, "a member's words"),
    ];
    for (cluster, path, code, text) in table {
        let reply = test_server
            .admin
            .get(&cluster_proxy_path(cluster, path))
            .await;
        let body = String::from_utf8_lossy(&reply.body).replace("\\\"", "\"");
        assert_eq!(reply.code, *code, "{cluster}{path}: {body}");
        assert!(body.contains(text), "{cluster}{path}: {body}");
        if *code != 418 {
            let status = reply.json();
            assert_eq!(
                (&status["kind"], &status["code"]),
                (&json!("Status"), &json!(code))
            );
            assert!(
                !body.contains("impersonator\":\"") && !body.contains("Bearer"),
                "{body}"
            );
        }
    }
    for (path, location) in [
        ("/moved", cluster_proxy_path("answers", "/there?x=1")),
        ("/away", "https://example.com/".to_owned()),
    ] {
        let reply = test_server
            .admin
            .get(&cluster_proxy_path("answers", path))
            .await;
        assert_eq!(reply.headers["location"], location.as_str());
    }
    assert!(!test_server.log().contains("impersonator\":\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_to_all_clusters_are_merged() {
    let test_server = tokio::task::spawn_blocking(CompatTestServer::start)
        .await
        .unwrap();
    let member = |own: &'static str| -> TestRequestHandler {
        Arc::new(move |request: Request<Incoming>| {
            let pods = "/base/api/v1/namespaces/n/pods";
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let item = |name: &str| json!({"kind": "Pod", "metadata": {"name": name}});
            let response = match path.strip_prefix(pods) {
                Some("") => Some(json!({"kind": "PodList", "items": [item(own)]}).to_string()),
                Some("/both") => Some(item("both").to_string()),
                Some(rest) if rest == format!("/{own}") => Some(format!("{method} {own}")),
                Some(rest) if rest == format!("/{own}/log") => Some("a line".to_owned()),
                _ => None,
            };
            Box::pin(async move {
                let code = if response.is_some() { 200 } else { 404 };
                let body = full_body(response.unwrap_or_default());
                Response::builder().status(code).body(body).unwrap()
            })
        })
    };
    let (a, b) = (
        FakeHttpsServer::start(member("a")).await,
        FakeHttpsServer::start(member("b")).await,
    );
    test_server.register_cluster("one", &a, json!({})).await;
    test_server.register_cluster("two", &b, json!({})).await;
    let pods = "/api/v1/namespaces/n/pods";
    let table: &[(Method, &str, u16, &str)] = &[
        (
            Method::GET,
            "",
            200,
            r#""items":[{"kind":"Pod","metadata":{"name":"a"}},{"kind":"Pod","metadata":{"name":"b"}}]"#,
        ),
        (Method::GET, "/b", 200, "GET b"),
        (Method::DELETE, "/a", 200, "DELETE a"),
        (Method::GET, "/b/log", 200, "a line"),
        (
            Method::GET,
            "/none",
            404,
            "resource not found or don't have permission to get it",
        ),
        (
            Method::GET,
            "/both",
            409,
            "exist in more than one cluster: one,two",
        ),
        (Method::POST, "", 405, "Request verb create is not support"),
        (
            Method::GET,
            "?watch=1",
            405,
            "Request verb watch is not support",
        ),
    ];
    for (method, rest, code, text) in table {
        let request = HttpTestRequest::new(
            method.clone(),
            &cluster_proxy_path("*", &format!("{pods}{rest}")),
        );
        let reply = test_server.admin.call(request).await;
        let body = String::from_utf8_lossy(&reply.body);
        assert_eq!(reply.code, *code, "{method} {rest}: {body}");
        assert!(body.contains(text), "{method} {rest}: {body}");
    }
    let discovery = test_server
        .admin
        .get(&cluster_proxy_path("*", "/apis?x=1"))
        .await;
    assert_eq!(
        (discovery.code, &discovery.json()["kind"]),
        (200, &json!("APIGroupList"))
    );
}

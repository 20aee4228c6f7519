//! No header or parameter that carries an identity or a precondition is dropped: the
//! server applies it or refuses the request.

use http::Method;
use serde_json::{Value, json};

use super::{CONFIG_MAPS, TestHttpClient, config_map, start_server};

const NAMESPACES: &str = "/api/v1/namespaces";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const INVALID: &[u8] = b"j\xffrgen";

fn review() -> String {
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string()
}

/// The user info of the caller; on refusal its code and message.
async fn who_am_i(
    caller: &mut TestHttpClient,
    headers: &[(&str, &[u8])],
) -> Result<Value, (u16, String)> {
    let mut all: Vec<(&str, &[u8])> = vec![("content-type", b"application/json")];
    all.extend(headers);
    let reply = caller
        .call_with(Method::POST, REVIEWS, &all, review())
        .await;
    let mut response = reply.json();
    match reply.code {
        201 => Ok(response["status"]["userInfo"].take()),
        code => Err((code, response["message"].to_string())),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impersonation_takes_utf_8() {
    let running = start_server().await;
    let mut admin = running.admin().await;
    let headers: [(&str, &[u8]); 4] = [
        ("impersonate-user", "jürgen".as_bytes()),
        ("impersonate-group", "größe".as_bytes()),
        ("impersonate-uid", "ü1".as_bytes()),
        ("impersonate-extra-scope", "straße".as_bytes()),
    ];
    let user = who_am_i(&mut admin, &headers).await.unwrap();
    assert_eq!(user["username"], "jürgen");
    assert_eq!(user["groups"][0], "größe");
    assert_eq!(user["uid"], "ü1");
    assert_eq!(user["extra"]["scope"], json!(["straße"]));
    // jürgen has no rights.
    let reply = admin.call_with(Method::GET, NAMESPACES, &headers[..1], "");
    assert_eq!(reply.await.code, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_impersonation_is_rejected() {
    let running = start_server().await;
    let mut admin = running.admin().await;
    let ann = ("impersonate-user", &b"ann"[..]);
    for headers in [
        vec![("impersonate-user", INVALID)],
        vec![("impersonate-user", &b""[..])],
        vec![ann, ann],
        vec![
            ann,
            ("impersonate-uid", &b"1"[..]),
            ("impersonate-uid", &b"2"[..]),
        ],
        vec![ann, ("impersonate-group", INVALID)],
        vec![ann, ("impersonate-uid", INVALID)],
        vec![ann, ("impersonate-extra-scope", INVALID)],
        vec![ann, ("impersonate-extra-a%ffb", &b"v"[..])],
        vec![ann, ("impersonate-frob", &b"v"[..])],
        vec![("impersonate-group", &b"g"[..])],
        vec![("impersonate-uid", &b"1"[..])],
        vec![("impersonate-extra-scope", &b"v"[..])],
    ] {
        let (code, message) = who_am_i(&mut admin, &headers).await.unwrap_err();
        assert_eq!(code, 400, "{headers:?}: {message}");
        assert!(message.to_lowercase().contains("impersonat"), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_authorization_is_rejected() {
    let running = start_server().await;
    for headers in [
        vec![("authorization", &b"Bearer \xff\xfe"[..])],
        vec![("authorization", "Bearer jürgen".as_bytes())],
        vec![("authorization", &b"\xff"[..])],
        vec![("authorization", &b"Basic \xff"[..])],
        vec![
            ("authorization", &b"Basic YTpi"[..]),
            ("authorization", &b"Bearer x"[..]),
        ],
    ] {
        let mut caller = running.anonymous().await;
        let reply = caller
            .call_with(Method::GET, "/version", &headers, "")
            .await;
        assert_eq!(reply.code, 401, "{headers:?}");
    }
    // Unknown authentication schemes are ignored, as in kube-apiserver.
    let mut caller = running.anonymous().await;
    let basic = [("authorization", "Basic YTpi")];
    let reply = caller.call(Method::GET, NAMESPACES, &basic, "").await;
    assert_eq!(reply.code, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dry_run_is_never_ignored() {
    let running = start_server().await;
    let mut admin = running.admin().await;
    let json_type = [("content-type", "application/json")];
    for (query, code) in [
        ("dryRun=All", 201),
        ("dryRun=All&dryRun=All", 201),
        ("dryRun=%zz", 400),
        ("dryRun=All%ff", 400),
        ("dry%ffRun=All", 400),
        ("dryRun=", 422),
        ("dryRun=&dryRun=All", 422),
        ("dryRun=All&dryRun=Some", 422),
    ] {
        let path = format!("{CONFIG_MAPS}?{query}");
        let reply = admin.call(Method::POST, &path, &json_type, config_map("a").to_string());
        let reply = reply.await;
        assert_eq!(reply.code, code, "{query}: {:?}", reply.body);
        assert_eq!(
            admin.get(&format!("{CONFIG_MAPS}/a")).await.code,
            404,
            "{query}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delete_preconditions_are_never_ignored() {
    let running = start_server().await;
    let mut admin = running.admin().await;
    let created = admin.post(CONFIG_MAPS, config_map("a")).await;
    assert_eq!(created.code, 201);
    let object_path = format!("{CONFIG_MAPS}/a");
    for options in [
        json!({"dryRun": "All"}),
        json!({"dryRun": [1]}),
        json!({"preconditions": {"uid": 5}}),
        json!({"preconditions": {"resourceVersion": 5}}),
        json!({"preconditions": "x"}),
        json!({"preconditions": []}),
        json!({"propagationPolicy": 1}),
        json!({"orphanDependents": "true"}),
        json!({"gracePeriodSeconds": "0"}),
        json!({"kind": 5}),
    ] {
        let headers = [("content-type", "application/json")];
        let rejection = admin.call(Method::DELETE, &object_path, &headers, options.to_string());
        let rejection = rejection.await;
        assert_eq!(rejection.code, 400, "{options}: {:?}", rejection.body);
        assert_eq!(admin.get(&object_path).await.code, 200, "{options}");
    }
    // A body of unknown encoding cannot be read at all.
    let uid = created.json()["metadata"]["uid"].clone();
    let options = json!({"preconditions": {"uid": uid}}).to_string();
    let unreadable = [("content-type", &b"application/json\xff"[..])];
    let rejection = admin.call_with(Method::DELETE, &object_path, &unreadable, options.clone());
    assert_eq!(rejection.await.code, 415);
    let readable = [("content-type", "application/json")];
    let done = admin
        .call(Method::DELETE, &object_path, &readable, options)
        .await;
    assert_eq!(done.code, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn update_preconditions_are_never_ignored() {
    let running = start_server().await;
    let mut admin = running.admin().await;
    assert_eq!(admin.post(CONFIG_MAPS, config_map("a")).await.code, 201);
    let object_path = format!("{CONFIG_MAPS}/a");
    for (field, value) in [
        ("resourceVersion", json!(1)),
        ("resourceVersion", json!(["1"])),
        ("uid", json!(5)),
    ] {
        for (method, kind) in [
            (Method::PUT, "application/json"),
            (Method::PATCH, "application/merge-patch+json"),
        ] {
            let mut changed = config_map("a");
            changed["metadata"][field] = value.clone();
            changed["data"]["a"] = "2".into();
            let headers = [("content-type", kind)];
            let rejection = admin.call(method.clone(), &object_path, &headers, changed.to_string());
            let rejection = rejection.await;
            let case = format!("{method} {field} {value}: {:?}", rejection.body);
            assert!(matches!(rejection.code, 400 | 422), "{case}");
            assert_eq!(
                admin.get(&object_path).await.json()["data"]["a"],
                "1",
                "{case}"
            );
        }
    }
}

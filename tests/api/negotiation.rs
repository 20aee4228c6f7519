//! Content negotiation: media types, discovery, OpenAPI documents, health endpoints, protobuf.

use serde_json::{Value, json};

use crate::api::test_server::ApiTestServer;

const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const PARTIAL: &str =
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

#[test]
fn discovery_is_aggregated_or_not_and_has_an_etag() {
    let test_server = ApiTestServer::shared();
    for path in ["/api", "/apis"] {
        let reply = test_server
            .request("GET", path)
            .header("Accept", AGGREGATED)
            .send();
        assert_eq!(reply.code, 200);
        assert_eq!(reply.json()["kind"], "APIGroupDiscoveryList");
        assert!(
            reply
                .header("content-type")
                .contains("as=APIGroupDiscoveryList")
        );
        assert_eq!(reply.header("vary"), "Accept");
        assert_eq!(reply.header("cache-control"), "public");
        let tag = reply.header("etag");
        assert!(tag.starts_with('"') && tag.len() > 32, "{tag}");
        let again = test_server
            .request("GET", path)
            .header("Accept", AGGREGATED)
            .header("If-None-Match", &tag)
            .send();
        assert_eq!((again.code, again.body.len()), (304, 0));
    }
    assert_eq!(test_server.get("/api").json()["versions"], json!(["v1"]));
    assert_eq!(test_server.get("/apis").json()["kind"], "APIGroupList");
    let apps = test_server.get("/apis/apps").json();
    assert_eq!(apps["preferredVersion"]["groupVersion"], "apps/v1");
    let resources = test_server.get("/apis/apps/v1").json();
    let scale = resources["resources"]
        .as_array()
        .unwrap()
        .iter()
        .find(|r| r["name"] == "deployments/scale");
    assert_eq!(scale.unwrap()["kind"], "Scale");
}

#[test]
fn openapi_documents_have_etags_and_two_encodings() {
    let test_server = ApiTestServer::shared();
    let v2 = test_server.get("/openapi/v2");
    assert_eq!(v2.json()["swagger"], "2.0");
    let tag = v2.header("etag");
    let again = test_server
        .request("GET", "/openapi/v2")
        .header("If-None-Match", &tag)
        .send();
    assert_eq!(again.code, 304);
    let binary = test_server
        .request("GET", "/openapi/v2")
        .header(
            "Accept",
            "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
        )
        .send();
    assert_eq!(
        binary.header("content-type"),
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    );
    assert!(binary.body.starts_with(b"\x0a\x032.0"));
    let spelled_as_in_responses = test_server
        .request("GET", "/openapi/v2")
        .header(
            "Accept",
            "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
        )
        .send();
    assert_eq!(spelled_as_in_responses.body, binary.body);
    let index = test_server.get("/openapi/v3").json();
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap();
    let document = test_server.get(url);
    assert!(document.header("cache-control").contains("immutable"));
    let patch = &document.json()["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]
        ["patch"];
    assert_eq!(
        patch["x-kubernetes-group-version-kind"]["kind"],
        "Deployment"
    );
    let wrong = test_server.get("/openapi/v3/apis/apps/v1?hash=0");
    assert_eq!((wrong.code, wrong.header("location").as_str()), (301, url));
    let none = test_server
        .request("GET", "/openapi/v2")
        .header("Accept", "text/html")
        .send();
    assert_eq!(none.code, 406);
}

#[test]
fn the_version_has_all_fields_of_kubernetes_and_no_kind() {
    let version = ApiTestServer::shared().get("/version").json();
    let fields: Vec<&str> = version.as_object().unwrap().keys().map(|k| &**k).collect();
    for field in [
        "major",
        "minor",
        "gitVersion",
        "gitCommit",
        "gitTreeState",
        "buildDate",
        "goVersion",
        "compiler",
        "platform",
    ] {
        assert!(version[field].is_string(), "{field}: {version}");
    }
    assert!(
        !fields.contains(&"kind") && !fields.contains(&"apiVersion"),
        "{version}"
    );
    let git_version = version["gitVersion"].as_str().unwrap();
    let numbers = git_version.strip_prefix('v').unwrap();
    let numbers = numbers.split('+').next().unwrap();
    let numbers: Vec<u32> = numbers.split('.').map(|n| n.parse().unwrap()).collect();
    assert_eq!(numbers[..2], [1, 36], "{git_version}");
}

#[test]
fn health_endpoints_allow_anonymous_requests() {
    let test_server = ApiTestServer::shared();
    for path in ["/healthz", "/livez", "/readyz", "/livez/ping"] {
        let reply = test_server
            .request("GET", path)
            .with_identity(&test_server.anonymous)
            .send();
        assert_eq!((reply.code, reply.text().as_str()), (200, "ok"), "{path}");
    }
    assert!(
        test_server
            .get("/readyz?verbose&exclude=etcd")
            .text()
            .contains("[+]etcd excluded: ok")
    );
    assert_eq!(
        test_server
            .request("GET", "/metrics")
            .with_identity(&test_server.anonymous)
            .send()
            .code,
        403
    );
    assert!(
        test_server
            .get("/metrics")
            .text()
            .contains("apiserver_request_total")
    );
    let version = test_server
        .request("GET", "/version")
        .with_identity(&test_server.anonymous)
        .send()
        .json();
    assert!(
        version["gitVersion"]
            .as_str()
            .unwrap()
            .starts_with("v1.36.0+")
    );
    let id = "11111111-2222-3333-4444-555555555555";
    let reply = test_server
        .request("GET", "/version")
        .header("Audit-Id", id)
        .send();
    assert_eq!(reply.header("audit-id"), id);
}

#[test]
fn lists_are_objects_tables_or_metadata() {
    let test_server = ApiTestServer::shared();
    test_server.create_namespace("forms");
    let path = "/api/v1/namespaces/forms/secrets";
    let created = test_server.post(
        path,
        &json!({"metadata": {"name": "s"}, "data": {"a": "YWJj\nZGVm\n"}}),
    );
    assert_eq!(
        created.json()["data"]["a"],
        "YWJjZGVm",
        "{}",
        created.text()
    );
    let accept = |kind: &str, path: &str| {
        test_server
            .request("GET", path)
            .header("Accept", kind)
            .send()
    };
    let list = accept("*/*", path).json();
    assert_eq!(
        (&list["kind"], &list["items"][0]["metadata"]["name"]),
        (&json!("SecretList"), &json!("s"))
    );

    let table = accept(TABLE, path).json();
    let names: Vec<&Value> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| &c["name"])
        .collect();
    assert_eq!(names, ["Name", "Type", "Data", "Age"]);
    let row = &table["rows"][0];
    assert_eq!(
        (&row["cells"][1], &row["cells"][2]),
        (&json!("Opaque"), &json!(1))
    );
    assert_eq!(row["object"]["kind"], "PartialObjectMetadata");
    assert!(table["metadata"]["resourceVersion"].is_string());
    let with_objects = accept(TABLE, &format!("{path}?includeObject=Object")).json();
    assert_eq!(with_objects["rows"][0]["object"]["type"], "Opaque");
    assert_eq!(
        accept(TABLE, &format!("{path}?includeObject=Some")).code,
        400
    );

    let partial = accept(PARTIAL, path).json();
    assert_eq!(partial["kind"], "PartialObjectMetadataList");
    assert_eq!(partial["items"][0]["kind"], "PartialObjectMetadata");
    assert!(partial["items"][0].get("data").is_none());

    for (kind, code) in [
        ("text/html", 406),
        ("application/cbor,application/json", 200),
        ("application/yaml", 200),
    ] {
        assert_eq!(accept(kind, path).code, code, "{kind}");
    }
    let policies = "/apis/policy.karmada.io/v1alpha1/propagationpolicies";
    assert_eq!(accept(PROTOBUF, policies).code, 406);
    assert_eq!(
        accept(&format!("{PROTOBUF},application/json"), policies).code,
        200
    );
}

#[test]
fn replies_may_be_protobuf() {
    let test_server = ApiTestServer::shared();
    test_server.create_namespace("replies");
    let path = "/api/v1/namespaces/replies/configmaps";
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
                     "metadata": {"name": "m", "labels": {"x": "y"}}});
    let stored = test_server.post(path, &map).json();
    let one = format!("{path}/m");
    let accept = |path: &str, types: &str| {
        let reply = test_server
            .request("GET", path)
            .header("Accept", types)
            .send();
        assert!(reply.body.starts_with(b"k8s\0"), "{}", reply.text());
        assert_eq!(reply.header("content-type"), PROTOBUF);
        reply
    };
    let object = accept(&one, &format!("{PROTOBUF},application/json"));
    // An object that was sent can be sent back: an equal update keeps the version.
    let reply = test_server
        .request("PUT", &one)
        .body(PROTOBUF, object.body)
        .send();
    assert_eq!(reply.code, 200, "{}", reply.text());
    assert_eq!(reply.json(), stored);

    let contains = |body: &[u8], text: &str| {
        let is_contained = body.windows(text.len()).any(|part| part == text.as_bytes());
        assert!(is_contained, "{text}: {:?}", String::from_utf8_lossy(body));
    };
    let list = accept(path, PROTOBUF).body;
    contains(&list, "ConfigMapList");
    let missing = accept(&format!("{path}/none"), PROTOBUF);
    assert_eq!(missing.code, 404);
    contains(&missing.body, "configmaps \"none\" not found");
    let partial = "as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    for path in [path, "/apis/policy.karmada.io/v1alpha1/propagationpolicies"] {
        let list = accept(
            path,
            &format!("{PROTOBUF};{partial},application/json;{partial}"),
        );
        contains(&list.body, "PartialObjectMetadataList");
    }
}

#[test]
fn watches_may_be_protobuf() {
    let test_server = ApiTestServer::shared();
    test_server.create_namespace("frames-of-protobuf");
    let path = "/api/v1/namespaces/frames-of-protobuf/configmaps";
    let map = json!({"metadata": {"name": "m"}, "data": {"key": "value"}});
    assert_eq!(test_server.post(path, &map).code, 201);
    let query = "watch=1&timeoutSeconds=5&allowWatchBookmarks=true&sendInitialEvents=true\
        &resourceVersionMatch=NotOlderThan&fieldSelector=metadata.name%3Dm";
    for (accept, content) in [
        (PROTOBUF.to_owned(), "value"),
        (
            format!("{PROTOBUF};as=PartialObjectMetadata;v=v1;g=meta.k8s.io"),
            "PartialObjectMetadata",
        ),
    ] {
        let mut stream = test_server
            .request("GET", &format!("{path}?{query}"))
            .header("Accept", &accept)
            .send_streaming();
        let kind = stream.header("content-type");
        assert_eq!(kind, Some(format!("{PROTOBUF};stream=watch")));
        let mut bytes = Vec::new();
        while let Some(chunk) = stream.next_chunk() {
            bytes.extend(chunk);
        }
        let mut frames = Vec::new();
        let mut rest = &bytes[..];
        while let Some((length, after)) = rest.split_at_checked(4) {
            let length = u32::from_be_bytes(length.try_into().unwrap());
            let (frame, after) = after.split_at(usize::try_from(length).unwrap());
            frames.push(String::from_utf8_lossy(frame).into_owned());
            rest = after;
        }
        assert!(rest.is_empty(), "{accept}");
        assert!(
            frames[0].contains("ADDED") && frames[0].contains(content),
            "{frames:?}"
        );
        let bookmark = &frames[1];
        assert!(
            bookmark.contains("BOOKMARK") && bookmark.contains("k8s.io/initial-events-end"),
            "{frames:?}"
        );
        assert!(
            frames.iter().all(|frame| frame.contains("k8s\0")),
            "{frames:?}"
        );
    }
}

/// Encodes a length-delimited protobuf field.
fn protobuf_field(number: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).unwrap();
    assert!(length < 128);
    [&[number << 3 | 2, length], content].concat()
}

#[test]
fn bodies_may_be_protobuf() {
    let test_server = ApiTestServer::shared();
    test_server.create_namespace("protobuf");
    let path = "/api/v1/namespaces/protobuf/configmaps";
    let entry = [protobuf_field(1, b"key"), protobuf_field(2, b"value")].concat();
    let object = [
        protobuf_field(1, &protobuf_field(1, b"typed")),
        protobuf_field(2, &entry),
    ]
    .concat();
    let kind = [protobuf_field(1, b"v1"), protobuf_field(2, b"ConfigMap")].concat();
    let body = [
        b"k8s\0".to_vec(),
        protobuf_field(1, &kind),
        protobuf_field(2, &object),
    ]
    .concat();
    let reply = test_server
        .request("POST", path)
        .header("Accept", "application/json")
        .body(PROTOBUF, body.clone())
        .send();
    assert_eq!(reply.code, 201, "{}", reply.text());
    assert_eq!(reply.json()["data"], json!({"key": "value"}));
    let policies = "/apis/policy.karmada.io/v1alpha1/namespaces/protobuf/propagationpolicies";
    assert_eq!(
        test_server
            .request("POST", policies)
            .body(PROTOBUF, body)
            .send()
            .code,
        415
    );
}

#[test]
fn patches_of_every_resource_are_validated_by_the_server() {
    let server = ApiTestServer::shared();
    let index = server.get("/openapi/v3").json();
    let mut patches = 0;
    for document in index["paths"].as_object().unwrap().values() {
        let document = server.get(document["serverRelativeURL"].as_str().unwrap());
        for (path, item) in document.json()["paths"].as_object().unwrap() {
            let patch = &item["patch"];
            if patch.is_null() || patch["x-kubernetes-action"] == "connect" {
                continue;
            }
            let parameters = patch["parameters"].as_array().unwrap();
            let is_field_validation =
                |p: &Value| p["name"] == "fieldValidation" && p["in"] == "query";
            assert!(parameters.iter().any(is_field_validation), "{path}");
            assert!(
                patch["x-kubernetes-group-version-kind"]["kind"].is_string(),
                "{path}"
            );
            patches += 1;
        }
    }
    assert!(patches > 50, "{patches}");
}

#[test]
fn every_response_has_an_audit_id_and_is_not_cached() {
    let server = ApiTestServer::shared();
    let mut ids = std::collections::BTreeSet::new();
    for path in [
        "/version",
        "/api/v1/namespaces",
        "/api/v1/namespaces/none",
        "/none",
    ] {
        let reply = server.get(path);
        let id = reply.header("audit-id");
        assert!(uuid::Uuid::parse_str(&id).is_ok(), "{path}: {id}");
        assert!(ids.insert(id), "{path}");
        assert_eq!(reply.header("cache-control"), "no-cache, private", "{path}");
    }
    let echoed = server
        .request("GET", "/version")
        .header("Audit-ID", "of-the-client")
        .send();
    assert_eq!(echoed.header("audit-id"), "of-the-client");
}

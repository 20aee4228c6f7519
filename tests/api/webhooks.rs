//! Admission webhooks of a standalone server, called over HTTPS.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use harness::raw_http::RawHttpResponse;
use serde_json::{Value, json};

use crate::api::webhook_fixture::{CONFIGURATIONS, WebhookTest, config_map, retry_until};

const MAPS: &str = "/api/v1/namespaces/hooked/configmaps";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_change_and_deny_objects() {
    let test = WebhookTest::start().await;
    let server = &test.server;
    let mutating = "mutatingwebhookconfigurations";
    let created = test.register(mutating, "label", &["configmaps"], json!({}));
    assert_eq!(created.code, 201, "{}", created.text());
    let webhook = &created.json()["webhooks"][0];
    assert_eq!(webhook["failurePolicy"], "Fail");
    assert_eq!(webhook["reinvocationPolicy"], "Never");
    assert_eq!(webhook["objectSelector"], json!({}));
    assert_eq!(
        (&webhook["timeoutSeconds"], &webhook["rules"][0]["scope"]),
        (&json!(10), &json!("*"))
    );

    let mut n = 0;
    let create = || {
        n += 1;
        server.post(MAPS, &config_map(&format!("a{n}")))
    };
    let labelled = retry_until(create, |r| r.json()["metadata"]["labels"]["by"] == "hook").await;
    assert_eq!(labelled.code, 201);
    assert_eq!(labelled.header("warning"), "299 - \"labelled\"");
    let name = &labelled.json()["metadata"]["name"];
    let request = test.recorded(|r| r["name"] == *name);
    assert_eq!(request["operation"], "CREATE");
    assert_eq!(
        request["kind"],
        json!({"group": "", "version": "v1", "kind": "ConfigMap"})
    );
    assert_eq!(request["namespace"], "hooked");
    assert_eq!(request["userInfo"]["username"], "kubernetes-admin");
    assert_eq!(request["oldObject"], Value::Null);
    assert_eq!(request["options"]["kind"], "CreateOptions");
    // Objects in other namespaces are not selected.
    let other = server.post("/api/v1/namespaces/default/configmaps", &config_map("a"));
    assert_eq!(other.json()["metadata"]["labels"], Value::Null);

    test.validate_with("deny", &["*"], json!({}));
    let denied = retry_until(
        || {
            server
                .request("POST", &format!("{MAPS}?dryRun=All"))
                .json(&config_map("bad"))
                .send()
        },
        |r| r.code != 201,
    )
    .await;
    assert_eq!(denied.code, 403, "{}", denied.text());
    let message = "admission webhook \"deny.example.org\" denied the request: it is bad";
    assert_eq!(denied.json()["message"], message);
    assert_eq!(test.recorded(|r| r["name"] == "bad")["dryRun"], true);

    let table = server
        .request(
            "GET",
            &format!("{CONFIGURATIONS}/validatingwebhookconfigurations"),
        )
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .send()
        .json();
    assert_eq!(table["rows"][0]["cells"][1], 1, "{table}");
    // Gone from one request to the next that sees the configuration deleted.
    test.delete_validating("deny");
    retry_until(|| server.post(MAPS, &config_map("bad")), |r| r.code == 201).await;
    let metrics = server.get("/metrics").text();
    for series in [
        "apiserver_admission_webhook_request_total{code=\"403\",name=\"deny.example.org\",operation=\"CREATE\",rejected=\"true\",type=\"validating\"} ",
        "apiserver_admission_webhook_rejection_count{error_type=\"no_error\",name=\"deny.example.org\",operation=\"CREATE\",rejection_code=\"403\",type=\"validating\"} ",
        "apiserver_admission_webhook_request_total{code=\"200\",name=\"label.example.org\",operation=\"CREATE\",rejected=\"false\",type=\"admit\"}",
        "apiserver_admission_webhook_admission_duration_seconds_count{name=\"label.example.org\",operation=\"CREATE\",rejected=\"false\",type=\"admit\"}",
    ] {
        assert!(metrics.contains(series), "no {series}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_are_asked_about_deletions() {
    let test = WebhookTest::start().await;
    let server = &test.server;
    assert_eq!(server.post(MAPS, &config_map("a")).code, 201);
    test.validate_with(
        "deny-delete",
        &["configmaps"],
        json!({"rules": [{"operations": ["DELETE"],
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]}),
    );
    let one = format!("{MAPS}/a?gracePeriodSeconds=7&propagationPolicy=Foreground&dryRun=All");
    let denied = retry_until(|| server.request("DELETE", &one).send(), |r| r.code != 200).await;
    assert_eq!(denied.code, 403, "{}", denied.text());
    let request = test.recorded(|r| r["operation"] == "DELETE");
    assert_eq!(request["object"], Value::Null);
    assert_eq!(request["oldObject"]["metadata"]["name"], "a");
    assert_eq!(
        request["options"],
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions", "dryRun": ["All"],
               "gracePeriodSeconds": 7, "propagationPolicy": "Foreground"})
    );
    let denied = server.request("DELETE", MAPS).send();
    assert_eq!(denied.code, 403, "{}", denied.text());
    test.delete_validating("deny-delete");
    test.validate_with("see", &["configmaps"], json!({}));
    let warned = retry_until(
        || {
            server
                .request("DELETE", &format!("{MAPS}/a?dryRun=All"))
                .send()
        },
        |r| r.code == 200 && !r.header("warning").is_empty(),
    )
    .await;
    assert_eq!(warned.header("warning"), "299 - \"seen\"");
    for name in ["b", "c"] {
        assert_eq!(server.post(MAPS, &config_map(name)).code, 201);
    }
    let deleted = server.request("DELETE", MAPS).send();
    assert_eq!(deleted.code, 200, "{}", deleted.text());
    for name in ["a", "b", "c"] {
        let request = test.recorded(|r| r["operation"] == "DELETE" && r["name"] == name);
        assert_eq!(request["dryRun"], false);
        assert_eq!(request["object"], Value::Null);
        assert_eq!(request["oldObject"]["metadata"]["name"], name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configurations_are_not_matched_and_selectors_see_both_objects() {
    let test = WebhookTest::start().await;
    let server = &test.server;
    let guarded = json!({"metadata": {"name": "guarded", "labels": {"guarded": "yes"}}});
    assert_eq!(server.post(MAPS, &guarded).code, 201);
    test.validate_with(
        "deny-all",
        &["*"],
        json!({"namespaceSelector": {}, "objectSelector": {"matchExpressions":
            [{"key": "guarded", "operator": "Exists"}]}}),
    );
    let other = json!({"metadata": {"name": "other", "labels": {"guarded": "yes"}}});
    let denied = |reply: &RawHttpResponse| reply.text().contains("denied the request");
    let dry_run = format!("{MAPS}?dryRun=All");
    retry_until(|| server.post(&dry_run, &other), denied).await;
    let merge = |path: &str, patch: Value| {
        let request = server.request("PATCH", path);
        let body = patch.to_string();
        request.body("application/merge-patch+json", body).send()
    };
    let path = format!("{MAPS}/guarded");
    let reply = merge(&path, json!({"metadata": {"labels": null}}));
    assert!(denied(&reply), "the old object matches: {}", reply.text());
    assert_eq!(server.post(MAPS, &config_map("free")).code, 201);
    let reply = merge(
        &format!("{MAPS}/free"),
        json!({"metadata": {"labels": {"guarded": "no"}}}),
    );
    assert!(denied(&reply), "the new object matches: {}", reply.text());
    let webhooks = format!("{CONFIGURATIONS}/validatingwebhookconfigurations/deny-all");
    let reply = merge(
        &webhooks,
        json!({"metadata": {"labels": {"guarded": "yes"}}}),
    );
    assert_eq!(reply.code, 200, "{}", reply.text());
    test.delete_validating("deny-all");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_are_called_for_subresources() {
    let test = WebhookTest::start().await;
    let server = &test.server;
    let deployments = "/apis/apps/v1/namespaces/hooked/deployments";
    let template = json!({"metadata": {"labels": {"a": "b"}},
                          "spec": {"containers": [{"name": "c", "image": "x"}]}});
    let deployment = json!({"metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    assert_eq!(server.post(deployments, &deployment).code, 201);
    let pod = json!({"metadata": {"name": "p"}, "spec": template["spec"]});
    assert_eq!(
        server.post("/api/v1/namespaces/hooked/pods", &pod).code,
        201
    );
    test.validate_with("see", &["*/*"], json!({}));
    let scale = || {
        server
            .request("PATCH", &format!("{deployments}/d/scale"))
            .body(
                "application/merge-patch+json",
                json!({"spec": {"replicas": 2}}).to_string(),
            )
            .send()
    };
    retry_until(scale, |r| !r.header("warning").is_empty()).await;
    let request = test.recorded(|r| r["subResource"] == "scale");
    assert_eq!(
        request["kind"],
        json!({"group": "autoscaling", "version": "v1", "kind": "Scale"})
    );
    assert_eq!(request["resource"]["resource"], "deployments");
    assert_eq!(request["object"]["kind"], "Scale");

    let created = test.register(
        "mutatingwebhookconfigurations",
        "replicas",
        &["deployments/scale"],
        json!({}),
    );
    assert_eq!(created.code, 201, "{}", created.text());
    retry_until(scale, |r| r.json()["spec"]["replicas"] == 3).await;

    let account = "/api/v1/namespaces/hooked/serviceaccounts/default";
    retry_until(|| server.get(account), |r| r.code == 200).await;
    for (path, body, subresource, kind, operation) in [
        (
            "/api/v1/namespaces/hooked/pods/p/eviction",
            json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}),
            "eviction",
            "Eviction",
            "CREATE",
        ),
        (
            &format!("{account}/token"),
            json!({"spec": {"audiences": []}}),
            "token",
            "TokenRequest",
            "CREATE",
        ),
    ] {
        let reply = server.post(path, &body);
        assert_eq!(reply.code, 201, "{}", reply.text());
        let request = test.recorded(|r| r["subResource"] == subresource);
        assert_eq!(
            (&request["kind"]["kind"], &request["operation"]),
            (&json!(kind), &json!(operation))
        );
        assert_eq!(request["object"]["kind"], kind);
    }
    // Nothing listens behind this cluster; the webhook is asked before the connection.
    let proxied = server.get("/apis/cluster.karmada.io/v1alpha1/clusters/none/proxy/api");
    assert_eq!(proxied.code, 404, "{}", proxied.text());
    let request = test.recorded(|r| r["operation"] == "CONNECT");
    assert_eq!(request["object"]["path"], "/api");
    assert_eq!(request["options"], Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_of_webhooks_are_reached_by_their_endpoints() {
    let test = WebhookTest::start().await;
    let server = &test.server;
    let service =
        json!({"metadata": {"name": "hook"}, "spec": {"ports": [{"name": "https", "port": 443}]}});
    assert_eq!(
        server
            .post("/api/v1/namespaces/hooked/services", &service)
            .code,
        201
    );
    let ca = STANDARD.encode(&test.webhooks.ca_pem);
    let config = json!({"clientConfig": {"caBundle": ca,
        "service": {"namespace": "hooked", "name": "hook", "path": "/deny"}}});
    test.validate_with("deny", &["configmaps"], config);
    let failed = retry_until(
        || {
            server
                .request("POST", &format!("{MAPS}?dryRun=All"))
                .json(&config_map("a"))
                .send()
        },
        |r| r.code != 201,
    )
    .await;
    assert_eq!(failed.code, 500);
    let message = failed.json()["message"].as_str().unwrap().to_owned();
    let expected = "Internal error occurred: failed calling webhook \"deny.example.org\": failed to call webhook: no endpoints available for service \"hooked/hook\"";
    assert!(message.starts_with(expected), "{message}");

    let Some(address) = harness::port::endpoint_address() else {
        return harness::tools::skip("an address that is not loopback");
    };
    let slice = json!({"metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}},
        "addressType": "IPv4", "endpoints": [{"addresses": [address]}],
        "ports": [{"name": "https", "port": test.webhooks.address.port()}]});
    let slices = "/apis/discovery.k8s.io/v1/namespaces/hooked/endpointslices";
    let reply = server.post(slices, &slice);
    assert_eq!(reply.code, 201, "{}", reply.text());
    retry_until(|| server.post(MAPS, &config_map("a")), |r| r.code == 201).await;
    assert_eq!(server.post(MAPS, &config_map("bad")).code, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unusable_configurations_do_no_harm() {
    let test = WebhookTest::start().await;
    let server = &test.server;
    let down = format!("https://127.0.0.1:{}/", harness::port::free_port());
    test.validate_with(
        "down",
        &["configmaps"],
        json!({"clientConfig": {"url": down}}),
    );
    let failed = retry_until(
        || {
            let path = format!("{MAPS}?dryRun=All");
            server.request("POST", &path).json(&config_map("a")).send()
        },
        |r| r.code != 201,
    )
    .await;
    assert_eq!(failed.code, 500, "{}", failed.text());
    let path = format!("{CONFIGURATIONS}/validatingwebhookconfigurations/down");
    let ignore = json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]);
    let patched = server
        .request("PATCH", &path)
        .body("application/json-patch+json", ignore.to_string())
        .send();
    assert_eq!(patched.code, 200, "{}", patched.text());
    retry_until(|| server.post(MAPS, &config_map("a")), |r| r.code == 201).await;

    // A webhook that denies everything can be removed: it is not asked about itself.
    test.validate_with("deny-all", &["*/*"], json!({"namespaceSelector": {}}));
    retry_until(
        || server.post("/api/v1/namespaces", &config_map("x")),
        |r| r.code == 403,
    )
    .await;
    let namespace = test.recorded(|r| r["resource"]["resource"] == "namespaces");
    assert_eq!(namespace["namespace"], "x");
    test.delete_validating("deny-all");
    retry_until(
        || server.post("/api/v1/namespaces", &config_map("y")),
        |r| r.code == 201,
    )
    .await;
}

/// B6: webhooks see managers. What they change is owned by nobody, unless they say who owns it;
/// managers that cannot be read are undone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_see_and_change_managers() {
    let test = WebhookTest::start().await;
    let server = &test.server;
    let mutating = "mutatingwebhookconfigurations";
    let reply = test.register(mutating, "managers", &["configmaps"], json!({}));
    assert_eq!(reply.code, 201, "{}", reply.text());
    let body = |name: &str, value: &str| json!({"metadata": {"name": name}, "data": {"k": value}});
    let mut n = 0;
    let create = || {
        n += 1;
        server.post(
            &format!("{MAPS}?fieldManager=m"),
            &body(&format!("a{n}"), "v"),
        )
    };
    let created = retry_until(create, |r| r.json()["data"]["hooked"] == "v").await;
    let owners = |object: &Value| -> Vec<String> {
        let entries = object["metadata"]["managedFields"]
            .as_array()
            .unwrap()
            .iter();
        entries
            .map(|entry| entry["manager"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(owners(&created.json()), ["hook", "m"]);
    let name = created.json()["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let recorded = test.recorded(|r| r["name"] == name.as_str());
    let shown = recorded["object"]["metadata"]["managedFields"]
        .as_array()
        .unwrap();
    assert_eq!(shown.len(), 1);
    assert_eq!(shown[0]["fieldsV1"]["f:data"]["f:k"], json!({}));

    let merge = |name: &str, value: &str| {
        let request = server.request("PATCH", &format!("{MAPS}/{name}?fieldManager=m"));
        let patch = json!({"data": {"k": value}}).to_string();
        request.body("application/merge-patch+json", patch).send()
    };
    let changed = merge(&name, "w");
    assert_eq!(changed.code, 200, "{}", changed.text());
    let recorded = test.recorded(|r| r["operation"] == "UPDATE");
    assert_eq!(owners(&recorded["oldObject"]), ["hook", "m"]);

    let request = server.request("POST", &format!("{MAPS}?fieldManager=m"));
    let created = request.json(&body("malformed", "v")).send();
    assert_eq!(created.code, 201, "{}", created.text());
    let warning = created.header("warning");
    assert!(
        warning.contains("was in an invalid state after admission"),
        "{warning}"
    );
    let object = created.json();
    assert_eq!(owners(&object), ["m"]);
    assert_eq!(object["data"]["hooked"], "v");
    assert_eq!(
        object["metadata"]["managedFields"][0]["fieldsV1"]["f:data"].get("f:hooked"),
        None
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn match_conditions_narrow_webhooks() {
    let test = WebhookTest::start().await;
    let server = &test.server;
    let conditions = json!({"matchConditions": [
        {"name": "named", "expression": "object.metadata.name.startsWith('a')"},
        {"name": "by-admin", "expression": "request.userInfo.username != 'jane' && authorizer.requestResource.check('create').allowed()"},
    ]});
    test.validate_with("deny-all", &["configmaps"], conditions);
    retry_until(|| server.post(MAPS, &config_map("a")), |r| r.code == 403).await;
    let reply = server.post(MAPS, &config_map("b"));
    assert_eq!(reply.code, 201, "{}", reply.text());
    test.delete_validating("deny-all");

    // A condition that fails is subject to the failure policy.
    let failing = |policy: &str| {
        json!({"failurePolicy": policy,
            "matchConditions": [{"name": "fails", "expression": "object.data.x == 'y'"}]})
    };
    test.validate_with("deny", &["configmaps"], failing("Fail"));
    let failed = retry_until(|| server.post(MAPS, &config_map("c")), |r| r.code == 403).await;
    let message = "configmaps \"c\" is forbidden: expression 'object.data.x == 'y'' resulted in error: no such key: data";
    assert_eq!(failed.json()["message"], message);
    test.delete_validating("deny");
    test.validate_with("deny", &["configmaps"], failing("Ignore"));
    retry_until(|| server.post(MAPS, &config_map("bad")), |r| r.code == 201).await;

    let wrong = json!({"matchConditions": [{"name": "a", "expression": "object.x +"}]});
    let rejection = test.register("validatingwebhookconfigurations", "wrong", &["*"], wrong);
    assert_eq!(rejection.code, 422, "{}", rejection.text());
    let status = rejection.json();
    let message = status["message"].as_str().unwrap();
    let expected = "webhooks[0].matchConditions[0].expression: Invalid value: \"object.x +\": compilation failed: ERROR: <input>:1:11: Syntax error";
    assert!(message.contains(expected), "{message}");
}

/// A configuration acts without a restart, and from the first request after one: the server is not
/// ready before it has read them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configuration_acts_at_once_and_from_the_start() {
    let WebhookTest {
        server, webhooks, ..
    } = {
        let test = WebhookTest::start().await;
        assert_eq!(test.server.post(MAPS, &config_map("a")).code, 201);
        test.validate_with("deny-all", &["configmaps"], json!({}));
        let path = format!("{MAPS}?dryRun=All");
        let server = &test.server;
        retry_until(
            || server.request("POST", &path).json(&config_map("b")).send(),
            |r| r.code == 403,
        )
        .await;
        test
    };
    let server = server.restart();
    let rejection = server.post(MAPS, &config_map("b"));
    assert_eq!(rejection.code, 403, "{}", rejection.text());
    drop(webhooks);
}

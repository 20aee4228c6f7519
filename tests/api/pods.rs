//! Pods of a standalone server: graceful deletion, eviction under PodDisruptionBudgets, Bindings;
//! and the classes that pods, claims and ingresses get.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::http_requests::wait_until;
use crate::api::test_server::ApiTestServer;

/// How long the status of a budget may take to be recalculated.
const TIMEOUT: Duration = Duration::from_secs(90);

fn create(server: &ApiTestServer, path: &str, body: &Value) -> Value {
    let reply = server.post(path, body);
    assert_eq!(reply.code, 201, "{path}: {}", reply.text());
    reply.json()
}

/// Creates a pod, on a node if it has a name, in a phase, and ready or not.
fn create_pod(server: &ApiTestServer, namespace: &str, pod: &Value, phase: &str, ready: bool) {
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let created = create(server, &pods, pod);
    let name = created["metadata"]["name"].as_str().unwrap();
    let ready = if ready { "True" } else { "False" };
    let status =
        json!({"status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}});
    let reply = server
        .request("PATCH", &format!("{pods}/{name}/status"))
        .body("application/merge-patch+json", status.to_string())
        .send();
    assert_eq!(reply.code, 200, "{}", reply.text());
}

fn pod(name: &str, app: &str, node: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": app}},
           "spec": {"nodeName": node, "terminationGracePeriodSeconds": 30,
                    "containers": [{"name": "c", "image": "x:1"}]}})
}

fn start_with_node(namespace: &str) -> ApiTestServer {
    let server = ApiTestServer::start();
    server.create_namespace(namespace);
    create(
        &server,
        "/api/v1/nodes",
        &json!({"metadata": {"name": "n1"}}),
    );
    server
}

fn delete(server: &ApiTestServer, path: &str, options: &Value) -> (u16, Value) {
    let reply = server.request("DELETE", path).json(options).send();
    (reply.code, reply.json())
}

async fn wait_for(server: &ApiTestServer, path: &str, condition: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let object = server.get(path).json();
        if condition(&object) {
            return object;
        }
        assert!(start.elapsed() < TIMEOUT, "{path}: {object}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn pods_of_a_node_are_deleted_after_their_grace_period() {
    let server = start_with_node("grace");
    let pods = "/api/v1/namespaces/grace/pods";
    let grace = |object: &Value| object["metadata"]["deletionGracePeriodSeconds"].clone();
    create_pod(&server, "grace", &pod("p", "a", "n1"), "Running", true);
    let path = format!("{pods}/p");

    let (code, dry) = delete(&server, &path, &json!({"dryRun": ["All"]}));
    assert_eq!((code, grace(&dry)), (200, json!(30)));
    assert_eq!(grace(&server.get(&path).json()), Value::Null);

    let (code, first) = delete(&server, &path, &json!({}));
    assert_eq!((code, grace(&first)), (200, json!(30)), "{first}");
    // A pending deletion can be shortened, not extended.
    let time = |object: &Value| object["metadata"]["deletionTimestamp"].clone();
    let (_, same) = delete(&server, &path, &json!({"gracePeriodSeconds": 60}));
    assert_eq!((grace(&same), time(&same)), (json!(30), time(&first)));
    let (_, shorter) = delete(&server, &path, &json!({"gracePeriodSeconds": 10}));
    assert_eq!(grace(&shorter), 10);
    assert!(time(&shorter).as_str() < time(&first).as_str(), "{shorter}");
    // A status may still be written, and does not delete the pod.
    let status = json!({"status": {"message": "ending"}}).to_string();
    let reply = server
        .request("PATCH", &format!("{path}/status"))
        .body("application/merge-patch+json", status)
        .send();
    assert_eq!(reply.code, 200, "{}", reply.text());
    assert_eq!(grace(&server.get(&path).json()), 10);
    let (code, last) = delete(&server, &path, &json!({"gracePeriodSeconds": 0}));
    assert_eq!((code, grace(&last)), (200, json!(0)), "{last}");
    assert_eq!(server.get(&path).code, 404);

    for (name, node, phase, options) in [
        ("unscheduled", "", "Pending", json!({})),
        ("finished", "n1", "Succeeded", json!({})),
        ("forced", "n1", "Running", json!({"gracePeriodSeconds": 0})),
        ("node-is-gone", "n0", "Running", json!({})),
    ] {
        create_pod(&server, "grace", &pod(name, "a", node), phase, false);
        let path = format!("{pods}/{name}");
        let (code, reply) = delete(&server, &path, &options);
        assert_eq!(code, 200, "{name}: {reply}");
        assert_eq!(server.get(&path).code, 404, "{name}");
    }
}

#[tokio::test]
async fn a_namespace_waits_for_its_pods() {
    let server = start_with_node("waiting");
    let path = "/api/v1/namespaces/waiting/pods/p";
    create_pod(&server, "waiting", &pod("p", "a", "n1"), "Running", true);
    let (code, _) = delete(&server, "/api/v1/namespaces/waiting", &json!({}));
    assert_eq!(code, 200);
    let deleting = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
    wait_for(&server, path, deleting).await;
    assert_eq!(server.get("/api/v1/namespaces/waiting").code, 200);
    // The kubelet would do the same.
    let (code, _) = delete(&server, path, &json!({"gracePeriodSeconds": 0}));
    assert_eq!(code, 200);
    wait_for(&server, "/api/v1/namespaces/waiting", |ns| {
        ns["code"] == 404
    })
    .await;
}

fn evict(server: &ApiTestServer, pod: &str, more: &Value) -> (u16, Value, String) {
    let mut body =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}});
    if let Some(more) = more.as_object() {
        body.as_object_mut().unwrap().extend(more.clone());
    }
    let path = format!("/api/v1/namespaces/evict/pods/{pod}/eviction");
    let reply = server.post(&path, &body);
    (reply.code, reply.json(), reply.header("retry-after"))
}

const BUDGETS: &str = "/apis/policy/v1/namespaces/evict/poddisruptionbudgets";

async fn create_budget(server: &ApiTestServer, name: &str, mut spec: Value, counts: [i64; 4]) {
    spec["selector"] = json!({"matchLabels": {"app": name}});
    create(
        server,
        BUDGETS,
        &json!({"metadata": {"name": name}, "spec": spec}),
    );
    wait_for_counts(server, name, counts).await;
}

/// Waits for `expectedPods`, `desiredHealthy`, `currentHealthy` and `disruptionsAllowed`.
async fn wait_for_counts(server: &ApiTestServer, name: &str, counts: [i64; 4]) {
    wait_for(server, &format!("{BUDGETS}/{name}"), |budget| {
        let status = &budget["status"];
        let fields = [
            "expectedPods",
            "desiredHealthy",
            "currentHealthy",
            "disruptionsAllowed",
        ];
        let actual = fields.map(|field| status[field].as_i64().unwrap_or(-1));
        actual == counts && status["observedGeneration"] == budget["metadata"]["generation"]
    })
    .await;
}

#[tokio::test]
async fn evictions_obey_disruption_budgets() {
    let server = start_with_node("evict");
    let exists = |pod: &str| {
        let stored = server
            .get(&format!("/api/v1/namespaces/evict/pods/{pod}"))
            .json();
        stored["metadata"]["deletionTimestamp"].is_null() && stored["kind"] == "Pod"
    };
    for name in ["a1", "a2", "a3"] {
        create_pod(&server, "evict", &pod(name, "a", "n1"), "Running", true);
    }
    create_budget(&server, "a", json!({"minAvailable": 2}), [3, 2, 3, 1]).await;

    // A dry run takes nothing.
    let dry = json!({"deleteOptions": {"dryRun": ["All"]}});
    for _ in 0..2 {
        assert_eq!(evict(&server, "a1", &dry).0, 201);
    }
    assert!(exists("a1"));
    let stale = json!({"deleteOptions": {"preconditions": {"uid": "another"}}});
    assert_eq!(evict(&server, "a1", &stale).0, 409);
    assert_eq!(
        evict(&server, "a1", &json!({"metadata": {"name": "a2"}})).0,
        400
    );
    assert_eq!(evict(&server, "none", &json!({})).0, 404);

    let (code, reply, _) = evict(&server, "a1", &json!({}));
    assert_eq!(
        (code, &reply["status"]),
        (201, &json!("Success")),
        "{reply}"
    );
    let evicted = server.get("/api/v1/namespaces/evict/pods/a1").json();
    assert_eq!(evicted["metadata"]["deletionGracePeriodSeconds"], 30);
    let target = evicted["status"]["conditions"].as_array().unwrap().iter();
    let target: Vec<&Value> = target.filter(|c| c["type"] == "DisruptionTarget").collect();
    assert_eq!(target[0]["reason"], "EvictionByEvictionAPI", "{evicted}");
    wait_for_counts(&server, "a", [3, 2, 2, 0]).await;

    let (code, rejection, retry_after) = evict(&server, "a2", &json!({}));
    assert_eq!((code, retry_after), (429, String::new()), "{rejection}");
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    assert_eq!(
        (&rejection["message"], &rejection["reason"]),
        (&json!(message), &json!("TooManyRequests"))
    );
    let cause = json!([{"reason": "DisruptionBudget",
                        "message": "The disruption budget a needs 2 healthy pods and has 2 currently"}]);
    assert_eq!(rejection["details"]["causes"], cause);
    assert!(exists("a2"));
    // A pod that is being deleted already is not counted again.
    let forced = json!({"deleteOptions": {"gracePeriodSeconds": 0}});
    assert_eq!(evict(&server, "a1", &forced).0, 201);
    assert_eq!(server.get("/api/v1/namespaces/evict/pods/a1").code, 404);
    wait_for_counts(&server, "a", [2, 2, 2, 0]).await;

    create(
        &server,
        BUDGETS,
        &json!({"metadata": {"name": "other"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "a"}}}}),
    );
    let (code, rejection, _) = evict(&server, "a2", &json!({}));
    assert_eq!(
        (code, &rejection["message"]),
        (
            500,
            &json!(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            )
        )
    );
}

#[tokio::test]
async fn pods_that_do_not_run_are_evicted_without_a_charge() {
    let server = start_with_node("evict");
    for (name, app, phase, ready) in [
        ("pending", "a", "Pending", false),
        ("failed", "a", "Failed", false),
        ("a1", "a", "Running", true),
        ("b1", "b", "Running", false),
        ("c1", "c", "Running", false),
        ("d1", "d", "Running", false),
        ("d2", "d", "Running", true),
    ] {
        create_pod(&server, "evict", &pod(name, app, "n1"), phase, ready);
    }
    create_budget(&server, "a", json!({"minAvailable": 1}), [3, 1, 1, 0]).await;
    for name in ["pending", "failed"] {
        let (code, reply, _) = evict(&server, name, &json!({}));
        assert_eq!(code, 201, "{name}: {reply}");
    }
    assert_eq!(evict(&server, "a1", &json!({})).0, 429);
    // A pod that is not ready needs the budget, unless enough others are healthy or the
    // policy says that it may always go.
    create_budget(&server, "b", json!({"minAvailable": 1}), [1, 1, 0, 0]).await;
    assert_eq!(evict(&server, "b1", &json!({})).0, 429);
    let always = json!({"minAvailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"});
    create_budget(&server, "c", always, [1, 1, 0, 0]).await;
    assert_eq!(evict(&server, "c1", &json!({})).0, 201);
    create_budget(&server, "d", json!({"minAvailable": 1}), [2, 1, 1, 0]).await;
    assert_eq!(evict(&server, "d1", &json!({})).0, 201);
    assert_eq!(evict(&server, "d2", &json!({})).0, 429);
}

fn owned(mut pod: Value, api_version: &str, kind: &str, owner: &Value) -> Value {
    let meta = &owner["metadata"];
    pod["metadata"]["ownerReferences"] = json!([{"apiVersion": api_version, "kind": kind,
        "name": meta["name"], "uid": meta["uid"], "controller": true}]);
    pod
}

#[tokio::test]
async fn percentages_are_of_the_replicas_of_controllers() {
    let server = start_with_node("evict");
    let template = json!({"metadata": {"labels": {"app": "a"}},
                          "spec": {"containers": [{"name": "c", "image": "x:1"}]}});
    let spec = |replicas: u32| json!({"replicas": replicas, "selector": {"matchLabels": {"app": "a"}}, "template": template});
    let apps = "/apis/apps/v1/namespaces/evict";
    let named =
        |name: &str, replicas: u32| json!({"metadata": {"name": name}, "spec": spec(replicas)});
    let deployment = create(&server, &format!("{apps}/deployments"), &named("d", 5));
    let set = owned(named("d-1", 2), "apps/v1", "Deployment", &deployment);
    let set = create(&server, &format!("{apps}/replicasets"), &set);
    for name in ["a1", "a2"] {
        let pod = owned(pod(name, "a", "n1"), "apps/v1", "ReplicaSet", &set);
        create_pod(&server, "evict", &pod, "Running", true);
    }
    create_budget(&server, "a", json!({"maxUnavailable": "70%"}), [5, 1, 2, 1]).await;
    assert_eq!(evict(&server, "a1", &json!({})).0, 201);
    wait_for_counts(&server, "a", [5, 1, 1, 0]).await;

    // An owner without replicas: nothing is allowed, and the condition says why.
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "x:1"}]}}}});
    let job = create(&server, "/apis/batch/v1/namespaces/evict/jobs", &job);
    let pod = owned(pod("j1", "j", "n1"), "batch/v1", "Job", &job);
    create_pod(&server, "evict", &pod, "Running", true);
    let budget = json!({"metadata": {"name": "j"}, "spec": {"minAvailable": "50%",
        "selector": {"matchLabels": {"app": "j"}}}});
    create(&server, BUDGETS, &budget);
    let failed = wait_for(&server, &format!("{BUDGETS}/j"), |budget| {
        budget["status"]["conditions"][0]["reason"] == "SyncFailed"
    })
    .await;
    let message = "jobs.batch does not implement the scale subresource";
    assert_eq!(failed["status"]["conditions"][0]["message"], message);
    assert_eq!(evict(&server, "j1", &json!({})).0, 429);
}

#[test]
fn a_binding_assigns_a_pod_to_a_node() {
    let server = start_with_node("bindings");
    let pods = "/api/v1/namespaces/bindings/pods";
    create(&server, pods, &pod("p", "a", ""));
    let binding =
        |name: &str| json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}});
    let path = "/api/v1/namespaces/bindings/bindings";
    let reply = create(&server, path, &binding("p"));
    assert_eq!(
        (&reply["kind"], &reply["status"]),
        (&json!("Status"), &json!("Success"))
    );
    let bound = server.get(&format!("{pods}/p")).json();
    assert_eq!(bound["spec"]["nodeName"], "n1");
    assert_eq!(server.post(path, &binding("p")).code, 409);
    assert_eq!(server.post(path, &binding("none")).code, 404);
    assert_eq!(server.get(path).code, 405);
}

#[test]
fn objects_get_the_default_classes() {
    // The whole server has these classes.
    let server = ApiTestServer::start();
    server.create_namespace("classes");
    let core = |resource: &str| format!("/api/v1/namespaces/classes/{resource}");
    let ingresses = "/apis/networking.k8s.io/v1/namespaces/classes/ingresses";
    let claim = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}})
    };
    let ingress = |name: &str| {
        json!({"metadata": {"name": name},
        "spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}})
    };
    let before = create(&server, &core("persistentvolumeclaims"), &claim("a"));
    assert_eq!(before["spec"]["storageClassName"], Value::Null);
    let pod_before = create(&server, &core("pods"), &pod("a", "a", ""));
    let spec = &pod_before["spec"];
    let actual = (
        &spec["priority"],
        &spec["preemptionPolicy"],
        &spec["priorityClassName"],
    );
    assert_eq!(
        actual,
        (&json!(0), &json!("PreemptLowerPriority"), &Value::Null)
    );

    let annotated = |annotation: &str| json!({"name": "fast", "annotations": {annotation: "true"}});
    for (path, body) in [
        (
            "/apis/storage.k8s.io/v1/storageclasses",
            json!({"metadata": annotated("storageclass.kubernetes.io/is-default-class"), "provisioner": "x.io/y"}),
        ),
        (
            "/apis/networking.k8s.io/v1/ingressclasses",
            json!({"metadata": annotated("ingressclass.kubernetes.io/is-default-class"), "spec": {"controller": "x.io/y"}}),
        ),
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            json!({"metadata": {"name": "usual"}, "value": 7, "globalDefault": true, "preemptionPolicy": "Never"}),
        ),
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            json!({"metadata": {"name": "high"}, "value": 100}),
        ),
    ] {
        create(&server, path, &body);
    }
    let classed = |name: &str, class: &str, more: Value| {
        let mut pod = pod(name, "a", "");
        pod["spec"]["priorityClassName"] = class.into();
        pod["spec"]
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        server.post(&core("pods"), &pod)
    };
    // The server reads classes from its caches, which have new ones soon.
    for (path, body, class) in [
        (
            core("persistentvolumeclaims"),
            claim("b"),
            "/spec/storageClassName",
        ),
        (ingresses.to_owned(), ingress("b"), "/spec/ingressClassName"),
        (core("pods"), pod("b", "a", ""), "/spec/priorityClassName"),
    ] {
        let path = format!("{path}?dryRun=All");
        wait_until(&path, || {
            let reply = server.post(&path, &body).json();
            reply
                .pointer(class)
                .is_some_and(|name| *name != "")
                .then_some(())
        });
    }
    let high = wait_until("the class high", || {
        Some(classed("c", "high", json!({}))).filter(|reply| reply.code == 201)
    });
    let claimed = create(&server, &core("persistentvolumeclaims"), &claim("b"));
    assert_eq!(claimed["spec"]["storageClassName"], "fast");
    let mut none = claim("c");
    none["spec"]["storageClassName"] = "".into();
    let claimed = create(&server, &core("persistentvolumeclaims"), &none);
    assert_eq!(claimed["spec"]["storageClassName"], "");
    let created = create(&server, ingresses, &ingress("b"));
    assert_eq!(created["spec"]["ingressClassName"], "fast");

    let usual = create(&server, &core("pods"), &pod("b", "a", ""));
    let spec = &usual["spec"];
    let actual = (
        &spec["priority"],
        &spec["preemptionPolicy"],
        &spec["priorityClassName"],
    );
    assert_eq!(actual, (&json!(7), &json!("Never"), &json!("usual")));
    // The classes of system pods exist from the start.
    let system = classed("s", "system-node-critical", json!({})).json();
    assert_eq!(system["spec"]["priority"], 2_000_001_000);
    let high = high.json();
    assert_eq!(
        (&high["spec"]["priority"], &high["spec"]["preemptionPolicy"]),
        (&json!(100), &json!("PreemptLowerPriority"))
    );
    for (class, more, detail) in [
        (
            "none",
            json!({}),
            "no PriorityClass with name none was found",
        ),
        (
            "high",
            json!({"priority": 1}),
            "the integer value of priority (1) must not be provided in pod spec; priority admission controller computed 100 from the given PriorityClass name",
        ),
    ] {
        let rejection = classed("d", class, more);
        assert_eq!(rejection.code, 403, "{}", rejection.text());
        let message = format!("pods \"d\" is forbidden: {detail}");
        assert_eq!(rejection.json()["message"], message);
    }
    // An update that omits the priority keeps it.
    let mut update = usual.clone();
    let fields = update["spec"].as_object_mut().unwrap();
    fields.remove("priority");
    fields.remove("preemptionPolicy");
    update["metadata"]["labels"] = json!({"changed": "yes"});
    let reply = server.request("PUT", &core("pods/b")).json(&update).send();
    assert_eq!(reply.code, 200, "{}", reply.text());
    assert_eq!(reply.json()["spec"]["priority"], 7);
}

//! Propagation and status of kinds other than Deployments.

use harness::kubectl::with_each_kubectl;
use serde_json::{Value, json};

use crate::flow::fleet::{FleetFixture, find_condition};
use crate::flow::objects::{
    BINDINGS, CLUSTER_BINDINGS, DAEMON_SETS, JOBS, PODS, POLICIES, SERVICES, STATEFUL_SETS,
    VOLUMES, cluster_scoped, config_map, divided_policy, gvr, pod_template, policy,
};

/// One object of each kind, and a field that must arrive in the members.
fn sample_objects(ns: &str) -> Vec<(Value, &'static str)> {
    let meta = json!({"name": "x", "namespace": ns});
    let selector = json!({"matchLabels": {"app": "x"}});
    vec![
        (
            json!({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"selector": {"app": "x"}, "ports": [{"port": 80}]}}),
            "/spec/ports/0/port",
        ),
        (config_map(ns, "x", "v"), "/data/k"),
        (
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "Opaque", "data": {"k": "dg=="}}),
            "/data/k",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta, "automountServiceAccountToken": false}),
            "/automountServiceAccountToken",
        ),
        (
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": {"replicas": 2, "serviceName": "x", "selector": selector, "template": pod_template("x")}}),
            "/spec/serviceName",
        ),
        (
            json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta, "spec": {"selector": selector, "template": pod_template("x")}}),
            "/spec/selector/matchLabels/app",
        ),
        (
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": meta, "spec": {"defaultBackend": {"service": {"name": "x", "port": {"number": 80}}}}}),
            "/spec/defaultBackend/service/name",
        ),
    ]
}

#[tokio::test]
async fn each_kind_is_propagated_and_its_status_aggregated() {
    let ns = "kinds";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let all = sample_objects(ns);
    let selectors: Vec<Value> = all
        .iter()
        .map(|(o, _)| crate::flow::objects::resource_selector(o))
        .collect();
    let mut everything = policy(ns, "everything", &all[0].0, &["member1", "member2"]);
    everything["spec"]["resourceSelectors"] = json!(selectors);
    control.create(everything).await;
    for (object, _) in &all {
        control.create(object.clone()).await;
    }
    for (object, field) in &all {
        for member in &fleet.members[..2] {
            member
                .wait_until(gvr(object), ns, "x", "as created", |o| {
                    o.pointer(field) == object.pointer(field)
                })
                .await;
        }
        let binding = format!("x-{}", object["kind"].as_str().unwrap().to_lowercase());
        control
            .wait_until(&BINDINGS, ns, &binding, "applied", |b| {
                find_condition(b, "FullyApplied")["status"] == "True"
            })
            .await;
    }
    control
        .wait_until(&STATEFUL_SETS, ns, "x", "aggregated", |s| {
            s["status"]["readyReplicas"] == 4 && s["status"]["replicas"] == 4
        })
        .await;
    control
        .wait_until(&DAEMON_SETS, ns, "x", "aggregated", |d| {
            d["status"]["numberReady"] == 6 && d["status"]["desiredNumberScheduled"] == 6
        })
        .await;

    // Each cluster allocates its own cluster IP.
    let template = control.get(&SERVICES, ns, "x").await.unwrap();
    let copy = fleet.members[0].get(&SERVICES, ns, "x").await.unwrap();
    assert!(
        copy["spec"]["clusterIP"].is_string(),
        "{template:#} {copy:#}"
    );
    control
        .merge_patch(
            &SERVICES,
            ns,
            "x",
            json!({"spec": {"ports": [{"port": 81}]}}),
        )
        .await;
    for member in &fleet.members[..2] {
        let changed = |s: &Value| s["spec"]["ports"][0]["port"] == 81;
        member
            .wait_until(&SERVICES, ns, "x", "changed", changed)
            .await;
    }
    control.get(&POLICIES, ns, "everything").await.unwrap();
}

/// `kubectl rollout status` waits for the observed generation.
// proves: NAT-aggregate-generation, NAT-statefulset-generation
#[tokio::test]
async fn every_edit_of_a_workload_is_eventually_observed() {
    let ns = "observed";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let meta = json!({"name": "x", "namespace": ns});
    let spec = |app: &str, replicas: Option<i64>| {
        let mut spec =
            json!({"selector": {"matchLabels": {"app": app}}, "template": pod_template(app)});
        if let Some(replicas) = replicas {
            spec["replicas"] = replicas.into();
        }
        spec
    };
    let mut stateful = spec("s", Some(2));
    stateful["serviceName"] = "x".into();
    let all = [
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec("d", Some(2))}),
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": stateful}),
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta, "spec": spec("n", None)}),
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": spec("r", Some(2))}),
    ];
    let selectors: Vec<Value> = all
        .iter()
        .map(crate::flow::objects::resource_selector)
        .collect();
    let mut everything = policy(ns, "everything", &all[0], &["member1", "member2"]);
    everything["spec"]["resourceSelectors"] = json!(selectors);
    control.create(everything).await;
    let observed = |o: &Value| {
        o["status"]["observedGeneration"].is_i64()
            && o["status"]["observedGeneration"] == o["metadata"]["generation"]
    };
    for object in &all {
        control.create(object.clone()).await;
    }
    for object in &all {
        let resource = gvr(object);
        control
            .wait_until(resource, ns, "x", "observed", observed)
            .await;
        let image = json!([{"name": "c", "image": "nginx:1.28"}]);
        let edit = json!({"spec": {"template": {"spec": {"containers": image}}}});
        let edited = control.merge_patch(resource, ns, "x", edit).await;
        let generation = edited["metadata"]["generation"].clone();
        assert_ne!(edited["status"]["observedGeneration"], generation);
        control
            .wait_until(resource, ns, "x", "observed again", observed)
            .await;
    }
    let (kubeconfig, folder) = (fleet.kubeconfig(), fleet.up.dir().to_owned());
    let ends = tokio::task::spawn_blocking(move || {
        with_each_kubectl(&kubeconfig, &folder, "rollout", |kubectl| {
            for kind in ["deployment", "statefulset", "daemonset"] {
                kubectl.output(&format!(
                    "rollout status {kind}/x -n observed --timeout 90s"
                ));
            }
        });
    });
    ends.await.unwrap();
}

// proves: WRK-job-completions, NAT-job-complete
#[tokio::test]
async fn completions_of_a_job_are_divided_and_it_completes() {
    let ns = "job";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let mut template = pod_template("work");
    template["spec"]["restartPolicy"] = json!("Never");
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work", "namespace": ns},
        "spec": {"parallelism": 4, "completions": 4, "template": template},
    });
    let weights = [("member1", 1), ("member2", 1)];
    control
        .create(divided_policy(ns, "work", &job, &weights))
        .await;
    control.create(job).await;
    for member in &fleet.members[..2] {
        member
            .wait_until(&JOBS, ns, "work", "2 of 4", |j| {
                j["spec"]["parallelism"] == 2 && j["spec"]["completions"] == 2
            })
            .await;
    }
    control
        .wait_until(&JOBS, ns, "work", "complete", |j| {
            j["status"]["succeeded"] == 4
                && find_condition(j, "Complete")["status"] == "True"
                && j["status"]["completionTime"].is_string()
        })
        .await;
}

/// Objects of kinds whose status the test writes into two members; the status that the
/// template must show, and the health in the first member.
fn status_samples(ns: &str) -> Vec<(Value, [Value; 2], Value, &'static str)> {
    let meta = json!({"name": "x", "namespace": ns});
    let resources = json!({"requests": {"storage": "1Gi"}});
    let mut template = pod_template("x");
    template["spec"]["restartPolicy"] = json!("Never");
    // The counts of the members' own controllers: they have none of the pods.
    let budget = json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 1, "expectedPods": 0});
    vec![
        (
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources}}),
            [json!({"phase": "Bound"}), json!({"phase": "Pending"})],
            json!({"phase": "Pending"}),
            "Healthy",
        ),
        (
            json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "none"}}}}),
            [budget.clone(), budget],
            json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 2, "expectedPods": 0}),
            "Unhealthy",
        ),
        (
            json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": meta,
                "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "none"}}}),
            [
                json!({"currentReplicas": 1, "desiredReplicas": 2}),
                json!({"currentReplicas": 2, "desiredReplicas": 2}),
            ],
            json!({"currentReplicas": 3, "desiredReplicas": 4}),
            "Healthy",
        ),
        (
            json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta, "spec": {"schedule": "0 0 1 1 *", "suspend": true,
                "jobTemplate": {"spec": {"template": template}}}}),
            [
                json!({"lastScheduleTime": "2026-01-01T00:00:00Z"}),
                json!({"lastScheduleTime": "2026-01-02T00:00:00Z"}),
            ],
            json!({"lastScheduleTime": "2026-01-02T00:00:00Z"}),
            "Healthy",
        ),
        (
            json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "flow-kinds-volume"},
                "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}, "storageClassName": "none"}}),
            [json!({"phase": "Available"}), json!({"phase": "Bound"})],
            json!({"phase": "Available"}),
            "Healthy",
        ),
    ]
}

#[tokio::test]
async fn statuses_of_many_kinds_are_aggregated() {
    let ns = "kinds-status";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let clusters = ["member1", "member2"];
    let mut totals = Vec::new();
    for (object, statuses, shown, health) in status_samples(ns) {
        let kind = object["kind"].as_str().unwrap().to_lowercase();
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("");
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let mut spread = policy(ns, &kind, &object, &clusters);
        let mut bindings = &BINDINGS;
        if namespace.is_empty() {
            spread = cluster_scoped(policy("", &name, &object, &clusters));
            bindings = &CLUSTER_BINDINGS;
        }
        control.create(spread).await;
        control.create(object.clone()).await;
        for (cluster, status) in clusters.iter().zip(statuses) {
            let member = fleet.member(cluster);
            member
                .wait_until_exists(gvr(&object), namespace, &name)
                .await;
            member.patch_status(&object, status).await;
        }
        control
            .wait_until(
                bindings,
                namespace,
                &format!("{name}-{kind}"),
                "reported",
                |b| {
                    let all = b["status"]["aggregatedStatus"].as_array();
                    all.is_some_and(|all| {
                        all.len() == 2 && all.iter().all(|i| i["status"].is_object())
                    }) && b["status"]["aggregatedStatus"][0]["health"] == health
                },
            )
            .await;
        let total = control
            .wait_until(gvr(&object), namespace, &name, "summed up", |o| {
                let mut status = o["status"].clone();
                if let Some(fields) = status.as_object_mut() {
                    fields.remove("conditions");
                }
                status == shown
            })
            .await;
        totals.push(total);
    }
    // The statuses do not change again.
    let last = config_map(ns, "last", "v");
    control
        .create(policy(ns, "last", &last, &["member1"]))
        .await;
    control.create(last).await;
    control
        .wait_until(&BINDINGS, ns, "last-configmap", "reported", |b| {
            b["status"]["aggregatedStatus"][0]["health"] == "Healthy"
        })
        .await;
    for total in totals {
        let text = |field: &str| total["metadata"][field].as_str().unwrap_or_default();
        let later = control.get(gvr(&total), text("namespace"), text("name"));
        assert_eq!(later.await.unwrap(), total);
    }
    control.delete(&VOLUMES, "", "flow-kinds-volume").await;
}

#[tokio::test]
async fn pod_runs_and_keeps_fields_of_its_member() {
    let ns = "kinds-pod";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let one = fleet.member("member1");
    let mut pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": ns}});
    pod["spec"] = pod_template("p")["spec"].clone();
    control
        .create(policy(ns, "p", &pod, &["member1", "member2"]))
        .await;
    control.create(pod).await;
    let running = one
        .wait_until(&PODS, ns, "p", "running", |p| {
            p["status"]["phase"] == "Running"
        })
        .await;
    let node = running["spec"]["nodeName"].as_str().unwrap();
    control
        .wait_until(&PODS, ns, "p", "running in both", |p| {
            p["status"]["phase"] == "Running"
                && p["status"]["containerStatuses"]
                    .as_array()
                    .is_some_and(|c| c.len() == 2)
        })
        .await;
    control
        .wait_until(&BINDINGS, ns, "p-pod", "healthy", |b| {
            let all = b["status"]["aggregatedStatus"].as_array();
            all.is_some_and(|all| all.len() == 2 && all.iter().all(|i| i["health"] == "Healthy"))
        })
        .await;
    control
        .merge_patch(&PODS, ns, "p", json!({"metadata": {"labels": {"a": "b"}}}))
        .await;
    let labelled = one
        .wait_until(&PODS, ns, "p", "labelled", |p| {
            p["metadata"]["labels"]["a"] == "b"
        })
        .await;
    assert_eq!(labelled["spec"]["nodeName"], node);
    assert_eq!(labelled["metadata"]["uid"], running["metadata"]["uid"]);
}

//! Output of `kubectl`: tables, documents, `describe`, `explain`, watches, events.

use crate::kubectl::{ok, refused, with, with_each};

#[test]
fn discovery_commands() {
    with_each("discover", |kubectl| {
        kubectl.run(&[
            ok("version", &["v1.36"]),
            ok(
                "api-versions",
                &[
                    "apps/v1",
                    "policy.karmada.io/v1alpha1",
                    "work.karmada.io/v1alpha2",
                    "v1",
                ],
            ),
            ok(
                "api-resources",
                &[
                    "NAME SHORTNAMES APIVERSION NAMESPACED KIND",
                    "deployments deploy apps/v1 true Deployment",
                    "clusters cluster.karmada.io/v1alpha1 false Cluster",
                    "propagationpolicies pp policy.karmada.io/v1alpha1 true PropagationPolicy",
                    "resourcebindings rb work.karmada.io/v1alpha2 true ResourceBinding",
                    "works wk work.karmada.io/v1alpha1 true Work",
                ],
            ),
            ok(
                "api-resources --namespaced=false --api-group=rbac.authorization.k8s.io -o name",
                &["clusterroles.rbac", "!pods"],
            ),
            ok("cluster-info", &["Kubernetes control plane"]),
            ok(
                "get --raw /readyz?verbose",
                &["[+]ping ok", "readyz check passed"],
            ),
            refused(
                "get nothing",
                &[r#"error: the server doesn't have a resource type "nothing""#],
            ),
        ]);
    });
}

#[test]
fn get_and_describe() {
    with_each("show", |kubectl| {
        kubectl.run(&[
            ok("create deployment web --image=nginx:1 --replicas=2", &[]),
            ok("create deployment app --image=nginx:1", &[]),
            ok("create service clusterip web --tcp=80:8080", &[]),
            ok("run alone --image=nginx", &[]),
            ok(
                "get deploy web -o wide",
                &[
                    "NAME READY UP-TO-DATE AVAILABLE AGE CONTAINERS IMAGES SELECTOR",
                    "nginx nginx:1 app=web",
                ],
            ),
            ok(
                "get pods -o wide",
                &[
                    "NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES",
                    "alone 0/1 Pending 0",
                ],
            ),
            ok(
                "get deploy -o name",
                &["deployment.apps/app deployment.apps/web"],
            ),
            ok(
                "get deploy web -o json",
                &[r#""kind": "Deployment""#, r#""status": {}"#],
            ),
            ok(
                "get deploy web -o yaml",
                &[
                    "maxSurge: 25%",
                    "progressDeadlineSeconds: 600",
                    "terminationGracePeriodSeconds: 30",
                ],
            ),
            ok(
                "get deploy -o custom-columns=N:.metadata.name,R:.spec.replicas",
                &["N R app 1 web 2"],
            ),
            ok(
                "get deploy --sort-by=.spec.replicas",
                &["app 0/1", "web 0/2"],
            ),
            ok("get deploy --chunk-size=1", &["app 0/1", "web 0/2"]),
            ok(
                "get deploy,svc -A",
                &["NAMESPACE NAME READY", "NS deployment.apps/web"],
            ),
            ok("get pods --field-selector=status.phase=Pending", &["alone"]),
            ok(
                "get pods --field-selector=status.phase!=Pending",
                &["No resources found"],
            ),
            refused(
                "get pods --field-selector=spec.foo=x",
                &["field label not supported: spec.foo"],
            ),
            refused(
                "get pods -l 'a in (b'",
                &[
                    "unable to parse requirement: found '', expected: ',' or ')'",
                    "!unable to parse requirement: unable",
                ],
            ),
            refused(
                "get deploy none",
                &[r#"Error from server (NotFound): deployments.apps "none" not found"#],
            ),
            ok(
                "describe deploy web",
                &[
                    "StrategyType: RollingUpdate",
                    "Replicas: 2 desired | 0 updated | 0 total",
                    "Events: <none>",
                ],
            ),
            ok(
                "describe svc web",
                &["TargetPort: 8080/TCP", "Session Affinity: None"],
            ),
            ok(
                "describe pod alone",
                &["Status: Pending", "QoS Class: BestEffort"],
            ),
            ok("describe namespace NS", &["Status: Active"]),
            ok("rollout history deploy/web", &["deployment.apps/web"]),
            refused(
                "rollout status deploy/web --timeout=1s",
                &["timed out waiting for the condition"],
            ),
            refused("logs alone2", &[r#"pods "alone2" not found"#]),
        ]);
    });
}

#[test]
fn explain() {
    with_each("explain", |kubectl| {
        kubectl.run(&[
            ok("explain deploy.spec.strategy", &["rollingUpdate", "type"]),
            ok(
                "explain pods.spec.containers.resources",
                &["limits", "requests"],
            ),
            ok(
                "explain pp",
                &["Propagates resources of its namespace to member clusters."],
            ),
            ok(
                "explain pp.spec.placement.workloadAffinity",
                &[
                    "Rules between workloads.",
                    "!Rules between workloads. Rules between workloads.",
                ],
            ),
            ok(
                "explain pp.spec",
                &["What is desired.", "!What is propagated, where, and how."],
            ),
            ok(
                "explain pp.spec --recursive",
                &["clusterAffinities", "clusterNames <[]string>"],
            ),
            ok("explain clusters.spec.syncMode", &["syncMode <string>"]),
            ok("explain rb.spec.clusters", &["Number of replicas there."]),
            refused("explain deploy.nothing", &["nothing"]),
        ]);
    });
}

#[test]
fn get_with_watch() {
    with_each("watch", |kubectl| {
        kubectl.run(&[ok("create configmap first --from-literal=a=b", &[])]);
        let all = kubectl.follow("get configmaps -w");
        let only = kubectl.follow("get configmaps --watch-only -o name");
        all.until("first 1");
        kubectl.run(&[ok("create configmap second", &[])]);
        all.until("second 0");
        // The second watch may have begun after the first object was created.
        kubectl.run(&[
            ok("create configmap third", &[]),
            ok("label configmap third x=y", &[]),
        ]);
        all.until("third 0");
        only.until("configmap/third");
        kubectl.run(&[ok(
            "delete configmap second",
            &[r#"configmap "second" deleted"#],
        )]);
        all.until("second 0");
    });
}

#[test]
fn events_and_auth_can_i() {
    with_each("events", |kubectl| {
        let event = format!(
            r#"{{"apiVersion": "v1", "kind": "Event", "metadata": {{"name": "e"}}, "reason": "Scaled", "message": "it was",
                "involvedObject": {{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "{}"}},
                "type": "Normal", "count": 3, "source": {{"component": "me"}}}}"#,
            kubectl.namespace
        );
        kubectl.run(&[
            with("create -f -", &event, &["event/e created"]),
            ok(
                "get events",
                &[
                    "LAST SEEN TYPE REASON OBJECT MESSAGE",
                    "Normal Scaled deployment/web it was",
                ],
            ),
            ok(
                "get events.events.k8s.io",
                &["Normal Scaled deployment/web it was"],
            ),
            ok(
                "get events --field-selector=involvedObject.name=web,reason=Scaled",
                &["Scaled"],
            ),
            ok("new: events", &["Normal Scaled Deployment/web it was"]),
            ok("auth can-i '*' '*'", &["yes"]),
            refused("auth can-i list pods --as=jane", &["no"]),
            ok("create role reader --verb=list --resource=pods", &[]),
            ok("create rolebinding reader --role=reader --user=jane", &[]),
        ]);
        kubectl.eventually("auth can-i list pods --as=jane", 0);
        kubectl.run(&[
            ok("auth can-i --list --as=jane", &["Resources Non-Resource URLs Resource Names Verbs", "pods [] [] [list]"]),
            ok("get pods --as=jane", &["No resources found"]),
            refused("get secrets --as=jane", &[r#"secrets is forbidden: User "jane" cannot list resource "secrets" in API group "" in the namespace "NS""#]),
            refused("get nodes --as=jane", &[r#"nodes is forbidden: User "jane" cannot list resource "nodes" in API group "" at the cluster scope"#]),
        ]);
    });
}

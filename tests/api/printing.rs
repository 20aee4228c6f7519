//! Output of `kubectl`: tables, documents, `describe`, `explain`, watches, events.

use crate::api::kubectl::{fails, succeeds, succeeds_with_input, with_each_kubectl};

#[test]
fn discovery_commands() {
    with_each_kubectl("discover", |kubectl| {
        kubectl.run_commands(&[
            succeeds("version", &["v1.36"]),
            succeeds(
                "api-versions",
                &[
                    "apps/v1",
                    "policy.karmada.io/v1alpha1",
                    "work.karmada.io/v1alpha2",
                    "v1",
                ],
            ),
            succeeds(
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
            succeeds(
                "api-resources --namespaced=false --api-group=rbac.authorization.k8s.io -o name",
                &["clusterroles.rbac", "!pods"],
            ),
            succeeds("cluster-info", &["Kubernetes control plane"]),
            succeeds(
                "get --raw /readyz?verbose",
                &["[+]ping ok", "readyz check passed"],
            ),
            fails(
                "get nothing",
                &[r#"error: the server doesn't have a resource type "nothing""#],
            ),
        ]);
    });
}

#[test]
fn get_and_describe() {
    with_each_kubectl("show", |kubectl| {
        kubectl.run_commands(&[
            succeeds("create deployment web --image=nginx:1 --replicas=2", &[]),
            succeeds("create deployment app --image=nginx:1", &[]),
            succeeds("create service clusterip web --tcp=80:8080", &[]),
            succeeds("run alone --image=nginx", &[]),
            succeeds(
                "get deploy web -o wide",
                &[
                    "NAME READY UP-TO-DATE AVAILABLE AGE CONTAINERS IMAGES SELECTOR",
                    "nginx nginx:1 app=web",
                ],
            ),
            succeeds(
                "get pods -o wide",
                &[
                    "NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES",
                    "alone 0/1 Pending 0",
                ],
            ),
            succeeds(
                "get deploy -o name",
                &["deployment.apps/app deployment.apps/web"],
            ),
            succeeds(
                "get deploy web -o json",
                &[r#""kind": "Deployment""#, r#""status": {}"#],
            ),
            succeeds(
                "get deploy web -o yaml",
                &[
                    "maxSurge: 25%",
                    "progressDeadlineSeconds: 600",
                    "terminationGracePeriodSeconds: 30",
                ],
            ),
            succeeds(
                "get deploy -o custom-columns=N:.metadata.name,R:.spec.replicas",
                &["N R app 1 web 2"],
            ),
            succeeds(
                "get deploy --sort-by=.spec.replicas",
                &["app 0/1", "web 0/2"],
            ),
            succeeds("get deploy --chunk-size=1", &["app 0/1", "web 0/2"]),
            succeeds(
                "get deploy,svc -A",
                &["NAMESPACE NAME READY", "NS deployment.apps/web"],
            ),
            succeeds("get pods --field-selector=status.phase=Pending", &["alone"]),
            succeeds(
                "get pods --field-selector=status.phase!=Pending",
                &["No resources found"],
            ),
            fails(
                "get pods --field-selector=spec.foo=x",
                &["field label not supported: spec.foo"],
            ),
            fails(
                "get pods -l 'a in (b'",
                &[
                    "unable to parse requirement: found '', expected: ',' or ')'",
                    "!unable to parse requirement: unable",
                ],
            ),
            fails(
                "get deploy none",
                &[r#"Error from server (NotFound): deployments.apps "none" not found"#],
            ),
            succeeds(
                "describe deploy web",
                &[
                    "StrategyType: RollingUpdate",
                    "Replicas: 2 desired | 0 updated | 0 total",
                    "Events: <none>",
                ],
            ),
            succeeds(
                "describe svc web",
                &["TargetPort: 8080/TCP", "Session Affinity: None"],
            ),
            succeeds(
                "describe pod alone",
                &["Status: Pending", "QoS Class: BestEffort"],
            ),
            succeeds("describe namespace NS", &["Status: Active"]),
            succeeds("rollout history deploy/web", &["deployment.apps/web"]),
            fails(
                "rollout status deploy/web --timeout=1s",
                &["timed out waiting for the condition"],
            ),
            fails("logs alone2", &[r#"pods "alone2" not found"#]),
        ]);
    });
}

#[test]
fn explain() {
    with_each_kubectl("explain", |kubectl| {
        kubectl.run_commands(&[
            succeeds("explain deploy.spec.strategy", &["rollingUpdate", "type"]),
            succeeds(
                "explain pods.spec.containers.resources",
                &["limits", "requests"],
            ),
            succeeds(
                "explain pp",
                &["Propagates resources of its namespace to member clusters."],
            ),
            succeeds(
                "explain pp.spec.placement.workloadAffinity",
                &[
                    "Affinity and anti-affinity between workloads.",
                    "!Affinity and anti-affinity between workloads. Affinity and anti-affinity between workloads.",
                ],
            ),
            succeeds(
                "explain pp.spec",
                &["Desired behavior of the policy.", "!PropagationSpec represents the desired behavior of PropagationPolicy."],
            ),
            succeeds(
                "explain pp.spec --recursive",
                &["clusterAffinities", "clusterNames <[]string>"],
            ),
            succeeds("explain clusters.spec.syncMode", &["syncMode <string>"]),
            succeeds("explain rb.spec.clusters", &["Number of replicas in the cluster."]),
            fails("explain deploy.nothing", &["nothing"]),
        ]);
    });
}

#[test]
fn get_with_watch() {
    with_each_kubectl("watch", |kubectl| {
        kubectl.run_commands(&[succeeds("create configmap first --from-literal=a=b", &[])]);
        let all = kubectl.spawn("get configmaps -w");
        let only = kubectl.spawn("get configmaps --watch-only -o name");
        all.wait_for_line("first 1");
        kubectl.run_commands(&[succeeds("create configmap second", &[])]);
        all.wait_for_line("second 0");
        // The second watch may have begun after the first object was created.
        kubectl.run_commands(&[
            succeeds("create configmap third", &[]),
            succeeds("label configmap third x=y", &[]),
        ]);
        all.wait_for_line("third 0");
        only.wait_for_line("configmap/third");
        kubectl.run_commands(&[succeeds(
            "delete configmap second",
            &[r#"configmap "second" deleted"#],
        )]);
        all.wait_for_line("second 0");
    });
}

#[test]
fn events_and_auth_can_i() {
    with_each_kubectl("events", |kubectl| {
        let event = format!(
            r#"{{"apiVersion": "v1", "kind": "Event", "metadata": {{"name": "e"}}, "reason": "Scaled", "message": "it was",
                "involvedObject": {{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "{}"}},
                "type": "Normal", "count": 3, "source": {{"component": "me"}}}}"#,
            kubectl.namespace
        );
        kubectl.run_commands(&[
            succeeds_with_input("create -f -", &event, &["event/e created"]),
            succeeds(
                "get events",
                &[
                    "LAST SEEN TYPE REASON OBJECT MESSAGE",
                    "Normal Scaled deployment/web it was",
                ],
            ),
            succeeds(
                "get events.events.k8s.io",
                &["Normal Scaled deployment/web it was"],
            ),
            succeeds(
                "get events --field-selector=involvedObject.name=web,reason=Scaled",
                &["Scaled"],
            ),
            succeeds("new: events", &["Normal Scaled Deployment/web it was"]),
            succeeds("auth can-i '*' '*'", &["yes"]),
            fails("auth can-i list pods --as=jane", &["no"]),
            succeeds("create role reader --verb=list --resource=pods", &[]),
            succeeds("create rolebinding reader --role=reader --user=jane", &[]),
        ]);
        kubectl.wait_for_exit_code("auth can-i list pods --as=jane", 0);
        kubectl.run_commands(&[
            succeeds("auth can-i --list --as=jane", &["Resources Non-Resource URLs Resource Names Verbs", "pods [] [] [list]"]),
            succeeds("get pods --as=jane", &["No resources found"]),
            fails("get secrets --as=jane", &[r#"secrets is forbidden: User "jane" cannot list resource "secrets" in API group "" in the namespace "NS""#]),
            fails("get nodes --as=jane", &[r#"nodes is forbidden: User "jane" cannot list resource "nodes" in API group "" at the cluster scope"#]),
        ]);
    });
}

//! Workloads in a simulated cluster become ready, and kubectl can wait for it. Without workload
//! controllers nothing acts on them.

use std::sync::Arc;

use crate::api::kubectl::{succeeds, with_each_kubectl_at};
use crate::api::test_server::ApiTestServer;

#[test]
fn rollouts_and_jobs_complete() {
    let member = Arc::new(ApiTestServer::start_member());
    with_each_kubectl_at(&member, "workloads", |kubectl| {
        kubectl.run_commands(&[
            succeeds("create deployment web --image=nginx:1 --replicas=3", &[]),
            succeeds(
                "rollout status deploy/web --timeout=30s",
                &[r#"deployment "web" successfully rolled out"#],
            ),
            succeeds(
                "wait --for=condition=available deploy/web --timeout=30s",
                &["deployment.apps/web condition met"],
            ),
            succeeds(
                "get deploy,pods -o wide",
                &["deployment.apps/web 3/3 3 3", "1/1 Running 0", "node-"],
            ),
            succeeds("set image deploy/web nginx=nginx:2", &["image updated"]),
            succeeds(
                "rollout status deploy/web --timeout=30s",
                &["successfully rolled out"],
            ),
            succeeds(
                "rollout history deploy/web",
                &["REVISION CHANGE-CAUSE 1 <none> 2 <none>"],
            ),
            succeeds(
                "describe deploy web",
                &[
                    "Available True MinimumReplicasAvailable",
                    "NewReplicaSet: web-",
                ],
            ),
            succeeds("create job once --image=x", &[]),
            succeeds(
                "wait --for=condition=complete job/once --timeout=30s",
                &["job.batch/once condition met"],
            ),
            succeeds("get job", &["once Complete 1/1"]),
            succeeds("get nodes -o wide", &["node-0 Ready <none>", "v1.36.0"]),
            succeeds(
                "describe node node-1",
                &["Roles: <none>", "KubeletReady", "Allocated resources:"],
            ),
            succeeds("delete deploy web --timeout=30s", &["deleted"]),
        ]);
        kubectl.wait_for_exit_code("wait --for=condition=ready pods -l app=web --timeout=1s", 1);
    });
}

#[test]
fn without_workload_controllers_nothing_acts_on_workloads() {
    let member = Arc::new(ApiTestServer::start_member_without_workloads());
    with_each_kubectl_at(&member, "records", |kubectl| {
        kubectl.run_commands(&[
            succeeds("create deployment web --image=nginx:1 --replicas=3", &[]),
            succeeds("get nodes", &["No resources found"]),
            // The namespace controller runs. Workload controllers would have acted by then, too.
            succeeds("create namespace NS-beside", &[]),
            succeeds("delete namespace NS-beside --timeout=30s", &["deleted"]),
            succeeds("get deploy web", &["web 0/3 0 0"]),
            succeeds("get rs,pods", &["No resources found in NS namespace."]),
        ]);
    });
}

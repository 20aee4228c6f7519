//! Workloads in a simulated cluster become ready, and kubectl can wait for it. Without workload
//! controllers nothing acts on them.

use std::sync::Arc;

use crate::kubectl::{ok, with_each_at};
use crate::plane::Plane;

#[test]
fn rollouts_and_jobs_complete() {
    let member = Arc::new(Plane::member());
    with_each_at(&member, "workloads", |kubectl| {
        kubectl.run(&[
            ok("create deployment web --image=nginx:1 --replicas=3", &[]),
            ok(
                "rollout status deploy/web --timeout=30s",
                &[r#"deployment "web" successfully rolled out"#],
            ),
            ok(
                "wait --for=condition=available deploy/web --timeout=30s",
                &["deployment.apps/web condition met"],
            ),
            ok(
                "get deploy,pods -o wide",
                &["deployment.apps/web 3/3 3 3", "1/1 Running 0", "node-"],
            ),
            ok("set image deploy/web nginx=nginx:2", &["image updated"]),
            ok(
                "rollout status deploy/web --timeout=30s",
                &["successfully rolled out"],
            ),
            ok(
                "rollout history deploy/web",
                &["REVISION CHANGE-CAUSE 1 <none> 2 <none>"],
            ),
            ok(
                "describe deploy web",
                &[
                    "Available True MinimumReplicasAvailable",
                    "NewReplicaSet: web-",
                ],
            ),
            ok("create job once --image=x", &[]),
            ok(
                "wait --for=condition=complete job/once --timeout=30s",
                &["job.batch/once condition met"],
            ),
            ok("get job", &["once Complete 1/1"]),
            ok("get nodes -o wide", &["node-0 Ready <none>", "v1.36.0"]),
            ok(
                "describe node node-1",
                &["Roles: <none>", "KubeletReady", "Allocated resources:"],
            ),
            ok("delete deploy web --timeout=30s", &["deleted"]),
        ]);
        kubectl.eventually("wait --for=condition=ready pods -l app=web --timeout=1s", 1);
    });
}

#[test]
fn without_workload_controllers_nothing_acts_on_workloads() {
    let member = Arc::new(Plane::records());
    with_each_at(&member, "records", |kubectl| {
        kubectl.run(&[
            ok("create deployment web --image=nginx:1 --replicas=3", &[]),
            ok("get nodes", &["No resources found"]),
            // The namespace controller runs. Workload controllers would have acted by then, too.
            ok("create namespace NS-beside", &[]),
            ok("delete namespace NS-beside --timeout=30s", &["deleted"]),
            ok("get deploy web", &["web 0/3 0 0"]),
            ok("get rs,pods", &["No resources found in NS namespace."]),
        ]);
    });
}

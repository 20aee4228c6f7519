//! kubectl through the aggregator: the kinds of the federation behave as those of
//! the host do.

use harness::kubectl::{Kubectl, ok, refused, with, with_each};

use crate::behind::Behind;

pub(crate) async fn story(behind: &Behind) {
    let kubeconfig = behind.host.kubeconfig.clone();
    let folder = behind.host.dir().to_owned();
    let all = move || with_each(&kubeconfig, &folder, "kubectl", policies);
    tokio::task::spawn_blocking(all).await.unwrap();
}

fn policy(cluster: &str) -> String {
    format!(
        "
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {{name: p, labels: {{a: b}}}}
spec:
  resourceSelectors: [{{apiVersion: apps/v1, kind: Deployment, name: web}}]
  placement: {{clusterAffinity: {{clusterNames: [{cluster}]}}}}
"
    )
}

fn policies(kubectl: &Kubectl) {
    // A host looks for documents of those behind it after it has passed requests on.
    kubectl.eventually("explain pp.spec.placement", 0);
    let following = kubectl.follow("get pp -w -o name");
    kubectl.run(&[
        ok("api-resources --api-group=policy.karmada.io", &["propagationpolicies pp"]),
        ok("explain pp.spec.placement", &["clusterAffinity"]),
        ok("create deployment web --image=nginx", &["created"]),
        with("create -f -", &policy("m1"), &["propagationpolicy.policy.karmada.io/p created"]),
        with("apply -f -", &policy("m2"), &["propagationpolicy.policy.karmada.io/p configured"]),
        ok("get pp", &["NAME CONFLICT-RESOLUTION PRIORITY AGE", "p Abort 0"]),
        ok("get pp -o wide", &["p Abort 0"]),
        ok("get pp p -o jsonpath='{.spec.placement.clusterAffinity.clusterNames}'", &[r#"["m2"]"#]),
        ok("describe pp p", &["Preemption: Never", "m2"]),
        ok("get rb -o name", &["resourcebinding.work.karmada.io/web-deployment"]),
        ok("get clusters,pp,op,rb,work -A", &["propagationpolicy.policy.karmada.io/p"]),
        ok("label pp p c=d", &["labeled"]),
        ok("get pp -l a=b,c=d -o name", &["/p"]),
        ok("annotate pp p e=f", &["annotated"]),
        ok(r#"patch pp p --type=merge -p '{"spec":{"priority":4}}'"#, &["patched"]),
        ok(r#"patch pp p --type=json -p '[{"op":"replace","path":"/spec/priority","value":5}]'"#, &["patched"]),
        refused(
            r#"patch pp p -p '{"spec":{"priority":6}}'"#,
            &["accepted media types include: application/json-patch+json, application/merge-patch+json"],
        ),
        refused(
            r#"patch pp p --type=merge -p '{"spec":{"conflictResolution":"Maybe"}}'"#,
            &[r#"spec.conflictResolution: Unsupported value: "Maybe""#],
        ),
        ok("get pp p -o jsonpath='{.spec.priority}'", &["5"]),
        ok("new: wait pp p --for=jsonpath='{.spec.priority}'=5 --timeout=20s", &[]),
        ok("delete pp p --timeout=30s", &["deleted"]),
        refused("get pp p", &["NotFound"]),
        ok("delete namespace NS --timeout=60s", &["deleted"]),
    ]);
    following.until("propagationpolicy.policy.karmada.io/p");
}

//! `kubectl` against the host: resources that Flotilla serves behave as the host's own do.

use harness::kubectl::{Kubectl, ok, refused, with, with_each};

use crate::behind::Behind;

pub(crate) async fn story(control_plane: &Behind) {
    let kubeconfig = control_plane.host.kubeconfig.clone();
    let folder = control_plane.host.dir().to_owned();
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

fn override_policy() -> String {
    "
apiVersion: policy.karmada.io/v1alpha1
kind: OverridePolicy
metadata: {name: o}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]
  overrideRules: [{overriders: {labelsOverrider: [{operator: add, value: {o: p}}]}}]
"
    .to_owned()
}

fn policies(kubectl: &Kubectl) {
    // The aggregator fetches OpenAPI documents of an APIService some time after it routes
    // requests to it.
    kubectl.eventually("explain pp.spec.placement", 0);
    let following = kubectl
        .follow("get pp -w --no-headers -o custom-columns=P:.metadata.name,V:.spec.priority");
    kubectl.run(&[
        ok("api-resources --api-group=policy.karmada.io", &["propagationpolicies pp"]),
        ok("explain pp.spec.placement", &["clusterAffinity"]),
        ok("create deployment web --image=nginx", &["created"]),
        ok("create configmap c --from-literal=a=b", &["created"]),
        ok("create secret generic s --from-literal=a=b", &["created"]),
        ok("create service clusterip s --tcp=80", &["created"]),
        ok("create serviceaccount a", &["created"]),
        ok("create job j --image=busybox -- true", &["created"]),
        ok("create role r --verb=get --resource=propagationpolicies.policy.karmada.io", &["created"]),
        ok("new: create token a", &["ey"]),
        with("create -f -", &policy("member1"), &["propagationpolicy.policy.karmada.io/p created"]),
        with("apply -f -", &policy("member2"), &["propagationpolicy.policy.karmada.io/p configured"]),
        ok("get pp", &["NAME CONFLICT-RESOLUTION PRIORITY AGE", "p Abort 0"]),
        ok("get pp -o wide", &["p Abort 0"]),
        ok("get pp p -o jsonpath='{.spec.placement.clusterAffinity.clusterNames}'", &[r#"["member2"]"#]),
        ok("describe pp p", &["Preemption: Never", "member2"]),
        ok("wait rb web-deployment --for=condition=FullyApplied --timeout=30s", &["met"]),
        with("create -f -", &override_policy(), &["overridepolicy.policy.karmada.io/o created"]),
        ok("get clusters,pp,op,rb,work -A", &[
            "NAME VERSION MODE READY AGE",
            "cluster.cluster.karmada.io/member1 v1.20.2 Push True",
            "NAMESPACE NAME CONFLICT-RESOLUTION PRIORITY AGE",
            "NS propagationpolicy.policy.karmada.io/p Abort 0",
            "NAMESPACE NAME AGE",
            "NS overridepolicy.policy.karmada.io/o",
            "NAMESPACE NAME SCHEDULED FULLYAPPLIED AGE",
            "NS resourcebinding.work.karmada.io/web-deployment True True",
            "NAMESPACE NAME WORKLOAD-KIND APPLIED AGE",
            "karmada-es-member2 work.work.karmada.io/web-",
        ]),
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
        ok("set image deployment web nginx=nginx:2", &["image updated"]),
        ok("scale deployment web --replicas=3", &["scaled"]),
        ok("get deployment web -o jsonpath='{.spec.replicas} {.spec.template.spec.containers[0].image}'", &["3 nginx:2"]),
        ok("new: wait pp p --for=jsonpath='{.spec.priority}'=5 --timeout=20s", &[]),
        ok("delete pp p --timeout=30s", &["deleted"]),
        refused("get pp p", &["NotFound"]),
        ok("delete namespace NS --timeout=60s", &["deleted"]),
    ]);
    for line in ["p 0", "p 4", "p 5"] {
        following.until(line);
    }
}

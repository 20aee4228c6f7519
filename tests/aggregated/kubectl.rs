//! `kubectl` against the host: resources that Flotilla serves behave as the host's own do.

use harness::kubectl::{
    Kubectl, fails, fails_with_input, succeeds, succeeds_with_input, with_each_kubectl,
};

use crate::aggregated::aggregated_control_plane::AggregatedControlPlane;

pub(crate) async fn run_scenario(control_plane: &AggregatedControlPlane) {
    let kubeconfig = control_plane.host.kubeconfig.clone();
    let folder = control_plane.host.dir().to_owned();
    let version = control_plane.version().await;
    let all = move || {
        with_each_kubectl(&kubeconfig, &folder, "kubectl", |kubectl| {
            run_policy_commands(kubectl, &version);
        });
    };
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

/// `version`: the release of the members.
fn run_policy_commands(kubectl: &Kubectl, version: &str) {
    let member = format!("cluster.cluster.karmada.io/member1 {version} Push True");
    // The aggregator fetches OpenAPI documents of an APIService some time after it routes
    // requests to it.
    kubectl.wait_for_exit_code("explain pp.spec.placement", 0);
    let following =
        kubectl.spawn("get pp -w --no-headers -o custom-columns=P:.metadata.name,V:.spec.priority");
    kubectl.run_commands(&[
        succeeds("api-resources --api-group=policy.karmada.io", &["propagationpolicies pp"]),
        succeeds("explain pp.spec.placement", &["clusterAffinity"]),
        succeeds("create deployment web --image=nginx", &["created"]),
        succeeds("create configmap c --from-literal=a=b", &["created"]),
        succeeds("create secret generic s --from-literal=a=b", &["created"]),
        succeeds("create service clusterip s --tcp=80", &["created"]),
        succeeds("create serviceaccount a", &["created"]),
        succeeds("create job j --image=busybox -- true", &["created"]),
        succeeds("create role r --verb=get --resource=propagationpolicies.policy.karmada.io", &["created"]),
        succeeds("new: create token a", &["ey"]),
        succeeds_with_input("create -f -", &policy("member1"), &["propagationpolicy.policy.karmada.io/p created"]),
        succeeds_with_input("apply -f -", &policy("member2"), &["propagationpolicy.policy.karmada.io/p configured"]),
        succeeds("get pp", &["NAME CONFLICT-RESOLUTION PRIORITY AGE", "p Abort 0"]),
        succeeds("get pp -o wide", &["p Abort 0"]),
        succeeds("get pp p -o jsonpath='{.spec.placement.clusterAffinity.clusterNames}'", &[r#"["member2"]"#]),
        succeeds("describe pp p", &["Preemption: Never", "member2"]),
        succeeds("wait rb web-deployment --for=condition=FullyApplied --timeout=30s", &["met"]),
        succeeds_with_input("create -f -", &override_policy(), &["overridepolicy.policy.karmada.io/o created"]),
        succeeds("get clusters,pp,op,rb,work -A", &[
            "NAME VERSION MODE READY AGE",
            &member,
            "NAMESPACE NAME CONFLICT-RESOLUTION PRIORITY AGE",
            "NS propagationpolicy.policy.karmada.io/p Abort 0",
            "NAMESPACE NAME AGE",
            "NS overridepolicy.policy.karmada.io/o",
            "NAMESPACE NAME SCHEDULED FULLYAPPLIED AGE",
            "NS resourcebinding.work.karmada.io/web-deployment True True",
            "NAMESPACE NAME WORKLOAD-KIND APPLIED AGE",
            "karmada-es-member2 work.work.karmada.io/web-",
        ]),
        succeeds("label pp p c=d", &["labeled"]),
        succeeds("get pp -l a=b,c=d -o name", &["/p"]),
        succeeds_with_input("apply --server-side --force-conflicts -f -", &policy("member2"), &["propagationpolicy.policy.karmada.io/p serverside-applied"]),
        fails_with_input("apply --server-side --field-manager=other -f -", &policy("member1"), &["conflicts with \"kubectl\""]),
        succeeds("annotate pp p e=f", &["annotated"]),
        succeeds(r#"patch pp p --type=merge -p '{"spec":{"priority":4}}'"#, &["patched"]),
        succeeds(r#"patch pp p --type=json -p '[{"op":"replace","path":"/spec/priority","value":5}]'"#, &["patched"]),
        fails(
            r#"patch pp p -p '{"spec":{"priority":6}}'"#,
            &["accepted media types include: application/json-patch+json, application/merge-patch+json"],
        ),
        fails(
            r#"patch pp p --type=merge -p '{"spec":{"conflictResolution":"Maybe"}}'"#,
            &[r#"spec.conflictResolution: Unsupported value: "Maybe""#],
        ),
        succeeds("get pp p -o jsonpath='{.spec.priority}'", &["5"]),
        succeeds("set image deployment web nginx=nginx:2", &["image updated"]),
        succeeds("scale deployment web --replicas=3", &["scaled"]),
        succeeds("get deployment web -o jsonpath='{.spec.replicas} {.spec.template.spec.containers[0].image}'", &["3 nginx:2"]),
        succeeds("new: wait pp p --for=jsonpath='{.spec.priority}'=5 --timeout=20s", &[]),
        succeeds("delete pp p --timeout=30s", &["deleted"]),
        fails("get pp p", &["NotFound"]),
        succeeds("delete namespace NS --timeout=60s", &["deleted"]),
    ]);
    for line in ["p 0", "p 4", "p 5"] {
        following.wait_for_line(line);
    }
}

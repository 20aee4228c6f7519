//! Tests of templates whose replicas a ReplicaSchedulingPreference divides.

use super::*;

/// A federated Deployment `shop/web` with a replica preference of this spec.
fn divided(spec: &str, placement: &str) -> Conversion {
    converted(&format!(
        r#"
apiVersion: scheduling.kubefed.io/v1alpha1
kind: ReplicaSchedulingPreference
metadata: {{namespace: shop, name: web}}
spec: {spec}
---
apiVersion: types.kubefed.io/v1beta1
kind: FederatedDeployment
metadata: {{namespace: shop, name: web}}
spec:
  template: {{spec: {{replicas: 1}}}}
  placement: {placement}
  overrides:
  - clusterName: a
    clusterOverrides: [{{path: /spec/replicas, value: 7}}]
---
apiVersion: types.kubefed.io/v1beta1
kind: FederatedNamespace
metadata: {{namespace: shop, name: shop}}
spec: {{placement: {{clusterSelector: {{}}}}}}
"#
    ))
}

// proves: RSP-convert
#[test]
fn a_replica_preference_stays_and_the_policy_places_the_namespace() {
    let clusters = "{a: {weight: 1, minReplicas: 1}, b: {weight: 2, maxReplicas: 3}, \"*\": {}}";
    let spec = format!(
        "{{targetKind: FederatedDeployment, totalReplicas: 9, rebalance: true, clusters: {clusters}}}"
    );
    let conversion = divided(&spec, "{clusters: [{name: z}]}");
    assert!(conversion.findings.is_empty());
    assert_eq!(
        of_kind(&conversion, "ReplicaSchedulingPreference"),
        [&json!({
            "apiVersion": "scheduling.kubefed.io/v1alpha1",
            "kind": "ReplicaSchedulingPreference",
            "metadata": {"namespace": "shop", "name": "web"},
            "spec": {
                "targetKind": "FederatedDeployment", "totalReplicas": 9, "rebalance": true,
                "clusters": {"a": {"weight": 1, "minReplicas": 1}, "b": {"weight": 2, "maxReplicas": 3}, "*": {}},
            },
        })]
    );
    let policy = of_kind(&conversion, "PropagationPolicy")[0];
    assert_eq!(policy["spec"]["placement"], json!({"clusterAffinity": {}}));
    assert_eq!(of_kind(&conversion, "Deployment")[0]["spec"]["replicas"], 9);
    // KubeFed's scheduler has written the replicas of each cluster there.
    assert!(of_kind(&conversion, "OverridePolicy").is_empty());
}

// proves: RSP-convert
#[test]
fn the_selector_of_the_object_decides_too_where_the_preference_says_so() {
    let spec = "{targetKind: FederatedDeployment, totalReplicas: 4, intersectWithClusterSelector: true, clusters: {c: {weight: 1}, d: {weight: 1}}}";
    let conversion = divided(spec, "{clusterSelector: {matchLabels: {zone: x}}}");
    let policy = of_kind(&conversion, "PropagationPolicy")[0];
    assert_eq!(
        policy["spec"]["placement"]["clusterAffinity"],
        json!({"labelSelector": {"matchLabels": {"zone": "x"}}})
    );
}

// proves: RSP-convert
#[test]
fn a_preference_intersects_where_the_placement_alone_restricts_it() {
    let preference = |placement: &str| {
        format!(
            r#"
apiVersion: scheduling.kubefed.io/v1alpha1
kind: ReplicaSchedulingPreference
metadata: {{namespace: shop, name: web, resourceVersion: "3"}}
spec: {{targetKind: FederatedDeployment, totalReplicas: 4}}
---
apiVersion: types.kubefed.io/v1beta1
kind: FederatedDeployment
metadata: {{namespace: shop, name: web}}
spec: {{template: {{spec: {{replicas: 1}}}}, placement: {{}}}}
---
apiVersion: types.kubefed.io/v1beta1
kind: FederatedNamespace
metadata: {{namespace: shop, name: shop}}
spec: {{placement: {placement}}}
"#
        )
    };
    // The gate of the namespace restricts it.
    let gated = preference("{clusters: [{name: a}]}");
    let conversion = converted(&gated);
    let manifest = of_kind(&conversion, "ReplicaSchedulingPreference")[0];
    assert!(manifest["spec"]["intersectWithClusterSelector"].is_null());
    let ungated = format!(
        r#"{gated}---
apiVersion: core.kubefed.io/v1beta1
kind: FederatedTypeConfig
metadata: {{namespace: kube-federation-system, name: namespaces}}
spec:
  propagation: Disabled
  targetType: {{kind: Namespace, pluralName: namespaces, scope: Namespaced, version: v1}}
  federatedType: {{group: types.kubefed.io, kind: FederatedNamespace, pluralName: federatednamespaces, scope: Namespaced, version: v1beta1}}
"#
    );
    let conversion = converted(&ungated);
    let manifest = of_kind(&conversion, "ReplicaSchedulingPreference")[0];
    assert_eq!(manifest["spec"]["intersectWithClusterSelector"], true);
    assert_eq!(
        manifest["metadata"],
        json!({"namespace": "shop", "name": "web"})
    );
    let policy = of_kind(&conversion, "PropagationPolicy")[0];
    let affinity = json!({"clusterNames": ["a"]});
    assert_eq!(policy["spec"]["placement"]["clusterAffinity"], affinity);
    assert_eq!(
        findings(&conversion, Severity::Note),
        ["ReplicaSchedulingPreference shop/web spec.intersectWithClusterSelector"]
    );
}

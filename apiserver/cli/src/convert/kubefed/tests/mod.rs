//! Tests of the conversion of KubeFed's objects.

mod refusals;
mod replica_preferences;

use serde_json::{Value, json};

use super::convert;
use crate::convert::conversion::{Conversion, Severity};
use crate::manifest_files::parse_documents;

fn converted(manifests: &str) -> Conversion {
    convert(parse_documents(manifests).unwrap()).unwrap()
}

fn error(manifests: &str) -> String {
    let result = convert(parse_documents(manifests).unwrap());
    let error = result.err().expect("the manifests are refused");
    format!("{error:#}")
}

fn of_kind<'a>(conversion: &'a Conversion, kind: &str) -> Vec<&'a Value> {
    conversion
        .manifests()
        .filter(|m| m["kind"] == kind)
        .collect()
}

/// The findings of a severity, as object and field.
fn findings(conversion: &Conversion, severity: Severity) -> Vec<String> {
    let findings = conversion.findings.iter();
    let findings = findings.filter(|f| f.severity == severity);
    findings
        .map(|f| format!("{} {}", f.object, f.field))
        .collect()
}

/// A federated ConfigMap `shop/settings` and its namespace, with the given placements.
fn placed(placement: &str, namespace_placement: &str) -> String {
    format!(
        r#"
apiVersion: types.kubefed.io/v1beta1
kind: FederatedConfigMap
metadata: {{namespace: shop, name: settings}}
spec:
  template: {{data: {{color: blue}}}}
  placement: {placement}
---
apiVersion: types.kubefed.io/v1beta1
kind: FederatedNamespace
metadata: {{namespace: shop, name: shop}}
spec:
  placement: {namespace_placement}
"#
    )
}

#[test]
fn a_federated_object_becomes_a_template_a_policy_and_an_override_policy() {
    let conversion = converted(
        r#"
apiVersion: types.kubefed.io/v1beta1
kind: FederatedDeployment
metadata: {namespace: shop, name: web, annotations: {kubefed.io/orphan: "true"}}
spec:
  retainReplicas: true
  template:
    metadata: {labels: {app: web}, annotations: {a: b}}
    spec:
      replicas: 3
      template: {spec: {containers: [{name: web, image: web:1}]}}
  placement: {clusters: [{name: east}, {name: west}, {name: north}]}
  overrides:
  - clusterName: west
    clusterOverrides:
    - {path: /spec/replicas, value: 5}
    - {path: /metadata/annotations, op: add, value: {team: shop}}
    - {path: /metadata/annotations/old, op: remove}
  - clusterName: north
    clusterOverrides:
    - {path: /spec/template/spec/containers/0/args/0, op: add, value: -q}
  - clusterName: east
    clusterOverrides:
    - {path: /spec/template/spec/containers/0/args/0, op: add, value: -q}
---
apiVersion: types.kubefed.io/v1beta1
kind: FederatedNamespace
metadata: {namespace: shop, name: shop}
spec: {placement: {clusterSelector: {}}}
"#,
    );
    assert_eq!(findings(&conversion, Severity::Loss), Vec::<String>::new());
    let deployment = of_kind(&conversion, "Deployment")[0];
    assert_eq!(deployment["apiVersion"], "apps/v1");
    assert_eq!(
        deployment["metadata"],
        json!({
            "namespace": "shop",
            "name": "web",
            "labels": {"app": "web", "resourcetemplate.karmada.io/retain-replicas": "true"},
        })
    );
    assert_eq!(deployment["spec"]["replicas"], 3);
    let policy = of_kind(&conversion, "PropagationPolicy")[0];
    assert_eq!(
        policy["spec"],
        json!({
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}],
            "placement": {"clusterAffinity": {"clusterNames": ["east", "north", "west"]}},
            "conflictResolution": "Overwrite",
            "preserveResourcesOnDeletion": true,
        })
    );
    let overrides = of_kind(&conversion, "OverridePolicy")[0];
    let mut metadata = policy["metadata"].clone();
    // The replicas are retained, and the override wins.
    metadata["annotations"] = json!({"flotilla.io/override-retained-fields": "true"});
    assert_eq!(overrides["metadata"], metadata);
    assert_eq!(
        overrides["spec"]["overrideRules"],
        json!([
            {
                "targetCluster": {"clusterNames": ["west"]},
                "overriders": {
                    "annotationsOverrider": [
                        {"operator": "add", "value": {"team": "shop"}},
                        {"operator": "remove", "value": {"old": ""}},
                    ],
                    "plaintext": [{"operator": "replace", "path": "/spec/replicas", "value": 5}],
                },
            },
            {
                "targetCluster": {"clusterNames": ["north", "east"]},
                "overriders": {"plaintext": [
                    {"operator": "add", "path": "/spec/template/spec/containers/0/args/0", "value": "-q"},
                ]},
            },
        ])
    );
    // A namespace that goes everywhere is one that is not kept out.
    let namespace = of_kind(&conversion, "Namespace")[0];
    assert_eq!(
        namespace["metadata"],
        json!({
            "name": "shop",
            "annotations": {
                "work.karmada.io/conflict-resolution": "overwrite",
                "flotilla.io/namespace-gate": "true",
            },
        })
    );
    assert!(of_kind(&conversion, "ClusterPropagationPolicy").is_empty());
}

#[test]
fn an_object_goes_where_its_placement_and_that_of_its_namespace_agree() {
    let nowhere =
        r#"{labelSelector: {matchExpressions: [{key: flotilla.io/nowhere, operator: Exists}]}}"#;
    let selector = r#"{clusterSelector: {matchLabels: {tier: "1"}}}"#;
    let names = "{clusters: [{name: a}, {name: b}]}";
    let everywhere = "{clusterSelector: {}}";
    // By placement and that of the namespace: the affinity where the gate of the namespace decides,
    // and where namespaces are not propagated.
    let table = [
        (
            names,
            "{clusters: [{name: b}, {name: c}]}",
            "{clusterNames: [a, b]}",
            "{clusterNames: [b]}",
        ),
        (
            names,
            everywhere,
            "{clusterNames: [a, b]}",
            "{clusterNames: [a, b]}",
        ),
        (
            names,
            selector,
            "{clusterNames: [a, b]}",
            r#"{clusterNames: [a, b], labelSelector: {matchLabels: {tier: "1"}}}"#,
        ),
        (everywhere, everywhere, "{}", "{}"),
        (
            selector,
            r#"{clusterSelector: {matchLabels: {tier: "2"}}}"#,
            r#"{labelSelector: {matchLabels: {tier: "1"}}}"#,
            r#"{labelSelector: {matchLabels: {tier: "1"}, matchExpressions: [{key: tier, operator: In, values: ["2"]}]}}"#,
        ),
        // The list is stronger than the selector, even an empty one.
        (
            "{clusters: [], clusterSelector: {}}",
            everywhere,
            nowhere,
            nowhere,
        ),
        (
            "{clusters: [{name: b}], clusterSelector: {}}",
            everywhere,
            "{clusterNames: [b]}",
            "{clusterNames: [b]}",
        ),
        ("{}", everywhere, nowhere, nowhere),
        (
            names,
            "{clusters: [{name: c}]}",
            "{clusterNames: [a, b]}",
            nowhere,
        ),
    ];
    for (placement, namespace, gated, intersected) in table {
        let manifests = placed(placement, namespace);
        let config = NAMESPACES_DISABLED;
        for (manifests, affinity) in [
            (manifests.clone(), gated),
            (format!("{manifests}{config}"), intersected),
        ] {
            let conversion = converted(&manifests);
            let policy = of_kind(&conversion, "PropagationPolicy")[0];
            assert_eq!(
                policy["spec"]["placement"]["clusterAffinity"],
                parse_documents(affinity).unwrap()[0],
                "{placement} in {namespace}"
            );
            assert_eq!(of_kind(&conversion, "ConfigMap").len(), 1);
        }
    }
}

#[test]
fn a_namespace_in_some_clusters_is_kept_out_of_the_others() {
    let conversion = converted(&placed("{clusterSelector: {}}", "{clusters: [{name: a}]}"));
    let namespace = of_kind(&conversion, "Namespace")[0];
    assert_eq!(
        namespace["metadata"]["labels"],
        json!({"namespace.karmada.io/skip-auto-propagation": "true"})
    );
    let policy = of_kind(&conversion, "ClusterPropagationPolicy")[0];
    assert_eq!(
        policy["spec"]["placement"],
        json!({
            "clusterAffinity": {"clusterNames": ["a"]},
            "clusterTolerations": [{"operator": "Exists"}],
        })
    );
    let plain = converted("{apiVersion: v1, kind: Namespace, metadata: {name: host}}");
    assert_eq!(
        of_kind(&plain, "Namespace")[0]["metadata"]["labels"],
        json!({"namespace.karmada.io/skip-auto-propagation": "true"})
    );
}

#[test]
fn a_namespace_whose_copies_stay_has_a_policy_although_it_goes_everywhere() {
    let everywhere = "{clusterSelector: {}}";
    let manifests = placed(everywhere, everywhere).replace(
        "name: shop}",
        r#"name: shop, annotations: {kubefed.io/orphan: "true"}}"#,
    );
    let conversion = converted(&manifests);
    assert_eq!(
        of_kind(&conversion, "Namespace")[0]["metadata"]["labels"],
        json!({"namespace.karmada.io/skip-auto-propagation": "true"})
    );
    let spec = &of_kind(&conversion, "ClusterPropagationPolicy")[0]["spec"];
    assert_eq!(spec["preserveResourcesOnDeletion"], true);
    assert_eq!(spec["placement"]["clusterAffinity"], json!({}));
    let policies = of_kind(&conversion, "PropagationPolicy");
    assert_eq!(
        policies[0]["spec"]["preserveResourcesOnDeletion"],
        json!(null)
    );
}

const NAMESPACES_DISABLED: &str = r#"---
apiVersion: core.kubefed.io/v1beta1
kind: FederatedTypeConfig
metadata: {name: namespaces, namespace: kubefed, uid: u}
spec:
  federatedType: {group: types.kubefed.io, version: v1beta1, kind: FederatedNamespace, pluralName: federatednamespaces, scope: Namespaced}
  targetType: {version: v1, kind: Namespace, pluralName: namespaces, scope: Cluster}
  propagation: Disabled
status: {observedGeneration: 1, propagationController: NotRunning}
"#;

#[test]
fn a_type_that_is_not_propagated_keeps_its_type_configuration() {
    let everywhere = "{clusterSelector: {}}";
    let manifests = format!("{}{NAMESPACES_DISABLED}", placed(everywhere, everywhere));
    let conversion = converted(&manifests);
    let config = of_kind(&conversion, "FederatedTypeConfig")[0];
    assert_eq!(
        config["metadata"],
        json!({"namespace": "kube-federation-system", "name": "namespaces"})
    );
    assert_eq!(config["spec"]["propagation"], "Disabled");
    assert_eq!(config.get("status"), None);
    let namespaces = of_kind(&conversion, "Namespace");
    assert_eq!(namespaces[0]["metadata"]["name"], "kube-federation-system");
    // Where it is placed cannot be seen from a binding.
    let annotations = &namespaces[1]["metadata"]["annotations"];
    assert_eq!(annotations.get("flotilla.io/namespace-gate"), None);
    assert_eq!(of_kind(&conversion, "PropagationPolicy").len(), 1);
}

#[test]
fn a_namespace_that_is_not_federated_stops_the_conversion() {
    let object = placed("{clusterSelector: {}}", "{}");
    let object = object.split("---").next().unwrap();
    let conversion = converted(object);
    assert_eq!(
        findings(&conversion, Severity::Loss),
        ["FederatedConfigMap shop/settings metadata.namespace"]
    );
    let scope = "---\n{apiVersion: core.kubefed.io/v1beta1, kind: KubeFedConfig, metadata: {name: kubefed}, spec: {scope: Namespaced}}";
    let conversion = converted(&format!("{object}{scope}"));
    assert_eq!(findings(&conversion, Severity::Loss), Vec::<String>::new());
    assert_eq!(of_kind(&conversion, "PropagationPolicy").len(), 1);
}

#[test]
fn what_has_no_equal_is_listed() {
    let manifests = placed("{clusterSelector: {}}", "{clusterSelector: {}}").replace(
        "  placement: {clusterSelector: {}}\n---",
        "  placement: {clusterSelector: {}}\n  retainReplicas: true\n  overrides: [{clusterName: a, clusterOverrides: [{path: /kind, value: A}]}]\n---",
    );
    let conversion = converted(&manifests);
    assert_eq!(
        findings(&conversion, Severity::Loss),
        [
            "FederatedConfigMap shop/settings spec.retainReplicas",
            "FederatedConfigMap shop/settings spec.overrides[0].clusterOverrides[0].path",
        ]
    );
    let dns = converted(
        "{apiVersion: multiclusterdns.kubefed.io/v1alpha1, kind: ServiceDNSRecord, metadata: {namespace: shop, name: d}}",
    );
    assert_eq!(
        findings(&dns, Severity::Loss),
        ["ServiceDNSRecord shop/d kind"]
    );
    assert_eq!(dns.manifests().count(), 0);
    let lone = converted(
        "{apiVersion: scheduling.kubefed.io/v1alpha1, kind: ReplicaSchedulingPreference, metadata: {namespace: shop, name: p}, spec: {targetKind: FederatedDeployment, totalReplicas: 1}}",
    );
    assert_eq!(findings(&lone, Severity::Loss), Vec::<String>::new());
    assert_eq!(
        findings(&lone, Severity::Note),
        ["ReplicaSchedulingPreference shop/p spec.targetKind"]
    );
    assert_eq!(lone.manifests().count(), 1);
}

#[test]
fn a_cluster_keeps_its_labels_token_and_authority() {
    let conversion = converted(
        r#"
apiVersion: core.kubefed.io/v1beta1
kind: KubeFedCluster
metadata: {namespace: fed, name: east, labels: {zone: x}}
spec:
  apiEndpoint: 10.0.0.1:6443
  caBundle: Y2E=
  secretRef: {name: east-token}
  disabledTLSValidations: ["*"]
  proxyURL: ""
status: {region: r1, zones: [r1-a], conditions: []}
---
{apiVersion: v1, kind: Secret, metadata: {namespace: fed, name: east-token}, data: {token: dG9rZW4=}}
---
{apiVersion: v1, kind: Secret, metadata: {namespace: fed, name: webhook-certificate}, data: {}}
---
apiVersion: core.kubefed.io/v1beta1
kind: KubeFedCluster
metadata: {namespace: fed, name: west}
spec: {apiEndpoint: "https://west", secretRef: {name: west-token}, disabledTLSValidations: [ValidityPeriod]}
"#,
    );
    let clusters = of_kind(&conversion, "Cluster");
    assert_eq!(
        *clusters[0],
        json!({
            "apiVersion": "cluster.karmada.io/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": "east", "labels": {"zone": "x"}},
            "spec": {
                "syncMode": "Push",
                "apiEndpoint": "https://10.0.0.1:6443",
                "insecureSkipTLSVerification": true,
                "region": "r1",
                "zones": ["r1-a"],
                "secretRef": {"namespace": "karmada-cluster", "name": "east"},
            },
        })
    );
    assert_eq!(clusters[1]["spec"]["apiEndpoint"], "https://west");
    assert_eq!(
        clusters[1]["metadata"]["annotations"],
        json!({"flotilla.io/disabled-tls-validations": "ValidityPeriod"})
    );
    let secrets = of_kind(&conversion, "Secret");
    assert_eq!(secrets.len(), 1);
    assert_eq!(
        secrets[0]["data"],
        json!({"token": "dG9rZW4=", "caBundle": "Y2E="})
    );
    assert!(findings(&conversion, Severity::Loss).is_empty());
    assert_eq!(
        findings(&conversion, Severity::Note),
        [
            "KubeFedCluster fed/east spec.impersonatorSecretRef",
            "KubeFedCluster fed/west spec.impersonatorSecretRef",
            "KubeFedCluster fed/west spec.secretRef",
        ]
    );
}

#[test]
fn a_type_configuration_names_the_kind_of_the_copies() {
    let widget = r#"
apiVersion: types.kubefed.io/v1beta1
kind: FederatedWidget
metadata: {name: w}
spec: {template: {spec: {size: 1}}, placement: {clusterSelector: {}}}
"#;
    assert_eq!(
        error(widget),
        "FederatedWidget w: kind: the kind of FederatedWidget's copies is not known; pass its FederatedTypeConfig too"
    );
    let config = |propagation: &str| {
        format!(
            r#"{widget}---
apiVersion: core.kubefed.io/v1beta1
kind: FederatedTypeConfig
metadata: {{name: widgets.example.org}}
spec:
  federatedType: {{group: types.kubefed.io, version: v1beta1, kind: FederatedWidget}}
  targetType: {{group: example.org, version: v1, kind: Widget, scope: Cluster}}
  propagation: {propagation}
"#
        )
    };
    let conversion = converted(&config("Enabled"));
    assert_eq!(
        of_kind(&conversion, "Widget")[0]["apiVersion"],
        "example.org/v1"
    );
    assert_eq!(of_kind(&conversion, "ClusterPropagationPolicy").len(), 1);
    assert!(of_kind(&conversion, "FederatedTypeConfig").is_empty());
    let conversion = converted(&config("Disabled"));
    assert_eq!(of_kind(&conversion, "ClusterPropagationPolicy").len(), 1);
    assert_eq!(of_kind(&conversion, "FederatedTypeConfig").len(), 1);
}

#[test]
fn a_federated_type_may_have_a_group_of_its_own() {
    let object = r#"
apiVersion: federation.example.org/v1
kind: SharedWidget
metadata: {name: w}
spec: {template: {spec: {size: 1}}, placement: {clusterSelector: {}}}
"#;
    let config = r#"---
apiVersion: core.kubefed.io/v1beta1
kind: FederatedTypeConfig
metadata: {name: widgets.example.org}
spec:
  federatedType: {group: federation.example.org, version: v1, kind: SharedWidget}
  targetType: {group: example.org, version: v1, kind: Widget}
  propagation: Enabled
"#;
    let conversion = converted(&format!("{object}{config}"));
    assert_eq!(of_kind(&conversion, "Widget")[0]["spec"]["size"], 1);
    assert_eq!(of_kind(&conversion, "ClusterPropagationPolicy").len(), 1);
    assert!(of_kind(&conversion, "SharedWidget").is_empty());
    // The configuration is about the kind of this group only.
    let other = object.replace("federation.example.org", "example.com");
    let conversion = converted(&format!("{other}{config}"));
    assert_eq!(of_kind(&conversion, "SharedWidget").len(), 1);
}

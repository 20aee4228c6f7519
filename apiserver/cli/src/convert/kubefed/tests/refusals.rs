//! Tests of refused objects, and of the findings about overrides and Secrets.

use serde_json::{Value, json};

use super::{converted, error, findings, of_kind};
use crate::convert::conversion::Severity;

/// A federated ConfigMap `shop/c` with this spec.
fn settings(spec: &str) -> String {
    format!(
        "apiVersion: types.kubefed.io/v1beta1\nkind: FederatedConfigMap\nmetadata: {{namespace: shop, name: c}}\nspec: {spec}\n"
    )
}

// proves: CLI-convert-all-errors
#[test]
fn all_malformed_objects_are_named_at_once() {
    let other = settings("{template: 2}").replace("name: c", "name: d");
    let text = error(&format!("{}---\n{other}", settings("{template: 1}")));
    assert_eq!(
        text,
        "2 objects are malformed:\n  \
         FederatedConfigMap shop/c: spec.template: must be an object\n  \
         FederatedConfigMap shop/d: spec.template: must be an object"
    );
}

#[test]
fn malformed_objects_are_refused_by_object_and_field() {
    let cluster =
        "apiVersion: core.kubefed.io/v1beta1\nkind: KubeFedCluster\nmetadata: {name: a}\n";
    let table = [
        (cluster.to_owned(), "KubeFedCluster a: spec.apiEndpoint: must be set"),
        (
            format!("{cluster}spec: {{apiEndpoint: a}}\n"),
            "KubeFedCluster a: spec.secretRef.name: must be set",
        ),
        (format!("{cluster}---\n{cluster}"), "KubeFedCluster a appears more than once"),
        (
            settings("{placement: {clusters: [{}]}}"),
            "FederatedConfigMap shop/c: spec.placement.clusters[0].name: must be set",
        ),
        (
            settings("{template: 1}"),
            "FederatedConfigMap shop/c: spec.template: must be an object",
        ),
        (
            settings("{overrides: [{clusterName: a}, {clusterName: a}]}"),
            "FederatedConfigMap shop/c: spec.overrides[1].clusterName: a appears more than once",
        ),
        (
            settings("{overrides: [{clusterName: a, clusterOverrides: [{path: /data, op: move}]}]}"),
            "FederatedConfigMap shop/c: spec.overrides[0].clusterOverrides[0].op: move is none of add, remove and replace",
        ),
        (
            "{apiVersion: types.kubefed.io/v1beta1, kind: FederatedNamespace, metadata: {namespace: a, name: b}}".to_owned(),
            "FederatedNamespace a/b: metadata.namespace: a federated namespace lies in the namespace of its name",
        ),
        (
            "{apiVersion: v1, kind: ConfigMap}".to_owned(),
            "ConfigMap : metadata.name: must be set",
        ),
    ];
    for (manifests, message) in table {
        assert_eq!(error(&manifests), message);
    }
}

#[test]
fn values_of_a_wrong_type_are_refused_by_field() {
    let table = r#"
1 => spec: must be an object
{placement: [a]} => spec.placement: must be an object
{placement: {clusters: {name: a}}} => spec.placement.clusters: must be a list
{placement: {clusterSelector: {matchLabels: [a]}}} => spec.placement.clusterSelector.matchLabels: must be an object
{placement: {clusterSelector: {matchLabels: {a: 1}}}} => spec.placement.clusterSelector.matchLabels[a]: must be a string
{placement: {clusterSelector: {matchExpressions: {}}}} => spec.placement.clusterSelector.matchExpressions: must be a list
{placement: {clusterSelector: {matchExpressions: [a]}}} => spec.placement.clusterSelector.matchExpressions[0].key: must be set
{placement: {clusterSelector: {matchExpressions: [{key: a, operator: In, values: b}]}}} => spec.placement.clusterSelector.matchExpressions[0].values: must be a list
{retainReplicas: "true"} => spec.retainReplicas: must be true or false
{template: {apiVersion: 1}} => spec.template.apiVersion: must be a string
{template: {metadata: a}} => spec.template.metadata: must be an object
{template: {metadata: {labels: a}}} => spec.template.metadata.labels: must be an object
{template: {metadata: {labels: {a: true}}}} => spec.template.metadata.labels[a]: must be a string
{overrides: {clusterName: a}} => spec.overrides: must be a list
{overrides: [{clusterName: a, clusterOverrides: {path: /data}}]} => spec.overrides[0].clusterOverrides: must be a list
{overrides: [{clusterName: a, clusterOverrides: [{path: /data, op: 1}]}]} => spec.overrides[0].clusterOverrides[0].op: must be a string
{overrides: [{clusterName: a, clusterOverrides: [{path: /metadata/labels/a, value: 1}]}]} => spec.overrides[0].clusterOverrides[0].value: must be a string
{overrides: [{clusterName: a, clusterOverrides: [{path: /metadata/labels/a}]}]} => spec.overrides[0].clusterOverrides[0].value: must be a string
{overrides: [{clusterName: a, clusterOverrides: [{path: /metadata/annotations, value: a}]}]} => spec.overrides[0].clusterOverrides[0].value: must be an object
{overrides: [{clusterName: a, clusterOverrides: [{path: /metadata/annotations, value: {b: 1}}]}]} => spec.overrides[0].clusterOverrides[0].value[b]: must be a string
"#;
    for row in table.trim().lines() {
        let (spec, message) = row.split_once(" => ").unwrap();
        let message = format!("FederatedConfigMap shop/c: {message}");
        assert_eq!(error(&settings(spec)), message, "{spec}");
    }
    // Nothing is as good as an absent field.
    converted(&settings(
        "{placement: {clusters: null, clusterSelector: null}, overrides: null, template: {metadata: {labels: null}}}",
    ));
    let orphan =
        settings("{}").replace("name: c", "name: c, annotations: {kubefed.io/orphan: true}");
    assert_eq!(
        error(&orphan),
        "FederatedConfigMap shop/c: metadata.annotations[kubefed.io/orphan]: must be a string"
    );
    assert_eq!(
        error("{apiVersion: v1, kind: Namespace, metadata: {name: host, labels: [a]}}"),
        "Namespace host: metadata.labels: must be an object"
    );
}

#[test]
fn a_replica_preference_of_a_wrong_type_is_refused() {
    let table = r#"
spec: {replicas: 1}; clusters: [a] => ReplicaSchedulingPreference shop/c: spec.clusters: must be an object
spec: {replicas: 1}; clusters: {a: 1} => ReplicaSchedulingPreference shop/c: spec.clusters[a]: must be an object
spec: {replicas: 1}; clusters: {a: {weight: "2"}} => ReplicaSchedulingPreference shop/c: spec.clusters[a].weight: must be an integer
spec: {replicas: 1}; clusters: {a: {minReplicas: a}} => ReplicaSchedulingPreference shop/c: spec.clusters[a].minReplicas: must be an integer
spec: {replicas: 1}; rebalance: 1 => ReplicaSchedulingPreference shop/c: spec.rebalance: must be true or false
spec: str; clusters: {a: {weight: null}} => FederatedDeployment shop/c: spec.template.spec: must be an object
"#;
    for row in table.trim().lines() {
        let (fields, message) = row.split_once(" => ").unwrap();
        let (template, preference) = fields.split_once("; ").unwrap();
        let object = settings(&format!("{{template: {{{template}}}}}"))
            .replace("FederatedConfigMap", "FederatedDeployment");
        let preference = format!(
            "---\napiVersion: scheduling.kubefed.io/v1alpha1\nkind: ReplicaSchedulingPreference\nmetadata: {{namespace: shop, name: c}}\nspec: {{targetKind: FederatedDeployment, totalReplicas: 2, {preference}}}\n"
        );
        let text = error(&format!("{object}{preference}"));
        assert!(text.ends_with(message), "{text}");
    }
}

#[test]
fn a_whole_map_of_metadata_is_replaced_where_nothing_has_to_go() {
    let labels = "path: /metadata/labels";
    let add = |overrider: &str, value: Value| {
        Some(json!({overrider: [{"operator": "add", "value": value}]}))
    };
    let table = [
        (
            format!("{labels}, value: {{app: b, tier: c}}"),
            add("labelsOverrider", json!({"app": "b", "tier": "c"})),
        ),
        (format!("{labels}, value: {{tier: c}}"), None),
        (format!("{labels}, op: add, value: {{tier: c}}"), None),
        (format!("{labels}, op: remove, value: {{app: a}}"), None),
        (format!("{labels}, op: remove"), None),
        (
            "path: /metadata/annotations, op: replace, value: {team: shop}".to_owned(),
            add("annotationsOverrider", json!({"team": "shop"})),
        ),
        (
            "path: /metadata/annotations, op: remove, value: {team: shop}".to_owned(),
            None,
        ),
    ];
    for (change, overriders) in table {
        let conversion = converted(&settings(&format!(
            "{{template: {{metadata: {{labels: {{app: a}}}}}}, overrides: [{{clusterName: a, clusterOverrides: [{{{change}}}]}}]}}"
        )));
        let losses = findings(&conversion, Severity::Loss);
        let field = "FederatedConfigMap shop/c spec.overrides[0].clusterOverrides[0].path";
        let policies = of_kind(&conversion, "OverridePolicy");
        let rules = policies
            .iter()
            .map(|p| &p["spec"]["overrideRules"][0]["overriders"]);
        assert_eq!(
            losses.contains(&field.to_owned()),
            overriders.is_none(),
            "{change}"
        );
        assert_eq!(
            rules.collect::<Vec<_>>(),
            overriders.iter().collect::<Vec<_>>(),
            "{change}"
        );
    }
}

#[test]
fn the_token_of_a_cluster_may_be_plain_text() {
    let cluster = "apiVersion: core.kubefed.io/v1beta1\nkind: KubeFedCluster\nmetadata: {namespace: fed, name: east}\nspec: {apiEndpoint: east, secretRef: {name: t}}\n---\n";
    let secret = |data: &str| {
        format!(
            "{cluster}{{apiVersion: v1, kind: Secret, metadata: {{namespace: fed, name: t}}, {data}}}"
        )
    };
    let conversion = converted(&secret("data: {token: b2xk}, stringData: {token: token}"));
    assert_eq!(
        of_kind(&conversion, "Secret")[0]["data"],
        json!({"token": "dG9rZW4="})
    );
    let conversion = converted(&secret("data: {ca.crt: Y2E=}"));
    assert!(of_kind(&conversion, "Secret").is_empty());
    let notes = findings(&conversion, Severity::Note);
    assert!(notes.contains(&"KubeFedCluster fed/east spec.secretRef".to_owned()));
    assert_eq!(
        error(&secret("data: {token: 1}")),
        "KubeFedCluster fed/east: Secret fed/t: data.token: must be a string"
    );
}

// proves: CLI-convert-unknown-type
#[test]
fn a_federated_type_without_configuration_is_a_loss() {
    let object = settings("{template: {}, placement: {}}");
    let conversion = converted(&object.replace("types.kubefed.io", "types.example.com"));
    assert_eq!(
        findings(&conversion, Severity::Loss),
        ["FederatedConfigMap shop/c apiVersion"]
    );
    assert_eq!(conversion.manifests().count(), 0);
}

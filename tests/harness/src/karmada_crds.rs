//! The CustomResourceDefinitions that a Karmada installation creates, as GitOps
//! repositories contain them: names, scopes and versions of `charts/karmada/_crds` and of
//! Karmada's operator (v1.19), with schemas that preserve unknown fields.

use serde_json::{Value, json};

/// Plural, group, kind, short name, whether it is namespaced, versions (the last one is
/// the storage version), and whether the kind is built into Flotilla.
type KarmadaCrdInfo = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    bool,
    &'static [&'static str],
    bool,
);

const V1ALPHA1: &[&str] = &["v1alpha1"];
const V1ALPHA1_AND_V1ALPHA2: &[&str] = &["v1alpha1", "v1alpha2"];

#[rustfmt::skip]
const DEFINITION_ROWS: &[KarmadaCrdInfo] = &[
    ("workloadrebalancers", "apps.karmada.io", "WorkloadRebalancer", "", false, V1ALPHA1, true),
    ("cronfederatedhpas", "autoscaling.karmada.io", "CronFederatedHPA", "cronfhpa", true, V1ALPHA1, true),
    ("federatedhpas", "autoscaling.karmada.io", "FederatedHPA", "fhpa", true, V1ALPHA1, true),
    ("resourceinterpretercustomizations", "config.karmada.io", "ResourceInterpreterCustomization", "ric", false, V1ALPHA1, true),
    ("resourceinterpreterwebhookconfigurations", "config.karmada.io", "ResourceInterpreterWebhookConfiguration", "", false, V1ALPHA1, true),
    ("serviceexports", "multicluster.x-k8s.io", "ServiceExport", "svcex", true, V1ALPHA1, true),
    ("serviceimports", "multicluster.x-k8s.io", "ServiceImport", "svcim", true, V1ALPHA1, true),
    ("multiclusteringresses", "networking.karmada.io", "MultiClusterIngress", "mci", true, V1ALPHA1, true),
    ("multiclusterservices", "networking.karmada.io", "MultiClusterService", "mcs", true, V1ALPHA1, true),
    ("clusteroverridepolicies", "policy.karmada.io", "ClusterOverridePolicy", "cop", false, V1ALPHA1, true),
    ("clusterpropagationpolicies", "policy.karmada.io", "ClusterPropagationPolicy", "cpp", false, V1ALPHA1, true),
    ("clustertaintpolicies", "policy.karmada.io", "ClusterTaintPolicy", "", false, V1ALPHA1, true),
    ("federatedresourcequotas", "policy.karmada.io", "FederatedResourceQuota", "", true, V1ALPHA1, true),
    ("overridepolicies", "policy.karmada.io", "OverridePolicy", "op", true, V1ALPHA1, true),
    ("propagationpolicies", "policy.karmada.io", "PropagationPolicy", "pp", true, V1ALPHA1, true),
    ("remedies", "remedy.karmada.io", "Remedy", "", false, V1ALPHA1, true),
    ("clusterresourcebindings", "work.karmada.io", "ClusterResourceBinding", "crb", false, V1ALPHA1_AND_V1ALPHA2, true),
    ("resourcebindings", "work.karmada.io", "ResourceBinding", "rb", true, V1ALPHA1_AND_V1ALPHA2, true),
    ("works", "work.karmada.io", "Work", "wk", true, V1ALPHA1, true),
    ("karmadas", "operator.karmada.io", "Karmada", "", true, V1ALPHA1, false),
];

/// One CustomResourceDefinition, and whether its kind is built into Flotilla.
pub struct KarmadaCrd {
    pub name: String,
    pub object: Value,
    pub built_in: bool,
}

/// Returns all definitions.
pub fn karmada_definitions() -> Vec<KarmadaCrd> {
    DEFINITION_ROWS.iter().map(definition_from_row).collect()
}

fn definition_from_row(row: &KarmadaCrdInfo) -> KarmadaCrd {
    let &(plural, group, kind, short, namespaced, versions, built_in) = row;
    let stored = versions.last();
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| {
            let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            json!({"name": version, "served": true, "storage": Some(version) == stored,
                "schema": {"openAPIV3Schema": open}, "subresources": {"status": {}}})
        })
        .collect();
    let conversion = match versions.len() {
        1 => json!({"strategy": "None"}),
        _ => json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://karmada-webhook.karmada-system.svc:443/convert"}}}),
    };
    let short: Vec<&str> = Some(short).filter(|s| !s.is_empty()).into_iter().collect();
    let name = format!("{plural}.{group}");
    let object = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {
            "group": group,
            "scope": if namespaced { "Namespaced" } else { "Cluster" },
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind,
                "listKind": format!("{kind}List"), "shortNames": short, "categories": ["karmada-io"]},
            "conversion": conversion,
            "versions": versions,
        },
    });
    KarmadaCrd {
        name,
        object,
        built_in,
    }
}

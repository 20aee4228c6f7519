//! The kinds of Karmada's API (v1.19) and of KubeFed's scheduling (v0.10), with what a server shows
//! of each: names, scope, subresources and printer columns. A ResourceRegistry shows its age, in Karmada its creation time.
//!
//! Sources: Karmada's `charts/karmada/_crds/bases`, `pkg/registry/{cluster,search}` and
//! `pkg/printers/internalversion/printers.go`.

use std::collections::BTreeSet;
use std::path::Path;

use client::{Api, ListOptions, ResourcePath};
use machinery::Gvr;
use serde_json::Value;

use crate::cluster::connect_remote;

/// The properties of a kind as a server shows them. Words are separated by spaces.
struct KarmadaKind {
    group_version: &'static str,
    resource: &'static str,
    kind: &'static str,
    namespaced: bool,
    short_names: &'static str,
    categories: &'static str,
    subresources: &'static str,
    columns: &'static [&'static str],
}

macro_rules! kinds {
    ($($version:literal $resource:literal $kind:literal $namespaced:literal
        $short:literal $categories:literal $subresources:literal $columns:expr;)*) => {
        &[$(KarmadaKind {
            group_version: $version,
            resource: $resource,
            kind: $kind,
            namespaced: $namespaced,
            short_names: $short,
            categories: $categories,
            subresources: $subresources,
            columns: $columns,
        },)*]
    };
}

const NAME_AND_AGE: &[&str] = &["Name", "Age"];
const POLICY: &[&str] = &["Name", "CONFLICT-RESOLUTION", "PRIORITY", "AGE"];
const BINDING: &[&str] = &["Name", "SCHEDULED", "FULLYAPPLIED", "AGE"];
const QUOTA: &[&str] = &["Name", "OVERALL", "OVERALL_USED"];
const WORK: &[&str] = &["Name", "WORKLOAD-KIND", "APPLIED", "AGE"];
const CUSTOMIZATION: &[&str] = &["Name", "TARGET-API-VERSION", "TARGET-KIND", "AGE"];
#[rustfmt::skip]
const FEDERATED_HPA: &[&str] =
    &["Name", "REFERENCE-KIND", "REFERENCE-NAME", "MINPODS", "MAXPODS", "REPLICAS", "AGE"];
const CRON_FEDERATED_HPA: &[&str] = &["Name", "REFERENCE-KIND", "REFERENCE-NAME", "AGE"];
const SERVICE_IMPORT: &[&str] = &["Name", "Type", "IP", "Age"];
const CLUSTER_PROFILE: &[&str] = &["Name", "Manager", "Version", "Healthy", "Age"];
#[rustfmt::skip]
const CLUSTER: &[&str] = &["Name", "Version", "Mode", "Ready", "Age",
    "Zones", "Region", "Provider", "API-Endpoint", "Proxy-URL"];

#[rustfmt::skip]
const KINDS: &[KarmadaKind] = kinds! {
    "policy.karmada.io/v1alpha1" "propagationpolicies" "PropagationPolicy" true "pp" "karmada-io" "" POLICY;
    "policy.karmada.io/v1alpha1" "clusterpropagationpolicies" "ClusterPropagationPolicy" false "cpp" "karmada-io" "" POLICY;
    "policy.karmada.io/v1alpha1" "overridepolicies" "OverridePolicy" true "op" "karmada-io" "" NAME_AND_AGE;
    "policy.karmada.io/v1alpha1" "clusteroverridepolicies" "ClusterOverridePolicy" false "cop" "karmada-io" "" NAME_AND_AGE;
    "policy.karmada.io/v1alpha1" "federatedresourcequotas" "FederatedResourceQuota" true "" "karmada-io" "status" QUOTA;
    "policy.karmada.io/v1alpha1" "clustertaintpolicies" "ClusterTaintPolicy" false "" "" "" NAME_AND_AGE;
    "work.karmada.io/v1alpha2" "resourcebindings" "ResourceBinding" true "rb" "karmada-io" "status" BINDING;
    "work.karmada.io/v1alpha2" "clusterresourcebindings" "ClusterResourceBinding" false "crb" "karmada-io" "status" BINDING;
    "work.karmada.io/v1alpha1" "resourcebindings" "ResourceBinding" true "rb" "karmada-io" "status" NAME_AND_AGE;
    "work.karmada.io/v1alpha1" "clusterresourcebindings" "ClusterResourceBinding" false "crb" "karmada-io" "status" NAME_AND_AGE;
    "work.karmada.io/v1alpha1" "works" "Work" true "wk" "karmada-io" "status" WORK;
    "config.karmada.io/v1alpha1" "resourceinterpretercustomizations" "ResourceInterpreterCustomization" false "ric" "karmada-io" "" CUSTOMIZATION;
    "config.karmada.io/v1alpha1" "resourceinterpreterwebhookconfigurations" "ResourceInterpreterWebhookConfiguration" false "" "karmada-io" "" NAME_AND_AGE;
    "apps.karmada.io/v1alpha1" "workloadrebalancers" "WorkloadRebalancer" false "" "" "status" NAME_AND_AGE;
    "autoscaling.karmada.io/v1alpha1" "federatedhpas" "FederatedHPA" true "fhpa" "karmada-io" "status" FEDERATED_HPA;
    "autoscaling.karmada.io/v1alpha1" "cronfederatedhpas" "CronFederatedHPA" true "cronfhpa" "karmada-io" "status" CRON_FEDERATED_HPA;
    "networking.karmada.io/v1alpha1" "multiclusteringresses" "MultiClusterIngress" true "mci" "karmada-io" "status" NAME_AND_AGE;
    "networking.karmada.io/v1alpha1" "multiclusterservices" "MultiClusterService" true "mcs" "karmada-io" "status" NAME_AND_AGE;
    "core.kubefed.io/v1beta1" "federatedtypeconfigs" "FederatedTypeConfig" true "ftc" "" "status" NAME_AND_AGE;
    "remedy.karmada.io/v1alpha1" "remedies" "Remedy" false "" "karmada-io" "" NAME_AND_AGE;
    "multicluster.x-k8s.io/v1alpha1" "serviceexports" "ServiceExport" true "svcex" "" "status" NAME_AND_AGE;
    "multicluster.x-k8s.io/v1alpha1" "serviceimports" "ServiceImport" true "svcim" "" "status" SERVICE_IMPORT;
    "multicluster.x-k8s.io/v1alpha1" "clusterprofiles" "ClusterProfile" true "" "" "status" CLUSTER_PROFILE;
    "scheduling.kubefed.io/v1alpha1" "replicaschedulingpreferences" "ReplicaSchedulingPreference" true "rsp" "" "" NAME_AND_AGE;
    "cluster.karmada.io/v1alpha1" "clusters" "Cluster" false "" "" "proxy status" CLUSTER;
    "search.karmada.io/v1alpha1" "resourceregistries" "ResourceRegistry" false "" "" "status" NAME_AND_AGE;
};

/// Asserts that the server of a kubeconfig serves every kind of Karmada: that discovery, Tables
/// and the OpenAPI documents show what Karmada's do. Must be called where tokio runs.
pub async fn assert_karmada_kinds_are_served(kubeconfig: &Path) {
    let api = connect_remote(kubeconfig);
    // A host older than 1.24 has none.
    let has_openapi_v3 = api.get_raw("/openapi/v3").await.is_ok();
    for expected in KINDS {
        let at = format!("{}/{}", expected.group_version, expected.resource);
        let resources = get(&api, &format!("/apis/{}", expected.group_version)).await;
        assert_discovered(&resources, expected, &at);
        let (group, version) = expected.group_version.split_once('/').unwrap();
        let resource = Gvr::new(group, version, expected.resource);
        let (all, options) = (
            ResourcePath::collection(&resource, ""),
            ListOptions::default(),
        );
        let table = api.get_table(all, &options, false);
        let table: Value = machinery::json::from_slice(&table.await.unwrap()).unwrap();
        let columns = table["columnDefinitions"].as_array().unwrap().iter();
        let columns: Vec<&str> = columns.map(|c| c["name"].as_str().unwrap()).collect();
        assert_eq!(columns, expected.columns, "{at}");
        if !has_openapi_v3 {
            continue;
        }
        let path = format!("/openapi/v3/apis/{}", expected.group_version);
        assert_has_schema(&get(&api, &path).await, expected, &at);
    }
}

async fn get(api: &dyn Api, path: &str) -> Value {
    let answer = api.get_raw(path).await;
    let answer = answer.unwrap_or_else(|message| panic!("{path}: {message}"));
    machinery::json::from_slice(&answer).unwrap()
}

fn words(list: &Value) -> BTreeSet<&str> {
    let all = list.as_array().into_iter().flatten();
    all.map(|word| word.as_str().unwrap()).collect()
}

fn assert_discovered(resources: &Value, expected: &KarmadaKind, at: &str) {
    let resources = resources["resources"].as_array().unwrap();
    let named = |resource: &&Value| resource["name"] == expected.resource;
    let entry = resources.iter().find(named);
    let entry = entry.unwrap_or_else(|| panic!("{at} is not served"));
    assert_eq!(entry["kind"], expected.kind, "{at}");
    assert_eq!(entry["namespaced"], expected.namespaced, "{at}");
    let expected_words = |text: &'static str| text.split_whitespace().collect::<BTreeSet<_>>();
    let short_names = words(&entry["shortNames"]);
    assert_eq!(short_names, expected_words(expected.short_names), "{at}");
    let categories = words(&entry["categories"]);
    assert_eq!(categories, expected_words(expected.categories), "{at}");
    let prefix = format!("{}/", expected.resource);
    let names = resources.iter().map(|r| r["name"].as_str().unwrap());
    let subresources: BTreeSet<&str> = names.filter_map(|n| n.strip_prefix(&*prefix)).collect();
    // Bindings have one more, which is Flotilla's own.
    let expected_names = expected_words(expected.subresources);
    assert!(
        subresources.is_superset(&expected_names),
        "{at}: {subresources:?}"
    );
}

/// A schema of the kind that says something about its fields.
fn assert_has_schema(document: &Value, expected: &KarmadaKind, at: &str) {
    let (group, version) = expected.group_version.split_once('/').unwrap();
    let of_kind = |schema: &&Value| {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array();
        kinds.into_iter().flatten().any(|kind| {
            kind["group"] == group && kind["version"] == version && kind["kind"] == expected.kind
        })
    };
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let schema = schemas.values().find(of_kind);
    let schema = schema.unwrap_or_else(|| panic!("no schema of {at}"));
    let properties = schema["properties"].as_object().unwrap();
    assert!(properties.len() > 2, "{at}: {properties:?}");
}

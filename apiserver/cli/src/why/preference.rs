//! Finds why a ReplicaSchedulingPreference has not the effect that its author may expect.

use std::collections::BTreeMap;

use client::{Api, ResourcePath};
use karmada_api::replica_preference::{
    OTHER_CLUSTERS, ReplicaSchedulingPreference, ReplicaSchedulingPreferenceSpec,
};
use karmada_api::resources::REPLICA_PREFERENCES;
use machinery::Object;

/// Remarks on the preference of the template's name; none if there is none, or the user may not
/// read it.
pub(super) async fn read_remarks<C>(
    api: &dyn Api,
    template: &Object,
    kind: &str,
    clusters: &BTreeMap<String, C>,
) -> Vec<String> {
    let (namespace, name) = (template.namespace(), template.name());
    let at = ResourcePath::object(&REPLICA_PREFERENCES, namespace, name);
    if namespace.is_empty() {
        return Vec::new();
    }
    let Ok(preference) = api.get(at).await else {
        return Vec::new();
    };
    let view = preference.decode::<ReplicaSchedulingPreference>();
    let remarks = view.map(|view| remarks(&view.spec, kind, clusters));
    let about = |remark: String| {
        format!(
            "the ReplicaSchedulingPreference {} {remark}",
            preference.meta().key()
        )
    };
    let remarks = remarks.unwrap_or_default().into_iter();
    remarks.map(about).collect()
}

pub(super) fn remarks<C>(
    spec: &ReplicaSchedulingPreferenceSpec,
    kind: &str,
    clusters: &BTreeMap<String, C>,
) -> Vec<String> {
    if !spec.targets(kind) {
        let target = &spec.target_kind;
        return vec![format!(
            "does not divide it: its spec.targetKind is {target}, not {kind}"
        )];
    }
    let named = spec.clusters.keys();
    let unknown: Vec<&str> = named
        .map(String::as_str)
        .filter(|name| *name != OTHER_CLUSTERS && !clusters.contains_key(*name))
        .collect();
    match unknown.as_slice() {
        [] => Vec::new(),
        names => vec![format!(
            "names clusters that do not exist (spec.clusters): {}",
            names.join(", ")
        )],
    }
}

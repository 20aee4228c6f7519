//! Index of bindings by their affinity and anti-affinity groups.

use karmada_api::ResourceBinding;
use machinery::Object;

/// The name of the index.
pub(super) const AFFINITY_GROUP_INDEX: &str = "affinity-group";

/// The affinity groups of a binding, as keys of an index.
pub(super) fn affinity_group_keys(object: &Object) -> Vec<String> {
    let Ok(binding) = object.decode::<ResourceBinding>() else {
        return Vec::new();
    };
    let Some(groups) = &binding.spec.workload_affinity_groups else {
        return Vec::new();
    };
    let namespace = object.namespace();
    let with = ("together", &groups.affinity_group);
    let against = ("apart", &groups.anti_affinity_group);
    [with, against]
        .into_iter()
        .filter(|(_, group)| !group.is_empty())
        .map(|(how, group)| format!("{namespace} {how} {group}"))
        .collect()
}

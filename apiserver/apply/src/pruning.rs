//! Removes the fields that an applier applied before, now omits, and that nobody else owns
//! (`merge/update.go`, `prune`).

use std::collections::BTreeMap;

use crate::field_set::FieldSet;
use crate::manager::{ManagedFieldSet, ManagerId, ManagerSets};
use crate::version_conversion::{TypedObject, VersionConversionError, VersionedConverter};

/// The merged object without the fields of `last` that no manager owns. `managers` contains
/// the new set of the applier.
pub(crate) fn prune<'v>(
    converter: &'v dyn VersionedConverter,
    merged: TypedObject<'v>,
    managers: &ManagerSets,
    applier: &ManagerId,
    last: Option<&ManagedFieldSet>,
) -> Result<TypedObject<'v>, VersionConversionError> {
    let Some(last) = last.filter(|last| !last.set.is_empty()) else {
        return Ok(merged);
    };
    let pruned = {
        let Some(converted) = merged.convert_if_served(converter, &last.api_version)? else {
            return Ok(merged);
        };
        let pruned = converted.remove(&converted.complete(&last.set));
        let pruned = add_back_owned(converter, &converted, pruned, managers)?;
        let pruned = add_back_dangling(converter, &converted, &pruned, &last.set)?;
        let version = match managers.get(applier) {
            Some(applied) => &*applied.api_version,
            None => merged.api_version,
        };
        pruned.convert(converter, version)?.value.into_owned()
    };
    Ok(merged.with_value(pruned))
}

/// Adds back the fields that a manager owns, in the version in which it owns them.
fn add_back_owned<'v>(
    converter: &'v dyn VersionedConverter,
    merged: &TypedObject<'v>,
    pruned: TypedObject<'v>,
    managers: &'v ManagerSets,
) -> Result<TypedObject<'v>, VersionConversionError> {
    let mut by_version: BTreeMap<&str, FieldSet> = BTreeMap::new();
    for managed in managers.values() {
        let set = by_version.entry(&managed.api_version).or_default();
        *set = set.union(&managed.set);
    }
    let mut pruned = pruned;
    // The version of the pruned object comes first: a conversion may need fields that were
    // removed from it.
    let applied_version = merged.api_version;
    let applied_version = by_version
        .remove(applied_version)
        .map(|set| (applied_version, set));
    for (version, owned) in applied_version.into_iter().chain(by_version) {
        let Some(merged) = merged.convert_if_served(converter, version)? else {
            continue;
        };
        let restored = {
            let Some(converted) = pruned.convert_if_served(converter, version)? else {
                continue;
            };
            let kept_fields = converted.complete_field_set();
            let removed = merged
                .complete_field_set()
                .difference(&kept_fields.union(&merged.complete(&owned)));
            merged.remove(&removed).value.into_owned()
        };
        pruned = TypedObject::new(converter, std::borrow::Cow::Owned(restored), version)?;
    }
    Ok(pruned)
}

/// Adds back what disappeared although the applier did not own it, like an item whose
/// parent it owned.
fn add_back_dangling<'v>(
    converter: &'v dyn VersionedConverter,
    merged: &TypedObject<'v>,
    pruned: &TypedObject<'v>,
    last: &FieldSet,
) -> Result<TypedObject<'v>, VersionConversionError> {
    let kept_fields = match pruned.convert_if_served(converter, merged.api_version)? {
        Some(pruned) => pruned.complete_field_set(),
        None => return Ok(merged.clone()),
    };
    let removed = merged.complete_field_set().difference(&kept_fields);
    Ok(merged.remove(&removed.intersection(&merged.complete(last))))
}

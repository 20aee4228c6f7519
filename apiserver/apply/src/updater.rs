//! Moves the ownership of fields when an object is written (`merge/update.go`).

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use crate::conflict::Conflicts;
use crate::field_set::FieldSet;
use crate::json_order::equal;
use crate::manager::{ManagedFieldSet, ManagerId, ManagerSets};
use crate::pruning::prune;
use crate::reset_fields::ResetFields;
use crate::typed::{self, Comparison, ValidationErrors};
use crate::version_conversion::{TypedObject, VersionConversionError, VersionedConverter};

/// Why ownership was not moved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpdaterError {
    /// Others own fields that the applier would change.
    #[error("{0}")]
    Conflicts(Conflicts),
    /// The object cannot be converted to a version in which fields are owned.
    #[error(transparent)]
    Conversion(#[from] VersionConversionError),
    /// The configuration cannot be merged into the object.
    #[error("failed to merge config: {0}")]
    Merge(#[from] ValidationErrors),
}

/// Moves ownership for the writes to one kind.
#[derive(Clone, Copy)]
pub struct Updater<'a> {
    pub converter: &'a dyn VersionedConverter,
    pub reset_fields: &'a ResetFields,
}

impl<'a> Updater<'a> {
    /// After a write other than apply: `manager` owns what it changed, and all others lose
    /// it.
    pub fn update(
        &self,
        live: &Value,
        new: &Value,
        api_version: &str,
        managers: ManagerSets,
        manager: &ManagerId,
    ) -> Result<ManagerSets, UpdaterError> {
        let changes = self.compare_in(live, new, api_version)?;
        self.update_compared(live, new, api_version, managers, manager, &changes)
    }

    /// As [`Self::update`], with the comparison of the objects.
    pub(crate) fn update_compared(
        &self,
        live: &Value,
        new: &Value,
        api_version: &str,
        managers: ManagerSets,
        manager: &ManagerId,
        changes: &Comparison,
    ) -> Result<ManagerSets, UpdaterError> {
        let mut managers = self.reconcile_with_schemas(managers);
        let live = TypedObject::new(self.converter, Cow::Borrowed(live), api_version)?;
        let new = TypedObject::new(self.converter, Cow::Borrowed(new), api_version)?;
        self.transfer(&live, &new, changes, &mut managers, manager, true)?;
        let previous = managers.remove(manager).map(|m| m.set).unwrap_or_default();
        let set = previous
            .difference(&changes.removed)
            .union(&changes.modified)
            .union(&changes.added);
        let set = self.reset_fields.exclude_from(set);
        if !set.is_empty() {
            let api_version = api_version.into();
            managers.insert(manager.clone(), ManagedFieldSet { set, api_version });
        }
        Ok(managers)
    }

    /// Compares two objects of a version, without its reset fields.
    pub(crate) fn compare_in(
        &self,
        live: &Value,
        new: &Value,
        api_version: &str,
    ) -> Result<Comparison, UpdaterError> {
        let live = TypedObject::new(self.converter, Cow::Borrowed(live), api_version)?;
        let new = TypedObject::new(self.converter, Cow::Borrowed(new), api_version)?;
        Ok(self.compare(&live, &new))
    }

    /// Applies a configuration: merges it, removes what `manager` no longer applies and
    /// nobody else owns, and makes it own exactly its configuration. `None` instead of an
    /// object that is equal to the live one.
    pub fn apply(
        &self,
        live: &Value,
        config: &Value,
        api_version: &str,
        managers: ManagerSets,
        manager: &ManagerId,
        force: bool,
    ) -> Result<(Option<Value>, ManagerSets), UpdaterError> {
        let mut managers = self.reconcile_with_schemas(managers);
        let live = TypedObject::new(self.converter, Cow::Borrowed(live), api_version)?;
        let merged = live.with_value(typed::merge(live.field_type, &live.value, config)?);
        let set = typed::field_set_of(live.field_type, config);
        let set = self.reset_fields.exclude_from(set);
        let api_version = api_version.into();
        let last = managers.insert(manager.clone(), ManagedFieldSet { set, api_version });
        let new = prune(self.converter, merged, &managers, manager, last.as_ref())?;
        let changes = self.compare(&live, &new);
        self.transfer(&live, &new, &changes, &mut managers, manager, force)?;
        let new = new.value.into_owned();
        Ok(((!equal(&live.value, &new)).then_some(new), managers))
    }

    /// Takes the fields by which two objects differ away from all managers but `writer`,
    /// unless that is a conflict and `force` is not set.
    fn transfer(
        &self,
        old: &TypedObject<'_>,
        new: &TypedObject<'_>,
        changes: &Comparison,
        managers: &mut ManagerSets,
        writer: &ManagerId,
        force: bool,
    ) -> Result<(), UpdaterError> {
        // The changes by version: the fields that were removed, and all others.
        let mut by_version: BTreeMap<Box<str>, Option<ChangedFields>> = BTreeMap::new();
        by_version.insert(old.api_version.into(), Some(ChangedFields::new(changes)));
        let mut conflicts = BTreeMap::new();
        let mut unknown = Vec::new();
        for (id, managed) in managers.iter().filter(|(id, _)| *id != writer) {
            let version = &managed.api_version;
            if !by_version.contains_key(version) {
                let changed = self.changes_in_version(old, new, version)?;
                by_version.insert(version.clone(), changed);
            }
            match by_version.get(version) {
                Some(Some(changed)) => {
                    let conflict = managed.set.intersection(&changed.set);
                    if !conflict.is_empty() {
                        conflicts.insert(id.clone(), conflict);
                    }
                }
                _ => unknown.push(id.clone()),
            }
        }
        if !force && let Some(conflicts) = Conflicts::new(conflicts.clone()) {
            return Err(UpdaterError::Conflicts(conflicts));
        }
        for id in unknown {
            managers.remove(&id);
        }
        for (id, managed) in managers.iter_mut().filter(|(id, _)| *id != writer) {
            if let Some(conflict) = conflicts.get(id) {
                managed.set = managed.set.difference(conflict);
            }
            if let Some(Some(changed)) = by_version.get(&managed.api_version)
                && !changed.removed.is_empty()
            {
                managed.set = managed.set.difference(&changed.removed);
            }
        }
        managers.retain(|_, managed| !managed.set.is_empty());
        Ok(())
    }

    fn compare(&self, old: &TypedObject<'_>, new: &TypedObject<'_>) -> Comparison {
        let comparison = typed::compare(old.field_type, &old.value, &new.value);
        self.reset_fields.exclude_from_comparison(comparison)
    }

    /// `None` if the version is not served.
    fn changes_in_version(
        &self,
        old: &TypedObject<'_>,
        new: &TypedObject<'_>,
        api_version: &str,
    ) -> Result<Option<ChangedFields>, UpdaterError> {
        let old = old.convert_if_served(self.converter, api_version)?;
        let new = new.convert_if_served(self.converter, api_version)?;
        Ok(old
            .zip(new)
            .map(|(old, new)| ChangedFields::new(&self.compare(&old, &new))))
    }

    /// Adapts the sets to schemas that changed since they were written, and drops sets of unknown
    /// versions.
    fn reconcile_with_schemas(&self, managers: ManagerSets) -> ManagerSets {
        let adapted = managers.into_iter().filter_map(|(id, mut managed)| {
            let field_type = self.converter.field_type(&managed.api_version)?;
            if let Some(set) = typed::reconcile_with_schema(field_type, &managed.set) {
                managed.set = set;
            }
            Some((id, managed))
        });
        adapted.collect()
    }
}

/// The differences of an object in one version.
struct ChangedFields {
    removed: FieldSet,
    /// Modified and added.
    set: FieldSet,
}

impl ChangedFields {
    fn new(comparison: &Comparison) -> Self {
        Self {
            removed: comparison.removed.clone(),
            set: comparison.modified.union(&comparison.added),
        }
    }
}

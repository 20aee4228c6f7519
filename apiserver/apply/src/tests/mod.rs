//! Tests of the crate, with the cases of `structured-merge-diff` and `managedfields`.

mod entries;
mod fixtures;
mod leaves;
mod list_merge;
mod nested;
mod object_writes;
mod properties;
mod real_kinds;
mod removal;
mod schema_change;
mod serialization;
mod sets;
mod versions;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::conflict::Conflicts;
use crate::manager::{ManagerId, ManagerOperation, ManagerSets};
use crate::path_element::path_text;
use crate::reset_fields::ResetFields;
use crate::typed::{DuplicateItems, validate};
use crate::updater::{Updater, UpdaterError};
use crate::version_conversion::VersionedConverter;

/// An object that managers write one after the other.
pub(super) struct ManagedObjectHistory<'c> {
    pub(super) converter: &'c dyn VersionedConverter,
    pub(super) reset_fields: ResetFields,
    live: Value,
    live_version: String,
    managers: ManagerSets,
}

/// One identity for both operations, as in the tests of `structured-merge-diff`.
fn manager_id(name: &str) -> ManagerId {
    ManagerId::new(name, ManagerOperation::Apply, "", "")
}

impl<'c> ManagedObjectHistory<'c> {
    pub(super) fn new(converter: &'c dyn VersionedConverter) -> Self {
        Self {
            converter,
            reset_fields: ResetFields::default(),
            live: Value::Null,
            live_version: "v1".into(),
            managers: ManagerSets::new(),
        }
    }

    fn live_in(&self, version: &str) -> Value {
        if self.live_version == version {
            return self.live.clone();
        }
        self.converter
            .convert(&self.live, &self.live_version, version)
            .unwrap()
    }

    fn updater(&self) -> Updater<'_> {
        Updater {
            converter: self.converter,
            reset_fields: &self.reset_fields,
        }
    }

    fn try_apply(
        &mut self,
        manager: &str,
        version: &str,
        config: Value,
        force: bool,
    ) -> Result<(), Conflicts> {
        let field_type = self.converter.field_type(version).unwrap();
        validate(field_type, &config, DuplicateItems::Forbidden).unwrap();
        let live = self.live_in(version);
        let (managers, id) = (self.managers.clone(), manager_id(manager));
        let result = self
            .updater()
            .apply(&live, &config, version, managers, &id, force);
        match result {
            Ok((object, managers)) => {
                if let Some(object) = object {
                    self.live = object;
                    self.live_version = version.into();
                }
                self.managers = managers;
                Ok(())
            }
            Err(UpdaterError::Conflicts(conflicts)) => Err(conflicts),
            Err(other) => panic!("{other}"),
        }
    }

    pub(super) fn apply(&mut self, manager: &str, version: &str, config: Value) -> &mut Self {
        self.try_apply(manager, version, config, false).unwrap();
        self
    }

    pub(super) fn force(&mut self, manager: &str, version: &str, config: Value) -> &mut Self {
        self.try_apply(manager, version, config, true).unwrap();
        self
    }

    /// Applies, and expects conflicts: managers with paths.
    pub(super) fn conflicting(
        &mut self,
        manager: &str,
        version: &str,
        config: Value,
        expected: &[(&str, &str)],
    ) -> &mut Self {
        let conflicts = self.try_apply(manager, version, config, false).unwrap_err();
        let actual: Vec<(String, String)> = conflicts
            .listed()
            .0
            .iter()
            .map(|c| (c.manager.manager.to_string(), path_text(&c.path)))
            .collect();
        let expected: Vec<(String, String)> = expected
            .iter()
            .map(|(m, p)| ((*m).into(), (*p).into()))
            .collect();
        assert_eq!(actual, expected);
        self
    }

    pub(super) fn update(&mut self, manager: &str, version: &str, object: Value) -> &mut Self {
        let live = self.live_in(version);
        let managers = self.managers.clone();
        let id = manager_id(manager);
        self.managers = self
            .updater()
            .update(&live, &object, version, managers, &id)
            .unwrap();
        self.live = object;
        self.live_version = version.into();
        self
    }

    /// Expects the object in a version; null and an empty object are the same.
    pub(super) fn live(&mut self, version: &str, expected: Value) -> &mut Self {
        let live = match self.live_in(version) {
            Value::Null => serde_json::json!({}),
            live => live,
        };
        assert_eq!(live, expected);
        self
    }

    /// Expects managers with version and paths, separated by spaces.
    pub(super) fn owned(&mut self, expected: &[(&str, &str, &str)]) -> &mut Self {
        let actual: BTreeMap<String, (String, BTreeSet<String>)> = self
            .managers
            .iter()
            .map(|(id, managed)| {
                let paths = managed.set.to_string().lines().map(str::to_owned).collect();
                (
                    id.manager.to_string(),
                    (managed.api_version.to_string(), paths),
                )
            })
            .collect();
        let expected: BTreeMap<String, (String, BTreeSet<String>)> = expected
            .iter()
            .map(|(manager, version, paths)| {
                let paths = paths.split_whitespace().map(str::to_owned).collect();
                ((*manager).into(), ((*version).into(), paths))
            })
            .collect();
        assert_eq!(actual, expected);
        self
    }
}

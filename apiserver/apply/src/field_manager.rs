//! Maintains the managers of an object through its writes
//! (`managedfields/internal/fieldmanager.go` and the managers that it chains).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use machinery::Gvk;
use serde_json::Value;

use crate::conflict::Conflicts;
use crate::encoded_entries::{UnparsedEntry, encode_entries, unparsed_entries};
use crate::field_set::FieldSet;
use crate::last_applied::{KUBECTL_MANAGER, fields_last_applied, update_last_applied};
use crate::managed_fields::ManagedFields;
use crate::manager::{ManagedFieldSet, ManagerId, ManagerOperation, ManagerSets};
use crate::path_element::PathElement;
use crate::reset_fields::ResetFields;
use crate::typed::{Comparison, DuplicateItems, validate};
use crate::updater::{Updater, UpdaterError};
use crate::version_conversion::VersionedConverter;

/// How many entries of operation Update an object has before the oldest are united.
const MAX_UPDATE_MANAGERS: usize = 10;
/// The manager of the oldest updates.
const ANCIENT_CHANGES_MANAGER: &str = "ancient-changes";
/// The manager of the fields of an object without managers, once it is applied.
const BEFORE_FIRST_APPLY_MANAGER: &str = "before-first-apply";
/// The manager of a write without a manager.
const UNKNOWN_MANAGER: &str = "unknown";
/// Stands for the writer until it is known whether the write changes anything.
const CURRENT_OPERATION: &str = "current-operation";

/// Fields that nobody owns, since only the server sets them or since they name the object.
static UNOWNED_FIELDS: LazyLock<FieldSet> = LazyLock::new(|| {
    let top = ["apiVersion", "kind", "metadata"].map(|f| vec![f]);
    let metadata = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ]
    .map(|f| vec!["metadata", f]);
    let paths = top.into_iter().chain(metadata);
    paths
        .map(|path| path.into_iter().map(PathElement::field).collect::<Vec<_>>())
        .collect()
});

/// Why an object was not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The configuration is not one for this object (400).
    #[error("{0}")]
    BadRequest(String),
    /// Others own fields that it changes (409).
    #[error("{0}")]
    Conflicts(Conflicts),
    /// The configuration or the live object does not fit the schema (500, as in Kubernetes).
    #[error("{0}")]
    Internal(String),
}

/// The result of an apply.
#[derive(Clone, Debug)]
pub struct AppliedObject {
    /// The new object, without `metadata.managedFields`.
    pub object: Value,
    pub managed: ManagedFields,
    /// Whether the object differs from the live one.
    pub is_changed: bool,
}

/// Maintains managers for writes to one path of the API at one time.
///
/// Objects are in the version of the request and have no `metadata.managedFields`.
#[derive(Clone, Copy)]
pub struct FieldManager<'a> {
    pub converter: &'a dyn VersionedConverter,
    pub gvk: &'a Gvk,
    /// Empty for the object itself.
    pub subresource: &'a str,
    pub reset_fields: &'a ResetFields,
    pub now: Timestamp,
}

impl FieldManager<'_> {
    fn updater(&self) -> Updater<'_> {
        Updater {
            converter: self.converter,
            reset_fields: self.reset_fields,
        }
    }

    fn manager_id(&self, manager: &str, operation: ManagerOperation) -> ManagerId {
        let manager = match manager {
            "" => UNKNOWN_MANAGER,
            manager => manager,
        };
        let version = self.gvk.api_version();
        ManagerId::new(manager, operation, &version, self.subresource)
    }

    /// The managers after a create, update or patch. For a create, `live` is the empty
    /// object of the kind. An object that lost its managers gets none by an update.
    pub fn update(
        &self,
        live: &Value,
        new: &Value,
        managed: ManagedFields,
        manager: &str,
    ) -> Result<ManagedFields, UpdaterError> {
        let is_create = live["metadata"]["uid"].as_str().is_none_or(str::is_empty);
        if managed.is_empty() && !is_create {
            return Ok(managed);
        }
        self.track_update(live, new, managed, manager)
    }

    /// As [`Self::update`] with the text of `metadata.managedFields`, for an existing object.
    /// Only the entries that the write affects are parsed. `None`: there are no managers.
    pub fn update_json(
        &self,
        live: &Value,
        new: &Value,
        managed: &str,
        manager: &str,
    ) -> Result<Option<String>, UpdaterError> {
        let version = self.gvk.api_version();
        let parsed = unparsed_entries(managed).filter(|entries| !may_exceed_cap(entries));
        let Some(entries) = parsed else {
            let managed = ManagedFields::decode_json(managed).unwrap_or_default();
            return Ok(self.update(live, new, managed, manager)?.encode_json());
        };
        let changes = self.updater().compare_in(live, new, &version)?;
        let changed = changes.all();
        let writer = self.manager_id(manager, ManagerOperation::Update);
        let mut affected = ManagedFields::default();
        let mut unaffected = Vec::with_capacity(entries.len());
        for entry in entries {
            let is_unaffected = *entry.api_version == *version
                && (changed.is_empty() || entry.id != writer && !entry.is_affected(&changed));
            if is_unaffected {
                unaffected.push(entry);
            } else if entry.parse_into(&mut affected).is_err() {
                return Ok(None);
            }
        }
        if affected.is_empty() && unaffected.is_empty() {
            return Ok(None);
        }
        let affected = self.track_changes(live, new, affected, manager, &changes)?;
        Ok(encode_entries(&affected, &unaffected))
    }

    fn track_update(
        &self,
        live: &Value,
        new: &Value,
        managed: ManagedFields,
        manager: &str,
    ) -> Result<ManagedFields, UpdaterError> {
        let version = self.gvk.api_version();
        let changes = self.updater().compare_in(live, new, &version)?;
        self.track_changes(live, new, managed, manager, &changes)
    }

    fn track_changes(
        &self,
        live: &Value,
        new: &Value,
        managed: ManagedFields,
        manager: &str,
        changes: &Comparison,
    ) -> Result<ManagedFields, UpdaterError> {
        let version = self.gvk.api_version();
        let current = self.manager_id(CURRENT_OPERATION, ManagerOperation::Update);
        let ManagedFields { sets, mut times } = managed;
        let mut sets = self
            .updater()
            .update_compared(live, new, &version, sets, &current, changes)?;
        strip_unowned_fields(&mut sets, &current);
        // Only a write that sets a field changes the entry and its time.
        if let Some(changed) = sets.remove(&current) {
            let id = self.manager_id(manager, ManagerOperation::Update);
            let previous = sets.remove(&id).map(|m| m.set).unwrap_or_default();
            let set = changed.set.union(&previous);
            sets.insert(id.clone(), ManagedFieldSet { set, ..changed });
            times.insert(id, self.now);
        }
        let mut managed = ManagedFields { sets, times };
        cap_update_managers(&mut managed);
        Ok(managed)
    }

    /// Applies a configuration to the live object, for a create to the empty object of the
    /// kind.
    pub fn apply(
        &self,
        live: &Value,
        config: &Value,
        managed: ManagedFields,
        manager: &str,
        force: bool,
    ) -> Result<AppliedObject, ApplyError> {
        self.check_config(config)?;
        self.check_type(config, "patch", DuplicateItems::Forbidden)?;
        self.check_type(live, "live", DuplicateItems::Allowed)?;
        let managed = if managed.is_empty() {
            let gvk = self.gvk;
            let empty = serde_json::json!({"apiVersion": gvk.api_version(), "kind": &*gvk.kind});
            self.track_update(&empty, live, managed, BEFORE_FIRST_APPLY_MANAGER)
                .map_err(apply_error)?
        } else {
            managed
        };
        let is_kubectl = manager == KUBECTL_MANAGER;
        let managed_before = is_kubectl.then(|| managed.clone());
        let mut result = self.apply_config(live, config, managed, manager, force);
        if let (Err(UpdaterError::Conflicts(conflicts)), Some(managed)) = (&result, managed_before)
        {
            self.allow_last_applied(live, conflicts)?;
            result = self.apply_config(live, config, managed, manager, true);
        }
        let mut applied = result.map_err(apply_error)?;
        if is_kubectl {
            update_last_applied(&mut applied.object, config);
        }
        Ok(applied)
    }

    fn apply_config(
        &self,
        live: &Value,
        config: &Value,
        managed: ManagedFields,
        manager: &str,
        force: bool,
    ) -> Result<AppliedObject, UpdaterError> {
        let version = self.gvk.api_version();
        let id = self.manager_id(manager, ManagerOperation::Apply);
        let ManagedFields { sets, mut times } = managed;
        let (object, mut sets) = self
            .updater()
            .apply(live, config, &version, sets, &id, force)?;
        strip_unowned_fields(&mut sets, &id);
        let is_changed = object.is_some();
        if is_changed {
            times.insert(id, self.now);
        }
        Ok(AppliedObject {
            object: object.unwrap_or_else(|| live.clone()),
            managed: ManagedFields { sets, times },
            is_changed,
        })
    }

    /// The conflicts with fields that kubectl did not last apply itself, if any.
    fn allow_last_applied(&self, live: &Value, conflicts: &Conflicts) -> Result<(), ApplyError> {
        let version = self.gvk.api_version();
        let field_type = self.converter.field_type(&version);
        let allowed = field_type.and_then(|t| fields_last_applied(live, t, &version));
        match allowed {
            None => Err(ApplyError::Conflicts(conflicts.clone())),
            Some(allowed) => match conflicts.without(&allowed) {
                Some(rest) => Err(ApplyError::Conflicts(rest)),
                None => Ok(()),
            },
        }
    }

    fn check_config(&self, config: &Value) -> Result<(), ApplyError> {
        let version = self.gvk.api_version();
        let field = |name: &str| config[name].as_str().unwrap_or_default();
        if field("apiVersion") != version || field("kind") != &*self.gvk.kind {
            let (group, version) = field("apiVersion")
                .rsplit_once('/')
                .unwrap_or(("", field("apiVersion")));
            let kind = field("kind");
            return Err(ApplyError::BadRequest(format!(
                "invalid object type: {group}/{version}, Kind={kind}"
            )));
        }
        if !config["metadata"]["managedFields"].is_null() {
            let text = "metadata.managedFields must be nil";
            return Err(ApplyError::BadRequest(text.into()));
        }
        Ok(())
    }

    fn check_type(
        &self,
        object: &Value,
        role: &str,
        duplicates: DuplicateItems,
    ) -> Result<(), ApplyError> {
        let Gvk {
            group,
            version,
            kind,
        } = self.gvk;
        let api_version = self.gvk.api_version();
        let error = |message: String| {
            let metadata = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
            let (namespace, name) = (metadata("namespace"), metadata("name"));
            ApplyError::Internal(format!(
                "failed to create typed {role} object ({namespace}/{name}; {group}/{version}, Kind={kind}): {message}"
            ))
        };
        let field_type = self
            .converter
            .field_type(&api_version)
            .ok_or_else(|| error(format!("no corresponding type for {api_version}")))?;
        validate(field_type, object, duplicates).map_err(|errors| error(errors.to_string()))
    }
}

/// Whether another entry of operation Update could be one too many.
fn may_exceed_cap(entries: &[UnparsedEntry<'_>]) -> bool {
    let operations = entries.iter().map(|e| e.id.operation);
    operations
        .filter(|o| *o == ManagerOperation::Update)
        .count()
        >= MAX_UPDATE_MANAGERS
}

fn apply_error(error: UpdaterError) -> ApplyError {
    match error {
        UpdaterError::Conflicts(conflicts) => ApplyError::Conflicts(conflicts),
        other => ApplyError::Internal(other.to_string()),
    }
}

fn strip_unowned_fields(sets: &mut ManagerSets, manager: &ManagerId) {
    if let Some(managed) = sets.get_mut(manager) {
        managed.set = managed.set.difference(&UNOWNED_FIELDS);
        if managed.set.is_empty() {
            sets.remove(manager);
        }
    }
}

/// Unites the oldest entries of operation Update, by version, until there are few enough.
fn cap_update_managers(managed: &mut ManagedFields) {
    let ManagedFields { sets, times } = managed;
    let mut updaters: Vec<(i64, ManagerId)> = sets
        .keys()
        .filter(|id| id.operation == ManagerOperation::Update)
        .map(|id| (times.get(id).map_or(0, |t| t.as_second()), id.clone()))
        .collect();
    let mut count = updaters.len();
    if count <= MAX_UPDATE_MANAGERS {
        return;
    }
    updaters.sort();
    let mut first_of_version: BTreeMap<Box<str>, ManagerId> = BTreeMap::new();
    for (_, id) in updaters {
        if count <= MAX_UPDATE_MANAGERS {
            return;
        }
        let Some(first) = first_of_version.get(&id.api_version) else {
            first_of_version.insert(id.api_version.clone(), id);
            continue;
        };
        let bucket = ManagerId::new(
            ANCIENT_CHANGES_MANAGER,
            ManagerOperation::Update,
            &id.api_version,
            "",
        );
        let merged = [first, &id, &bucket]
            .into_iter()
            .filter_map(|id| sets.remove(id))
            .reduce(|a, b| ManagedFieldSet {
                set: a.set.union(&b.set),
                ..a
            });
        if let Some(merged) = merged {
            // The time of the newest change in the bucket.
            if let Some(at) = times.get(&id).copied() {
                times.insert(bucket.clone(), at);
            }
            sets.insert(bucket.clone(), merged);
        }
        first_of_version.insert(id.api_version.clone(), bucket);
        count = sets
            .keys()
            .filter(|id| id.operation == ManagerOperation::Update)
            .count();
    }
}

//! Import: stores the objects of another API server as they are there, with identity, times,
//! generation, status and managers, when Flotilla takes their groups over from it.
//!
//! No admission runs: the other server has admitted them. Shape and values are validated, since
//! it may know other fields.

use std::sync::Arc;

use machinery::managed_fields_text::encode_with_managed_fields;
use machinery::{FieldError, Gvk, Object, Status};
use serde_json::Value;

use crate::commit::{CommitResult, EncodedObject};
use crate::object_meta;
use crate::registry::Registry;
use crate::request::{FieldValidation, ObjectBody};
use crate::resource_table::ResourceInfo;
use crate::write_pipeline::{check_metadata_types, decode, validate_object};

/// The identity that an object has since its creation.
const IDENTITY_FIELDS: [&str; 3] = ["name", "uid", "creationTimestamp"];

/// How objects are imported.
#[derive(Clone, Copy, Debug, Default)]
pub struct ImportOptions {
    /// Whether nothing is stored.
    pub dry_run: bool,
    /// Whether fields that are not declared are dropped; otherwise they are errors.
    pub drops_unknown_fields: bool,
}

impl Registry {
    /// The resources whose objects can be imported, in the version in which they are stored.
    pub fn importable_resources(&self) -> Vec<Arc<ResourceInfo>> {
        let table = self.table();
        let stored = table.resources().iter().filter(|resource| {
            let is_stored = !resource.custom && !resource.is_virtual() && !resource.kind.computed;
            is_stored && resource.kind.gvk == *resource.storage_kind()
        });
        stored.cloned().collect()
    }

    /// Stores an object of another server, in the version in which it is stored here. Returns
    /// whether the store did not have it in this state.
    pub async fn import_object(
        &self,
        resource: &ResourceInfo,
        mut value: Value,
        options: ImportOptions,
    ) -> Result<bool, Status> {
        let kind = &resource.storage.kind;
        check_identity(&kind.gvk, kind.namespaced, &value)?;
        object_meta::metadata_mut(&mut value)?.remove("resourceVersion");
        let managers = object_meta::take_managed_fields(&mut value)?;
        let managers = managers.map(|list| list.to_string());
        let value = checked(resource, value, options)?;
        validate_object(resource, &value, None, true, |_| true)?;
        let mut encoded = EncodedObject::new(&value, managers.as_deref())?;
        encoded.keeps_managers = true;
        let namespace = object_meta::metadata_string(&value, "namespace");
        let name = object_meta::metadata_string(&value, "name");
        let key = self.storage_key(resource, namespace, name);
        let existing = self.get_newest(resource, &key).await?;
        if let Some(existing) = &existing
            && stored_bytes(existing)? == encoded.bytes
        {
            return Ok(false);
        }
        if options.dry_run {
            return Ok(true);
        }
        let expected = existing.as_ref().map_or(0, Object::revision);
        match self.put(resource, &key, encoded, expected).await? {
            CommitResult::Committed(_) => Ok(true),
            CommitResult::Conflict(_) => Err(Status::conflict(
                &kind.gvr,
                name,
                "the object was written while it was imported",
            )),
        }
    }

    /// Removes an imported object that the other server has no more, whatever its finalizers.
    pub async fn remove_imported(
        &self,
        resource: &ResourceInfo,
        namespace: &str,
        name: &str,
    ) -> Result<(), Status> {
        let key = self.storage_key(resource, namespace, name);
        let Some(existing) = self.get_newest(resource, &key).await? else {
            return Ok(());
        };
        let last = EncodedObject::from_bytes(stored_bytes(&existing)?.into())?;
        let removed = self.remove(resource, &key, &last, existing.revision());
        match removed.await? {
            CommitResult::Committed(_) => Ok(()),
            CommitResult::Conflict(_) => Err(Status::conflict(
                &resource.kind.gvr,
                name,
                "the object was written while it was removed",
            )),
        }
    }
}

/// An object as [`EncodedObject`] has it: without `resourceVersion`, with its managers.
fn stored_bytes(object: &Object) -> Result<Vec<u8>, Status> {
    let mut value = object.value().map_err(Status::internal)?;
    object_meta::metadata_mut(&mut value)?.remove("resourceVersion");
    encode_with_managed_fields(&value, object.managed_fields_json()).map_err(Status::internal)
}

/// Fails if the object is of another kind or lacks what every stored object has.
fn check_identity(kind: &Gvk, namespaced: bool, value: &Value) -> Result<(), Status> {
    let mut errors = Vec::new();
    for (field, expected) in [
        ("apiVersion", kind.api_version()),
        ("kind", kind.kind.to_string()),
    ] {
        if value[field] != *expected {
            let message = format!("must be {expected}");
            errors.push(FieldError::invalid(field, &value[field], message));
        }
    }
    let scope = namespaced.then_some("namespace");
    for field in IDENTITY_FIELDS.into_iter().chain(scope) {
        if object_meta::metadata_string(value, field).is_empty() {
            let path = format!("metadata.{field}");
            let message = "an object that is imported must have it";
            errors.push(FieldError::required(path, message));
        }
    }
    match errors.is_empty() {
        true => Ok(()),
        false => {
            let name = object_meta::metadata_string(value, "name");
            Err(Status::invalid(kind, name, &errors))
        }
    }
}

/// The object, if its fields are declared and have their types.
fn checked(resource: &ResourceInfo, value: Value, options: ImportOptions) -> Result<Value, Status> {
    check_metadata_types(resource, &value, false)?;
    let body = ObjectBody::from(value);
    let strict_errors = body.strict_errors();
    let mut value = body.value;
    let field_validation = match options.drops_unknown_fields {
        true => FieldValidation::Ignore,
        false => FieldValidation::Strict,
    };
    decode(
        resource,
        &mut value,
        &strict_errors,
        field_validation,
        false,
    )?;
    Ok(value)
}

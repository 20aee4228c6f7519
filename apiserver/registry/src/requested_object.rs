//! The object that an update or a patch requests: its body, or the result of its patch or
//! applied configuration; and what of it the path may change.

use client::{Patch, ResourcePath};
use machinery::{FieldError, Gvk, Object, Status, go_format};
use serde_json::{Value, json};

use crate::field_management::{Configuration, ManagersAfterWrite};
use crate::object_meta;
use crate::request::FieldValidation;
use crate::resource_table::ResourceInfo;
use crate::scale;
use crate::strict_errors::StrictErrors;
use crate::update_request::{UpdateRequest, UpdateSource, UpdateTarget};
use crate::write_pipeline::{
    check_kind, check_metadata_types, check_namespace, check_patched_head, decode,
};

/// The object that an update or a patch requests, before defaults and admission.
pub(crate) struct RequestedObject {
    /// The object in the storage version, or a Scale.
    pub(crate) value: Value,
    pub(crate) managers: RequestedManagers,
    pub(crate) warnings: Vec<String>,
}

/// The managers that an update or a patch requests.
pub(crate) enum RequestedManagers {
    /// `metadata.managedFields` of the object, if the client sets them.
    Sent(Option<Value>),
    /// The managers after an apply.
    Applied(ManagersAfterWrite),
}

impl UpdateRequest<'_> {
    /// The object (or Scale) that the client requests, in the storage version.
    pub(crate) async fn requested_object(
        &self,
        source: &mut UpdateSource,
        old: &Value,
        current: &Object,
        consumed: &mut bool,
    ) -> Result<RequestedObject, Status> {
        let patched = !matches!(source, UpdateSource::Put(_));
        let (mut value, mut managers, strict_errors) =
            self.read_source(source, old, current, consumed).await?;
        if self.target == UpdateTarget::Scale {
            scale::check_body(self.resource, &value, patched)?;
            check_name(&mut value, &self.path)?;
            if patched {
                self.check_preconditions(&value, current, true)?;
            }
            return Ok(RequestedObject {
                value,
                managers,
                warnings: Vec::new(),
            });
        }
        if patched {
            check_patched_head(self.resource, &value)?;
        }
        check_metadata_types(self.resource, &value, patched)?;
        if let RequestedManagers::Sent(sent_managers) = &mut managers {
            *sent_managers = object_meta::take_managed_fields(&mut value)?;
            // Custom resources have no empty list, which resets the managers elsewhere.
            if !self.resource.has_go_type() && sent_managers.as_ref().is_some_and(is_empty_list) {
                *sent_managers = None;
            }
        }
        check_name(&mut value, &self.path)?;
        check_kind(self.resource, &mut value, patched)?;
        check_namespace(self.resource, &self.path, &mut value)?;
        let field_validation = match managers {
            // Kubernetes prunes what is applied without a word; types were checked before.
            RequestedManagers::Applied(_) => FieldValidation::Ignore,
            RequestedManagers::Sent(_) => self.options.field_validation,
        };
        let warnings = decode(
            self.resource,
            &mut value,
            &strict_errors,
            field_validation,
            patched,
        )?;
        if patched {
            self.check_preconditions(&value, current, true)?;
        }
        self.resource
            .conversion
            .convert_to_storage(&self.resource.storage.kind.gvk, &mut value);
        Ok(RequestedObject {
            value,
            managers,
            warnings,
        })
    }

    /// The value of a PUT, or the result of a patch or an apply, with its managers and the errors
    /// of strict decoding so far. Takes the body of a PUT that cannot be tried again.
    async fn read_source(
        &self,
        source: &mut UpdateSource,
        old: &Value,
        current: &Object,
        consumed: &mut bool,
    ) -> Result<(Value, RequestedManagers, StrictErrors), Status> {
        let mut strict_errors = StrictErrors::default();
        let mut managers = RequestedManagers::Sent(None);
        let value = match source {
            UpdateSource::Put(body) => {
                self.check_preconditions(&body.value, current, false)?;
                strict_errors = body.strict_errors();
                if object_meta::metadata_string(&body.value, "resourceVersion").is_empty() {
                    body.value.clone()
                } else {
                    *consumed = true;
                    std::mem::take(&mut body.value)
                }
            }
            UpdateSource::Apply { config, force } => {
                let config = Configuration {
                    object: config,
                    force: *force,
                };
                let (value, applied) = self.apply_configuration(config, old, current).await?;
                managers = RequestedManagers::Applied(applied);
                value
            }
            UpdateSource::Patch(patch) => {
                strict_errors
                    .patch_errors
                    .clone_from(&self.options.patch_errors);
                self.apply_patch(patch, old, current)?
            }
        };
        Ok((value, managers, strict_errors))
    }

    async fn apply_configuration(
        &self,
        config: Configuration<'_>,
        old: &Value,
        current: &Object,
    ) -> Result<(Value, ManagersAfterWrite), Status> {
        let live = current.managed_fields_json();
        let manager = self.field_manager();
        match (self.target, &self.resource.kind.scale) {
            (UpdateTarget::Scale, Some(paths)) => manager.apply_scale(paths, old, config, live),
            _ => manager.apply(old, config, live).await,
        }
    }

    fn apply_patch(&self, patch: &Patch, old: &Value, current: &Object) -> Result<Value, Status> {
        let mut doc = match (self.target, &self.resource.kind.scale) {
            (UpdateTarget::Scale, Some(paths)) => scale::scale_of(paths, old)?,
            _ => {
                let mut doc = old.clone();
                self.resource
                    .conversion
                    .convert_from_storage(&self.resource.kind.gvk, &mut doc);
                if let Patch::Json(patch) = patch
                    && has_operation_on_managers(patch)
                {
                    insert_managers(&mut doc, current)?;
                }
                doc
            }
        };
        let head = ["apiVersion", "kind"].map(|field| (field, doc[field].clone()));
        let mut outcome = match patch {
            Patch::Json(patch) => patch::apply_json_patch(&doc, patch),
            Patch::Strategic(patch) if self.target != UpdateTarget::Scale => {
                patch::apply_strategic_merge_patch(&doc, patch, &self.resource.schema)
            }
            // A Scale has no lists: both patch types have the same effect.
            Patch::Merge(patch) | Patch::Strategic(patch) => {
                if !patch.is_object() {
                    return Err(Status::bad_request("a merge patch must be an object"));
                }
                patch::apply_merge_patch(&mut doc, patch);
                Ok(doc)
            }
        };
        if let (Patch::Strategic(_), Ok(patched)) = (patch, &mut outcome) {
            restore_kind(patched, head);
        }
        outcome.map_err(|error| match error {
            patch::Error::BadRequest(message) => Status::bad_request(message),
            patch::Error::TooLarge(message) => Status::request_entity_too_large(message),
            // The response omits the reason, as in `endpoints/handlers/patch.go`.
            patch::Error::Unprocessable(_) => Status::unprocessable(),
        })
    }

    /// Checks the preconditions in a body: its uid and `resourceVersion` (B4.2, B5.4). What a
    /// patch does to the uid is left to validation, as by Kubernetes.
    fn check_preconditions(
        &self,
        sent_object: &Value,
        current: &Object,
        patched: bool,
    ) -> Result<(), Status> {
        let gvr = &self.resource.kind.gvr;
        let uid = object_meta::metadata_string(sent_object, "uid");
        if !patched && !uid.is_empty() && uid != current.uid() {
            return Err(Status::conflict(
                gvr,
                self.path.name,
                format!(
                    "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                    self.registry
                        .storage_key(self.resource, self.path.namespace, self.path.name),
                    current.uid()
                ),
            ));
        }
        let version = object_meta::metadata_string(sent_object, "resourceVersion");
        match parse_resource_version(version)? {
            0 if self.needs_resource_version() => {
                let error = FieldError::invalid(
                    "metadata.resourceVersion",
                    &json!(0),
                    "must be specified for an update",
                );
                // Kubernetes names the resource here, not the kind.
                let resource = Gvk::new(&*gvr.group, "", &*gvr.resource);
                Err(Status::invalid(&resource, self.path.name, &[error]))
            }
            0 => Ok(()),
            requested if requested == current.revision() => Ok(()),
            _ => Err(Status::stale_resource_version(gvr, self.path.name)),
        }
    }

    fn needs_resource_version(&self) -> bool {
        !self.resource.kind.allow_unconditional_update
            && matches!(
                self.target,
                UpdateTarget::Object | UpdateTarget::Status | UpdateTarget::Approval
            )
    }

    /// Checks the uid in a configuration of an object that does not exist. Kubernetes ignores
    /// its `resourceVersion`.
    pub(crate) fn check_absent_preconditions(&self, applied: &Value) -> Result<(), Status> {
        let uid = object_meta::metadata_string(applied, "uid");
        if uid.is_empty() {
            return Ok(());
        }
        let message = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        Err(Status::conflict(
            &self.resource.kind.gvr,
            self.path.name,
            message,
        ))
    }

    /// Takes from the requested object only what this path may change (B4.4).
    pub(crate) fn merge_updatable_fields(
        &self,
        mut sent_object: Value,
        old: &Value,
    ) -> Result<Value, Status> {
        match self.target {
            UpdateTarget::Object => {
                if self.resource.storage.kind.status
                    && let Some(map) = sent_object.as_object_mut()
                {
                    match old.get("status") {
                        Some(status) => map.insert("status".into(), status.clone()),
                        None => map.remove("status"),
                    };
                }
                Ok(sent_object)
            }
            UpdateTarget::Status | UpdateTarget::Approval => {
                let mut new = old.clone();
                if let (Some(new), Some(sent_object)) =
                    (new.as_object_mut(), sent_object.as_object_mut())
                {
                    match sent_object.remove("status") {
                        Some(status) => new.insert("status".into(), status),
                        None => new.remove("status"),
                    };
                }
                let (meta, sent_object) = (
                    object_meta::metadata_mut(&mut new)?,
                    &sent_object["metadata"],
                );
                for field in metadata_written_with_status(self.resource) {
                    match sent_object.get(field) {
                        Some(v) => meta.insert((*field).into(), v.clone()),
                        None => meta.remove(*field),
                    };
                }
                Ok(new)
            }
            UpdateTarget::Scale => {
                let mut new = old.clone();
                if let Some(paths) = &self.resource.kind.scale {
                    scale::apply_scale(paths, &sent_object, &mut new, self.resource.custom)?;
                }
                Ok(new)
            }
            UpdateTarget::Finalize => {
                let mut new = old.clone();
                let listed = sent_object["spec"]["finalizers"]
                    .as_array()
                    .filter(|a| !a.is_empty());
                new["spec"] = match listed {
                    Some(list) => json!({"finalizers": list}),
                    None => json!({}),
                };
                Ok(new)
            }
        }
    }
}

/// The metadata that a write of the status changes too, by the strategies of the kinds.
fn metadata_written_with_status(resource: &ResourceInfo) -> &'static [&'static str] {
    match &*resource.kind.gvk.kind {
        // Karmada's kinds have none either.
        _ if resource.custom || !resource.kind.protobuf => &[],
        "CustomResourceDefinition" | "VolumeAttachment" => &[],
        "Deployment" => &["annotations"],
        _ => &["labels", "annotations"],
    }
}

/// Restores version and kind after a strategic merge patch: Kubernetes decodes its result into the
/// type of the object, whatever they say. Values of another type are left to the decoder.
fn restore_kind(patched: &mut Value, head: [(&str, Value); 2]) {
    for (field, value) in head {
        if let Some(fields) = patched.as_object_mut()
            && fields
                .get(field)
                .is_none_or(|field_value| field_value.is_string() || field_value.is_null())
        {
            fields.insert(field.to_owned(), value);
        }
    }
}

fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

/// Zero if the object has none. The error is Kubernetes', which has no reason.
fn parse_resource_version(version: &str) -> Result<u64, Status> {
    if version.is_empty() {
        return Ok(0);
    }
    version.parse().map_err(|_| {
        let version = go_format::quoted(version);
        let message = format!("strconv.ParseUint: parsing {version}: invalid syntax");
        Status::failure(500, "", message)
    })
}

/// Whether a JSON patch reads or changes `metadata.managedFields`.
fn has_operation_on_managers(patch: &Value) -> bool {
    const MANAGERS: &str = "/metadata/managedFields";
    let operations = patch.as_array().into_iter().flatten();
    let mut pointers = operations
        .flat_map(|operation| [&operation["path"], &operation["from"]])
        .filter_map(Value::as_str);
    pointers.any(|pointer| pointer.starts_with(MANAGERS) || MANAGERS.starts_with(pointer))
}

/// Inserts `metadata.managedFields`, which trees do not have.
fn insert_managers(doc: &mut Value, current: &Object) -> Result<(), Status> {
    if let Some(text) = current.managed_fields_json() {
        let managers: Value = machinery::json::from_str(text).map_err(Status::internal)?;
        object_meta::metadata_mut(doc)?.insert("managedFields".into(), managers);
    }
    Ok(())
}

/// Checks that the name of the object matches the name in the path.
pub(crate) fn check_name(value: &mut Value, path: &ResourcePath<'_>) -> Result<(), Status> {
    let meta = object_meta::metadata_mut(value)?;
    let name = meta.get("name").and_then(Value::as_str).unwrap_or("");
    if name == path.name {
        return Ok(());
    }
    let name_in_path = path.name;
    Err(Status::bad_request(if name.is_empty() {
        format!(
            "the name of the object ({name_in_path} based on URL) was undeterminable: name must be provided"
        )
    } else {
        format!(
            "the name of the object ({name}) does not match the name on the URL ({name_in_path})"
        )
    }))
}

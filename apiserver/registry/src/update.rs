//! Update and patch: reads an object, changes it, and commits it optimistically.
//!
//! The first attempt starts from the cached object. A rejection, or a result equal to the
//! cached object, is confirmed with the newest object (contract E5). After a conflict, the
//! next attempt starts from the object that won.

use std::sync::Arc;

use admission::AdmissionOperation;
use bytes::Bytes;
use client::{Patch, ResourcePath};
use machinery::{FieldError, Object, Status};
use serde_json::{Value, json};

use crate::allocation::ServiceAllocationAndQuotaCharge;
use crate::commit::{CommitResult, check_deadline, write_deadline};
use crate::conversion::VersionConversion;
use crate::object_meta;
use crate::read::{check_verb, convert_object};
use crate::registry::Registry;
use crate::request::{
    ObjectBodyAndDuplicateFields, RegistryWriteOptions, RequestUserAndDeadline, WriteResult,
};
use crate::resource_table::ResourceInfo;
use crate::scale;
use crate::service_address_claims::is_service;
use crate::status_patch::EncodedTopLevelFields;
use crate::write_base::CachedOrNewestBaseObject;
use crate::write_pipeline::{
    AdmissionContext, apply_defaults, check_kind, check_namespace, decode, validate_object,
};

/// The new object, or a patch that produces it.
pub(crate) enum UpdateSource {
    Put(ObjectBodyAndDuplicateFields),
    Patch(Patch),
}

/// The part of an object that a write may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UpdateTarget {
    Object,
    Status,
    Scale,
    /// The status, with other rules than a write of `status`.
    Approval,
    /// `spec.finalizers` of a namespace.
    Finalize,
}

/// One update or patch, with all its attempts.
struct UpdateRequest<'a> {
    registry: &'a Registry,
    ctx: &'a RequestUserAndDeadline,
    resource: &'a ResourceInfo,
    at: ResourcePath<'a>,
    target: UpdateTarget,
    options: &'a RegistryWriteOptions,
}

/// The result of an attempt that changes the object.
struct ObjectUpdate {
    old: Value,
    new: Value,
    /// The encoded new object, if the trees contain only a part of it.
    encoded: Option<Bytes>,
    /// No finalizer is left: the write deletes the object.
    deletes: bool,
    allocation: ServiceAllocationAndQuotaCharge,
}

impl Registry {
    /// PUT of an object, its `status`, `scale` or `finalize`.
    pub async fn update(
        &self,
        ctx: &RequestUserAndDeadline,
        at: ResourcePath<'_>,
        body: ObjectBodyAndDuplicateFields,
        options: &RegistryWriteOptions,
    ) -> Result<WriteResult, Status> {
        let resource = self.resource_info(at.resource)?;
        check_verb(&resource, &at, "update")?;
        self.update_or_patch(ctx, &resource, at, UpdateSource::Put(body), options)
            .await
    }

    /// PATCH of an object, its `status` or `scale`.
    pub async fn patch(
        &self,
        ctx: &RequestUserAndDeadline,
        at: ResourcePath<'_>,
        patch: Patch,
        options: &RegistryWriteOptions,
    ) -> Result<WriteResult, Status> {
        let resource = self.resource_info(at.resource)?;
        check_verb(&resource, &at, "patch")?;
        if matches!(patch, Patch::Strategic(_)) && !resource.kind.strategic_merge_patch {
            return Err(Status::unsupported_media_type(resource.patch_types()));
        }
        self.update_or_patch(ctx, &resource, at, UpdateSource::Patch(patch), options)
            .await
    }

    async fn update_or_patch(
        &self,
        ctx: &RequestUserAndDeadline,
        resource: &ResourceInfo,
        at: ResourcePath<'_>,
        mut source: UpdateSource,
        options: &RegistryWriteOptions,
    ) -> Result<WriteResult, Status> {
        let part = match at.subresource {
            "" => UpdateTarget::Object,
            "status" => UpdateTarget::Status,
            "scale" => UpdateTarget::Scale,
            "approval" => UpdateTarget::Approval,
            "finalize" => UpdateTarget::Finalize,
            _ => return Err(Status::method_not_allowed()),
        };
        let write = UpdateRequest {
            registry: self,
            ctx,
            resource,
            at,
            target: part,
            options,
        };
        let until = write_deadline(ctx);
        let key = self.storage_key(resource, at.namespace, at.name);
        let mut base =
            CachedOrNewestBaseObject::new(self, resource, at, &key, options.dry_run).await?;
        loop {
            check_deadline(until)?;
            let Some(object) = base.take().await? else {
                return write.create_missing(source).await;
            };
            let mut consumed = false;
            let attempt = write.attempt(&mut source, &object, &mut consumed).await;
            let (changed, warnings) = match attempt {
                Ok((Some(changed), warnings)) => (changed, warnings),
                unconfirmed => {
                    if base.is_outdated(&object).await? {
                        if consumed {
                            return Err(write.conflict(base.exists()));
                        }
                        continue;
                    }
                    let (_, warnings) = unconfirmed?;
                    let rewritten = match options.dry_run {
                        true => None,
                        false => {
                            self.rewrite_stale(resource, &key, object.revision())
                                .await?
                        }
                    };
                    match rewritten {
                        None => return write.result(object, warnings),
                        Some(CommitResult::Committed(object)) => {
                            return write.result(object, warnings);
                        }
                        Some(CommitResult::Conflict(winner)) if consumed => {
                            return Err(write.conflict(winner.is_some()));
                        }
                        Some(CommitResult::Conflict(winner)) => {
                            base.replace(winner);
                            continue;
                        }
                    }
                }
            };
            if options.dry_run {
                return write.dry_run_result(changed, &object, warnings);
            }
            match write.commit(&key, &changed, object.revision()).await? {
                CommitResult::Committed(object) => {
                    let remaining = (!changed.deletes).then_some(&changed.new);
                    self.release_service_addresses(resource, &changed.old, remaining)
                        .await;
                    return write.result(object, warnings);
                }
                CommitResult::Conflict(winner) if consumed => {
                    return Err(write.conflict(winner.is_some()));
                }
                CommitResult::Conflict(winner) => base.replace(winner),
            }
        }
    }
}

impl UpdateRequest<'_> {
    /// Handles an absent object: 404, or a creation if the kind allows create on update.
    async fn create_missing(self, source: UpdateSource) -> Result<WriteResult, Status> {
        let gvr = &self.resource.kind.gvr;
        match source {
            UpdateSource::Put(body)
                if self.target == UpdateTarget::Object
                    && self.resource.kind.allow_create_on_update =>
            {
                let mut body = body;
                check_name(&mut body.value, &self.at)?;
                if !object_meta::metadata_string(&body.value, "resourceVersion").is_empty() {
                    return Err(Status::not_found(gvr, self.at.name));
                }
                let at = ResourcePath {
                    name: "",
                    ..self.at
                };
                self.registry.create(self.ctx, at, body, self.options).await
            }
            _ => Err(Status::not_found(gvr, self.at.name)),
        }
    }

    /// The error if another write won and the body cannot be applied again.
    fn conflict(&self, exists: bool) -> Status {
        if exists {
            Status::stale_resource_version(&self.resource.kind.gvr, self.at.name)
        } else {
            Status::not_found(&self.resource.kind.gvr, self.at.name)
        }
    }

    async fn commit(
        &self,
        key: &Arc<str>,
        changed: &ObjectUpdate,
        expected: u64,
    ) -> Result<CommitResult, Status> {
        let new = &changed.new;
        let committed = if changed.deletes {
            self.registry
                .remove(self.resource, key, new, expected)
                .await
        } else if let Some(bytes) = &changed.encoded {
            let bytes = bytes.clone();
            self.registry
                .put_encoded(self.resource, key, bytes, expected)
                .await
        } else {
            self.registry.put(self.resource, key, new, expected).await
        };
        if !matches!(committed, Ok(CommitResult::Committed(_))) {
            self.registry.release_allocation(&changed.allocation).await;
        }
        committed
    }

    fn result(&self, object: Object, warnings: Vec<String>) -> Result<WriteResult, Status> {
        let object = match (self.target, &self.resource.kind.scale) {
            (UpdateTarget::Scale, Some(paths)) => {
                let parent = object.value().map_err(Status::internal)?;
                Object::from_value(&scale::scale_of(paths, &parent)?).map_err(Status::internal)?
            }
            _ => convert_object(self.resource, object)?,
        };
        Ok(WriteResult {
            object,
            created: false,
            warnings,
        })
    }

    /// The result of a dry run, with the old revision.
    fn dry_run_result(
        &self,
        changed: ObjectUpdate,
        before: &Object,
        warnings: Vec<String>,
    ) -> Result<WriteResult, Status> {
        let mut new = changed.new;
        let revision = before.revision().to_string();
        object_meta::metadata_mut(&mut new)?.insert("resourceVersion".into(), revision.into());
        let object = Object::from_value(&new).map_err(Status::internal)?;
        self.result(object, warnings)
    }

    /// Computes the new object from the current one; `None` if they are equal. Sets
    /// `consumed` if the body was used up: with its `resourceVersion` it allows no second
    /// attempt.
    async fn attempt(
        &self,
        source: &mut UpdateSource,
        current: &Object,
        consumed: &mut bool,
    ) -> Result<(Option<ObjectUpdate>, Vec<String>), Status> {
        let resource = self.resource;
        let apart = self.status_patch(source, current)?;
        let mut old = match &apart {
            Some(apart) => apart.to_tree()?,
            None => current.value().map_err(Status::internal)?,
        };
        let (sent, mut warnings) = self.requested_object(source, &old, current, consumed)?;
        let mut new = self.merge_updatable_fields(sent, &old)?;
        if let Some(before) = old["metadata"].as_object() {
            object_meta::copy_from_old(object_meta::metadata_mut(&mut new)?, before);
        }
        apply_defaults(resource, &mut new);
        if apart.is_some() {
            EncodedTopLevelFields::retain_decoded_fields(&mut new);
        }
        let admit = AdmissionContext {
            registry: self.registry,
            ctx: self.ctx,
            resource,
            at: self.at,
            operation: AdmissionOperation::Update,
            dry_run: self.options.dry_run,
            delete_options: None,
        };
        warnings.extend(admit.mutate(&mut new, Some(&old)).await?);
        admit.check_role_escalation(&new, Some(&old)).await?;
        let concerns = match apart {
            Some(_) => EncodedTopLevelFields::is_relevant_error,
            None => |_: &FieldError| true,
        };
        let strategy = resource.storage.strategy;
        if self.target == UpdateTarget::Object {
            (strategy.update)(&mut new, &old);
        }
        let validate_kind = matches!(self.target, UpdateTarget::Object | UpdateTarget::Scale);
        validate_object(resource, &new, Some(&old), validate_kind, concerns)?;
        if matches!(self.target, UpdateTarget::Object | UpdateTarget::Scale)
            && strategy.generation.is_raised(&new, &old)
        {
            object_meta::increment_generation(&mut new);
        }
        warnings.extend(admit.validate(&new, Some(&old)).await?);
        object_meta::metadata_mut(&mut old)?.remove("resourceVersion");
        let allocation = Box::pin(admit.allocate(&mut new, Some(&old))).await?;
        if new == old {
            return Ok((None, warnings));
        }
        let deletes = object_meta::is_deleting(&new)
            && object_meta::finalizers(&new).next().is_none()
            && !(strategy.delays_removal)(&new);
        let encoded = apart.map(|apart| apart.encode(&new)).transpose()?;
        Ok((
            Some(ObjectUpdate {
                old,
                new,
                encoded,
                deletes,
                allocation,
            }),
            warnings,
        ))
    }

    /// The partial decoding that suffices for a write of the status in the storage version.
    /// `None` if the rest of the object matters: for the finalizers of a deleted object, the
    /// allocations of a service, webhooks, or the tests of a JSON patch.
    fn status_patch<'o>(
        &self,
        source: &UpdateSource,
        current: &'o Object,
    ) -> Result<Option<EncodedTopLevelFields<'o>>, Status> {
        let resource = self.resource;
        let covered = match source {
            UpdateSource::Put(_) => true,
            UpdateSource::Patch(Patch::Merge(patch) | Patch::Strategic(patch)) => {
                EncodedTopLevelFields::covers_patch(patch)
            }
            UpdateSource::Patch(Patch::Json(_)) => false,
        };
        let needs_object = self.target != UpdateTarget::Status
            || self.options.dry_run
            || resource.custom
            || resource.conversion != VersionConversion::Stored
            || current.meta().deleting
            || is_service(resource)
            || resource.storage.strategy.status_depends_on_spec
            || self
                .registry
                .matching_webhooks(resource, self.at.subresource)
                .is_some()
            || !covered;
        (!needs_object)
            .then(|| EncodedTopLevelFields::from_object(current))
            .transpose()
    }

    /// The object (or Scale) that the client requests, in the storage version.
    fn requested_object(
        &self,
        source: &mut UpdateSource,
        old: &Value,
        current: &Object,
        consumed: &mut bool,
    ) -> Result<(Value, Vec<String>), Status> {
        let patched = matches!(source, UpdateSource::Patch(_));
        let mut duplicates = Vec::new();
        let mut value = match source {
            UpdateSource::Put(body) => {
                self.check_preconditions(&body.value, current, false)?;
                duplicates.clone_from(&body.duplicate_fields);
                if object_meta::metadata_string(&body.value, "resourceVersion").is_empty() {
                    body.value.clone()
                } else {
                    *consumed = true;
                    std::mem::take(&mut body.value)
                }
            }
            UpdateSource::Patch(patch) => {
                let value = self.apply_patch(patch, old)?;
                self.check_preconditions(&value, current, true)?;
                value
            }
        };
        check_name(&mut value, &self.at)?;
        if self.target == UpdateTarget::Scale {
            return Ok((value, Vec::new()));
        }
        check_kind(self.resource, &mut value)?;
        check_namespace(self.resource, &self.at, &mut value)?;
        let field_validation = self.options.field_validation;
        let warnings = decode(
            self.resource,
            &mut value,
            &duplicates,
            field_validation,
            patched,
        )?;
        self.resource
            .conversion
            .convert_to_storage(&self.resource.storage.kind.gvk, &mut value);
        Ok((value, warnings))
    }

    fn apply_patch(&self, patch: &Patch, old: &Value) -> Result<Value, Status> {
        let mut doc = match (self.target, &self.resource.kind.scale) {
            (UpdateTarget::Scale, Some(paths)) => scale::scale_of(paths, old)?,
            _ => {
                let mut doc = old.clone();
                self.resource
                    .conversion
                    .convert_from_storage(&self.resource.kind.gvk, &mut doc);
                doc
            }
        };
        let outcome = match patch {
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
        outcome.map_err(|error| match error {
            patch::Error::BadRequest(why) => Status::bad_request(why),
            patch::Error::TooLarge(why) => Status::request_entity_too_large(why),
            // As in `endpoints/handlers/patch.go`, the response omits the reason.
            patch::Error::Unprocessable(_) => Status::unprocessable(),
        })
    }

    /// Checks the preconditions in a body: its `resourceVersion` and uid (B4.2, B5.4).
    fn check_preconditions(
        &self,
        sent: &Value,
        current: &Object,
        patched: bool,
    ) -> Result<(), Status> {
        let gvr = &self.resource.kind.gvr;
        let revision = object_meta::metadata_string(sent, "resourceVersion");
        if revision.is_empty() || revision == "0" {
            let needed = !self.resource.kind.allow_unconditional_update
                && !patched
                && matches!(
                    self.target,
                    UpdateTarget::Object | UpdateTarget::Status | UpdateTarget::Approval
                );
            if needed {
                let error = FieldError::invalid(
                    "metadata.resourceVersion",
                    &json!(0),
                    "must be specified for an update",
                );
                return Err(Status::invalid(
                    &self.resource.kind.gvk,
                    self.at.name,
                    &[error],
                ));
            }
        } else {
            let requested: u64 = revision.parse().map_err(|_| {
                let error = FieldError::invalid(
                    "metadata.resourceVersion",
                    &json!(revision),
                    "must be a decimal number",
                );
                Status::invalid(&self.resource.kind.gvk, self.at.name, &[error])
            })?;
            if requested != current.revision() {
                return Err(Status::stale_resource_version(gvr, self.at.name));
            }
        }
        let uid = object_meta::metadata_string(sent, "uid");
        if !uid.is_empty() && uid != current.uid() {
            return Err(Status::conflict(
                gvr,
                self.at.name,
                format!(
                    "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                    self.registry
                        .storage_key(self.resource, self.at.namespace, self.at.name),
                    current.uid()
                ),
            ));
        }
        Ok(())
    }

    /// Takes from the requested object only what this path may change (B4.4).
    fn merge_updatable_fields(&self, mut sent: Value, old: &Value) -> Result<Value, Status> {
        match self.target {
            UpdateTarget::Object => {
                if self.resource.storage.kind.status
                    && let Some(map) = sent.as_object_mut()
                {
                    match old.get("status") {
                        Some(status) => map.insert("status".into(), status.clone()),
                        None => map.remove("status"),
                    };
                }
                Ok(sent)
            }
            UpdateTarget::Status | UpdateTarget::Approval => {
                let mut new = old.clone();
                if let (Some(new), Some(sent)) = (new.as_object_mut(), sent.as_object_mut()) {
                    match sent.remove("status") {
                        Some(status) => new.insert("status".into(), status),
                        None => new.remove("status"),
                    };
                }
                if self.resource.storage.strategy.status_updates_metadata {
                    let (meta, sent) = (object_meta::metadata_mut(&mut new)?, &sent["metadata"]);
                    for field in ["labels", "annotations"] {
                        match sent.get(field) {
                            Some(v) => meta.insert(field.into(), v.clone()),
                            None => meta.remove(field),
                        };
                    }
                }
                Ok(new)
            }
            UpdateTarget::Scale => {
                let mut new = old.clone();
                if let Some(paths) = &self.resource.kind.scale {
                    scale::apply_scale(paths, &sent, &mut new)?;
                }
                Ok(new)
            }
            UpdateTarget::Finalize => {
                let mut new = old.clone();
                let listed = sent["spec"]["finalizers"]
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

/// Checks that the name of the object matches the name in the path.
fn check_name(value: &mut Value, at: &ResourcePath<'_>) -> Result<(), Status> {
    let meta = object_meta::metadata_mut(value)?;
    let name = meta.get("name").and_then(Value::as_str).unwrap_or("");
    if name == at.name {
        return Ok(());
    }
    Err(Status::bad_request(format!(
        "the name of the object ({name}) does not match the name on the URL ({})",
        at.name
    )))
}

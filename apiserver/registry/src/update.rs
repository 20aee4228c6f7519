//! Update and patch: reads an object, changes it, and commits it optimistically.
//!
//! The first attempt starts from the cached object. A rejection, or a result equal to the
//! cached object, is confirmed with the newest object (contract E5). After a conflict, the
//! next attempt starts from the object that won.

use std::sync::Arc;

use admission::{AdmissionOperation, OperationOptions};
use bytes::Bytes;
use client::{Patch, ResourcePath};
use machinery::{FieldError, Object, Status};
use serde_json::Value;

use crate::allocation::WriteAllocation;
use crate::commit::{
    CommitResult, EncodedObject, check_deadline, check_object_depth, write_deadline,
};
use crate::conversion::VersionConversion;
use crate::deletion_plan::is_removable;
use crate::field_management::{Configuration, ManagersAfterWrite};
use crate::object_meta;
use crate::read::{check_verb, convert_object};
use crate::registry::Registry;
use crate::request::{ObjectBody, RegistryWriteOptions, RequestContext, WriteResult};
use crate::requested_object::{RequestedManagers, check_name};
use crate::resource_table::ResourceInfo;
use crate::scale;
use crate::service_address_claims::is_service;
use crate::shown_managers::ShownManagers;
use crate::status_patch::EncodedTopLevelFields;
use crate::update_request::{UpdateRequest, UpdateSource, UpdateTarget};
use crate::write_base::CachedOrNewestBaseObject;
use crate::write_pipeline::{
    AdmissionContext, apply_defaults, apply_defaults_to_applied, check_metadata_types, decode,
    drop_applied_nulls, validate_object,
};

/// The result of an attempt that changes the object.
struct ObjectUpdate {
    old: Value,
    new: Value,
    /// The text of the managers of the new object.
    managers: Option<String>,
    /// Whether the managers may not be left out, if the object is too large.
    keeps_managers: bool,
    /// The encoded new object, if the trees contain only a part of it.
    encoded: Option<Bytes>,
    /// No finalizer is left: the write deletes the object.
    deletes: bool,
    allocation: WriteAllocation,
}

impl ObjectUpdate {
    fn encode(&self) -> Result<EncodedObject, Status> {
        let mut object = match &self.encoded {
            Some(bytes) => EncodedObject::from_bytes(bytes.clone())?,
            None => EncodedObject::new(&self.new, self.managers.as_deref())?,
        };
        object.keeps_managers = self.keeps_managers;
        Ok(object)
    }

    /// Fails as [`Self::encode`] does.
    fn check_depth(&self) -> Result<(), Status> {
        match &self.encoded {
            Some(bytes) => EncodedObject::from_bytes(bytes.clone()).map(drop),
            None => check_object_depth(&self.new, self.managers.as_deref()),
        }
    }
}

impl Registry {
    /// PUT of an object, its `status`, `scale` or `finalize`.
    pub async fn update(
        &self,
        ctx: &RequestContext,
        path: ResourcePath<'_>,
        body: ObjectBody,
        options: &RegistryWriteOptions,
    ) -> Result<WriteResult, Status> {
        let resource = self.resource_info(path.resource)?;
        check_verb(&resource, &path, "update")?;
        self.update_or_patch(ctx, &resource, path, UpdateSource::Put(body), options)
            .await
    }

    /// PATCH of an object, its `status` or `scale`.
    pub async fn patch(
        &self,
        ctx: &RequestContext,
        path: ResourcePath<'_>,
        patch: Patch,
        options: &RegistryWriteOptions,
    ) -> Result<WriteResult, Status> {
        let resource = self.resource_info(path.resource)?;
        check_verb(&resource, &path, "patch")?;
        if matches!(patch, Patch::Strategic(_)) && !resource.kind.strategic_merge_patch {
            return Err(Status::unsupported_media_type(resource.patch_types()));
        }
        self.update_or_patch(ctx, &resource, path, UpdateSource::Patch(patch), options)
            .await
    }

    /// PATCH with a configuration of an object, its `status` or `scale` (server-side apply).
    /// An object that does not exist is created.
    pub async fn apply(
        &self,
        ctx: &RequestContext,
        path: ResourcePath<'_>,
        config: Value,
        force: bool,
        options: &RegistryWriteOptions,
    ) -> Result<WriteResult, Status> {
        let resource = self.resource_info(path.resource)?;
        check_verb(&resource, &path, "patch")?;
        let source = UpdateSource::Apply { config, force };
        self.update_or_patch(ctx, &resource, path, source, options)
            .await
    }

    async fn update_or_patch(
        &self,
        ctx: &RequestContext,
        resource: &ResourceInfo,
        path: ResourcePath<'_>,
        mut source: UpdateSource,
        options: &RegistryWriteOptions,
    ) -> Result<WriteResult, Status> {
        let target = UpdateTarget::from_subresource(path.subresource)
            .ok_or_else(Status::method_not_allowed)?;
        let write = UpdateRequest {
            registry: self,
            ctx,
            resource,
            path,
            target,
            options,
        };
        let deadline = write_deadline(ctx);
        let key = self.storage_key(resource, path.namespace, path.name);
        let mut base =
            CachedOrNewestBaseObject::new(self, resource, path, &key, options.dry_run).await?;
        loop {
            check_deadline(deadline)?;
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
                            let warnings = match unconfirmed {
                                Ok((_, warnings)) => warnings,
                                Err(status) => status.warnings.into(),
                            };
                            return Err(write.conflict(base.exists(), warnings));
                        }
                        continue;
                    }
                    let (_, warnings) = unconfirmed?;
                    match write.rewrite_unchanged(&key, object.revision()).await? {
                        None => return write.result(object, warnings),
                        Some(CommitResult::Committed(object)) => {
                            return write.result(object, warnings);
                        }
                        Some(CommitResult::Conflict(winner)) if consumed => {
                            return Err(write.conflict(winner.is_some(), warnings));
                        }
                        Some(CommitResult::Conflict(winner)) => {
                            base.replace(winner);
                            continue;
                        }
                    }
                }
            };
            if options.dry_run {
                changed.check_depth()?;
                return write.uncommitted_result(changed, &object, warnings);
            }
            match write.commit(&key, &changed, object.revision()).await? {
                CommitResult::Committed(committed) => {
                    return write.finish(changed, &object, committed, warnings).await;
                }
                CommitResult::Conflict(winner) if consumed => {
                    return Err(write.conflict(winner.is_some(), warnings));
                }
                CommitResult::Conflict(winner) => base.replace(winner),
            }
        }
    }
}

impl UpdateRequest<'_> {
    /// Stores an unchanged object again if its stored form is stale. `None` if nothing was
    /// written.
    async fn rewrite_unchanged(
        &self,
        key: &Arc<str>,
        revision: u64,
    ) -> Result<Option<CommitResult>, Status> {
        if self.options.dry_run {
            return Ok(None);
        }
        self.registry
            .rewrite_stale(self.resource, key, revision)
            .await
    }

    /// Releases what the committed write no longer needs and returns its result.
    async fn finish(
        &self,
        changed: ObjectUpdate,
        before: &Object,
        committed: Object,
        warnings: Vec<String>,
    ) -> Result<WriteResult, Status> {
        let remaining = (!changed.deletes).then_some(&changed.new);
        self.registry
            .release_service_addresses(self.resource, &changed.old, remaining)
            .await;
        if changed.deletes {
            // As in Kubernetes, the object that is gone has its last version.
            return self.uncommitted_result(changed, before, warnings);
        }
        self.result(committed, warnings)
    }

    /// Handles an absent object: 404, or a creation if the kind allows create on update.
    async fn create_missing(self, source: UpdateSource) -> Result<WriteResult, Status> {
        let gvr = &self.resource.kind.gvr;
        match source {
            UpdateSource::Put(body)
                if self.target == UpdateTarget::Object
                    && self.resource.kind.allow_create_on_update =>
            {
                let mut body = body;
                check_name(&mut body.value, &self.path)?;
                if !object_meta::metadata_string(&body.value, "resourceVersion").is_empty() {
                    return Err(Status::not_found(gvr, self.path.name));
                }
                let path = ResourcePath {
                    name: "",
                    ..self.path
                };
                self.registry
                    .create(self.ctx, path, body, self.options)
                    .await
            }
            UpdateSource::Apply { config, force } if self.target == UpdateTarget::Object => {
                let config = Configuration {
                    object: &config,
                    force,
                };
                let mut applied = self.field_manager().apply_create(config).await?;
                check_name(&mut applied.0, &self.path)?;
                self.check_absent_preconditions(&applied.0)?;
                let path = ResourcePath {
                    name: "",
                    ..self.path
                };
                self.registry
                    .create_applied(self.ctx, path, applied, self.options)
                    .await
            }
            UpdateSource::Put(mut body) if self.target != UpdateTarget::Scale => {
                let warnings = self.decode_put(&mut body)?;
                let missing = Status::not_found(gvr, self.path.name);
                Err(missing.with_warnings(warnings))
            }
            _ => Err(Status::not_found(gvr, self.path.name)),
        }
    }

    /// Decodes the object of a PUT; returns the warnings.
    fn decode_put(&self, body: &mut ObjectBody) -> Result<Vec<String>, Status> {
        let strict_errors = body.strict_errors();
        let field_validation = self.options.field_validation;
        let value = &mut body.value;
        check_metadata_types(self.resource, value, false)?;
        decode(
            self.resource,
            value,
            &strict_errors,
            field_validation,
            false,
        )
    }

    /// The error if another write won and the body, which had these warnings, cannot be applied
    /// again.
    fn conflict(&self, exists: bool, warnings: Vec<String>) -> Status {
        let (gvr, name) = (&self.resource.kind.gvr, self.path.name);
        let status = match exists {
            true => Status::stale_resource_version(gvr, name),
            false => Status::not_found(gvr, name),
        };
        status.with_warnings(warnings)
    }

    async fn commit(
        &self,
        key: &Arc<str>,
        changed: &ObjectUpdate,
        expected: u64,
    ) -> Result<CommitResult, Status> {
        let registry = self.registry;
        let committed = match changed.encode() {
            Err(too_deep) => Err(too_deep),
            Ok(object) if changed.deletes => {
                registry.remove(self.resource, key, &object, expected).await
            }
            Ok(object) => registry.put(self.resource, key, object, expected).await,
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

    /// The new object with the old revision.
    fn uncommitted_result(
        &self,
        changed: ObjectUpdate,
        before: &Object,
        warnings: Vec<String>,
    ) -> Result<WriteResult, Status> {
        let mut new = changed.new;
        let revision = before.revision().to_string();
        object_meta::metadata_mut(&mut new)?.insert("resourceVersion".into(), revision.into());
        let object = Object::from_value(&new)
            .and_then(|object| object.with_managed_fields(changed.managers.as_deref()))
            .map_err(Status::internal)?;
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
        let mut body_warnings = Vec::new();
        let attempt = self.attempt_decoded(source, current, consumed, &mut body_warnings);
        let attempted = attempt.await;
        attempted.map_err(|status| status.with_warnings(body_warnings))
    }

    /// As [`Self::attempt`]; sets the warnings about the body, which a failure has, too.
    async fn attempt_decoded(
        &self,
        source: &mut UpdateSource,
        current: &Object,
        consumed: &mut bool,
        body_warnings: &mut Vec<String>,
    ) -> Result<(Option<ObjectUpdate>, Vec<String>), Status> {
        let resource = self.resource;
        let current_bytes = current.bytes();
        let status_patch = self.status_patch(source, current, &current_bytes)?;
        let mut old = match &status_patch {
            Some(status_patch) => status_patch.to_tree()?,
            None => current.value().map_err(Status::internal)?,
        };
        let requested = self
            .requested_object(source, &old, current, consumed)
            .await?;
        let mut warnings = requested.warnings;
        body_warnings.clone_from(&warnings);
        let is_apply = UpdateRequest::is_apply(source);
        let mut new = self.merge_and_default(requested.value, &old, is_apply)?;
        if status_patch.is_some() {
            EncodedTopLevelFields::retain_decoded_fields(&mut new);
        }
        let mut managers = self
            .managers_after(requested.managers, &mut old, &new, current)
            .await?;
        let admit = AdmissionContext {
            registry: self.registry,
            ctx: self.ctx,
            resource,
            path: self.path,
            operation: AdmissionOperation::Update,
            dry_run: self.options.dry_run,
            options: OperationOptions::Write(&self.options.requested),
            managers: ShownManagers::new(managers.text.take(), Some(current)),
        };
        warnings.extend(admit.mutate(&mut new, Some(&old)).await?);
        admit.check_role_escalation(&new, Some(&old)).await?;
        let concerns = match status_patch {
            Some(_) => EncodedTopLevelFields::is_relevant_error,
            None => |_: &FieldError| true,
        };
        warnings.extend(self.run_strategy(&mut new, &old, is_apply, concerns)?);
        warnings.extend(admit.validate(&new, Some(&old)).await?);
        object_meta::metadata_mut(&mut old)?.remove("resourceVersion");
        let allocation = Box::pin(admit.allocate(&mut new, Some(&old))).await?;
        let after_admission = admit.managers.into_new();
        managers.text = after_admission.text;
        managers.is_ownership_changed |= after_admission.is_changed;
        if new == old && !managers.is_ownership_changed {
            return Ok((None, warnings));
        }
        let deletes = is_removable(&new, resource.storage.strategy);
        let text = managers.text.as_deref();
        let encoded = status_patch
            .map(|status_patch| status_patch.encode(&new, text))
            .transpose()?;
        Ok((
            Some(ObjectUpdate {
                old,
                new,
                managers: managers.text,
                keeps_managers: is_apply,
                encoded,
                deletes,
                allocation,
            }),
            warnings,
        ))
    }

    /// The new object before admission: the old one with the requested fields that the target
    /// may change, and defaults.
    fn merge_and_default(
        &self,
        requested: Value,
        old: &Value,
        is_apply: bool,
    ) -> Result<Value, Status> {
        let mut new = self.merge_updatable_fields(requested, old)?;
        if let Some(before) = old["metadata"].as_object() {
            object_meta::copy_from_old(object_meta::metadata_mut(&mut new)?, before);
        }
        if is_apply {
            apply_defaults_to_applied(self.resource, &mut new)?;
        } else {
            apply_defaults(self.resource, &mut new)?;
        }
        Ok(new)
    }

    /// Runs the kind's update strategy, validates the object and raises its generation. Returns
    /// warnings.
    fn run_strategy(
        &self,
        new: &mut Value,
        old: &Value,
        is_apply: bool,
        concerns: impl Fn(&FieldError) -> bool,
    ) -> Result<Vec<String>, Status> {
        let strategy = self.resource.storage.strategy;
        if self.target == UpdateTarget::Object {
            (strategy.update)(new, old);
        }
        let writes_spec = matches!(self.target, UpdateTarget::Object | UpdateTarget::Scale);
        let warnings = validate_object(self.resource, new, Some(old), writes_spec, concerns)?;
        if is_apply {
            drop_applied_nulls(self.resource, new)?;
        }
        if writes_spec && strategy.generation.is_raised(new, old) {
            object_meta::increment_generation(new);
        }
        Ok(warnings)
    }

    /// The managers after the write, which own what it requests, not what admission changes.
    async fn managers_after(
        &self,
        requested: RequestedManagers,
        old: &mut Value,
        new: &Value,
        current: &Object,
    ) -> Result<ManagersAfterWrite, Status> {
        let sent_managers = match requested {
            RequestedManagers::Applied(managers) => return Ok(managers),
            RequestedManagers::Sent(sent_managers) => sent_managers,
        };
        let live = current.managed_fields_json();
        if live.is_none() && sent_managers.is_none() {
            return Ok(ManagersAfterWrite::default());
        }
        let (manager, live) = (self.field_manager(), live);
        if let (UpdateTarget::Scale, Some(paths)) = (self.target, &self.resource.kind.scale) {
            return manager.track_scale(paths, old, new, live);
        }
        // The new object has no revision yet, which is no difference.
        let revision = object_meta::metadata_mut(old)?.remove("resourceVersion");
        let managers = manager
            .track_update(old, new, live, sent_managers.as_ref())
            .await;
        if let Some(revision) = revision {
            object_meta::metadata_mut(old)?.insert("resourceVersion".into(), revision);
        }
        Ok(managers)
    }

    /// The partial decoding that suffices for a write of the status in the storage version.
    /// `None` if the rest of the object matters: for the finalizers of a deleted object, the
    /// allocations of a service, webhooks, or the tests of a JSON patch.
    fn status_patch<'o>(
        &self,
        source: &UpdateSource,
        current: &Object,
        current_bytes: &'o [u8],
    ) -> Result<Option<EncodedTopLevelFields<'o>>, Status> {
        let resource = self.resource;
        let is_covered = match source {
            UpdateSource::Put(_) => true,
            UpdateSource::Patch(Patch::Merge(patch) | Patch::Strategic(patch)) => {
                EncodedTopLevelFields::covers_patch(patch)
            }
            UpdateSource::Patch(Patch::Json(_)) | UpdateSource::Apply { .. } => false,
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
                .matching_admission(resource, self.path.subresource)
                .is_some()
            || !is_covered;
        (!needs_object)
            .then(|| EncodedTopLevelFields::parse(current_bytes))
            .transpose()
    }
}

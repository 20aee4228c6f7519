//! Delete: removes an object at once, or sets its deletion timestamp and waits for its
//! finalizers (contract B8, `registry/generic/registry/store.go`) and its grace period.
//!
//! The grace period of a pod is waited for only if its node exists: nobody else would confirm
//! its end.

use std::sync::Arc;

use admission::{AdmissionOperation, OperationOptions};
use client::{DeleteOptions, ListOptions, ResourcePath};
use futures_util::StreamExt;
use machinery::{Gvr, Object, Status};
use serde_json::Value;

use crate::commit::{CommitResult, EncodedObject, check_deadline, write_deadline};
use crate::deletion_plan::{DeletionEffect, ObjectDeletion, requested_grace_period};
use crate::object_meta;
use crate::read::{check_verb, convert_object};
use crate::registry::{NAMESPACES, Registry};
use crate::request::{DeleteResponse, DeleteResult, ObjectListPage, RequestContext};
use crate::resource_table::ResourceInfo;
use crate::shown_managers::ShownManagers;
use crate::strategy::UNDELETABLE_NAMESPACES;
use crate::write_base::CachedOrNewestBaseObject;
use crate::write_pipeline::AdmissionContext;

const NODES: Gvr = Gvr::from_static("", "v1", "nodes");
/// How many objects of a collection are deleted concurrently.
const MAX_CONCURRENT_DELETES: usize = 16;

/// Whether admission is asked about a deletion: not about that of an evicted pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeletionAdmission {
    Run,
    Skip,
}

impl Registry {
    /// DELETE of one object.
    pub async fn delete(
        &self,
        ctx: &RequestContext,
        path: ResourcePath<'_>,
        options: &DeleteOptions,
    ) -> Result<DeleteResult, Status> {
        let resource = self.resource_info(path.resource)?;
        check_verb(&resource, &path, "delete")?;
        if !path.subresource.is_empty() {
            return Err(Status::method_not_allowed());
        }
        self.delete_object(ctx, &resource, path, options, DeletionAdmission::Run)
            .await
    }

    pub(crate) async fn delete_object(
        &self,
        ctx: &RequestContext,
        resource: &ResourceInfo,
        path: ResourcePath<'_>,
        options: &DeleteOptions,
        admission: DeletionAdmission,
    ) -> Result<DeleteResult, Status> {
        if *path.resource == NAMESPACES && UNDELETABLE_NAMESPACES.contains(&path.name) {
            let message = "this namespace may not be deleted";
            return Err(Status::forbidden(&resource.kind.gvr, path.name, message));
        }
        let deadline = write_deadline(ctx);
        let key = self.storage_key(resource, path.namespace, path.name);
        let mut base =
            CachedOrNewestBaseObject::new(self, resource, path, &key, options.dry_run).await?;
        loop {
            check_deadline(deadline)?;
            let Some(object) = base.take().await? else {
                return Err(Status::not_found(&resource.kind.gvr, path.name));
            };
            let planned = self
                .plan_deletion(ctx, resource, path, options, &object, admission)
                .await;
            // A commit fails if the object is outdated.
            let is_committed = matches!(
                planned,
                Ok((
                    _,
                    _,
                    DeletionEffect::Remove(_) | DeletionEffect::SetDeletionTimestamp(_)
                ))
            );
            if !is_committed && base.is_outdated(&object).await? {
                continue;
            }
            let (old, warnings, plan) = planned?;
            let result = |response: Result<DeleteResponse, Status>| {
                Ok(DeleteResult {
                    response: response?,
                    warnings,
                })
            };
            if options.dry_run {
                return result(dry_run_response(resource, object, plan));
            }
            match self.commit_deletion(resource, &key, &plan, &object).await? {
                None => return result(pending_response(resource, object)),
                Some(CommitResult::Conflict(winner)) => base.replace(winner),
                Some(CommitResult::Committed(object))
                    if matches!(plan, DeletionEffect::Remove(_)) =>
                {
                    self.release_service_addresses(resource, &old, None).await;
                    return result(removed_response(resource, object));
                }
                Some(CommitResult::Committed(object)) => {
                    return result(pending_response(resource, object));
                }
            }
        }
    }

    /// Writes the effect of a deletion on the stored object; `None` if it changes nothing yet.
    async fn commit_deletion(
        &self,
        resource: &ResourceInfo,
        key: &Arc<str>,
        effect: &DeletionEffect,
        object: &Object,
    ) -> Result<Option<CommitResult>, Status> {
        let managers = object.managed_fields_json();
        let encode = |tree| EncodedObject::new(tree, managers);
        let committed = match effect {
            DeletionEffect::Wait => return Ok(None),
            DeletionEffect::Remove(last) => {
                let last = encode(last)?;
                self.remove(resource, key, &last, object.revision()).await?
            }
            DeletionEffect::SetDeletionTimestamp(new) => {
                self.put(resource, key, encode(new)?, object.revision())
                    .await?
            }
        };
        Ok(Some(committed))
    }

    /// Checks preconditions and admission; returns the object's tree, warnings and the
    /// plan.
    async fn plan_deletion(
        &self,
        ctx: &RequestContext,
        resource: &ResourceInfo,
        path: ResourcePath<'_>,
        options: &DeleteOptions,
        object: &Object,
        admission: DeletionAdmission,
    ) -> Result<(Value, Vec<String>, DeletionEffect), Status> {
        check_preconditions(resource, options, object)?;
        let mut old = object.value().map_err(Status::internal)?;
        let admit = AdmissionContext {
            registry: self,
            ctx,
            resource,
            path,
            operation: AdmissionOperation::Delete,
            dry_run: options.dry_run,
            managers: ShownManagers::new(None, Some(object)),
            options: OperationOptions::Delete(options),
        };
        let warnings = match admission {
            DeletionAdmission::Run => admit.validate(&Value::Null, Some(&old)).await?,
            DeletionAdmission::Skip => Vec::new(),
        };
        object_meta::metadata_mut(&mut old)?.remove("resourceVersion");
        let strategy = resource.storage.strategy;
        let requested = requested_grace_period(options);
        let is_graceful = (strategy.grace_period)(&old, requested).is_some_and(|p| p > 0);
        let is_confirmed = is_graceful && self.has_node(&old).await?;
        let now = self.options.clock.now();
        let deletion = ObjectDeletion::new(strategy, &old, options, is_confirmed, now);
        let plan = deletion.plan(strategy, &old);
        Ok((old, warnings, plan))
    }

    /// Whether the node of a pod exists.
    async fn has_node(&self, pod: &Value) -> Result<bool, Status> {
        let Ok(nodes) = self.resource_info(&NODES) else {
            return Ok(false);
        };
        let name = pod["spec"]["nodeName"].as_str().unwrap_or("");
        if self.get_cached(&nodes, "", name)?.is_some() {
            return Ok(true);
        }
        let key = self.storage_key(&nodes, "", name);
        Ok(self.get_newest(&nodes, &key).await?.is_some())
    }

    /// DELETE of a collection: deletes each selected object with the same options. Objects
    /// that were deleted meanwhile are skipped. Returns the objects and warnings.
    pub async fn delete_collection(
        &self,
        ctx: &RequestContext,
        path: ResourcePath<'_>,
        options: &DeleteOptions,
        select: &ListOptions,
    ) -> Result<(ObjectListPage, Vec<String>), Status> {
        let resource = self.resource_info(path.resource)?;
        check_verb(&resource, &path, "deletecollection")?;
        let reply = self.list(ctx, path, select).await?;
        let resource = &resource;
        let mut deletions = futures_util::stream::iter(reply.items.clone())
            .map(|object| async move {
                let path = ResourcePath::object(path.resource, object.namespace(), object.name());
                let admission = DeletionAdmission::Run;
                self.delete_object(ctx, resource, path, options, admission)
                    .await
            })
            .buffer_unordered(MAX_CONCURRENT_DELETES);
        let mut warnings = Vec::new();
        while let Some(outcome) = deletions.next().await {
            match outcome {
                Err(status) if status.code != 404 => return Err(status),
                Err(_) => {}
                Ok(deleted) => warnings.extend(deleted.warnings),
            }
        }
        drop(deletions);
        Ok((reply, warnings))
    }
}

pub(crate) fn check_preconditions(
    resource: &ResourceInfo,
    options: &DeleteOptions,
    object: &Object,
) -> Result<(), Status> {
    // Kubernetes has the kind in place of the resource here (`rest/delete.go`).
    let gvk = &resource.kind.gvk;
    let kind_as_resource = Gvr::new(gvk.group.clone(), gvk.version.clone(), gvk.kind.clone());
    let refuse = |message: String| Err(Status::conflict(&kind_as_resource, object.name(), message));
    if let Some(uid) = &options.uid
        && uid != object.uid()
    {
        return refuse(format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            object.uid()
        ));
    }
    if let Some(revision) = &options.resource_version
        && *revision != object.revision().to_string()
    {
        return refuse(format!(
            "the ResourceVersion in the precondition ({revision}) does not match the ResourceVersion in record ({}). The object might have been modified",
            object.revision()
        ));
    }
    Ok(())
}

fn pending_response(resource: &ResourceInfo, object: Object) -> Result<DeleteResponse, Status> {
    let object = convert_object(resource, object)?;
    Ok(DeleteResponse::Object {
        object,
        gone: false,
    })
}

fn removed_response(resource: &ResourceInfo, object: Object) -> Result<DeleteResponse, Status> {
    if resource.kind.returns_deleted_object {
        let object = convert_object(resource, object)?;
        return Ok(DeleteResponse::Object { object, gone: true });
    }
    Ok(DeleteResponse::Status(Status::deletion_success(
        &resource.kind.gvr,
        object.name(),
        object.uid(),
    )))
}

fn dry_run_response(
    resource: &ResourceInfo,
    object: Object,
    plan: DeletionEffect,
) -> Result<DeleteResponse, Status> {
    match plan {
        DeletionEffect::Remove(last) => removed_response(resource, dry_run_object(last, &object)?),
        DeletionEffect::Wait => pending_response(resource, object),
        DeletionEffect::SetDeletionTimestamp(new) => {
            pending_response(resource, dry_run_object(new, &object)?)
        }
    }
}

/// The object after a dry run, with the revision and managers of the present one.
fn dry_run_object(mut new: Value, present: &Object) -> Result<Object, Status> {
    let revision = present.revision().to_string();
    object_meta::metadata_mut(&mut new)?.insert("resourceVersion".into(), revision.into());
    let new = Object::from_value(&new).and_then(|o| o.with_managed_fields_of(present));
    new.map_err(Status::internal)
}

//! Delete: removes an object at once, or sets its deletion timestamp and waits for its
//! finalizers (contract B8, `registry/generic/registry/store.go`).
//!
//! Pods are removed at once, whatever their grace period: no kubelet confirms their
//! termination.

use admission::AdmissionOperation;
use client::{DeleteOptions, DeletionPropagation, ListOptions, ResourcePath};
use futures_util::StreamExt;
use machinery::{Gvr, Object, Status};
use serde_json::{Value, json};

use crate::commit::{CommitResult, EncodedObject, check_deadline, write_deadline};
use crate::object_meta::{self, FOREGROUND_FINALIZER, ORPHAN_FINALIZER};
use crate::read::{check_verb, convert_object};
use crate::registry::{NAMESPACES, Registry};
use crate::request::{DeleteResponse, DeleteResult, ObjectListPage, RequestUserAndDeadline};
use crate::resource_table::ResourceInfo;
use crate::strategy::{RestStrategy, UNDELETABLE_NAMESPACES};
use crate::write_base::CachedOrNewestBaseObject;
use crate::write_pipeline::AdmissionContext;

/// How many objects of a collection are deleted concurrently.
const MAX_CONCURRENT_DELETES: usize = 16;

/// The effect of a deletion on an object.
#[derive(Debug, PartialEq)]
enum DeletionEffect {
    Remove,
    SetDeletionTimestamp(Value),
    /// The deletion timestamp is set already, and nothing changes.
    Wait,
}

impl Registry {
    /// DELETE of one object.
    pub async fn delete(
        &self,
        ctx: &RequestUserAndDeadline,
        at: ResourcePath<'_>,
        options: &DeleteOptions,
    ) -> Result<DeleteResult, Status> {
        let resource = self.resource_info(at.resource)?;
        check_verb(&resource, &at, "delete")?;
        if !at.subresource.is_empty() {
            return Err(Status::method_not_allowed());
        }
        self.delete_object(ctx, &resource, at, options).await
    }

    async fn delete_object(
        &self,
        ctx: &RequestUserAndDeadline,
        resource: &ResourceInfo,
        at: ResourcePath<'_>,
        options: &DeleteOptions,
    ) -> Result<DeleteResult, Status> {
        if *at.resource == NAMESPACES && UNDELETABLE_NAMESPACES.contains(&at.name) {
            let why = "this namespace may not be deleted";
            return Err(Status::forbidden(&resource.kind.gvr, at.name, why));
        }
        let until = write_deadline(ctx);
        let key = self.storage_key(resource, at.namespace, at.name);
        let mut base =
            CachedOrNewestBaseObject::new(self, resource, at, &key, options.dry_run).await?;
        loop {
            check_deadline(until)?;
            let Some(object) = base.take().await? else {
                return Err(Status::not_found(&resource.kind.gvr, at.name));
            };
            let planned = self
                .plan_deletion(ctx, resource, at, options, &object)
                .await;
            // A commit fails if the object is outdated.
            let is_committed = matches!(
                planned,
                Ok((
                    _,
                    _,
                    DeletionEffect::Remove | DeletionEffect::SetDeletionTimestamp(_)
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
            let managers = object.managed_fields_json();
            let encode = |tree| EncodedObject::new(tree, managers.as_deref());
            let committed = match &plan {
                DeletionEffect::Wait => return result(pending_response(resource, object)),
                DeletionEffect::Remove => {
                    let last = encode(&old)?;
                    self.remove(resource, &key, &last, object.revision())
                        .await?
                }
                DeletionEffect::SetDeletionTimestamp(new) => {
                    let new = encode(new)?;
                    self.put(resource, &key, new, object.revision()).await?
                }
            };
            match committed {
                CommitResult::Conflict(winner) => base.replace(winner),
                CommitResult::Committed(object) if plan == DeletionEffect::Remove => {
                    self.release_service_addresses(resource, &old, None).await;
                    return result(removed_response(resource, object));
                }
                CommitResult::Committed(object) => {
                    return result(pending_response(resource, object));
                }
            }
        }
    }

    /// Checks preconditions and admission; returns the object's tree, warnings and the
    /// plan.
    async fn plan_deletion(
        &self,
        ctx: &RequestUserAndDeadline,
        resource: &ResourceInfo,
        at: ResourcePath<'_>,
        options: &DeleteOptions,
        object: &Object,
    ) -> Result<(Value, Vec<String>, DeletionEffect), Status> {
        check_preconditions(resource, options, object)?;
        let mut old = object.value().map_err(Status::internal)?;
        let admit = AdmissionContext {
            registry: self,
            ctx,
            resource,
            at,
            operation: AdmissionOperation::Delete,
            dry_run: options.dry_run,
            delete_options: Some(options),
        };
        let warnings = admit.validate(&Value::Null, Some(&old)).await?;
        object_meta::metadata_mut(&mut old)?.remove("resourceVersion");
        let plan = deletion_plan(
            resource.storage.strategy,
            &old,
            options.propagation,
            &self.now(),
        );
        Ok((old, warnings, plan))
    }

    /// DELETE of a collection: deletes each selected object with the same options. Objects
    /// that were deleted meanwhile are skipped. Returns the objects and warnings.
    pub async fn delete_collection(
        &self,
        ctx: &RequestUserAndDeadline,
        at: ResourcePath<'_>,
        options: &DeleteOptions,
        select: &ListOptions,
    ) -> Result<(ObjectListPage, Vec<String>), Status> {
        let resource = self.resource_info(at.resource)?;
        check_verb(&resource, &at, "deletecollection")?;
        let reply = self.list(ctx, at, select).await?;
        let resource = &resource;
        let mut deletions = futures_util::stream::iter(reply.items.clone())
            .map(|object| async move {
                let at = ResourcePath::object(at.resource, object.namespace(), object.name());
                self.delete_object(ctx, resource, at, options).await
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

fn check_preconditions(
    resource: &ResourceInfo,
    options: &DeleteOptions,
    object: &Object,
) -> Result<(), Status> {
    // Kubernetes has the kind in place of the resource here (`rest/delete.go`).
    let gvk = &resource.kind.gvk;
    let kind_as_resource = Gvr::new(gvk.group.clone(), gvk.version.clone(), gvk.kind.clone());
    let refuse = |why: String| Err(Status::conflict(&kind_as_resource, object.name(), why));
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

/// The finalizers after the propagation policy is applied.
fn deletion_finalizers(
    strategy: &RestStrategy,
    old: &Value,
    policy: Option<DeletionPropagation>,
) -> Vec<String> {
    let has = |name: &str| object_meta::finalizers(old).any(|f| f == name);
    let policy = policy.unwrap_or_else(|| {
        if has(ORPHAN_FINALIZER) {
            DeletionPropagation::Orphan
        } else if has(FOREGROUND_FINALIZER) {
            DeletionPropagation::Foreground
        } else {
            strategy.propagation
        }
    });
    let policy_finalizer = match policy {
        DeletionPropagation::Orphan => Some(ORPHAN_FINALIZER),
        DeletionPropagation::Foreground => Some(FOREGROUND_FINALIZER),
        DeletionPropagation::Background => None,
    };
    let mut list: Vec<String> = object_meta::finalizers(old)
        .filter(|f| {
            policy_finalizer == Some(*f) || (*f != ORPHAN_FINALIZER && *f != FOREGROUND_FINALIZER)
        })
        .map(str::to_owned)
        .collect();
    if let Some(finalizer) = policy_finalizer
        && !list.iter().any(|f| f == finalizer)
    {
        list.push(finalizer.to_owned());
    }
    list
}

fn deletion_plan(
    strategy: &RestStrategy,
    old: &Value,
    policy: Option<DeletionPropagation>,
    now: &str,
) -> DeletionEffect {
    let mut new = old.clone();
    let finalizers = deletion_finalizers(strategy, old, policy);
    let is_deleting = object_meta::is_deleting(old);
    let Ok(meta) = object_meta::metadata_mut(&mut new) else {
        return DeletionEffect::Remove;
    };
    if finalizers.is_empty() {
        meta.remove("finalizers");
    } else {
        meta.insert("finalizers".into(), json!(finalizers));
    }
    if !is_deleting {
        meta.insert("deletionTimestamp".into(), now.into());
        meta.insert("deletionGracePeriodSeconds".into(), 0.into());
        object_meta::increment_generation(&mut new);
        (strategy.begin_delete)(&mut new, now);
    }
    if object_meta::finalizers(&new).next().is_none() && !(strategy.delays_removal)(&new) {
        DeletionEffect::Remove
    } else if new == *old {
        DeletionEffect::Wait
    } else {
        DeletionEffect::SetDeletionTimestamp(new)
    }
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
        DeletionEffect::Remove => removed_response(resource, object),
        DeletionEffect::Wait => pending_response(resource, object),
        DeletionEffect::SetDeletionTimestamp(mut new) => {
            let revision = object.revision().to_string();
            object_meta::metadata_mut(&mut new)?.insert("resourceVersion".into(), revision.into());
            let new = Object::from_value(&new).and_then(|o| o.with_managed_fields_of(&object));
            pending_response(resource, new.map_err(Status::internal)?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy;

    fn check(object: Value, policy: Option<DeletionPropagation>, want: Option<Value>) {
        let plain = strategy::built_in_strategy("", "configmaps", false);
        let finalizers = match deletion_plan(plain, &object, policy, "now") {
            DeletionEffect::SetDeletionTimestamp(new) => {
                Some(new["metadata"]["finalizers"].clone())
            }
            DeletionEffect::Wait => Some(json!("wait")),
            DeletionEffect::Remove => None,
        };
        assert_eq!(finalizers, want, "{object}");
    }

    #[test]
    fn policy_and_finalizers_determine_the_plan() {
        use DeletionPropagation::{Background, Foreground, Orphan};
        check(json!({"metadata": {}}), None, None);
        check(
            json!({"metadata": {}}),
            Some(Foreground),
            Some(json!([FOREGROUND_FINALIZER])),
        );
        check(
            json!({"metadata": {}}),
            Some(Orphan),
            Some(json!([ORPHAN_FINALIZER])),
        );
        check(
            json!({"metadata": {"finalizers": ["a/b"]}}),
            Some(Background),
            Some(json!(["a/b"])),
        );
        check(
            json!({"metadata": {"finalizers": [ORPHAN_FINALIZER]}}),
            Some(Background),
            None,
        );
        check(
            json!({"metadata": {"finalizers": [ORPHAN_FINALIZER]}}),
            None,
            Some(json!([ORPHAN_FINALIZER])),
        );
        let deleting = json!({"metadata": {"deletionTimestamp": "t", "finalizers": ["a/b"]}});
        check(deleting.clone(), None, Some(json!("wait")));
        check(
            deleting,
            Some(Foreground),
            Some(json!(["a/b", FOREGROUND_FINALIZER])),
        );
    }

    #[test]
    fn setting_the_deletion_timestamp_raises_the_generation() {
        let object = json!({"metadata": {"generation": 2, "finalizers": ["a/b"]}});
        let DeletionEffect::SetDeletionTimestamp(new) = deletion_plan(
            strategy::custom_resource_strategy(true),
            &object,
            None,
            "now",
        ) else {
            panic!("the deletion timestamp is not set");
        };
        assert_eq!(
            new["metadata"],
            json!({"generation": 3, "finalizers": ["a/b"],
            "deletionTimestamp": "now", "deletionGracePeriodSeconds": 0})
        );
    }
}

//! Delete: removes an object at once, or sets its deletion timestamp and waits for its
//! finalizers (contract B8, `registry/generic/registry/store.go`).
//!
//! Pods are removed at once, whatever their grace period: no kubelet confirms their
//! termination.

use admission::Operation;
use client::{At, DeleteOptions, ListOptions, Propagation};
use futures_util::StreamExt;
use machinery::{Gvr, Object, Status};
use serde_json::{Value, json};

use crate::accept::Admit;
use crate::commit::{Committed, check_deadline, deadline};
use crate::meta::{self, FOREGROUND, ORPHAN};
use crate::read::{check_verb, shown};
use crate::registry::{NAMESPACES, Registry};
use crate::request::{Ctx, Deleted, ListReply};
use crate::strategy::{Strategy, UNDELETABLE_NAMESPACES};
use crate::table::Row;

/// How many objects of a collection are deleted concurrently.
const TOGETHER: usize = 16;

/// The effect of a deletion on an object.
#[derive(Debug, PartialEq)]
enum Plan {
    Remove,
    Mark(Value),
    /// The deletion timestamp is set already, and nothing changes.
    Wait,
}

impl Registry {
    /// DELETE of one object.
    pub async fn delete(
        &self,
        ctx: &Ctx,
        at: At<'_>,
        options: &DeleteOptions,
    ) -> Result<Deleted, Status> {
        let resource = self.row(at.resource)?;
        check_verb(&resource, &at, "delete")?;
        if !at.subresource.is_empty() {
            return Err(Status::method_not_allowed());
        }
        self.delete_row(ctx, &resource, at, options).await
    }

    async fn delete_row(
        &self,
        ctx: &Ctx,
        resource: &Row,
        at: At<'_>,
        options: &DeleteOptions,
    ) -> Result<Deleted, Status> {
        if *at.resource == NAMESPACES && UNDELETABLE_NAMESPACES.contains(&at.name) {
            let why = "this namespace may not be deleted";
            return Err(Status::forbidden(&resource.kind.gvr, at.name, why));
        }
        let until = deadline(ctx);
        let key = self.key(resource, at.namespace, at.name);
        let mut fresh = false;
        // A dry run commits nothing, so no conflict would reveal a stale cached object.
        let mut current = match options.dry_run {
            true => None,
            false => self.cached(resource, at.namespace, at.name).await?,
        };
        loop {
            check_deadline(until)?;
            if current.is_none() && !fresh {
                current = self.newest(resource, &key).await?;
                fresh = true;
            }
            let Some(object) = current.take() else {
                return Err(Status::not_found(&resource.kind.gvr, at.name));
            };
            let planned = self.plan(ctx, resource, at, options, &object).await;
            if !fresh && !matches!(planned, Ok((_, Plan::Remove | Plan::Mark(_)))) {
                let newest = self.newest(resource, &key).await?;
                fresh = true;
                if newest.as_ref().map(Object::revision) != Some(object.revision()) {
                    current = newest;
                    continue;
                }
            }
            let (old, plan) = planned?;
            if options.dry_run {
                return rehearsed(resource, object, plan);
            }
            let committed = match &plan {
                Plan::Wait => return kept(resource, object),
                Plan::Remove => self.remove(resource, &key, &old, object.revision()).await?,
                Plan::Mark(new) => self.put(resource, &key, new, object.revision()).await?,
            };
            match committed {
                Committed::Lost(winner) => {
                    current = winner;
                    fresh = true;
                }
                Committed::Done(object) if plan == Plan::Remove => {
                    self.release(resource, &old, None).await;
                    return gone(resource, object);
                }
                Committed::Done(object) => return kept(resource, object),
            }
        }
    }

    /// Checks preconditions and admission; returns the object's tree and the plan.
    async fn plan(
        &self,
        ctx: &Ctx,
        resource: &Row,
        at: At<'_>,
        options: &DeleteOptions,
        object: &Object,
    ) -> Result<(Value, Plan), Status> {
        preconditions(resource, options, object)?;
        let mut old = object.value().map_err(Status::internal)?;
        let admit = Admit {
            registry: self,
            ctx,
            resource,
            at,
            operation: Operation::Delete,
            dry_run: options.dry_run,
        };
        admit.validate(&Value::Null, Some(&old)).await?;
        meta::metadata(&mut old)?.remove("resourceVersion");
        let plan = plan(
            resource.stored.strategy,
            &old,
            options.propagation,
            &self.now(),
        );
        Ok((old, plan))
    }

    /// DELETE of a collection: deletes each selected object with the same options. Objects
    /// that were deleted meanwhile are skipped.
    pub async fn delete_collection(
        &self,
        ctx: &Ctx,
        at: At<'_>,
        options: &DeleteOptions,
        select: &ListOptions,
    ) -> Result<ListReply, Status> {
        let resource = self.row(at.resource)?;
        check_verb(&resource, &at, "deletecollection")?;
        let reply = self.list(ctx, at, select).await?;
        let resource = &resource;
        let mut deletions = futures_util::stream::iter(reply.items.clone())
            .map(|object| async move {
                let at = At::one(at.resource, object.namespace(), object.name());
                self.delete_row(ctx, resource, at, options).await
            })
            .buffer_unordered(TOGETHER);
        while let Some(outcome) = deletions.next().await {
            match outcome {
                Err(status) if status.code != 404 => return Err(status),
                _ => {}
            }
        }
        drop(deletions);
        Ok(reply)
    }
}

fn preconditions(resource: &Row, options: &DeleteOptions, object: &Object) -> Result<(), Status> {
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
fn adjusted(strategy: &Strategy, old: &Value, policy: Option<Propagation>) -> Vec<String> {
    let has = |name: &str| meta::finalizers(old).any(|f| f == name);
    let policy = policy.unwrap_or_else(|| {
        if has(ORPHAN) {
            Propagation::Orphan
        } else if has(FOREGROUND) {
            Propagation::Foreground
        } else {
            strategy.propagation
        }
    });
    let policy_finalizer = match policy {
        Propagation::Orphan => Some(ORPHAN),
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Background => None,
    };
    let mut list: Vec<String> = meta::finalizers(old)
        .filter(|f| policy_finalizer == Some(*f) || (*f != ORPHAN && *f != FOREGROUND))
        .map(str::to_owned)
        .collect();
    if let Some(finalizer) = policy_finalizer
        && !list.iter().any(|f| f == finalizer)
    {
        list.push(finalizer.to_owned());
    }
    list
}

fn plan(strategy: &Strategy, old: &Value, policy: Option<Propagation>, now: &str) -> Plan {
    let mut new = old.clone();
    let finalizers = adjusted(strategy, old, policy);
    let is_deleting = meta::deleting(old);
    let Ok(meta) = meta::metadata(&mut new) else {
        return Plan::Remove;
    };
    if finalizers.is_empty() {
        meta.remove("finalizers");
    } else {
        meta.insert("finalizers".into(), json!(finalizers));
    }
    if !is_deleting {
        meta.insert("deletionTimestamp".into(), now.into());
        meta.insert("deletionGracePeriodSeconds".into(), 0.into());
        meta::bump_generation(&mut new);
        (strategy.begin_delete)(&mut new, now);
    }
    if meta::finalizers(&new).next().is_none() && !(strategy.held)(&new) {
        Plan::Remove
    } else if new == *old {
        Plan::Wait
    } else {
        Plan::Mark(new)
    }
}

fn kept(resource: &Row, object: Object) -> Result<Deleted, Status> {
    let object = shown(resource, object)?;
    Ok(Deleted::Object {
        object,
        gone: false,
    })
}

fn gone(resource: &Row, object: Object) -> Result<Deleted, Status> {
    if resource.kind.returns_deleted {
        let object = shown(resource, object)?;
        return Ok(Deleted::Object { object, gone: true });
    }
    Ok(Deleted::Gone(Status::deleted(
        &resource.kind.gvr,
        object.name(),
        object.uid(),
    )))
}

fn rehearsed(resource: &Row, object: Object, plan: Plan) -> Result<Deleted, Status> {
    match plan {
        Plan::Remove => gone(resource, object),
        Plan::Wait => kept(resource, object),
        Plan::Mark(mut new) => {
            let revision = object.revision().to_string();
            meta::metadata(&mut new)?.insert("resourceVersion".into(), revision.into());
            kept(
                resource,
                Object::from_value(&new).map_err(Status::internal)?,
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy;

    fn check(object: Value, policy: Option<Propagation>, want: Option<Value>) {
        let plain = strategy::of("", "configmaps", false);
        let finalizers = match plan(plain, &object, policy, "now") {
            Plan::Mark(new) => Some(new["metadata"]["finalizers"].clone()),
            Plan::Wait => Some(json!("wait")),
            Plan::Remove => None,
        };
        assert_eq!(finalizers, want, "{object}");
    }

    #[test]
    fn policy_and_finalizers_determine_the_plan() {
        use Propagation::{Background, Foreground, Orphan};
        check(json!({"metadata": {}}), None, None);
        check(
            json!({"metadata": {}}),
            Some(Foreground),
            Some(json!([FOREGROUND])),
        );
        check(json!({"metadata": {}}), Some(Orphan), Some(json!([ORPHAN])));
        check(
            json!({"metadata": {"finalizers": ["a/b"]}}),
            Some(Background),
            Some(json!(["a/b"])),
        );
        check(
            json!({"metadata": {"finalizers": [ORPHAN]}}),
            Some(Background),
            None,
        );
        check(
            json!({"metadata": {"finalizers": [ORPHAN]}}),
            None,
            Some(json!([ORPHAN])),
        );
        let deleting = json!({"metadata": {"deletionTimestamp": "t", "finalizers": ["a/b"]}});
        check(deleting.clone(), None, Some(json!("wait")));
        check(deleting, Some(Foreground), Some(json!(["a/b", FOREGROUND])));
    }

    #[test]
    fn setting_the_deletion_timestamp_raises_the_generation() {
        let object = json!({"metadata": {"generation": 2, "finalizers": ["a/b"]}});
        let Plan::Mark(new) = plan(strategy::custom(true), &object, None, "now") else {
            panic!("the deletion timestamp is not set");
        };
        assert_eq!(
            new["metadata"],
            json!({"generation": 3, "finalizers": ["a/b"],
            "deletionTimestamp": "now", "deletionGracePeriodSeconds": 0})
        );
    }
}

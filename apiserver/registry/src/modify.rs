//! Update and patch: reads an object, changes it, and commits it optimistically.
//!
//! The first attempt starts from the cached object. A rejection, or a result equal to the
//! cached object, is confirmed with the newest object (contract E5). After a conflict, the
//! next attempt starts from the object that won.

use std::sync::Arc;

use admission::Operation;
use bytes::Bytes;
use client::{At, Patch};
use machinery::{FieldError, Object, Status};
use serde_json::{Value, json};

use crate::accept::{Admit, check_kind, check_namespace, complete, decode, judge};
use crate::apart::Apart;
use crate::claims::is_service;
use crate::commit::{Committed, check_deadline, deadline};
use crate::meta;
use crate::read::{check_verb, shown};
use crate::registry::Registry;
use crate::request::{Body, Ctx, WriteOptions, Written};
use crate::scale;
use crate::table::Row;
use crate::taken::Taken;
use crate::view::View;

/// The new object, or a patch that produces it.
pub(crate) enum Source {
    Put(Body),
    Patch(Patch),
}

/// The part of an object that a write may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Main,
    Status,
    Scale,
    /// `spec.finalizers` of a namespace.
    Finalize,
}

/// One update or patch, with all its attempts.
struct Write<'a> {
    registry: &'a Registry,
    ctx: &'a Ctx,
    resource: &'a Row,
    at: At<'a>,
    part: Part,
    options: &'a WriteOptions,
}

/// The result of an attempt that changes the object.
struct Changed {
    old: Value,
    new: Value,
    /// The encoded new object, if the trees contain only a part of it.
    encoded: Option<Bytes>,
    /// No finalizer is left: the write deletes the object.
    deletes: bool,
    allocation: Taken,
}

impl Registry {
    /// PUT of an object, its `status`, `scale` or `finalize`.
    pub async fn update(
        &self,
        ctx: &Ctx,
        at: At<'_>,
        body: Body,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        let resource = self.row(at.resource)?;
        check_verb(&resource, &at, "update")?;
        self.modify(ctx, &resource, at, Source::Put(body), options)
            .await
    }

    /// PATCH of an object, its `status` or `scale`.
    pub async fn patch(
        &self,
        ctx: &Ctx,
        at: At<'_>,
        patch: Patch,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        let resource = self.row(at.resource)?;
        check_verb(&resource, &at, "patch")?;
        if matches!(patch, Patch::Strategic(_)) && !resource.kind.strategic {
            return Err(Status::unsupported_media_type(resource.patch_types()));
        }
        self.modify(ctx, &resource, at, Source::Patch(patch), options)
            .await
    }

    async fn modify(
        &self,
        ctx: &Ctx,
        resource: &Row,
        at: At<'_>,
        mut source: Source,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        let part = match at.subresource {
            "" => Part::Main,
            "status" => Part::Status,
            "scale" => Part::Scale,
            "finalize" => Part::Finalize,
            _ => return Err(Status::method_not_allowed()),
        };
        let write = Write {
            registry: self,
            ctx,
            resource,
            at,
            part,
            options,
        };
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
                return write.missing(source).await;
            };
            let mut consumed = false;
            let attempt = write.turn(&mut source, &object, &mut consumed).await;
            let (changed, warnings) = match attempt {
                Ok((Some(changed), warnings)) => (changed, warnings),
                unconfirmed => {
                    if !fresh {
                        let newest = self.newest(resource, &key).await?;
                        fresh = true;
                        if newest.as_ref().map(Object::revision) != Some(object.revision()) {
                            if consumed {
                                return Err(write.lost(newest.is_some()));
                            }
                            current = newest;
                            continue;
                        }
                    }
                    let (_, warnings) = unconfirmed?;
                    let rewritten = match options.dry_run {
                        true => None,
                        false => self.rewrite(resource, &key, object.revision()).await?,
                    };
                    match rewritten {
                        None => return write.reply(object, warnings),
                        Some(Committed::Done(object)) => return write.reply(object, warnings),
                        Some(Committed::Lost(winner)) if consumed => {
                            return Err(write.lost(winner.is_some()));
                        }
                        Some(Committed::Lost(winner)) => {
                            current = winner;
                            continue;
                        }
                    }
                }
            };
            if options.dry_run {
                return write.rehearsed(changed, &object, warnings);
            }
            match write.commit(&key, &changed, object.revision()).await? {
                Committed::Done(object) => {
                    let remaining = (!changed.deletes).then_some(&changed.new);
                    self.release(resource, &changed.old, remaining).await;
                    return write.reply(object, warnings);
                }
                Committed::Lost(winner) if consumed => return Err(write.lost(winner.is_some())),
                Committed::Lost(winner) => {
                    current = winner;
                    fresh = true;
                }
            }
        }
    }
}

impl Write<'_> {
    /// Handles an absent object: 404, or a creation if the kind allows create on update.
    async fn missing(self, source: Source) -> Result<Written, Status> {
        let gvr = &self.resource.kind.gvr;
        match source {
            Source::Put(body) if self.part == Part::Main && self.resource.kind.create_on_update => {
                let mut body = body;
                check_name(&mut body.value, &self.at)?;
                if !meta::text(&body.value, "resourceVersion").is_empty() {
                    return Err(Status::not_found(gvr, self.at.name));
                }
                let at = At {
                    name: "",
                    ..self.at
                };
                self.registry.create(self.ctx, at, body, self.options).await
            }
            _ => Err(Status::not_found(gvr, self.at.name)),
        }
    }

    /// The error if another write won and the body cannot be applied again.
    fn lost(&self, exists: bool) -> Status {
        if exists {
            Status::stale(&self.resource.kind.gvr, self.at.name)
        } else {
            Status::not_found(&self.resource.kind.gvr, self.at.name)
        }
    }

    async fn commit(
        &self,
        key: &Arc<str>,
        changed: &Changed,
        expected: u64,
    ) -> Result<Committed, Status> {
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
        if !matches!(committed, Ok(Committed::Done(_))) {
            self.registry.give_back(&changed.allocation).await;
        }
        committed
    }

    fn reply(&self, object: Object, warnings: Vec<String>) -> Result<Written, Status> {
        let object = match (self.part, &self.resource.kind.scale) {
            (Part::Scale, Some(paths)) => {
                let parent = object.value().map_err(Status::internal)?;
                Object::from_value(&scale::of(paths, &parent)?).map_err(Status::internal)?
            }
            _ => shown(self.resource, object)?,
        };
        Ok(Written {
            object,
            created: false,
            warnings,
        })
    }

    /// The result of a dry run, with the old revision.
    fn rehearsed(
        &self,
        changed: Changed,
        before: &Object,
        warnings: Vec<String>,
    ) -> Result<Written, Status> {
        let mut new = changed.new;
        let revision = before.revision().to_string();
        meta::metadata(&mut new)?.insert("resourceVersion".into(), revision.into());
        let object = Object::from_value(&new).map_err(Status::internal)?;
        self.reply(object, warnings)
    }

    /// Computes the new object from the current one; `None` if they are equal. Sets
    /// `consumed` if the body was used up: with its `resourceVersion` it allows no second
    /// attempt.
    async fn turn(
        &self,
        source: &mut Source,
        current: &Object,
        consumed: &mut bool,
    ) -> Result<(Option<Changed>, Vec<String>), Status> {
        let resource = self.resource;
        let apart = self.apart(source, current)?;
        let mut old = match &apart {
            Some(apart) => apart.tree()?,
            None => current.value().map_err(Status::internal)?,
        };
        let (sent, mut warnings) = self.sent(source, &old, current, consumed)?;
        let mut new = self.merged(sent, &old)?;
        if let Some(before) = old["metadata"].as_object() {
            meta::carry_over(meta::metadata(&mut new)?, before);
        }
        complete(resource, &mut new);
        if apart.is_some() {
            Apart::trim(&mut new);
        }
        let admit = Admit {
            registry: self.registry,
            ctx: self.ctx,
            resource,
            at: self.at,
            operation: Operation::Update,
            dry_run: self.options.dry_run,
        };
        warnings.extend(admit.mutate(&mut new, Some(&old)).await?);
        let concerns = match apart {
            Some(_) => Apart::concerns,
            None => |_: &FieldError| true,
        };
        let strategy = resource.stored.strategy;
        if self.part == Part::Main {
            (strategy.update)(&mut new, &old);
        }
        let validate_kind = matches!(self.part, Part::Main | Part::Scale);
        judge(resource, &new, Some(&old), validate_kind, concerns)?;
        if matches!(self.part, Part::Main | Part::Scale) && strategy.generation.raised(&new, &old) {
            meta::bump_generation(&mut new);
        }
        warnings.extend(admit.validate(&new, Some(&old)).await?);
        meta::metadata(&mut old)?.remove("resourceVersion");
        let allocation = Box::pin(admit.take(&mut new, Some(&old))).await?;
        if new == old {
            return Ok((None, warnings));
        }
        let deletes = meta::deleting(&new)
            && meta::finalizers(&new).next().is_none()
            && !(strategy.held)(&new);
        let encoded = apart.map(|apart| apart.encode(&new)).transpose()?;
        Ok((
            Some(Changed {
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
    fn apart<'o>(&self, source: &Source, current: &'o Object) -> Result<Option<Apart<'o>>, Status> {
        let resource = self.resource;
        let covered = match source {
            Source::Put(_) => true,
            Source::Patch(Patch::Merge(patch) | Patch::Strategic(patch)) => Apart::covers(patch),
            Source::Patch(Patch::Json(_)) => false,
        };
        let needs_object = self.part != Part::Status
            || self.options.dry_run
            || resource.custom
            || resource.view != View::Stored
            || current.head().deleting
            || is_service(resource)
            || self.registry.hooks(resource, self.at.subresource).is_some()
            || !covered;
        (!needs_object).then(|| Apart::of(current)).transpose()
    }

    /// The object (or Scale) that the client requests, in the storage version.
    fn sent(
        &self,
        source: &mut Source,
        old: &Value,
        current: &Object,
        consumed: &mut bool,
    ) -> Result<(Value, Vec<String>), Status> {
        let patched = matches!(source, Source::Patch(_));
        let mut duplicates = Vec::new();
        let mut value = match source {
            Source::Put(body) => {
                self.preconditions(&body.value, current, false)?;
                duplicates.clone_from(&body.duplicates);
                if meta::text(&body.value, "resourceVersion").is_empty() {
                    body.value.clone()
                } else {
                    *consumed = true;
                    std::mem::take(&mut body.value)
                }
            }
            Source::Patch(patch) => {
                let value = self.patched(patch, old)?;
                self.preconditions(&value, current, true)?;
                value
            }
        };
        check_name(&mut value, &self.at)?;
        if self.part == Part::Scale {
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
            .view
            .write(&self.resource.stored.kind.gvk, &mut value);
        Ok((value, warnings))
    }

    fn patched(&self, patch: &Patch, old: &Value) -> Result<Value, Status> {
        let mut doc = match (self.part, &self.resource.kind.scale) {
            (Part::Scale, Some(paths)) => scale::of(paths, old)?,
            _ => {
                let mut doc = old.clone();
                self.resource.view.read(&self.resource.kind.gvk, &mut doc);
                doc
            }
        };
        let outcome = match patch {
            Patch::Json(patch) => patch::json(&doc, patch),
            Patch::Strategic(patch) if self.part != Part::Scale => {
                patch::strategic(&doc, patch, &self.resource.schema)
            }
            // A Scale has no lists: both patch types have the same effect.
            Patch::Merge(patch) | Patch::Strategic(patch) => {
                if !patch.is_object() {
                    return Err(Status::bad_request("a merge patch must be an object"));
                }
                patch::merge(&mut doc, patch);
                Ok(doc)
            }
        };
        outcome.map_err(|error| match error {
            patch::Error::BadRequest(why) => Status::bad_request(why),
            patch::Error::TooLarge(why) => Status::too_large(why),
            // As in `endpoints/handlers/patch.go`, the response omits the reason.
            patch::Error::Unprocessable(_) => Status::unprocessable(),
        })
    }

    /// Checks the preconditions in a body: its `resourceVersion` and uid (B4.2, B5.4).
    fn preconditions(&self, sent: &Value, current: &Object, patched: bool) -> Result<(), Status> {
        let gvr = &self.resource.kind.gvr;
        let revision = meta::text(sent, "resourceVersion");
        if revision.is_empty() || revision == "0" {
            let needed = !self.resource.kind.unconditional_update
                && !patched
                && matches!(self.part, Part::Main | Part::Status);
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
                return Err(Status::stale(gvr, self.at.name));
            }
        }
        let uid = meta::text(sent, "uid");
        if !uid.is_empty() && uid != current.uid() {
            return Err(Status::conflict(
                gvr,
                self.at.name,
                format!(
                    "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                    self.registry
                        .key(self.resource, self.at.namespace, self.at.name),
                    current.uid()
                ),
            ));
        }
        Ok(())
    }

    /// Takes from the requested object only what this path may change (B4.4).
    fn merged(&self, mut sent: Value, old: &Value) -> Result<Value, Status> {
        match self.part {
            Part::Main => {
                if self.resource.stored.kind.status
                    && let Some(map) = sent.as_object_mut()
                {
                    match old.get("status") {
                        Some(status) => map.insert("status".into(), status.clone()),
                        None => map.remove("status"),
                    };
                }
                Ok(sent)
            }
            Part::Status => {
                let mut new = old.clone();
                if let (Some(new), Some(sent)) = (new.as_object_mut(), sent.as_object_mut()) {
                    match sent.remove("status") {
                        Some(status) => new.insert("status".into(), status),
                        None => new.remove("status"),
                    };
                }
                if self.resource.stored.strategy.status_takes_metadata {
                    let (meta, sent) = (meta::metadata(&mut new)?, &sent["metadata"]);
                    for field in ["labels", "annotations"] {
                        match sent.get(field) {
                            Some(v) => meta.insert(field.into(), v.clone()),
                            None => meta.remove(field),
                        };
                    }
                }
                Ok(new)
            }
            Part::Scale => {
                let mut new = old.clone();
                if let Some(paths) = &self.resource.kind.scale {
                    scale::apply(paths, &sent, &mut new)?;
                }
                Ok(new)
            }
            Part::Finalize => {
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
fn check_name(value: &mut Value, at: &At<'_>) -> Result<(), Status> {
    let meta = meta::metadata(value)?;
    let name = meta.get("name").and_then(Value::as_str).unwrap_or("");
    if name == at.name {
        return Ok(());
    }
    Err(Status::bad_request(format!(
        "the name of the object ({name}) does not match the name on the URL ({})",
        at.name
    )))
}

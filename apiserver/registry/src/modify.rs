//! Update and patch: the optimistic loop.
//!
//! Enters: a body or a patch. Leaves: the stored object. A turn starts from the
//! cached object; a refusal, or a result equal to what is there, is believed only
//! when the object was fresh (contract E5). A lost race starts over with what won.

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

/// Where the new state comes from.
pub(crate) enum Source {
    Put(Body),
    Patch(Patch),
}

/// Which part of the object a write may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Main,
    Status,
    Scale,
    /// `spec.finalizers` of a namespace.
    Finalize,
}

/// One write, through all its turns.
struct Write<'a> {
    registry: &'a Registry,
    ctx: &'a Ctx,
    row: &'a Row,
    at: At<'a>,
    part: Part,
    options: &'a WriteOptions,
}

/// A turn whose result differs from what is there.
struct Changed {
    old: Value,
    new: Value,
    /// The new object, where the trees hold only a part of it.
    encoded: Option<Bytes>,
    /// Nothing holds the object any more: the write deletes it.
    gone: bool,
    taken: Taken,
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
        let row = self.row(at.resource)?;
        check_verb(&row, &at, "update")?;
        self.modify(ctx, &row, at, Source::Put(body), options).await
    }

    /// PATCH of an object, its `status` or `scale`.
    pub async fn patch(
        &self,
        ctx: &Ctx,
        at: At<'_>,
        patch: Patch,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        let row = self.row(at.resource)?;
        check_verb(&row, &at, "patch")?;
        if matches!(patch, Patch::Strategic(_)) && !row.kind.strategic {
            return Err(Status::unsupported_media_type(row.patch_types()));
        }
        self.modify(ctx, &row, at, Source::Patch(patch), options)
            .await
    }

    async fn modify(
        &self,
        ctx: &Ctx,
        row: &Row,
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
            row,
            at,
            part,
            options,
        };
        let until = deadline(ctx);
        let key = self.key(row, at.namespace, at.name);
        let mut fresh = false;
        // A dry run commits nothing, so nothing would tell that the cached object is stale.
        let mut current = match options.dry_run {
            true => None,
            false => self.cached(row, at.namespace, at.name).await?,
        };
        loop {
            check_deadline(until)?;
            if current.is_none() && !fresh {
                current = self.newest(row, &key).await?;
                fresh = true;
            }
            let Some(object) = current.take() else {
                return write.missing(source).await;
            };
            let mut spent = false;
            let turn = write.turn(&mut source, &object, &mut spent).await;
            let (changed, warnings) = match turn {
                Ok((Some(changed), warnings)) => (changed, warnings),
                settled => {
                    if !fresh {
                        let newest = self.newest(row, &key).await?;
                        fresh = true;
                        if newest.as_ref().map(Object::revision) != Some(object.revision()) {
                            if spent {
                                return Err(write.lost(newest.is_some()));
                            }
                            current = newest;
                            continue;
                        }
                    }
                    let (_, warnings) = settled?;
                    let rewritten = match options.dry_run {
                        true => None,
                        false => self.rewrite(row, &key, object.revision()).await?,
                    };
                    match rewritten {
                        None => return write.reply(object, warnings),
                        Some(Committed::Done(object)) => return write.reply(object, warnings),
                        Some(Committed::Lost(winner)) if spent => {
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
                    let kept = (!changed.gone).then_some(&changed.new);
                    self.release(row, &changed.old, kept).await;
                    return write.reply(object, warnings);
                }
                Committed::Lost(winner) if spent => return Err(write.lost(winner.is_some())),
                Committed::Lost(winner) => {
                    current = winner;
                    fresh = true;
                }
            }
        }
    }
}

impl Write<'_> {
    /// Nothing there: 404, or a creation where the kind allows it.
    async fn missing(self, source: Source) -> Result<Written, Status> {
        let gvr = &self.row.kind.gvr;
        match source {
            Source::Put(body) if self.part == Part::Main && self.row.kind.create_on_update => {
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

    /// Somebody else was faster, and the body is bound to a revision.
    fn lost(&self, there: bool) -> Status {
        if there {
            Status::stale(&self.row.kind.gvr, self.at.name)
        } else {
            Status::not_found(&self.row.kind.gvr, self.at.name)
        }
    }

    async fn commit(
        &self,
        key: &Arc<str>,
        changed: &Changed,
        expected: u64,
    ) -> Result<Committed, Status> {
        let new = &changed.new;
        let committed = if changed.gone {
            self.registry.remove(self.row, key, new, expected).await
        } else if let Some(bytes) = &changed.encoded {
            let bytes = bytes.clone();
            self.registry
                .put_encoded(self.row, key, bytes, expected)
                .await
        } else {
            self.registry.put(self.row, key, new, expected).await
        };
        if !matches!(committed, Ok(Committed::Done(_))) {
            self.registry.give_back(&changed.taken).await;
        }
        committed
    }

    fn reply(&self, object: Object, warnings: Vec<String>) -> Result<Written, Status> {
        let object = match (self.part, &self.row.kind.scale) {
            (Part::Scale, Some(paths)) => {
                let parent = object.value().map_err(Status::internal)?;
                Object::from_value(&scale::of(paths, &parent)?).map_err(Status::internal)?
            }
            _ => shown(self.row, object)?,
        };
        Ok(Written {
            object,
            created: false,
            warnings,
        })
    }

    /// The answer of a dry run carries the old revision.
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

    /// From the present object to the new one; `None` when they are equal. `spent`
    /// is set when the body was used up: its revision leaves no second turn.
    async fn turn(
        &self,
        source: &mut Source,
        current: &Object,
        spent: &mut bool,
    ) -> Result<(Option<Changed>, Vec<String>), Status> {
        let row = self.row;
        let apart = self.apart(source, current)?;
        let mut old = match &apart {
            Some(apart) => apart.tree()?,
            None => current.value().map_err(Status::internal)?,
        };
        let (sent, mut warnings) = self.sent(source, &old, current, spent)?;
        let mut new = self.merged(sent, &old)?;
        if let Some(before) = old["metadata"].as_object() {
            meta::carry_over(meta::metadata(&mut new)?, before);
        }
        complete(row, &mut new);
        if apart.is_some() {
            Apart::trim(&mut new);
        }
        let admit = Admit {
            registry: self.registry,
            ctx: self.ctx,
            row,
            at: self.at,
            operation: Operation::Update,
            dry_run: self.options.dry_run,
        };
        warnings.extend(admit.mutate(&mut new, Some(&old)).await?);
        let concerns = match apart {
            Some(_) => Apart::concerns,
            None => |_: &FieldError| true,
        };
        let strategy = row.stored.strategy;
        if self.part == Part::Main {
            (strategy.update)(&mut new, &old);
        }
        let whole = matches!(self.part, Part::Main | Part::Scale);
        judge(row, &new, Some(&old), whole, concerns)?;
        if matches!(self.part, Part::Main | Part::Scale) && strategy.generation.raised(&new, &old) {
            meta::bump_generation(&mut new);
        }
        warnings.extend(admit.validate(&new, Some(&old)).await?);
        meta::metadata(&mut old)?.remove("resourceVersion");
        let taken = Box::pin(admit.take(&mut new, Some(&old))).await?;
        if new == old {
            return Ok((None, warnings));
        }
        let gone = meta::deleting(&new)
            && meta::finalizers(&new).next().is_none()
            && !(strategy.held)(&new);
        let encoded = apart.map(|apart| apart.encode(&new)).transpose()?;
        Ok((
            Some(Changed {
                old,
                new,
                encoded,
                gone,
                taken,
            }),
            warnings,
        ))
    }

    /// A status written in the stored form needs no tree of the rest. Not so where
    /// the rest decides: whether a deleted object is still held, a service's
    /// allocations, what a JSON patch tests.
    fn apart<'o>(&self, source: &Source, current: &'o Object) -> Result<Option<Apart<'o>>, Status> {
        let row = self.row;
        let within = match source {
            Source::Put(_) => true,
            Source::Patch(Patch::Merge(patch) | Patch::Strategic(patch)) => Apart::covers(patch),
            Source::Patch(Patch::Json(_)) => false,
        };
        let whole = self.part != Part::Status
            || self.options.dry_run
            || row.custom
            || row.view != View::Stored
            || current.head().deleting
            || is_service(row)
            || self.registry.hooks(row, self.at.subresource).is_some()
            || !within;
        (!whole).then(|| Apart::of(current)).transpose()
    }

    /// The whole object (or Scale) as the client wants it, in stored form.
    fn sent(
        &self,
        source: &mut Source,
        old: &Value,
        current: &Object,
        spent: &mut bool,
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
                    *spent = true;
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
        check_kind(self.row, &mut value)?;
        check_namespace(self.row, &self.at, &mut value)?;
        let how = self.options.field_validation;
        let warnings = decode(self.row, &mut value, &duplicates, how, patched)?;
        self.row.view.write(&self.row.stored.kind.gvk, &mut value);
        Ok((value, warnings))
    }

    fn patched(&self, patch: &Patch, old: &Value) -> Result<Value, Status> {
        let mut doc = match (self.part, &self.row.kind.scale) {
            (Part::Scale, Some(paths)) => scale::of(paths, old)?,
            _ => {
                let mut doc = old.clone();
                self.row.view.read(&self.row.kind.gvk, &mut doc);
                doc
            }
        };
        let outcome = match patch {
            Patch::Json(patch) => patch::json(&doc, patch),
            Patch::Strategic(patch) if self.part != Part::Scale => {
                patch::strategic(&doc, patch, &self.row.schema)
            }
            // A Scale has no lists: both dialects mean the same.
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
            // What did not fit is not told, as `endpoints/handlers/patch.go` has it.
            patch::Error::Unprocessable(_) => Status::unprocessable(),
        })
    }

    /// Revision and uid in a body are conditions (B4.2, B5.4).
    fn preconditions(&self, sent: &Value, current: &Object, patched: bool) -> Result<(), Status> {
        let gvr = &self.row.kind.gvr;
        let revision = meta::text(sent, "resourceVersion");
        if revision.is_empty() || revision == "0" {
            let needed = !self.row.kind.unconditional_update
                && !patched
                && matches!(self.part, Part::Main | Part::Status);
            if needed {
                let error = FieldError::invalid(
                    "metadata.resourceVersion",
                    &json!(0),
                    "must be specified for an update",
                );
                return Err(Status::invalid(&self.row.kind.gvk, self.at.name, &[error]));
            }
        } else {
            let asked: u64 = revision.parse().map_err(|_| {
                let error = FieldError::invalid(
                    "metadata.resourceVersion",
                    &json!(revision),
                    "must be a decimal number",
                );
                Status::invalid(&self.row.kind.gvk, self.at.name, &[error])
            })?;
            if asked != current.revision() {
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
                    self.registry.key(self.row, self.at.namespace, self.at.name),
                    current.uid()
                ),
            ));
        }
        Ok(())
    }

    /// Takes from the sent object only what this path may change (B4.4).
    fn merged(&self, mut sent: Value, old: &Value) -> Result<Value, Status> {
        match self.part {
            Part::Main => {
                if self.row.stored.kind.status
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
                if self.row.stored.strategy.status_takes_metadata {
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
                if let Some(paths) = &self.row.kind.scale {
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

/// The body's name must be the path's.
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

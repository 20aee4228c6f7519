//! Create: turns a body into a stored object.
//!
//! Order as in Kubernetes: defaults, mutating admission, generated metadata, strategy,
//! validation, validating admission, one transaction.

use admission::Operation;
use client::At;
use machinery::{Object, Status};
use serde_json::Value;

use crate::accept::{Admit, check_kind, check_namespace, complete, decode, judge};
use crate::commit::Committed;
use crate::meta;
use crate::read::{check_verb, shown};
use crate::registry::{NAMESPACES, Registry};
use crate::request::{Body, Ctx, WriteOptions, Written};
use crate::table::Row;

const NAME_TRIES: usize = 8;

impl Registry {
    /// POST to a collection, or to a subresource of a named object.
    pub async fn create(
        &self,
        ctx: &Ctx,
        at: At<'_>,
        body: Body,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        let resource = self.row(at.resource)?;
        check_verb(&resource, &at, "create")?;
        if !at.subresource.is_empty() {
            return self.create_below(ctx, &resource, at, body, options).await;
        }
        if !at.name.is_empty() {
            return Err(Status::method_not_allowed());
        }
        if resource.is_virtual() {
            return self.answer(ctx, at, body, None).await;
        }
        let Body {
            mut value,
            duplicates,
        } = body;
        check_kind(&resource, &mut value)?;
        check_namespace(&resource, &at, &mut value)?;
        if !meta::text(&value, "resourceVersion").is_empty() {
            let why = "resourceVersion should not be set on objects to be created";
            return Err(Status::failure(500, "InternalError", why));
        }
        let field_validation = options.field_validation;
        let mut warnings = decode(&resource, &mut value, &duplicates, field_validation, false)?;
        if resource.custom {
            warnings.extend(meta::finalizer_warnings(&value));
        }
        resource.view.write(&resource.stored.kind.gvk, &mut value);
        complete(&resource, &mut value);
        self.check_lifecycle(&resource, at.namespace, meta::text(&value, "name"))
            .await?;
        self.insert_named(ctx, &resource, at, value, options, warnings)
            .await
    }

    /// Calls the create handler of a resource or subresource.
    pub(crate) async fn answer(
        &self,
        ctx: &Ctx,
        at: At<'_>,
        body: Body,
        parent: Option<&Object>,
    ) -> Result<Written, Status> {
        let creators = self.options.creators.iter();
        let found = creators
            .filter(|((gvr, sub), _)| gvr == at.resource && *sub == at.subresource)
            .map(|(_, creator)| creator)
            .next();
        let creator = found.ok_or_else(Status::method_not_allowed)?;
        let reply = creator.create(ctx, at, body.value, parent).await?;
        Ok(Written {
            object: Object::from_value(&reply).map_err(Status::internal)?,
            created: true,
            warnings: Vec::new(),
        })
    }

    /// 404 if the namespace does not exist, 403 if it is being terminated (B2.8).
    pub(crate) async fn check_lifecycle(
        &self,
        resource: &Row,
        namespace: &str,
        name: &str,
    ) -> Result<(), Status> {
        if !resource.kind.namespaced {
            return Ok(());
        }
        let Some(namespace_object) = self.namespace(namespace).await? else {
            return Err(Status::not_found(&NAMESPACES, namespace));
        };
        if !namespace_object.head().deleting {
            return Ok(());
        }
        let why = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        Err(Status::forbidden(&resource.kind.gvr, name, why).cause(
            "NamespaceTerminating",
            format!("namespace {namespace} is being terminated"),
            "metadata.namespace",
        ))
    }

    /// Generates a name if only `generateName` is set, and another one if it exists already.
    async fn insert_named(
        &self,
        ctx: &Ctx,
        resource: &Row,
        at: At<'_>,
        mut value: Value,
        options: &WriteOptions,
        warnings: Vec<String>,
    ) -> Result<Written, Status> {
        let base = meta::text(&value, "generateName").to_owned();
        if !meta::text(&value, "name").is_empty() || base.is_empty() {
            return self
                .insert(ctx, resource, at, value, options, warnings)
                .await;
        }
        let mut conflict = None;
        for _ in 0..NAME_TRIES {
            let name = meta::generate_name(&base);
            meta::metadata(&mut value)?.insert("name".into(), name.into());
            let attempt = self.insert(ctx, resource, at, value.clone(), options, warnings.clone());
            match attempt.await {
                Err(status) if status.reason == "AlreadyExists" => conflict = Some(status),
                other => return other,
            }
        }
        let conflict =
            conflict.unwrap_or_else(|| Status::already_exists(&resource.kind.gvr, &base));
        Err(conflict.retry_after(1))
    }

    pub(crate) async fn insert(
        &self,
        ctx: &Ctx,
        resource: &Row,
        at: At<'_>,
        mut new: Value,
        options: &WriteOptions,
        mut warnings: Vec<String>,
    ) -> Result<Written, Status> {
        let name = meta::text(&new, "name").to_owned();
        let admit = Admit {
            registry: self,
            ctx,
            resource,
            at: At { name: &name, ..at },
            operation: Operation::Create,
            dry_run: options.dry_run,
        };
        warnings.extend(admit.mutate(&mut new, None).await?);
        let strategy = resource.stored.strategy;
        if resource.stored.kind.status
            && let Some(map) = new.as_object_mut()
        {
            map.remove("status");
        }
        let meta = meta::metadata(&mut new)?;
        meta::drop_server_owned(meta);
        meta::stamp(meta, &self.now(), strategy.generation.tracked());
        (strategy.create)(&mut new);
        judge(resource, &new, None, true, |_| true)?;
        warnings.extend(admit.validate(&new, None).await?);
        let allocation = Box::pin(admit.take(&mut new, None)).await?;
        let stored = self
            .store_new(resource, at.namespace, &name, &new, options.dry_run)
            .await;
        if stored.is_err() {
            self.give_back(&allocation).await;
        }
        Ok(Written {
            object: shown(resource, stored?)?,
            created: true,
            warnings,
        })
    }

    async fn store_new(
        &self,
        resource: &Row,
        namespace: &str,
        name: &str,
        new: &Value,
        dry_run: bool,
    ) -> Result<Object, Status> {
        let key = self.key(resource, namespace, name);
        let committed = if dry_run {
            match self.newest(resource, &key).await? {
                None => return Object::from_value(new).map_err(Status::internal),
                existing => Committed::Lost(existing),
            }
        } else {
            self.put(resource, &key, new, 0).await?
        };
        match committed {
            Committed::Done(object) => Ok(object),
            Committed::Lost(existing) => {
                let mut status = Status::already_exists(&resource.kind.gvr, name);
                if existing.is_some_and(|o| o.head().deleting) {
                    status.message = format!("object is being deleted: {}", status.message);
                }
                Err(status)
            }
        }
    }
}

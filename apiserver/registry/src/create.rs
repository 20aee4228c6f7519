//! Create: turns a body into a stored object.
//!
//! Order as in Kubernetes: defaults, mutating admission, generated metadata, strategy,
//! validation, validating admission, one transaction.

use admission::{AdmissionOperation, OperationOptions};
use client::ResourcePath;
use machinery::{Object, Status};
use serde_json::Value;

use crate::commit::{CommitResult, EncodedObject, check_object_depth};
use crate::field_management::{ManagersAfterWrite, ResourceFieldManager};
use crate::object_meta;
use crate::read::{check_verb, convert_object};
use crate::registry::{NAMESPACES, Registry};
use crate::request::{
    FieldValidation, ObjectBody, RegistryWriteOptions, RequestContext, WriteResult,
};
use crate::resource_table::ResourceInfo;
use crate::shown_managers::ShownManagers;
use crate::subresource_create::BINDINGS;
use crate::write_pipeline::{
    AdmissionContext, apply_defaults, apply_defaults_to_applied, check_kind, check_metadata_types,
    check_namespace, decode, drop_applied_nulls, validate_object,
};

const MAX_NAME_ATTEMPTS: usize = 8;

/// An object to be created.
#[derive(Clone)]
struct NewObject {
    /// In the storage version, with defaults.
    value: Value,
    /// The text of its managers.
    managers: Option<String>,
    /// Whether it is the result of an apply.
    is_applied: bool,
    warnings: Vec<String>,
}

impl Registry {
    /// POST to a collection, or to a subresource of a named object.
    pub async fn create(
        &self,
        ctx: &RequestContext,
        path: ResourcePath<'_>,
        body: ObjectBody,
        options: &RegistryWriteOptions,
    ) -> Result<WriteResult, Status> {
        let resource = self.resource_info(path.resource)?;
        check_verb(&resource, &path, "create")?;
        if !path.subresource.is_empty() {
            return self
                .create_subresource(ctx, &resource, path, body, options)
                .await;
        }
        if !path.name.is_empty() {
            return Err(Status::method_not_allowed());
        }
        if *path.resource == BINDINGS {
            return self
                .create_binding(ctx, &resource, path, body, options)
                .await;
        }
        if resource.is_virtual() {
            return self
                .call_create_handler(ctx, &resource, path, body, options, None)
                .await;
        }
        self.create_object(ctx, &resource, path, body, options)
            .await
    }

    async fn create_object(
        &self,
        ctx: &RequestContext,
        resource: &ResourceInfo,
        path: ResourcePath<'_>,
        body: ObjectBody,
        options: &RegistryWriteOptions,
    ) -> Result<WriteResult, Status> {
        let mut body = body;
        check_metadata_types(resource, &body.value, false)?;
        let sent_managers = object_meta::take_managed_fields(&mut body.value)?;
        check_new_resource_version(&body.value)?;
        let mut new = self.decode_new(resource, path, body, options, false)?;
        if sent_managers.is_some() || !options.creates_without_managers {
            let manager = ResourceFieldManager {
                registry: self,
                resource,
                subresource: "",
                manager: &options.field_manager,
            };
            new.managers = manager
                .track_create(&new.value, sent_managers.as_ref())
                .await;
        }
        self.insert_with_generated_name(ctx, resource, path, new, options)
            .await
    }

    /// Creates an object from the result of an apply.
    pub(crate) async fn create_applied(
        &self,
        ctx: &RequestContext,
        path: ResourcePath<'_>,
        (applied, managers): (Value, ManagersAfterWrite),
        options: &RegistryWriteOptions,
    ) -> Result<WriteResult, Status> {
        let resource = self.resource_info(path.resource)?;
        check_verb(&resource, &path, "create")?;
        let mut new = self.decode_new(&resource, path, applied.into(), options, true)?;
        new.managers = managers.text;
        self.insert_with_generated_name(ctx, &resource, path, new, options)
            .await
    }

    /// Decodes a new object, with defaults, in the storage version.
    fn decode_new(
        &self,
        resource: &ResourceInfo,
        path: ResourcePath<'_>,
        body: ObjectBody,
        options: &RegistryWriteOptions,
        is_applied: bool,
    ) -> Result<NewObject, Status> {
        let strict_errors = body.strict_errors();
        let mut value = body.value;
        check_kind(resource, &mut value, false)?;
        check_namespace(resource, &path, &mut value)?;
        object_meta::metadata_mut(&mut value)?.remove("resourceVersion");
        let field_validation = options.field_validation;
        // Kubernetes prunes what is applied without a word; types were checked before.
        let field_validation = match is_applied {
            true => FieldValidation::Ignore,
            false => field_validation,
        };
        let warnings = decode(
            resource,
            &mut value,
            &strict_errors,
            field_validation,
            false,
        )?;
        resource
            .conversion
            .convert_to_storage(&resource.storage.kind.gvk, &mut value);
        if is_applied {
            apply_defaults_to_applied(resource, &mut value)?;
        } else {
            apply_defaults(resource, &mut value)?;
        }
        Ok(NewObject {
            value,
            managers: None,
            is_applied,
            warnings,
        })
    }

    /// Calls the create handler of a resource or subresource.
    pub(crate) async fn call_create_handler(
        &self,
        ctx: &RequestContext,
        resource: &ResourceInfo,
        path: ResourcePath<'_>,
        mut body: ObjectBody,
        options: &RegistryWriteOptions,
        parent: Option<&Object>,
    ) -> Result<WriteResult, Status> {
        let creators = self.options.create_handlers.iter();
        let creator_entry = creators
            .filter(|((gvr, sub), _)| gvr == path.resource && *sub == path.subresource)
            .map(|(_, creator)| creator)
            .next();
        let creator = creator_entry.ok_or_else(Status::method_not_allowed)?;
        let warnings = self
            .admit_created_body(ctx, resource, path, &mut body.value, options)
            .await?;
        let reply = creator.create(ctx, path, body.value, parent).await?;
        Ok(WriteResult {
            object: Object::from_value(&reply).map_err(Status::internal)?,
            created: true,
            warnings,
        })
    }

    /// 404 if the namespace does not exist, 403 if it is being terminated (B2.8).
    pub(crate) async fn check_namespace_lifecycle(
        &self,
        resource: &ResourceInfo,
        namespace: &str,
        name: &str,
    ) -> Result<(), Status> {
        if !resource.kind.namespaced {
            return Ok(());
        }
        let Some(namespace_object) = self.get_namespace(namespace).await? else {
            return Err(Status::not_found(&NAMESPACES, namespace));
        };
        if !namespace_object.meta().deleting {
            return Ok(());
        }
        let message = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        Err(
            Status::forbidden(&resource.kind.gvr, name, message).with_cause(
                "NamespaceTerminating",
                format!("namespace {namespace} is being terminated"),
                "metadata.namespace",
            ),
        )
    }

    /// Generates a name if only `generateName` is set, and another one if it exists already.
    async fn insert_with_generated_name(
        &self,
        ctx: &RequestContext,
        resource: &ResourceInfo,
        path: ResourcePath<'_>,
        mut new: NewObject,
        options: &RegistryWriteOptions,
    ) -> Result<WriteResult, Status> {
        let name = object_meta::metadata_string(&new.value, "name");
        self.check_namespace_lifecycle(resource, path.namespace, name)
            .await?;
        let base = object_meta::metadata_string(&new.value, "generateName").to_owned();
        if !name.is_empty() || base.is_empty() {
            return self.insert(ctx, resource, path, new, options).await;
        }
        let mut conflict = None;
        for _ in 0..MAX_NAME_ATTEMPTS {
            let name = object_meta::generate_name(&base);
            object_meta::metadata_mut(&mut new.value)?.insert("name".into(), name.into());
            let attempt = self.insert(ctx, resource, path, new.clone(), options);
            match attempt.await {
                Err(status) if status.reason == "AlreadyExists" => conflict = Some(status),
                other => return other,
            }
        }
        let conflict =
            conflict.unwrap_or_else(|| Status::already_exists(&resource.kind.gvr, &base));
        Err(conflict.with_retry_after(1))
    }

    /// Inserts an object. A failure carries the warnings about its body, too.
    async fn insert(
        &self,
        ctx: &RequestContext,
        resource: &ResourceInfo,
        path: ResourcePath<'_>,
        object: NewObject,
        options: &RegistryWriteOptions,
    ) -> Result<WriteResult, Status> {
        let warnings = object.warnings.clone();
        let inserted = self.insert_decoded(ctx, resource, path, object, options);
        inserted
            .await
            .map_err(|status| status.with_warnings(warnings))
    }

    async fn insert_decoded(
        &self,
        ctx: &RequestContext,
        resource: &ResourceInfo,
        path: ResourcePath<'_>,
        object: NewObject,
        options: &RegistryWriteOptions,
    ) -> Result<WriteResult, Status> {
        let NewObject {
            value: mut new,
            managers,
            is_applied,
            mut warnings,
        } = object;
        let name = object_meta::metadata_string(&new, "name").to_owned();
        let admit = AdmissionContext {
            registry: self,
            ctx,
            resource,
            path: ResourcePath {
                name: &name,
                ..path
            },
            operation: AdmissionOperation::Create,
            dry_run: options.dry_run,
            options: OperationOptions::Write(&options.requested),
            managers: ShownManagers::new(managers, None),
        };
        warnings.extend(admit.mutate(&mut new, None).await?);
        admit.check_role_escalation(&new, None).await?;
        self.run_create_strategy(resource, &mut new)?;
        warnings.extend(validate_object(resource, &new, None, true, |_| true)?);
        if is_applied {
            drop_applied_nulls(resource, &mut new)?;
        }
        if resource.custom {
            warnings.extend(object_meta::finalizer_warnings(&new));
        }
        warnings.extend(admit.validate(&new, None).await?);
        let definition = self.begin_definition(resource, &mut new).await?;
        let allocation = Box::pin(admit.allocate(&mut new, None)).await?;
        let managers = admit.managers.into_new().text;
        let object_path = ResourcePath {
            name: &name,
            ..path
        };
        let stored = if options.dry_run {
            self.dry_run_create(resource, object_path, &new, managers.as_deref())
                .await
        } else {
            match EncodedObject::new(&new, managers.as_deref()) {
                Err(too_deep) => Err(too_deep),
                Ok(mut encoded) => {
                    encoded.keeps_managers = is_applied;
                    self.store_new(resource, object_path, encoded).await
                }
            }
        };
        if stored.is_err() {
            self.release_allocation(&allocation).await;
        } else if let Some(definition) = definition
            && !options.dry_run
        {
            definition.finish().await;
        }
        Ok(WriteResult {
            object: convert_object(resource, stored?)?,
            created: true,
            warnings,
        })
    }

    /// Removes and sets the fields that the server owns, then runs the kind's create strategy.
    fn run_create_strategy(&self, resource: &ResourceInfo, new: &mut Value) -> Result<(), Status> {
        let strategy = resource.storage.strategy;
        if resource.storage.kind.status
            && !strategy.keeps_created_status
            && let Some(map) = new.as_object_mut()
        {
            map.remove("status");
        }
        let meta = object_meta::metadata_mut(new)?;
        object_meta::remove_server_owned_fields(meta);
        object_meta::fill_system_fields(meta, &self.now(), strategy.generation.is_tracked());
        (strategy.create)(new);
        Ok(())
    }

    /// The object that would be stored. Fails if it exists already.
    async fn dry_run_create(
        &self,
        resource: &ResourceInfo,
        path: ResourcePath<'_>,
        new: &Value,
        managers: Option<&str>,
    ) -> Result<Object, Status> {
        check_object_depth(new, managers)?;
        let key = self.storage_key(resource, path.namespace, path.name);
        let existing = self.get_newest(resource, &key).await?;
        if existing.is_some() {
            return Err(already_exists(resource, path.name, existing));
        }
        Object::from_value(new)
            .and_then(|object| object.with_managed_fields(managers))
            .map_err(Status::internal)
    }

    async fn store_new(
        &self,
        resource: &ResourceInfo,
        path: ResourcePath<'_>,
        new: EncodedObject,
    ) -> Result<Object, Status> {
        let key = self.storage_key(resource, path.namespace, path.name);
        match self.put(resource, &key, new, 0).await? {
            CommitResult::Committed(object) => Ok(object),
            CommitResult::Conflict(existing) => Err(already_exists(resource, path.name, existing)),
        }
    }
}

/// A new object has no version yet; Kubernetes ignores zero and what is not a number.
fn check_new_resource_version(value: &Value) -> Result<(), Status> {
    let version = object_meta::metadata_string(value, "resourceVersion");
    match version.parse::<u64>() {
        Ok(version) if version > 0 => {
            let message = "resourceVersion should not be set on objects to be created";
            Err(Status::failure(500, "", message))
        }
        _ => Ok(()),
    }
}

fn already_exists(resource: &ResourceInfo, name: &str, existing: Option<Object>) -> Status {
    let mut status = Status::already_exists(&resource.kind.gvr, name);
    if existing.is_some_and(|o| o.meta().deleting) {
        status.message = format!("object is being deleted: {}", status.message);
    }
    status
}

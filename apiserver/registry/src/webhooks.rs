//! Calls admission policies and webhooks with objects in the versions that they support, and
//! converts their results to the storage version. For a scale they get Scales, for other
//! subresources and for what is not stored the body of the request.

use std::sync::Arc;

use admission::webhooks::{EquivalentVersions, VersionConverter};
use admission::{AdmissionAttributes, AdmissionOperation, DynamicAdmission, OperationOptions};
use async_trait::async_trait;
use client::ResourcePath;
use machinery::{Gvk, Status};
use managed_fields::{FieldType, merge_policy_configuration};
use openapi::ScalePaths;
use serde_json::Value;

use crate::registry::{NAMESPACES, Registry};
use crate::request::{RegistryWriteOptions, RequestContext};
use crate::resource_table::ResourceInfo;
use crate::scale;
use crate::shown_managers::ShownManagers;
use crate::write_pipeline::AdmissionContext;

/// Applies a JSON patch for [`admission::webhooks::WebhookDispatcher::new`].
pub fn apply_webhook_patch(doc: &Value, patch: &Value) -> Result<Value, String> {
    patch::apply_json_patch(doc, patch).map_err(|e| format!("its patch cannot be applied: {e}"))
}

/// Applies the JSON patch of a policy. An operation `test` that fails leaves the object as it
/// is.
pub fn apply_policy_patch(doc: &Value, patch: &Value) -> Result<Value, String> {
    let failure = match patch::apply_json_patch(doc, patch) {
        Ok(patched) => return Ok(patched),
        Err(error) => error.to_string(),
    };
    let mut patched = doc.clone();
    for operation in patch.as_array().into_iter().flatten() {
        match patch::apply_json_patch(&patched, &Value::Array(vec![operation.clone()])) {
            Ok(next) => patched = next,
            Err(_) if operation["op"] == "test" => return Ok(doc.clone()),
            Err(_) => break,
        }
    }
    Err(failure)
}

impl Registry {
    /// The policies and webhooks, if any has a rule for the resource.
    pub(crate) fn matching_admission(
        &self,
        resource: &ResourceInfo,
        subresource: &str,
    ) -> Option<&Arc<DynamicAdmission>> {
        let hooks = self.dynamic_admission.get()?;
        let has = |gvr| hooks.has_rule_for(gvr, subresource);
        // Events of this group are stored as events of another group.
        (has(&resource.kind.gvr) || has(&resource.storage.kind.gvr)).then_some(hooks)
    }

    /// A resource in all its versions, the requested one first.
    fn resource_versions(&self, resource: &ResourceInfo) -> Vec<Arc<ResourceInfo>> {
        let gvr = &resource.kind.gvr;
        let table = self.table();
        let versions = table.resources().iter().filter(|other| {
            let other_gvr = &other.kind.gvr;
            (other_gvr.group == gvr.group && other_gvr.resource == gvr.resource)
                || Arc::ptr_eq(&other.storage, &resource.storage)
        });
        let mut all: Vec<Arc<ResourceInfo>> = versions.cloned().collect();
        all.sort_by_key(|other| other.kind.gvr != *gvr);
        all
    }

    /// Calls webhooks for the body of a create that stores no such object, such as an
    /// Eviction. Returns warnings.
    pub(crate) async fn admit_created_body(
        &self,
        ctx: &RequestContext,
        resource: &ResourceInfo,
        path: ResourcePath<'_>,
        body: &mut Value,
        options: &RegistryWriteOptions,
    ) -> Result<Vec<String>, Status> {
        if self
            .matching_admission(resource, path.subresource)
            .is_none()
        {
            return Ok(Vec::new());
        }
        let kind = match resource.subresource(path.subresource) {
            Some(subresource) => &subresource.kind,
            None => &resource.kind.gvk,
        };
        if let Some(fields) = body.as_object_mut() {
            fields.insert("apiVersion".into(), kind.api_version().into());
            fields.insert("kind".into(), (*kind.kind).into());
        }
        let admit = AdmissionContext {
            registry: self,
            ctx,
            resource,
            path,
            operation: AdmissionOperation::Create,
            dry_run: options.dry_run,
            options: OperationOptions::Write(&options.requested),
            managers: ShownManagers::default(),
        };
        Box::pin(admit.run_webhooks_for_body(body)).await
    }

    /// Calls webhooks for a connection to a subresource. `options` is the object that they
    /// get, such as PodExecOptions. Returns warnings.
    pub async fn admit_connect(
        &self,
        ctx: &RequestContext,
        path: ResourcePath<'_>,
        mut options: Value,
    ) -> Result<Vec<String>, Status> {
        let Ok(resource) = self.resource_info(path.resource) else {
            return Ok(Vec::new());
        };
        let admit = AdmissionContext {
            registry: self,
            ctx,
            resource: &resource,
            path,
            operation: AdmissionOperation::Connect,
            dry_run: false,
            options: OperationOptions::None,
            managers: ShownManagers::default(),
        };
        admit.run_webhooks_for_body(&mut options).await
    }
}

impl AdmissionContext<'_> {
    /// The attributes as webhooks get them: the namespace of a Namespace is its own name.
    fn webhook_attributes(&self) -> AdmissionAttributes<'_> {
        let mut attributes = self.attributes();
        if *attributes.gvr == NAMESPACES {
            attributes.namespace = attributes.name;
        }
        attributes
    }

    /// Runs mutating and validating webhooks on a body that is not the stored object, such
    /// as an Eviction. Returns warnings.
    pub(crate) async fn run_webhooks_for_body(
        &self,
        body: &mut Value,
    ) -> Result<Vec<String>, Status> {
        let mut warnings = Vec::new();
        let Some(hooks) = self
            .registry
            .matching_admission(self.resource, self.path.subresource)
        else {
            return Ok(warnings);
        };
        let api_version = body["apiVersion"].as_str().unwrap_or_default();
        let kind = body["kind"].as_str().unwrap_or_default();
        let kind = Gvk::from_api_version(api_version, kind);
        let versions = self.versions_of_body(&kind);
        let attributes = self.webhook_attributes();
        hooks
            .mutate(&attributes, &versions, body, None, &mut warnings)
            .await?;
        hooks
            .validate(&attributes, &versions, body, None, &mut warnings)
            .await?;
        Ok(warnings)
    }

    /// The versions of the resource, with bodies of one kind that need no conversion.
    fn versions_of_body(&self, kind: &Gvk) -> EquivalentVersions<'static> {
        let resources = self.registry.resource_versions(self.resource);
        EquivalentVersions {
            kinds: resources
                .iter()
                .map(|resource| (kind.clone(), resource.kind.gvr.clone()))
                .collect(),
            converter: &UnconvertedBody,
        }
    }

    /// The paths of the Scale, if the request is on it.
    fn scale_paths(&self) -> Option<&ScalePaths> {
        match self.path.subresource {
            "scale" => self.resource.kind.scale.as_ref(),
            _ => None,
        }
    }

    /// Runs mutating webhooks. Returns whether one changed the object.
    pub(crate) async fn run_mutating_webhooks(
        &self,
        hooks: &DynamicAdmission,
        new: &mut Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<bool, Status> {
        let attributes = self.webhook_attributes();
        if let Some(paths) = self.scale_paths() {
            let mut new_scale = scale::scale_of(paths, new)?;
            let old = old.map(|old| scale::scale_of(paths, old)).transpose()?;
            let versions = self.versions_of_body(&scale::SCALE_KIND);
            let changed = hooks
                .mutate(
                    &attributes,
                    &versions,
                    &mut new_scale,
                    old.as_ref(),
                    warnings,
                )
                .await?;
            if changed {
                scale::apply_scale(paths, &new_scale, new, self.resource.custom)?;
            }
            return Ok(changed);
        }
        let resources = self.registry.resource_versions(self.resource);
        let converter = ResourceVersionConverter(&resources);
        let versions = converter.versions();
        let old = self.managers.with_old(old)?;
        let with_managers = self.managers.insert_new(new)?;
        let changed = hooks
            .mutate(&attributes, &versions, new, old.as_ref(), warnings)
            .await?;
        self.managers.take_new(new, &with_managers, warnings)?;
        Ok(changed)
    }

    /// Reverts changes by webhooks that the request itself may not make: of the status,
    /// except through subresources that write it, of anything else there, and of
    /// server-owned fields.
    pub(crate) fn revert_forbidden_changes(&self, before: &Value, new: &mut Value) {
        let written_field = match self.path.subresource {
            "status" | "approval" => Some("status"),
            "finalize" => Some("spec"),
            _ => None,
        };
        if let Some(field) = written_field {
            let written = new.get(field).cloned();
            new.clone_from(before);
            set_field(new, field, written.as_ref());
            return;
        }
        if self.resource.storage.kind.status {
            set_field(new, "status", before.get("status"));
        }
        for field in ["generation", "resourceVersion"] {
            set_field(&mut new["metadata"], field, before["metadata"].get(field));
        }
    }

    /// Runs validating webhooks; for a deletion, mutating ones too.
    pub(crate) async fn run_validating_webhooks(
        &self,
        hooks: &DynamicAdmission,
        new: &Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let attributes = self.webhook_attributes();
        if let Some(paths) = self.scale_paths() {
            let new = scale::scale_of(paths, new)?;
            let old = old.map(|old| scale::scale_of(paths, old)).transpose()?;
            let versions = self.versions_of_body(&scale::SCALE_KIND);
            return hooks
                .validate(&attributes, &versions, &new, old.as_ref(), warnings)
                .await;
        }
        let resources = self.registry.resource_versions(self.resource);
        let converter = ResourceVersionConverter(&resources);
        let versions = converter.versions();
        let old = self.managers.with_old(old)?;
        let old = old.as_ref();
        if self.operation == AdmissionOperation::Delete {
            let mut deleted = Value::Null;
            hooks
                .mutate(&attributes, &versions, &mut deleted, old, warnings)
                .await?;
            return hooks
                .validate(&attributes, &versions, new, old, warnings)
                .await;
        }
        let mut new = new.clone();
        self.managers.insert_new(&mut new)?;
        hooks
            .validate(&attributes, &versions, &new, old, warnings)
            .await
    }
}

fn set_field(object: &mut Value, field: &str, value: Option<&Value>) {
    let Some(map) = object.as_object_mut() else {
        return;
    };
    match value {
        Some(value) => map.insert(field.into(), value.clone()),
        None => map.remove(field),
    };
}

/// Leaves bodies that are not the stored object as they are.
struct UnconvertedBody;

#[async_trait]
impl VersionConverter for UnconvertedBody {
    async fn to_version(&self, _: usize, body: &Value) -> Result<Value, Status> {
        Ok(body.clone())
    }

    async fn to_requested_version(&self, _: usize, body: Value) -> Result<Value, Status> {
        Ok(body)
    }

    fn merge_configuration(&self, _: usize, _: &Value, _: &Value) -> Result<Value, String> {
        Err("bodies that are not the stored object have no schema to merge by".into())
    }
}

/// Converts for webhooks between a resource as it is written, in the first version, and its
/// other versions.
struct ResourceVersionConverter<'a>(&'a [Arc<ResourceInfo>]);

impl ResourceVersionConverter<'_> {
    fn versions(&self) -> EquivalentVersions<'_> {
        let resources = self.0.iter();
        EquivalentVersions {
            kinds: resources
                .map(|resource| (resource.kind.gvk.clone(), resource.kind.gvr.clone()))
                .collect(),
            converter: self,
        }
    }
}

#[async_trait]
impl VersionConverter for ResourceVersionConverter<'_> {
    async fn to_version(&self, version: usize, object: &Value) -> Result<Value, Status> {
        let mut converted = object.clone();
        let Some(resource) = self.0.get(version) else {
            return Ok(converted);
        };
        if resource.custom {
            return convert_custom_resource(resource, converted, &resource.kind.gvk).await;
        }
        resource
            .conversion
            .convert_from_storage(&resource.kind.gvk, &mut converted);
        Ok(converted)
    }

    async fn to_requested_version(
        &self,
        version: usize,
        mut object: Value,
    ) -> Result<Value, Status> {
        let (Some(resource), Some(written)) = (self.0.get(version), self.0.first()) else {
            return Ok(object);
        };
        if resource.custom {
            return convert_custom_resource(written, object, &written.kind.gvk).await;
        }
        resource
            .conversion
            .convert_to_storage(&resource.storage.kind.gvk, &mut object);
        Ok(object)
    }

    fn merge_configuration(
        &self,
        version: usize,
        object: &Value,
        configuration: &Value,
    ) -> Result<Value, String> {
        let Some(resource) = self.0.get(version) else {
            return Err("the resource has no such version".into());
        };
        let field_type = FieldType::of_schema(&resource.schema);
        merge_policy_configuration(field_type, object, configuration)
    }
}

/// Converts an object of a definition to one of its versions.
pub(crate) async fn convert_custom_resource(
    resource: &ResourceInfo,
    object: Value,
    target: &Gvk,
) -> Result<Value, Status> {
    let Some(converter) = &resource.storage.converter else {
        return Ok(object);
    };
    let converted = converter.convert(vec![object], target).await?;
    let converted = converted.into_iter().next();
    converted.ok_or_else(|| Status::internal("the conversion returned no object"))
}

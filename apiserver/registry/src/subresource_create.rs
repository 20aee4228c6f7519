//! Create of Bindings, and of subresources: Binding and Eviction of pods, and those with a create handler,
//! such as TokenRequests. `eviction` has the rules of evictions.

use client::ResourcePath;
use machinery::{Gvr, Object, Status};
use serde_json::{Value, json};

use crate::commit::{CommitResult, EncodedObject, check_deadline, write_deadline};
use crate::object_meta;
use crate::registry::Registry;
use crate::request::{ObjectBody, RegistryWriteOptions, RequestContext, WriteResult};
use crate::resource_table::ResourceInfo;
use crate::write_pipeline::{check_kind, check_namespace};

static PODS: Gvr = Gvr::from_static("", "v1", "pods");
/// Bindings as a resource of their own.
pub(crate) static BINDINGS: Gvr = Gvr::from_static("", "v1", "bindings");

/// The response to a successful create that stores no object.
pub(crate) fn success_status() -> Result<WriteResult, Status> {
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
                      "status": "Success", "code": 201});
    Ok(WriteResult {
        object: Object::from_value(&body).map_err(Status::internal)?,
        created: true,
        warnings: Vec::new(),
    })
}

impl Registry {
    pub(crate) async fn create_subresource(
        &self,
        ctx: &RequestContext,
        resource: &ResourceInfo,
        path: ResourcePath<'_>,
        mut body: ObjectBody,
        options: &RegistryWriteOptions,
    ) -> Result<WriteResult, Status> {
        if !matches!(path.subresource, "binding" | "eviction") {
            let key = self.storage_key(resource, path.namespace, path.name);
            let parent = self.get_newest(resource, &key).await?;
            let parent = parent.ok_or_else(|| Status::not_found(&resource.kind.gvr, path.name))?;
            return self
                .call_create_handler(ctx, resource, path, body, options, Some(&parent))
                .await;
        }
        let warnings = self
            .admit_created_body(ctx, resource, path, &mut body.value, options)
            .await?;
        let mut created = match path.subresource {
            "binding" => {
                self.bind_pod(ctx, resource, path, &body.value, options)
                    .await
            }
            _ => {
                let path = path.subresource("");
                self.evict_pod(ctx, resource, path, &body.value, options)
                    .await
            }
        }?;
        created.warnings.extend(warnings);
        Ok(created)
    }

    /// POST of a Binding to `bindings`, which binds the pod of its name.
    pub(crate) async fn create_binding(
        &self,
        ctx: &RequestContext,
        resource: &ResourceInfo,
        path: ResourcePath<'_>,
        mut body: ObjectBody,
        options: &RegistryWriteOptions,
    ) -> Result<WriteResult, Status> {
        check_kind(resource, &mut body.value, false)?;
        check_namespace(resource, &path, &mut body.value)?;
        let warnings = self
            .admit_created_body(ctx, resource, path, &mut body.value, options)
            .await?;
        let pods = self.resource_info(&PODS)?;
        let name = object_meta::metadata_string(&body.value, "name").to_owned();
        let pod = ResourcePath::object(&PODS, path.namespace, &name);
        let mut bound = self.bind_pod(ctx, &pods, pod, &body.value, options).await?;
        bound.warnings.extend(warnings);
        Ok(bound)
    }

    /// Assigns a pod to a node, once (`pkg/registry/core/pod/storage`).
    async fn bind_pod(
        &self,
        ctx: &RequestContext,
        resource: &ResourceInfo,
        path: ResourcePath<'_>,
        binding: &Value,
        options: &RegistryWriteOptions,
    ) -> Result<WriteResult, Status> {
        if object_meta::metadata_string(binding, "name") != path.name {
            let message = "name in URL does not match name in Binding object";
            return Err(Status::bad_request(message));
        }
        let node = binding["target"]["name"].as_str().unwrap_or("");
        if node.is_empty() {
            return Err(Status::bad_request("target.name is required"));
        }
        let gvr = &resource.kind.gvr;
        let deadline = write_deadline(ctx);
        let key = self.storage_key(resource, path.namespace, path.name);
        let mut current = self.get_newest(resource, &key).await?;
        loop {
            check_deadline(deadline)?;
            let pod = current.ok_or_else(|| Status::not_found(gvr, path.name))?;
            let mut new = pod.value().map_err(Status::internal)?;
            let assigned = new["spec"]["nodeName"].as_str().unwrap_or("").to_owned();
            if !assigned.is_empty() {
                let message = format!("pod {} is already assigned to node {assigned:?}", path.name);
                return Err(Status::conflict(gvr, path.name, message));
            }
            if pod.meta().deleting {
                let message = format!(
                    "pod {} is being deleted, cannot be assigned to a host",
                    path.name
                );
                return Err(Status::conflict(gvr, path.name, message));
            }
            if options.dry_run {
                return success_status();
            }
            object_meta::metadata_mut(&mut new)?.remove("resourceVersion");
            new["spec"]["nodeName"] = node.into();
            set_pod_scheduled(&mut new, &self.now());
            let managers = pod.managed_fields_json();
            let bound = EncodedObject::new(&new, managers)?;
            match self.put(resource, &key, bound, pod.revision()).await? {
                CommitResult::Committed(_) => return success_status(),
                CommitResult::Conflict(winner) => current = winner,
            }
        }
    }
}

fn set_pod_scheduled(pod: &mut Value, now: &str) {
    let condition = json!({"type": "PodScheduled", "status": "True",
                           "lastProbeTime": null, "lastTransitionTime": now});
    if !pod["status"].is_object() {
        pod["status"] = json!({});
    }
    match pod["status"]["conditions"].as_array_mut() {
        Some(list) => {
            list.retain(|c| c["type"] != "PodScheduled");
            list.push(condition);
        }
        None => pod["status"]["conditions"] = json!([condition]),
    }
}

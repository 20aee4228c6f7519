//! Create of subresources: Binding and Eviction of pods, and those with a create handler,
//! such as TokenRequests.

use client::{At, DeleteOptions};
use machinery::{Object, Status};
use serde_json::{Value, json};

use crate::commit::{Committed, check_deadline, deadline};
use crate::meta;
use crate::options;
use crate::registry::Registry;
use crate::request::{Body, Ctx, WriteOptions, Written};
use crate::table::Row;

/// The response to a successful create that stores no object.
fn success() -> Result<Written, Status> {
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
                      "status": "Success", "code": 201});
    Ok(Written {
        object: Object::from_value(&body).map_err(Status::internal)?,
        created: true,
        warnings: Vec::new(),
    })
}

impl Registry {
    pub(crate) async fn create_below(
        &self,
        ctx: &Ctx,
        resource: &Row,
        at: At<'_>,
        body: Body,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        match at.subresource {
            "binding" => self.bind(ctx, resource, at, &body.value, options).await,
            "eviction" => self.evict(ctx, at, &body.value, options).await,
            _ => {
                let key = self.key(resource, at.namespace, at.name);
                let parent = self.newest(resource, &key).await?;
                let parent =
                    parent.ok_or_else(|| Status::not_found(&resource.kind.gvr, at.name))?;
                self.answer(ctx, at, body, Some(&parent)).await
            }
        }
    }

    /// Assigns a pod to a node, once (`pkg/registry/core/pod/storage`).
    async fn bind(
        &self,
        ctx: &Ctx,
        resource: &Row,
        at: At<'_>,
        binding: &Value,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        let node = binding["target"]["name"].as_str().unwrap_or("");
        if node.is_empty() {
            return Err(Status::bad_request("target.name is required"));
        }
        let gvr = &resource.kind.gvr;
        let until = deadline(ctx);
        let key = self.key(resource, at.namespace, at.name);
        let mut current = self.newest(resource, &key).await?;
        loop {
            check_deadline(until)?;
            let pod = current.ok_or_else(|| Status::not_found(gvr, at.name))?;
            let mut new = pod.value().map_err(Status::internal)?;
            let assigned = new["spec"]["nodeName"].as_str().unwrap_or("").to_owned();
            if !assigned.is_empty() {
                let why = format!("pod {} is already assigned to node {assigned:?}", at.name);
                return Err(Status::conflict(gvr, at.name, why));
            }
            if pod.head().deleting {
                let why = format!(
                    "pod {} is being deleted, cannot be assigned to a host",
                    at.name
                );
                return Err(Status::conflict(gvr, at.name, why));
            }
            if options.dry_run {
                return success();
            }
            meta::metadata(&mut new)?.remove("resourceVersion");
            new["spec"]["nodeName"] = node.into();
            schedule(&mut new, &self.now());
            match self.put(resource, &key, &new, pod.revision()).await? {
                Committed::Done(_) => return success(),
                Committed::Lost(winner) => current = winner,
            }
        }
    }

    /// Deletes a pod, without regard to PodDisruptionBudgets.
    async fn evict(
        &self,
        ctx: &Ctx,
        at: At<'_>,
        eviction: &Value,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        let body = eviction.get("deleteOptions").filter(|v| !v.is_null());
        let mut delete_options: DeleteOptions = options::delete(&|_| None, body)?;
        delete_options.dry_run |= options.dry_run;
        self.delete(
            ctx,
            At {
                subresource: "",
                ..at
            },
            &delete_options,
        )
        .await?;
        success()
    }
}

fn schedule(pod: &mut Value, now: &str) {
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

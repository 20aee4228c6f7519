//! A template of the control plane, made of an object of a member, and the policy that adopts
//! the object.

use anyhow::{Context, bail};
use client::{Api, ApiResource, ResourcePath, WriteOptions};
use karmada_api::names;
use karmada_api::prune::prune;
use karmada_api::well_known_keys::CONFLICT_RESOLUTION;
use machinery::{Gvr, Object};
use serde_json::{Value, json};

use crate::object_lists::policy_resource;

/// How objects are promoted.
pub(crate) struct PromotionOptions {
    /// The member.
    pub(crate) cluster: String,
    /// The name of the policy; made of the resource's by default.
    pub(crate) policy_name: Option<String>,
    /// Whether the policy propagates what the object depends on.
    pub(crate) propagate_dependencies: bool,
    pub(crate) dry_run: bool,
}

/// A template and the policy that adopts its object.
pub(crate) struct Promotion {
    pub(crate) resource: ApiResource,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) template: Value,
    pub(crate) policy: Value,
}

fn policy(
    options: &PromotionOptions,
    resource: &ApiResource,
    namespace: &str,
    name: &str,
) -> Value {
    let Gvr { group, version, .. } = &resource.resource;
    let gvk = format!("{group}/{version}, Kind={}", resource.kind);
    let generated = || names::policy_name(namespace, name, &gvk);
    let policy_name = options.policy_name.clone().unwrap_or_else(generated);
    let mut policy = json!({
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "ClusterPropagationPolicy",
        "metadata": {"name": policy_name},
        "spec": {
            "resourceSelectors": [{
                "apiVersion": resource.resource.api_version(),
                "kind": resource.kind,
                "name": name,
            }],
            "placement": {"clusterAffinity": {"clusterNames": [options.cluster]}},
            "conflictResolution": "Overwrite",
            "preserveResourcesOnDeletion": true,
        },
    });
    if options.propagate_dependencies {
        policy["spec"]["propagateDeps"] = json!(true);
    }
    if !namespace.is_empty() {
        policy["kind"] = json!("PropagationPolicy");
        policy["metadata"]["namespace"] = json!(namespace);
    }
    policy
}

impl Promotion {
    /// Makes a template and a policy of an object of the member.
    pub(crate) fn new(
        options: &PromotionOptions,
        resource: &ApiResource,
        object: &Object,
    ) -> anyhow::Result<Self> {
        let (namespace, name) = (object.namespace(), object.name());
        let mut template = object.value()?;
        prune(&mut template, false);
        let annotations = &mut template["metadata"]["annotations"];
        if annotations[CONFLICT_RESOLUTION].is_null() {
            annotations[CONFLICT_RESOLUTION] = json!("overwrite");
        }
        Ok(Self {
            policy: policy(options, resource, namespace, name),
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            resource: resource.clone(),
            template,
        })
    }

    /// As karmadactl names the resource.
    pub(crate) fn text(&self) -> String {
        let Gvr {
            group,
            version,
            resource,
        } = &self.resource.resource;
        let key = match self.namespace.as_str() {
            "" => self.name.clone(),
            namespace => format!("{namespace}/{}", self.name),
        };
        format!("\"{group}/{version}, Resource={resource}\"({key})")
    }

    /// Creates the template, and if wanted the policy, unless the template exists; returns the
    /// line to print.
    pub(crate) async fn create(
        &self,
        control: &dyn Api,
        options: &PromotionOptions,
        with_policy: bool,
    ) -> anyhow::Result<String> {
        let shown = self.text();
        let at = ResourcePath::object(&self.resource.resource, &self.namespace, &self.name);
        if client::api::ignore_not_found(control.get(at).await)?.is_some() {
            return Ok(format!(
                "Resource {shown} already exist in karmada control plane, you can edit PropagationPolicy and OverridePolicy to propagate it"
            ));
        }
        if options.dry_run {
            return Ok(format!(
                "Resource {shown} is promoted successfully (dry run)"
            ));
        }
        let at = ResourcePath { name: "", ..at };
        let created = control
            .create(at, self.template.clone().into(), &WriteOptions::default())
            .await;
        created.with_context(|| format!("failed to create resource {shown} in control plane"))?;
        if with_policy {
            self.create_policy(control).await?;
        }
        Ok(format!("Resource {shown} is promoted successfully"))
    }

    async fn create_policy(&self, control: &dyn Api) -> anyhow::Result<()> {
        let at = ResourcePath::collection(policy_resource(&self.namespace), &self.namespace);
        let options = WriteOptions::default();
        match control
            .create(at, self.policy.clone().into(), &options)
            .await
        {
            Ok(_) => Ok(()),
            Err(error) if error.is_already_exists() => {
                let kind = self.policy["kind"].as_str().unwrap_or_default();
                let name = self.policy["metadata"]["name"].as_str().unwrap_or_default();
                let slash = if self.namespace.is_empty() { "" } else { "/" };
                bail!(
                    "the {kind}({}{slash}{name}) already exist, please edit it to propagate resource",
                    self.namespace
                )
            }
            Err(error) => Err(error).context("the policy cannot be created"),
        }
    }
}

//! Reads the template that a command names, and its history.

use std::sync::Arc;

use clap::Args;
use client::remote::RemoteApi;
use client::{Api, ApiResource, ResourcePath, TaskGroup};
use karmada_api::names;
use karmada_api::resources::{BINDINGS, CLUSTER_BINDINGS};
use machinery::{Gvk, Gvr, Object};

use super::entries::read_history;
use crate::kubeconfig_flags::namespace_or_context;
use crate::kubectl::ControlPlaneArgs;
use crate::resource_args::{find_resource, parse_resource_arg};

#[derive(Args)]
pub(super) struct TemplateArgs {
    /// TYPE/NAME or TYPE NAME of the template.
    #[arg(required = true, value_name = "RESOURCE")]
    resource: Vec<String>,
    /// The namespace; by default that of the kubeconfig's context.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    control: ControlPlaneArgs,
}

/// A template, as it was read.
pub struct MovedTemplate {
    pub(super) api: Arc<dyn Api>,
    /// The template as the user names it.
    pub(super) text: String,
    pub(super) kind: Gvk,
    pub(super) object: Object,
    /// Empty for a cluster-scoped template.
    pub(super) namespace: String,
    pub(super) binding_name: String,
    /// Absent if nothing has happened to the template.
    pub(super) history: Option<Object>,
}

impl MovedTemplate {
    pub(super) async fn read(arguments: &TemplateArgs, tasks: &TaskGroup) -> anyhow::Result<Self> {
        let (kind, name) = parse_resource_arg(&arguments.resource)?;
        let config = arguments.control.load_config()?;
        let namespace = namespace_or_context(arguments.namespace.as_ref(), &config);
        let api: Arc<dyn Api> = Arc::new(RemoteApi::new(config, tasks)?);
        let served = api.discover().await?.resources;
        let resource = find_resource(&served, kind)?;
        let namespace = match resource.namespaced {
            true => namespace,
            false => String::new(),
        };
        let object = ResourcePath::object(&resource.resource, &namespace, name);
        let object = api.get(object).await?;
        Self::of_template(api, resource, object).await
    }

    /// Reads the history of a template.
    pub async fn of_template(
        api: Arc<dyn Api>,
        resource: &ApiResource,
        object: Object,
    ) -> anyhow::Result<Self> {
        let binding_name = names::binding_name(&resource.kind, object.name());
        let history = read_history(&*api, object.namespace(), &binding_name).await?;
        Ok(Self {
            text: format!("{}/{}", resource.kind.to_lowercase(), object.name()),
            kind: resource.resource.with_kind(&*resource.kind),
            namespace: object.namespace().to_owned(),
            object,
            api,
            binding_name,
            history,
        })
    }

    /// The resource of the template's binding.
    pub(super) fn binding_resource(&self) -> &'static Gvr {
        match &*self.namespace {
            "" => &CLUSTER_BINDINGS,
            _ => &BINDINGS,
        }
    }

    pub(super) async fn binding(&self) -> anyhow::Result<Object> {
        let at = ResourcePath::object(self.binding_resource(), &self.namespace, &self.binding_name);
        Ok(self.api.get(at).await?)
    }
}

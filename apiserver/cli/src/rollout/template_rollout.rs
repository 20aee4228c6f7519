//! Reads the Rollout of the template that a command names.

use std::sync::Arc;
use std::time::Duration;

use ::rollout::{CONTROLLER_REVISIONS, revision_number};
use anyhow::{Context, ensure};
use clap::Args;
use client::remote::RemoteApi;
use client::{
    Api, ApiResource, Patch, ResourcePath, TaskGroup, WatchEvent, WatchOptions, WriteOptions,
};
use futures_util::StreamExt;
use karmada_api::RolloutPolicy;
use karmada_api::names;
use karmada_api::rollout::{
    CLUSTER_ROLLOUT_POLICIES, REVISION_OF, ROLLOUT_POLICIES, ROLLOUTS, RolloutPolicySpec,
    RolloutStatus,
};
use machinery::Object;
use serde_json::{Value, json};

use super::decisions::StagedTemplate;
use crate::kubeconfig_flags::namespace_or_context;
use crate::kubectl::ControlPlaneArgs;
use crate::object_lists::list_all;
use crate::output;
use crate::resource_args::{ObjectArg, parse_resource_arg};

/// How long the Rollout of a template may take that has just got its policy.
const CREATION_TIMEOUT: Duration = Duration::from_secs(10);

/// Writes a merge patch into a Rollout.
pub async fn patch_rollout(api: &dyn Api, rollout: &Object, patch: Value) -> client::Result<()> {
    let at = ResourcePath::of_object(&ROLLOUTS, rollout);
    let options = WriteOptions::default();
    api.patch(at, Patch::Merge(patch), &options).await?;
    Ok(())
}

/// Waits until an object is there; `None` if the watch ends before.
async fn await_creation(api: &dyn Api, at: ResourcePath<'_>) -> anyhow::Result<Option<Object>> {
    let mut events = api.watch(at, &WatchOptions::default()).await?;
    while let Some(event) = events.next().await {
        if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event? {
            return Ok(Some(object));
        }
    }
    Ok(None)
}

#[derive(Args)]
pub(crate) struct TemplateArgs {
    /// TYPE/NAME of the template.
    #[arg(required = true, value_name = "TYPE/NAME")]
    resource: String,
    /// The namespace; by default that of the kubeconfig's context.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    control: ControlPlaneArgs,
}

/// The Rollout of a template, as it was read.
pub struct TemplateRollout {
    pub(super) api: Arc<dyn Api>,
    /// The template as the user names it.
    pub(super) text: String,
    pub(super) resource: ApiResource,
    pub(super) template: Object,
    pub(super) object: Object,
}

impl TemplateRollout {
    /// Reads the Rollout of a template.
    pub(crate) async fn read(arguments: &TemplateArgs, tasks: &TaskGroup) -> anyhow::Result<Self> {
        Self::read_within(Duration::ZERO, arguments, tasks).await
    }

    /// Reads the Rollout of a template, which may be created meanwhile.
    pub(super) async fn read_or_await(
        arguments: &TemplateArgs,
        tasks: &TaskGroup,
    ) -> anyhow::Result<Self> {
        Self::read_within(CREATION_TIMEOUT, arguments, tasks).await
    }

    async fn read_within(
        limit: Duration,
        arguments: &TemplateArgs,
        tasks: &TaskGroup,
    ) -> anyhow::Result<Self> {
        let config = arguments.control.load_config()?;
        let namespace = namespace_or_context(arguments.namespace.as_ref(), &config);
        let api: Arc<dyn Api> = Arc::new(RemoteApi::new(config, tasks)?);
        let served = api.discover().await?.resources;
        let named = parse_resource_arg(std::slice::from_ref(&arguments.resource))?;
        let target = ObjectArg::find(&served, named, namespace)?;
        let ObjectArg { resource, name, .. } = &target;
        let text = format!("{}/{name}", resource.kind.to_lowercase());
        ensure!(
            resource.namespaced,
            "{text} is cluster-scoped; changes of such templates are not staged"
        );
        let template = api.get(target.path()).await?;
        let rollout = names::binding_name(&resource.kind, name);
        let at = ResourcePath::object(&ROLLOUTS, &target.namespace, &rollout);
        let object = match api.get(at).await {
            Err(error) if error.is_not_found() && limit.is_zero() => None,
            Err(error) if error.is_not_found() => {
                let seconds = limit.as_secs();
                output::print_progress(format!("waiting {seconds} s for a Rollout of {text}"));
                let created = await_creation(&*api, at);
                let created = tokio::time::timeout(limit, created).await.ok();
                created.transpose()?.flatten()
            }
            object => Some(object?),
        };
        let object = object.with_context(|| format!(
            "the changes of {text} are not staged, since no RolloutPolicy selects it or it is not propagated"
        ))?;
        Ok(Self::new(api, target.resource, template, object))
    }

    /// The Rollout `object` of a template.
    pub fn new(api: Arc<dyn Api>, resource: ApiResource, template: Object, object: Object) -> Self {
        Self {
            text: format!("{}/{}", resource.kind.to_lowercase(), template.name()),
            api,
            resource,
            template,
            object,
        }
    }

    /// The Rollout and its template, about which a user decides.
    pub(crate) fn staged(&self) -> StagedTemplate<'_> {
        StagedTemplate {
            text: &self.text,
            template: &self.template,
            rollout: &self.object,
        }
    }

    /// Sets fields of the spec that hold whatever has happened since the Rollout was read.
    pub(super) async fn patch_request(&self, spec: Value) -> anyhow::Result<()> {
        let patch = json!({"spec": spec});
        Ok(patch_rollout(&*self.api, &self.object, patch).await?)
    }

    /// The policy that a status names, as it is now.
    pub(super) async fn policy(&self, status: &RolloutStatus) -> anyhow::Result<RolloutPolicySpec> {
        let (kind, rest) = status.policy.split_once('/').unwrap_or_default();
        let name = rest.split_once(' ').map_or(rest, |(name, _)| name);
        let at = match kind {
            "RolloutPolicy" => {
                ResourcePath::object(&ROLLOUT_POLICIES, self.object.namespace(), name)
            }
            _ => ResourcePath::object(&CLUSTER_ROLLOUT_POLICIES, "", name),
        };
        let policy = self.api.get(at).await?;
        Ok(policy.decode::<RolloutPolicy>()?.spec.clone())
    }

    /// The revisions of the template with their numbers, the oldest first.
    pub async fn revisions(&self) -> anyhow::Result<Vec<(i64, Object)>> {
        let key = names::binding_reference_key(self.object.namespace(), self.object.name());
        let mut all = list_all(&*self.api, &CONTROLLER_REVISIONS, self.object.namespace()).await?;
        all.retain(|revision| {
            let owner = revision.meta().controller();
            revision.meta().label(REVISION_OF) == Some(&key)
                && owner.is_some_and(|owner| *owner.uid == *self.template.uid())
        });
        let number = |revision: Object| (revision_number(&revision), revision);
        let mut numbered: Vec<(i64, Object)> = all.into_iter().map(number).collect();
        numbered.sort_by_key(|(number, _)| *number);
        Ok(numbered)
    }
}

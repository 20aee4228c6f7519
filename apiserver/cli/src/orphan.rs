//! The command `flotilla orphan`, which has the deletion of one template leave its objects in
//! members, and says whether it would.

use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use client::remote::RemoteApi;
use client::{Api, ListOptions, Patch, ResourcePath, ShutdownToken, TaskGroup, WriteOptions};
use karmada_api::resources::{CLUSTER_POLICIES, POLICIES, WORKS};
use karmada_api::well_known_keys::{
    CLUSTER_POLICY_NAME, KUBEFED_ORPHAN, ORPHAN, POLICY_NAME, POLICY_NAMESPACE,
    WAIT_FOR_REMOVAL_FINALIZER, is_orphaned_on_deletion,
};
use karmada_api::{PropagationPolicy, Work, names};
use machinery::{Object, duration};
use serde_json::json;
use tokio::time::Instant;

use crate::kubeconfig_flags::namespace_or_context;
use crate::kubectl::ControlPlaneArgs;
use crate::output;
use crate::resource_args::{ObjectArg, parse_resource_arg};

/// How often the Works are read while the control plane acts.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Have the deletion of a template leave its objects in members.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla orphan enable deployment/web\n  flotilla orphan status deployment/web -n default"
)]
pub struct OrphanArgs {
    #[command(subcommand)]
    command: OrphanCommand,
}

#[derive(Subcommand)]
enum OrphanCommand {
    /// Leave the objects in members when the template is deleted.
    Enable(EnableOrphanArgs),
    /// Delete the objects in members with the template, unless its policy preserves them.
    Disable(DisableOrphanArgs),
    /// Say what the deletion of the template would leave.
    Status(OrphanStatusArgs),
}

/// Leave the objects in members when the template is deleted.
///
/// Sets the annotation flotilla.io/orphan of the template, and waits until all its Works say
/// so: a deletion after that leaves the objects, without the labels and annotations of the
/// control plane.
#[derive(Args)]
#[command(after_help = "Example:\n  flotilla orphan enable deployment/web -n default")]
struct EnableOrphanArgs {
    #[command(flatten)]
    change: OrphanChangeArgs,
}

/// Delete the objects in members with the template, unless its policy preserves them.
#[derive(Args)]
#[command(after_help = "Example:\n  flotilla orphan disable deployment/web -n default")]
struct DisableOrphanArgs {
    #[command(flatten)]
    change: OrphanChangeArgs,
}

/// Say what the deletion of the template would leave.
#[derive(Args)]
#[command(after_help = "Example:\n  flotilla orphan status deployment/web")]
struct OrphanStatusArgs {
    #[command(flatten)]
    target: OrphanTarget,
}

#[derive(Args)]
struct OrphanChangeArgs {
    #[command(flatten)]
    target: OrphanTarget,
    /// How long to wait until the control plane has acted.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    timeout: Duration,
    /// Send the request as a dry run, which persists nothing.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Args)]
struct OrphanTarget {
    /// TYPE/NAME or TYPE NAME of the template.
    #[arg(required = true, value_name = "RESOURCE")]
    resource: Vec<String>,
    /// The namespace; by default that of the kubeconfig's context.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    control: ControlPlaneArgs,
}

pub async fn run(arguments: OrphanArgs) -> anyhow::Result<()> {
    let tasks = TaskGroup::new(ShutdownToken::new());
    let done = match &arguments.command {
        OrphanCommand::Enable(EnableOrphanArgs { change }) => {
            Box::pin(change.run(&tasks, true)).await
        }
        OrphanCommand::Disable(DisableOrphanArgs { change }) => {
            Box::pin(change.run(&tasks, false)).await
        }
        OrphanCommand::Status(OrphanStatusArgs { target }) => Box::pin(target.status(&tasks)).await,
    };
    tasks.stop().await;
    done
}

impl OrphanTarget {
    async fn template(&self, tasks: &TaskGroup) -> anyhow::Result<OrphanedTemplate> {
        let named = parse_resource_arg(&self.resource)?;
        let config = self.control.load_config()?;
        let namespace = namespace_or_context(self.namespace.as_ref(), &config);
        let api = RemoteApi::new(config, tasks)?;
        let served = api.discover().await?.resources;
        let object = ObjectArg::find(&served, named, namespace)?;
        Ok(OrphanedTemplate { api, object })
    }

    async fn status(&self, tasks: &TaskGroup) -> anyhow::Result<()> {
        let template = self.template(tasks).await?;
        let state = template.read().await?;
        output::print_line(format!("{}: {}", template.text(), state.text()));
        Ok(())
    }
}

impl OrphanChangeArgs {
    async fn run(&self, tasks: &TaskGroup, enabled: bool) -> anyhow::Result<()> {
        let template = self.target.template(tasks).await?;
        template.check_not_held().await?;
        template.annotate(enabled, self.dry_run).await?;
        let verb = if enabled { "enabled" } else { "disabled" };
        if self.dry_run {
            output::print_line(format!("{}: orphaning {verb} (dry run)", template.text()));
            return Ok(());
        }
        let deadline = Instant::now() + self.timeout;
        loop {
            let state = template.read().await?;
            if state.is_in_force() {
                output::print_line(format!("{}: {}", template.text(), state.text()));
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!(
                    "orphaning is {verb}, but the control plane has not acted within {} s: {}; `flotilla why` says what holds it",
                    self.timeout.as_secs_f64(),
                    state.text()
                );
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// A template of the control plane.
struct OrphanedTemplate {
    api: RemoteApi,
    object: ObjectArg,
}

impl OrphanedTemplate {
    fn text(&self) -> String {
        let kind = self.object.resource.kind.to_lowercase();
        match self.object.namespace.as_str() {
            "" => format!("{kind}/{}", self.object.name),
            namespace => format!("{kind}/{} of namespace {namespace}", self.object.name),
        }
    }

    /// Refuses a change that comes too late.
    async fn check_not_held(&self) -> anyhow::Result<()> {
        let template = self.api.get(self.object.path()).await?;
        if !is_held(&template) {
            return Ok(());
        }
        let kind = self.object.resource.kind.to_lowercase();
        bail!(
            "{} is deleted, and waits until its copies are gone: they are being deleted already; `flotilla why {kind}/{}` names them",
            self.text(),
            self.object.name
        )
    }

    /// Sets the annotation, or removes it and KubeFed's.
    async fn annotate(&self, enabled: bool, dry_run: bool) -> anyhow::Result<()> {
        let annotations = match enabled {
            true => json!({ORPHAN: "true"}),
            false => json!({ORPHAN: null, KUBEFED_ORPHAN: null}),
        };
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        let options = WriteOptions {
            dry_run,
            ..WriteOptions::default()
        };
        self.api.patch(self.object.path(), patch, &options).await?;
        Ok(())
    }

    async fn read(&self) -> anyhow::Result<OrphanState> {
        let template = self.api.get(self.object.path()).await?;
        let works = self.list_works().await?;
        Ok(OrphanState {
            annotated: is_orphaned_on_deletion(&template.annotations()),
            by_policy: self.policy_preserves(&template).await?,
            works: works.len(),
            preserved: works.iter().filter(|preserved| **preserved).count(),
        })
    }

    /// Whether each Work of the template leaves its object.
    async fn list_works(&self) -> anyhow::Result<Vec<bool>> {
        let name = names::work_name(
            &self.object.resource.kind,
            &self.object.name,
            &self.object.namespace,
        );
        let options = ListOptions {
            field_selector: format!("metadata.name={name}"),
            ..ListOptions::default()
        };
        let list = self
            .api
            .list(ResourcePath::collection(&WORKS, ""), &options);
        let works = list.await.context("works cannot be listed")?.items;
        let preserves = |work: Object| {
            let view = work.decode::<Work>()?;
            Ok(view.spec.preserve_resources_on_deletion == Some(true))
        };
        works.into_iter().map(preserves).collect()
    }

    async fn policy_preserves(&self, template: &Object) -> anyhow::Result<bool> {
        let annotations = template.annotations();
        let value = |key: &str| annotations.get(key).map_or("", String::as_str);
        let at = match (value(POLICY_NAMESPACE), value(CLUSTER_POLICY_NAME)) {
            ("", "") => return Ok(false),
            ("", name) => ResourcePath::object(&CLUSTER_POLICIES, "", name),
            (namespace, _) => ResourcePath::object(&POLICIES, namespace, value(POLICY_NAME)),
        };
        match self.api.get(at).await {
            Ok(policy) => {
                let view = policy.decode::<PropagationPolicy>()?;
                Ok(view.spec.preserve_resources_on_deletion == Some(true))
            }
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error).context("the policy of the template cannot be read"),
        }
    }
}

/// Whether a template is deleted, and only waits until its copies are gone.
fn is_held(template: &Object) -> bool {
    let finalizers = template.finalizers();
    template.meta().deleting && finalizers.iter().any(|f| f == WAIT_FOR_REMOVAL_FINALIZER)
}

/// The objects that the deletion of a template would leave.
struct OrphanState {
    annotated: bool,
    by_policy: bool,
    works: usize,
    /// The Works that leave their objects.
    preserved: usize,
}

impl OrphanState {
    /// Whether all Works are as annotation and policy say.
    fn is_in_force(&self) -> bool {
        let expected = match self.annotated || self.by_policy {
            true => self.works,
            false => 0,
        };
        self.preserved == expected
    }

    fn text(&self) -> String {
        let state = match (self.annotated, self.by_policy) {
            (true, _) => "enabled",
            (false, true) => "disabled, but its policy preserves resources on deletion",
            (false, false) => "disabled",
        };
        let (preserved, works) = (self.preserved, self.works);
        format!(
            "orphaning {state}; a deletion leaves the objects of {preserved} of {works} clusters"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: ORP-command
    #[test]
    fn the_state_says_whether_all_works_are_as_desired() {
        for (annotated, by_policy, preserved, in_force, text) in [
            (
                true,
                false,
                2,
                true,
                "enabled; a deletion leaves the objects of 2 of 2 clusters",
            ),
            (
                true,
                false,
                1,
                false,
                "enabled; a deletion leaves the objects of 1 of 2 clusters",
            ),
            (
                false,
                false,
                0,
                true,
                "disabled; a deletion leaves the objects of 0 of 2 clusters",
            ),
            (
                false,
                false,
                1,
                false,
                "disabled; a deletion leaves the objects of 1 of 2 clusters",
            ),
            (
                false,
                true,
                2,
                true,
                "disabled, but its policy preserves resources on deletion; a deletion leaves the objects of 2 of 2 clusters",
            ),
        ] {
            let state = OrphanState {
                annotated,
                by_policy,
                works: 2,
                preserved,
            };
            assert_eq!(state.is_in_force(), in_force, "{text}");
            assert_eq!(state.text(), format!("orphaning {text}"));
        }
    }

    // proves: ORP-held
    #[test]
    fn a_template_that_waits_for_its_copies_is_held() {
        let finalizer = json!([WAIT_FOR_REMOVAL_FINALIZER]);
        let deleted = "2026-01-01T00:00:00Z";
        for (metadata, expected) in [
            (json!({"finalizers": finalizer}), false),
            (
                json!({"deletionTimestamp": deleted, "finalizers": ["a/b"]}),
                false,
            ),
            (
                json!({"deletionTimestamp": deleted, "finalizers": finalizer}),
                true,
            ),
        ] {
            let template = Object::from_value(&json!({"metadata": metadata})).unwrap();
            assert_eq!(is_held(&template), expected, "{metadata}");
        }
    }
}

//! The command `flotilla rebalance`, which has templates scheduled anew and waits until that
//! is triggered: it creates a WorkloadRebalancer and reads its status.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use client::remote::RemoteApi;
use client::{
    Api, ApiResource, ResourcePath, ShutdownToken, TaskGroup, WatchEvent, WatchOptions,
    WriteOptions,
};
use futures_util::StreamExt;
use karmada_api::WorkloadRebalancer;
use karmada_api::rebalancer::{
    ObservedWorkload, REASON_BINDING_NOT_FOUND, REBALANCE_SUCCESSFUL, WorkloadReference,
};
use karmada_api::resources::REBALANCERS;
use machinery::{Object, duration};
use serde_json::json;

use crate::kubeconfig_flags::namespace_or_context;
use crate::kubectl::ControlPlaneArgs;
use crate::output;
use crate::resource_args::{find_resource, parse_resource_arg};

/// How long the command is silent while it waits.
const PROGRESS_DELAY: Duration = Duration::from_secs(1);

/// Schedule templates anew, without regard to where they are now.
///
/// Creates a WorkloadRebalancer, which the control plane deletes after --ttl, and waits
/// until each template is rescheduled or is refused.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla rebalance deployment/web\n  flotilla rebalance deployment/web configmap/options -n default --dry-run"
)]
pub struct RebalanceArgs {
    /// TYPE/NAME of each template.
    #[arg(required = true, value_name = "TYPE/NAME")]
    resources: Vec<String>,
    /// The namespace; by default that of the kubeconfig's context.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// How long to wait for the result.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse)]
    wait: Duration,
    /// How long the WorkloadRebalancer is kept after it has finished.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse)]
    ttl: Duration,
    /// Send the request as a dry run, which persists nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    control: ControlPlaneArgs,
}

pub async fn run(arguments: RebalanceArgs) -> anyhow::Result<()> {
    let tasks = TaskGroup::new(ShutdownToken::new());
    let done = Box::pin(rebalance(&arguments, &tasks)).await;
    tasks.stop().await;
    done
}

async fn rebalance(arguments: &RebalanceArgs, tasks: &TaskGroup) -> anyhow::Result<()> {
    let config = arguments.control.load_config()?;
    let namespace = namespace_or_context(arguments.namespace.as_ref(), &config);
    let api = RemoteApi::new(config, tasks)?;
    let workloads = find_workloads(&api, arguments, &namespace).await?;
    let body = json!({
        "apiVersion": REBALANCERS.api_version(),
        "kind": "WorkloadRebalancer",
        "metadata": {"generateName": "rebalance-"},
        "spec": {"workloads": workloads, "ttlSecondsAfterFinished": arguments.ttl.as_secs()},
    });
    let options = WriteOptions {
        dry_run: arguments.dry_run,
        ..WriteOptions::default()
    };
    let at = ResourcePath::collection(&REBALANCERS, "");
    let created = api.create(at, body.into(), &options).await?;
    if arguments.dry_run {
        for workload in &workloads {
            output::print_line(format!("{} rebalanced (dry run)", workload_text(workload)));
        }
        return Ok(());
    }
    let wait = tokio::time::timeout(arguments.wait, wait_for_end(&api, &created)).await;
    let observed = wait.with_context(|| {
        format!(
            "not finished within {} s; `flotilla get workloadrebalancer {} -o yaml` shows the state",
            arguments.wait.as_secs_f64(),
            created.name()
        )
    })??;
    print_results(&observed)
}

/// The templates of the arguments, which must exist.
async fn find_workloads(
    api: &RemoteApi,
    arguments: &RebalanceArgs,
    namespace: &str,
) -> anyhow::Result<Vec<WorkloadReference>> {
    let served: Vec<ApiResource> = api.discover().await?.resources;
    let mut workloads = Vec::new();
    for argument in &arguments.resources {
        let (kind, name) = parse_resource_arg(std::slice::from_ref(argument))?;
        let resource = find_resource(&served, kind)?;
        let namespace = if resource.namespaced { namespace } else { "" };
        api.get(ResourcePath::object(&resource.resource, namespace, name))
            .await?;
        workloads.push(WorkloadReference {
            api_version: resource.resource.api_version().to_string(),
            kind: resource.kind.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        });
    }
    Ok(workloads)
}

/// Follows the WorkloadRebalancer until it has a time of its end.
async fn wait_for_end(api: &RemoteApi, created: &Object) -> anyhow::Result<Vec<ObservedWorkload>> {
    let at = ResourcePath::of_object(&REBALANCERS, created);
    let options = WatchOptions {
        resource_version: created.revision().to_string(),
        ..WatchOptions::default()
    };
    let mut events = api.watch(at, &options).await?;
    let mut is_silent = true;
    loop {
        let next = events.next();
        let event = if is_silent {
            match tokio::time::timeout(PROGRESS_DELAY, next).await {
                Ok(event) => event,
                Err(_) => {
                    is_silent = false;
                    output::print_progress(format!(
                        "waiting for workloadrebalancer {}",
                        created.name()
                    ));
                    continue;
                }
            }
        } else {
            next.await
        };
        match event.context("the watch has ended; run the command again")?? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let status = &object.decode::<WorkloadRebalancer>()?.status;
                if status.finish_time.is_some() {
                    return Ok(status.observed_workloads.clone());
                }
            }
            WatchEvent::Deleted(_) => bail!("the workloadrebalancer was deleted"),
            WatchEvent::Bookmark { .. } => {}
        }
    }
}

/// One line for each template; an error if one was not rescheduled.
fn print_results(observed: &[ObservedWorkload]) -> anyhow::Result<()> {
    let mut failed = 0;
    for workload in observed {
        let text = workload_text(&workload.workload);
        if workload.result == REBALANCE_SUCCESSFUL {
            output::print_line(format!("{text} rebalanced"));
            continue;
        }
        failed += 1;
        let hint = match workload.reason.as_str() {
            REASON_BINDING_NOT_FOUND => {
                ": it has no binding, since no policy selects it; `flotilla why` says more"
            }
            _ => "",
        };
        output::print_line(format!("{text} not rebalanced: {}{hint}", workload.reason));
    }
    ensure!(
        failed == 0,
        "{failed} of {} templates were not rebalanced",
        observed.len()
    );
    Ok(())
}

fn workload_text(workload: &WorkloadReference) -> String {
    let kind = workload.kind.to_lowercase();
    match workload.namespace.as_str() {
        "" => format!("{kind}/{}", workload.name),
        namespace => format!("{kind}/{} of namespace {namespace}", workload.name),
    }
}

//! The example of "How to add a command" in `apiserver/README.md`, so that it compiles.

use clap::Args;
use client::{ListOptions, ResourcePath, ShutdownToken, TaskGroup};
use karmada_api::resources::CLUSTERS;

use crate::kubeconfig_flags::{ControlPlaneFlags, KubeconfigArgs};
use crate::output;

/// Print the names of all clusters.
#[derive(Args)]
#[command(after_help = "Example:\n  flotilla cluster-names")]
pub struct ClusterNamesArgs {
    #[command(flatten)]
    control: KubeconfigArgs<ControlPlaneFlags>,
}

pub async fn run(arguments: ClusterNamesArgs) -> anyhow::Result<()> {
    let tasks = TaskGroup::new(ShutdownToken::new());
    let api = arguments.control.connect(&tasks)?;
    let clusters = ResourcePath::collection(&CLUSTERS, "");
    let listed = api.list(clusters, &ListOptions::default()).await;
    tasks.stop().await;
    for cluster in listed?.items {
        output::print_line(cluster.name());
    }
    Ok(())
}

#[derive(clap::Parser)]
struct ExampleCommandLine {
    #[command(flatten)]
    arguments: ClusterNamesArgs,
}

#[tokio::test]
async fn the_example_connects_by_its_kubeconfig() {
    let line = ["flotilla", "--kubeconfig", "/nowhere/kubeconfig"];
    let ExampleCommandLine { arguments } = clap::Parser::parse_from(line);
    let error = run(arguments).await.unwrap_err().to_string();
    assert!(error.contains("/nowhere/kubeconfig"), "{error}");
}

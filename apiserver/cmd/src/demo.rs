//! The command `flotilla demo`, which propagates a Deployment to three simulated clusters.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use client::{Informer, ListWatchSelector, ResourcePath, WriteOptions};
use flotilla_cli::output;
use karmada_api::ResourceBinding;
use karmada_api::resources::{BINDINGS, OVERRIDES, POLICIES};
use machinery::Gvr;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::controller_manager::MultiClusterControllerOptions;
use crate::member::HollowClusterArgs;
use crate::signals::TerminationSignals;
use crate::up::LocalFleet;

static DEPLOYMENTS: Gvr = Gvr::from_static("apps", "v1", "deployments");
static SERVICES: Gvr = Gvr::from_static("", "v1", "services");

const NAMESPACE: &str = "default";
const MEMBERS: usize = 3;
const REPLICAS: i64 = 8;
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// Run a demonstration in a temporary directory: three simulated clusters, a Deployment, a
/// Service, a policy that divides replicas 1:1:2, and an override.
#[derive(Args)]
#[command(after_help = "Example:\n  flotilla demo\n  flotilla demo --keep")]
pub(crate) struct DemoArgs {
    /// Keep it running, and print kubectl commands to try.
    #[arg(long)]
    keep: bool,
}

pub(crate) async fn run(arguments: DemoArgs) -> anyhow::Result<()> {
    let mut signals = TerminationSignals::listen()?;
    let dir = tempfile::Builder::new()
        .prefix("flotilla-demo-")
        .tempdir()?;
    output::print_progress("starting a control plane and 3 simulated clusters ...");
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let (size, settings) = (
        HollowClusterArgs::default(),
        MultiClusterControllerOptions::default(),
    );
    let starting = LocalFleet::start(dir.path(), any, MEMBERS, &size, &settings);
    let Some(fleet) = signals.run_unless_signaled(starting).await? else {
        return Ok(());
    };
    let shown = tokio::select! {
        () = signals.wait() => Ok(()),
        shown = run_demo(&fleet) => shown,
    };
    if shown.is_ok() && arguments.keep {
        output::print_line(hints(&fleet));
        signals.wait().await;
    }
    fleet.stop().await;
    shown
}

async fn run_demo(fleet: &LocalFleet) -> anyhow::Result<()> {
    let api = &fleet.control_plane.api;
    output::print_progress("applying a Deployment, a Service, a policy and an override ...");
    for (resource, object) in samples() {
        api.create(
            ResourcePath::collection(resource, NAMESPACE),
            object.into(),
            &WriteOptions::default(),
        )
        .await?;
    }
    let informer = |resource| {
        fleet
            .control_plane
            .informers
            .get(api, &ListWatchSelector::all(resource))
    };
    let (deployments, bindings) = (informer(&DEPLOYMENTS), informer(&BINDINGS));
    let changed = Arc::new(tokio::sync::Notify::new());
    for informer in [&deployments, &bindings] {
        let wake = Arc::clone(&changed);
        informer.add_event_handler(move |_| wake.notify_one());
    }
    let mut last = String::new();
    let done = async {
        loop {
            let (table, ready) = status_table(&deployments, &bindings);
            if table != last {
                output::print_line(&table);
                last = table;
            }
            if ready {
                return;
            }
            changed.notified().await;
        }
    };
    if tokio::time::timeout(READY_TIMEOUT, done).await.is_err() {
        bail!(
            "the Deployment did not become ready within {} s",
            READY_TIMEOUT.as_secs()
        );
    }
    output::print_line(format!(
        "All {REPLICAS} replicas are ready, as the status of the template shows."
    ));
    Ok(())
}

#[derive(Default, Deserialize)]
struct DeploymentWithReadyReplicas {
    #[serde(default)]
    status: DeploymentStatusReadyReplicas,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeploymentStatusReadyReplicas {
    ready_replicas: i64,
}

/// A table of clusters with their replicas, and whether all replicas are ready.
fn status_table(deployments: &Informer, bindings: &Informer) -> (String, bool) {
    let template = deployments
        .get(NAMESPACE, "web")
        .and_then(|d| d.decode::<DeploymentWithReadyReplicas>().ok());
    let ready = template.map_or(0, |t| t.status.ready_replicas);
    let binding = bindings
        .get(NAMESPACE, "web-deployment")
        .and_then(|b| b.decode::<ResourceBinding>().ok());
    let mut lines = vec![format!(
        "{:<10} {:>8} {:>6}  {}",
        "CLUSTER", "REPLICAS", "READY", "HEALTH"
    )];
    for target in binding.iter().flat_map(|b| &b.spec.clusters) {
        let item = binding
            .iter()
            .flat_map(|b| &b.status.aggregated_status)
            .find(|i| i.cluster_name == target.name);
        let ready_replicas = item
            .and_then(|i| i.status.as_ref()?["readyReplicas"].as_i64())
            .unwrap_or(0);
        let health = item.map_or("", |i| i.health.as_str());
        lines.push(format!(
            "{:<10} {:>8} {:>6}  {health}",
            target.name, target.replicas, ready_replicas
        ));
    }
    lines.push(format!("{:<10} {:>8} {:>6}", "template", REPLICAS, ready));
    lines.push(String::new());
    (lines.join("\n"), ready == REPLICAS)
}

fn samples() -> [(&'static Gvr, Value); 4] {
    let weight = |name: &str, weight: i64| json!({"targetCluster": {"clusterNames": [name]}, "weight": weight});
    let policy = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": {"name": "web"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                                  {"apiVersion": "v1", "kind": "Service", "name": "web"}],
            "placement": {
                "clusterAffinity": {"clusterNames": ["member1", "member2", "member3"]},
                "replicaScheduling": {
                    "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                    "weightPreference": {"staticWeightList": [weight("member1", 1), weight("member2", 1), weight("member3", 2)]},
                },
            },
        },
    });
    let overrides = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy", "metadata": {"name": "web"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}],
            "overrideRules": [{
                "targetCluster": {"clusterNames": ["member1"]},
                "overriders": {"imageOverrider": [{"component": "Tag", "operator": "replace", "value": "1.27-alpine"}]},
            }],
        },
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "nginx:1.27"}]}},
        },
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    });
    [
        (&OVERRIDES, overrides),
        (&POLICIES, policy),
        (&DEPLOYMENTS, deployment),
        (&SERVICES, service),
    ]
}

fn hints(fleet: &LocalFleet) -> String {
    let control = fleet.control_plane.kubeconfig.display();
    let member = fleet
        .members
        .first()
        .map(|m| m.kubeconfig.display().to_string())
        .unwrap_or_default();
    format!(
        "It keeps running until you press Ctrl-C. In another terminal:\n\
         \x20 export KUBECONFIG={control}\n\
         \x20 kubectl get clusters\n\
         \x20 kubectl get deploy,pp,op,rb\n\
         \x20 kubectl get works -A\n\
         \x20 kubectl scale deploy web --replicas=16\n\
         \x20 kubectl --kubeconfig {member} get deploy,rs,pods"
    )
}

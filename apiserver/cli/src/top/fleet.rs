//! `flotilla top fleet`: the member clusters with their readiness, nodes, resources and Works.
//! Resources are those of the Clusters' status; the usage is that of metrics.k8s.io.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use client::{Api, ListOptions, ObjectList, ResourcePath, TaskGroup, WatchOptions};
use futures_util::StreamExt;
use futures_util::future::join_all;
use karmada_api::Cluster;
use karmada_api::names::execution_space_name;
use karmada_api::resources::CLUSTERS;
use machinery::{Object, Quantity};
use serde::{Deserialize, Serialize};

use super::nodes::NodeMetrics;
use super::query_flags::{MemberQueryArgs, QueriedFleet, print_failures};
use super::resource_usage::{
    MetricsSelection, NODE_METRICS, ResourceUsage, cpu_text, memory_text, percent,
};
use crate::member_clusters::{MemberFailure, ask_with_deadline};
use crate::output::{self, RedrawnText};
use crate::printers::format_lines;

/// How long a table stays without changes of Clusters; metrics-server measures as often.
const REFRESH_INTERVAL: Duration = Duration::from_secs(15);
/// Changes of Clusters within this time are one new table.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_secs(1);
const UNKNOWN: &str = "-";
const TITLES: [&str; 12] = [
    "NAME",
    "MODE",
    "READY",
    "NODES",
    "CPU",
    "CPU-ALLOCATED",
    "CPU-USED",
    "MEMORY",
    "MEMORY-ALLOCATED",
    "MEMORY-USED",
    "PODS",
    "WORKS",
];

/// Display the readiness, the capacity and the usage of member clusters.
///
/// CPU and MEMORY are what is allocatable; ALLOCATED is what pods request of it, and USED what
/// nodes use, if the cluster has metrics.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla top fleet\n  flotilla top fleet -C member1,member2 -o json"
)]
pub(super) struct TopFleetArgs {
    /// Print a new table when Clusters change, and every 15 seconds; on a terminal in place of
    /// the last one.
    #[arg(short, long, conflicts_with = "output")]
    watch: bool,
    #[command(flatten)]
    members: MemberQueryArgs,
}

/// One line of the table.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ClusterLine {
    name: String,
    sync_mode: String,
    /// The status of the condition Ready.
    ready: String,
    ready_nodes: Option<i64>,
    nodes: Option<i64>,
    allocatable: BTreeMap<String, Quantity>,
    allocated: BTreeMap<String, Quantity>,
    used: Option<UsedResources>,
    works: Option<u64>,
}

#[derive(Clone, Copy, Serialize)]
struct UsedResources {
    cpu: Quantity,
    memory: Quantity,
}

/// Prints the table. A member that does not answer is no failure of the command.
pub(super) async fn top(arguments: &TopFleetArgs, tasks: &TaskGroup) -> anyhow::Result<bool> {
    let fleet = arguments.members.connect(tasks).await?;
    if arguments.watch {
        watch(arguments, fleet, tasks).await?;
        return Ok(true);
    }
    let clusters = list_clusters(&fleet.control).await?;
    let table = FleetTable::read(arguments, &fleet, &clusters.items).await?;
    print_failures(
        table
            .failures
            .iter()
            .map(|(name, reason)| (name.as_str(), reason)),
    );
    match arguments.members.encode(&table.lines)? {
        Some(document) => output::print_line(document),
        None if table.lines.is_empty() => output::print_progress("No resources found"),
        None => output::print_line(table.format(arguments)),
    }
    Ok(true)
}

/// Prints tables until the process is interrupted or the control plane fails.
async fn watch(
    arguments: &TopFleetArgs,
    mut fleet: QueriedFleet,
    tasks: &TaskGroup,
) -> anyhow::Result<()> {
    let mut screen = RedrawnText::default();
    loop {
        let clusters = list_clusters(&fleet.control).await?;
        let is_known = |cluster: &Object| fleet.members.iter().any(|m| m.name == cluster.name());
        let has_new = !clusters.items.iter().all(is_known);
        if arguments.members.clusters.is_empty() && has_new {
            fleet = arguments.members.connect(tasks).await?;
        }
        let table = FleetTable::read(arguments, &fleet, &clusters.items).await?;
        let mut text = table.format(arguments);
        for (cluster, failure) in &table.failures {
            text.push('\n');
            text.push_str(&failure.warning(cluster));
        }
        screen.print(&text);
        wait_for_change(&fleet, clusters.revision).await?;
    }
}

/// Returns after a change of a Cluster, or when metrics may have changed.
async fn wait_for_change(fleet: &QueriedFleet, revision: u64) -> anyhow::Result<()> {
    let options = WatchOptions {
        resource_version: revision.to_string(),
        ..WatchOptions::default()
    };
    let all = ResourcePath::collection(&CLUSTERS, "");
    let mut events = fleet.control.watch(all, &options).await?;
    tokio::time::sleep(MIN_REFRESH_INTERVAL).await;
    tokio::select! {
        _ = events.next() => {}
        () = tokio::time::sleep(REFRESH_INTERVAL - MIN_REFRESH_INTERVAL) => {}
    }
    Ok(())
}

async fn list_clusters(control: &dyn Api) -> anyhow::Result<ObjectList> {
    let all = ResourcePath::collection(&CLUSTERS, "");
    Ok(control.list(all, &ListOptions::default()).await?)
}

/// The lines of the selected clusters, and the members that have not answered.
struct FleetTable {
    lines: Vec<ClusterLine>,
    failures: Vec<(String, MemberFailure)>,
}

impl FleetTable {
    /// Only members that are Ready are asked for their usage.
    async fn read(
        arguments: &TopFleetArgs,
        fleet: &QueriedFleet,
        clusters: &[Object],
    ) -> anyhow::Result<Self> {
        let lines = fleet.members.iter().map(|member| async move {
            let cluster = clusters.iter().find(|c| c.name() == member.name);
            let Some(cluster) = cluster else {
                // It was removed in between.
                return anyhow::Ok(None);
            };
            let cluster = cluster.decode::<Cluster>()?;
            let used = async {
                match cluster.is_ready() {
                    true => {
                        let deadline = arguments.members.request_timeout;
                        ask_with_deadline(deadline, used_resources(&member.api)).await
                    }
                    false => Ok(None),
                }
            };
            let works = count_works(&fleet.control, &member.name);
            let (used, works) = tokio::join!(used, works);
            Ok(Some(match used {
                Ok(used) => (cluster_line(&member.name, &cluster, used, works), None),
                Err(reason) => (
                    cluster_line(&member.name, &cluster, None, works),
                    Some(reason),
                ),
            }))
        });
        let mut table = Self {
            lines: Vec::new(),
            failures: Vec::new(),
        };
        for line in join_all(lines).await {
            if let Some((line, failure)) = line? {
                table
                    .failures
                    .extend(failure.map(|reason| (line.name.clone(), reason)));
                table.lines.push(line);
            }
        }
        Ok(table)
    }

    fn format(&self, arguments: &TopFleetArgs) -> String {
        let header = TITLES.map(str::to_owned).to_vec();
        let header = (!arguments.members.no_headers).then_some(&header);
        let lines: Vec<Vec<String>> = self.lines.iter().map(ClusterLine::cells).collect();
        let text = format_lines(header, &lines);
        text.trim_end_matches('\n').to_owned()
    }
}

/// The usage of the nodes of a member; `None` if it has no metrics.
async fn used_resources(api: &dyn Api) -> anyhow::Result<Option<ResourceUsage>> {
    let selection = MetricsSelection {
        resource: &NODE_METRICS,
        namespace: String::new(),
        name: String::new(),
        label_selector: String::new(),
        field_selector: String::new(),
    };
    let Some(nodes) = selection.read_metrics_if_served(api).await? else {
        return Ok(None);
    };
    let mut used = ResourceUsage::default();
    for node in nodes {
        used.add(NodeMetrics::deserialize(node.value()?)?.usage);
    }
    Ok(Some(used))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ListHead {
    metadata: ListMetadata,
    items: Vec<serde::de::IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMetadata {
    remaining_item_count: u64,
}

/// The number of Works of a cluster, counted by the control plane; `None` if it is not known.
async fn count_works(control: &dyn Api, cluster: &str) -> Option<u64> {
    let namespace = execution_space_name(cluster);
    let path = format!("/apis/work.karmada.io/v1alpha1/namespaces/{namespace}/works?limit=1");
    let body = control.get_raw(&path).await.ok()?;
    let list: ListHead = machinery::json::from_slice(&body).ok()?;
    let listed = u64::try_from(list.items.len()).ok()?;
    Some(listed + list.metadata.remaining_item_count)
}

fn cluster_line(
    name: &str,
    cluster: &Cluster,
    used: Option<ResourceUsage>,
    works: Option<u64>,
) -> ClusterLine {
    let status = &cluster.status;
    let ready = cluster.condition("Ready");
    let summary = status.resource_summary.as_ref();
    ClusterLine {
        name: name.to_owned(),
        sync_mode: cluster.spec.sync_mode.clone(),
        ready: ready.map_or_else(|| "Unknown".to_owned(), |c| c.status.clone()),
        ready_nodes: status.node_summary.map(|nodes| nodes.ready_num),
        nodes: status.node_summary.map(|nodes| nodes.total_num),
        allocatable: summary.map(|s| s.allocatable.clone()).unwrap_or_default(),
        allocated: summary.map(|s| s.allocated.clone()).unwrap_or_default(),
        used: used.map(|used| UsedResources {
            cpu: used.cpu,
            memory: used.memory,
        }),
        works,
    }
}

impl ClusterLine {
    fn cells(&self) -> Vec<String> {
        let unknown = || UNKNOWN.to_owned();
        let nodes = self.ready_nodes.zip(self.nodes);
        let allocatable = |resource: &str| self.allocatable.get(resource).copied();
        let allocated = |resource: &str| self.allocated.get(resource).copied();
        let share = |resource: &str, amount: Option<Quantity>, text: fn(Quantity) -> String| {
            let Some(amount) = amount else {
                return unknown();
            };
            let percent = percent(amount, allocatable(resource).unwrap_or_default());
            let percent = percent.map(|p| format!("({p}%)")).unwrap_or_default();
            format!("{}{percent}", text(amount))
        };
        let [cpu, memory] = [
            self.used.map(|used| used.cpu),
            self.used.map(|used| used.memory),
        ];
        let pods = allocated("pods").zip(allocatable("pods"));
        vec![
            self.name.clone(),
            self.sync_mode.clone(),
            self.ready.clone(),
            nodes.map_or_else(unknown, |(ready, all)| format!("{ready}/{all}")),
            allocatable("cpu").map_or_else(unknown, cpu_text),
            share("cpu", allocated("cpu"), cpu_text),
            share("cpu", cpu, cpu_text),
            allocatable("memory").map_or_else(unknown, memory_text),
            share("memory", allocated("memory"), memory_text),
            share("memory", memory, memory_text),
            pods.map_or_else(unknown, |(used, all)| {
                format!("{}/{}", used.value(), all.value())
            }),
            self.works.map_or_else(unknown, |works| works.to_string()),
        ]
    }
}

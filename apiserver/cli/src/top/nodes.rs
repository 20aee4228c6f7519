//! `flotilla top node`: the usage of nodes and their shares of what is allocatable, as
//! karmadactl prints them (`pkg/karmadactl/top`).

use std::collections::BTreeMap;

use anyhow::{bail, ensure};
use clap::Args;
use client::{Api, ResourcePath, TaskGroup};
use machinery::{Gvr, Object, Quantity};
use serde::Deserialize;
use serde_json::json;

use super::query_flags::{MetricsQueryArgs, print_failures};
use super::resource_usage::{
    METRICS_API_VERSION, MemberAnswer, MetricsSelection, NODE_METRICS, ResourceUsage, UsageOrder,
    ask_members, cpu_text, memory_text, percent, with_cluster,
};
use crate::output;
use crate::printers::format_lines;

static NODES: Gvr = Gvr::from_static("", "v1", "nodes");
const UNKNOWN: &str = "<unknown>";
const TITLES: [&str; 6] = [
    "NAME",
    "CLUSTER",
    "CPU(cores)",
    "CPU%",
    "MEMORY(bytes)",
    "MEMORY%",
];

/// Display the usage of CPU and memory of the nodes of member clusters.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla top node\n  flotilla top nodes -C member1 --sort-by cpu --show-capacity"
)]
pub(super) struct TopNodeArgs {
    /// The name of a node.
    #[arg(value_name = "NODE")]
    name: Option<String>,
    /// Label selector, such as type=hollow.
    #[arg(short = 'l', long, value_name = "SELECTOR", default_value = "")]
    selector: String,
    /// Print shares of the capacity of nodes instead of what is allocatable.
    #[arg(long)]
    show_capacity: bool,
    #[command(flatten)]
    metrics: MetricsQueryArgs,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeStatus {
    allocatable: BTreeMap<String, Quantity>,
    capacity: BTreeMap<String, Quantity>,
}

#[derive(Deserialize)]
struct Node {
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Deserialize)]
pub(super) struct NodeMetrics {
    #[serde(default)]
    pub(super) usage: ResourceUsage,
}

/// A node, with its usage if it has metrics.
struct NodeUsage {
    cluster: String,
    name: String,
    usage: Option<ResourceUsage>,
    /// Empty if the node is not known.
    available: BTreeMap<String, Quantity>,
}

/// The metrics and the nodes of a member.
#[derive(Default)]
struct MemberNodeUsage {
    metrics: Vec<Object>,
    nodes: Vec<Object>,
}

/// Prints the usage; returns whether every member has answered.
pub(super) async fn top(arguments: &TopNodeArgs, tasks: &TaskGroup) -> anyhow::Result<bool> {
    let order = arguments.metrics.order()?;
    let members = &arguments.metrics.members;
    ensure!(
        arguments.name.is_none() || arguments.selector.is_empty(),
        "only one of NAME or --selector can be provided"
    );
    let fleet = members.connect(tasks).await?;
    let selection = &MetricsSelection {
        resource: &NODE_METRICS,
        namespace: String::new(),
        name: arguments.name.clone().unwrap_or_default(),
        label_selector: arguments.selector.clone(),
        field_selector: String::new(),
    };
    let answers = ask_members(&fleet.members, members.request_timeout, |member| {
        read_nodes_and_metrics(&member.api, selection)
    });
    let answers = answers.await;
    print_failures(answers.iter().filter_map(MemberAnswer::failure));
    let has_failed = answers.iter().any(|answer| answer.answer.is_err());
    let mut usages = Vec::new();
    let mut documents = Vec::new();
    for MemberAnswer { cluster, answer } in answers {
        let answer = answer.unwrap_or_default();
        for object in &answer.metrics {
            documents.push(with_cluster(object, &cluster)?);
        }
        usages.extend(arguments.node_usages(&cluster, &answer)?);
    }
    let list = json!({"apiVersion": METRICS_API_VERSION, "kind": "NodeMetricsList",
        "metadata": {}, "items": documents});
    if let Some(document) = members.encode(&list)? {
        output::print_line(document);
    } else if !usages.is_empty() {
        let lines = sorted_lines(usages, order);
        let header = TITLES.map(str::to_owned).to_vec();
        let header = (!members.no_headers).then_some(&header);
        output::print_line(format_lines(header, &lines).trim_end_matches('\n'));
    } else if !has_failed {
        output::print_progress("No resources found");
    }
    Ok(!has_failed)
}

async fn read_nodes_and_metrics(
    api: &dyn Api,
    selection: &MetricsSelection,
) -> anyhow::Result<MemberNodeUsage> {
    let metrics = selection.read_metrics(api).await?;
    if metrics.is_empty() {
        bail!("metrics not available yet");
    }
    let nodes = if selection.name.is_empty() {
        let all = ResourcePath::collection(&NODES, "");
        api.list(all, &selection.list_options()).await?.items
    } else {
        vec![
            api.get(ResourcePath::object(&NODES, "", &selection.name))
                .await?,
        ]
    };
    Ok(MemberNodeUsage { metrics, nodes })
}

impl TopNodeArgs {
    /// The nodes with metrics, and those without.
    fn node_usages(
        &self,
        cluster: &str,
        answer: &MemberNodeUsage,
    ) -> anyhow::Result<Vec<NodeUsage>> {
        let mut available = BTreeMap::new();
        for node in &answer.nodes {
            let status = Node::deserialize(node.value()?)?.status;
            let amounts = match self.show_capacity {
                true => status.capacity,
                false => status.allocatable,
            };
            available.insert(node.name(), amounts);
        }
        let mut usages = Vec::new();
        for metrics in &answer.metrics {
            usages.push(NodeUsage {
                cluster: cluster.to_owned(),
                name: metrics.name().to_owned(),
                usage: Some(NodeMetrics::deserialize(metrics.value()?)?.usage),
                available: available.remove(metrics.name()).unwrap_or_default(),
            });
        }
        let without_metrics = available.into_iter().map(|(name, available)| NodeUsage {
            cluster: cluster.to_owned(),
            name: name.to_owned(),
            usage: None,
            available,
        });
        usages.extend(without_metrics);
        Ok(usages)
    }
}

/// The lines of nodes in the given order; those without metrics come last.
fn sorted_lines(mut usages: Vec<NodeUsage>, order: UsageOrder) -> Vec<Vec<String>> {
    usages.sort_by(|a, b| {
        let by_usage = match (a.usage, b.usage) {
            (Some(a), Some(b)) => order.compare(a, b),
            (a, b) => a.is_none().cmp(&b.is_none()),
        };
        by_usage
            .then_with(|| a.name.cmp(&b.name))
            .then_with(|| a.cluster.cmp(&b.cluster))
    });
    let line = |node: NodeUsage| {
        let cells = match node.usage {
            None => [UNKNOWN; 4].map(str::to_owned),
            Some(usage) => {
                let share = |resource: &str, used: Quantity| {
                    let available = node.available.get(resource).copied();
                    let percent = percent(used, available.unwrap_or_default());
                    percent.map_or_else(|| UNKNOWN.to_owned(), |percent| format!("{percent}%"))
                };
                [
                    cpu_text(usage.cpu),
                    share("cpu", usage.cpu),
                    memory_text(usage.memory),
                    share("memory", usage.memory),
                ]
            }
        };
        let mut line = vec![node.name, node.cluster];
        line.extend(cells);
        line
    };
    usages.into_iter().map(line).collect()
}

//! `flotilla top pod`: the usage of pods, as karmadactl prints it (`pkg/karmadactl/top`).

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use client::{Api, ResourcePath, TaskGroup};
use jiff::{SignedDuration, Timestamp};
use machinery::{Gvr, Object};
use serde::Deserialize;
use serde_json::json;
use table_printers::human_duration;

use super::query_flags::{MetricsQueryArgs, print_failures};
use super::resource_usage::{
    METRICS_API_VERSION, MemberAnswer, MetricsSelection, POD_METRICS, ResourceUsage, UsageOrder,
    ask_members, cpu_text, memory_text, with_cluster,
};
use crate::kubeconfig_flags::context_namespace;
use crate::output;
use crate::printers::format_lines;

static PODS: Gvr = Gvr::from_static("", "v1", "pods");
/// How old a pod without metrics may be.
const METRICS_CREATION_DELAY: SignedDuration = SignedDuration::from_mins(2);
const SUM_LINE: &str = "________";

/// Display the usage of CPU and memory of the pods of member clusters.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla top pod\n  flotilla top pod -C member1,member2 --sort-by memory\n  flotilla top pods -A -l app=web --containers --sum"
)]
pub(super) struct TopPodArgs {
    /// The name of a pod.
    #[arg(value_name = "POD")]
    name: Option<String>,
    /// The namespace; by default that of the kubeconfig's context.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// List the pods of all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Label selector, such as app=web,tier!=back.
    #[arg(short = 'l', long, value_name = "SELECTOR", default_value = "")]
    selector: String,
    /// Field selector, such as metadata.name=web.
    #[arg(long, value_name = "SELECTOR", default_value = "")]
    field_selector: String,
    /// Print the usage of each container.
    #[arg(long)]
    containers: bool,
    /// Print the sum of the usage.
    #[arg(long)]
    sum: bool,
    #[command(flatten)]
    metrics: MetricsQueryArgs,
}

#[derive(Deserialize)]
struct ContainerMetrics {
    name: String,
    #[serde(default)]
    usage: ResourceUsage,
}

#[derive(Deserialize)]
struct PodMetrics {
    containers: Option<Vec<ContainerMetrics>>,
}

/// The usage of a pod of one cluster.
struct PodUsage {
    cluster: String,
    namespace: String,
    name: String,
    containers: Vec<ContainerMetrics>,
    total: ResourceUsage,
}

impl PodUsage {
    fn new(cluster: &str, object: &Object) -> anyhow::Result<Self> {
        let metrics = PodMetrics::deserialize(object.value()?)?;
        let containers = metrics.containers.unwrap_or_default();
        let mut total = ResourceUsage::default();
        for container in &containers {
            total.add(container.usage);
        }
        Ok(Self {
            cluster: cluster.to_owned(),
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            containers,
            total,
        })
    }
}

/// Prints the usage; returns whether every member has answered.
pub(super) async fn top(arguments: &TopPodArgs, tasks: &TaskGroup) -> anyhow::Result<bool> {
    let order = arguments.metrics.order()?;
    let members = &arguments.metrics.members;
    let fleet = members.connect(tasks).await?;
    let selection = arguments.selection(&context_namespace(&fleet.config))?;
    let selection = &selection;
    let answers = ask_members(&fleet.members, members.request_timeout, |member| {
        read_pod_metrics(&member.api, selection)
    });
    let answers = answers.await;
    print_failures(answers.iter().filter_map(MemberAnswer::failure));
    let has_failed = answers.iter().any(|answer| answer.answer.is_err());
    let mut usages = Vec::new();
    let mut documents = Vec::new();
    for MemberAnswer { cluster, answer } in answers {
        for object in answer.unwrap_or_default() {
            usages.push(PodUsage::new(&cluster, &object)?);
            documents.push(with_cluster(&object, &cluster)?);
        }
    }
    let list = json!({"apiVersion": METRICS_API_VERSION, "kind": "PodMetricsList",
        "metadata": {}, "items": documents});
    if let Some(document) = members.encode(&list)? {
        output::print_line(document);
    } else if !usages.is_empty() {
        let text = arguments.format(usages, order);
        output::print_line(text.trim_end_matches('\n'));
    } else if !has_failed {
        output::print_progress(match selection.namespace.as_str() {
            "" => "No resources found".to_owned(),
            namespace => format!("No resources found in {namespace} namespace."),
        });
    }
    Ok(!has_failed)
}

impl TopPodArgs {
    fn selection(&self, context_namespace: &str) -> anyhow::Result<MetricsSelection> {
        let has_selector = !self.selector.is_empty() || !self.field_selector.is_empty();
        ensure!(
            self.name.is_none() || !has_selector,
            "only one of NAME or selector can be provided"
        );
        ensure!(
            self.name.is_none() || !self.all_namespaces,
            "a resource cannot be retrieved by name across all namespaces"
        );
        let namespace = match &self.namespace {
            _ if self.all_namespaces => "",
            Some(namespace) => namespace,
            None => context_namespace,
        };
        Ok(MetricsSelection {
            resource: &POD_METRICS,
            namespace: namespace.to_owned(),
            name: self.name.clone().unwrap_or_default(),
            label_selector: self.selector.clone(),
            field_selector: self.field_selector.clone(),
        })
    }

    fn format(&self, mut usages: Vec<PodUsage>, order: UsageOrder) -> String {
        usages.sort_by(|a, b| {
            let by_name = || {
                let key = |usage: &PodUsage| {
                    let parts = [&usage.cluster, &usage.namespace, &usage.name];
                    parts.map(String::clone)
                };
                key(a).cmp(&key(b))
            };
            order.compare(a.total, b.total).then_with(by_name)
        });
        let mut header = Vec::new();
        let titles = [
            (self.all_namespaces, "NAMESPACE"),
            (self.containers, "POD"),
            (true, "NAME"),
            (true, "CLUSTER"),
            (true, "CPU(cores)"),
            (true, "MEMORY(bytes)"),
        ];
        header.extend(titles.iter().filter(|t| t.0).map(|t| t.1.to_owned()));
        let mut sum = ResourceUsage::default();
        let mut lines = Vec::new();
        for usage in &mut usages {
            sum.add(usage.total);
            self.add_lines(usage, order, &mut lines);
        }
        if self.sum {
            let blanks = header.len() - 2;
            let line = |cpu: String, memory: String| {
                let mut line = vec![String::new(); blanks];
                line.extend([cpu, memory]);
                line
            };
            lines.push(line(SUM_LINE.into(), SUM_LINE.into()));
            lines.push(line(cpu_text(sum.cpu), memory_text(sum.memory)));
        }
        let header = (!self.metrics.members.no_headers).then_some(&header);
        format_lines(header, &lines)
    }

    /// Adds the line of a pod, or those of its containers.
    fn add_lines(&self, pod: &mut PodUsage, order: UsageOrder, lines: &mut Vec<Vec<String>>) {
        let line = |of: &[&str], usage: ResourceUsage| {
            let namespace = self.all_namespaces.then(|| pod.namespace.clone());
            let mut line: Vec<String> = namespace.into_iter().collect();
            line.extend(of.iter().map(|text| (*text).to_owned()));
            line.push(pod.cluster.clone());
            line.extend([cpu_text(usage.cpu), memory_text(usage.memory)]);
            line
        };
        if !self.containers {
            lines.push(line(&[&pod.name], pod.total));
            return;
        }
        let mut containers: Vec<&ContainerMetrics> = pod.containers.iter().collect();
        containers.sort_by(|a, b| {
            let by_usage = order.compare(a.usage, b.usage);
            by_usage.then_with(|| a.name.cmp(&b.name))
        });
        let of_containers = containers.iter();
        lines.extend(of_containers.map(|c| line(&[&pod.name, &c.name], c.usage)));
    }
}

/// The metrics of a member's pods. An error if it has such pods and none has metrics.
async fn read_pod_metrics(
    api: &dyn Api,
    selection: &MetricsSelection,
) -> anyhow::Result<Vec<Object>> {
    let metrics = selection.read_metrics(api).await?;
    if metrics.is_empty() {
        let at = ResourcePath::collection(&PODS, &selection.namespace);
        let pods = api.list(at, &selection.list_options()).await?.items;
        if !pods.is_empty() {
            return Err(missing_metrics(&pods, Timestamp::now())?);
        }
    }
    Ok(metrics)
}

/// Why these pods have no metrics.
fn missing_metrics(pods: &[Object], now: Timestamp) -> anyhow::Result<anyhow::Error> {
    for pod in pods {
        let created = pod.creation_timestamp();
        let age = now.duration_since(created.context("a pod has no creationTimestamp")?);
        if age > METRICS_CREATION_DELAY {
            bail!(
                "Metrics not available for pod {}/{}, age: {}",
                pod.namespace(),
                pod.name(),
                human_duration(age)
            );
        }
    }
    Ok(anyhow!("metrics not available yet"))
}

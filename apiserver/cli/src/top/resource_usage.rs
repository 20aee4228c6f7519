//! Reads NodeMetrics and PodMetrics from members, in parallel and with a deadline for each.

use std::cmp::Ordering;
use std::time::Duration;

use anyhow::Context;
use client::{Api, ListOptions, ResourcePath};
use futures_util::future::join_all;
use karmada_api::well_known_keys::QUERY_FROM_CLUSTER;
use machinery::{Gvr, Object, Quantity};
use serde::Deserialize;
use serde_json::Value;

use crate::member_clusters::{MemberFailure, MemberServer, ask_with_deadline};

pub(super) static POD_METRICS: Gvr = Gvr::from_static("metrics.k8s.io", "v1beta1", "pods");
pub(super) static NODE_METRICS: Gvr = Gvr::from_static("metrics.k8s.io", "v1beta1", "nodes");
pub(super) const METRICS_API_VERSION: &str = "metrics.k8s.io/v1beta1";
const BYTES_PER_MEBIBYTE: i128 = 1 << 20;

/// Used CPU and memory.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ResourceUsage {
    pub(super) cpu: Quantity,
    pub(super) memory: Quantity,
}

impl ResourceUsage {
    pub(super) fn add(&mut self, other: Self) {
        self.cpu += other.cpu;
        self.memory += other.memory;
    }
}

/// The order of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UsageOrder {
    Name,
    Cpu,
    Memory,
}

impl UsageOrder {
    /// The greatest usage first; equal if the order is by name.
    pub(super) fn compare(self, a: ResourceUsage, b: ResourceUsage) -> Ordering {
        match self {
            Self::Name => Ordering::Equal,
            Self::Cpu => b.cpu.cmp(&a.cpu),
            Self::Memory => b.memory.cmp(&a.memory),
        }
    }
}

/// An amount of CPU, as in `250m`.
pub(super) fn cpu_text(cpu: Quantity) -> String {
    format!("{}m", cpu.milli_value())
}

/// An amount of memory, as in `64Mi`.
pub(super) fn memory_text(memory: Quantity) -> String {
    format!("{}Mi", memory.value() / BYTES_PER_MEBIBYTE)
}

/// The share that is used; `None` if there is nothing to use.
pub(super) fn percent(used: Quantity, available: Quantity) -> Option<i128> {
    let available = available.milli_value();
    (available > 0).then(|| used.milli_value().saturating_mul(100) / available)
}

/// The selection of a command.
pub(super) struct MetricsSelection {
    pub(super) resource: &'static Gvr,
    /// Empty: all namespaces, or nodes.
    pub(super) namespace: String,
    /// Empty: all names.
    pub(super) name: String,
    pub(super) label_selector: String,
    pub(super) field_selector: String,
}

impl MetricsSelection {
    pub(super) fn list_options(&self) -> ListOptions {
        ListOptions {
            label_selector: self.label_selector.clone(),
            field_selector: self.field_selector.clone(),
            ..ListOptions::default()
        }
    }

    /// The metrics in a member; an error if it does not serve metrics.k8s.io.
    pub(super) async fn read_metrics(&self, api: &dyn Api) -> anyhow::Result<Vec<Object>> {
        let metrics = self.read_metrics_if_served(api).await?;
        metrics.context("metrics API not available")
    }

    /// The metrics in a member; `None` if it does not serve metrics.k8s.io.
    pub(super) async fn read_metrics_if_served(
        &self,
        api: &dyn Api,
    ) -> anyhow::Result<Option<Vec<Object>>> {
        let read = async {
            if self.name.is_empty() {
                let at = ResourcePath::collection(self.resource, &self.namespace);
                return Ok(api.list(at, &self.list_options()).await?.items);
            }
            let at = ResourcePath::object(self.resource, &self.namespace, &self.name);
            Ok(vec![api.get(at).await?])
        };
        match read.await {
            Err(error) if is_unserved(&error) => Ok(None),
            read => Ok(Some(read?)),
        }
    }
}

/// Whether the path is not served, in contrast to an object that does not exist.
fn is_unserved(error: &client::Error) -> bool {
    let named = error.status().and_then(|status| status.details.as_ref());
    error.is_not_found() && named.is_none_or(|details| details.name.is_empty())
}

/// The answer of a member.
pub(super) struct MemberAnswer<T> {
    pub(super) cluster: String,
    pub(super) answer: Result<T, MemberFailure>,
}

impl<T> MemberAnswer<T> {
    pub(super) fn failure(&self) -> Option<(&str, &MemberFailure)> {
        Some((&self.cluster, self.answer.as_ref().err()?))
    }
}

/// The answers of the members, in their order.
pub(super) async fn ask_members<'a, T, F>(
    members: &'a [MemberServer],
    deadline: Duration,
    ask: impl Fn(&'a MemberServer) -> F,
) -> Vec<MemberAnswer<T>>
where
    F: Future<Output = anyhow::Result<T>>,
{
    let queries = members.iter().map(|member| {
        let request = ask(member);
        async move {
            MemberAnswer {
                cluster: member.name.clone(),
                answer: ask_with_deadline(deadline, request).await,
            }
        }
    });
    join_all(queries).await
}

/// The object with an annotation that names its cluster.
pub(super) fn with_cluster(object: &Object, cluster: &str) -> anyhow::Result<Value> {
    let mut value = object.value()?;
    value["metadata"]["annotations"][QUERY_FROM_CLUSTER] = cluster.into();
    Ok(value)
}

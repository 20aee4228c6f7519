//! Reads the history of a template, and says in words what an entry of it changed.

use client::{Api, ResourcePath, ignore_not_found};
use karmada_api::TargetCluster;
use karmada_api::history::{
    CLUSTER_TEMPLATE_HISTORIES, ClusterChange, HistoryEntry, HistoryEntryType, TEMPLATE_HISTORIES,
};
use machinery::Object;

use crate::placement_text::format_clusters;

/// The history of the template of a binding; absent if nothing has happened to it.
pub async fn read_history(
    api: &dyn Api,
    namespace: &str,
    binding: &str,
) -> client::Result<Option<Object>> {
    let histories = match namespace {
        "" => &CLUSTER_TEMPLATE_HISTORIES,
        _ => &TEMPLATE_HISTORIES,
    };
    let at = ResourcePath::object(histories, namespace, binding);
    ignore_not_found(api.get(at).await)
}

/// The sides of a change and its details; empty where an entry has none.
pub struct EntryText {
    pub from: String,
    pub to: String,
    pub details: String,
}

impl EntryText {
    /// With `is_wide` all clusters of a placement are named.
    pub fn new(entry: &HistoryEntry, is_wide: bool) -> Self {
        let (from, to, details) = match entry.entry_type {
            HistoryEntryType::Placement => {
                let side = |replicas: fn(&ClusterChange) -> Option<i64>| {
                    let targets: Vec<TargetCluster> = entry
                        .changes
                        .iter()
                        .filter_map(|change| {
                            Some(TargetCluster {
                                name: change.cluster.clone(),
                                replicas: replicas(change)?,
                                ..TargetCluster::default()
                            })
                        })
                        .collect();
                    match targets.is_empty() {
                        true => String::new(),
                        false => format_clusters(&targets, is_wide),
                    }
                };
                let details = match (entry.message.as_str(), entry.incomplete) {
                    ("", true) => "incomplete".to_owned(),
                    ("", false) => entry.cause.clone(),
                    (message, _) => message.to_owned(),
                };
                (side(|c| c.from), side(|c| c.to), details)
            }
            HistoryEntryType::Rollout => {
                let is_same = entry.from_revision == entry.to_revision;
                let from = if is_same { "" } else { &entry.from_revision };
                let details = match &*entry.stage {
                    "" => entry.message.clone(),
                    stage => format!("stage {stage}, {}", entry.message),
                };
                (from.to_owned(), entry.to_revision.clone(), details)
            }
            HistoryEntryType::Repair => {
                let fields = entry.fields.join(", ");
                let details = format!("{}: {fields}", entry.cluster);
                (String::new(), String::new(), details)
            }
        };
        Self { from, to, details }
    }
}

//! The page Workloads: the templates with their clusters, filtered and paged on the server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use maud::{Markup, html};

use super::bars::placement_bar;
use super::layout::{Navigation, PageParts};
use super::markup::{
    badge, counted, empty_state, grouped, health_badge, phase_tone, remarks, workload_path,
};
use super::pager::{PageSlice, behind_the_last, page_parameter, pager};
use crate::console::Console;
use crate::inventory::{ObjectKey, RolloutRow, WorkloadHealth, WorkloadRow, rollout_policy_text};
use crate::query::{Link, QueryParameters};

/// The entries of a list to choose from; all others are reached by the search.
const MAX_CHOICES: usize = 500;
/// The clusters of a row that are named.
const MAX_NAMED_CLUSTERS: usize = 3;
/// The rollouts of a policy, and the templates that are evicted from a cluster, that are shown.
const MAX_STAGED_WORKLOADS: usize = 50;
const MAX_EVICTED_WORKLOADS: usize = 50;
/// The state of a rollout that has ended.
const COMPLETED: &str = "Completed";

/// The templates that are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkloadFilter {
    /// Words that must all be there, in lower case.
    search: String,
    namespace: String,
    kind: String,
    cluster: String,
    health: Option<WorkloadHealth>,
    /// The policy that has claimed them, as [`policy_text`](crate::inventory::policy_text) names it.
    policy: String,
    slice: PageSlice,
}

impl WorkloadFilter {
    pub(super) fn parse(query: &QueryParameters) -> Self {
        Self {
            search: query.get("q").to_lowercase(),
            namespace: query.get("namespace").to_owned(),
            kind: query.get("kind").to_owned(),
            cluster: query.get("cluster").to_owned(),
            health: WorkloadHealth::parse(query.get("health")),
            policy: query.get("policy").to_owned(),
            slice: PageSlice::parse(query),
        }
    }

    fn is_everything(&self) -> bool {
        let all = Self {
            slice: self.slice,
            ..Self::default()
        };
        *self == all
    }

    fn matches(&self, key: &ObjectKey, row: &WorkloadRow) -> bool {
        (self.namespace.is_empty() || self.namespace == key.0)
            && (self.kind.is_empty() || *self.kind == *row.kind)
            && self.health.is_none_or(|health| health == row.health)
            && (self.cluster.is_empty() || row.is_in(&self.cluster))
            && (self.policy.is_empty() || row.policy.as_deref() == Some(&self.policy))
            && self
                .search
                .split_whitespace()
                .all(|word| row.search_text.contains(word))
    }

    fn link_to(&self, page: usize) -> String {
        let page = page_parameter(page);
        let health = self.health.map_or("", WorkloadHealth::as_str);
        let parameters = [
            ("q", &*self.search),
            ("namespace", &*self.namespace),
            ("kind", &*self.kind),
            ("cluster", &*self.cluster),
            ("health", health),
            ("policy", &*self.policy),
            ("page", &*page),
        ];
        let path = &["workloads"];
        let link = Link {
            path,
            parameters: &parameters,
        };
        link.to_string()
    }
}

/// The entries of the lists to choose from.
#[derive(Default)]
struct FilterChoices {
    namespaces: BTreeSet<String>,
    kinds: BTreeSet<Arc<str>>,
}

impl FilterChoices {
    fn read(console: &Console) -> Self {
        let mut choices = Self::default();
        console.inventory.visit_workloads(|(namespace, _), row| {
            if !choices.kinds.contains(&row.kind) && choices.kinds.len() < MAX_CHOICES {
                choices.kinds.insert(Arc::clone(&row.kind));
            }
            let is_full = choices.namespaces.len() == MAX_CHOICES;
            if !namespace.is_empty() && !is_full && !choices.namespaces.contains(namespace) {
                choices.namespaces.insert(namespace.clone());
            }
        });
        choices
    }
}

/// A list to choose from. A choice that is not in the list any more stays chosen.
fn choice<'a>(
    name: &str,
    label: &str,
    chosen: &'a str,
    entries: impl Iterator<Item = &'a str>,
) -> Markup {
    let mut entries: BTreeSet<&str> = entries.take(MAX_CHOICES).collect();
    if !chosen.is_empty() {
        entries.insert(chosen);
    }
    html! {
        label {
            span .visually-hidden { (label) }
            select name=(name) {
                option value="" { (label) }
                @for entry in entries {
                    option value=(entry) selected[entry == chosen] { (entry) }
                }
            }
        }
    }
}

pub(super) fn parts(filter: &WorkloadFilter, console: &Console) -> PageParts {
    let choices = FilterChoices::read(console);
    let clusters = console.inventory.clusters();
    let health = filter.health.map_or("", WorkloadHealth::as_str);
    PageParts {
        title: "Workloads".to_owned(),
        navigation: Navigation::Workloads,
        head: html! {
            div .heading { h1 { "Workloads" } }
            form #filter .filter method="get" action="/workloads" role="search" {
                label .search {
                    span .visually-hidden { "Search by namespace, name and kind" }
                    input type="search" name="q" value=(filter.search) placeholder="Search by namespace, name, kind" autocomplete="off" spellcheck="false";
                }
                (choice("namespace", "All namespaces", &filter.namespace, choices.namespaces.iter().map(String::as_str)))
                (choice("kind", "All kinds", &filter.kind, choices.kinds.iter().map(|kind| &**kind)))
                (choice("cluster", "All clusters", &filter.cluster, clusters.iter().map(|cluster| &*cluster.name)))
                (choice("health", "Any state", health, WorkloadHealth::ALL.iter().map(|health| health.as_str())))
                @if !filter.policy.is_empty() {
                    (choice("policy", "Any policy", &filter.policy, std::iter::empty()))
                }
                button type="submit" { "Filter" }
            }
        },
    }
}

pub(super) struct ListedWorkload {
    key: ObjectKey,
    row: Arc<WorkloadRow>,
    rollout: Option<Arc<RolloutRow>>,
}

/// A page of the templates that match, and how many there are of each state.
struct WorkloadPage {
    rows: Vec<ListedWorkload>,
    slice: PageSlice,
    matching: usize,
    states: BTreeMap<WorkloadHealth, usize>,
}

/// The first templates that are placed on a cluster.
pub(super) fn placed_workloads(console: &Console, cluster: String) -> Vec<ListedWorkload> {
    let filter = WorkloadFilter {
        cluster,
        ..WorkloadFilter::default()
    };
    WorkloadPage::read(console, &filter).rows
}

/// The first templates that a policy has claimed.
pub(super) fn claimed_workloads(console: &Console, policy: String) -> Vec<ListedWorkload> {
    let filter = WorkloadFilter {
        policy,
        ..WorkloadFilter::default()
    };
    WorkloadPage::read(console, &filter).rows
}

/// The rollouts of a policy.
pub(super) struct StagedWorkloads {
    /// The first of them; those that have not ended come before the others.
    pub(super) rows: Vec<ListedWorkload>,
    pub(super) states: BTreeMap<String, usize>,
}

/// The templates whose changes a rollout policy stages.
pub(super) fn staged_workloads(console: &Console, policy: &ObjectKey) -> StagedWorkloads {
    let text = rollout_policy_text(policy);
    let (mut running, mut ended) = (Vec::new(), Vec::new());
    let mut states = BTreeMap::new();
    console.inventory.visit_rollouts(|key, row| {
        if *row.policy != *text || row.policy_namespace(key) != policy.0 {
            return;
        }
        *states.entry(row.state.clone()).or_default() += 1;
        let list = match row.state.as_str() {
            COMPLETED => &mut ended,
            _ => &mut running,
        };
        if list.len() < MAX_STAGED_WORKLOADS {
            list.push((key.clone(), Arc::clone(row)));
        }
    });
    let rollouts = running.into_iter().chain(ended).take(MAX_STAGED_WORKLOADS);
    let rows = rollouts.filter_map(|(key, rollout)| {
        Some(ListedWorkload {
            row: console.inventory.workload(&key)?,
            rollout: Some(rollout),
            key,
        })
    });
    StagedWorkloads {
        rows: rows.collect(),
        states,
    }
}

/// The templates that are evicted from a cluster, and have not left it.
pub(super) struct EvictedWorkloads {
    /// The first of them.
    pub(super) rows: Vec<(ObjectKey, Arc<WorkloadRow>)>,
    pub(super) count: usize,
}

pub(super) fn evicted_workloads(console: &Console, cluster: &str) -> EvictedWorkloads {
    let mut evicted = EvictedWorkloads {
        rows: Vec::new(),
        count: 0,
    };
    console.inventory.visit_workloads(|key, row| {
        if row.eviction_from(cluster).is_some() {
            evicted.count += 1;
            if evicted.rows.len() < MAX_EVICTED_WORKLOADS {
                evicted.rows.push((key.clone(), Arc::clone(row)));
            }
        }
    });
    evicted
}

impl WorkloadPage {
    fn read(console: &Console, filter: &WorkloadFilter) -> Self {
        let mut states = BTreeMap::new();
        let mut matching = 0;
        let shown = filter.slice.rows();
        let mut rows = Vec::new();
        console.inventory.visit_workloads(|key, row| {
            if !filter.matches(key, row) {
                return;
            }
            if shown.contains(&matching) {
                rows.push((key.clone(), Arc::clone(row)));
            }
            matching += 1;
            *states.entry(row.health).or_default() += 1;
        });
        let rows = rows.into_iter().map(|(key, row)| ListedWorkload {
            rollout: console.inventory.rollout(&key),
            key,
            row,
        });
        Self {
            rows: rows.collect(),
            slice: filter.slice,
            matching,
            states,
        }
    }
}

pub(super) fn content(console: &Console, filter: &WorkloadFilter) -> Markup {
    let page = WorkloadPage::read(console, filter);
    let notes = console.inventory.remarks();
    html! {
        (remarks(&notes))
        @if page.matching == 0 {
            @if filter.is_everything() && notes.is_empty() {
                (empty_state("Nothing is propagated yet", &html! {
                    "A template appears here once a PropagationPolicy selects it."
                }))
            } @else if !filter.is_everything() {
                (empty_state("Nothing matches", &html! {
                    a href="/workloads" { "Show all workloads" }
                }))
            }
        } @else {
            p .summary {
                (counted(page.matching, "workload"))
                @for (health, count) in &page.states {
                    span .count { (health_badge(*health)) " " (grouped(i64::try_from(*count).unwrap_or(i64::MAX))) }
                }
            }
            @if page.rows.is_empty() { (behind_the_last(&filter.link_to(1))) } @else { (workload_table(&page.rows)) }
            (pager(page.slice, page.matching, |number| filter.link_to(number)))
        }
    }
}

pub(super) fn workload_table(rows: &[ListedWorkload]) -> Markup {
    html! {
        table .workloads {
            caption .visually-hidden { "Workloads" }
            thead {
                tr {
                    th scope="col" { "Workload" }
                    th scope="col" { "Clusters" }
                    th scope="col" .number { "Replicas" }
                    th scope="col" { "State" }
                    th scope="col" .wide { "Rollout" }
                }
            }
            tbody {
                @for workload in rows { (table_row(workload)) }
            }
        }
    }
}

fn table_row(workload: &ListedWorkload) -> Markup {
    let ListedWorkload { key, row, rollout } = workload;
    let subtitle = match key.0.as_str() {
        "" => row.kind.to_string(),
        namespace => format!("{} in {namespace}", row.kind),
    };
    html! {
        tr {
            th scope="row" {
                a .name href=(workload_path(key, &[], &[])) title=(row.name) { (row.name) }
                span .muted.line { (subtitle) }
            }
            td {
                @if row.targets.is_empty() {
                    span .muted { "nowhere" }
                } @else {
                    (placement_bar(&row.targets))
                    span .muted.line { (cluster_names(&row.targets)) }
                }
            }
            td .number { @if row.is_workload { (grouped(row.replicas)) } }
            td { (health_badge(row.health)) }
            td .wide {
                @if let Some(rollout) = rollout {
                    (badge(phase_tone(&rollout.state), &rollout.state))
                    span .muted.line {
                        @if !rollout.stage.is_empty() { (rollout.stage) ", " }
                        (rollout.progress)
                    }
                }
            }
        }
    }
}

fn cluster_names(targets: &[(Arc<str>, i64)]) -> String {
    let names = targets.iter().take(MAX_NAMED_CLUSTERS);
    let names = names.map(|(name, replicas)| match replicas {
        0 => name.to_string(),
        replicas => format!("{name} {replicas}"),
    });
    let mut text = names.collect::<Vec<_>>().join(", ");
    if targets.len() > MAX_NAMED_CLUSTERS {
        text.push_str(&format!(" and {} more", targets.len() - MAX_NAMED_CLUSTERS));
    }
    text
}

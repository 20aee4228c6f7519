//! The pages that list resources: one table, searched and paged on the server.

use std::collections::HashMap;
use std::sync::Arc;

use maud::{Markup, html};

use super::bars::{percent_bar, placement_bar, share_tone};
use super::layout::{Navigation, PageParts};
use super::markup::{counted, empty_state, object_path, remarks};
use super::pager::{PageSlice, behind_the_last, page_parameter, pager};
use crate::clipped_text::clipped;
use crate::console::Console;
use crate::inventory::{
    AUTOSCALERS, ListedResource, OVERRIDE_KINDS, OVERRIDE_PAGES, ObjectKey, POLICY_KINDS,
    POLICY_PAGES, PolicyClaims, QUOTA_LIST, ROLLOUT_POLICY_KINDS, ROLLOUT_POLICY_PAGES,
    ResourceRow, ResourceShare, RolloutStates, RowCell, SHARED_SERVICES, policy_text,
    rollout_policy_text,
};
use crate::query::{Link, QueryParameters};

/// The clusters of a row that are named.
const MAX_NAMED_CLUSTERS: usize = 3;

/// A page that lists objects of some resources.
#[derive(Debug)]
pub(super) struct ResourceList {
    path: &'static str,
    title: &'static str,
    noun: &'static str,
    navigation: Navigation,
    /// The columns after the name.
    columns: &'static [&'static str],
    resources: &'static [&'static [ListedResource]],
    /// Shown if there are none.
    explanation: &'static str,
}

static POLICIES: ResourceList = ResourceList {
    path: POLICY_PAGES,
    title: "Policies",
    noun: "policy",
    navigation: Navigation::Policies,
    columns: &["Selects", "Where", "Templates", "Clusters"],
    resources: &[&POLICY_KINDS, &OVERRIDE_KINDS, &ROLLOUT_POLICY_KINDS],
    explanation: "A PropagationPolicy says which templates go to which clusters.",
};

static OVERRIDE_LIST: ResourceList = ResourceList {
    path: OVERRIDE_PAGES,
    title: "Override policies",
    noun: "override policy",
    navigation: Navigation::Policies,
    columns: &["Selects", "Where"],
    resources: &[&OVERRIDE_KINDS],
    explanation: "An OverridePolicy changes what some clusters get of a template.",
};

static ROLLOUT_LIST: ResourceList = ResourceList {
    path: ROLLOUT_POLICY_PAGES,
    title: "Rollout policies",
    noun: "rollout policy",
    navigation: Navigation::Policies,
    columns: &["Selects", "Stages", "Rollouts"],
    resources: &[&ROLLOUT_POLICY_KINDS],
    explanation: "A RolloutPolicy says in which stages changes of a template go through its clusters.",
};

/// The lists of policies, and what their links say.
const POLICY_LISTS: [(&str, &str); 3] = [
    (POLICY_PAGES, "All"),
    (OVERRIDE_PAGES, "Overrides"),
    (ROLLOUT_POLICY_PAGES, "Rollouts"),
];

static SERVICES: ResourceList = ResourceList {
    path: "services",
    title: "Services",
    noun: "service",
    navigation: Navigation::Services,
    columns: &["Exposed", "Served by", "Asked by"],
    resources: &[&SHARED_SERVICES],
    explanation: "MultiClusterServices, ServiceExports and ServiceImports share a Service among clusters.",
};

static SCALERS: ResourceList = ResourceList {
    path: "autoscalers",
    title: "Autoscalers",
    noun: "autoscaler",
    navigation: Navigation::Autoscalers,
    columns: &["Scales", "Replicas", "By"],
    resources: &[&AUTOSCALERS],
    explanation: "FederatedHPAs and CronFederatedHPAs scale a workload over all of its clusters.",
};

static QUOTAS: ResourceList = ResourceList {
    path: "quotas",
    title: "Quotas",
    noun: "quota",
    navigation: Navigation::Quotas,
    columns: &["Used", "Assigned to clusters"],
    resources: &[&QUOTA_LIST],
    explanation: "A FederatedResourceQuota bounds what a namespace uses in all clusters.",
};

static LISTS: [&ResourceList; 6] = [
    &POLICIES,
    &OVERRIDE_LIST,
    &ROLLOUT_LIST,
    &SERVICES,
    &SCALERS,
    &QUOTAS,
];

/// The objects of a list that are shown.
#[derive(Clone, Debug)]
pub(crate) struct ListFilter {
    list: &'static ResourceList,
    /// Words that must all be there, in lower case.
    search: String,
    slice: PageSlice,
}

impl ListFilter {
    pub(super) fn parse(path: &str, query: &QueryParameters) -> Option<Self> {
        let list = LISTS.into_iter().find(|list| list.path == path)?;
        Some(Self {
            list,
            search: query.get("q").to_lowercase(),
            slice: PageSlice::parse(query),
        })
    }

    fn link_to(&self, page: usize) -> String {
        let page = page_parameter(page);
        let link = Link {
            path: &[self.list.path],
            parameters: &[("q", &*self.search), ("page", &*page)],
        };
        link.to_string()
    }

    fn matches(&self, row: &ResourceRow) -> bool {
        let mut words = self.search.split_whitespace();
        words.all(|word| row.search_text.contains(word))
    }
}

pub(super) fn parts(filter: &ListFilter) -> PageParts {
    let list = filter.list;
    let action = format!("/{}", list.path);
    PageParts {
        title: list.title.to_owned(),
        navigation: list.navigation,
        head: html! {
            div .heading {
                h1 { (list.title) }
                @if list.path == POLICY_PAGES {
                    a .button href="/policies/new" { "New policy" }
                }
            }
            @if list.navigation == Navigation::Policies {
                nav .switch.kinds aria-label="Kinds of policies" {
                    @for (path, text) in POLICY_LISTS {
                        a href=(format!("/{path}")) aria-current=[(path == list.path).then_some("page")] { (text) }
                    }
                }
            }
            form #filter .filter method="get" action=(action) role="search" {
                label .search {
                    span .visually-hidden { "Search by namespace, name and content" }
                    input type="search" name="q" value=(filter.search) placeholder="Search by namespace, name, content" autocomplete="off" spellcheck="false";
                }
                button type="submit" { "Filter" }
            }
        },
    }
}

struct ListedObject {
    listed: &'static ListedResource,
    key: ObjectKey,
    row: Arc<ResourceRow>,
}

pub(super) async fn content(console: &Console, filter: &ListFilter) -> Markup {
    let list = filter.list;
    let mut notes = Vec::new();
    let (mut rows, mut matching) = (Vec::new(), 0);
    let resources: Vec<&'static ListedResource> =
        list.resources.iter().copied().flatten().collect();
    for listed in resources {
        console.inventory.wait_until_listed(listed).await;
        notes.extend(console.inventory.resource_remark(listed));
        console.inventory.visit_resource(listed, |key, row| {
            if !filter.matches(row) {
                return;
            }
            if filter.slice.rows().contains(&matching) {
                rows.push(ListedObject {
                    listed,
                    key: key.clone(),
                    row: Arc::clone(row),
                });
            }
            matching += 1;
        });
    }
    html! {
        (remarks(&notes))
        @if matching > 0 {
            p .summary { (counted(matching, list.noun)) }
            @if rows.is_empty() { (behind_the_last(&filter.link_to(1))) } @else { (table(console, list, &rows)) }
            (pager(filter.slice, matching, |number| filter.link_to(number)))
        } @else if !filter.search.is_empty() {
            (empty_state("Nothing matches", &html! { a href=(format!("/{}", list.path)) { "Show all" } }))
        } @else if notes.is_empty() {
            (empty_state(&format!("No {}", list.title.to_lowercase()), &html! { (list.explanation) }))
        }
    }
}

fn table(console: &Console, list: &ResourceList, rows: &[ListedObject]) -> Markup {
    let is_about_policies = list.navigation == Navigation::Policies;
    let claims = is_about_policies.then(|| console.inventory.claims());
    let staged = is_about_policies.then(|| console.inventory.staged());
    let cells = |object: &ListedObject| {
        let mut cells = object.row.cells.clone();
        match (object.listed.pages, &claims, &staged) {
            (Some(POLICY_PAGES), Some(claims), _) => cells.extend(claim_cells(claims, &object.key)),
            (Some(ROLLOUT_POLICY_PAGES), _, Some(staged)) => {
                cells.push(rollout_cell(staged, &object.key));
            }
            _ => {}
        }
        // A row has a cell for each column.
        cells.resize(list.columns.len(), RowCell::Lines(Vec::new()));
        cells
    };
    html! {
        div .scroll role="region" aria-label=(list.title) tabindex="0" {
            table .listed {
                caption .visually-hidden { (list.title) }
                thead {
                    tr {
                        th scope="col" { "Name" }
                        @for title in list.columns { th scope="col" { (title) } }
                    }
                }
                tbody {
                    @for object in rows {
                        tr {
                            th scope="row" {
                                @if let Some(pages) = object.listed.pages {
                                    a .name href=(object_path(pages, &object.key, &[], &[])) title=(object.key.1) { (object.key.1) }
                                } @else {
                                    span .name title=(object.key.1) { (object.key.1) }
                                }
                                span .muted.line {
                                    (object.listed.kind)
                                    @if !object.key.0.is_empty() { " in " (object.key.0) }
                                }
                            }
                            @for (title, cell) in list.columns.iter().zip(cells(object)) {
                                td data-title=(title) { (cell_markup(&cell)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The cells about what a policy has claimed.
fn claim_cells(claims: &HashMap<Arc<str>, PolicyClaims>, key: &ObjectKey) -> [RowCell; 2] {
    let claims = claims.get(&*policy_text(key)).cloned().unwrap_or_default();
    [
        RowCell::Number(claims.templates),
        RowCell::Clusters(claims.clusters.into_iter().collect()),
    ]
}

/// The rollouts of a policy by their states.
fn rollout_cell(staged: &RolloutStates, key: &ObjectKey) -> RowCell {
    let states = staged.get(&(key.0.clone(), rollout_policy_text(key).into()));
    let states = states.into_iter().flatten();
    RowCell::Lines(
        states
            .map(|(state, count)| format!("{count} {state}"))
            .collect(),
    )
}

pub(super) fn cell_markup(cell: &RowCell) -> Markup {
    html! {
        @match cell {
            RowCell::Lines(lines) => {
                @for line in lines { span .cell-line { (clipped(line)) } }
            }
            RowCell::Number(number) => (number),
            RowCell::Shares(shares) => {
                @for (name, share) in shares { (quota_bar(name, share)) }
            }
            RowCell::Clusters(clusters) if clusters.is_empty() => span .muted { "none" },
            RowCell::Clusters(clusters) => {
                (placement_bar(clusters))
                span .muted.line { (cluster_names(clusters)) }
            }
        }
    }
}

fn quota_bar(name: &str, share: &ResourceShare) -> Markup {
    let (used, all) = (share.allocated.to_string(), share.allocatable.to_string());
    let percent = share.percent();
    html! {
        div .share.quota {
            span .name { (name) }
            span .amount { (used) span .of { " of " (all) } }
            (percent_bar(percent, share_tone(percent), &format!("{name}: {used} of {all} are used, {percent} %")))
        }
    }
}

fn cluster_names(clusters: &[(Arc<str>, i64)]) -> String {
    let names = clusters.iter().take(MAX_NAMED_CLUSTERS);
    let names: Vec<String> = names
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    let text = names.join(", ");
    match clusters.len().saturating_sub(MAX_NAMED_CLUSTERS) {
        0 => text,
        further => format!("{text} and {further} more"),
    }
}

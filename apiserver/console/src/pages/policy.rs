//! The page of a propagation policy: what it selects, what it has claimed, and where that is.

use client::ResourcePath;
use flotilla_cli::plan::{policy_kind, policy_manifest};
use karmada_api::PropagationPolicy;
use karmada_api::resources::{CLUSTER_POLICIES, POLICIES};
use maud::{Markup, html};

use super::layout::{Navigation, PageParts};
use super::markup::{counted, empty_state, notice, policy_path};
use super::workload_list::{claimed_workloads, workload_table};
use crate::console::Console;
use crate::inventory::{ObjectKey, describe_placement, describe_selector, policy_text};
use crate::query::Link;

/// Selectors that are shown; the manifest has all.
const MAX_SELECTORS: usize = 50;

pub(super) fn parts(key: &ObjectKey, note: &str) -> PageParts {
    PageParts {
        title: key.1.clone(),
        navigation: Navigation::Policies,
        head: html! {
            p .back { a href="/policies" { "All policies" } }
            @if note == "applied" { (notice("good", "Done", "The policy is applied.")) }
        },
    }
}

pub(super) async fn content(console: &Console, key: &ObjectKey) -> anyhow::Result<Markup> {
    let (namespace, name) = key;
    let resource = match namespace.as_str() {
        "" => &CLUSTER_POLICIES,
        _ => &POLICIES,
    };
    let at = ResourcePath::object(resource, namespace, name);
    let policy = console.api.get(at).await?;
    let manifest = policy_manifest(&policy)?;
    let spec = &policy.decode::<PropagationPolicy>()?.spec;
    let further = spec.resource_selectors.len().saturating_sub(MAX_SELECTORS);
    Ok(html! {
        div .heading.subject {
            h1 title=(name) { (name) }
            p .muted {
                (policy_kind(namespace))
                @if !namespace.is_empty() { " in " (namespace) }
            }
        }
        ul .actions aria-label="Actions" {
            li { a .button href=(policy_path(key, &["change"], &[])) { "Change" } }
        }
        div .columns {
            section aria-labelledby="selects" {
                h2 #selects { "Selects" }
                ul .facts {
                    @for selector in spec.resource_selectors.iter().take(MAX_SELECTORS) {
                        li { (describe_selector(selector, namespace)) }
                    }
                }
                @if further > 0 { p .muted { (counted(further, "further selector")) } }
            }
            section aria-labelledby="goes-to" {
                h2 #goes-to { "Goes to" }
                ul .facts { @for line in describe_placement(&spec.placement) { li { (line) } } }
            }
        }
        (claimed_section(console, key))
        section aria-labelledby="manifest" {
            h2 #manifest { "Manifest" }
            pre .scroll tabindex="0" { (manifest) }
        }
    })
}

fn claimed_section(console: &Console, key: &ObjectKey) -> Markup {
    let policy = policy_text(key);
    let claims = console.inventory.claims();
    let claims = claims.get(&*policy).cloned().unwrap_or_default();
    let rows = claimed_workloads(console, policy.clone());
    let all = Link {
        path: &["workloads"],
        parameters: &[("policy", &*policy)],
    };
    html! {
        section aria-labelledby="claimed" {
            h2 #claimed { "What it has claimed" }
            @if rows.is_empty() {
                (empty_state("Nothing", &html! { "No template that it selects is propagated by it." }))
            } @else {
                p .summary {
                    a href=(all) { (counted(claims.templates, "template")) }
                    " in " (counted(claims.clusters.len(), "cluster"))
                }
                (workload_table(&rows))
            }
        }
    }
}

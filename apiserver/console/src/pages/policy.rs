//! The page of a propagation policy: what it selects, what it has claimed, and where that is.

use client::ResourcePath;
use flotilla_cli::plan::{policy_kind, policy_manifest};
use karmada_api::PropagationPolicy;
use karmada_api::resources::{CLUSTER_POLICIES, POLICIES};
use maud::{Markup, html};

use super::layout::{Navigation, PageParts};
use super::markup::{counted, empty_state, notice, policy_path};
use super::policy_parts::{manifest_section, policy_heading, selects_section};
use super::workload_list::{claimed_workloads, workload_table};
use crate::console::Console;
use crate::inventory::{ObjectKey, describe_placement, policy_text};
use crate::query::Link;

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
    Ok(html! {
        (policy_heading(policy_kind(namespace), key))
        ul .actions aria-label="Actions" {
            li { a .button href=(policy_path(key, &["change"], &[])) { "Change" } }
        }
        div .columns {
            (selects_section(&spec.resource_selectors, namespace))
            section aria-labelledby="goes-to" {
                h2 #goes-to { "Goes to" }
                ul .facts { @for line in describe_placement(&spec.placement) { li { (line) } } }
            }
        }
        (claimed_section(console, key))
        (manifest_section(&manifest))
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

//! The pods of a workload in a cluster, and the page of a log.

use maud::{Markup, html};

use super::layout::{Navigation, PageParts};
use super::markup::{badge, counted, empty_state, workload_path};
use super::workload::WorkloadView;
use crate::console::Console;
use crate::inventory::ObjectKey;
use crate::member_pods::{MemberPod, PodList, PodLog};

pub(super) fn parts(console: &Console, key: &ObjectKey, cluster: &str) -> PageParts {
    let name = console.inventory.template_name(key);
    let title = format!("Pods of {name} in {cluster}");
    PageParts {
        head: html! {
            p .back { a href=(workload_path(key, &[], &[])) { "Back to " (name) } }
            div .heading {
                h1 { (title) }
                a .button href=(workload_path(key, &["pods", cluster], &[])) { "Read again" }
            }
        },
        title,
        navigation: Navigation::Workloads,
    }
}

pub(super) async fn content(
    console: &Console,
    key: &ObjectKey,
    cluster: &str,
) -> anyhow::Result<Markup> {
    let view = WorkloadView::read(console, key).await?;
    let Some(selector) = view.pod_selector() else {
        let text = html! { "Objects of this kind have no pods of their own." };
        return Ok(empty_state("No pods", &text));
    };
    let list = PodList::read(console, (cluster, &key.0), &selector).await?;
    Ok(html! {
        @if list.pods.is_empty() {
            (empty_state("No pods", &html! { "The cluster has no pods of it." }))
        } @else {
            p .summary { @if list.has_more { "The first " } (counted(list.pods.len(), "pod")) }
            (pod_table(&list.pods, key, cluster))
        }
    })
}

fn pod_table(pods: &[MemberPod], key: &ObjectKey, cluster: &str) -> Markup {
    let log_path = |pod: &str, container: &str| {
        let parameters = [("pod", pod), ("container", container)];
        workload_path(key, &["logs", cluster], &parameters)
    };
    html! {
        div .scroll role="region" aria-label="Pods" tabindex="0" {
            table .listed {
                caption .visually-hidden { "Pods" }
                thead {
                    tr { @for title in ["Pod", "Phase", "Ready", "Restarts", "Node", "Logs"] { th scope="col" { (title) } } }
                }
                tbody {
                    @for pod in pods {
                        tr {
                            th scope="row" { span .name title=(pod.name) { (pod.name) } }
                            td data-title="Phase" { (badge(phase_tone(&pod.phase), &pod.phase)) }
                            td data-title="Ready" { span { (pod.ready_containers) " of " (pod.all_containers) } }
                            td data-title="Restarts" { span { (pod.restarts) } }
                            td data-title="Node" { span { (pod.node) } }
                            td data-title="Logs" {
                                @for container in &pod.container_names {
                                    a .cell-line href=(log_path(&pod.name, container)) { (container) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn phase_tone(phase: &str) -> &'static str {
    match phase {
        "Running" | "Succeeded" => "good",
        "Failed" => "bad",
        "Pending" => "warn",
        _ => "calm",
    }
}

pub(super) fn log_parts(key: &ObjectKey, log: &PodLog) -> PageParts {
    let PodLog { cluster, pod, .. } = log;
    PageParts {
        title: format!("Log of {pod}"),
        navigation: Navigation::Workloads,
        head: html! {
            p .back { a href=(workload_path(key, &["pods", cluster], &[])) { "All pods in " (cluster) } }
            div .heading.subject {
                h1 title=(pod) { (pod) }
                p .muted { "Container " (log.container) " in " (cluster) }
            }
        },
    }
}

/// The end of a log, to which a script adds what comes.
pub(super) async fn log_content(console: &Console, log: &PodLog) -> anyhow::Result<Markup> {
    let tail = log.read_tail(console).await?;
    Ok(html! {
        pre #log .scroll.log tabindex="0" role="log" aria-label="Log" aria-live="off" { (tail) }
    })
}

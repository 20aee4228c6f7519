//! The pages: what a path shows, and how it is rendered.

mod activity;
mod bars;
mod cluster;
mod cluster_contents;
mod cluster_facts;
mod connection;
mod events;
mod fleet;
mod fleet_map;
mod health;
mod layout;
mod login;
mod markup;
mod override_policy;
mod pager;
mod plot;
mod pods;
mod policy;
mod policy_parts;
mod resource_list;
mod rollout_policy;
mod workload;
mod workload_list;

use http::StatusCode;
use maud::{Markup, html};
use sha2::{Digest, Sha256};

use crate::console::Console;
use crate::inventory::{OVERRIDE_PAGES, ObjectKey, ROLLOUT_POLICY_PAGES};
use crate::member_pods::PodLog;
use crate::query::QueryParameters;
use fleet::FleetView;
use layout::PageParts;
pub(crate) use layout::{Navigation, PageContext, action_layout};
pub(crate) use login::{ENDED, login, login_failure};
pub(crate) use markup::{cluster_path, counted, notice, object_key, policy_path, workload_path};
use resource_list::ListFilter;
pub(crate) use workload::WorkloadView;
use workload_list::WorkloadFilter;

/// A page of a path and its parameters.
#[derive(Clone, Debug)]
pub(crate) enum Page {
    Fleet(FleetView),
    WorkloadList(WorkloadFilter),
    Workload { key: ObjectKey, note: String },
    Pods { key: ObjectKey, cluster: String },
    Log { key: ObjectKey, log: PodLog },
    Policy { key: ObjectKey, note: String },
    OverridePolicy(ObjectKey),
    RolloutPolicy(ObjectKey),
    Cluster { name: String, note: String },
    ResourceList(ListFilter),
    Activity,
    Health,
}

/// The state on which a page depends: if it is the same, the page is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PageVersion {
    Inventory(u64),
    Metrics(u64),
    Workload(Option<u64>, Option<u64>),
}

/// The part of a page that changes while it is open.
pub(crate) struct Fragment {
    pub(crate) status: StatusCode,
    pub(crate) markup: Markup,
    /// Two fragments of the same digest are the same.
    pub(crate) digest: String,
}

impl Fragment {
    fn new(status: StatusCode, content: &Markup) -> Self {
        let digest = Sha256::digest(content.0.as_bytes());
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let markup = html! { div #live data-digest=(digest) { (content) } };
        Self {
            status,
            markup,
            digest,
        }
    }
}

impl Fragment {
    fn of_result(content: anyhow::Result<Markup>) -> Self {
        match content {
            Ok(content) => Self::new(StatusCode::OK, &content),
            Err(error) => Self::new(StatusCode::BAD_GATEWAY, &failure(&error)),
        }
    }
}

impl Page {
    pub(crate) fn parse(path: &[&str], query: QueryParameters) -> Option<Self> {
        Some(match *path {
            [""] => Self::Fleet(FleetView::parse(query.get("view"))),
            ["workloads"] => Self::WorkloadList(WorkloadFilter::parse(&query)),
            ["workloads", namespace, name] => Self::Workload {
                key: object_key(namespace, name),
                note: query.get("done").to_owned(),
            },
            ["workloads", namespace, name, "pods", cluster] => Self::Pods {
                key: object_key(namespace, name),
                cluster: cluster.to_owned(),
            },
            ["workloads", namespace, name, "logs", cluster] => Self::Log {
                key: object_key(namespace, name),
                log: PodLog::parse(cluster, namespace, &query),
            },
            ["clusters", name] => Self::Cluster {
                name: name.to_owned(),
                note: query.get("done").to_owned(),
            },
            ["policies", namespace, name] => Self::Policy {
                key: object_key(namespace, name),
                note: query.get("done").to_owned(),
            },
            [OVERRIDE_PAGES, namespace, name] => Self::OverridePolicy(object_key(namespace, name)),
            [ROLLOUT_POLICY_PAGES, namespace, name] => {
                Self::RolloutPolicy(object_key(namespace, name))
            }
            ["activity"] => Self::Activity,
            ["health"] => Self::Health,
            [list] => Self::ResourceList(ListFilter::parse(list, &query)?),
            _ => return None,
        })
    }

    /// Whether the page follows changes. The checks of Health take seconds and ask every member, and the
    /// control plane does not know of changes of pods.
    pub(crate) fn is_live(&self) -> bool {
        !matches!(self, Self::Health | Self::Pods { .. })
    }

    pub(crate) fn version(&self, console: &Console) -> PageVersion {
        match self {
            Self::Workload { key, .. } => PageVersion::Workload(
                console.inventory.workload(key).map(|row| row.revision),
                console.inventory.rollout(key).map(|row| row.revision),
            ),
            Self::Activity => PageVersion::Metrics(console.metrics.count()),
            _ => PageVersion::Inventory(console.inventory.version()),
        }
    }

    fn parts(&self, console: &Console) -> PageParts {
        match self {
            Self::Fleet(view) => fleet::parts(*view),
            Self::Activity => activity::parts(),
            Self::WorkloadList(filter) => workload_list::parts(filter, console),
            Self::Workload { key, note } => {
                workload::parts(console.inventory.template_name(key), note)
            }
            Self::Pods { key, cluster } => pods::parts(console, key, cluster),
            Self::Log { key, log } => pods::log_parts(key, log),
            Self::Policy { key, note } => policy::parts(key, note),
            Self::OverridePolicy(key) => override_policy::parts(key),
            Self::RolloutPolicy(key) => rollout_policy::parts(key),
            Self::Cluster { name, note } => cluster::parts(name, note),
            Self::ResourceList(filter) => resource_list::parts(filter),
            Self::Health => health::parts(),
        }
    }
}

pub(crate) async fn render_fragment(page: &Page, console: &Console) -> Fragment {
    match page {
        Page::Fleet(view) => Fragment::new(StatusCode::OK, &fleet::content(console, *view)),
        Page::Activity => Fragment::new(StatusCode::OK, &activity::content(console)),
        Page::WorkloadList(filter) => {
            Fragment::new(StatusCode::OK, &workload_list::content(console, filter))
        }
        Page::Workload { key, .. } => Fragment::of_result(workload::content(console, key).await),
        Page::Pods { key, cluster } => {
            Fragment::of_result(pods::content(console, key, cluster).await)
        }
        Page::Log { log, .. } => Fragment::of_result(pods::log_content(console, log).await),
        Page::Cluster { name, .. } => Fragment::of_result(cluster::content(console, name).await),
        Page::Policy { key, .. } => Fragment::of_result(policy::content(console, key).await),
        Page::OverridePolicy(key) => {
            Fragment::of_result(override_policy::content(console, key).await)
        }
        Page::RolloutPolicy(key) => {
            Fragment::of_result(rollout_policy::content(console, key).await)
        }
        Page::ResourceList(filter) => Fragment::new(
            StatusCode::OK,
            &resource_list::content(console, filter).await,
        ),
        Page::Health => Fragment::new(StatusCode::OK, &health::content(console).await),
    }
}

/// A page and its status.
pub(crate) async fn render(page: &Page, context: &PageContext<'_>) -> (StatusCode, Markup) {
    let fragment = render_fragment(page, context.console).await;
    let parts = page.parts(context.console);
    let page = layout::page_layout(context, &parts, page.is_live(), &fragment.markup);
    (fragment.status, page)
}

/// Says why content cannot be shown.
pub(crate) fn failure(error: &anyhow::Error) -> Markup {
    notice("bad", "This cannot be shown", &format!("{error:#}"))
}

/// The page for a browser without a session.
pub(crate) fn without_session() -> Markup {
    layout::bare_layout(
        "No session",
        &html! {
            h1 { "This console needs its link" }
            p {
                "Open the address that " code { "flotilla console" }
                " printed last in its terminal. Each address opens one browser, and the next one is printed then."
            }
        },
    )
}

/// The page for somebody whom another site leads here. It says nothing of the fleet.
pub(crate) fn entrance() -> Markup {
    layout::leading_layout()
}

pub(crate) fn missing(context: &PageContext<'_>) -> Markup {
    let parts = PageParts {
        title: "Not there".to_owned(),
        navigation: Navigation::None,
        head: html! { h1 { "There is no such page" } p { a href="/" { "To the fleet" } } },
    };
    layout::page_layout(context, &parts, false, &html! {})
}

//! The interface of an action: its plan, and the write that the plan stands for.

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use maud::{Markup, html};

use crate::console::Console;
use crate::inventory::ObjectKey;
use crate::pages::{Navigation, PageContext, workload_path};

/// The page that an action is about.
pub(super) struct ActionSubject {
    pub(super) navigation: Navigation,
    pub(super) path: String,
    pub(super) name: String,
}

impl ActionSubject {
    pub(super) fn workload(console: &Console, key: &ObjectKey) -> Self {
        Self {
            navigation: Navigation::Workloads,
            path: workload_path(key, &[], &[]),
            name: console.inventory.template_name(key),
        }
    }
}

/// The effect that an action would have.
pub(super) struct ActionPlan<'a> {
    /// The digest of the change and of the state that it is about.
    pub(super) version: String,
    pub(super) effect: Markup,
    pub(super) warnings: Vec<String>,
    /// Writes what is planned, over the state that the plan has read.
    pub(super) write: BoxFuture<'a, anyhow::Result<()>>,
    /// The address of the page that shows it once it is done.
    pub(super) done: String,
}

#[async_trait]
pub(super) trait PlannedAction: Send + Sync {
    /// Its name in the log.
    fn name(&self) -> &'static str;

    fn title(&self, console: &Console) -> String;

    /// The text of the button that executes the plan.
    fn verb(&self, console: &Console) -> String {
        self.title(console)
    }

    fn subject(&self, console: &Console) -> ActionSubject;

    /// The parameters that the form of the plan repeats.
    fn fields(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The form with which a plan is made.
    async fn input(&self, _context: &PageContext<'_>) -> anyhow::Result<Markup> {
        Ok(html! {})
    }

    /// `None`: its form is not filled in yet.
    async fn plan<'a>(&'a self, console: &'a Console) -> anyhow::Result<Option<ActionPlan<'a>>>;
}

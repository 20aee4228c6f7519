//! The example of "How to add a controller" in `controllers/README.md`, so that it compiles and works.

use std::sync::Arc;

use client::{Api, Patch, ResourcePath, Result, ShutdownToken, TaskGroup, WriteOptions};
use client_fake::FakeApi;
use flotilla_runtime::{ControllerContext, ReconcileAction, Workqueue, run_workers};
use machinery::{Gvr, Object};
use serde_json::{Value, json};

use crate::fixture::{self, wait_until};

// The example begins here.

static WIDGETS: Gvr = Gvr::from_static("example.flotilla.io", "v1", "widgets");

/// The status patch of a Widget; `None` when nothing has to change.
fn status_patch(widget: &Object) -> Option<Value> {
    let view = widget.decode::<Value>().ok()?;
    (view["status"]["phase"] != "Ready").then(|| json!({"status": {"phase": "Ready"}}))
}

pub(crate) struct WidgetController {
    api: Arc<dyn Api>,
}

impl WidgetController {
    pub(crate) async fn start(context: &ControllerContext) {
        let widgets = context.informer(&WIDGETS);
        widgets.wait_for_cache_sync().await;
        let queue = Workqueue::new();
        let changed = queue.clone();
        widgets.add_event_handler(move |change| {
            if let Some(widget) = change.new {
                let key = (widget.namespace().to_owned(), widget.name().to_owned());
                changed.add_event(key, change);
            }
        });
        let controller = Arc::new(Self {
            api: Arc::clone(&context.control_plane),
        });
        run_workers(&context.tasks, "widget", &queue, 1, move |key| {
            let controller = Arc::clone(&controller);
            async move { controller.reconcile(&key).await }
        });
    }

    async fn reconcile(&self, (namespace, name): &(String, String)) -> Result<ReconcileAction> {
        let at = ResourcePath::object(&WIDGETS, namespace, name);
        let widget = match self.api.get(at).await {
            Err(e) if e.is_not_found() => return Ok(ReconcileAction::Done),
            other => other?,
        };
        if let Some(patch) = status_patch(&widget) {
            let status = at.subresource("status");
            let options = WriteOptions::default();
            self.api
                .patch(status, Patch::Merge(patch), &options)
                .await?;
        }
        Ok(ReconcileAction::Done)
    }
}

// The example ends here.

#[tokio::test]
async fn the_example_makes_widgets_ready() {
    let api = FakeApi::new();
    let tasks = TaskGroup::new(ShutdownToken::new());
    let control_plane: Arc<dyn Api> = api.clone();
    let context = fixture::context(&control_plane, &tasks);
    WidgetController::start(&context).await;
    let widget = json!({"apiVersion": "example.flotilla.io/v1", "kind": "Widget",
        "metadata": {"name": "w", "namespace": "n"}});
    api.seed(&WIDGETS, widget);
    let stored = || api.get_object(&WIDGETS, "n", "w").unwrap_or_default();
    wait_until("ready", stored, || stored()["status"]["phase"] == "Ready").await;
    tasks.stop().await;
}

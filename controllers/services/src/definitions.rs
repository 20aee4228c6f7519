//! Brings the definitions of ServiceExport and ServiceImport to the control plane, where policies
//! select them for members that lack the kinds. The control plane serves the kinds itself, whatever
//! its definitions say.

use std::sync::Arc;

use client::{Api, ResourcePath, Result, WriteOptions};
use flotilla_runtime::{ControllerContext, ReconcileAction, Workqueue, run_workers};
use machinery::Gvr;
use openapi::{catalog, definition_of_kind};
use serde_json::Value;

use crate::{SERVICE_EXPORTS, SERVICE_IMPORTS};

static DEFINITIONS: Gvr =
    Gvr::from_static("apiextensions.k8s.io", "v1", "customresourcedefinitions");

/// The definitions, by name.
fn definitions() -> impl Iterator<Item = (String, Value)> {
    let resources = [&SERVICE_EXPORTS, &SERVICE_IMPORTS].into_iter();
    resources.filter_map(|resource| {
        let definition = definition_of_kind(catalog().resource(resource)?)?;
        let name = definition["metadata"]["name"].as_str()?.to_owned();
        Some((name, definition))
    })
}

/// Creates the definitions that are missing when the controllers start. One that exists is the
/// user's.
pub(crate) fn start(context: &ControllerContext) {
    let queue = Workqueue::new();
    for (name, _) in definitions() {
        queue.add(name);
    }
    let api = Arc::clone(&context.control_plane);
    run_workers(
        &context.tasks,
        "definitions",
        &queue,
        1,
        move |name: String| {
            let api = Arc::clone(&api);
            async move { create_if_missing(&*api, &name).await }
        },
    );
}

async fn create_if_missing(api: &dyn Api, name: &str) -> Result<ReconcileAction> {
    let at = ResourcePath::object(&DEFINITIONS, "", name);
    match api.get(at).await {
        Ok(_) => return Ok(ReconcileAction::Done),
        Err(error) if error.is_not_found() => {}
        Err(error) => return give_up_if_forbidden(name, error),
    }
    let definition = definitions().find(|(other, _)| other == name);
    let Some((_, definition)) = definition else {
        return Ok(ReconcileAction::Done);
    };
    let all = ResourcePath::collection(&DEFINITIONS, "");
    match api
        .create(all, definition.into(), &WriteOptions::default())
        .await
    {
        Ok(_) => Ok(ReconcileAction::Done),
        Err(error) if error.is_already_exists() => Ok(ReconcileAction::Done),
        Err(error) => give_up_if_forbidden(name, error),
    }
}

/// A control plane that does not let us bring definitions works without them.
fn give_up_if_forbidden(name: &str, error: client::Error) -> Result<ReconcileAction> {
    let forbidden = matches!(&error, client::Error::Status(status) if status.code == 403);
    if !forbidden {
        return Err(error);
    }
    tracing::warn!(definition = name, %error, "the definition is not brought to the control plane");
    Ok(ReconcileAction::Done)
}

#[cfg(test)]
mod tests {
    use client_fake::FakeApi;

    use super::*;

    #[tokio::test]
    async fn a_missing_definition_is_created_once() {
        let api = FakeApi::new();
        for _ in 0..2 {
            for (name, _) in definitions() {
                create_if_missing(&*api, &name).await.unwrap();
            }
        }
        let names = ["serviceexports", "serviceimports"];
        for name in names.map(|plural| format!("{plural}.multicluster.x-k8s.io")) {
            let definition = api.get_object(&DEFINITIONS, "", &name).unwrap();
            assert_eq!(definition["spec"]["group"], "multicluster.x-k8s.io");
        }
    }
}

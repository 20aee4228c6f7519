//! Brings the definitions of kinds to the control plane, where policies select them for members that
//! lack the kinds and other programs look for them. The control plane serves the kinds itself,
//! whatever its definitions say.

use std::sync::Arc;

use client::{Api, ResourcePath, Result, WriteOptions};
use machinery::Gvr;
use openapi::{catalog, definition_of_kind};
use serde_json::Value;

use crate::{ControllerContext, ReconcileAction, Workqueue, run_workers};

static DEFINITIONS: Gvr =
    Gvr::from_static("apiextensions.k8s.io", "v1", "customresourcedefinitions");

/// The definition of a resource of the catalog, with its name.
fn definition(resource: &Gvr) -> Option<(String, Value)> {
    let definition = definition_of_kind(catalog().resource(resource)?)?;
    let name = definition["metadata"]["name"].as_str()?.to_owned();
    Some((name, definition))
}

/// Creates the definitions of resources that are missing now. One that exists is the user's.
pub fn create_missing_definitions(context: &ControllerContext, resources: &[&'static Gvr]) {
    let queue = Workqueue::new();
    for resource in resources {
        queue.add((*resource).clone());
    }
    let api = Arc::clone(&context.control_plane);
    run_workers(
        &context.tasks,
        "definitions",
        &queue,
        1,
        move |resource: Gvr| {
            let api = Arc::clone(&api);
            async move { create_if_missing(&*api, &resource).await }
        },
    );
}

async fn create_if_missing(api: &dyn Api, resource: &Gvr) -> Result<ReconcileAction> {
    let Some((name, definition)) = definition(resource) else {
        return Ok(ReconcileAction::Done);
    };
    match api.get(ResourcePath::object(&DEFINITIONS, "", &name)).await {
        Ok(_) => return Ok(ReconcileAction::Done),
        Err(error) if error.is_not_found() => {}
        Err(error) => return give_up_if_forbidden(&name, error),
    }
    let all = ResourcePath::collection(&DEFINITIONS, "");
    match api
        .create(all, definition.into(), &WriteOptions::default())
        .await
    {
        Ok(_) => Ok(ReconcileAction::Done),
        Err(error) if error.is_already_exists() => Ok(ReconcileAction::Done),
        Err(error) => give_up_if_forbidden(&name, error),
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
        let resources = ["serviceexports", "serviceimports", "clusterprofiles"];
        let resources =
            resources.map(|plural| Gvr::new("multicluster.x-k8s.io", "v1alpha1", plural));
        for _ in 0..2 {
            for resource in &resources {
                create_if_missing(&*api, resource).await.unwrap();
            }
        }
        assert_eq!(api.writes().len(), resources.len());
        for resource in &resources {
            let name = format!("{}.multicluster.x-k8s.io", resource.resource);
            let definition = api.get_object(&DEFINITIONS, "", &name).unwrap();
            assert_eq!(definition["spec"]["group"], "multicluster.x-k8s.io");
        }
    }
}

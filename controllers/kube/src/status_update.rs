//! Writes the status that a controller has computed.

use client::{Api, Error, ResourcePath, WriteOptions};
use flotilla_runtime::ReconcileAction;
use machinery::{Gvr, Object};
use serde_json::Value;

/// Replaces the status of `object`; `next` is what to do after it. After a conflict the informer
/// has a newer object, and a deleted object needs no status.
pub(crate) async fn update_status(
    api: &dyn Api,
    resource: &Gvr,
    object: &Object,
    status: Value,
    next: ReconcileAction,
) -> Result<ReconcileAction, Error> {
    let mut body = object.value()?;
    body["status"] = status;
    let at = ResourcePath::of_object(resource, object).subresource("status");
    let options = WriteOptions::default();
    match api.update(at, body.into(), &options).await {
        Err(e) if e.is_conflict() => Ok(ReconcileAction::AFTER_CONFLICT),
        Err(e) if e.is_not_found() => Ok(ReconcileAction::Done),
        Err(e) => Err(e),
        Ok(_) => Ok(next),
    }
}

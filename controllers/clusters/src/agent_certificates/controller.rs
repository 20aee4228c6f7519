//! The controller that approves certificate requests of agents.

use std::sync::Arc;

use client::{Api, Error, ResourcePath, WriteOptions};
use flotilla_runtime::{
    Informer, ListWatchSelector, ReconcileAction, Workqueue, run_workers_after,
};
use machinery::{Gvr, Object};
use serde_json::{Value, json};

use super::approval::{SIGNER, required_permissions};
use crate::context::ClusterControllersContext;

static REQUESTS: Gvr = Gvr::from_static("certificates.k8s.io", "v1", "certificatesigningrequests");
static REVIEWS: Gvr = Gvr::from_static("authorization.k8s.io", "v1", "subjectaccessreviews");

struct AgentCsrApprovingController {
    api: Arc<dyn Api>,
    requests: Informer,
}

pub(crate) fn start(deps: &ClusterControllersContext) {
    let select = ListWatchSelector::all(&REQUESTS).fields(format!("spec.signerName={SIGNER}"));
    let it = Arc::new(AgentCsrApprovingController {
        api: Arc::clone(&deps.control_plane),
        requests: deps.informers.get(&deps.control_plane, &select),
    });
    let queue: Workqueue<String> = Workqueue::new();
    let wake = queue.clone();
    it.requests.add_event_handler(move |change| {
        if change.new.is_some() {
            wake.add_to_lane(change.key(), change.in_initial_list);
        }
    });
    let requests = it.requests.clone();
    run_workers_after(
        &deps.tasks,
        async move { requests.wait_for_cache_sync().await },
        "agent-csr-approving-controller",
        &queue,
        1,
        move |name: String| {
            let it = Arc::clone(&it);
            async move { it.reconcile(&name).await }
        },
    );
}

impl AgentCsrApprovingController {
    async fn reconcile(&self, key: &str) -> Result<ReconcileAction, Error> {
        let Some(object) = self.requests.get_by_key(key) else {
            return Ok(ReconcileAction::Done);
        };
        let csr = object.value()?;
        for (subresource, message) in required_permissions(&csr) {
            if self.is_allowed(&csr["spec"], subresource).await? {
                return match self.approve(&object, csr, message).await {
                    // The event of the other write, or of the deletion, comes.
                    Err(e) if !e.is_not_found() && !e.is_conflict() => Err(e),
                    _ => Ok(ReconcileAction::Done),
                };
            }
        }
        Ok(ReconcileAction::Done)
    }

    async fn approve(&self, object: &Object, mut csr: Value, message: &str) -> Result<(), Error> {
        let approved = json!({"type": "Approved", "status": "True", "reason": "AutoApproved",
            "message": message});
        match csr["status"]["conditions"].as_array_mut() {
            Some(conditions) => conditions.push(approved),
            None => csr["status"]["conditions"] = json!([approved]),
        }
        let at = ResourcePath::of_object(&REQUESTS, object).subresource("approval");
        let options = WriteOptions::default();
        self.api.update(at, csr.into(), &options).await.map(drop)
    }

    /// Whether the requester may create a subresource of certificate requests.
    async fn is_allowed(&self, spec: &Value, subresource: &str) -> Result<bool, Error> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": spec["username"].as_str().unwrap_or_default(),
                "uid": spec["uid"].as_str().unwrap_or_default(),
                "groups": spec["groups"].as_array().cloned().unwrap_or_default(),
                "extra": spec["extra"].as_object().cloned().unwrap_or_default(),
                "resourceAttributes": {
                    "group": REQUESTS.group,
                    "version": "*",
                    "resource": REQUESTS.resource,
                    "subresource": subresource,
                    "verb": "create",
                },
            },
        });
        let at = ResourcePath::collection(&REVIEWS, "");
        let options = WriteOptions::default();
        let reviewed = self.api.create(at, review.into(), &options).await?;
        Ok(reviewed.value()?["status"]["allowed"] == true)
    }
}

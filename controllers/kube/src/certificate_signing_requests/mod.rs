//! Approves, signs and deletes CertificateSigningRequests, as the controllers of Kubernetes'
//! `pkg/controller/certificates` do.
//!
//! Requests of kubelets for their own client certificate are approved if their requester
//! may create `certificatesigningrequests/nodeclient` or `/selfnodeclient`; nothing else is
//! approved. Approved requests to the signers of this server are signed.

mod decision;
mod request_rules;

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{Api, DeleteOptions, Error, Informer, ResourcePath, WriteOptions};
use flotilla_runtime::{ControllerContext, ReconcileAction, Workqueue, run_workers};
use machinery::certificate_request::CertificateRequest;
use machinery::time::Clock;
use machinery::{Gvr, Object};
use serde_json::{Value, json};

use crate::shutdown_waits::wait_for_cache_sync;
use decision::{CsrDecision, decide_csr};

static REQUESTS: Gvr = Gvr::from_static("certificates.k8s.io", "v1", "certificatesigningrequests");
static REVIEWS: Gvr = Gvr::from_static("authorization.k8s.io", "v1", "subjectaccessreviews");

/// An approved request.
pub struct CertificateToSign<'a> {
    pub request: &'a CertificateRequest,
    /// Usages in Kubernetes' words, such as `client auth`.
    pub usages: &'a [String],
    /// The requested lifetime.
    pub expiration_seconds: Option<i64>,
}

/// Signs a certificate, as PEM. An error is logged and the call retried.
pub type CertificateSigner =
    Arc<dyn Fn(&CertificateToSign<'_>) -> Result<String, String> + Send + Sync>;

struct CertificateSigningRequestController {
    api: Arc<dyn Api>,
    requests: Informer,
    sign: CertificateSigner,
    clock: Arc<dyn Clock>,
}

pub(crate) fn start(context: &ControllerContext, sign: CertificateSigner) {
    let controller = Arc::new(CertificateSigningRequestController {
        requests: context.informer(&REQUESTS),
        api: Arc::clone(&context.control_plane),
        sign,
        clock: Arc::clone(&context.clock),
    });
    let queue: Workqueue<String> = Workqueue::new();
    let wake = queue.clone();
    controller.requests.add_event_handler(move |change| {
        if change.new.is_some() {
            wake.add_event(change.key(), change);
        }
    });
    let workers = context.tasks.clone();
    context.tasks.spawn(async move {
        if !wait_for_cache_sync(&workers, [&controller.requests]).await {
            return;
        }
        run_workers(
            &workers,
            "certificatesigningrequests",
            &queue,
            1,
            move |key: String| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(&key).await }
            },
        );
    });
}

impl CertificateSigningRequestController {
    async fn reconcile(&self, key: &str) -> Result<ReconcileAction, Error> {
        let Some(object) = self.requests.get_by_key(key) else {
            return Ok(ReconcileAction::Done);
        };
        let csr = object.value()?;
        let now = self.clock.now();
        let outcome = match decide_csr(&csr, now) {
            CsrDecision::Keep => return Ok(ReconcileAction::Done),
            CsrDecision::WaitUntil(deadline) => {
                let left = deadline.duration_since(now).unsigned_abs();
                return Ok(ReconcileAction::RequeueAfter(left));
            }
            CsrDecision::Delete => self.delete(&object).await,
            CsrDecision::Fail(error) => self.fail(&object, csr, &error).await,
            CsrDecision::Sign(request) => self.sign(&object, csr, &request).await,
            CsrDecision::ApproveIfAllowed(permissions, otherwise) => {
                match self.first_permission(&csr, &permissions).await? {
                    Some(message) => self.approve(&object, csr, message).await,
                    None => {
                        let left = otherwise.duration_since(now).unsigned_abs();
                        return Ok(ReconcileAction::RequeueAfter(left));
                    }
                }
            }
        };
        match outcome {
            // The event of the other write, or of the deletion, comes.
            Err(e) if !e.is_not_found() && !e.is_conflict() => Err(e),
            _ => Ok(ReconcileAction::Done),
        }
    }

    async fn delete(&self, object: &Object) -> Result<(), Error> {
        let options = DeleteOptions {
            uid: Some(object.uid().to_owned()),
            ..DeleteOptions::default()
        };
        let at = ResourcePath::of_object(&REQUESTS, object);
        self.api.delete(at, &options).await.map(drop)
    }

    async fn sign(
        &self,
        object: &Object,
        mut csr: Value,
        request: &CertificateRequest,
    ) -> Result<(), Error> {
        if let Err(message) = request.verify_signature() {
            return self.fail(object, csr, &message).await;
        }
        let usages = decision::usages(&csr);
        let to_sign = CertificateToSign {
            request,
            usages: &usages,
            expiration_seconds: csr["spec"]["expirationSeconds"].as_i64(),
        };
        let certificate = (self.sign)(&to_sign).map_err(Error::Protocol)?;
        csr["status"]["certificate"] = STANDARD.encode(certificate).into();
        self.update(object, "status", csr).await
    }

    async fn fail(&self, object: &Object, mut csr: Value, message: &str) -> Result<(), Error> {
        add_condition(&mut csr, "Failed", "SignerValidationFailure", message);
        self.update(object, "status", csr).await
    }

    async fn approve(&self, object: &Object, mut csr: Value, message: &str) -> Result<(), Error> {
        add_condition(&mut csr, "Approved", "AutoApproved", message);
        self.update(object, "approval", csr).await
    }

    async fn update(&self, object: &Object, part: &str, csr: Value) -> Result<(), Error> {
        let at = ResourcePath::of_object(&REQUESTS, object).subresource(part);
        let options = WriteOptions::default();
        self.api.update(at, csr.into(), &options).await.map(drop)
    }

    /// The message of the first permission that the requester has.
    async fn first_permission(
        &self,
        csr: &Value,
        permissions: &[(&'static str, &'static str)],
    ) -> Result<Option<&'static str>, Error> {
        let spec = &csr["spec"];
        for (subresource, message) in permissions {
            let review = json!({
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {
                    "user": spec["username"].as_str().unwrap_or_default(),
                    "uid": spec["uid"].as_str().unwrap_or_default(),
                    "groups": spec["groups"].as_array().cloned().unwrap_or_default(),
                    "extra": spec["extra"].as_object().cloned().unwrap_or_default(),
                    "resourceAttributes": {
                        "group": "certificates.k8s.io",
                        "version": "*",
                        "resource": "certificatesigningrequests",
                        "subresource": subresource,
                        "verb": "create",
                    },
                },
            });
            let at = ResourcePath::collection(&REVIEWS, "");
            let options = WriteOptions::default();
            let reviewed = self.api.create(at, review.into(), &options).await?;
            if reviewed.value()?["status"]["allowed"] == true {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }
}

fn add_condition(csr: &mut Value, kind: &str, reason: &str, message: &str) {
    let condition = json!({"type": kind, "status": "True", "reason": reason, "message": message});
    match csr["status"]["conditions"].as_array_mut() {
        Some(conditions) => conditions.push(condition),
        None => csr["status"]["conditions"] = json!([condition]),
    }
}

//! The controller that approves certificate requests of agents.

use std::sync::Arc;

use client::{Api, Error, ListOptions, Patch, ResourcePath, WriteOptions, ignore_not_found};
use flotilla_runtime::{
    Informer, ListWatchSelector, ReconcileAction, Workqueue, run_workers_after,
};
use machinery::bootstrap_token::{StoredBootstrapToken, TOKEN_NAMESPACE, TOKEN_SECRET_TYPE};
use machinery::time::Clock;
use machinery::{Gvr, Object};
use openapi::karmada::agents::{
    AGENT_REGISTRATION, AGENT_SECRET_NAMESPACE, AgentRegistration, TOKEN_CLUSTER, agent_role_name,
};
use openapi::karmada::resources::CLUSTERS;
use serde_json::{Value, json};

use super::approval::{
    AgentCertificateRequest, CertificateDecision, SELF_CLUSTER_AGENT, SIGNER, TokenClaim,
    decide_certificate, decide_generator,
};
use crate::context::{AgentRegistrationMode, ClusterControllersContext};
use crate::join::check_cluster_name;
use crate::join::objects::{CLUSTER_ROLES, SECRETS};
use crate::register::create_agent_roles;

static REQUESTS: Gvr = Gvr::from_static("certificates.k8s.io", "v1", "certificatesigningrequests");
static REVIEWS: Gvr = Gvr::from_static("authorization.k8s.io", "v1", "subjectaccessreviews");

struct AgentCsrApprovingController {
    api: Arc<dyn Api>,
    requests: Informer,
    clock: Arc<dyn Clock>,
    mode: AgentRegistrationMode,
}

pub(crate) fn start(deps: &ClusterControllersContext) {
    let select = ListWatchSelector::all(&REQUESTS).fields(format!("spec.signerName={SIGNER}"));
    let it = Arc::new(AgentCsrApprovingController {
        api: Arc::clone(&deps.control_plane),
        requests: deps.informers.get(&deps.control_plane, &select),
        clock: Arc::clone(&deps.clock),
        mode: deps.options.agent_registration,
    });
    if it.mode == AgentRegistrationMode::Karmada {
        tracing::warn!(
            "agents are registered as Karmada does: whoever has a bootstrap token may take over every cluster"
        );
    }
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
        let Some(request) = AgentCertificateRequest::of_csr(&csr) else {
            return Ok(ReconcileAction::Done);
        };
        for permission in request.permissions(self.mode) {
            if !self.is_allowed(&csr["spec"], permission.0).await? {
                continue;
            }
            let renews = permission == SELF_CLUSTER_AGENT;
            let written = match self.prepare(&request, renews, &csr).await? {
                CertificateDecision::Approve | CertificateDecision::BindAndApprove => {
                    self.write(&object, csr, ("Approved", "AutoApproved", permission.1))
                        .await
                }
                CertificateDecision::Deny(why) => {
                    self.write(&object, csr, ("Denied", "AutoDenied", &why))
                        .await
                }
                CertificateDecision::Leave(why) => {
                    tracing::warn!(request = key, why, "not approved");
                    Ok(())
                }
            };
            return match written {
                // The event of the other write, or of the deletion, comes.
                Err(e) if !e.is_not_found() && !e.is_conflict() => Err(e),
                _ => Ok(ReconcileAction::Done),
            };
        }
        Ok(ReconcileAction::Done)
    }

    /// Decides about a request, and prepares what an approved one needs: the token is bound to the
    /// cluster, and its agent has its roles.
    async fn prepare(
        &self,
        request: &AgentCertificateRequest,
        renews: bool,
        csr: &Value,
    ) -> Result<CertificateDecision, Error> {
        if renews {
            return Ok(CertificateDecision::Approve);
        }
        let Some(cluster) = request.cluster() else {
            return Ok(decide_generator(self.mode));
        };
        if self.mode == AgentRegistrationMode::Karmada {
            if check_cluster_name(cluster).is_ok() {
                create_agent_roles(&*self.api, cluster, AGENT_SECRET_NAMESPACE).await?;
            }
            return Ok(CertificateDecision::Approve);
        }
        let registration = match AgentRegistration::of_object(csr).transpose() {
            Ok(registration) => registration,
            Err(why) => {
                let why = format!("the annotation {AGENT_REGISTRATION} is invalid: {why}");
                return Ok(CertificateDecision::Deny(why));
            }
        };
        let at = ResourcePath::object(&CLUSTERS, "", cluster);
        let exists = ignore_not_found(self.api.get(at).await)?.is_some();
        let secrets = match request.token_id() {
            Some(_) => self.token_secrets().await?,
            None => Vec::new(),
        };
        let claims: Vec<_> = secrets.iter().map(|(claim, _)| claim.clone()).collect();
        let decision = decide_certificate(request, cluster, exists, &claims);
        match &decision {
            CertificateDecision::Approve => {}
            CertificateDecision::BindAndApprove => {
                let mut tokens = secrets.iter();
                let token = tokens.find(|(claim, _)| Some(&*claim.id) == request.token_id());
                if let Some((_, secret)) = token {
                    self.bind_token(secret, cluster).await?;
                }
            }
            _ => return Ok(decision),
        }
        create_agent_roles(&*self.api, cluster, AGENT_SECRET_NAMESPACE).await?;
        if let Some(registration) = registration {
            self.record_registration(cluster, &registration).await?;
        }
        Ok(decision)
    }

    /// The bootstrap tokens that have not expired, with their Secrets.
    async fn token_secrets(&self) -> Result<Vec<(TokenClaim, Object)>, Error> {
        let options = ListOptions {
            field_selector: format!("type={TOKEN_SECRET_TYPE}"),
            ..ListOptions::default()
        };
        let at = ResourcePath::collection(&SECRETS, TOKEN_NAMESPACE);
        let now = self.clock.now();
        let mut tokens = Vec::new();
        for secret in self.api.list(at, &options).await?.items {
            let value = secret.value()?;
            let Ok(stored) = StoredBootstrapToken::from_secret(&value) else {
                continue;
            };
            if stored.is_expired(now) || secret.meta().deleting {
                continue;
            }
            let cluster = value["metadata"]["annotations"][TOKEN_CLUSTER].as_str();
            let claim = TokenClaim {
                id: stored.token.id,
                cluster: cluster.unwrap_or_default().to_owned(),
            };
            tokens.push((claim, secret));
        }
        Ok(tokens)
    }

    /// Fails if the Secret has changed meanwhile: the token may have been bound.
    async fn bind_token(&self, secret: &Object, cluster: &str) -> Result<(), Error> {
        let patch = json!({"metadata": {"resourceVersion": secret.revision().to_string(),
            "annotations": {TOKEN_CLUSTER: cluster}}});
        let at = ResourcePath::of_object(&SECRETS, secret);
        let options = WriteOptions::default();
        self.api
            .patch(at, Patch::Merge(patch), &options)
            .await
            .map(drop)
    }

    /// Records on the role of the agent what it may say of its Cluster.
    async fn record_registration(
        &self,
        cluster: &str,
        registration: &AgentRegistration,
    ) -> Result<(), Error> {
        let text =
            serde_json::to_string(registration).map_err(|e| Error::Protocol(e.to_string()))?;
        let patch = json!({"metadata": {"annotations": {AGENT_REGISTRATION: text}}});
        let name = agent_role_name(cluster);
        let at = ResourcePath::object(&CLUSTER_ROLES, "", &name);
        let options = WriteOptions::default();
        self.api
            .patch(at, Patch::Merge(patch), &options)
            .await
            .map(drop)
    }

    async fn write(
        &self,
        object: &Object,
        mut csr: Value,
        (condition_type, reason, message): (&str, &str, &str),
    ) -> Result<(), Error> {
        let condition = json!({"type": condition_type, "status": "True", "reason": reason,
            "message": message});
        match csr["status"]["conditions"].as_array_mut() {
            Some(conditions) => conditions.push(condition),
            None => csr["status"]["conditions"] = json!([condition]),
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

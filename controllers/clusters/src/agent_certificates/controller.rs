//! The controller that approves certificate requests of agents.

use std::sync::Arc;

use client::{
    Api, Error, Informer, ListOptions, ListWatchSelector, Patch, ResourcePath, WriteOptions,
    ignore_not_found,
};
use flotilla_runtime::{ControllerContext, ReconcileAction, Workqueue, run_workers_after};
use karmada_api::agents::{
    AGENT_REGISTRATION, AGENT_SECRET_NAMESPACE, AgentRegistration, TOKEN_CLUSTER,
    TOKEN_REGISTRATION,
};
use karmada_api::resources::CLUSTERS;
use machinery::agent_user::add_agent_key;
use machinery::agent_user::{AGENT_PUBLIC_KEYS, agent_role_name};
use machinery::bootstrap_token::{StoredBootstrapToken, TOKEN_NAMESPACE, TOKEN_SECRET_TYPE};
use machinery::time::Clock;
use machinery::{Gvr, Object};
use serde_json::{Value, json};

use super::approval::{
    AUTO_APPROVED, AgentCertificateRequest, CertificateDecision, SELF_CLUSTER_AGENT, SIGNER,
    StoredRegistration, TokenClaim, decide_certificate, decide_generator, decide_renewal,
};
use crate::join::check_cluster_name;
use crate::join::objects::{CLUSTER_ROLES, SECRETS};
use crate::options::{AgentRegistrationMode, ClusterControllersOptions};
use crate::register::{complete_generated_roles, create_agent_roles};

static REQUESTS: Gvr = Gvr::from_static("certificates.k8s.io", "v1", "certificatesigningrequests");
static REVIEWS: Gvr = Gvr::from_static("authorization.k8s.io", "v1", "subjectaccessreviews");

struct AgentCsrApprovingController {
    api: Arc<dyn Api>,
    requests: Informer,
    clock: Arc<dyn Clock>,
    mode: AgentRegistrationMode,
}

pub(crate) fn start(context: &ControllerContext, options: &ClusterControllersOptions) {
    let select = ListWatchSelector::all(&REQUESTS).fields(format!("spec.signerName={SIGNER}"));
    let controller = Arc::new(AgentCsrApprovingController {
        api: Arc::clone(&context.control_plane),
        requests: context.informers.get(&context.control_plane, &select),
        clock: Arc::clone(&context.clock),
        mode: options.settings.agent_registration,
    });
    if controller.mode == AgentRegistrationMode::Karmada {
        tracing::warn!(
            "agents are registered as Karmada does: whoever has a bootstrap token may take over every cluster"
        );
    }
    let queue: Workqueue<String> = Workqueue::new();
    let wake = queue.clone();
    controller.requests.add_event_handler(move |change| {
        if change.new.is_some() {
            wake.add_event(change.key(), change);
        }
    });
    let requests = controller.requests.clone();
    run_workers_after(
        &context.tasks,
        async move { requests.wait_for_cache_sync().await },
        "agent-csr-approving-controller",
        &queue,
        1,
        move |name: String| {
            let controller = Arc::clone(&controller);
            async move { controller.reconcile(&name).await }
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
            self.admit_approved_by_hand(&csr).await?;
            return Ok(ReconcileAction::Done);
        };
        for permission in request.permissions(self.mode) {
            if !self.is_allowed(&csr["spec"], permission.0).await? {
                continue;
            }
            let renews = permission == SELF_CLUSTER_AGENT;
            let written = match self.prepare(&request, renews, &csr).await? {
                CertificateDecision::Approve | CertificateDecision::BindAndApprove => {
                    self.write(&object, csr, ("Approved", AUTO_APPROVED, permission.1))
                        .await
                }
                CertificateDecision::Deny(reason) => {
                    self.write(&object, csr, ("Denied", "AutoDenied", &reason))
                        .await
                }
                CertificateDecision::Leave(reason) => {
                    tracing::warn!(request = key, reason, "not approved");
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
    /// cluster and to its registration, and the agent has its roles, which name its public keys.
    async fn prepare(
        &self,
        request: &AgentCertificateRequest,
        renews: bool,
        csr: &Value,
    ) -> Result<CertificateDecision, Error> {
        let Some(cluster) = request.cluster() else {
            let secrets = match request.token_id() {
                Some(_) => self.token_secrets().await?,
                None => Vec::new(),
            };
            let mut claims = secrets.iter().map(|(claim, _)| claim);
            let token = claims.find(|claim| Some(&*claim.id) == request.token_id());
            return Ok(decide_generator(self.mode, token));
        };
        if self.mode == AgentRegistrationMode::Karmada {
            if !renews && check_cluster_name(cluster).is_ok() {
                create_agent_roles(&*self.api, cluster, AGENT_SECRET_NAMESPACE, &request.key)
                    .await?;
            }
            if let Some(role) = self.registration(cluster).await? {
                self.record_on_role(cluster, &role, request, None).await?;
            }
            return Ok(CertificateDecision::Approve);
        }
        match renews {
            true => self.prepare_renewal(request, cluster).await,
            false => self.prepare_registration(request, cluster, csr).await,
        }
    }

    async fn cluster(&self, cluster: &str) -> Result<Option<Object>, Error> {
        let at = ResourcePath::object(&CLUSTERS, "", cluster);
        ignore_not_found(self.api.get(at).await)
    }

    async fn prepare_renewal(
        &self,
        request: &AgentCertificateRequest,
        cluster: &str,
    ) -> Result<CertificateDecision, Error> {
        let role = self.registration(cluster).await?;
        let stored = self.cluster(cluster).await?;
        // The certificate at hand outlasts a deletion.
        let living = stored.filter(|cluster| !cluster.meta().deleting);
        let decision = decide_renewal(request, living.as_ref().map(Object::uid), role.as_ref());
        if let (CertificateDecision::Approve, Some(role)) = (&decision, &role) {
            self.record_on_role(cluster, role, request, None).await?;
        }
        Ok(decision)
    }

    async fn prepare_registration(
        &self,
        request: &AgentCertificateRequest,
        cluster: &str,
        csr: &Value,
    ) -> Result<CertificateDecision, Error> {
        let role = self.registration(cluster).await?;
        let exists = self.cluster(cluster).await?.is_some();
        let registered = match AgentRegistration::of_object(csr).transpose() {
            Ok(registered) => registered,
            Err(error) => {
                let reason = format!("the annotation {AGENT_REGISTRATION} is invalid: {error}");
                return Ok(CertificateDecision::Deny(reason));
            }
        };
        let secrets = match request.token_id() {
            Some(_) => self.token_secrets().await?,
            None => Vec::new(),
        };
        let claims: Vec<_> = secrets.iter().map(|(claim, _)| claim.clone()).collect();
        let decision = decide_certificate(request, cluster, exists, &claims, role.as_ref());
        let mut tokens = secrets.iter();
        let token = tokens.find(|(claim, _)| Some(&*claim.id) == request.token_id());
        match (&decision, token) {
            (CertificateDecision::BindAndApprove, Some((_, secret))) => {
                self.bind_token(secret, cluster).await?;
            }
            (CertificateDecision::Approve | CertificateDecision::BindAndApprove, _) => {}
            _ => return Ok(decision),
        }
        create_agent_roles(&*self.api, cluster, AGENT_SECRET_NAMESPACE, &request.key).await?;
        complete_generated_roles(&*self.api, cluster, AGENT_SECRET_NAMESPACE).await?;
        let Some(role) = self.registration(cluster).await? else {
            return Err(Error::Protocol(format!(
                "the roles of the agent of {cluster:?} are gone"
            )));
        };
        self.record_on_role(cluster, &role, request, registered.as_ref())
            .await?;
        if let Some((claim, secret)) = token
            && claim.registration.is_empty()
        {
            let annotations = json!({TOKEN_REGISTRATION: role.uid});
            self.annotate(ResourcePath::of_object(&SECRETS, secret), annotations)
                .await?;
        }
        Ok(decision)
    }

    /// Records the public key of a certificate that an administrator has approved.
    async fn admit_approved_by_hand(&self, csr: &Value) -> Result<(), Error> {
        let Some(request) = AgentCertificateRequest::of_csr_approved_by_hand(csr) else {
            return Ok(());
        };
        let Some(cluster) = request.cluster() else {
            return Ok(());
        };
        match self.registration(cluster).await? {
            Some(role) if role.lacks_key_of(csr, &request) => {
                self.record_on_role(cluster, &role, &request, None).await
            }
            _ => Ok(()),
        }
    }

    async fn registration(&self, cluster: &str) -> Result<Option<StoredRegistration>, Error> {
        let name = agent_role_name(cluster);
        let at = ResourcePath::object(&CLUSTER_ROLES, "", &name);
        let role = ignore_not_found(self.api.get(at).await)?;
        let role = role.map(|role| role.value()).transpose()?;
        Ok(role.as_ref().map(StoredRegistration::of_role))
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
            let annotation = |key: &str| {
                let text = value["metadata"]["annotations"][key].as_str();
                text.unwrap_or_default().to_owned()
            };
            let claim = TokenClaim {
                id: stored.token.id,
                cluster: annotation(TOKEN_CLUSTER),
                registration: annotation(TOKEN_REGISTRATION),
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

    /// Records on the role of the agent the public key of its certificate, and what it may say of its
    /// Cluster.
    async fn record_on_role(
        &self,
        cluster: &str,
        role: &StoredRegistration,
        request: &AgentCertificateRequest,
        registered: Option<&AgentRegistration>,
    ) -> Result<(), Error> {
        // A registration by a token admits no certificate of an earlier one.
        let earlier_keys = match request.token_id() {
            Some(_) => "",
            None => &role.keys,
        };
        let keys = add_agent_key(earlier_keys, request.renewed_key(), &request.key);
        let mut annotations = json!({AGENT_PUBLIC_KEYS: keys});
        if let Some(registered) = registered {
            let text = serde_json::to_string(registered);
            let text = text.map_err(|e| Error::Protocol(e.to_string()))?;
            annotations[AGENT_REGISTRATION] = text.into();
        }
        let name = agent_role_name(cluster);
        self.annotate(ResourcePath::object(&CLUSTER_ROLES, "", &name), annotations)
            .await
    }

    async fn annotate(&self, at: ResourcePath<'_>, annotations: Value) -> Result<(), Error> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        let options = WriteOptions::default();
        self.api.patch(at, patch, &options).await.map(drop)
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

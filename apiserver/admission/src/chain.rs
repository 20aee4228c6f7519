//! The admission chain of every write: mutates, validates and charges quotas.
//!
//! A rejected write fails with a `Status`: 422 for built-in rules, 403 with a webhook's
//! message for Karmada's. Rules that look at other objects read them through
//! `client::Api`.

use std::sync::{Arc, OnceLock};

use client::{Api, At, ListOptions};
use machinery::fields::aggregate;
use machinery::time::{Clock, SystemClock};
use machinery::{FieldError, Gvr, Status};
use openapi::karmada::resources::CUSTOMIZATIONS;
use openapi::karmada::{FeatureGates, Gate, labels};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::attributes::{Attributes, Operation};
use crate::interpreter::{self, Compile};
use crate::quota::enforce::{self, Charge};
use crate::secret_access::SecretAuthorizer;
use crate::tree::text;
use crate::{
    binding, builtin, cluster, federated, overrides, policy, protection, quota, search,
    secret_access, taint_policy,
};

const PRIORITY_CLASSES: Gvr = Gvr::constant("scheduling.k8s.io", "v1", "priorityclasses");
/// Objects per list call when a rule reads all objects of a kind.
pub(crate) const PAGE: u64 = 500;

/// Options of an [`AdmissionChain`].
#[derive(Clone)]
pub struct Options {
    pub clock: Arc<dyn Clock>,
    /// Compiles the scripts of interpreter customizations; `None` skips the check.
    pub compile: Option<Compile>,
    /// Whether a ClusterTaintPolicy may use the effect NoExecute.
    pub allow_no_execute: bool,
    /// The feature gates.
    pub gates: FeatureGates,
    /// Whether deletion protection applies. False in a member cluster, where copies
    /// carry the labels of their template.
    pub protects: bool,
    /// Decides which Secrets the writer of a Cluster may read; `None` allows all.
    pub secrets: Option<Arc<dyn SecretAuthorizer>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            compile: None,
            allow_no_execute: false,
            gates: FeatureGates::default(),
            protects: true,
            secrets: None,
        }
    }
}

/// Mutates and validates writes.
pub struct Chain {
    options: Options,
    api: OnceLock<Arc<dyn Api>>,
    /// Serializes quota charges in this process, which would otherwise conflict.
    charging: Mutex<()>,
}

impl Chain {
    pub fn new(options: Options) -> Self {
        Self {
            options,
            api: OnceLock::new(),
            charging: Mutex::default(),
        }
    }

    /// Sets the API for reading other objects. Until then, writes that need it fail
    /// with 503. Later calls have no effect.
    pub fn connect(&self, api: Arc<dyn Api>) {
        // A second API would be the same server.
        let _ = self.api.set(api);
    }

    /// Mutates the object; runs after defaulting and before schema validation.
    pub async fn mutate(
        &self,
        attributes: &Attributes<'_>,
        new: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        if !concerns_the_object(attributes) {
            return Ok(());
        }
        let create = attributes.operation == Operation::Create;
        match (&*attributes.gvk.group, &*attributes.gvk.kind) {
            ("policy.karmada.io", "PropagationPolicy" | "ClusterPropagationPolicy") => {
                policy::mutate(attributes, new);
            }
            ("policy.karmada.io", "OverridePolicy") => overrides::mutate(attributes, new),
            ("work.karmada.io", "ResourceBinding") if create => {
                binding::permanent_id(new, labels::BINDING_ID);
            }
            ("work.karmada.io", "ClusterResourceBinding") if create => {
                binding::permanent_id(new, labels::CLUSTER_BINDING_ID);
            }
            ("work.karmada.io", "Work") => binding::mutate_work(new),
            ("cluster.karmada.io", "Cluster") => {
                let gate = Gate::CustomizedClusterResourceModeling;
                let graded = self.options.gates.is_on(gate);
                cluster::mutate(attributes.operation, graded, new, self.options.clock.now());
            }
            ("autoscaling.karmada.io", "FederatedHPA") => federated::mutate_hpa(new),
            ("networking.karmada.io", "MultiClusterService") => federated::mutate_service(new),
            _ => builtin::mutate(attributes, new, old)?,
        }
        Ok(())
    }

    /// Validates the object; runs after schema validation. A deletion is validated by
    /// `old` alone. Returns warnings for the client.
    pub async fn validate(
        &self,
        attributes: &Attributes<'_>,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<Vec<String>, Status> {
        if attributes.operation == Operation::Delete {
            if self.options.protects
                && attributes.subresource.is_empty()
                && let Some(old) = old
            {
                protection::check(old)?;
            }
            return Ok(Vec::new());
        }
        if !concerns_the_object(attributes) {
            return Ok(Vec::new());
        }
        match (&*attributes.gvk.group, &*attributes.gvk.kind) {
            ("cluster.karmada.io", "Cluster") => {
                invalid(attributes, new, cluster::validate(new, old))?;
                if let Some(secrets) = &self.options.secrets {
                    secret_access::check(&**secrets, attributes, name(attributes, new), new, old)
                        .await?;
                }
            }
            ("search.karmada.io", "ResourceRegistry") => {
                invalid(attributes, new, search::validate(new))?;
            }
            (group, _) if group.ends_with(".karmada.io") => {
                let errors = self.karmada(attributes, new, old).await?;
                if !errors.is_empty() {
                    return Err(Status::denied(&webhook(attributes), aggregate(&errors)));
                }
            }
            ("scheduling.k8s.io", "PriorityClass") => {
                self.one_default(attributes, new).await?;
            }
            _ => {}
        }
        Ok(Vec::new())
    }

    /// Charges quotas for a valid write, as the last step before it is stored. When the
    /// write fails, the caller must [`refund`](Self::refund_quota) the charge.
    pub async fn charge(
        &self,
        attributes: &Attributes<'_>,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<Charge, Status> {
        let bindings = (&*attributes.gvk.group, &*attributes.gvk.kind)
            == ("work.karmada.io", "ResourceBinding");
        let enforced = self.options.gates.is_on(Gate::FederatedQuotaEnforcement);
        if !enforced || !bindings || !concerns_the_object(attributes) {
            return Ok(Charge::default());
        }
        let Some(more) = enforce::demand(attributes.operation, new, old)? else {
            return Ok(Charge::default());
        };
        let api = self.api()?;
        let _quota_guard = self.charging.lock().await;
        enforce::charge(&**api, attributes, &more).await
    }

    /// Refunds the charge of a write that was not stored.
    pub async fn refund(&self, charge: &Charge) {
        if let Some(api) = self.api.get()
            && !charge.is_empty()
        {
            let _quota_guard = self.charging.lock().await;
            enforce::refund(&**api, charge).await;
        }
    }

    fn api(&self) -> Result<&Arc<dyn Api>, Status> {
        let api = self.api.get();
        api.ok_or_else(|| Status::unavailable("the server is not ready to validate this object"))
    }

    async fn karmada(
        &self,
        attributes: &Attributes<'_>,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<Vec<FieldError>, Status> {
        Ok(match &*attributes.gvk.kind {
            "PropagationPolicy" | "ClusterPropagationPolicy" => {
                policy::identity(attributes, new, old)
                    .map_err(|e| Status::denied(&webhook(attributes), e))?;
                policy::validate(attributes, new)
            }
            "OverridePolicy" | "ClusterOverridePolicy" => overrides::validate(attributes, new),
            "ClusterTaintPolicy" => taint_policy::validate(new, self.options.allow_no_execute),
            "FederatedResourceQuota" => quota::validate(new),
            "ResourceBinding" => binding::validate(new, self.options.gates),
            "Work" => binding::validate_work(new),
            "ResourceInterpreterWebhookConfiguration" => interpreter::validate_webhooks(new),
            "ResourceInterpreterCustomization" => {
                let others = self.others(name(attributes, new), &CUSTOMIZATIONS).await?;
                let compile = self.options.compile.as_ref();
                interpreter::validate_customization(new, &others, compile)
                    .map_err(|e| Status::denied(&webhook(attributes), e))?;
                Vec::new()
            }
            "FederatedHPA" => federated::validate_hpa(new),
            "CronFederatedHPA" => federated::validate_cron(new),
            "MultiClusterService" => federated::validate_service(new, old),
            "MultiClusterIngress" => federated::validate_ingress(new),
            _ => Vec::new(),
        })
    }

    async fn one_default(&self, attributes: &Attributes<'_>, new: &Value) -> Result<(), Status> {
        if new.get("globalDefault") != Some(&Value::Bool(true)) {
            return Ok(());
        }
        let others = self
            .others(name(attributes, new), &PRIORITY_CLASSES)
            .await?;
        match builtin::rival_default(new, &others) {
            Some(why) => Err(Status::forbidden(
                attributes.gvr,
                name(attributes, new),
                why,
            )),
            None => Ok(()),
        }
    }

    /// All objects of a cluster-scoped kind except the one called `name`.
    async fn others(&self, name: &str, resource: &Gvr) -> Result<Vec<Value>, Status> {
        let api = self.api()?;
        let mut options = ListOptions {
            limit: PAGE,
            ..ListOptions::default()
        };
        let mut others = Vec::new();
        loop {
            let page = api.list(At::all(resource, ""), &options).await;
            let page = page.map_err(|e| match e {
                client::Error::Status(status) => *status,
                other => Status::internal(other),
            })?;
            for object in page.items.iter().filter(|o| o.name() != name) {
                others.push(object.value().map_err(Status::internal)?);
            }
            if page.continue_token.is_empty() {
                return Ok(others);
            }
            options.continue_token = page.continue_token;
        }
    }
}

/// Whether the request writes the object itself; a scale counts as such. Status and
/// connecting subresources have no rules here.
fn concerns_the_object(attributes: &Attributes<'_>) -> bool {
    matches!(attributes.operation, Operation::Create | Operation::Update)
        && matches!(attributes.subresource, "" | "scale")
}

fn invalid(
    attributes: &Attributes<'_>,
    new: &Value,
    errors: Vec<FieldError>,
) -> Result<(), Status> {
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Status::invalid(
            attributes.gvk,
            name(attributes, new),
            &errors,
        ))
    }
}

/// The object's name; in a creation the path has none.
fn name<'a>(attributes: &Attributes<'a>, new: &'a Value) -> &'a str {
    if attributes.name.is_empty() {
        text(new, "/metadata/name")
    } else {
        attributes.name
    }
}

/// The name of Karmada's webhook for a kind.
pub(crate) fn webhook(attributes: &Attributes<'_>) -> String {
    match &*attributes.gvk.kind {
        "ResourceInterpreterWebhookConfiguration" => "config.karmada.io".into(),
        kind => format!("{}.karmada.io", kind.to_ascii_lowercase()),
    }
}

#[cfg(test)]
mod tests;

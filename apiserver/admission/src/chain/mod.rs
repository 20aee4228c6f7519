//! The admission chain of every write: mutates, validates and charges quotas.
//!
//! A rejected write fails with a `Status`: 422 for built-in rules, 403 with a webhook's
//! message for Karmada's. Rules that look at other objects read them through
//! `client::Api`.

use std::sync::{Arc, OnceLock};

use client::{Api, ListOptions, ResourcePath, ignore_not_found};
use karmada_api::resources::CUSTOMIZATIONS;
use karmada_api::rollout::ROLLOUT_GROUP;
use karmada_api::{
    FeatureGates, KUBEFED_SCHEDULING_GROUP, KarmadaFeature, MULTICLUSTER_GROUP, well_known_keys,
};
use machinery::agent_user::RBAC_GENERATOR;
use machinery::field_error::aggregate;
use machinery::time::{Clock, SystemClock};
use machinery::{FieldError, Gvr, Object, Status};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::agent_restriction::mark_generated_role;
use crate::attributes::{AdmissionAttributes, AdmissionOperation};
use crate::certificate_approval::{self, SignerAuthorizer};
use crate::interpreter_configuration::{self, CustomizationScriptValidator};
use crate::list_objects::{list_cached, list_objects};
use crate::resource_access::ResourceAuthorizer;
use crate::secret_access::SecretReference;
use crate::unstructured::text;
use crate::{
    binding, builtin, cluster, cluster_profile, cluster_taint_policy, default_classes,
    deletion_protection, federated_quota, federated_resources, federated_type_config,
    job_gate_access, limit_range, override_policy, propagation_policy, replica_preference,
    resource_registry, rollout_policy, rollout_requests, secret_access,
};

mod agents;
mod quota_charges;

pub use quota_charges::QuotaCharges;

const LIMIT_RANGES: Gvr = Gvr::from_static("", "v1", "limitranges");

/// Options of an [`AdmissionChain`].
#[derive(Clone)]
pub struct AdmissionChainOptions {
    pub clock: Arc<dyn Clock>,
    /// Compiles the scripts of interpreter customizations; `None` skips the check.
    pub customization_script_validator: Option<CustomizationScriptValidator>,
    /// Whether a ClusterTaintPolicy may use the effect NoExecute.
    pub allow_no_execute_taints: bool,
    /// The feature gates.
    pub feature_gates: FeatureGates,
    /// Whether deletion protection applies. False in a member cluster, where copies
    /// carry the labels of their template.
    pub deletion_protection: bool,
    /// Decides which of the objects that an object names its writer may use; `None` allows all.
    pub resource_authorizer: Option<Arc<dyn ResourceAuthorizer>>,
    /// Decides who may approve and sign certificates; `None` allows nobody.
    pub signer_authorizer: Option<Arc<dyn SignerAuthorizer>>,
    /// Whether the user who creates the roles of agents is left to its rights, as in Karmada.
    pub insecure_agent_registration: bool,
}

impl Default for AdmissionChainOptions {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            customization_script_validator: None,
            allow_no_execute_taints: false,
            feature_gates: FeatureGates::default(),
            deletion_protection: true,
            resource_authorizer: None,
            signer_authorizer: None,
            insecure_agent_registration: false,
        }
    }
}

/// Mutates and validates writes.
pub struct AdmissionChain {
    options: AdmissionChainOptions,
    api: OnceLock<Arc<dyn Api>>,
    /// The API with the roles of agents, if that is another one.
    role_api: OnceLock<Arc<dyn Api>>,
    /// Serializes quota charges in this process, which would otherwise conflict.
    quota_lock: Mutex<()>,
}

impl AdmissionChain {
    pub fn new(options: AdmissionChainOptions) -> Self {
        Self {
            options,
            api: OnceLock::new(),
            role_api: OnceLock::new(),
            quota_lock: Mutex::default(),
        }
    }

    /// Sets the API for reading other objects. Until then, limits of namespaces and classes do
    /// not apply, and writes of Karmada's kinds that need it fail with 503. Later calls have no effect.
    pub fn set_api(&self, api: Arc<dyn Api>) {
        // A second API would be the same server.
        let _ = self.api.set(api);
    }

    /// Sets the API of the host, which has the roles of agents. Later calls have no effect.
    pub fn set_role_api(&self, api: Arc<dyn Api>) {
        let _ = self.role_api.set(api);
    }

    /// Whether the user who creates the roles of agents may write nothing else. Karmada's way of
    /// registration leaves that user to its rights.
    pub fn restricts_generator(&self) -> bool {
        !self.options.insecure_agent_registration
    }

    /// Mutates the object; runs after defaulting and before schema validation.
    pub async fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        new: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        if certificate_approval::concerns(attributes) {
            certificate_approval::mutate(attributes, new, old, self.options.clock.now());
        }
        if !is_object_write(attributes) {
            return Ok(());
        }
        if attributes.user.name == RBAC_GENERATOR
            && attributes.operation == AdmissionOperation::Create
            && self.restricts_generator()
        {
            mark_generated_role(&attributes.gvk.kind, new);
        }
        match (&*attributes.gvk.group, &*attributes.gvk.kind) {
            ("policy.karmada.io", "PropagationPolicy" | "ClusterPropagationPolicy") => {
                propagation_policy::mutate(attributes, new);
            }
            ("policy.karmada.io", "OverridePolicy") => override_policy::mutate(attributes, new),
            ("work.karmada.io", "ResourceBinding") => {
                let label = well_known_keys::BINDING_ID;
                self.check_permanent_id(attributes, new, label).await?;
                binding::mutate(new, old, label);
            }
            ("work.karmada.io", "ClusterResourceBinding") => {
                let label = well_known_keys::CLUSTER_BINDING_ID;
                self.check_permanent_id(attributes, new, label).await?;
                binding::mutate(new, old, label);
            }
            ("work.karmada.io", "Work") => binding::mutate_work(new),
            ("cluster.karmada.io", "Cluster") => {
                let feature = KarmadaFeature::CustomizedClusterResourceModeling;
                let graded = self.options.feature_gates.enabled(feature);
                cluster::mutate(attributes.operation, graded, new, self.options.clock.now());
            }
            ("autoscaling.karmada.io", "FederatedHPA") => federated_resources::mutate_hpa(new),
            ("core.kubefed.io", "FederatedTypeConfig") => {
                federated_type_config::mutate(object_name(attributes, new).to_owned(), new);
            }
            ("networking.karmada.io", "MultiClusterService") => {
                federated_resources::mutate_multi_cluster_service(new)
            }
            ("", "Pod" | "PersistentVolumeClaim") | ("networking.k8s.io", "Ingress") => {
                self.set_limits_and_classes(attributes, new, old).await?;
            }
            _ => builtin::mutate(attributes, new, old)?,
        }
        Ok(())
    }

    /// Refuses a new binding with the permanent id of another one, whose Works it would have. A
    /// binding that is restored has an id that none has.
    async fn check_permanent_id(
        &self,
        attributes: &AdmissionAttributes<'_>,
        new: &Value,
        label: &str,
    ) -> Result<(), Status> {
        let create = attributes.operation == AdmissionOperation::Create;
        let (Some(api), Some(id)) = (self.api.get(), binding::permanent_id(new, label)) else {
            return Ok(());
        };
        if !create {
            return Ok(());
        }
        let options = ListOptions {
            label_selector: format!("{label}={id}"),
            ..ListOptions::default()
        };
        let everywhere = ResourcePath::collection(attributes.gvr, "");
        let holders = match api.list(everywhere, &options).await {
            Ok(list) => list.items,
            Err(client::Error::Status(status)) => return Err(*status),
            Err(other) => return Err(Status::internal(other)),
        };
        let name = object_name(attributes, new);
        let is_other =
            |holder: &Object| holder.namespace() != attributes.namespace || holder.name() != name;
        if !holders.iter().any(is_other) {
            return Ok(());
        }
        let field = format!("metadata.labels[{label}]");
        let errors = vec![FieldError::duplicate(field, &id.into())];
        invalid_unless_empty(attributes, new, errors)
    }

    /// Sets the default limits of the namespace, and the classes that a new object does not
    /// name.
    async fn set_limits_and_classes(
        &self,
        attributes: &AdmissionAttributes<'_>,
        new: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let create = attributes.operation == AdmissionOperation::Create;
        match (&*attributes.gvk.kind, old) {
            ("Pod", _) if create => {
                let ranges = self.limit_ranges(attributes).await?;
                limit_range::set_pod_defaults(&ranges, new);
                let classes = self.classes(&default_classes::PRIORITY_CLASSES).await?;
                default_classes::set_priority(&classes, new).map_err(|message| {
                    Status::forbidden(attributes.gvr, object_name(attributes, new), message)
                })
            }
            ("Pod", Some(old)) => {
                default_classes::keep_priority(old, new);
                Ok(())
            }
            ("PersistentVolumeClaim", _) if create && default_classes::needs_storage_class(new) => {
                let classes = self.classes(&default_classes::STORAGE_CLASSES).await?;
                default_classes::set_storage_class(&classes, new);
                Ok(())
            }
            ("Ingress", _) if create && default_classes::needs_ingress_class(new) => {
                let classes = self.classes(&default_classes::INGRESS_CLASSES).await?;
                default_classes::set_ingress_class(&classes, new);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The objects of a cluster-scoped kind that has classes for others.
    async fn classes(&self, resource: &Gvr) -> Result<Vec<Object>, Status> {
        match self.api.get() {
            Some(api) => list_cached(&**api, resource, "").await,
            None => Ok(Vec::new()),
        }
    }

    /// The LimitRanges of the namespace.
    async fn limit_ranges(
        &self,
        attributes: &AdmissionAttributes<'_>,
    ) -> Result<Vec<Value>, Status> {
        let Some(api) = self.api.get() else {
            return Ok(Vec::new());
        };
        let ranges = list_cached(&**api, &LIMIT_RANGES, attributes.namespace).await?;
        ranges
            .iter()
            .map(|range| range.value().map_err(Status::internal))
            .collect()
    }

    /// Checks a new pod, or a PersistentVolumeClaim, against the LimitRanges.
    async fn validate_limits(
        &self,
        attributes: &AdmissionAttributes<'_>,
        new: &Value,
    ) -> Result<(), Status> {
        let ranges = self.limit_ranges(attributes).await?;
        let errors = match &*attributes.gvk.kind {
            "Pod" => limit_range::validate_pod(&ranges, new),
            _ => limit_range::validate_claim(&ranges, new),
        };
        if errors.is_empty() {
            return Ok(());
        }
        let message = limit_range::join(&errors);
        Err(Status::forbidden(
            attributes.gvr,
            object_name(attributes, new),
            message,
        ))
    }

    /// Validates the object; runs after schema validation. A deletion is validated by
    /// `old` alone. Returns warnings for the client.
    pub async fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<Vec<String>, Status> {
        self.restrict_agent(attributes, new, old).await?;
        if attributes.operation == AdmissionOperation::Delete {
            if self.options.deletion_protection
                && attributes.subresource.is_empty()
                && let Some(old) = old
            {
                deletion_protection::validate_deletion(old)?;
            }
            return Ok(Vec::new());
        }
        if certificate_approval::concerns(attributes) {
            let authorizer = self.options.signer_authorizer.as_deref();
            certificate_approval::validate(authorizer, attributes, new, old).await?;
        }
        if !is_object_write(attributes) {
            return Ok(Vec::new());
        }
        match (&*attributes.gvk.group, &*attributes.gvk.kind) {
            ("cluster.karmada.io", "Cluster") => {
                invalid_unless_empty(attributes, new, cluster::validate(new, old))?;
                let secrets = cluster::SECRETS.to_authorize(new, old);
                self.authorize_secrets(attributes, new, &secrets).await?;
                return Ok(cluster::warnings(new));
            }
            ("search.karmada.io", "ResourceRegistry") => {
                invalid_unless_empty(attributes, new, resource_registry::validate(new, old))?;
                let secrets = resource_registry::SECRETS.to_authorize(new, old);
                self.authorize_secrets(attributes, new, &secrets).await?;
            }
            (KUBEFED_SCHEDULING_GROUP, "ReplicaSchedulingPreference") => {
                invalid_unless_empty(attributes, new, replica_preference::validate(new))?;
            }
            ("core.kubefed.io", "FederatedTypeConfig") => {
                let errors = federated_type_config::validate(attributes, new);
                invalid_unless_empty(attributes, new, errors)?;
            }
            (ROLLOUT_GROUP, "RolloutPolicy" | "ClusterRolloutPolicy") => {
                let errors = rollout_policy::validate(attributes.namespace, new);
                invalid_unless_empty(attributes, new, errors)?;
                self.authorize_job_gates(attributes, new, old).await?;
            }
            (ROLLOUT_GROUP, "Rollout") => {
                let errors = rollout_requests::validate(new, old);
                invalid_unless_empty(attributes, new, errors)?;
            }
            (MULTICLUSTER_GROUP, "ClusterProfile") => {
                let errors = cluster_profile::validate(new, old);
                invalid_unless_empty(attributes, new, errors)?;
            }
            (group, _) if group.ends_with(".karmada.io") => {
                let errors = self.validate_karmada(attributes, new, old).await?;
                if !errors.is_empty() {
                    return Err(Status::webhook_denied(
                        &attributes.karmada_webhook_name(),
                        aggregate(&errors),
                    ));
                }
            }
            ("scheduling.k8s.io", "PriorityClass") => {
                self.validate_single_default(attributes, new).await?;
            }
            ("", "Pod") if attributes.operation == AdmissionOperation::Create => {
                self.validate_limits(attributes, new).await?;
            }
            ("", "PersistentVolumeClaim") => self.validate_limits(attributes, new).await?,
            _ => {}
        }
        Ok(builtin::warnings(attributes.gvk, new, old))
    }

    /// Fails with 403 when the object would use a Secret that its writer may not get.
    async fn authorize_secrets(
        &self,
        attributes: &AdmissionAttributes<'_>,
        new: &Value,
        secrets: &[SecretReference<'_>],
    ) -> Result<(), Status> {
        let Some(authorizer) = &self.options.resource_authorizer else {
            return Ok(());
        };
        let name = object_name(attributes, new);
        secret_access::check(&**authorizer, attributes, name, secrets).await
    }

    /// Fails with 403 when a policy would run a Job that its writer may not run.
    async fn authorize_job_gates(
        &self,
        attributes: &AdmissionAttributes<'_>,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let Some(authorizer) = &self.options.resource_authorizer else {
            return Ok(());
        };
        let name = object_name(attributes, new);
        job_gate_access::check(&**authorizer, attributes, name, new, old).await
    }

    fn api(&self) -> Result<&Arc<dyn Api>, Status> {
        let api = self.api.get();
        api.ok_or_else(|| Status::unavailable("the server is not ready to validate this object"))
    }

    async fn validate_karmada(
        &self,
        attributes: &AdmissionAttributes<'_>,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<Vec<FieldError>, Status> {
        Ok(match &*attributes.gvk.kind {
            "PropagationPolicy" | "ClusterPropagationPolicy" => {
                propagation_policy::validate_identity(attributes, new, old)
                    .map_err(|e| Status::webhook_denied(&attributes.karmada_webhook_name(), e))?;
                propagation_policy::validate(attributes, new)
            }
            "OverridePolicy" | "ClusterOverridePolicy" => {
                override_policy::validate(attributes, new)
            }
            "ClusterTaintPolicy" => {
                cluster_taint_policy::validate(new, self.options.allow_no_execute_taints)
            }
            "FederatedResourceQuota" => {
                let mut errors = federated_quota::validate(new);
                let is_enforced = self
                    .options
                    .feature_gates
                    .enabled(KarmadaFeature::FederatedQuotaEnforcement);
                if is_enforced && attributes.subresource.is_empty() {
                    errors.extend(federated_quota::validate_enforceable(new, old));
                }
                errors
            }
            "ResourceBinding" | "ClusterResourceBinding" => {
                binding::validate(attributes, new, old, self.options.feature_gates)
            }
            "Work" => binding::validate_work(new),
            "ResourceInterpreterWebhookConfiguration" => {
                interpreter_configuration::validate_webhooks(new)
            }
            "ResourceInterpreterCustomization" => {
                let other_customizations = self
                    .list_others(object_name(attributes, new), &CUSTOMIZATIONS)
                    .await?;
                let compile = self.options.customization_script_validator.as_ref();
                interpreter_configuration::validate_customization(
                    new,
                    &other_customizations,
                    compile,
                )
                .map_err(|e| Status::webhook_denied(&attributes.karmada_webhook_name(), e))?;
                Vec::new()
            }
            "FederatedHPA" => federated_resources::validate_hpa(new),
            "CronFederatedHPA" => federated_resources::validate_cron_hpa(new),
            "MultiClusterService" => federated_resources::validate_multi_cluster_service(new, old),
            "MultiClusterIngress" => federated_resources::validate_multi_cluster_ingress(new),
            _ => Vec::new(),
        })
    }

    async fn validate_single_default(
        &self,
        attributes: &AdmissionAttributes<'_>,
        new: &Value,
    ) -> Result<(), Status> {
        if new.get("globalDefault") != Some(&Value::Bool(true)) {
            return Ok(());
        }
        let other_classes = self
            .list_others(
                object_name(attributes, new),
                &default_classes::PRIORITY_CLASSES,
            )
            .await?;
        match builtin::conflicting_global_default(new, &other_classes) {
            Some(message) => Err(Status::forbidden(
                attributes.gvr,
                object_name(attributes, new),
                message,
            )),
            None => Ok(()),
        }
    }

    /// All objects of a cluster-scoped kind except the one called `name`.
    async fn list_others(&self, name: &str, resource: &Gvr) -> Result<Vec<Value>, Status> {
        let objects = list_objects(self.api()?.as_ref(), resource, "").await;
        let objects = objects.map_err(|e| match e {
            client::Error::Status(status) => *status,
            other => Status::internal(other),
        })?;
        let other_objects = objects.iter().filter(|o| o.name() != name);
        other_objects
            .map(|o| o.value().map_err(Status::internal))
            .collect()
    }
}

/// An object that a rule looks up; `None` if there is none, or no API yet.
async fn find_object(
    api: Option<&Arc<dyn Api>>,
    path: ResourcePath<'_>,
) -> Result<Option<Object>, Status> {
    let Some(api) = api else { return Ok(None) };
    match ignore_not_found(api.get(path).await) {
        Ok(object) => Ok(object),
        Err(client::Error::Status(status)) => Err(*status),
        Err(other) => Err(Status::internal(other)),
    }
}

/// Whether the request writes the object itself; a scale counts as such. Status and
/// connecting subresources have no rules here.
fn is_object_write(attributes: &AdmissionAttributes<'_>) -> bool {
    matches!(
        attributes.operation,
        AdmissionOperation::Create | AdmissionOperation::Update
    ) && matches!(attributes.subresource, "" | "scale")
}

fn invalid_unless_empty(
    attributes: &AdmissionAttributes<'_>,
    new: &Value,
    errors: Vec<FieldError>,
) -> Result<(), Status> {
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Status::invalid(
            attributes.gvk,
            object_name(attributes, new),
            &errors,
        ))
    }
}

/// The object's name; in a creation the path has none.
fn object_name<'a>(attributes: &AdmissionAttributes<'a>, new: &'a Value) -> &'a str {
    if attributes.name.is_empty() {
        text(new, "/metadata/name")
    } else {
        attributes.name
    }
}

#[cfg(test)]
mod tests;

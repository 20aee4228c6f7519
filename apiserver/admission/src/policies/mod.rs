//! Evaluates ValidatingAdmissionPolicies for the kinds that this server serves
//! (`k8s.io/apiserver/pkg/admission/plugin/policy`).
//!
//! policies, bindings ──► `policy_set` (compiled once) ──► [`PolicyDispatcher`] ──► denial, warnings, audit annotations
//!
//! A policy never applies to the objects that configure admission, which could not be
//! repaired then.

mod binding;
mod definition;
mod match_resources;
mod params;
mod policy_set;
mod validating_policy;

use std::collections::BTreeMap;
use std::sync::Arc;

use machinery::{Gvr, Object, Status};
use serde_json::{Value, json};

use crate::attributes::{ADMISSION_GROUP, AdmissionAttributes};
use crate::equivalent_versions::EquivalentVersionsAndConversions;
use crate::expressions::{ExpressionAuthorizer, RequestDecisions, VersionedRequest};
use crate::namespace_lookup::NamespaceLookup;
use crate::webhooks::matching::is_namespace;

use binding::PolicyBinding;
use definition::PolicyDefinition;
pub use params::{KindResources, PolicyParamReader};
use policy_set::{BoundPolicy, PolicySet};
use validating_policy::{PolicyDecisions, ValidatingPolicy, Violation};

/// The longest value of an audit annotation in bytes.
const MAX_AUDIT_ANNOTATION_BYTES: usize = 10 * 1024;
const FAILURE_ANNOTATION: &str = "validation.policy.admission.k8s.io/validation_failure";

/// Evaluates the policies in force.
pub struct PolicyDispatcher {
    validating: PolicySet<ValidatingPolicy>,
    namespaces: Arc<dyn NamespaceLookup>,
    params: PolicyParamReader,
    authorizer: Arc<dyn ExpressionAuthorizer>,
}

/// A request with its objects, as policies get it.
#[derive(Clone, Copy)]
struct PolicyRequest<'a> {
    attributes: &'a AdmissionAttributes<'a>,
    versions: &'a EquivalentVersionsAndConversions<'a>,
    new: &'a Value,
    old: Option<&'a Value>,
}

/// What is computed once for a request, when a policy matches it.
struct PolicyRequestCache<'a> {
    decisions: RequestDecisions<'a>,
    /// The objects by version.
    versioned: BTreeMap<usize, VersionedRequest>,
    namespace_object: Option<Value>,
}

/// The denial of a request by a policy.
struct Denial {
    message: String,
    reason: String,
}

impl PolicyDispatcher {
    pub fn new(
        namespaces: Arc<dyn NamespaceLookup>,
        params: PolicyParamReader,
        authorizer: Arc<dyn ExpressionAuthorizer>,
    ) -> Arc<Self> {
        Arc::new(Self {
            validating: PolicySet::new(ValidatingPolicy::compile),
            namespaces,
            params,
            authorizer,
        })
    }

    /// Replaces the ValidatingAdmissionPolicies.
    pub fn set_validating(&self, policies: &[Object]) {
        self.validating.set_policies(policies);
    }

    /// Replaces the ValidatingAdmissionPolicyBindings.
    pub fn set_validating_bindings(&self, bindings: &[Object]) {
        self.validating.set_bindings(bindings);
    }

    /// Whether any policy has a rule for the resource, for any operation; does no I/O.
    pub fn has_policy_for(&self, resource: &Gvr, subresource: &str) -> bool {
        if resource.group == ADMISSION_GROUP {
            return false;
        }
        let matches = |definition: &PolicyDefinition| {
            definition.constraints.has_rule_for(resource, subresource)
        };
        self.validating.any(|policy| matches(&policy.definition))
    }

    /// Evaluates the validating policies for `new` (null in a deletion). Collects warnings
    /// for the client.
    pub async fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        versions: &EquivalentVersionsAndConversions<'_>,
        new: &Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let policies = self.validating.in_force();
        if policies.is_empty() || attributes.gvr.group == ADMISSION_GROUP {
            return Ok(());
        }
        let request = PolicyRequest {
            attributes,
            versions,
            new,
            old,
        };
        let mut cache = PolicyRequestCache {
            decisions: RequestDecisions::new(attributes.user, &*self.authorizer),
            versioned: BTreeMap::new(),
            namespace_object: None,
        };
        let mut denials = Vec::new();
        for bound in policies.iter() {
            self.validate_policy(bound, request, &mut cache, warnings, &mut denials)
                .await?;
        }
        match denials.into_iter().next() {
            Some(denial) => Err(denial.into_status(attributes, new)),
            None => Ok(()),
        }
    }

    async fn validate_policy(
        &self,
        bound: &BoundPolicy<ValidatingPolicy>,
        request: PolicyRequest<'_>,
        cache: &mut PolicyRequestCache<'_>,
        warnings: &mut Vec<String>,
        denials: &mut Vec<Denial>,
    ) -> Result<(), Status> {
        let definition = &bound.policy.definition;
        let Some(version) = self
            .matching_version(&definition.constraints, request)
            .await?
        else {
            return Ok(());
        };
        let error = definition.param_kind.as_ref();
        if let Some(why) = error.and_then(|kind| self.params.configuration_error(kind)) {
            denials.extend(configuration_denial(definition, None, &why));
            return Ok(());
        }
        let mut annotations: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for binding in &bound.bindings {
            if let Some(constraints) = &binding.match_resources
                && self.matching_version(constraints, request).await?.is_none()
            {
                continue;
            }
            let (kind, reference) = (definition.param_kind.as_ref(), binding.param_ref.as_ref());
            let namespace = request.attributes.namespace;
            let params = match self.params.collect(kind, reference, namespace).await {
                Ok(params) => params,
                Err(why) => {
                    denials.extend(configuration_denial(definition, Some(binding), &why));
                    continue;
                }
            };
            for param in &params {
                let decisions = self
                    .evaluate(&bound.policy, version, param, request, cache)
                    .await?;
                let audited = (definition, &**binding, request.attributes);
                record(audited, decisions, warnings, denials, &mut annotations);
            }
        }
        publish(&definition.name, request.attributes, annotations);
        Ok(())
    }

    async fn matching_version(
        &self,
        constraints: &match_resources::MatchResources,
        request: PolicyRequest<'_>,
    ) -> Result<Option<usize>, Status> {
        let PolicyRequest {
            attributes,
            versions,
            new,
            old,
        } = request;
        constraints
            .matching_version(attributes, &versions.kinds, (new, old), &*self.namespaces)
            .await
    }

    async fn evaluate(
        &self,
        policy: &ValidatingPolicy,
        version: usize,
        param: &Value,
        request: PolicyRequest<'_>,
        cache: &mut PolicyRequestCache<'_>,
    ) -> Result<PolicyDecisions, Status> {
        let PolicyRequest {
            attributes,
            versions,
            new,
            old,
        } = request;
        if cache.namespace_object.is_none() {
            cache.namespace_object = Some(self.namespace_object(attributes).await?);
        }
        if !cache.versioned.contains_key(&version) {
            let matched = &versions.kinds[version].1;
            let objects = (new, old);
            let converted =
                VersionedRequest::new(attributes, versions, version, matched, objects).await?;
            cache.versioned.insert(version, converted);
        }
        let (Some(versioned), Some(namespace)) =
            (cache.versioned.get(&version), &cache.namespace_object)
        else {
            return Err(Status::internal("the request has no such version"));
        };
        let evaluated = cache.decisions.evaluate(|decisions| {
            let in_match = versioned.inputs(&Value::Null, param, decisions);
            policy.evaluate(in_match, versioned.inputs(namespace, param, decisions))
        });
        Ok(evaluated.await)
    }

    /// The namespace of the request; null for objects without one, and for Namespaces.
    async fn namespace_object(
        &self,
        attributes: &AdmissionAttributes<'_>,
    ) -> Result<Value, Status> {
        if attributes.namespace.is_empty() || is_namespace(attributes) {
            return Ok(Value::Null);
        }
        let found = self.namespaces.get_namespace(attributes.namespace).await?;
        let Some(namespace) = found else {
            let resource = Gvr::from_static("", "v1", "namespaces");
            return Err(Status::not_found(&resource, attributes.namespace));
        };
        namespace.value().map_err(Status::internal)
    }
}

/// The denial of a policy that cannot be evaluated as it is configured; none if failures are
/// ignored.
fn configuration_denial(
    definition: &PolicyDefinition,
    binding: Option<&PolicyBinding>,
    why: &str,
) -> Option<Denial> {
    if definition.ignore_failures {
        return None;
    }
    let what = if binding.is_some() {
        "binding"
    } else {
        "policy"
    };
    let message = format!("failed to configure {what}: {why}");
    Some(Denial::new(definition, binding, &message, ""))
}

/// Records what a policy decided, as the actions of the binding say.
fn record(
    (definition, binding, attributes): (
        &PolicyDefinition,
        &PolicyBinding,
        &AdmissionAttributes<'_>,
    ),
    decisions: PolicyDecisions,
    warnings: &mut Vec<String>,
    denials: &mut Vec<Denial>,
    annotations: &mut BTreeMap<String, Vec<String>>,
) {
    for violation in &decisions.violations {
        for action in &binding.validation_actions {
            match action.as_str() {
                "Deny" => {
                    let (message, reason) = (&violation.message, &violation.reason);
                    denials.push(Denial::new(definition, Some(binding), message, reason));
                }
                "Warn" => warnings.push(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                    definition.name, binding.name, violation.message
                )),
                _ => audit_violation(binding, violation, attributes),
            }
        }
    }
    for (key, value) in decisions.audit_annotations {
        let values = annotations.entry(key).or_default();
        let value = truncated(value);
        if !values.contains(&value) {
            values.push(value);
        }
    }
    if let Some(why) = decisions.audit_error {
        denials.push(Denial::new(definition, Some(binding), &why, ""));
    }
}

fn audit_violation(
    binding: &PolicyBinding,
    violation: &Violation,
    attributes: &AdmissionAttributes<'_>,
) {
    let Some(audit) = attributes.audit_annotations else {
        return;
    };
    let failure = json!([{
        "message": violation.message,
        "policy": binding.policy_name,
        "binding": binding.name,
        "expressionIndex": violation.index,
        "validationActions": binding.validation_actions,
    }]);
    audit.add(FAILURE_ANNOTATION.to_owned(), failure.to_string());
}

fn publish(
    policy: &str,
    attributes: &AdmissionAttributes<'_>,
    annotations: BTreeMap<String, Vec<String>>,
) {
    let Some(audit) = attributes.audit_annotations else {
        return;
    };
    for (key, values) in annotations {
        audit.add(format!("{policy}/{key}"), values.join(", "));
    }
}

fn truncated(mut value: String) -> String {
    if value.len() > MAX_AUDIT_ANNOTATION_BYTES {
        value.truncate(value.floor_char_boundary(MAX_AUDIT_ANNOTATION_BYTES));
    }
    value
}

impl Denial {
    fn new(
        definition: &PolicyDefinition,
        binding: Option<&PolicyBinding>,
        message: &str,
        reason: &str,
    ) -> Self {
        let policy = &definition.name;
        let with = binding.map(|binding| format!(" with binding '{}'", binding.name));
        let with = with.unwrap_or_default();
        Self {
            message: format!(
                "ValidatingAdmissionPolicy '{policy}'{with} denied request: {message}"
            ),
            reason: match reason {
                "" => "Invalid".to_owned(),
                reason => reason.to_owned(),
            },
        }
    }

    fn into_status(self, attributes: &AdmissionAttributes<'_>, new: &Value) -> Status {
        let metadata = &new["metadata"];
        let names = [&metadata["name"], &metadata["generateName"]];
        let names = names.into_iter().filter_map(Value::as_str);
        let mut names = [attributes.name].into_iter().chain(names);
        let name = names.find(|name| !name.is_empty()).unwrap_or("Unknown");
        let mut status = Status::forbidden(attributes.gvr, name, &self.message);
        status.code = match &*self.reason {
            "Forbidden" => 403,
            "Unauthorized" => 401,
            "RequestEntityTooLarge" => 413,
            _ => 422,
        };
        status.reason = self.reason;
        status.with_cause("", self.message, "")
    }
}

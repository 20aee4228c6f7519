//! Validates requests by the policies in force
//! (`k8s.io/apiserver/pkg/admission/plugin/policy/validating/dispatcher.go`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use machinery::Status;
use serde_json::{Value, json};

use super::binding::PolicyBinding;
use super::definition::PolicyDefinition;
use super::dispatcher::{PolicyDispatcher, PolicyRequest, denied_object_name};
use super::metrics;
use super::policy_set::BoundPolicy;
use super::validating_policy::{PolicyDecisions, ValidatingPolicy, Violation};
use crate::attributes::{ADMISSION_GROUP, AdmissionAttributes};
use crate::equivalent_versions::EquivalentVersions;
use crate::expressions::{RequestDecisions, VersionedRequest};

/// The longest value of an audit annotation in bytes.
const MAX_AUDIT_ANNOTATION_BYTES: usize = 10 * 1024;
const FAILURE_ANNOTATION: &str = "validation.policy.admission.k8s.io/validation_failure";

/// The values that are computed once for a request, when a policy matches it.
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
    /// Evaluates the validating policies for `new` (null in a deletion). Collects warnings
    /// for the client.
    pub async fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        versions: &EquivalentVersions<'_>,
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
            decisions: RequestDecisions::new(attributes.user, self.authorizer()),
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
        if let Some(message) = self.configuration_error(definition) {
            denials.extend(configuration_denial(definition, None, &message));
            return Ok(());
        }
        let mut annotations: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for binding in &bound.bindings {
            if let Some(constraints) = &binding.match_resources
                && self.matching_version(constraints, request).await?.is_none()
            {
                continue;
            }
            let params = match self.params(definition, binding, request.attributes).await {
                Ok(params) => params,
                Err(message) => {
                    denials.extend(configuration_denial(definition, Some(binding), &message));
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
        let namespace = match &mut cache.namespace_object {
            Some(namespace) => &*namespace,
            none => &*none.insert(self.namespace_object(attributes).await?),
        };
        let versioned = match cache.versioned.entry(version) {
            Entry::Occupied(converted) => converted.into_mut(),
            Entry::Vacant(slot) => {
                let matched = &versions.kinds[version].1;
                let objects = (new, old);
                slot.insert(
                    VersionedRequest::new(attributes, versions, version, matched, objects).await?,
                )
            }
        };
        let evaluated = cache.decisions.evaluate(|decisions| {
            let in_match = versioned.inputs(&Value::Null, param, decisions);
            policy.evaluate(in_match, versioned.inputs(namespace, param, decisions))
        });
        Ok(evaluated.await)
    }
}

/// The denial of a policy that cannot be evaluated as it is configured; none if failures are
/// ignored.
fn configuration_denial(
    definition: &PolicyDefinition,
    binding: Option<&PolicyBinding>,
    detail: &str,
) -> Option<Denial> {
    if definition.ignore_failures {
        return None;
    }
    let configured_kind = if binding.is_some() {
        "binding"
    } else {
        "policy"
    };
    let message = format!("failed to configure {configured_kind}: {detail}");
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
    let observe = |index: usize, message: &str, action| {
        let duration = decisions.durations.get(index).copied().unwrap_or_default();
        metrics::observe_check(&definition.name, &binding.name, message, action, duration);
    };
    for (index, detail) in &decisions.ignored_errors {
        observe(*index, detail, "allow");
    }
    for violation in &decisions.violations {
        for action in &binding.validation_actions {
            let (index, message) = (violation.index, &violation.message);
            match action.as_str() {
                "Deny" => {
                    observe(index, message, "deny");
                    let (message, reason) = (&violation.message, &violation.reason);
                    denials.push(Denial::new(definition, Some(binding), message, reason));
                }
                "Warn" => {
                    observe(index, message, "warn");
                    warnings.push(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {message}",
                        definition.name, binding.name
                    ));
                }
                _ => {
                    observe(index, message, "audit");
                    audit_violation(binding, violation, attributes);
                }
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
    if let Some(detail) = decisions.audit_error {
        metrics::observe_check(
            &definition.name,
            &binding.name,
            &detail,
            "deny",
            Duration::default(),
        );
        denials.push(Denial::new(definition, Some(binding), &detail, ""));
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
        let binding_text = binding.map(|binding| format!(" with binding '{}'", binding.name));
        let binding_text = binding_text.unwrap_or_default();
        Self {
            message: format!(
                "ValidatingAdmissionPolicy '{policy}'{binding_text} denied request: {message}"
            ),
            reason: match reason {
                "" => "Invalid".to_owned(),
                reason => reason.to_owned(),
            },
        }
    }

    fn into_status(self, attributes: &AdmissionAttributes<'_>, new: &Value) -> Status {
        let name = denied_object_name(attributes, new);
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

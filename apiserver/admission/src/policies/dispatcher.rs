//! The policies in force, and what evaluating them needs: namespaces, parameters, and the
//! authorizer.

use std::sync::Arc;

use machinery::{Gvr, Object, Status};
use serde_json::Value;

use super::binding::PolicyBinding;
use super::definition::PolicyDefinition;
use super::match_resources::MatchResources;
use super::mutating_policy::MutatingPolicy;
use super::params::PolicyParamReader;
use super::policy_set::PolicySet;
use super::validating_policy::ValidatingPolicy;
use crate::attributes::{ADMISSION_GROUP, AdmissionAttributes};
use crate::equivalent_versions::EquivalentVersions;
use crate::expressions::ExpressionAuthorizer;
use crate::namespace_lookup::NamespaceLookup;
use crate::webhooks::JsonPatchFunction;
use crate::webhooks::matching::is_namespace;

/// Evaluates the policies in force.
pub struct PolicyDispatcher {
    pub(super) validating: PolicySet<ValidatingPolicy>,
    pub(super) mutating: PolicySet<MutatingPolicy>,
    namespaces: Arc<dyn NamespaceLookup>,
    params: PolicyParamReader,
    authorizer: Arc<dyn ExpressionAuthorizer>,
    apply_patch: JsonPatchFunction,
}

/// A request with its objects, as policies get it.
#[derive(Clone, Copy)]
pub(super) struct PolicyRequest<'a> {
    pub(super) attributes: &'a AdmissionAttributes<'a>,
    pub(super) versions: &'a EquivalentVersions<'a>,
    pub(super) new: &'a Value,
    pub(super) old: Option<&'a Value>,
}

impl PolicyDispatcher {
    /// `apply_patch` leaves an object as it is when an operation `test` of the patch fails.
    pub fn new(
        namespaces: Arc<dyn NamespaceLookup>,
        params: PolicyParamReader,
        authorizer: Arc<dyn ExpressionAuthorizer>,
        apply_patch: JsonPatchFunction,
    ) -> Arc<Self> {
        Arc::new(Self {
            validating: PolicySet::new(ValidatingPolicy::compile),
            mutating: PolicySet::new(MutatingPolicy::compile),
            namespaces,
            params,
            authorizer,
            apply_patch,
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

    /// Replaces the MutatingAdmissionPolicies.
    pub fn set_mutating(&self, policies: &[Object]) {
        self.mutating.set_policies(policies);
    }

    /// Replaces the MutatingAdmissionPolicyBindings.
    pub fn set_mutating_bindings(&self, bindings: &[Object]) {
        self.mutating.set_bindings(bindings);
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
            || self.mutating.any(|policy| matches(&policy.definition))
    }

    /// The index of the version that constraints match.
    pub(super) async fn matching_version(
        &self,
        constraints: &MatchResources,
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

    /// The namespace of the request; null for objects without one, and for Namespaces.
    pub(super) async fn namespace_object(
        &self,
        attributes: &AdmissionAttributes<'_>,
    ) -> Result<Value, Status> {
        if attributes.namespace.is_empty() || is_namespace(attributes) {
            return Ok(Value::Null);
        }
        let stored = self.namespaces.get_namespace(attributes.namespace).await?;
        let Some(namespace) = stored else {
            let resource = Gvr::from_static("", "v1", "namespaces");
            return Err(Status::not_found(&resource, attributes.namespace));
        };
        namespace.value().map_err(Status::internal)
    }

    /// Why the policy cannot be evaluated for any request.
    pub(super) fn configuration_error(&self, definition: &PolicyDefinition) -> Option<String> {
        let kind = definition.param_kind.as_ref()?;
        self.params.configuration_error(kind)
    }

    /// The parameters of a binding for a request.
    pub(super) async fn params(
        &self,
        definition: &PolicyDefinition,
        binding: &PolicyBinding,
        attributes: &AdmissionAttributes<'_>,
    ) -> Result<Vec<Value>, String> {
        let (kind, reference) = (definition.param_kind.as_ref(), binding.param_ref.as_ref());
        let namespace = attributes.namespace;
        self.params.collect(kind, reference, namespace).await
    }

    pub(super) fn authorizer(&self) -> &dyn ExpressionAuthorizer {
        &*self.authorizer
    }

    pub(super) fn apply_patch(&self, object: &Value, patch: &Value) -> Result<Value, String> {
        (self.apply_patch)(object, patch)
    }
}

/// The name of an object in the error that denies it.
pub(super) fn denied_object_name<'a>(
    attributes: &AdmissionAttributes<'a>,
    new: &'a Value,
) -> &'a str {
    let metadata = &new["metadata"];
    let names = [&metadata["name"], &metadata["generateName"]];
    let names = names.into_iter().filter_map(Value::as_str);
    let mut names = [attributes.name].into_iter().chain(names);
    names.find(|name| !name.is_empty()).unwrap_or("Unknown")
}

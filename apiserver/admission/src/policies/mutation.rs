//! Runs mutating policies for a request, in the order of their names
//! (`k8s.io/apiserver/pkg/admission/plugin/policy/mutating/dispatcher.go`).

use std::collections::HashSet;
use std::sync::Arc;

use machinery::Status;
use serde_json::Value;

use super::binding::PolicyBinding;
use super::definition::PolicyDefinition;
use super::dispatcher::{PolicyDispatcher, PolicyRequest, denied_object_name};
use super::mutating_policy::{MutatingPolicy, Mutation};
use crate::attributes::{ADMISSION_GROUP, AdmissionAttributes};
use crate::equivalent_versions::EquivalentVersions;
use crate::expressions::{
    MatchOutcome, RequestDecisions, VersionedRequest, evaluate_match_conditions,
};
use crate::webhooks::same_identity;

/// The changes that the mutating policies made to a request.
#[derive(Debug, Default)]
pub(crate) struct PolicyMutations {
    pub(crate) changed: bool,
    /// The policies with their bindings and parameters that may run again.
    reinvocable: HashSet<InvocationKey>,
}

/// The names of a policy, of its binding, and the namespace and name of the parameters.
type InvocationKey = (String, String, String);

/// A policy that applies to the request, with its parameters.
struct Invocation {
    policy: Arc<MutatingPolicy>,
    binding: Arc<PolicyBinding>,
    version: usize,
    param: Value,
}

/// Why a policy could not be evaluated.
struct PolicyError {
    message: String,
    reason: &'static str,
}

impl Invocation {
    fn key(&self) -> InvocationKey {
        let metadata = &self.param["metadata"];
        let name = |field: &str| metadata[field].as_str().unwrap_or_default();
        let param = format!("{}/{}", name("namespace"), name("name"));
        let policy = self.policy.definition.name.clone();
        (policy, self.binding.name.clone(), param)
    }
}

impl PolicyMutations {
    /// Whether any policy may run again.
    pub(crate) fn may_reinvoke(&self) -> bool {
        !self.reinvocable.is_empty()
    }
}

impl PolicyDispatcher {
    /// Runs the mutating policies. With `previous`, runs only the policies of that pass that ask
    /// for reinvocation.
    pub(crate) async fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        versions: &EquivalentVersions<'_>,
        new: &mut Value,
        old: Option<&Value>,
        previous: Option<&PolicyMutations>,
    ) -> Result<PolicyMutations, Status> {
        let mut done = PolicyMutations::default();
        let policies = self.mutating.in_force();
        if policies.is_empty() || new.is_null() || attributes.gvr.group == ADMISSION_GROUP {
            return Ok(done);
        }
        let mut errors = Vec::new();
        let request = PolicyRequest {
            attributes,
            versions,
            new,
            old,
        };
        let mut invocations = Vec::new();
        for bound in policies.iter() {
            self.collect_invocations(bound.parts(), request, &mut invocations, &mut errors)
                .await?;
        }
        if !invocations.is_empty() {
            let namespace = self.namespace_object(attributes).await?;
            let decisions = RequestDecisions::new(attributes.user, self.authorizer());
            for invocation in &invocations {
                let key = invocation.key();
                if previous.is_some_and(|previous| !previous.reinvocable.contains(&key)) {
                    continue;
                }
                let run = MutationRun {
                    dispatcher: self,
                    attributes,
                    versions,
                    old,
                    namespace: &namespace,
                    decisions: &decisions,
                };
                let Some(changed) = run.invoke(invocation, new, &mut errors).await? else {
                    continue;
                };
                done.changed |= changed;
                if invocation.policy.reinvoke {
                    done.reinvocable.insert(key);
                }
            }
        }
        match denial(&errors, attributes, new) {
            Some(status) => Err(status),
            None => Ok(done),
        }
    }

    async fn collect_invocations(
        &self,
        (policy, bindings): (&Arc<MutatingPolicy>, &[Arc<PolicyBinding>]),
        request: PolicyRequest<'_>,
        invocations: &mut Vec<Invocation>,
        errors: &mut Vec<PolicyError>,
    ) -> Result<(), Status> {
        let definition = &policy.definition;
        let Some(version) = self
            .matching_version(&definition.constraints, request)
            .await?
        else {
            return Ok(());
        };
        if let Some(message) = self.configuration_error(definition) {
            let message = format!("failed to configure policy: {message}");
            errors.extend(PolicyError::new(definition, None, &message, ""));
            return Ok(());
        }
        for binding in bindings {
            if let Some(constraints) = &binding.match_resources
                && self.matching_version(constraints, request).await?.is_none()
            {
                continue;
            }
            match self.params(definition, binding, request.attributes).await {
                Ok(params) => invocations.extend(params.into_iter().map(|param| Invocation {
                    policy: Arc::clone(policy),
                    binding: Arc::clone(binding),
                    version,
                    param,
                })),
                Err(message) => {
                    let message = format!("failed to configure binding: {message}");
                    errors.extend(PolicyError::new(definition, Some(binding), &message, ""));
                }
            }
        }
        Ok(())
    }
}

/// The parts that the invocations for one request share.
struct MutationRun<'a> {
    dispatcher: &'a PolicyDispatcher,
    attributes: &'a AdmissionAttributes<'a>,
    versions: &'a EquivalentVersions<'a>,
    old: Option<&'a Value>,
    namespace: &'a Value,
    decisions: &'a RequestDecisions<'a>,
}

impl MutationRun<'_> {
    /// Runs the mutations of one policy. Returns whether the object changed; `None` if the
    /// match conditions exclude the request or cannot be evaluated.
    async fn invoke(
        &self,
        invocation: &Invocation,
        new: &mut Value,
        errors: &mut Vec<PolicyError>,
    ) -> Result<Option<bool>, Status> {
        let (policy, version) = (&invocation.policy, invocation.version);
        let definition = &policy.definition;
        let matched = &self.versions.kinds[version].1;
        let objects = (&*new, self.old);
        let mut versioned =
            VersionedRequest::new(self.attributes, self.versions, version, matched, objects)
                .await?;
        let binding = Some(&*invocation.binding);
        if !definition.match_conditions.is_empty() {
            let outcome = self.decisions.evaluate(|decisions| {
                let inputs = versioned.inputs(&Value::Null, &invocation.param, decisions);
                let (conditions, ignore) =
                    (&definition.match_conditions, definition.ignore_failures);
                evaluate_match_conditions(&definition.expressions, conditions, ignore, inputs)
            });
            match outcome.await {
                MatchOutcome::Matches => {}
                MatchOutcome::Excluded => return Ok(None),
                MatchOutcome::Error(detail) => {
                    errors.extend(PolicyError::new(definition, binding, &detail, "Invalid"));
                    return Ok(None);
                }
            }
        }
        let before = versioned.object.clone();
        for mutation in &policy.mutations {
            match self.mutate(invocation, mutation, &versioned).await {
                Ok(object) => versioned.object = object,
                Err(detail) => {
                    errors.extend(PolicyError::new(definition, binding, &detail, "Invalid"))
                }
            }
        }
        if versioned.object == before {
            return Ok(Some(false));
        }
        let converter = self.versions.converter;
        let object = versioned.object;
        *new = converter.to_requested_version(version, object).await?;
        Ok(Some(true))
    }

    /// The object with one mutation.
    async fn mutate(
        &self,
        invocation: &Invocation,
        mutation: &Mutation,
        versioned: &VersionedRequest,
    ) -> Result<Value, String> {
        let evaluated = self.decisions.evaluate(|decisions| {
            let inputs = versioned.inputs(self.namespace, &invocation.param, decisions);
            invocation.policy.evaluate(mutation, inputs)
        });
        let mut change = evaluated.await?;
        let object = &versioned.object;
        let changed = if mutation.is_json_patch {
            self.dispatcher
                .apply_patch(object, &change)
                .map_err(|message| format!("JSON Patch: {message}"))?
        } else {
            for field in ["apiVersion", "kind"] {
                change[field] = object[field].clone();
            }
            let converter = self.versions.converter;
            converter
                .merge_configuration(invocation.version, object, &change)
                .map_err(|message| format!("error applying patch: {message}"))?
        };
        if !same_identity(object, &changed) {
            return Err("the patch changes the identity of the object".into());
        }
        Ok(changed)
    }
}

impl PolicyError {
    /// `None` if the policy ignores failures.
    fn new(
        definition: &PolicyDefinition,
        binding: Option<&PolicyBinding>,
        detail: &str,
        reason: &'static str,
    ) -> Option<Self> {
        let policy = &definition.name;
        let message = match binding {
            Some(binding) => {
                let binding = &binding.name;
                format!("policy '{policy}' with binding '{binding}' denied request: {detail}")
            }
            None => format!("policy {policy:?} denied request: {detail}"),
        };
        (!definition.ignore_failures).then_some(Self { message, reason })
    }
}

/// The denial that names all errors.
fn denial(
    errors: &[PolicyError],
    attributes: &AdmissionAttributes<'_>,
    new: &Value,
) -> Option<Status> {
    let first = errors.first()?;
    let name = denied_object_name(attributes, new);
    let mut status = Status::forbidden(attributes.gvr, name, "");
    status.message.clone_from(&first.message);
    if !first.reason.is_empty() {
        status.reason = first.reason.to_owned();
    }
    let causes = errors.iter();
    Some(causes.fold(status, |status, error| {
        status.with_cause("", &*error.message, "")
    }))
}

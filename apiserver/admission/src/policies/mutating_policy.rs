//! A MutatingAdmissionPolicy, compiled, and how it changes an object
//! (`k8s.io/apiserver/pkg/admission/plugin/policy/mutating`).

use kubernetes_cel::{
    AdmissionEvaluation, AdmissionEvaluationError, AdmissionExpression, AdmissionInputs,
    AuthorizationCheck, DeclaredAdmissionVariables, EvaluationBudget, OutputType,
};
use serde_json::Value;

use super::definition::PolicyDefinition;
use crate::unstructured::{items, text};

/// A policy and its mutations.
#[derive(Debug)]
pub(super) struct MutatingPolicy {
    pub(super) definition: PolicyDefinition,
    pub(super) mutations: Vec<Mutation>,
    /// Whether it runs again when the object changes after it ran.
    pub(super) reinvoke: bool,
}

/// One mutation of a policy.
#[derive(Debug)]
pub(super) struct Mutation {
    pub(super) is_json_patch: bool,
    expression: AdmissionExpression,
}

impl MutatingPolicy {
    pub(super) fn compile(name: &str, policy: &Value) -> Result<Self, String> {
        let definition = PolicyDefinition::compile(name, policy)?;
        let declared = DeclaredAdmissionVariables {
            patch_types: true,
            ..definition.declared_variables()
        };
        let mutations = items(policy, "/spec/mutations").iter().map(|mutation| {
            let is_json_patch = text(mutation, "/patchType") == "JSONPatch";
            let (field, output) = match is_json_patch {
                true => ("/jsonPatch/expression", OutputType::JsonPatch),
                false => (
                    "/applyConfiguration/expression",
                    OutputType::ApplyConfiguration,
                ),
            };
            let expression = text(mutation, field);
            Mutation {
                is_json_patch,
                expression: definition.expressions.compile(expression, output, declared),
            }
        });
        Ok(Self {
            mutations: mutations.collect(),
            reinvoke: text(policy, "/spec/reinvocationPolicy") == "IfNeeded",
            definition,
        })
    }

    /// The patch or configuration that a mutation computes, or why it cannot.
    pub(super) fn evaluate(
        &self,
        mutation: &Mutation,
        inputs: AdmissionInputs<'_>,
    ) -> Result<Result<Value, String>, Box<AuthorizationCheck>> {
        let expressions = &self.definition.expressions;
        let mut evaluation =
            AdmissionEvaluation::new(expressions, inputs, EvaluationBudget::POLICY);
        match evaluation.evaluate_mutation(&mutation.expression) {
            Ok(value) => Ok(Ok(value)),
            Err(AdmissionEvaluationError::Pending(check)) => Err(check),
            Err(AdmissionEvaluationError::Expression(message)) => Ok(Err(message)),
            Err(AdmissionEvaluationError::OutOfBudget) => Ok(Err(
                AdmissionEvaluationError::out_of_budget_text().to_owned(),
            )),
        }
    }
}

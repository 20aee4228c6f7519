//! The parts that validating and mutating policies have in common: constraints, match
//! conditions, variables, the kind of their parameters, and what happens when they fail.

use kubernetes_cel::{AdmissionExpression, AdmissionExpressions, DeclaredAdmissionVariables};
use machinery::Gvk;
use serde_json::Value;

use super::match_resources::MatchResources;
use crate::expressions::compile_match_conditions;
use crate::unstructured::{get, has, items, text};

/// The common part of a policy, compiled.
#[derive(Debug)]
pub(super) struct PolicyDefinition {
    pub(super) name: String,
    pub(super) constraints: MatchResources,
    pub(super) ignore_failures: bool,
    pub(super) param_kind: Option<Gvk>,
    pub(super) expressions: AdmissionExpressions,
    pub(super) match_conditions: Vec<AdmissionExpression>,
}

impl PolicyDefinition {
    /// Compiles the common part. Expressions that do not compile fail when they are
    /// evaluated.
    pub(super) fn compile(name: &str, policy: &Value) -> Result<Self, String> {
        let spec = get(policy, "/spec");
        let kind = get(spec, "/paramKind");
        let param_kind = has(spec, "/paramKind")
            .then(|| Gvk::from_api_version(text(kind, "/apiVersion"), text(kind, "/kind")));
        let declared = declared_variables(param_kind.is_some());
        let mut expressions = AdmissionExpressions::composed();
        for variable in items(spec, "/variables") {
            let (name, expression) = (text(variable, "/name"), text(variable, "/expression"));
            expressions.add_variable(name, expression, declared);
        }
        Ok(Self {
            name: name.to_owned(),
            constraints: MatchResources::parse(get(spec, "/matchConstraints"))?,
            ignore_failures: text(spec, "/failurePolicy") == "Ignore",
            match_conditions: compile_match_conditions(&expressions, spec, declared),
            param_kind,
            expressions,
        })
    }

    pub(super) fn declared_variables(&self) -> DeclaredAdmissionVariables {
        declared_variables(self.param_kind.is_some())
    }
}

fn declared_variables(params: bool) -> DeclaredAdmissionVariables {
    DeclaredAdmissionVariables {
        params,
        authorizer: true,
        patch_types: false,
    }
}

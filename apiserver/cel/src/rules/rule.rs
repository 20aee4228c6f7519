//! One rule of a schema, compiled.

use std::sync::Arc;

use machinery::go_pattern::PatternBudget;
use serde_json::Value as Json;

use crate::declarations::{Declaration, MAX_REQUEST_BYTES};
use crate::environment::Environment;
use crate::program::{OutputType, Program};
use crate::rules::field_path;

const SELF: usize = 0;
pub(super) const SELF_VARIABLE: &str = "self";
pub(super) const OLD_SELF_VARIABLE: &str = "oldSelf";

/// A rule, or why it cannot be evaluated.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) text: String,
    pub(super) message: String,
    pub(super) message_expression: String,
    pub(super) reason: Option<String>,
    /// Where the error is reported, below the value that the rule is about.
    pub(super) field_path: String,
    pub(super) optional_old_self: bool,
    /// `None` for an empty rule.
    pub(super) program: Option<Result<CompiledExpression, String>>,
    pub(super) message_program: Option<Result<CompiledExpression, String>>,
}

/// A compiled expression with the highest cost of one evaluation.
#[derive(Debug)]
pub(super) struct CompiledExpression {
    pub(super) program: Program,
    pub(super) max_cost: u64,
    pub(super) uses_old_self: bool,
}

impl Rule {
    /// Compiles one entry of `x-kubernetes-validations` for values of `schema`.
    pub(super) fn compile(
        rule: &Json,
        schema: &Json,
        declaration: &Arc<Declaration>,
        patterns: &PatternBudget,
    ) -> Self {
        let field = |name: &str| rule[name].as_str().unwrap_or("").to_owned();
        let optional_old_self = rule["optionalOldSelf"] == true;
        let environment = Environment::new()
            .with_patterns(patterns)
            .with(SELF_VARIABLE, Arc::clone(declaration), false)
            .with(
                OLD_SELF_VARIABLE,
                Arc::clone(declaration),
                optional_old_self,
            );
        let text = field("rule");
        let message_expression = field("messageExpression");
        let program = (!text.trim().is_empty()).then(|| {
            let failed = |message| format!("compilation failed: {message}");
            let type_error = "cel expression must evaluate to a bool";
            compile(&text, &environment, OutputType::Bool, type_error).map_err(|message| {
                match message {
                    CompileError::Syntax(message) => failed(message),
                    CompileError::Output(message) => message,
                }
            })
        });
        let compiled = matches!(program, Some(Ok(_)));
        let message_program = (compiled && !message_expression.is_empty()).then(|| {
            let failed = |message| format!("messageExpression compilation failed: {message}");
            let type_error = "messageExpression must evaluate to a string";
            compile(
                &message_expression,
                &environment,
                OutputType::String,
                type_error,
            )
            .map_err(|message| match message {
                CompileError::Syntax(message) => failed(message),
                CompileError::Output(message) => message,
            })
        });
        let field_path = field("fieldPath");
        Self {
            field_path: field_path::normalize(&field_path, schema).unwrap_or_default(),
            message: field("message"),
            reason: rule["reason"].as_str().map(str::to_owned),
            text,
            message_expression,
            optional_old_self,
            program,
            message_program,
        }
    }

    /// The rule in an error message.
    pub(super) fn describe(&self) -> &str {
        match self.message.trim() {
            "" => self.text.trim(),
            message => message,
        }
    }

    pub(super) fn uses_old_self(&self) -> bool {
        match &self.program {
            Some(Ok(compiled)) => compiled.uses_old_self,
            _ => false,
        }
    }
}

enum CompileError {
    Syntax(String),
    Output(String),
}

fn compile(
    text: &str,
    environment: &Environment,
    output: OutputType,
    wrong_output: &str,
) -> Result<CompiledExpression, CompileError> {
    let program = Program::compile(text, environment).map_err(CompileError::Syntax)?;
    if !program.has_output(output) {
        return Err(CompileError::Output(wrong_output.to_owned()));
    }
    let root = environment.variable(SELF).map(|v| &v.declaration);
    let max_cost = root.map_or(u64::MAX, |root| program.max_cost(environment, root));
    Ok(CompiledExpression {
        uses_old_self: program.uses(environment, OLD_SELF_VARIABLE),
        program,
        max_cost,
    })
}

/// How often a value can occur in one request.
pub(super) fn max_cardinality(declaration: &Declaration) -> u64 {
    // At least a comma stands between two values.
    MAX_REQUEST_BYTES / (declaration.min_serialized_size + 1)
}

//! Compiles the expressions of one policy, which share the variables that it composes.

use machinery::go_pattern::PatternBudget;

use crate::admission::variables::{
    self, AdmissionSchemas, DeclaredAdmissionVariables, FIRST_COMPOSED,
};
use crate::environment::Environment;
use crate::program::{OutputType, Program};
use crate::types::Type;

/// How deep expressions may be nested that refer to each other before their variables are
/// evaluated one after the other instead of when they are used.
const MAX_NESTING: usize = 100;

/// A compiled expression with its text, or why it does not compile.
#[derive(Debug)]
pub struct AdmissionExpression {
    pub(super) text: String,
    pub(super) program: Result<Program, String>,
}

impl AdmissionExpression {
    /// Why the expression does not compile.
    pub fn error(&self) -> Option<&str> {
        self.program.as_ref().err().map(String::as_str)
    }
}

/// A variable that a policy composes.
#[derive(Debug)]
pub(super) struct ComposedVariable {
    pub(super) name: String,
    pub(super) program: Result<Program, String>,
    /// The depth of its expression, including the expressions of the variables that it uses.
    nesting: usize,
}

/// Compiles expressions for admission.
#[derive(Debug)]
pub struct AdmissionExpressions {
    environment: Environment,
    pub(super) variables: Vec<ComposedVariable>,
    /// Whether the variables are evaluated in order before an expression.
    pub(super) in_order: bool,
}

impl AdmissionExpressions {
    /// Expressions that do not share variables.
    pub fn new() -> Self {
        Self::with_environment(variables::environment(false, AdmissionSchemas::default()))
    }

    /// Expressions that may use `variables`.
    pub fn composed() -> Self {
        Self::typed(AdmissionSchemas::default())
    }

    /// As [`AdmissionExpressions::composed`], for objects of known types.
    pub fn typed(schemas: AdmissionSchemas<'_>) -> Self {
        Self::with_environment(variables::environment(true, schemas))
    }

    /// The declarations of all variables.
    pub(super) fn environment(&self) -> &Environment {
        &self.environment
    }

    fn with_environment(environment: Environment) -> Self {
        Self {
            environment: environment.with_patterns(&PatternBudget::default()),
            variables: Vec::new(),
            in_order: false,
        }
    }

    /// Adds a variable for the expressions that are compiled later. Returns why it does not
    /// compile; it is of any type then.
    pub fn add_variable(
        &mut self,
        name: &str,
        expression: &str,
        declared: DeclaredAdmissionVariables,
    ) -> Option<String> {
        let mut program = self.program(expression, OutputType::Any, declared);
        let mut nesting = 0;
        if let Ok(program) = &mut program {
            let depth = program.depth();
            let used = program.variables().into_iter();
            let used = used.filter_map(|number| number.checked_sub(FIRST_COMPOSED));
            let depths = used
                .filter_map(|index| self.variables.get(index))
                .map(|v| v.nesting);
            nesting = depth + depths.max().unwrap_or(0);
        }
        self.in_order |= nesting > MAX_NESTING;
        let ty = program
            .as_ref()
            .map_or(Type::Dyn, |p| composed_type(p.output_type()));
        self.environment
            .add_computed(&variables::composed_name(name), ty);
        let error = program.as_ref().err().cloned();
        self.variables.push(ComposedVariable {
            name: name.to_owned(),
            program,
            nesting,
        });
        error
    }

    /// Compiles an expression.
    pub fn compile(
        &self,
        expression: &str,
        output: OutputType,
        declared: DeclaredAdmissionVariables,
    ) -> AdmissionExpression {
        AdmissionExpression {
            text: expression.to_owned(),
            program: self.program(expression, output, declared),
        }
    }

    fn program(
        &self,
        expression: &str,
        output: OutputType,
        declared: DeclaredAdmissionVariables,
    ) -> Result<Program, String> {
        let environment = variables::restrict(&self.environment, declared);
        let program = Program::compile(expression, &environment)
            .map_err(|message| format!("compilation failed: {message}"))?;
        if !program.has_output(output) {
            let (expected_type, output_type) = (output.describe(), program.output_type());
            return Err(format!("{expected_type} but got {output_type}"));
        }
        Ok(program)
    }
}

impl Default for AdmissionExpressions {
    fn default() -> Self {
        Self::new()
    }
}

/// The type of a composed variable: types of libraries and of objects are not passed on.
fn composed_type(ty: &Type) -> Type {
    match ty {
        Type::List(element) => Type::list(composed_type(element)),
        Type::Map(key, value) => Type::map(composed_type(key), composed_type(value)),
        Type::Null
        | Type::Bool
        | Type::Int
        | Type::Uint
        | Type::Double
        | Type::String
        | Type::Bytes
        | Type::Timestamp
        | Type::Duration => ty.clone(),
        _ => Type::Dyn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expressions_of_a_policy_share_a_bound_on_patterns() {
        let error = |expressions: &AdmissionExpressions, number: usize| {
            let expression = format!("'x'.matches('a{{900}}b{{900}}c{{{}}}')", number + 1);
            let declared = DeclaredAdmissionVariables::default();
            let compiled = expressions.compile(&expression, OutputType::Bool, declared);
            compiled.error().map(str::to_owned)
        };
        let policy = AdmissionExpressions::composed();
        let error_text = (0..300).find_map(|number| error(&policy, number)).unwrap();
        assert!(
            error_text.contains("the regular expressions of the object take more than"),
            "{error_text}"
        );
        assert_eq!(error(&AdmissionExpressions::composed(), 299), None);
    }
}

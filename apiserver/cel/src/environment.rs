//! The variables that an expression may use.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::declarations::Declaration;
use crate::types::Type;

/// Declares variables to expressions, in the order in which an evaluation gets their values.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: Vec<Variable>,
}

#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) declaration: Arc<Declaration>,
    /// Whether its value is an optional.
    pub(crate) optional: bool,
}

impl Environment {
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a variable that may hold any JSON value.
    #[must_use]
    pub fn with_any(self, name: &str) -> Self {
        self.with(name, Arc::new(Declaration::ANY), false)
    }

    /// Declares a variable with a structural schema. Values of a schema that expressions
    /// cannot see are of any type.
    #[must_use]
    pub fn with_schema(self, name: &str, schema: &Json) -> Self {
        let declaration = Declaration::from_schema(schema, false).unwrap_or(Declaration::ANY);
        self.with(name, Arc::new(declaration), false)
    }

    #[must_use]
    pub(crate) fn with(
        mut self,
        name: &str,
        declaration: Arc<Declaration>,
        optional: bool,
    ) -> Self {
        self.variables.push(Variable {
            name: name.to_owned(),
            declaration,
            optional,
        });
        self
    }

    pub(crate) fn find(&self, name: &str) -> Option<(usize, &Variable)> {
        let mut variables = self.variables.iter().enumerate();
        variables.find(|(_, variable)| variable.name == name)
    }

    pub(crate) fn variable(&self, number: usize) -> Option<&Variable> {
        self.variables.get(number)
    }
}

impl Variable {
    pub(crate) fn ty(&self) -> Type {
        let ty = self.declaration.cel_type();
        if self.optional {
            Type::optional(ty)
        } else {
            ty
        }
    }
}

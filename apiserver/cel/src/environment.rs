//! The variables that an expression may use.

use std::collections::HashMap;
use std::sync::Arc;

use machinery::go_pattern::PatternBudget;
use serde_json::Value as Json;

use crate::declarations::Declaration;
use crate::types::Type;

/// Declares variables to expressions, in the order in which an evaluation gets their values.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: Vec<Variable>,
    /// The numbers of the variables by name.
    index: HashMap<String, usize>,
    patch_types: bool,
    /// The patterns of the object whose expressions these are; without it each expression has a
    /// bound of its own.
    patterns: Option<PatternBudget>,
}

#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) declaration: Arc<Declaration>,
    /// Whether its value is an optional.
    pub(crate) optional: bool,
    /// The type of a computed value, which has no declaration.
    computed: Option<Type>,
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
        self.add(
            name,
            Variable {
                declaration,
                optional,
                computed: None,
            },
        );
        self
    }

    /// Declares a variable whose value is computed, and has this type.
    pub(crate) fn add_computed(&mut self, name: &str, ty: Type) {
        self.add(
            name,
            Variable {
                declaration: Arc::new(Declaration::ANY),
                optional: false,
                computed: Some(ty),
            },
        );
    }

    fn add(&mut self, name: &str, variable: Variable) {
        self.index.insert(name.to_owned(), self.variables.len());
        self.variables.push(variable);
    }

    /// Hides variables; the numbers of the others stay.
    pub(crate) fn hide(&mut self, names: &[&str]) {
        for name in names {
            self.index.remove(*name);
        }
    }

    /// Lets all expressions of one object share a bound on their patterns.
    #[must_use]
    pub(crate) fn with_patterns(mut self, patterns: &PatternBudget) -> Self {
        self.patterns = Some(patterns.clone());
        self
    }

    pub(crate) fn patterns(&self) -> PatternBudget {
        self.patterns.clone().unwrap_or_default()
    }

    /// Declares the types of patches: `Object`, those below it, and `JSONPatch`.
    pub(crate) fn set_patch_types(&mut self, declared: bool) {
        self.patch_types = declared;
    }

    pub(crate) fn has_patch_types(&self) -> bool {
        self.patch_types
    }

    pub(crate) fn find(&self, name: &str) -> Option<(usize, &Variable)> {
        let number = *self.index.get(name)?;
        Some((number, self.variables.get(number)?))
    }

    pub(crate) fn variable(&self, number: usize) -> Option<&Variable> {
        self.variables.get(number)
    }
}

impl Variable {
    pub(crate) fn ty(&self) -> Type {
        if let Some(ty) = &self.computed {
            return ty.clone();
        }
        let ty = self.declaration.cel_type();
        if self.optional {
            Type::optional(ty)
        } else {
            ty
        }
    }
}

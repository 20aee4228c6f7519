//! Declares variables whose fields keep their names in JSON, as the fields of types do that
//! Kubernetes declares itself: `request.resourceAttributes.namespace`, where a schema has
//! `__namespace__`.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::declarations::{Declaration, DeclaredField, DeclaredKind, ObjectDeclaration};
use crate::environment::Environment;

impl Environment {
    /// Declares a variable with a structural schema and unescaped names of fields.
    #[must_use]
    pub fn with_unescaped_schema(self, name: &str, schema: &Json) -> Self {
        let declaration = Declaration::from_schema(schema, false).unwrap_or(Declaration::ANY);
        self.with(name, Arc::new(unescaped(declaration)), false)
    }
}

fn unescaped(mut declaration: Declaration) -> Declaration {
    if let DeclaredKind::Object(object) = &declaration.kind {
        declaration.kind = DeclaredKind::Object(Arc::new(unescaped_object(object)));
    }
    declaration
}

fn unescaped_object(object: &ObjectDeclaration) -> ObjectDeclaration {
    let mut unescaped = ObjectDeclaration::default();
    for field in object.fields.values() {
        let declaration = match &field.declaration.kind {
            DeclaredKind::Object(inner) => Arc::new(Declaration {
                kind: DeclaredKind::Object(Arc::new(unescaped_object(inner))),
                ..*field.declaration
            }),
            _ => Arc::clone(&field.declaration),
        };
        let name = field.name.clone();
        unescaped.escaped.insert(name.clone(), name.clone());
        let field = DeclaredField {
            name: name.clone(),
            declaration,
        };
        unescaped.fields.insert(name, field);
    }
    unescaped
}

#[cfg(test)]
mod tests {
    use crate::{Environment, OutputType, Program};
    use serde_json::json;

    #[test]
    fn names_of_fields_are_those_of_json() {
        let text = json!({"type": "string"});
        let schema = json!({"type": "object", "properties": {
            "in_": text, "inner": {"type": "object", "properties": {"namespace": text}}}});
        let environment = Environment::new().with_unescaped_schema("request", &schema);
        let expression = "request.inner.namespace == 'a'";
        let program = Program::compile(expression, &environment).unwrap();
        assert!(program.has_output(OutputType::Bool));
        let request = json!({"inner": {"namespace": "a"}});
        let evaluated = program.evaluate_json(&environment, &[Some(&request)]);
        assert_eq!(evaluated.result.unwrap(), json!(true));
        assert!(Program::compile("request.inner.__namespace__ == 'a'", &environment).is_err());
    }
}

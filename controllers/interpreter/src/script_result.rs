//! Converts the results of scripts into decisions.
//!
//! The error of an invalid result names the customization and the function. Pure. Source: Karmada's
//! `luavm/lua.go` and `pkg/util/interpreter/validation`.

use std::sync::Arc;

use karmada_api::DependentObjectReference;
use karmada_api::binding::Component;
use machinery::Quantity;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::customizations::CustomizationScript;
use crate::lua::LuaCallError;
use crate::native::dependencies::validate_dependencies;
use crate::native::{Error, TemplateReplicas};
use crate::operation::InterpreterOperation;

/// The results of one script.
pub(crate) struct ScriptResult {
    customization: Arc<str>,
    operation: InterpreterOperation,
    values: [Option<Value>; 2],
}

impl ScriptResult {
    pub(crate) fn new(
        rule: &CustomizationScript,
        operation: InterpreterOperation,
        values: Result<[Option<Value>; 2], LuaCallError>,
    ) -> Result<Self, Error> {
        let mut result = Self {
            customization: Arc::clone(&rule.customization),
            operation,
            values: [None, None],
        };
        match values {
            Ok(values) => {
                result.values = values;
                Ok(result)
            }
            Err(error @ LuaCallError::Failed(_)) => Err(result.error(error)),
            Err(error @ LuaCallError::Refused(_)) => Err(Error::ScriptRefused {
                customization: result.customization.to_string(),
                function: operation.lua_function(),
                why: error.to_string(),
            }),
        }
    }

    fn error(&self, error: impl ToString) -> Error {
        Error::Script {
            customization: self.customization.to_string(),
            function: self.operation.lua_function(),
            why: error.to_string(),
        }
    }

    fn type_error(&self, expected: &str, got: Option<&Value>) -> Error {
        let got = match got {
            None => "nil",
            Some(Value::Bool(_)) => "boolean",
            Some(Value::Number(_)) => "number",
            Some(Value::String(_)) => "string",
            Some(_) => "table",
        };
        self.error(format!(
            "expect the returned type is {expected} but got {got}"
        ))
    }

    /// Whose script it is.
    pub(crate) fn source(&self) -> String {
        format!("ResourceInterpreterCustomization {}", self.customization)
    }

    /// The first result, which must be a table.
    fn take_table(&mut self) -> Result<Value, Error> {
        match self.values[0].take() {
            Some(table @ (Value::Object(_) | Value::Array(_))) => Ok(table),
            other => Err(self.type_error("table", other.as_ref())),
        }
    }

    pub(crate) fn replicas(mut self) -> Result<TemplateReplicas, Error> {
        let [count, requirements] = std::mem::take(&mut self.values);
        let Some(Value::Number(number)) = count else {
            return Err(self.type_error("number", count.as_ref()));
        };
        // A fraction is cut off.
        let count = number.as_i64().or(number.as_f64().map(|n| n as i64));
        let requirements = match requirements {
            None => None,
            Some(Value::Object(fields)) => {
                Some(canonical_requirements(fields).map_err(|error| self.error(error))?)
            }
            other => return Err(self.type_error("table", other.as_ref())),
        };
        Ok(TemplateReplicas {
            count: count.unwrap_or(0),
            requirements,
        })
    }

    /// The components, sorted by name; nil stands for none.
    pub(crate) fn components(mut self) -> Result<Vec<Component>, Error> {
        if self.values[0].is_none() {
            return Ok(Vec::new());
        }
        let table = self.take_table()?;
        let components = Vec::<Component>::deserialize(table).map_err(|e| self.error(e))?;
        let canonicalize = |mut component: Component| {
            component.replica_requirements = match component.replica_requirements {
                Some(Value::Object(fields)) => Some(canonical_requirements(fields)?),
                None => None,
                Some(_) => return Err("replicaRequirements is not an object".to_owned()),
            };
            Ok(component)
        };
        let canonical: Result<Vec<_>, String> = components.into_iter().map(canonicalize).collect();
        let mut components = canonical.map_err(|error| self.error(error))?;
        components.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(components)
    }

    /// The first result, which must be an object.
    pub(crate) fn object(mut self) -> Result<Value, Error> {
        match self.take_table()? {
            object @ Value::Object(_) => Ok(object),
            _ => Err(self.error("expect the returned table is an object but got a list")),
        }
    }

    /// The first result as a status: any table.
    pub(crate) fn status(mut self) -> Result<Value, Error> {
        self.take_table()
    }

    pub(crate) fn health(self) -> Result<bool, Error> {
        match &self.values[0] {
            Some(Value::Bool(healthy)) => Ok(*healthy),
            other => Err(self.type_error("bool", other.as_ref())),
        }
    }

    pub(crate) fn dependencies(mut self) -> Result<Vec<DependentObjectReference>, Error> {
        let table = self.take_table()?;
        let dependencies =
            Vec::<DependentObjectReference>::deserialize(table).map_err(|e| self.error(e))?;
        validate_dependencies(&dependencies).map_err(|error| self.error(error))?;
        Ok(dependencies)
    }
}

/// The dependencies of all scripts together, sorted, without duplicates.
pub(crate) fn union_dependencies(
    all: Vec<ScriptResult>,
) -> Result<Vec<DependentObjectReference>, Error> {
    let mut union: Vec<DependentObjectReference> = Vec::new();
    for returned in all {
        for dependency in returned.dependencies()? {
            if !union.contains(&dependency) {
                union.push(dependency);
            }
        }
    }
    union.sort_by(|a, b| {
        let key = |d: &'_ DependentObjectReference| {
            [&d.api_version, &d.kind, &d.namespace, &d.name].map(String::clone)
        };
        key(a).cmp(&key(b))
    });
    Ok(union)
}

/// Replica requirements with every quantity in its canonical form.
pub(crate) fn canonical_requirements(mut fields: Map<String, Value>) -> Result<Value, String> {
    match fields.get_mut("resourceRequest") {
        None => {}
        Some(Value::Object(amounts)) => {
            for (name, amount) in amounts {
                let quantity = Quantity::from_value(amount);
                let quantity = quantity.map_err(|e| format!("resourceRequest: {name}: {e}"))?;
                *amount = quantity.to_string().into();
            }
        }
        Some(_) => return Err("resourceRequest is not an object".into()),
    }
    Ok(Value::Object(fields))
}

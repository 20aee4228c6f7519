//! Tests of whole expressions.

mod bounds;
mod evaluation;

use serde_json::{Value as Json, json};

use crate::environment::Environment;
use crate::error::EvalError;
use crate::program::Program;

/// An object for expressions to look into.
fn sample() -> Json {
    json!({
        "name": "web", "replicas": 3, "ratio": 0.5, "on": true, "nothing": null,
        "tags": ["a", "b", "c"], "numbers": [3, 1, 2],
        "labels": {"app": "web", "tier": "front"},
        "nested": {"deep": [{"k": "x", "v": 1}, {"k": "y", "v": 2}]},
    })
}

/// The value of an expression about the variable `x`, or its error.
fn evaluate(expression: &str, x: &Json) -> Result<Json, String> {
    let environment = Environment::new().with_any("x");
    let program = Program::compile(expression, &environment)?;
    let evaluation = program.evaluate_json(&environment, &[Some(x)]);
    evaluation
        .result
        .map_err(|message: EvalError| message.to_string())
}

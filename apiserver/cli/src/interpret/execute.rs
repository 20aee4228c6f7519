//! Executes an interpreter operation on objects from files, as
//! `karmadactl interpret` does.

use interpreter::{InterpreterOperation, LuaLimits, ResourceInterpreter};
use karmada_api::binding::AggregatedStatusItem;
use machinery::time::{Clock, SystemClock};
use machinery::{Gvk, Object};
use serde_json::{Value, json};

/// The inputs of an operation.
pub(super) struct InterpreterOperationInputs {
    pub(super) desired: Option<Value>,
    pub(super) observed: Option<Value>,
    /// The status items of `--status-file`; `None` without the flag.
    pub(super) items: Option<Vec<AggregatedStatusItem>>,
    pub(super) replicas: i64,
}

const RULE_NOT_ENABLED: &str = "rule is not enabled";

impl InterpreterOperationInputs {
    fn desired(&self) -> Result<&Value, String> {
        let desired = self.desired.as_ref();
        desired.ok_or_else(|| "desired, desired-file options are not set".into())
    }

    fn observed(&self) -> Result<&Value, String> {
        let observed = self.observed.as_ref();
        observed.ok_or_else(|| "observed, observed-file options are not set".into())
    }

    /// The object of an operation on one object, given as desired or observed.
    fn object(&self) -> Result<&Value, String> {
        match (&self.desired, &self.observed) {
            (Some(one), None) | (None, Some(one)) => Ok(one),
            (None, None) => Err("desired-file, observed-file options are not set".into()),
            (Some(_), Some(_)) => {
                Err("you can not specify both desired-file and observed-file options".into())
            }
        }
    }
}

/// The results by name. With customizations, only these are executed, and not the
/// built-in rules.
pub(super) async fn execute(
    customizations: &[Object],
    operation: InterpreterOperation,
    inputs: &InterpreterOperationInputs,
) -> Result<Vec<(&'static str, Value)>, String> {
    let interpreter =
        ResourceInterpreter::from_customizations(customizations, LuaLimits::default());
    let tree = match operation {
        InterpreterOperation::Retain => inputs.desired()?,
        _ => inputs.object()?,
    };
    let text = |field: &str| tree[field].as_str().unwrap_or_default();
    let kind = Gvk::from_api_version(text("apiVersion"), text("kind"));
    let customized = interpreter.has_customization(&kind, operation);
    if !customizations.is_empty() && !customized {
        return Err(RULE_NOT_ENABLED.into());
    }
    let object = Object::from_value(tree).map_err(|e| e.to_string())?;
    let outputs = Box::pin(run_operation(
        &interpreter,
        operation,
        &kind,
        &object,
        inputs,
    ))
    .await?;
    let results = outputs.into_iter();
    let results = results.map(|(name, value)| Some((name, value?)));
    results
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| RULE_NOT_ENABLED.into())
}

/// The outputs of an operation by name; `None` for one that no rule has.
async fn run_operation(
    interpreter: &ResourceInterpreter,
    operation: InterpreterOperation,
    kind: &Gvk,
    object: &Object,
    inputs: &InterpreterOperationInputs,
) -> Result<Vec<(&'static str, Option<Value>)>, String> {
    let text_of = |e: interpreter::Error| e.to_string();
    Ok(match operation {
        InterpreterOperation::Retain => {
            let observed = inputs.observed()?;
            let desired = inputs.desired()?.clone();
            let retained = interpreter.retain(kind, desired, observed).await;
            vec![("retained", Some(retained.map_err(text_of)?))]
        }
        InterpreterOperation::InterpretReplica => {
            let replicas = interpreter.replicas(kind, object).await;
            let replicas = replicas.map_err(text_of)?.ok_or(RULE_NOT_ENABLED)?;
            let requires = json!(replicas.requirements);
            vec![
                ("replica", Some(replicas.count.into())),
                ("requires", Some(requires)),
            ]
        }
        InterpreterOperation::InterpretComponent => {
            let components = interpreter.components(kind, object).await;
            vec![(
                "components",
                components.map_err(text_of)?.map(|all| json!(all)),
            )]
        }
        InterpreterOperation::ReviseReplica => {
            let template = inputs.object()?.clone();
            let revised = interpreter
                .revise_replica(kind, template, inputs.replicas)
                .await;
            vec![("revised", Some(revised.map_err(text_of)?))]
        }
        InterpreterOperation::InterpretStatus => {
            let status = interpreter.reflect_status(kind, object).await;
            vec![("status", Some(json!(status.map_err(text_of)?)))]
        }
        InterpreterOperation::AggregateStatus => {
            let now = SystemClock.now();
            let summed =
                interpreter.with_aggregated_status(kind, object, inputs.items.as_deref(), now);
            vec![("aggregatedStatus", summed.await.map_err(text_of)?)]
        }
        InterpreterOperation::InterpretHealth => {
            let healthy = interpreter.interpret_health(kind, object).await;
            vec![("healthy", healthy.map_err(text_of)?.map(Value::Bool))]
        }
        InterpreterOperation::InterpretDependency => {
            let dependencies = interpreter.dependencies(kind, object).await;
            let dependencies = dependencies.map_err(text_of)?;
            vec![("dependencies", dependencies.map(|all| json!(all)))]
        }
    })
}

/// The results as YAML documents, without a line feed at the end.
pub(super) fn encode_results(results: &[(&'static str, Value)]) -> anyhow::Result<String> {
    let mut lines = Vec::new();
    for (at, (name, value)) in (1..).zip(results) {
        lines.push("---".to_owned());
        lines.push(format!("# [{at}/{}] {name}:", results.len()));
        lines.push(serde_saphyr::to_string(value)?.trim_end().to_owned());
    }
    Ok(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment() -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "generation": 1},
            "spec": {"replicas": 2, "template": {"spec": {"serviceAccountName": "robot",
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}}})
    }

    fn customization(field: &str, script: &str) -> Object {
        let spec = json!({"target": {"apiVersion": "apps/v1", "kind": "Deployment"},
            "customizations": {field: {"luaScript": script}}});
        Object::from_value(&json!({"metadata": {"name": "mine"}, "spec": spec})).unwrap()
    }

    async fn execute_documents(
        customizations: &[Object],
        operation: InterpreterOperation,
        change: impl Fn(&mut InterpreterOperationInputs),
    ) -> Result<String, String> {
        let mut inputs = InterpreterOperationInputs {
            desired: Some(deployment()),
            observed: None,
            items: None,
            replicas: 5,
        };
        change(&mut inputs);
        let results = execute(customizations, operation, &inputs).await?;
        Ok(encode_results(&results).unwrap())
    }

    // proves: CLI-interpret
    #[tokio::test]
    async fn results_are_documents_under_their_names() {
        let replicas = execute_documents(&[], InterpreterOperation::InterpretReplica, |_| {}).await;
        assert_eq!(
            replicas.unwrap(),
            "---\n# [1/2] replica:\n2\n---\n# [2/2] requires:\nresourceRequest:\n  cpu: \"1\""
        );
        let custom = customization("replicaResource", "function GetReplicas(o) return 7 end");
        let replicas = execute_documents(
            std::slice::from_ref(&custom),
            InterpreterOperation::InterpretReplica,
            |_| {},
        )
        .await;
        assert_eq!(
            replicas.unwrap(),
            "---\n# [1/2] replica:\n7\n---\n# [2/2] requires:\nnull"
        );
        let revised = execute_documents(&[], InterpreterOperation::ReviseReplica, |_| {})
            .await
            .unwrap();
        assert!(
            revised.starts_with("---\n# [1/1] revised:\n") && revised.contains("replicas: 5"),
            "{revised}"
        );
        let items = |inputs: &mut InterpreterOperationInputs| {
            inputs.items = serde_json::from_value(json!([
                {"clusterName": "m1", "status": {"replicas": 1}},
                {"clusterName": "m2", "status": {"replicas": 2}}]))
            .unwrap();
        };
        let summed = execute_documents(&[], InterpreterOperation::AggregateStatus, items)
            .await
            .unwrap();
        assert!(
            summed.contains("# [1/1] aggregatedStatus:") && summed.contains("replicas: 3"),
            "{summed}"
        );
        let dependencies =
            execute_documents(&[], InterpreterOperation::InterpretDependency, |_| {}).await;
        assert!(dependencies.unwrap().contains("name: robot"));
        // With a customization, the built-in rules are not executed.
        let other =
            execute_documents(&[custom], InterpreterOperation::InterpretDependency, |_| {}).await;
        assert_eq!(other, Err(RULE_NOT_ENABLED.into()));
        let none = execute_documents(&[], InterpreterOperation::InterpretComponent, |_| {}).await;
        assert_eq!(none, Err(RULE_NOT_ENABLED.into()));
    }

    #[tokio::test]
    async fn missing_and_conflicting_inputs_are_errors() {
        let nothing = |inputs: &mut InterpreterOperationInputs| inputs.desired = None;
        let both = |inputs: &mut InterpreterOperationInputs| inputs.observed = Some(deployment());
        let retained = |inputs: &mut InterpreterOperationInputs| {
            let mut observed = deployment();
            observed["metadata"]["labels"] = json!({});
            inputs.observed = Some(observed);
        };
        let status = InterpreterOperation::InterpretStatus;
        assert!(
            execute_documents(&[], status, nothing)
                .await
                .unwrap_err()
                .contains("not set")
        );
        assert!(
            execute_documents(&[], status, both)
                .await
                .unwrap_err()
                .contains("not specify both")
        );
        let retain = InterpreterOperation::Retain;
        assert!(
            execute_documents(&[], retain, |_| {})
                .await
                .unwrap_err()
                .contains("observed-file")
        );
        assert!(
            execute_documents(&[], retain, retained)
                .await
                .unwrap()
                .contains("# [1/1] retained:")
        );
        let broken = customization(
            "statusReflection",
            "function ReflectStatus(o) error('no') end",
        );
        let error = execute_documents(&[broken], status, |_| {})
            .await
            .unwrap_err();
        assert!(
            error.contains("mine: ReflectStatus: script:1: no"),
            "{error}"
        );
    }
}

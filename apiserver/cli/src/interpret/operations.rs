//! The interpreter operations by the names that the command accepts and prints.

use interpreter::InterpreterOperation;

/// The operations with their names, in the order of the output.
pub(super) const OPERATIONS: [(InterpreterOperation, &str); 8] = [
    (InterpreterOperation::Retain, "Retain"),
    (InterpreterOperation::InterpretReplica, "InterpretReplica"),
    (
        InterpreterOperation::InterpretComponent,
        "InterpretComponent",
    ),
    (InterpreterOperation::ReviseReplica, "ReviseReplica"),
    (InterpreterOperation::InterpretStatus, "InterpretStatus"),
    (InterpreterOperation::AggregateStatus, "AggregateStatus"),
    (InterpreterOperation::InterpretHealth, "InterpretHealth"),
    (
        InterpreterOperation::InterpretDependency,
        "InterpretDependency",
    ),
];

pub(super) fn parse_operation(text: &str) -> Result<InterpreterOperation, String> {
    let mut all = OPERATIONS.into_iter();
    let operation_and_name = all.find(|(_, name)| name.eq_ignore_ascii_case(text));
    operation_and_name
        .map(|(operation, _)| operation)
        .ok_or_else(|| {
            let names = OPERATIONS.map(|(_, name)| name).join(", ");
            format!("operation {text} is not supported. Use one of: {names}")
        })
}

pub(super) fn operation_name(operation: InterpreterOperation) -> &'static str {
    let mut all = OPERATIONS.into_iter();
    all.find(|(one, _)| *one == operation)
        .map_or("", |(_, name)| name)
}

pub(super) fn operation_docs() -> String {
    let description = |operation| match operation {
        InterpreterOperation::Retain => {
            "(desiredObj, observedObj): the desired object with the fields that the member keeps"
        }
        InterpreterOperation::InterpretReplica => {
            "(desiredObj): the number of replicas, and the requirements of one replica or nil"
        }
        InterpreterOperation::InterpretComponent => {
            "(desiredObj): a list of {name, replicas, replicaRequirements}, or nil"
        }
        InterpreterOperation::ReviseReplica => {
            "(desiredObj, replica): the object with that many replicas"
        }
        InterpreterOperation::InterpretStatus => {
            "(observedObj): the part of its status that is collected"
        }
        InterpreterOperation::AggregateStatus => {
            "(desiredObj, statusItems): the object with the status of all {clusterName, status}"
        }
        InterpreterOperation::InterpretHealth => "(observedObj): whether it is healthy",
        InterpreterOperation::InterpretDependency => {
            "(desiredObj): a list of {apiVersion, kind, namespace, name or labelSelector}"
        }
    };
    let lines = OPERATIONS.map(|(operation, name)| {
        let (field, function) = (operation.customization_field(), operation.lua_function());
        format!(
            "{name} (spec.customizations.{field})\n    function {function}{}",
            description(operation)
        )
    });
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_named_in_any_case() {
        for (text, expected) in [
            ("retain", Some(InterpreterOperation::Retain)),
            (
                "InterpretReplica",
                Some(InterpreterOperation::InterpretReplica),
            ),
            (
                "AGGREGATESTATUS",
                Some(InterpreterOperation::AggregateStatus),
            ),
            ("Prune", None),
        ] {
            assert_eq!(parse_operation(text).ok(), expected, "{text}");
        }
        assert_eq!(OPERATIONS.len(), InterpreterOperation::ALL.len());
        assert!(operation_docs().contains("function GetReplicas(desiredObj)"));
    }
}

//! Prints FlowSchemas and PriorityLevelConfigurations.

use serde_json::Value;

use super::PrintHandler;
use super::printer_input::{NONE, condition};

pub(super) const FLOW_SCHEMA: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("PriorityLevel", "string"),
        ("MatchingPrecedence", "string"),
        ("DistinguisherMethod", "string"),
        ("Age", "string"),
        ("MissingPL", "string"),
    ],
    wide_columns: &[],
    cells: |row| {
        let dangling = condition(row.value("/status/conditions"), "Dangling");
        vec![
            row.name(),
            row.text("/spec/priorityLevelConfiguration/name").into(),
            row.number("/spec/matchingPrecedence").into(),
            row.text_or("/spec/distinguisherMethod/type", NONE).into(),
            row.age(),
            dangling.unwrap_or("?").into(),
        ]
    },
};

pub(super) const PRIORITY_LEVEL_CONFIGURATION: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("Type", "string"),
        ("NominalConcurrencyShares", "string"),
        ("Queues", "string"),
        ("HandSize", "string"),
        ("QueueLengthLimit", "string"),
        ("Age", "string"),
    ],
    wide_columns: &[],
    cells: |row| {
        let number = |pointer: &str| match row.value(pointer) {
            Value::Null => NONE.into(),
            number => number.clone(),
        };
        let queuing = |field: &str| number(&format!("/spec/limited/limitResponse/queuing/{field}"));
        vec![
            row.name(),
            row.text("/spec/type").into(),
            number("/spec/limited/nominalConcurrencyShares"),
            queuing("queues"),
            queuing("handSize"),
            queuing("queueLengthLimit"),
            row.age(),
        ]
    },
};

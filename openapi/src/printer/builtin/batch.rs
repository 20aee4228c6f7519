//! Prints Jobs and CronJobs.

use serde_json::Value;

use super::Table;
use super::cells::{NONE, Row, between, or, truth};
use crate::printer::age;

const WIDE: &[&str] = &["Containers", "Images", "Selector"];

pub(super) const JOB: Table = Table {
    columns: &[
        ("Name", "string"),
        ("Status", "string"),
        ("Completions", "string"),
        ("Duration", "string"),
        ("Age", "string"),
        ("Containers", "string"),
        ("Images", "string"),
        ("Selector", "string"),
    ],
    wide: WIDE,
    cells: |row| {
        let (names, images) = row.containers("/spec/template/spec");
        vec![
            row.name(),
            status(row).into(),
            completions(row).into(),
            duration(row).into(),
            row.age(),
            names,
            images,
            or(row.selector("/spec/selector"), NONE).into(),
        ]
    },
};

fn status(row: &Row<'_>) -> &'static str {
    if row.condition("Complete") {
        "Complete"
    } else if row.condition("Failed") {
        "Failed"
    } else if row.leaving() {
        "Terminating"
    } else if row.condition("Suspended") {
        "Suspended"
    } else if row.condition("FailureTarget") {
        "FailureTarget"
    } else if row.condition("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

fn completions(row: &Row<'_>) -> String {
    let succeeded = row.number("/status/succeeded");
    if let Some(completions) = row.at("/spec/completions").as_i64() {
        return format!("{succeeded}/{completions}");
    }
    match row.number("/spec/parallelism") {
        parallelism @ 2.. => format!("{succeeded}/1 of {parallelism}"),
        _ => format!("{succeeded}/1"),
    }
}

fn duration(row: &Row<'_>) -> String {
    match (
        row.text("/status/startTime"),
        row.text("/status/completionTime"),
    ) {
        ("", _) => String::new(),
        (start, "") => age(start, row.now),
        (start, end) => between(start, end).unwrap_or_default(),
    }
}

pub(super) const CRON_JOB: Table = Table {
    columns: &[
        ("Name", "string"),
        ("Schedule", "string"),
        ("Timezone", "string"),
        ("Suspend", "boolean"),
        ("Active", "integer"),
        ("Last Schedule", "string"),
        ("Age", "string"),
        ("Containers", "string"),
        ("Images", "string"),
        ("Selector", "string"),
    ],
    wide: WIDE,
    cells: |row| {
        let last = match row.text("/status/lastScheduleTime") {
            "" => NONE.to_owned(),
            last => row.since(last),
        };
        let (names, images) = row.containers("/spec/jobTemplate/spec/template/spec");
        vec![
            row.name(),
            row.text("/spec/schedule").into(),
            row.text_or("/spec/timeZone", NONE).into(),
            Value::from(truth(row.at("/spec/suspend"))),
            row.count("/status/active").into(),
            last.into(),
            row.age(),
            names,
            images,
            or(row.selector("/spec/jobTemplate/spec/selector"), NONE).into(),
        ]
    },
};

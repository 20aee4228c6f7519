//! Prints Jobs and CronJobs.

use serde_json::Value;

use super::PrintHandler;
use super::printer_input::{NONE, PrinterInput, elapsed, format_bool, or_default};
use crate::age;

const WIDE_COLUMNS: &[&str] = &["Containers", "Images", "Selector"];

pub(super) const JOB: PrintHandler = PrintHandler {
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
    wide_columns: WIDE_COLUMNS,
    cells: |row| {
        let (names, images) = row.containers("/spec/template/spec");
        vec![
            row.name(),
            job_status(row).into(),
            job_completions(row).into(),
            job_duration(row).into(),
            row.age(),
            names,
            images,
            or_default(row.selector("/spec/selector"), NONE).into(),
        ]
    },
};

fn job_status(row: &PrinterInput<'_>) -> &'static str {
    if row.condition("Complete") {
        "Complete"
    } else if row.condition("Failed") {
        "Failed"
    } else if row.is_deleting() {
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

fn job_completions(row: &PrinterInput<'_>) -> String {
    let succeeded = row.number("/status/succeeded");
    if let Some(completions) = row.value("/spec/completions").as_i64() {
        return format!("{succeeded}/{completions}");
    }
    match row.number("/spec/parallelism") {
        parallelism @ 2.. => format!("{succeeded}/1 of {parallelism}"),
        _ => format!("{succeeded}/1"),
    }
}

fn job_duration(row: &PrinterInput<'_>) -> String {
    match (
        row.text("/status/startTime"),
        row.text("/status/completionTime"),
    ) {
        ("", _) => String::new(),
        (start, "") => age(start, row.now),
        (start, end) => elapsed(start, end).unwrap_or_default(),
    }
}

pub(super) const CRON_JOB: PrintHandler = PrintHandler {
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
    wide_columns: WIDE_COLUMNS,
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
            Value::from(format_bool(row.value("/spec/suspend"))),
            row.count("/status/active").into(),
            last.into(),
            row.age(),
            names,
            images,
            or_default(row.selector("/spec/jobTemplate/spec/selector"), NONE).into(),
        ]
    },
};

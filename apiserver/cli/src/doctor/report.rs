//! The results of checks, and how they are printed.

use serde::Serialize;

use crate::printers::format_table;

/// Results of one check and status that are printed; `-o wide`, json and yaml have all.
const MAX_PRINTED_RESULTS: usize = 20;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckStatus {
    Ok,
    /// The subject of the check could not be read.
    Unknown,
    Warning,
    Error,
}

impl CheckStatus {
    /// The word for the status.
    pub fn text(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckResult {
    pub check: &'static str,
    pub status: CheckStatus,
    pub message: String,
    /// The remedy; empty if nothing has to be done.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

/// Collects the results of one check.
#[derive(Debug)]
pub(super) struct CheckResults {
    check: &'static str,
    results: Vec<CheckResult>,
}

impl CheckResults {
    pub(super) fn new(check: &'static str) -> Self {
        Self {
            check,
            results: Vec::new(),
        }
    }

    pub(super) fn add(
        &mut self,
        status: CheckStatus,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.results.push(CheckResult {
            check: self.check,
            status,
            message: message.into(),
            remedy: remedy.into(),
        });
    }

    pub(super) fn warn(&mut self, message: impl Into<String>, remedy: impl Into<String>) {
        self.add(CheckStatus::Warning, message, remedy);
    }

    pub(super) fn fail(&mut self, message: impl Into<String>, remedy: impl Into<String>) {
        self.add(CheckStatus::Error, message, remedy);
    }

    /// The subject of the check could not be read.
    pub(super) fn unknown(&mut self, message: impl Into<String>, remedy: impl Into<String>) {
        self.add(CheckStatus::Unknown, message, remedy);
    }

    /// The results; one that all is well if nothing was found.
    pub(super) fn or_well(mut self, message: impl Into<String>) -> Vec<CheckResult> {
        if self.results.is_empty() {
            self.add(CheckStatus::Ok, message, "");
        }
        self.results
    }
}

/// All results.
#[derive(Clone, Debug, Serialize)]
pub struct DoctorReport {
    pub server: String,
    pub errors: usize,
    pub warnings: usize,
    pub checks: Vec<CheckResult>,
}

impl DoctorReport {
    pub(super) fn new(server: String, checks: Vec<CheckResult>) -> Self {
        let count = |status| checks.iter().filter(|c| c.status == status).count();
        Self {
            server,
            errors: count(CheckStatus::Error),
            warnings: count(CheckStatus::Warning),
            checks,
        }
    }

    /// One line per result, and a sum.
    pub(crate) fn lines(&self, all: bool) -> String {
        let most = if all { usize::MAX } else { MAX_PRINTED_RESULTS };
        let mut rows: Vec<Vec<String>> = Vec::new();
        let (mut previous, mut same) = (None, 0);
        let row = |result: &CheckResult, message: String, remedy: String| {
            let status = result.status.text().to_owned();
            vec![status, result.check.to_owned(), message, remedy]
        };
        for result in &self.checks {
            let group = Some((result.check, result.status));
            same = if previous == group { same + 1 } else { 1 };
            previous = group;
            if same <= most {
                rows.push(row(result, result.message.clone(), result.remedy.clone()));
            } else if same == most + 1 {
                let more = "there are more of these".to_owned();
                rows.push(row(result, more, "list all with -o wide".to_owned()));
            }
        }
        let table = format_table(&["STATUS", "CHECK", "MESSAGE", "REMEDY"], &rows);
        format!("{table}\n\n{}", self.summary())
    }

    fn summary(&self) -> String {
        let counted = |n: usize, what: &str| match n {
            1 => format!("1 {what}"),
            n => format!("{n} {what}s"),
        };
        format!(
            "{} and {} at {}",
            counted(self.errors, "error"),
            counted(self.warnings, "warning"),
            self.server
        )
    }
}

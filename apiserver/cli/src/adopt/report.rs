//! The results of an adoption, as a table with the differences below it, or as JSON and YAML.

use serde::Serialize;

use crate::field_differences::FieldDifference;
use crate::printers::format_table;

/// The outcome for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum AdoptionResult {
    /// A Work carries the object, which is the same as before.
    Adopted,
    /// It would be adopted without the dry run.
    Adoptable,
    /// The Work has not reached the member yet.
    Pending,
    /// The Work would change the object, which is left alone.
    Different,
    /// It is none that is adopted.
    Skipped,
    Failed,
}

/// The result for one object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AdoptionRow {
    pub(super) api_version: String,
    pub(super) kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) result: AdoptionResult,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) differences: Vec<FieldDifference>,
}

#[derive(Debug, Serialize)]
pub(super) struct AdoptionReport {
    pub(super) cluster: String,
    pub(super) objects: Vec<AdoptionRow>,
}

impl AdoptionReport {
    pub(super) fn count(&self, result: AdoptionResult) -> usize {
        let rows = self.objects.iter();
        rows.filter(|row| row.result == result).count()
    }

    /// Whether everything that could be adopted was.
    pub(super) fn is_complete(&self) -> bool {
        let incomplete = [
            AdoptionResult::Different,
            AdoptionResult::Failed,
            AdoptionResult::Pending,
        ];
        incomplete.iter().all(|result| self.count(*result) == 0)
    }

    /// The table and the differences; skipped objects are shown if it is wide.
    pub(super) fn text(&self, wide: bool) -> String {
        let shown = self.objects.iter();
        let shown = shown.filter(|row| wide || row.result != AdoptionResult::Skipped);
        let cells = |row: &AdoptionRow| {
            let result = format!("{:?}", row.result);
            vec![
                row.kind.clone(),
                row.namespace.clone(),
                row.name.clone(),
                result,
                row.reason.clone(),
            ]
        };
        let rows: Vec<Vec<String>> = shown.map(cells).collect();
        let titles = ["KIND", "NAMESPACE", "NAME", "RESULT", "REASON"];
        let mut text = format_table(&titles, &rows);
        for row in self.objects.iter().filter(|r| !r.differences.is_empty()) {
            let name = match row.namespace.as_str() {
                "" => row.name.clone(),
                namespace => format!("{namespace}/{}", row.name),
            };
            text.push_str(&format!("\n\n{} {name}, member -> Work:", row.kind));
            for difference in &row.differences {
                text.push_str(&format!("\n  {difference}"));
            }
        }
        text
    }

    /// One line about all objects.
    pub(super) fn summary(&self) -> String {
        let count = |result| self.count(result);
        let adopted = match count(AdoptionResult::Adoptable) {
            0 => format!("{} adopted", count(AdoptionResult::Adopted)),
            adoptable => format!("{adoptable} adoptable"),
        };
        format!(
            "{}: {adopted}, {} pending, {} different, {} failed, {} skipped",
            self.cluster,
            count(AdoptionResult::Pending),
            count(AdoptionResult::Different),
            count(AdoptionResult::Failed),
            count(AdoptionResult::Skipped),
        )
    }
}

//! Conditions of a template's status, made from what the clusters report: a template is ready when
//! every cluster that it is scheduled to reports so.
//!
//! The report of a cluster is untrusted: reasons have the form that Kubernetes gives them, messages
//! are bounded, and a list names a few clusters.

use jiff::Timestamp;
use machinery::conditions::set_status_condition;
use machinery::time::rfc3339_seconds;
use serde_json::{Map, Value, json};

use crate::native::CollectedStatus;

/// The reason of a condition that waits for the first report of a cluster.
pub(crate) const STATUS_NOT_REPORTED: &str = "StatusNotReported";

const MAX_MESSAGE_BYTES: usize = 512;
const MAX_REASON_BYTES: usize = 128;
const MAX_NAMED_CLUSTERS: usize = 5;

/// A condition as one cluster reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct MemberCondition<'a> {
    pub(crate) status: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

impl<'a> MemberCondition<'a> {
    /// The condition of a type in a status; `None` if there is none.
    pub(crate) fn find(status: &'a Map<String, Value>, kind: &str) -> Option<Self> {
        let mut all = status.get("conditions")?.as_array()?.iter();
        let condition = all.find(|condition| condition["type"] == kind)?;
        let text = |field: &str| condition[field].as_str().unwrap_or("");
        Some(Self {
            status: text("status"),
            reason: text("reason"),
            message: text("message"),
        })
    }

    /// The status, if it is one that Kubernetes knows.
    pub(crate) fn status_word(&self) -> &'static str {
        match self.status {
            "True" => "True",
            "False" => "False",
            _ => "Unknown",
        }
    }

    pub(crate) fn is_true(&self) -> bool {
        self.status == "True"
    }
}

/// A condition of a template.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TemplateCondition {
    pub(crate) kind: &'static str,
    pub(crate) status: &'static str,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl TemplateCondition {
    pub(crate) fn new(
        kind: &'static str,
        status: &'static str,
        reason: &str,
        message: String,
    ) -> Self {
        Self {
            kind,
            status,
            reason: reason.to_owned(),
            message,
        }
    }
}

/// Sets conditions in a status: `old` are those that the template has. A condition that says the
/// same keeps its times, one that keeps its status keeps its `lastTransitionTime`. An old condition
/// stays unless its type is `optional` and it is not set again.
pub(crate) fn set_conditions(
    status: &mut Map<String, Value>,
    old: &[Value],
    conditions: Vec<TemplateCondition>,
    optional: &[&str],
    times: ConditionTimes,
) {
    let is_set = |kind: &str| conditions.iter().any(|condition| condition.kind == kind);
    let is_gone = |old: &Value| {
        let mut kinds = optional.iter().filter(|kind| !is_set(kind));
        kinds.any(|kind| old["type"] == **kind)
    };
    let mut all: Vec<Value> = old.iter().filter(|old| !is_gone(old)).cloned().collect();
    for condition in conditions {
        let is_same = |old: &Value| {
            let texts = [
                ("type", condition.kind),
                ("status", condition.status),
                ("reason", &condition.reason),
                ("message", &condition.message),
            ];
            let text = |field: &str| old[field].as_str().unwrap_or("");
            texts
                .iter()
                .all(|(field, expected)| text(field) == *expected)
        };
        if !all.iter().any(is_same) {
            set_status_condition(&mut all, times.encode(condition));
        }
    }
    if all.is_empty() {
        status.remove("conditions");
    } else {
        status.insert("conditions".into(), all.into());
    }
}

/// The conditions that a template has.
pub(crate) fn conditions_of(status: Option<&Map<String, Value>>) -> &[Value] {
    let all = status.and_then(|status| status.get("conditions")?.as_array());
    all.map_or(&[], Vec::as_slice)
}

/// The times of a condition of a kind.
#[derive(Clone, Copy)]
pub(crate) struct ConditionTimes {
    pub(crate) now: Timestamp,
    /// Deployments also have a `lastUpdateTime`, which moves with reason and message.
    pub(crate) has_update_time: bool,
}

impl ConditionTimes {
    fn encode(self, condition: TemplateCondition) -> Value {
        let time = rfc3339_seconds(self.now);
        let mut json = json!({"type": condition.kind, "status": condition.status,
            "lastTransitionTime": time});
        if self.has_update_time {
            json["lastUpdateTime"] = time.into();
        }
        for (field, text) in [("reason", condition.reason), ("message", condition.message)] {
            if !text.is_empty() {
                json[field] = text.into();
            }
        }
        json
    }
}

/// The reports about a type of condition of each cluster that the template is scheduled to.
pub(crate) fn reported_conditions<'a>(
    items: &[CollectedStatus<'a>],
    kind: &str,
) -> Vec<(&'a str, Option<MemberCondition<'a>>)> {
    let staying = items.iter().filter(|item| !item.leaving);
    let report = |item: &CollectedStatus<'a>| {
        let status = item.status.and_then(Value::as_object)?;
        MemberCondition::find(status, kind)
    };
    staying.map(|item| (item.cluster, report(item))).collect()
}

/// A condition that is true where it is true in every cluster; `None` where no cluster reports it.
pub(crate) fn conjunction(
    kind: &'static str,
    reports: &[(&str, Option<MemberCondition<'_>>)],
) -> Option<TemplateCondition> {
    let first = reports.iter().find_map(|(_, condition)| *condition)?;
    let with_status = |status: &str| {
        let mut all = reports.iter();
        all.find(|(_, condition)| condition.is_some_and(|c| c.status == status))
    };
    let unknown = reports
        .iter()
        .find(|(_, condition)| condition.is_some_and(|c| !c.is_true()));
    for (status, report) in [("False", with_status("False")), ("Unknown", unknown)] {
        if let Some((cluster, Some(condition))) = report {
            let reason = bounded_reason(condition.reason, STATUS_NOT_REPORTED);
            let message = message_of_cluster(cluster, condition.message);
            return Some(TemplateCondition::new(kind, status, reason, message));
        }
    }
    let silent = reports.iter().filter(|(_, condition)| condition.is_none());
    let silent = silent.map(|(cluster, _)| *cluster);
    Some(match waiting_for(silent) {
        Some(message) => TemplateCondition::new(kind, "False", STATUS_NOT_REPORTED, message),
        None => TemplateCondition::new(
            kind,
            "True",
            bounded_reason(first.reason, ""),
            String::new(),
        ),
    })
}

/// Says which clusters have not reported; `None` if all have.
pub(crate) fn waiting_for<'a>(clusters: impl Iterator<Item = &'a str>) -> Option<String> {
    let names = cluster_names(clusters);
    (!names.is_empty()).then(|| format!("waiting for the status in clusters: {names}"))
}

/// The names of clusters: the first few, and how many more there are.
pub(crate) fn cluster_names<'a>(mut clusters: impl Iterator<Item = &'a str>) -> String {
    let named: Vec<&str> = clusters.by_ref().take(MAX_NAMED_CLUSTERS).collect();
    let mut text = named.join(", ");
    let more = clusters.count();
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

/// The report of a cluster, with its name.
pub(crate) fn message_of_cluster(cluster: &str, message: &str) -> String {
    if message.is_empty() {
        return format!("cluster {cluster}");
    }
    bounded_message(&format!("cluster {cluster}: {message}"))
}

/// A message that a cluster reported, on one line and bounded.
pub(crate) fn bounded_message(message: &str) -> String {
    let mut text = String::new();
    for c in message.chars() {
        if text.len() + c.len_utf8() > MAX_MESSAGE_BYTES {
            text.push_str("...");
            break;
        }
        text.push(if c.is_control() { ' ' } else { c });
    }
    text
}

/// A reason that a cluster reported, if it has the form of a reason.
pub(crate) fn bounded_reason<'a>(reason: &'a str, otherwise: &'a str) -> &'a str {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ',' | ':');
    let starts_with_letter = reason.starts_with(|c: char| c.is_ascii_alphabetic());
    if starts_with_letter && reason.len() <= MAX_REASON_BYTES && reason.chars().all(is_word) {
        reason
    } else {
        otherwise
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report<'a>(status: &'a str, reason: &'a str, message: &'a str) -> MemberCondition<'a> {
        MemberCondition {
            status,
            reason,
            message,
        }
    }

    #[test]
    fn a_condition_is_true_where_every_cluster_says_so() {
        let [yes, no, maybe] = ["True", "False", "Maybe"].map(|s| Some(report(s, "R", "m")));
        let table: &[(&[_], Option<[&str; 3]>)] = &[
            (&[], None),
            (&[("a", None)], None),
            (&[("a", yes), ("b", yes)], Some(["True", "R", ""])),
            (
                &[("a", yes), ("b", no)],
                Some(["False", "R", "cluster b: m"]),
            ),
            (
                &[("a", maybe), ("b", no)],
                Some(["False", "R", "cluster b: m"]),
            ),
            (
                &[("a", maybe), ("b", yes)],
                Some(["Unknown", "R", "cluster a: m"]),
            ),
            (
                &[("a", yes), ("b", None)],
                Some([
                    "False",
                    STATUS_NOT_REPORTED,
                    "waiting for the status in clusters: b",
                ]),
            ),
        ];
        for (reports, expected) in table {
            let condition = conjunction("Ready", reports);
            let expected = expected.map(|[status, reason, message]| {
                TemplateCondition::new("Ready", status, reason, message.to_owned())
            });
            assert_eq!(condition, expected, "{reports:?}");
        }
    }

    #[test]
    fn what_a_cluster_reports_is_bounded() {
        let long = "é\u{1b}".repeat(1000);
        let text = message_of_cluster("a", &long);
        assert!(text.len() <= MAX_MESSAGE_BYTES + 3 && text.ends_with("..."));
        assert!(!text.contains('\u{1b}'));
        for (reason, expected) in [
            ("Good_1", "Good_1"),
            ("", "x"),
            ("1a", "x"),
            ("a b", "x"),
            (&"R".repeat(129), "x"),
        ] {
            assert_eq!(bounded_reason(reason, "x"), expected);
        }
        let names: Vec<String> = (0..9).map(|n| format!("c{n}")).collect();
        let named = cluster_names(names.iter().map(String::as_str));
        assert_eq!(named, "c0, c1, c2, c3, c4 and 4 more");
    }

    #[test]
    fn the_times_move_with_what_the_condition_says() {
        let at = |seconds| ConditionTimes {
            now: Timestamp::from_second(seconds).unwrap(),
            has_update_time: true,
        };
        let mut status = Map::new();
        let mut set = |condition: [&'static str; 2], seconds| {
            let [status_word, message] = condition;
            let condition = TemplateCondition::new("Ready", status_word, "R", message.to_owned());
            let old = conditions_of(Some(&status)).to_vec();
            set_conditions(&mut status, &old, vec![condition], &["Old"], at(seconds));
            let ready = &status["conditions"][0];
            ["lastUpdateTime", "lastTransitionTime"].map(|time| {
                let time: Timestamp = ready[time].as_str().unwrap().parse().unwrap();
                time.as_second()
            })
        };
        assert_eq!(set(["False", "a"], 1), [1, 1]);
        assert_eq!(set(["False", "a"], 2), [1, 1]);
        assert_eq!(set(["False", "b"], 3), [3, 1]);
        assert_eq!(set(["True", "b"], 4), [4, 4]);
    }
}

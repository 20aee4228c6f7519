//! Reads the repairs of drift from a Work. Its condition is written beside the member, so that an
//! agent reports repairs as the control plane itself does; its text is untrusted.

use karmada_api::binding::Condition;
use karmada_api::history::{DriftRepair, HistoryEntry, HistoryEntryType, bounded_text};
use karmada_api::work::DRIFT_REPAIRED;
use machinery::Object;
use serde::Deserialize;

/// The fields that an entry names.
const MAX_FIELDS: usize = 8;

#[derive(Default, Deserialize)]
#[serde(default)]
struct WorkWithConditions {
    status: WorkConditions,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WorkConditions {
    conditions: Vec<Condition>,
}

/// The condition about repairs. A Work without one costs a search in its text.
fn repaired_condition(work: &Object) -> Option<Condition> {
    let bytes = work.bytes();
    let text = std::str::from_utf8(&bytes).ok()?;
    if !text.contains(DRIFT_REPAIRED) {
        return None;
    }
    let view: WorkWithConditions = machinery::json::from_str(text).ok()?;
    let mut conditions = view.status.conditions.into_iter();
    conditions.find(|c| c.condition_type == DRIFT_REPAIRED && c.status == "True")
}

/// The repair that a write of a Work reported.
pub(crate) fn reported_repair(old: &Object, new: &Object, cluster: &str) -> Option<HistoryEntry> {
    let condition = repaired_condition(new)?;
    if repaired_condition(old).as_ref() == Some(&condition) {
        return None;
    }
    let repairs = condition
        .message
        .split("; ")
        .filter_map(DriftRepair::from_message);
    let (mut fields, mut manager) = (Vec::new(), String::new());
    for repair in repairs {
        let object = &repair.object;
        match repair.fields.is_empty() {
            true => fields.push(bounded_text(object)),
            false => {
                let named = repair.fields.iter();
                fields.extend(named.map(|field| bounded_text(&format!("{object} {field}"))));
            }
        }
        manager = repair.manager;
    }
    fields.truncate(MAX_FIELDS);
    Some(HistoryEntry {
        entry_type: HistoryEntryType::Repair,
        reason: DRIFT_REPAIRED.to_owned(),
        actor: bounded_text(&manager),
        message: bounded_text(&condition.message),
        count: 1,
        cluster: cluster.to_owned(),
        fields,
        ..HistoryEntry::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn work(message: &str, time: &str) -> Object {
        let condition = json!({"type": DRIFT_REPAIRED, "status": "True", "reason": "DriftRepaired",
            "message": message, "lastTransitionTime": time});
        let work = json!({"metadata": {"name": "w"}, "status": {"conditions": [condition]}});
        Object::from_value(&work).unwrap()
    }

    // proves: HIS-repair, HIS-untrusted
    #[test]
    fn a_repair_names_fields_and_manager() {
        let empty = Object::from_value(&json!({"metadata": {"name": "w"}})).unwrap();
        let text = "ConfigMap n/c: .data.a, .data.b changed by kubectl-edit";
        let repaired = work(text, "2026-01-01T00:00:00Z");
        let entry = reported_repair(&empty, &repaired, "m1").unwrap();
        assert_eq!((&*entry.actor, &*entry.cluster), ("kubectl-edit", "m1"));
        assert_eq!(
            entry.fields,
            ["ConfigMap n/c .data.a", "ConfigMap n/c .data.b"]
        );
        assert_eq!(entry.message, text);
        assert_eq!(reported_repair(&repaired, &repaired, "m1"), None);
        let again = work(text, "2026-01-01T00:00:01Z");
        assert!(reported_repair(&repaired, &again, "m1").is_some());
        assert_eq!(reported_repair(&repaired, &empty, "m1"), None);
        // An agent may write anything.
        let hostile = work(&format!("a: {} changed by \n", "x, ".repeat(5000)), "t");
        let entry = reported_repair(&empty, &hostile, "m1").unwrap();
        assert_eq!((entry.fields.len(), &*entry.actor), (MAX_FIELDS, ""));
        assert!(serde_json::to_vec(&entry).unwrap().len() < 12_000);
    }
}

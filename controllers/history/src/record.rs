//! Adds entries to the history of a template: completes an incomplete placement, counts what
//! repeats, and drops the oldest. Pure.

use jiff::{SignedDuration, Timestamp};
use karmada_api::TemplateHistory;
use karmada_api::history::{ClusterChange, HistoryEntry, HistoryEntryType, MAX_RECORDED_CHANGES};
use machinery::time;

/// The entries of each type that are kept, so that repairs in a member drop no placements.
const MAX_PLACEMENTS: usize = 30;
const MAX_ROLLOUT_STEPS: usize = 30;
const MAX_REPAIRS: usize = 30;
/// The bytes of all entries; the newest one stays in any case.
const MAX_HISTORY_BYTES: usize = 64 * 1024;
/// The bytes of the names of all clusters of an entry.
const MAX_CLUSTER_NAME_BYTES: usize = 32 * 1024;
/// A change later than this does not complete an incomplete placement.
const COMPLETION_WINDOW: SignedDuration = SignedDuration::from_mins(10);

/// Adds an entry that happened last.
pub(crate) fn add_entry(history: &mut TemplateHistory, entry: HistoryEntry) {
    let entries = &mut history.entries;
    if entry.entry_type == HistoryEntryType::Placement {
        let newest = newest_placement(entries);
        if let Some(index) = newest
            && completes(&entries[index], &entry)
        {
            let completed = merge_placements(entries.remove(index), entry);
            entries.insert(0, completed);
            return drop_oldest(entries);
        }
        entries.insert(0, entry);
    } else if let Some(index) = entries.iter().position(|other| is_repeated(other, &entry)) {
        let mut repeated = entries.remove(index);
        repeated.count = repeated.count.saturating_add(entry.count);
        repeated.last_time = entry.last_time;
        entries.insert(0, repeated);
    } else {
        entries.insert(0, entry);
    }
    drop_oldest(entries);
}

fn newest_placement(entries: &[HistoryEntry]) -> Option<usize> {
    let mut entries = entries.iter();
    entries.position(|entry| entry.entry_type == HistoryEntryType::Placement)
}

/// Whether the newest placement of a history has replicas without a cluster.
pub(crate) fn is_incomplete(history: &TemplateHistory) -> bool {
    let newest = newest_placement(&history.entries);
    newest.is_some_and(|index| history.entries[index].incomplete)
}

/// Whether a change belongs to the incomplete one before. One that a user or a policy caused does
/// not.
fn completes(former: &HistoryEntry, entry: &HistoryEntry) -> bool {
    let instant = |text: &str| time::parse(text).ok();
    let is_near = match (instant(&former.last_time), instant(&entry.first_time)) {
        (Some(former), Some(entry)) => is_within(former, entry),
        _ => false,
    };
    former.incomplete && is_near && entry.former_placement.is_empty()
}

fn is_within(former: Timestamp, later: Timestamp) -> bool {
    later.duration_since(former) <= COMPLETION_WINDOW
}

/// One entry for two changes that follow each other, with the reason of the first one.
fn merge_placements(former: HistoryEntry, entry: HistoryEntry) -> HistoryEntry {
    let mut changes = former.changes.clone();
    for change in entry.changes {
        let same = changes.iter_mut().find(|c| c.cluster == change.cluster);
        match same {
            Some(same) => same.to = change.to,
            None => changes.push(change),
        }
    }
    changes.retain(|change| change.from != change.to);
    changes.sort_by(|a, b| a.cluster.cmp(&b.cluster));
    let is_cut = truncate_changes(&mut changes);
    HistoryEntry {
        changes,
        last_time: entry.last_time,
        incomplete: entry.incomplete,
        truncated: former.truncated || entry.truncated || is_cut,
        ..former
    }
}

/// Cuts the changes of an entry to those that it may name; returns whether there were more. Who
/// may write bindings chooses the names of their clusters.
pub(crate) fn truncate_changes(changes: &mut Vec<ClusterChange>) -> bool {
    let mut bytes = 0;
    let exceeds = |change: &ClusterChange| {
        bytes += change.cluster.len();
        bytes > MAX_CLUSTER_NAME_BYTES
    };
    let count = changes.iter().position(exceeds).unwrap_or(changes.len());
    let kept = count.min(MAX_RECORDED_CHANGES);
    let is_cut = kept < changes.len();
    changes.truncate(kept);
    is_cut
}

fn is_repeated(former: &HistoryEntry, entry: &HistoryEntry) -> bool {
    let timeless = |entry: &HistoryEntry| HistoryEntry {
        first_time: String::new(),
        last_time: String::new(),
        count: 0,
        ..entry.clone()
    };
    former.entry_type == entry.entry_type
        && former.reason == entry.reason
        && timeless(former) == timeless(entry)
}

fn drop_oldest(entries: &mut Vec<HistoryEntry>) {
    let (mut placements, mut steps, mut repairs, mut bytes) = (0, 0, 0, 0);
    let mut is_first = true;
    entries.retain(|entry| {
        let (count, limit) = match entry.entry_type {
            HistoryEntryType::Placement => (&mut placements, MAX_PLACEMENTS),
            HistoryEntryType::Rollout => (&mut steps, MAX_ROLLOUT_STEPS),
            HistoryEntryType::Repair => (&mut repairs, MAX_REPAIRS),
        };
        *count += 1;
        let size = serde_json::to_vec(entry).map_or(0, |text| text.len());
        let is_kept = *count <= limit && (is_first || bytes + size <= MAX_HISTORY_BYTES);
        bytes += if is_kept { size } else { 0 };
        is_first = false;
        is_kept
    });
}

/// The changes between two lists of clusters with replicas, by name.
pub(crate) fn cluster_changes<'a>(
    old: impl Iterator<Item = (&'a str, i64)>,
    new: impl Iterator<Item = (&'a str, i64)>,
) -> Vec<ClusterChange> {
    let mut changes = std::collections::BTreeMap::<&str, ClusterChange>::new();
    for (name, replicas) in old {
        changes.entry(name).or_default().from = Some(replicas);
    }
    for (name, replicas) in new {
        changes.entry(name).or_default().to = Some(replicas);
    }
    let named = changes.into_iter().map(|(name, change)| ClusterChange {
        cluster: name.to_owned(),
        ..change
    });
    named.filter(|change| change.from != change.to).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time_at(second: i64) -> String {
        let instant = Timestamp::from_second(1_767_225_600 + second).unwrap();
        time::rfc3339_seconds(instant)
    }

    fn placement(
        second: i64,
        changes: &[(&str, Option<i64>, Option<i64>)],
        incomplete: bool,
    ) -> HistoryEntry {
        let change = |(cluster, from, to): &(&str, Option<i64>, Option<i64>)| ClusterChange {
            cluster: (*cluster).to_owned(),
            from: *from,
            to: *to,
        };
        HistoryEntry {
            reason: format!("Reason{second}"),
            first_time: time_at(second),
            last_time: time_at(second),
            count: 1,
            changes: changes.iter().map(change).collect(),
            incomplete,
            ..HistoryEntry::default()
        }
    }

    fn repair(second: i64, message: &str) -> HistoryEntry {
        HistoryEntry {
            entry_type: HistoryEntryType::Repair,
            message: message.to_owned(),
            ..placement(second, &[], false)
        }
    }

    // proves: HIS-one-move
    #[test]
    fn a_move_in_two_steps_is_one_entry_with_the_first_reason() {
        let evicted = || placement(0, &[("a", Some(2), None)], true);
        let rescheduled = |second| {
            placement(
                second,
                &[("b", Some(1), Some(2)), ("c", None, Some(1))],
                false,
            )
        };
        let mut history = TemplateHistory::default();
        add_entry(&mut history, evicted());
        assert!(is_incomplete(&history));
        add_entry(&mut history, repair(1, "x"));
        add_entry(&mut history, rescheduled(2));
        assert!(!is_incomplete(&history));
        let expected = HistoryEntry {
            last_time: time_at(2),
            ..placement(
                0,
                &[
                    ("a", Some(2), None),
                    ("b", Some(1), Some(2)),
                    ("c", None, Some(1)),
                ],
                false,
            )
        };
        assert_eq!(history.entries[0], expected);
        assert_eq!(history.entries.len(), 2);
        // Much later, or after a changed policy, it is another move.
        let by_policy = HistoryEntry {
            former_placement: "{}".to_owned(),
            ..rescheduled(3)
        };
        for entry in [rescheduled(601), by_policy] {
            let mut history = TemplateHistory::default();
            add_entry(&mut history, evicted());
            add_entry(&mut history, entry);
            assert_eq!(history.entries.len(), 2);
        }
    }

    // proves: HIS-repeated, HIS-bounded
    #[test]
    fn what_repeats_is_counted_and_the_oldest_is_dropped() {
        let mut history = TemplateHistory::default();
        for second in 0..200 {
            let mut entry = repair(second, if second % 2 == 0 { "x" } else { "y" });
            entry.reason = "DriftRepaired".to_owned();
            add_entry(&mut history, entry);
        }
        let counts: Vec<i64> = history.entries.iter().map(|e| e.count).collect();
        assert_eq!(counts, [100, 100]);
        assert_eq!(history.entries[0].first_time, time_at(1));
        assert_eq!(history.entries[0].last_time, time_at(199));
        add_entry(&mut history, placement(0, &[("a", None, Some(1))], false));
        for second in 0..200 {
            add_entry(&mut history, repair(second, &format!("{second}")));
        }
        let placements = history.entries.iter();
        let placements = placements.filter(|e| e.entry_type == HistoryEntryType::Placement);
        assert_eq!(placements.count(), 1, "repairs drop no placement");
        assert_eq!(history.entries.len(), MAX_REPAIRS + 1);
        for second in 0..200 {
            let long = "x".repeat(MAX_HISTORY_BYTES / 4);
            let entry = HistoryEntry {
                message: long,
                ..placement(second, &[], false)
            };
            add_entry(&mut history, entry);
        }
        let bytes = serde_json::to_vec(&history.entries).unwrap().len();
        assert!(bytes <= MAX_HISTORY_BYTES, "{bytes}");
        assert_eq!(history.entries[0].reason, "Reason199");
    }

    // proves: HIS-bounded
    #[test]
    fn a_completed_placement_names_no_more_clusters_than_another() {
        let names = |start: usize, length: usize| -> Vec<String> {
            let names = start..start + MAX_RECORDED_CHANGES;
            names.map(|i| format!("{i:0length$}")).collect()
        };
        for (length, expected) in [(8, MAX_RECORDED_CHANGES), (1024, 32)] {
            let [left, joined] = [names(0, length), names(MAX_RECORDED_CHANGES, length)];
            let left: Vec<_> = left.iter().map(|n| (&**n, Some(1), None)).collect();
            let joined: Vec<_> = joined.iter().map(|n| (&**n, None, Some(1))).collect();
            let mut history = TemplateHistory::default();
            add_entry(&mut history, placement(0, &left, true));
            add_entry(&mut history, placement(1, &joined, false));
            let entry = &history.entries[0];
            assert_eq!((history.entries.len(), entry.changes.len()), (1, expected));
            assert!(entry.truncated);
        }
    }
}

//! Finds out which step of a staged rollout a write of its status was. Pure.

use karmada_api::history::{HistoryEntry, HistoryEntryType, bounded_text};
use karmada_api::rollout::{RolloutStatus, UNSTAGED};

/// The step between two statuses; `None` if neither the target, the state nor the stage changed.
pub(crate) fn rollout_step(old: &RolloutStatus, new: &RolloutStatus) -> Option<HistoryEntry> {
    let reason = if old.target_revision != new.target_revision {
        "RevisionChanged"
    } else if old.state != new.state {
        &new.state
    } else if old.stage != new.stage {
        "StageReached"
    } else {
        return None;
    };
    // The id of a policy has its uid between its name and its generation.
    let policy: Vec<&str> = new.policy.split([' ', '/']).collect();
    let cause = match *policy.as_slice() {
        [kind, name, _, generation] => format!("{kind} {name} generation {generation}"),
        _ => new.policy.clone(),
    };
    // Nobody else says who has passed the stages.
    let message = match new.state == UNSTAGED {
        true => new.message.clone(),
        false => format!("{} clusters are done", new.progress),
    };
    Some(HistoryEntry {
        entry_type: HistoryEntryType::Rollout,
        reason: bounded_text(reason),
        actor: "rollout-controller".to_owned(),
        cause: bounded_text(&cause),
        message: bounded_text(&message),
        count: 1,
        stage: new.stage.clone(),
        from_revision: old.target_revision.clone(),
        to_revision: new.target_revision.clone(),
        ..HistoryEntry::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(target: &str, state: &str, stage: &str) -> RolloutStatus {
        RolloutStatus {
            policy: "RolloutPolicy/web u-1/4".to_owned(),
            target_revision: target.to_owned(),
            state: state.to_owned(),
            stage: stage.to_owned(),
            progress: "1/3".to_owned(),
            ..RolloutStatus::default()
        }
    }

    // proves: HIS-rollout
    #[test]
    fn steps_are_revisions_states_and_stages() {
        let old = status("r1", "Progressing", "one");
        for (new, reason) in [
            (status("r2", "Progressing", "one"), "RevisionChanged"),
            (status("r1", "Paused", "one"), "Paused"),
            (status("r1", "Progressing", "two"), "StageReached"),
            (status("r1", "Completed", ""), "Completed"),
        ] {
            let step = rollout_step(&old, &new).unwrap();
            assert_eq!(step.reason, reason);
            assert_eq!(step.cause, "RolloutPolicy web generation 4");
            let revisions = (&*step.from_revision, &*step.to_revision, &*step.stage);
            assert_eq!(revisions, ("r1", &*new.target_revision, &*new.stage));
        }
        let unstaged = RolloutStatus {
            message: "m".to_owned(),
            ..status("r1", UNSTAGED, "one")
        };
        assert_eq!(rollout_step(&old, &unstaged).unwrap().message, "m");
        let done = RolloutStatus {
            progress: "2/3".to_owned(),
            ..old.clone()
        };
        assert_eq!(rollout_step(&old, &done), None);
    }
}

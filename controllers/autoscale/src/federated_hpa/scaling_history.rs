//! The recent recommendations and changes of an autoscaler, by which later changes are stabilized and
//! limited.
//!
//! Source: `stabilizeRecommendation` and `stabilizeRecommendationWithBehaviors` of Kubernetes'
//! `pkg/controller/podautoscaler/horizontal.go`. Kept in memory, as there.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

/// One recommendation in each sync period: more than these are in the longest window, an hour, only
/// if the period is below a second.
const MAX_RECOMMENDATIONS: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct ScalingHistory {
    recommendations: VecDeque<(Timestamp, i32)>,
    /// Replicas that were added, and when.
    added: VecDeque<(Timestamp, i32)>,
    removed: VecDeque<(Timestamp, i32)>,
}

/// How long recommendations count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StabilizationWindows {
    /// Before replicas are added.
    pub(crate) up: SignedDuration,
    /// Before replicas are removed.
    pub(crate) down: SignedDuration,
}

impl ScalingHistory {
    /// The replicas that an autoscaler finds count as its first recommendation.
    pub(crate) fn record_initial(&mut self, replicas: i32, now: Timestamp) {
        if self.recommendations.is_empty() {
            self.recommendations.push_back((now, replicas));
        }
    }

    /// Records a recommendation and returns the highest one within a window. For autoscalers without
    /// a behavior.
    pub(crate) fn highest_recommendation(
        &mut self,
        desired: i32,
        window: SignedDuration,
        now: Timestamp,
    ) -> i32 {
        let cutoff = now - window;
        let recent = self.recommendations.iter().filter(|(at, _)| *at >= cutoff);
        let highest = recent.map(|(_, n)| *n).fold(desired, i32::max);
        self.record_recommendation(desired, cutoff, now);
        highest
    }

    /// Records a recommendation and returns what to do at present: replicas are added up to the
    /// lowest recommendation within a window, and removed down to the highest within another.
    pub(crate) fn stabilize(
        &mut self,
        current: i32,
        desired: i32,
        windows: StabilizationWindows,
        now: Timestamp,
    ) -> i32 {
        let (up_cutoff, down_cutoff) = (now - windows.up, now - windows.down);
        let (mut lowest, mut highest) = (desired, desired);
        for (at, recommended) in &self.recommendations {
            if *at > up_cutoff {
                lowest = lowest.min(*recommended);
            }
            if *at > down_cutoff {
                highest = highest.max(*recommended);
            }
        }
        self.record_recommendation(desired, up_cutoff.min(down_cutoff), now);
        current.max(lowest).min(highest)
    }

    fn record_recommendation(&mut self, desired: i32, oldest: Timestamp, now: Timestamp) {
        forget_before(&mut self.recommendations, oldest);
        if self.recommendations.len() == MAX_RECOMMENDATIONS {
            self.recommendations.pop_front();
        }
        self.recommendations.push_back((now, desired));
    }

    /// Records a change of replicas. Changes before `keep_after` are forgotten.
    pub(crate) fn record_change(
        &mut self,
        from: i32,
        to: i32,
        keep_after: Timestamp,
        now: Timestamp,
    ) {
        let changes = match to > from {
            true => &mut self.added,
            false => &mut self.removed,
        };
        forget_before(changes, keep_after);
        changes.push_back((now, from.abs_diff(to).try_into().unwrap_or(i32::MAX)));
    }

    pub(crate) fn added_after(&self, start: Timestamp) -> i64 {
        sum_after(&self.added, start)
    }

    pub(crate) fn removed_after(&self, start: Timestamp) -> i64 {
        sum_after(&self.removed, start)
    }
}

fn forget_before(entries: &mut VecDeque<(Timestamp, i32)>, oldest: Timestamp) {
    while entries.front().is_some_and(|(at, _)| *at < oldest) {
        entries.pop_front();
    }
}

fn sum_after(changes: &VecDeque<(Timestamp, i32)>, start: Timestamp) -> i64 {
    let counted = changes.iter().filter(|(at, _)| *at > start);
    counted.map(|(_, replicas)| i64::from(*replicas)).sum()
}

//! Decides the next step of a rollout: which revision each cluster may have. Pure.
//!
//! policy + status before + revision of the template + clusters as observed + time ──[`plan_next_step`]──► status
//!
//! Invariants: a cluster gets the target only in its stage, while every earlier stage has ended; no
//! cluster begins while more clusters have failed than the budget allows. All that a later step
//! needs is in the status, so that a restart between two steps changes nothing.

mod amounts;
mod clusters;
mod input;
mod requests;
mod step;
mod summary;
#[cfg(test)]
mod tests;

use karmada_api::rollout::ON_FAILURE_ROLLBACK;

pub(crate) use input::{DecisionInput, ObservedTarget, RolloutDecision};
use step::RolloutStep;

/// The next status. It is the previous one if nothing changes.
pub(crate) fn plan_next_step(input: DecisionInput<'_>) -> RolloutDecision {
    let mut step = RolloutStep::begin(input);
    let handled_request = step.handle_requests();
    step.observe();
    if step.exceeds_budget() && step.is_staged() && input.policy.on_failure == ON_FAILURE_ROLLBACK {
        step.reject();
    }
    let hold = if step.is_staged() {
        step.advance()
    } else {
        step.assign_all();
        None
    };
    step.complete();
    let next = step.wake();
    let mut status = step.into_status(hold);
    status.handled_request = handled_request;
    RolloutDecision { next, status }
}

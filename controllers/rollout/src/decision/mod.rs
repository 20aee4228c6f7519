//! Decides the next step of a rollout: which revision each cluster may have. Pure.
//!
//! policy + status before + revision of the template + clusters as observed + time ──[`plan_next_step`]──► status
//!
//! Invariants: a cluster gets the target only in its stage, while every earlier stage has ended; one that
//! has lost its clusters has not, until it is approved without them. No cluster begins while more
//! clusters have failed than the budget allows, or would leave too few replicas available, nor loses
//! replicas to a placement while that would leave too few. All that a later step needs is in the
//! status, so that a restart between two steps changes nothing.

mod amounts;
mod availability;
mod batches;
mod budget;
mod clusters;
mod departures;
mod input;
mod jobs;
mod joins;
mod kept_replicas;
mod lost_stages;
mod query;
mod replicas;
mod requests;
mod step;
mod summary;
#[cfg(test)]
mod tests;
mod windows;

use std::time::Duration;

use karmada_api::rollout::ON_FAILURE_ROLLBACK;

pub(crate) use amounts::failure_budget;
pub(crate) use input::{
    DecisionInput, JobObservation, JobOutcome, ObservedTarget, QueryObservation, RolloutDecision,
};
pub(crate) use query::awaits_query;
pub(crate) use replicas::ObservedReplicas;
pub(crate) use step::NO_PROMETHEUS;
use step::RolloutStep;
pub(crate) use summary::REVISION_UNUSABLE;

/// The next status. It is the previous one if nothing changes.
pub(crate) fn plan_next_step(input: DecisionInput<'_>) -> RolloutDecision {
    let mut step = RolloutStep::begin(input);
    let handled_request = step.handle_requests();
    step.observe();
    step.observe_jobs();
    let has_failed = step.exceeds_budget() || step.has_failed_job();
    if has_failed && step.is_staged() && input.policy.on_failure == ON_FAILURE_ROLLBACK {
        step.reject();
    }
    let batch_hold = step.advance_batches();
    let hold = if step.is_staged() {
        step.advance()
    } else {
        step.assign_all();
        step.rerun_hold().or(batch_hold)
    };
    if hold.is_none() {
        step.start_job();
    }
    let hold = hold.or_else(|| step.availability_hold());
    step.complete();
    let kept = step.keep_replicas();
    let next = earliest(step.wake(), hold.and_then(|hold| hold.wake(input.now)));
    let mut status = step.into_status(hold);
    status.handled_request = handled_request;
    if input.policy.min_available.is_some() {
        status.observed_binding_generation = input.binding_generation;
    }
    status.replicas = kept.clusters;
    RolloutDecision {
        next: earliest(next, kept.next),
        status,
        given_up: kept.given_up,
    }
}

fn earliest(first: Option<Duration>, second: Option<Duration>) -> Option<Duration> {
    first.into_iter().chain(second).min()
}

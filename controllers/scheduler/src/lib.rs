//! Schedules bindings: decides which clusters a binding's resource goes to.
//!
//! binding + clusters ──► [`core::schedule`] (pure) ──► spec.clusters, Scheduled condition
//!
//! Invariants: [`core`] does no I/O and reads no clock. The [`Scheduler`] writes a result
//! only where it differs from the binding.
//!
//! Entry points: [`core::schedule`], [`schedule_inline`], [`Scheduler`],
//! [`SchedulerClusterCache`], [`DecisionCache`], [`ReplicaEstimator`], [`explain`] and
//! [`SchedulingSimulation`].

mod book;
mod clusters;
pub mod core;
mod decide;
mod decisions;
mod estimators;
mod explain;
mod figures;
mod foresight;
mod shell;

pub use clusters::Clusters;
pub use decide::LeftAlone;
pub use decisions::Decisions;
pub use estimators::{Asked, Candidate, Estimators, Question};
pub use explain::{Explanation, TermTrace, explain, peers};
pub use figures::{LeftToScheduler, schedule_ahead};
pub use foresight::{Foresight, Rehearsal};
pub use shell::{Options, Scheduler, placement_text};

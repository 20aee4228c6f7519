//! Tests of the decision on simulated fleets with a clock that the test moves.

mod fleet;
mod properties;
mod query;
mod scenarios;
mod windows;

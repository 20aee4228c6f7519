//! Tests of the decision on simulated fleets with a clock that the test moves.

mod availability;
mod batches;
mod departures;
mod fleet;
mod gate_properties;
mod jobs;
mod joins;
mod moves;
mod moving_fleet;
mod properties;
mod query;
mod replica_properties;
mod requests;
mod scenarios;
mod windows;

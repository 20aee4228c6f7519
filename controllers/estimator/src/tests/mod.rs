//! Tests of estimators over API servers in memory and over gRPC.

mod descheduling;
mod fake_estimator;
pub(crate) mod fixture;
mod requests;
mod scheduling;
mod server;

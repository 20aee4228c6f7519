//! Tests of estimators over API servers in memory and over gRPC.

pub(crate) mod lab;
mod peer;
mod remote;
mod scheduling;

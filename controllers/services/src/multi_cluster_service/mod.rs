//! The controllers multiclusterservice and endpointsliceDispatch.
//!
//! A MultiClusterService of the type CrossCluster becomes a Work in the execution namespace of each
//! provider, which is what endpointsliceCollect (`slice_collection`) follows, and its Service is claimed
//! and bound to providers and consumers. The slices that are collected become Works in the execution
//! namespaces of the consumers. All of these Works have the name of the MultiClusterService in their
//! labels, so that each controller finds them by it.
//!
//! Source: Karmada's `pkg/controllers/multiclusterservice`.

mod claimed_service;
mod controller;
mod dispatch;
mod dispatched_work;
mod object;
mod reports;
mod service_works;
#[cfg(test)]
mod tests;

pub(crate) use controller::MultiClusterServiceController;
pub(crate) use dispatch::EndpointSliceDispatchController;

//! Implements Karmada's dependencies distributor: a binding with `propagateDeps` gets attached
//! bindings, one for each object that its template refers to.
//!
//! The controller interprets the dependencies of a template, records them in an annotation of the
//! binding, and creates or updates the attached bindings. An attached binding lists in `requiredBy`
//! the independent bindings that need it, and their clusters. It has no placement of its own unless
//! a policy also claims the object; then the clusters of both add up. The controller writes
//! ResourceBindings only. Source: Karmada's `pkg/dependenciesdistributor`.

mod attached_binding;
mod controller;
mod event_filter;
#[cfg(test)]
mod tests;

pub use controller::{DependenciesDistributor, DependenciesDistributorOptions};

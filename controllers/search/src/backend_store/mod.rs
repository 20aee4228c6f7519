//! Sends the cached objects of members to the backend stores that ResourceRegistries name
//! (Karmada: `pkg/search/backendstore`). OpenSearch is the only one.
//!
//! ResourceRegistries + Secrets ──[`controller`]──► one [`store`] for each OpenSearch cluster
//! watch cache of a member ──[`document_source`]──► [`document_queue`] ──[`bulk_writer`]──► `_bulk`
//!
//! Invariants: the queue holds ids of documents and no bodies, which are read from the cache when
//! they are sent. A source waits while the queue is full; what it misses it finds by comparing the
//! index with the cache. Errors and logs have the type of an error of OpenSearch and never its
//! text, which may quote an object.

mod bulk;
mod bulk_writer;
mod client;
mod config;
mod controller;
mod document;
mod document_queue;
mod document_source;
mod health;
mod indexed_resource;
mod limits;
mod metrics;
mod named_store;
mod registry_status;
mod store;
#[cfg(test)]
mod tests;

pub use controller::{BackendStoreOptions, start_backend_stores};

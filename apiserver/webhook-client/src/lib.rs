//! Calls webhooks of admission, of conversion and of the interpreter over HTTPS.
//!
//! `client::webhook::WebhookClientConfig` ──► [`WebhookClientManager`] (address of the Service, pooled clients) ──► response
//!
//! Invariants: caches are bounded, and the address of a Service is at most a second old.

mod manager;
mod service_endpoints;

pub use manager::{ServiceRouting, WebhookClientManager};

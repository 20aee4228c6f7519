//! Connects admission to a server: the configurations of webhooks and the policies that the server
//! stores, or its host has, and the server's authorizer for the checks that admission makes.
//!
//! informers ──► `admission::webhooks::WebhookDispatcher`, `admission::policies::PolicyDispatcher`
//!
//! `auth::RequestAuthorizer` ──► the authorizers that `admission` declares as traits

mod expression_access;
mod policies;
mod resource_access;
mod signer_access;
mod webhooks;

pub use expression_access::expression_authorizer;
pub use policies::{ADMISSION_GROUP, watch_policies, watch_served_policies};
pub use resource_access::resource_authorizer;
pub use signer_access::signer_authorizer;
pub use webhooks::{ConfigurationSource, watch_webhook_configurations};

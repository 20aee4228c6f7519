//! Authentication and authorization by webhooks that the operator of a standalone server
//! configures (`apiserver/plugin/pkg/{authenticator/token,authorizer}/webhook` of Kubernetes).

mod authorizer;
mod match_conditions;
mod review_endpoint;
mod token_authenticator;

pub use authorizer::{WebhookAuthorizer, WebhookAuthorizerOptions};
pub use match_conditions::MatchConditions;
pub use review_endpoint::ReviewEndpoint;
pub use token_authenticator::WebhookTokenAuthenticator;

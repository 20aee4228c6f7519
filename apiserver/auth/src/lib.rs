//! Authentication and authorization: keys and certificates, TLS, x509 and bearer token
//! authentication, RBAC, impersonation, the reviews, and delegation to another API
//! server.
//!
//! handshake ──► [`PeerCertificates`] ─┐
//! request headers ────────────────────┴► [`RequestAuthenticator`] ──► `UserInfo` ──► [`impersonation`] ──► [`RequestAuthorizer`] ──► allowed | denied
//!                                          local | delegated                                               RBAC | delegated
//!
//! Invariants: an invalid credential is refused, it never makes a request anonymous. No
//! HTTP types. Objects are read through `client::Api` only. Evaluating a rule does no
//! I/O and does not wait.
//!
//! Entry points: [`pki::Pki`], [`tls::server_config`], [`LocalAuthenticator`],
//! [`rbac::RbacAuthorizer`], [`delegated`], [`token::ServiceAccountTokens`], [`reviews`].

pub mod authenticator;
pub mod authorization_configuration;
pub mod authorizer_chain;
mod authorizer_metrics;
mod authorizer_opinion;
mod bootstrap_token;
pub mod ca_bundle;
pub mod cert_rotation;
pub mod certificate_signing;
mod credentials;
pub mod delegated;
pub mod etcd_certificates;
pub mod impersonation;
mod impersonation_modes;
pub mod oidc;
pub mod pki;
mod private_dir;
pub mod rbac;
mod request_auth;
pub mod reviews;
mod role_escalation;
mod shared_keys;
pub mod static_tokens;
pub mod tls;
pub mod token;
mod token_keys;
mod token_request;
pub mod webhook;
pub mod x509;

pub use authenticator::LocalAuthenticator;
pub use authorizer_metrics::AuthorizerMetrics;
pub use credentials::{AuthenticationError, ForEachHeader, InvalidCredential, RequestCredentials};
pub use impersonation_modes::{AuthorizedImpersonation, ImpersonationModes};
pub use private_dir::create_private_dir;
pub use request_auth::{RequestAuthenticator, RequestAuthorizer};
pub use role_escalation::{ReferencedRole, RoleEscalationCheck, RoleWrite};
pub use shared_keys::SharedKeys;
pub use tls::PeerCertificates;

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
//! Entry points: [`pki::Pki`], [`tls::server_config`], [`Authenticator`],
//! [`rbac::RbacAuthorizer`], [`delegated`], [`token::TokenSigner`], [`reviews`].

mod access;
pub mod authenticate;
pub mod delegated;
pub mod etcd;
pub mod impersonation;
pub mod pki;
mod private;
pub mod rbac;
pub mod reviews;
pub mod rolling;
mod shared;
pub mod tls;
pub mod token;
mod tokenrequest;
pub mod x509;

pub use access::{Authentication, Authorization, Denied};
pub use authenticate::{Authenticator, Credentials, Headers, Refused};
pub use private::private_dir;
pub use shared::Shared;
pub use tls::Peer;

//! Who asks, and whether they may: keys and certificates, TLS, x509 and bearer
//! token authentication, RBAC, impersonation, and the logic of the reviews.
//!
//! handshake ──► [`Peer`] ─┐
//! Authorization header ───┴► [`Authenticator`] ──► `UserInfo` ──► [`impersonation`] ──► [`rbac::Authorizer`] ──► yes | no
//!
//! Invariants: a credential that was given and is bad is refused, it never makes
//! its bearer anonymous. No HTTP types. Objects are read through `client::Api`
//! only. Evaluating a rule does no I/O and does not wait.
//!
//! Entry points: [`pki::Pki`], [`tls::server_config`], [`Authenticator`],
//! [`rbac::Authorizer`], [`token::Signer`], [`reviews`].

pub mod authenticate;
pub mod impersonation;
pub mod pki;
pub mod rbac;
pub mod reviews;
pub mod tls;
pub mod token;
mod tokenrequest;
pub mod x509;

pub use authenticate::{Authenticator, Credentials, Refused};
pub use tls::Peer;

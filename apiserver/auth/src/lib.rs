//! Who asks, and whether they may: keys and certificates, TLS, x509 and bearer
//! token authentication, RBAC, impersonation, the logic of the reviews, and the
//! form in which another API server is asked for all of that.
//!
//! handshake ──► [`Peer`] ─┐
//! request headers ────────┴► [`Authentication`] ──► `UserInfo` ──► [`impersonation`] ──► [`Authorization`] ──► yes | no
//!                                own | delegated                                           RBAC | delegated
//!
//! Invariants: a credential that was given and is bad is refused, it never makes
//! its bearer anonymous. No HTTP types. Objects are read through `client::Api`
//! only. Evaluating a rule does no I/O and does not wait.
//!
//! Entry points: [`pki::Pki`], [`tls::server_config`], [`Authenticator`],
//! [`rbac::Authorizer`], [`delegated`], [`token::Signer`], [`reviews`].

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

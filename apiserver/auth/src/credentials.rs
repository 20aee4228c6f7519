//! The credentials of a request, and why they yield no user.

use std::sync::Arc;

use machinery::user::{ALL_UNAUTHENTICATED, ANONYMOUS};
use machinery::{Status, UserInfo};

use crate::tls::PeerCertificates;

pub(crate) const ANONYMOUS_NOT_ALLOWED: &str = "anonymous requests are not allowed";

/// Calls back with each header of a request: name in lower case, raw value.
pub type ForEachHeader<'a> = &'a (dyn Fn(&mut dyn FnMut(&str, &[u8])) + Send + Sync);

/// The credentials of a request.
#[derive(Clone, Copy, Default)]
pub struct RequestCredentials<'a> {
    pub peer: Option<&'a PeerCertificates>,
    /// The value of `Authorization: Bearer`, undecoded.
    pub bearer: Option<&'a [u8]>,
    /// The path of the request; empty if the credentials belong to no request.
    pub path: &'a str,
    /// The headers in which a front proxy names the user; used only for verified
    /// proxies.
    pub headers: Option<ForEachHeader<'a>>,
}

/// A credential is invalid: 401. The reason is logged and not sent to the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidCredential(pub String);

/// Why authentication yields no user.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AuthenticationError {
    /// A credential is invalid: 401.
    #[error(transparent)]
    InvalidCredential(#[from] InvalidCredential),
    /// The credentials could not be checked; respond with this status.
    #[error("{0}")]
    Undecided(Box<Status>),
}

impl From<Status> for AuthenticationError {
    fn from(status: Status) -> Self {
        Self::Undecided(Box::new(status))
    }
}

/// A bearer token as text. A token that is not UTF-8 is an invalid credential, not a
/// missing one.
pub(crate) fn token_text(token: &[u8]) -> Result<&str, InvalidCredential> {
    std::str::from_utf8(token).map_err(|_| InvalidCredential("the token is not UTF-8".into()))
}

/// The user of a request without credentials.
pub(crate) fn anonymous_user() -> Arc<UserInfo> {
    Arc::new(UserInfo {
        name: ANONYMOUS.into(),
        groups: vec![ALL_UNAUTHENTICATED.into()],
        ..UserInfo::default()
    })
}

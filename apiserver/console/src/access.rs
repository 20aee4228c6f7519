//! Who may use a console: the user of the command, by printed links, or everybody with a token of its own.

use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderMap;

use crate::console::Console;
use crate::guard::{Refusal, RequestGuard};
use crate::session::{LinkToken, Session, Sessions};
use crate::users::{BearerToken, ConsoleUse, ConsoleUsers, LoginFailure};

/// Prints the link that opens the console.
pub(crate) type LinkPrinter = Box<dyn Fn(String) + Send + Sync>;

pub(crate) enum ConsoleAccess {
    Link(LinkAccess),
    Tokens(Arc<ConsoleUsers>),
}

/// The console of the user of the command.
pub(crate) struct LinkAccess {
    pub(crate) console: Arc<Console>,
    sessions: Sessions,
    link: LinkToken,
    address: SocketAddr,
    print: LinkPrinter,
}

impl LinkAccess {
    /// Prints the first link.
    pub(crate) fn new(console: Arc<Console>, address: SocketAddr, print: LinkPrinter) -> Self {
        let access = Self {
            console,
            sessions: Sessions::default(),
            link: LinkToken::default(),
            address,
            print,
        };
        access.print_link();
        access
    }

    fn print_link(&self) {
        let token = self.link.issue();
        (self.print)(format!("http://{}/login?token={token}", self.address));
    }

    /// Exchanges the token of the link for the value of a cookie, once, and prints the next link.
    pub(crate) fn login(&self, token: &str) -> Option<String> {
        let cookie = self.link.accept(token);
        let cookie = cookie.then(|| self.sessions.begin(Session::new(false)))?;
        self.print_link();
        Some(cookie)
    }
}

/// A request that is let through, and the console that it reaches.
pub(crate) struct ActiveSession {
    pub(crate) console: Arc<Console>,
    pub(crate) session: Session,
    /// Of one of several users.
    pub(crate) usage: Option<ConsoleUse>,
}

/// Why a request reaches no console.
pub(crate) enum SessionFailure {
    Refusal(Refusal),
    /// There is no session, or no longer.
    NoSession {
        had_cookie: bool,
    },
    Login(LoginFailure),
}

impl ActiveSession {
    fn of_user(usage: ConsoleUse, session: Session) -> Self {
        Self {
            console: Arc::clone(usage.console()),
            session,
            usage: Some(usage),
        }
    }
}

impl ConsoleAccess {
    /// The session of a request. A token in its header comes before a cookie, since a proxy sets it.
    pub(crate) async fn session(
        &self,
        guard: &RequestGuard,
        headers: &HeaderMap,
    ) -> Result<ActiveSession, SessionFailure> {
        let mut cookies = guard.cookies(headers).peekable();
        let had_cookie = cookies.peek().is_some();
        match self {
            Self::Link(link) => {
                let session = cookies.find_map(|cookie| link.sessions.find(&cookie));
                let session = session.ok_or(SessionFailure::NoSession { had_cookie })?;
                Ok(ActiveSession {
                    console: Arc::clone(&link.console),
                    session,
                    usage: None,
                })
            }
            Self::Tokens(users) => {
                let token = BearerToken::of_headers(headers).map_err(SessionFailure::Refusal)?;
                if let Some(token) = token {
                    let usage = users.authenticate(&token).await;
                    let usage = usage.map_err(SessionFailure::Login)?;
                    let session = usage.header_session();
                    return Ok(ActiveSession::of_user(usage, session));
                }
                for cookie in cookies {
                    let session = users.session(&cookie).map_err(SessionFailure::Login)?;
                    if let Some((usage, session)) = session {
                        return Ok(ActiveSession::of_user(usage, session));
                    }
                }
                Err(SessionFailure::NoSession { had_cookie })
            }
        }
    }
}

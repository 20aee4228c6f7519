//! Decides which requests are let through: those of a browser with a session, to this address, and of
//! this origin.

use std::net::SocketAddr;

use http::header::{COOKIE, HOST, ORIGIN};
use http::{HeaderMap, StatusCode};

use crate::session::{Session, Sessions};

const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Why a request is refused.
pub(crate) type Refusal = (StatusCode, &'static str);

/// The names under which a browser reaches the server.
#[derive(Clone)]
pub(crate) struct RequestGuard {
    hosts: [String; 2],
    cookie: String,
}

impl RequestGuard {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let port = address.port();
        Self {
            hosts: [address.to_string(), format!("localhost:{port}")],
            // Cookies of one host are not kept apart by port.
            cookie: format!("flotilla-console-{port}"),
        }
    }

    /// Refuses requests to another name, which would reach this server by a name that somebody has
    /// pointed here (DNS rebinding), and requests of other sites.
    pub(crate) fn check_origin(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = single(headers, HOST.as_str())?.unwrap_or_default();
        if !self.hosts.iter().any(|own| own == host) {
            return Err((
                StatusCode::MISDIRECTED_REQUEST,
                "this name is not one of the console",
            ));
        }
        let foreign = (
            StatusCode::FORBIDDEN,
            "requests of other sites are refused; open the console by its own address",
        );
        // A page of another port of this host is of the same site, and not of the same origin.
        match single(headers, SEC_FETCH_SITE)? {
            None | Some("same-origin" | "none") => {}
            Some(_) => return Err(foreign),
        }
        match single(headers, ORIGIN.as_str())? {
            None => Ok(()),
            Some(origin) if origin.strip_prefix("http://") == Some(host) => Ok(()),
            Some(_) => Err(foreign),
        }
    }

    /// The session of the request's cookie.
    pub(crate) fn session(&self, headers: &HeaderMap, sessions: &Sessions) -> Option<Session> {
        let cookies = headers.get_all(COOKIE).iter();
        let pairs = cookies.filter_map(|value| value.to_str().ok());
        let mut pairs = pairs.flat_map(|value| value.split(';'));
        pairs.find_map(|pair| {
            let (name, value) = pair.trim().split_once('=')?;
            (name == self.cookie)
                .then(|| sessions.find(value))
                .flatten()
        })
    }

    /// The header that gives a browser its session.
    pub(crate) fn set_cookie(&self, value: &str) -> String {
        format!("{}={value}; Path=/; HttpOnly; SameSite=Strict", self.cookie)
    }

    /// Refuses forms that do not come from a page of the session. Browsers send the origin of each.
    pub(crate) fn check_form(
        headers: &HeaderMap,
        session: &Session,
        token: &str,
    ) -> Result<(), Refusal> {
        match headers.contains_key(ORIGIN) && session.accepts_form_token(token) {
            true => Ok(()),
            false => Err((
                StatusCode::FORBIDDEN,
                "the form is not one of this session; load the page again",
            )),
        }
    }
}

/// The value of a header, which may not be there twice.
fn single<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, Refusal> {
    let refusal = (StatusCode::BAD_REQUEST, "a header is malformed");
    let mut values = headers.get_all(name).iter();
    let value = values.next().map(http::HeaderValue::to_str).transpose();
    match values.next() {
        Some(_) => Err(refusal),
        None => value.map_err(|_| refusal),
    }
}

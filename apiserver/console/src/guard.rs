//! Decides which requests are let through: those of a browser with a session, to this address, and of
//! this origin.

use std::net::SocketAddr;

use http::header::{COOKIE, HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};

use crate::external_url::ExternalUrl;
use crate::session::{Session, TokenDigest, digest};

const SEC_FETCH_SITE: &str = "sec-fetch-site";
/// Browsers refuse a cookie with this prefix that another host or a page without TLS would set.
const EXTERNAL_COOKIE: &str = "__Host-flotilla-console";

/// Why a request is refused.
pub(crate) type Refusal = (StatusCode, &'static str);

/// The names under which a browser reaches the server.
#[derive(Clone)]
pub(crate) struct RequestGuard {
    hosts: Vec<String>,
    /// With `://`.
    scheme: &'static str,
    cookie: String,
    cookie_attributes: &'static str,
    /// Whether a page of another site may lead to the first page.
    is_entered_from_sites: bool,
}

impl RequestGuard {
    /// For a listener on loopback.
    pub(crate) fn loopback(address: SocketAddr) -> Self {
        let port = address.port();
        Self {
            hosts: vec![address.to_string(), format!("localhost:{port}")],
            scheme: "http://",
            // Cookies of one host are not kept apart by port.
            cookie: format!("flotilla-console-{port}"),
            cookie_attributes: "Path=/; HttpOnly; SameSite=Strict",
            is_entered_from_sites: false,
        }
    }

    /// For browsers that reach the server by one URL. An identity provider leads them back to it.
    pub(crate) fn external(url: &ExternalUrl) -> Self {
        Self {
            hosts: vec![url.host().to_owned()],
            scheme: "https://",
            cookie: EXTERNAL_COOKIE.to_owned(),
            cookie_attributes: "Path=/; Secure; HttpOnly; SameSite=Strict",
            is_entered_from_sites: true,
        }
    }

    /// Refuses requests to another name, which would reach this server by a name that somebody has
    /// pointed here (DNS rebinding).
    pub(crate) fn check_host(&self, head: &Parts) -> Result<(), Refusal> {
        let host = single(&head.headers, HOST.as_str())?.unwrap_or_default();
        let target = head
            .uri
            .authority()
            .map_or(host, |authority| authority.as_str());
        match target == host && self.hosts.iter().any(|own| own == host) {
            true => Ok(()),
            false => Err((
                StatusCode::MISDIRECTED_REQUEST,
                "this name is not one of the console",
            )),
        }
    }

    /// Whether a user follows a link of another site, or is led here by one.
    pub(crate) fn enters_from_site(&self, head: &Parts) -> bool {
        let is = |name: &str, value: &str| head.headers.get(name).is_some_and(|v| v == value);
        let is_foreign = is(SEC_FETCH_SITE, "cross-site") || is(SEC_FETCH_SITE, "same-site");
        let is_navigation = is("sec-fetch-mode", "navigate") && is("sec-fetch-dest", "document");
        self.is_entered_from_sites
            && head.method == Method::GET
            && is_foreign
            && is_navigation
            && !head.headers.contains_key(ORIGIN)
    }

    /// Refuses requests of other sites.
    pub(crate) fn check_origin(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let foreign = (
            StatusCode::FORBIDDEN,
            "requests of other sites are refused; open the console by its own address",
        );
        // A page of another port of this host is of the same site, and not of the same origin.
        match single(headers, SEC_FETCH_SITE)? {
            None | Some("same-origin" | "none") => {}
            Some(_) => return Err(foreign),
        }
        let host = single(headers, HOST.as_str())?.unwrap_or_default();
        match single(headers, ORIGIN.as_str())? {
            None => Ok(()),
            Some(origin) if origin.strip_prefix(self.scheme) == Some(host) => Ok(()),
            Some(_) => Err(foreign),
        }
    }

    /// The digests of the values of the request's cookies of this console.
    pub(crate) fn cookies<'h>(
        &'h self,
        headers: &'h HeaderMap,
    ) -> impl Iterator<Item = TokenDigest> + 'h {
        let cookies = headers.get_all(COOKIE).iter();
        let pairs = cookies.filter_map(|value| value.to_str().ok());
        let pairs = pairs.flat_map(|value| value.split(';'));
        pairs.filter_map(|pair| {
            let (name, value) = pair.trim().split_once('=')?;
            (name == self.cookie).then(|| digest(value))
        })
    }

    /// The header that gives a browser its session.
    pub(crate) fn set_cookie(&self, value: &str) -> String {
        format!("{}={value}; {}", self.cookie, self.cookie_attributes)
    }

    /// The header that takes a browser's cookie away.
    pub(crate) fn clear_cookie(&self) -> String {
        format!("{}=; {}; Max-Age=0", self.cookie, self.cookie_attributes)
    }

    /// Refuses a form without the origin of the console. Browsers send the origin of each.
    pub(crate) fn check_login(headers: &HeaderMap) -> Result<(), Refusal> {
        match headers.contains_key(ORIGIN) {
            true => Ok(()),
            false => Err((StatusCode::FORBIDDEN, "log in on the page of the console")),
        }
    }

    /// Refuses forms that do not come from a page of the session.
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
pub(crate) fn single<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, Refusal> {
    let refusal = (StatusCode::BAD_REQUEST, "a header is malformed");
    let mut values = headers.get_all(name).iter();
    let value = values.next().map(http::HeaderValue::to_str).transpose();
    match values.next() {
        Some(_) => Err(refusal),
        None => value.map_err(|_| refusal),
    }
}

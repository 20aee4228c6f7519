//! The sessions of browsers, each with a random cookie; forms of the session carry a second random token.
//! A link with a random token, which works once, is exchanged for a cookie.

use std::collections::VecDeque;

use parking_lot::Mutex;
use rand::RngCore;
use sha2::{Digest, Sha256};

/// The oldest session of a user ends when there are more.
const MAX_SESSIONS: usize = 8;
const TOKEN_BYTES: usize = 32;

pub(crate) type TokenDigest = [u8; 32];

/// Tokens are compared by their digests, which takes the same time whatever was guessed.
pub(crate) fn digest(token: &str) -> TokenDigest {
    Sha256::digest(token.as_bytes()).into()
}

fn random_token() -> String {
    let mut bytes = [0; TOKEN_BYTES];
    rand::rng().fill_bytes(&mut bytes);
    hexadecimal(&bytes)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The digest of a text as a page has it.
pub(crate) fn text_digest(text: &str) -> String {
    hexadecimal(&digest(text))
}

/// A browser, or a proxy before browsers, that has shown who its user is.
#[derive(Clone)]
pub(crate) struct Session {
    /// The token of the session's forms.
    pub(crate) form_token: String,
    /// Whether the user has logged in here, and not at a proxy.
    pub(crate) can_log_out: bool,
}

impl Session {
    pub(crate) fn new(can_log_out: bool) -> Self {
        Self {
            form_token: random_token(),
            can_log_out,
        }
    }

    pub(crate) fn accepts_form_token(&self, token: &str) -> bool {
        digest(token) == digest(&self.form_token)
    }
}

/// The sessions of one user, by the digests of their cookies.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<VecDeque<(TokenDigest, Session)>>);

impl Sessions {
    /// Begins a session, and returns the value of its cookie.
    pub(crate) fn begin(&self, session: Session) -> String {
        let cookie = random_token();
        let mut sessions = self.0.lock();
        sessions.push_back((digest(&cookie), session));
        if sessions.len() > MAX_SESSIONS {
            sessions.pop_front();
        }
        cookie
    }

    pub(crate) fn find(&self, cookie: &TokenDigest) -> Option<Session> {
        let sessions = self.0.lock();
        let mut sessions = sessions.iter();
        let (_, session) = sessions.find(|(other, _)| other == cookie)?;
        Some(session.clone())
    }
}

/// The token of the link that is printed, which works once.
#[derive(Default)]
pub(crate) struct LinkToken(Mutex<Option<TokenDigest>>);

impl LinkToken {
    /// The token of a new link, which replaces the last one.
    pub(crate) fn issue(&self) -> String {
        let token = random_token();
        *self.0.lock() = Some(digest(&token));
        token
    }

    /// Whether the token is that of the link, which is used up then.
    pub(crate) fn accept(&self, token: &str) -> bool {
        let mut link = self.0.lock();
        let is_accepted = *link == Some(digest(token));
        if is_accepted {
            *link = None;
        }
        is_accepted
    }
}

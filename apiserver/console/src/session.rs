//! The sessions of browsers. A link with a random token, which works once, is exchanged for a cookie;
//! forms of the session carry a second random token.

use std::collections::VecDeque;

use parking_lot::Mutex;
use rand::RngCore;
use sha2::{Digest, Sha256};

/// The oldest session ends when there are more.
const MAX_SESSIONS: usize = 8;
const TOKEN_BYTES: usize = 32;

type TokenDigest = [u8; 32];

/// Tokens are compared by their digests, which takes the same time whatever was guessed.
fn digest(token: &str) -> TokenDigest {
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

/// A browser that has exchanged a link.
#[derive(Clone)]
pub(crate) struct Session {
    cookie: TokenDigest,
    /// The token of the session's forms.
    pub(crate) form_token: String,
}

impl Session {
    pub(crate) fn accepts_form_token(&self, token: &str) -> bool {
        digest(token) == digest(&self.form_token)
    }
}

#[derive(Default)]
struct SessionState {
    link: Option<TokenDigest>,
    sessions: VecDeque<Session>,
}

#[derive(Default)]
pub(crate) struct Sessions(Mutex<SessionState>);

impl Sessions {
    /// The token of a new link, which replaces the last one.
    pub(crate) fn issue_link_token(&self) -> String {
        let token = random_token();
        self.0.lock().link = Some(digest(&token));
        token
    }

    /// Exchanges the token of the link for the value of a cookie, once.
    pub(crate) fn exchange(&self, token: &str) -> Option<String> {
        let mut state = self.0.lock();
        if state.link? != digest(token) {
            return None;
        }
        state.link = None;
        let cookie = random_token();
        state.sessions.push_back(Session {
            cookie: digest(&cookie),
            form_token: random_token(),
        });
        if state.sessions.len() > MAX_SESSIONS {
            state.sessions.pop_front();
        }
        Some(cookie)
    }

    /// The session of a cookie.
    pub(crate) fn find(&self, cookie: &str) -> Option<Session> {
        let digest = digest(cookie);
        let state = self.0.lock();
        let mut sessions = state.sessions.iter();
        sessions.find(|session| session.cookie == digest).cloned()
    }
}

//! The page on which a user logs in with a bearer token.

use http::StatusCode;
use maud::{Markup, html};

use super::layout::bare_layout;
use super::markup::notice;
use crate::users::{LoginFailure, TOKEN_FIELD};

/// Why a session is not there anymore.
pub(crate) const ENDED: &str = "You have logged out, the token has expired or was revoked, nothing was looked at for 30 minutes, or the console was restarted.";

/// The form for a token; `ended` says why the last session is over.
pub(crate) fn login(ended: Option<&str>) -> Markup {
    let remark = html! {
        @if let Some(reason) = ended { (notice("warn", "The session has ended", reason)) }
    };
    form(&remark)
}

/// The status and the page of a login that has failed.
pub(crate) fn login_failure(failure: LoginFailure) -> (StatusCode, Markup) {
    let (status, title, text) = match failure {
        LoginFailure::Refused => (
            StatusCode::UNAUTHORIZED,
            "The token is not accepted",
            "The control plane has refused it: it may have expired, or be one of another control plane.",
        ),
        LoginFailure::TooManyUsers => (
            StatusCode::SERVICE_UNAVAILABLE,
            "Too many users",
            "All consoles are in use. Try again later.",
        ),
        LoginFailure::TooManyRequests => (
            StatusCode::TOO_MANY_REQUESTS,
            "Too many pages",
            "Too many pages of this user are open, or pages by too many of its tokens. Close some.",
        ),
        LoginFailure::Unavailable => (
            StatusCode::BAD_GATEWAY,
            "The token cannot be verified",
            "The control plane does not answer. Try again later.",
        ),
    };
    (status, form(&notice("bad", title, text)))
}

fn form(remark: &Markup) -> Markup {
    let content = html! {
        h1 { "Log in to Flotilla" }
        (remark)
        form .login method="post" action="/login" {
            label for="bearer-token" { "Bearer token" }
            input #bearer-token type="password" name=(TOKEN_FIELD) autocomplete="off" required autofocus;
            button .primary type="submit" { "Log in" }
        }
        p .muted {
            "A token of the control plane, such as one of " code { "kubectl create token NAME" }
            ". You see and do what its user may. It stays in the memory of the console until you log out."
        }
    };
    bare_layout("Log in", &content)
}

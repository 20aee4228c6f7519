//! Renders the frame of every page: head, landmarks and navigation.

use maud::{DOCTYPE, Markup, html};

use crate::console::Console;
use crate::session::Session;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Navigation {
    Fleet,
    Workloads,
    Policies,
    Services,
    Autoscalers,
    Quotas,
    Activity,
    Health,
    None,
}

/// The inputs that the pages of a session share.
#[derive(Clone, Copy)]
pub(crate) struct PageContext<'a> {
    pub(crate) console: &'a Console,
    pub(crate) session: &'a Session,
}

const LINKS: [(Navigation, &str, &str); 8] = [
    (Navigation::Fleet, "/", "Fleet"),
    (Navigation::Workloads, "/workloads", "Workloads"),
    (Navigation::Policies, "/policies", "Policies"),
    (Navigation::Services, "/services", "Services"),
    (Navigation::Autoscalers, "/autoscalers", "Autoscalers"),
    (Navigation::Quotas, "/quotas", "Quotas"),
    (Navigation::Activity, "/activity", "Activity"),
    (Navigation::Health, "/health", "Health"),
];

/// Left out of a name that is shown, which would be cut otherwise.
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// The frame of a page around its changing part.
pub(crate) struct PageParts {
    pub(crate) title: String,
    pub(crate) navigation: Navigation,
    /// The heading, and forms whose input must survive changes.
    pub(crate) head: Markup,
}

fn document(title: &str, head: &Markup, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                (head)
                title { (title) " · Flotilla" }
                link rel="icon" type="image/svg+xml" href="/assets/icon.svg";
                link rel="stylesheet" href="/assets/console.css";
                script src="/assets/console.js" defer {}
            }
            body { (body) }
        }
    }
}

/// A page for browsers without a session.
pub(super) fn bare_layout(title: &str, content: &Markup) -> Markup {
    let body = html! { main #content .bare { (content) } };
    document(title, &html! {}, &body)
}

/// A page that has the browser load the first page, by itself or by its link.
pub(super) fn leading_layout() -> Markup {
    let head = html! { meta http-equiv="refresh" content="0; url=/"; };
    let body = html! { main #content .bare { p { a href="/" { "To the fleet" } } } };
    document("Flotilla", &head, &body)
}

/// A page of a session; with `is_live` its changing part, the fragment, is kept up to date.
pub(super) fn page_layout(
    context: &PageContext<'_>,
    parts: &PageParts,
    is_live: bool,
    fragment: &Markup,
) -> Markup {
    let body = html! {
        a .skip href="#content" { "Skip to the content" }
        header .banner {
            a .brand href="/" {
                img src="/assets/icon.svg" alt="" width="22" height="22";
                span { "Flotilla" }
            }
            nav aria-label="Pages" {
                ul {
                    @for (page, path, name) in LINKS {
                        li {
                            a href=(path) aria-current=[(page == parts.navigation).then_some("page")] {
                                (name)
                            }
                        }
                    }
                }
            }
            @match &context.console.user_name {
                Some(name) => {
                    p .server .user title={ (name) " at " (context.console.control_plane) } {
                        span .visually-hidden { "User " }
                        (name.strip_prefix(SERVICE_ACCOUNT_PREFIX).unwrap_or(name))
                    }
                }
                None => {
                    p .server title=(context.console.control_plane) {
                        span .visually-hidden { "Control plane " }
                        (context.console.control_plane)
                    }
                }
            }
            @if context.session.can_log_out {
                form .logout method="post" action="/logout" {
                    input type="hidden" name="token" value=(context.session.form_token);
                    button type="submit" { "Log out" }
                }
            }
            @if is_live {
                p #connection .connection role="status" { span .dot {} span .text { "Live" } }
            }
        }
        main #content tabindex="-1" data-live=[is_live.then_some("yes")] {
            (parts.head)
            (fragment)
        }
    };
    document(&parts.title, &html! {}, &body)
}

/// The page of a plan, which does not change while it is read.
pub(crate) fn action_layout(
    context: &PageContext<'_>,
    navigation: Navigation,
    title: &str,
    content: &Markup,
) -> Markup {
    let parts = PageParts {
        title: title.to_owned(),
        navigation,
        head: html! { h1 { (title) } },
    };
    page_layout(context, &parts, false, content)
}

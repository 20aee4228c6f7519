//! `flotilla console`: pages about the fleet, served on loopback with the user's own kubeconfig and
//! rights, or for many users who each have a bearer token.
//!
//! browser ──► [`server`] ──► [`guard`] (Host, Origin, CSRF) ──► [`access`] (session) ──► [`router`] ──► [`pages`] ──► HTML
//!                                                                          │ [`inventory`] ◄── reflectors ◄── `client::Api`
//!                                                                          └─► functions of `flotilla-cli` (why, plan, doctor, …)
//!
//! Invariants: nothing is done for a request that the guard has not let through. Every text is escaped
//! by the templates. Nothing is written before its plan was shown, and only as it was shown.

mod access;
mod actions;
mod clipped_text;
pub mod command;
mod console;
mod discovery_cache;
mod external_url;
mod guard;
mod inventory;
mod live;
mod live_log;
mod member_pods;
mod metrics_history;
mod pages;
mod query;
mod remote_connections;
mod response;
mod router;
mod server;
mod session;
#[cfg(test)]
mod tests;
mod tls;
mod users;

//! `flotilla console`: pages about the fleet, served on loopback with the user's own kubeconfig and
//! rights.
//!
//! browser ──► [`server`] ──► [`guard`] (Host, Origin, session, CSRF) ──► [`router`] ──► [`pages`] ──► HTML
//!                                                                          │ [`inventory`] ◄── reflectors ◄── `client::Api`
//!                                                                          └─► functions of `flotilla-cli` (why, plan, doctor, …)
//!
//! Invariants: nothing is done for a request that the guard has not let through. Every text is escaped
//! by the templates. Nothing is written before its plan was shown, and only as it was shown.

mod actions;
mod clipped_text;
pub mod command;
mod console;
mod discovery_cache;
mod guard;
mod inventory;
mod live;
mod live_log;
mod member_pods;
mod metrics_history;
mod pages;
mod query;
mod response;
mod router;
mod server;
mod session;
#[cfg(test)]
mod tests;

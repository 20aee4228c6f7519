//! The load: an ordinary client with rights of its own, which registers clusters and writes templates,
//! policies, overrides and dependencies.

mod client;
pub(crate) mod objects;
mod template_statuses;
mod user;

pub(crate) use client::LoadClient;
pub(crate) use template_statuses::TemplateStatuses;
pub(crate) use user::create_load_user;

//! The load: an ordinary client with rights of its own, which registers clusters and writes templates,
//! policies, overrides and dependencies.

mod client;
pub(crate) mod objects;
mod rollout_statuses;
pub(crate) mod staged_policies;
mod template_statuses;
mod user;

pub(crate) use client::LoadClient;
pub(crate) use rollout_statuses::RolloutStatuses;
pub(crate) use template_statuses::TemplateStatuses;
pub(crate) use user::create_load_user;

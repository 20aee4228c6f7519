//! Warns before the credentials of a cluster expire: the tokens in its Secrets, the authorities
//! in its CA bundle, and the certificate of its agent.

mod agent_check;
mod condition_writer;
mod controller;
mod expiry;
mod metrics;
#[cfg(test)]
mod tests;

pub(crate) use agent_check::start_agent_check;
pub(crate) use controller::start;

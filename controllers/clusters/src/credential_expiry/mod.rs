//! Warns before the credentials of a cluster expire: the tokens in its Secrets and the
//! authorities in its CA bundle.

mod controller;
mod expiry;
mod metrics;
#[cfg(test)]
mod tests;

pub(crate) use controller::start;

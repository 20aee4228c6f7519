//! The cache behind the fleet view: a resource of all members is cached once somebody reads it, and
//! dropped when nobody has for some time.
//!
//! The objects of the control plane itself are cached in the same way, as those of one more server, once
//! somebody reads both.
//!
//! a read ──[`demand`]──► demanded resources ──[`controller`]──► caches of the Ready members that serve them

mod control_plane;
mod controller;
mod demand;
mod object;
mod resource;
#[cfg(test)]
mod tests;

pub use controller::{FleetOptions, start_fleet};
pub(crate) use object::fleet_value;

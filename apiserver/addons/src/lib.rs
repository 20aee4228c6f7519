//! Addons: families of controllers and endpoints that are switched on and off while the process
//! runs (karmadactl's `addons`).
//!
//! ConfigMap ──[`switches`]──► [`AddonSwitches`] of each replica ──► the search and the metrics that it serves
//! [`AddonSwitches`] of the leader ──[`controller`]──► tasks of each family ──[`status_report`]──► annotation of the ConfigMap
//!
//! Invariants: what an operator writes is never fatal; what is not understood is reported, and the
//! flags decide. A change of one addon restarts no other.

mod controller;
mod estimators;
mod status_report;
mod switched_connector;
mod switches;

pub use controller::{AddonController, AddonControllerOptions, AddonDefaults, LeaderAddons};
pub use estimators::{EstimatorAddons, EstimatorAddonsOptions, member_tracking};
pub use switched_connector::SwitchedConnector;
pub use switches::{AddonSwitches, ConfiguredAddons};

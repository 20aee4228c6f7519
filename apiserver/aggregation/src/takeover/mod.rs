//! The takeover of a running Karmada in place: Flotilla copies the objects that the host serves
//! for Karmada, and then its APIServices supersede those of Karmada, and can be given back.
//!
//! command ──[`TakeoverRecord`] in the host──► every replica: [`TakeoverFollower`] ──► APIServices
//!                                                  leader: [`TakeoverImporter`] ──► store, controllers
//! For a move to a standalone Flotilla, [`StandaloneStore`] makes its store of the objects.
//!
//! Invariants: the record decides, also after a restart. APIServices are written and controllers
//! run only in the phases that say so. An object is read from the host only while the host
//! serves it itself.

mod follower;
mod importer;
mod list;
mod record;
mod standalone_store;

pub use follower::TakeoverFollower;
pub use importer::TakeoverImporter;
pub use list::list_resource;
pub use record::{MovedResource, RECORD_CONFIG_MAP, TakeoverPhase, TakeoverRecord, TakeoverReport};
pub use standalone_store::StandaloneStore;

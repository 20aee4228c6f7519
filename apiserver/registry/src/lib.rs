//! The registry: the table of served resources, and the verbs of the API on them.
//!
//! http | [`LoopbackApi`] ──► [`Registry`] ──► admission ──► one transaction in the store
//!                                └──────────► watchcache ──► lists, watches
//!
//! Invariants: all writes take the same steps, whoever the caller is. A write is one
//! transaction on one key, built from one JSON tree and encoded once. Reads go through the
//! watch cache. An object that equals the stored one is not written. Authorization happens
//! in the callers. Only `strategy`, `conversion`, `selectable_fields` and the modules of
//! subresources know kinds by name.
//!
//! Entry points: [`Registry::new`], [`Registry::table`], [`LoopbackApi::new`].

mod accept;
mod apart;
mod below;
mod bootstrap;
mod claims;
mod commit;
mod create;
mod custom;
mod delete;
mod fields;
mod figures;
mod loopback;
mod meta;
mod modify;
pub mod options;
mod read;
mod record;
mod registry;
mod request;
mod scale;
mod strategy;
mod table;
mod taken;
mod view;
mod webhooks;

#[cfg(test)]
mod tests;

pub use loopback::Loopback;
pub use read::{Event, Item, Watch};
pub use registry::{Creator, Creators, Options, Raw, Registry};
pub use request::{
    Body, Ctx, Deleted, FieldValidation, GetOptions, ListReply, WatchOptions, WriteOptions, Written,
};
pub use table::{Group, Row, Subresource, Table, Version};
pub use webhooks::apply_patch;

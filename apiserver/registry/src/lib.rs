//! The registry: the table of resources, and the verbs of the API on it.
//!
//! http | [`Loopback`] ──► [`Registry`] ──► admission ──► one transaction in the store
//!                             └──────────► watchcache ──► lists, watches
//!
//! Invariants: every write goes through the same steps, whoever asks. A write is
//! one transaction on one key, made of one tree and encoded once. Reads never
//! touch the store but through the watch cache. What equals the stored object is
//! not written. Authorisation is not here. A kind is known by name only in
//! `strategy`, `view`, `fields` and where a subresource belongs to it alone.
//!
//! Entry points: [`Registry::new`], [`Registry::table`], [`Loopback::new`].

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

//! The version of the storage format, which both engines share.
//!
//! The embedded engine keeps the version in SQLite's `user_version`; the etcd engine
//! keeps it below its prefix in the key `/registry/flotilla/format`, as
//! `{"format":1}`. An etcd without that key was written before the key existed and has
//! format [`BASE`].
//!
//! A program opens every format up to the newest that it knows and refuses a higher one before it
//! writes anything. It raises the stored version to what its own data needs and never
//! lowers it.
//!
//! The version is raised when a program that knows only the previous version would
//! misread data, lose a part of it, or write what newer programs misread. A new kind,
//! a new field, or a key that older programs do not touch does not raise it. During a
//! rolling update, replicas of two successive releases share one etcd; so a release that
//! introduces a version stores it only where the operator enables (by a flag) the feature
//! that needs it. Otherwise it only reads the version, and the next release stores it.

use crate::store::Error;

/// Every value is an object's JSON.
pub const BASE: u32 = 1;
/// Values may be encrypted as kube-apiserver encrypts them. A program that knows only
/// [`BASE`] would treat them as damaged.
pub const ENCRYPTED: u32 = 2;
/// The highest version of data in etcd and in backups that this program knows.
pub const NEWEST: u32 = ENCRYPTED;
/// The database of the embedded engine may hold values as deltas. It has this version whatever its
/// values are; its mark `encrypted` tells [`BASE`] from [`ENCRYPTED`]. No second release opens the
/// file while this one runs, so the engine stores the version when it opens a file. Backups hold
/// whole values, and have the version of these.
pub(crate) const DELTAS: u32 = 3;

/// Fails on a version that this program does not know. `location` names the file or the key
/// that holds the version, `newest` is the highest that it may have.
pub(crate) fn check(location: &str, format: u32, newest: u32) -> Result<(), Error> {
    if (BASE..=newest).contains(&format) {
        return Ok(());
    }
    Err(Error::Fatal(format!(
        "{location} has format {format}, and this version of Flotilla knows only formats {BASE} to \
         {newest}; nothing was changed; start the version that wrote it, or a newer one"
    )))
}

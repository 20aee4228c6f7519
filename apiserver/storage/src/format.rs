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
/// Values may be stored as deltas, which a program that knows only [`ENCRYPTED`] would treat as
/// damaged.
///
/// The database of the embedded engine has this version whatever its values are; its mark
/// `encrypted` tells [`BASE`] from [`ENCRYPTED`]. No second release opens the file while this one
/// runs, so the engine stores the version when it opens a file. In etcd a flag asks for it.
pub const DELTAS: u32 = 3;
/// Both [`DELTAS`] and [`ENCRYPTED`], in etcd.
const ENCRYPTED_DELTAS: u32 = 4;
/// The highest version of backups that this program knows. Backups hold whole values.
pub const NEWEST_BACKUP: u32 = ENCRYPTED;
/// The highest version of data in etcd that this program knows.
pub const NEWEST_ETCD: u32 = ENCRYPTED_DELTAS;

/// The lowest version that allows what each of two versions allows.
pub fn union(a: u32, b: u32) -> u32 {
    // Bit 0 of a version less one: encrypted values; bit 1: deltas.
    (a.saturating_sub(BASE) | b.saturating_sub(BASE)) + BASE
}

/// Whether values may be encrypted in etcd.
pub fn has_encrypted_values(format: u32) -> bool {
    union(format, ENCRYPTED) == format
}

/// Whether values may be stored as deltas in etcd.
pub fn has_deltas(format: u32) -> bool {
    union(format, DELTAS) == format
}

/// The version of whole values, such as those of a backup, with the encryption of `format`.
pub(crate) fn without_deltas(format: u32) -> u32 {
    if has_encrypted_values(format) {
        ENCRYPTED
    } else {
        BASE
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_in_etcd_combine() {
        for (a, b, both) in [
            (BASE, BASE, BASE),
            (BASE, ENCRYPTED, ENCRYPTED),
            (ENCRYPTED, DELTAS, NEWEST_ETCD),
            (DELTAS, DELTAS, DELTAS),
            (NEWEST_ETCD, BASE, NEWEST_ETCD),
        ] {
            assert_eq!((union(a, b), union(b, a)), (both, both), "{a} {b}");
        }
        for (format, encrypted, deltas) in [
            (BASE, false, false),
            (ENCRYPTED, true, false),
            (DELTAS, false, true),
            (NEWEST_ETCD, true, true),
        ] {
            assert_eq!(has_encrypted_values(format), encrypted, "{format}");
            assert_eq!(has_deltas(format), deltas, "{format}");
            assert_eq!(has_encrypted_values(without_deltas(format)), encrypted);
        }
    }
}

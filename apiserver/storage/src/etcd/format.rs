//! Reads and raises the format version that is stored below the prefix.
//!
//! A running replica keeps reading the version: when a newer program raises it, the
//! replica stops serving, since it would misread what the newer one writes.

use crate::format::{self, BASE};
use crate::store::{Entry, Error, Op, Outcome, Range, Result, Txn};

use super::{Etcd, Inner};

const KEY: &str = "/registry/flotilla/format";
/// Only other replicas write the key, each one once.
const ATTEMPTS: usize = 10;

impl Etcd {
    /// Stores the format version ([`crate::format`]) where there is none and raises it to
    /// `needed`. Returns the version that is stored afterwards.
    ///
    /// # Errors
    /// [`Error::Fatal`] when the stored version is higher than this program knows.
    pub async fn raise_format(&self, needed: u32) -> Result<u32> {
        self.inner.alive()?;
        raise(&self.inner, needed).await
    }

    /// The stored format version.
    ///
    /// # Errors
    /// As [`EtcdStore::raise_format`].
    pub async fn format(&self) -> Result<u32> {
        self.inner.alive()?;
        read(&self.inner).await.map(|(version, _)| version)
    }
}

impl Inner {
    /// Fails the store when a newer program has raised the version.
    pub(super) async fn check_format(&self) {
        if let Err(error @ Error::Fatal(_)) = read(self).await {
            self.failure.send_replace(Some(error));
        }
    }
}

/// The stored version and the revision of its key; [`BASE`] and 0 where there is none.
/// Fails on a version that this program does not know.
pub(super) async fn read(inner: &Inner) -> Result<(u32, u64)> {
    let page = inner.range(&Range::key(KEY)).await?;
    let Some(entry) = page.entries.into_iter().next() else {
        return Ok((BASE, 0));
    };
    let version = parse(inner, &entry)?;
    format::check(&place(inner), version)?;
    Ok((version, entry.revision))
}

/// Stores the version where there is none, and raises it to what the data needs.
async fn raise(inner: &Inner, needed: u32) -> Result<u32> {
    for _ in 0..ATTEMPTS {
        let (found, revision) = read(inner).await?;
        if revision > 0 && found >= needed {
            return Ok(found);
        }
        let version = found.max(needed);
        let txn = Txn {
            key: KEY.into(),
            expected: revision,
            op: Op::Put {
                value: format!("{{\"format\":{version}}}").into(),
                ttl: None,
            },
        };
        let written = inner.write(&txn, None).await.map_err(|f| f.error)?;
        if let Outcome::Committed { .. } = written {
            return Ok(version);
        }
    }
    Err(Error::Unavailable(format!(
        "{} was changed by other replicas at every attempt",
        place(inner)
    )))
}

fn parse(inner: &Inner, entry: &Entry) -> Result<u32> {
    let text = std::str::from_utf8(&entry.value).ok();
    let number = text
        .and_then(|t| t.strip_prefix("{\"format\":")?.strip_suffix('}'))
        .and_then(|number| number.parse().ok());
    number.ok_or_else(|| {
        Error::Fatal(format!(
            "{} does not hold a format version; restore it from a backup",
            place(inner)
        ))
    })
}

/// The key in etcd, for errors.
fn place(inner: &Inner) -> String {
    let key = inner.keys.outer(KEY);
    format!("the etcd key {}", String::from_utf8_lossy(&key))
}

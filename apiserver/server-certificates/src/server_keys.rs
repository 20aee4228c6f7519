//! The private keys and certificates of a server, which replicas share through the store.
//!
//! All replicas on a store use the certificate authority and token key of the first one.
//! They are stored under a key that the API does not serve; the data directory has a copy.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use auth::SharedKeys;
use auth::pki::Pki;
use jiff::Timestamp;
use storage::{SingleKeyTxn, SingleKeyTxnOp, Store, TxnResponse};

pub const SHARED_KEYS_KEY: &str = "/registry/flotilla/identity";
/// Each attempt but the last conflicts with another process.
const MAX_ATTEMPTS: usize = 10;

/// The location of a server's keys and certificates.
pub struct ServerKeysLocation {
    pub dir: PathBuf,
    /// The names in the serving certificate.
    pub names: Vec<String>,
    /// The store, if other processes share it.
    pub store: Option<Arc<dyn Store>>,
}

impl ServerKeysLocation {
    /// Reads keys and certificates, creates missing ones and renews due ones.
    pub async fn open(&self, now: Timestamp) -> anyhow::Result<Pki> {
        match &self.store {
            Some(store) => open_shared(&**store, &self.dir, &self.names, now).await,
            None => {
                let (dir, names) = (self.dir.clone(), self.names.clone());
                let open = move || Pki::open(&dir, &names, now);
                Ok(tokio::task::spawn_blocking(open).await??)
            }
        }
    }
}

/// Opens the directory with the shared keys: the keys of the store replace those of the
/// directory; if the store has none, those of the directory are stored.
async fn open_shared(
    store: &dyn Store,
    dir: &Path,
    names: &[String],
    now: Timestamp,
) -> anyhow::Result<Pki> {
    for _ in 0..MAX_ATTEMPTS {
        let stored = store
            .get(SHARED_KEYS_KEY)
            .await
            .context("cannot read the shared keys")?;
        if let Some(reason) = stored
            .as_ref()
            .and_then(|e| storage::encryption::unreadable_reason(&e.value))
        {
            bail!("{SHARED_KEYS_KEY} in the store cannot be decrypted: {reason}");
        }
        let shared = match &stored {
            Some(entry) => Some(SharedKeys::parse(&entry.value).map_err(|reason| {
                anyhow!("{SHARED_KEYS_KEY} in the store {reason}; restore it from a backup")
            })?),
            None => None,
        };
        if let Some(shared) = &shared {
            shared.write_to_dir(dir)?;
        }
        let pki = Pki::open(dir, names, now)?;
        let own_keys = SharedKeys::from_pki(&pki);
        // They differ if the store had none or the authority was renewed.
        let same = shared.as_ref() == Some(&own_keys);
        if same && !is_stale(store).await? {
            return Ok(pki);
        }
        let txn = SingleKeyTxn {
            key: SHARED_KEYS_KEY.into(),
            expected: stored.map_or(0, |entry| entry.mod_revision),
            op: SingleKeyTxnOp::Put {
                value: own_keys.to_json().into(),
                ttl: None,
            },
        };
        let committed = store.commit(txn).await;
        if let TxnResponse::Committed { .. } = committed.context("cannot store the shared keys")? {
            return Ok(pki);
        }
    }
    bail!(
        "the shared keys were changed by others at every attempt; is another program writing {SHARED_KEYS_KEY}?"
    )
}

/// Whether the keys must be stored again, under the first encryption key.
async fn is_stale(store: &dyn Store) -> anyhow::Result<bool> {
    let stale = store.get_stale(SHARED_KEYS_KEY).await;
    Ok(stale.context("cannot read the shared keys")?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::EmbeddedStore;

    #[tokio::test]
    async fn the_first_replica_provides_the_keys() {
        let store = EmbeddedStore::in_memory(storage::EmbeddedStoreOptions::default()).unwrap();
        let now = Timestamp::now();
        let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let own = Pki::open(dirs[0].path(), &[], now).unwrap();
        let mut all = Vec::new();
        for dir in &dirs {
            all.push(open_shared(&store, dir.path(), &[], now).await.unwrap());
        }
        assert!(all.iter().all(|p| p.ca_pem == own.ca_pem));
        assert!(all.iter().all(|p| p.token_key_pem == own.token_key_pem));
        assert!(all[1].serving.key_pem != all[0].serving.key_pem);
        // Two replicas start at the same time on an empty store.
        let store = EmbeddedStore::in_memory(storage::EmbeddedStoreOptions::default()).unwrap();
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let (a, b) = tokio::join!(
            open_shared(&store, dirs[0].path(), &[], now),
            open_shared(&store, dirs[1].path(), &[], now)
        );
        assert!(a.unwrap().ca_pem == b.unwrap().ca_pem);
    }

    #[tokio::test]
    async fn a_renewed_authority_reaches_the_other_replicas() {
        let store = EmbeddedStore::in_memory(storage::EmbeddedStoreOptions::default()).unwrap();
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let day = jiff::SignedDuration::from_hours(24);
        let begin = Timestamp::now();
        let first = open_shared(&store, one.path(), &[], begin).await.unwrap();
        let late = begin + day * 3400;
        let renewed = open_shared(&store, two.path(), &[], late).await.unwrap();
        assert!(renewed.ca_pem != first.ca_pem);
        let again = open_shared(&store, one.path(), &[], late).await.unwrap();
        assert!(again.ca_pem == renewed.ca_pem);
    }
}

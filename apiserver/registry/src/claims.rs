//! Allocates the cluster IPs and node ports of Services without duplicates, even if several
//! processes allocate them.
//!
//! A process that has the store alone knows its own allocations. If processes share a store,
//! each address is also claimed with its own key in the store: the claim is created before
//! the Service is written, and deleted when the address is free again. If a process dies
//! and leaves a claim behind, the claim expires for another process that observed it
//! unchanged for a while and found no Service with the address. Each process measures this
//! time with its own clock, as client-go's leader election does.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use machinery::Status;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use storage::{Entry, Op, Outcome, Txn};
use tokio::time::Instant;
use watchcache::{At as Position, Filter, ListRequest};

use crate::commit::store_failed;
use crate::meta;
use crate::registry::Registry;
use crate::strategy::services::Drawn;
use crate::table::Row;

const PREFIX: &str = "/registry/flotilla/services/";
/// A claim without a Service expires after this time, twice the longest request.
const VOID_AFTER: Duration = Duration::from_secs(120);
/// Observed claims are forgotten after this time.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);
/// How often an allocation is repeated because another process claimed an address first.
const ATTEMPTS: usize = 16;

#[derive(Serialize, Deserialize)]
struct Claim {
    /// `namespace/name`.
    service: String,
}

/// Claims of other processes on addresses that no Service had when this process observed
/// them: the revision of each, and when it was first observed.
#[derive(Default)]
pub(crate) struct UnheldClaims(Mutex<HashMap<Arc<str>, (u64, Instant)>>);

impl UnheldClaims {
    /// Whether a claim was unchanged for so long that no Service will follow.
    fn is_void(&self, claim: &Entry) -> bool {
        let now = Instant::now();
        let mut observed = self.0.lock();
        match observed.get(&claim.key) {
            Some((revision, first)) if *revision == claim.revision => *first + VOID_AFTER <= now,
            _ => {
                observed.retain(|_, (_, first)| *first + FORGOTTEN_AFTER > now);
                observed.insert(Arc::clone(&claim.key), (claim.revision, now));
                false
            }
        }
    }
}

pub(crate) fn is_service(resource: &Row) -> bool {
    resource.kind.gvr.group.is_empty() && resource.kind.gvr.resource == "services"
}

fn keys(allocation: &Drawn) -> impl Iterator<Item = String> {
    let ips = allocation.ips.iter().map(|ip| {
        let ip = Ipv4Addr::from(*ip);
        format!("{PREFIX}ips/{ip}")
    });
    let ports = allocation
        .ports
        .iter()
        .map(|port| format!("{PREFIX}ports/{port}"));
    ips.chain(ports)
}

fn owner(service: &Value) -> String {
    let (namespace, name) = (
        meta::text(service, "namespace"),
        meta::text(service, "name"),
    );
    format!("{namespace}/{name}")
}

impl Registry {
    /// Allocates the addresses of a Service; does nothing for other kinds.
    pub(crate) async fn draw(
        &self,
        resource: &Row,
        new: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<Drawn, Status> {
        if !is_service(resource) {
            return Ok(Drawn::default());
        }
        let shared = self.options.shared_store;
        if shared || !self.services.ready() {
            let everything = ListRequest {
                filter: Filter::default(),
                at: Position::Newest,
                limit: 0,
            };
            let reply = resource.stored.cache.list(everything).await;
            self.services
                .refresh(&reply.map_err(|e| e.status())?.items, shared);
        }
        let before = shared.then(|| new.clone());
        let mut attempts = 0..ATTEMPTS;
        loop {
            let allocation = self.services.draw(new, old, dry_run);
            let mut allocation = allocation.map_err(|errors| {
                Status::invalid(&resource.kind.gvk, meta::text(new, "name"), &errors)
            })?;
            let Some(before) = before.as_ref().filter(|_| !dry_run) else {
                return Ok(allocation);
            };
            let conflict = self.claim(resource, new, &mut allocation).await;
            if matches!(conflict, Ok(None)) {
                return Ok(allocation);
            }
            self.undo(&allocation).await;
            // The next attempt must not allocate this address.
            if let Some(conflict) = conflict? {
                self.services.take(&conflict);
            }
            if attempts.next().is_none() {
                return Err(Status::server_timeout(
                    &resource.kind.gvr,
                    "allocate addresses of",
                ));
            }
            new.clone_from(before);
        }
    }

    /// Claims all allocated addresses. Returns an address that another process has claimed.
    async fn claim(
        &self,
        resource: &Row,
        service: &Value,
        allocation: &mut Drawn,
    ) -> Result<Option<Drawn>, Status> {
        let claim = Claim {
            service: owner(service),
        };
        let value: Bytes = serde_json::to_vec(&claim).map_err(Status::internal)?.into();
        for (n, key) in keys(allocation).enumerate().collect::<Vec<_>>() {
            let key: Arc<str> = key.into();
            match self.claim_one(resource, &key, &value).await? {
                Some(revision) => allocation.claims.push((key, revision)),
                None => {
                    let mut conflict = Drawn::default();
                    match n.checked_sub(allocation.ips.len()) {
                        None => conflict.ips.push(allocation.ips[n]),
                        Some(port) => conflict.ports.push(allocation.ports[port]),
                    }
                    return Ok(Some(conflict));
                }
            }
        }
        Ok(None)
    }

    async fn claim_one(
        &self,
        resource: &Row,
        key: &Arc<str>,
        value: &Bytes,
    ) -> Result<Option<u64>, Status> {
        let failed = |e: storage::Error| store_failed(&e, &resource.kind.gvr, "create");
        let put = |expected| Txn {
            key: Arc::clone(key),
            expected,
            op: Op::Put {
                value: value.clone(),
                ttl: None,
            },
        };
        let existing = match self.store.commit(put(0)).await.map_err(failed)? {
            Outcome::Committed { revision } => return Ok(Some(revision)),
            Outcome::Conflict { current } => current,
        };
        let Some(existing) = existing.filter(|claim| self.unheld_claims.is_void(claim)) else {
            return Ok(None);
        };
        match self
            .store
            .commit(put(existing.revision))
            .await
            .map_err(failed)?
        {
            Outcome::Committed { revision } => Ok(Some(revision)),
            Outcome::Conflict { .. } => Ok(None),
        }
    }

    /// Frees the addresses that were allocated for a failed write.
    pub(crate) async fn undo(&self, allocation: &Drawn) {
        self.services.undo(allocation);
        for (key, revision) in &allocation.claims {
            self.give_up(key, *revision).await;
        }
    }

    /// Frees the addresses that a Service no longer has.
    pub(crate) async fn release(&self, resource: &Row, old: &Value, new: Option<&Value>) {
        if !is_service(resource) {
            return;
        }
        let released = self.services.release(old, new);
        if !self.options.shared_store {
            return;
        }
        let service = owner(old);
        for key in keys(&released) {
            let Ok(Some(entry)) = self.store.get(&key).await else {
                continue;
            };
            let claim: Option<Claim> = serde_json::from_slice(&entry.value).ok();
            if claim.is_some_and(|claim| claim.service == service) {
                self.give_up(&entry.key, entry.revision).await;
            }
        }
    }

    /// Deletes a claim; one that cannot be deleted expires later.
    async fn give_up(&self, key: &Arc<str>, revision: u64) {
        let txn = Txn {
            key: Arc::clone(key),
            expected: revision,
            op: Op::Delete,
        };
        if let Err(error) = self.store.commit(txn).await {
            tracing::debug!(%error, %key, "failed to delete the claim on a service address; it expires later");
        }
    }
}

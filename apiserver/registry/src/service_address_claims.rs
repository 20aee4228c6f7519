//! Allocates the cluster IPs and node ports of Services without duplicates, even if several
//! processes allocate them.
//!
//! A process that has the store alone knows its own allocations. If processes share a store,
//! each address is also claimed with its own key in the store: the claim is created before
//! the Service is written, and deleted when the address is free again. If a process dies
//! and leaves a claim behind, the claim expires for another process that observed it
//! unchanged for a while and found no Service with the address. Each process measures this
//! time with its own clock, as client-go's leader election does.

use std::net::Ipv4Addr;
use std::sync::Arc;

use bytes::Bytes;
use machinery::Status;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use storage::{SingleKeyTxn, SingleKeyTxnOp, TxnResponse};
use watchcache::{CacherListRequest, ListRevision as Position, SelectionPredicate};

use crate::commit::store_error_status;
use crate::object_meta;
use crate::registry::Registry;
use crate::resource_table::ResourceInfo;
use crate::strategy::services::ServiceAllocation;

const CLAIMS_PREFIX: &str = "/registry/flotilla/services/";
/// How often an allocation is repeated because another process claimed an address first.
const MAX_ALLOCATION_ATTEMPTS: usize = 16;

/// The stored value of a claimed cluster IP or node port: the Service that owns it.
#[derive(Serialize, Deserialize)]
struct ServiceAllocationClaim {
    /// `namespace/name`.
    service: String,
}

pub(crate) fn is_service(resource: &ResourceInfo) -> bool {
    resource.kind.gvr.group.is_empty() && resource.kind.gvr.resource == "services"
}

fn claim_keys(allocation: &ServiceAllocation) -> impl Iterator<Item = String> {
    let ips = allocation.ips.iter().map(|ip| {
        let ip = Ipv4Addr::from(*ip);
        format!("{CLAIMS_PREFIX}ips/{ip}")
    });
    let ports = allocation
        .ports
        .iter()
        .map(|port| format!("{CLAIMS_PREFIX}ports/{port}"));
    ips.chain(ports)
}

fn service_key(service: &Value) -> String {
    let (namespace, name) = (
        object_meta::metadata_string(service, "namespace"),
        object_meta::metadata_string(service, "name"),
    );
    format!("{namespace}/{name}")
}

impl Registry {
    /// Allocates the addresses of a Service; does nothing for other kinds.
    pub(crate) async fn allocate_service_addresses(
        &self,
        resource: &ResourceInfo,
        new: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<ServiceAllocation, Status> {
        if !is_service(resource) {
            return Ok(ServiceAllocation::default());
        }
        let shared = self.options.shared_store;
        if shared || !self.service_allocator.is_ready() {
            let list_all = CacherListRequest {
                filter: SelectionPredicate::default(),
                revision: Position::Newest,
                limit: 0,
            };
            let reply = resource.storage.cache.list(list_all).await;
            self.service_allocator
                .refresh(&reply.map_err(|e| e.status())?.items, shared);
        }
        let before = shared.then(|| new.clone());
        let mut attempts = 0..MAX_ALLOCATION_ATTEMPTS;
        loop {
            let allocation = self.service_allocator.allocate(new, old, dry_run);
            let mut allocation = allocation.map_err(|errors| {
                Status::invalid(
                    &resource.kind.gvk,
                    object_meta::metadata_string(new, "name"),
                    &errors,
                )
            })?;
            let Some(before) = before.as_ref().filter(|_| !dry_run) else {
                return Ok(allocation);
            };
            let conflict = self.claim_addresses(resource, new, &mut allocation).await;
            if matches!(conflict, Ok(None)) {
                return Ok(allocation);
            }
            self.undo_service_allocation(&allocation).await;
            // The next attempt must not allocate this address.
            if let Some(conflict) = conflict? {
                self.service_allocator.mark_allocated(&conflict);
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
    async fn claim_addresses(
        &self,
        resource: &ResourceInfo,
        service: &Value,
        allocation: &mut ServiceAllocation,
    ) -> Result<Option<ServiceAllocation>, Status> {
        let claim = ServiceAllocationClaim {
            service: service_key(service),
        };
        let value: Bytes = serde_json::to_vec(&claim).map_err(Status::internal)?.into();
        for (n, key) in claim_keys(allocation).enumerate().collect::<Vec<_>>() {
            let key: Arc<str> = key.into();
            match self.claim_address(resource, &key, &value).await? {
                Some(revision) => allocation.claims.push((key, revision)),
                None => {
                    let mut conflict = ServiceAllocation::default();
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

    async fn claim_address(
        &self,
        resource: &ResourceInfo,
        key: &Arc<str>,
        value: &Bytes,
    ) -> Result<Option<u64>, Status> {
        let failed = |e: storage::Error| store_error_status(&e, &resource.kind.gvr, "create");
        let put = |expected| SingleKeyTxn {
            key: Arc::clone(key),
            expected,
            op: SingleKeyTxnOp::Put {
                value: value.clone(),
                ttl: None,
            },
        };
        let existing = match self.store.commit(put(0)).await.map_err(failed)? {
            TxnResponse::Committed { revision } => return Ok(Some(revision)),
            TxnResponse::Conflict { current } => current,
        };
        let Some(existing) = existing.filter(|claim| self.unused_address_claims.is_expired(claim))
        else {
            return Ok(None);
        };
        match self
            .store
            .commit(put(existing.mod_revision))
            .await
            .map_err(failed)?
        {
            TxnResponse::Committed { revision } => Ok(Some(revision)),
            TxnResponse::Conflict { .. } => Ok(None),
        }
    }

    /// Frees the addresses that were allocated for a failed write.
    pub(crate) async fn undo_service_allocation(&self, allocation: &ServiceAllocation) {
        self.service_allocator.undo(allocation);
        for (key, revision) in &allocation.claims {
            self.delete_claim(key, *revision).await;
        }
    }

    /// Frees the addresses that a Service no longer has.
    pub(crate) async fn release_service_addresses(
        &self,
        resource: &ResourceInfo,
        old: &Value,
        new: Option<&Value>,
    ) {
        if !is_service(resource) {
            return;
        }
        let released = self.service_allocator.release(old, new);
        if !self.options.shared_store {
            return;
        }
        let service = service_key(old);
        for key in claim_keys(&released) {
            let Ok(Some(entry)) = self.store.get(&key).await else {
                continue;
            };
            let claim: Option<ServiceAllocationClaim> =
                machinery::json::from_slice(&entry.value).ok();
            if claim.is_some_and(|claim| claim.service == service) {
                self.delete_claim(&entry.key, entry.mod_revision).await;
            }
        }
    }

    /// Deletes a claim; one that cannot be deleted expires later.
    async fn delete_claim(&self, key: &Arc<str>, revision: u64) {
        let txn = SingleKeyTxn {
            key: Arc::clone(key),
            expected: revision,
            op: SingleKeyTxnOp::Delete,
        };
        if let Err(error) = self.store.commit(txn).await {
            tracing::debug!(%error, %key, "failed to delete the claim on a service address; it expires later");
        }
    }
}

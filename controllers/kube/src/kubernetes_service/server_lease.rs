//! The Leases by which servers of one store know of each other.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use client::{
    Api, DeleteOptions, Error, ListOptions, Patch, ResourcePath, WriteOptions, ignore_not_found,
};
use jiff::{SignedDuration, Timestamp};
use machinery::time::{self, Clock, rfc3339_micros};
use machinery::{Gvr, Object};
use serde::Deserialize;
use serde_json::{Value, json};

static LEASES: Gvr = Gvr::from_static("coordination.k8s.io", "v1", "leases");
const NAMESPACE: &str = "kube-system";
/// Of the Leases of servers.
const LABEL: &str = "flotilla.io/server-address";
const LEASE_SECONDS: i64 = 15;
pub(super) const RENEW_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Default, Deserialize)]
#[serde(default)]
struct LeaseFields {
    spec: LeaseSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
    holder_identity: Option<String>,
    renew_time: Option<String>,
    lease_duration_seconds: Option<i64>,
}

impl LeaseSpec {
    /// The address of a server whose Lease has not expired.
    fn live_address(&self, now: Timestamp) -> Option<SocketAddr> {
        let renewed = time::parse(self.renew_time.as_deref()?).ok()?;
        let lifetime = SignedDuration::from_secs(self.lease_duration_seconds?);
        let is_live = now.duration_since(renewed) < lifetime;
        self.holder_identity
            .as_deref()?
            .parse()
            .ok()
            .filter(|_| is_live)
    }
}

/// The Lease of this server, and those of the others.
pub(super) struct ServerLeases {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    address: SocketAddr,
    name: String,
}

impl ServerLeases {
    pub(super) fn new(api: Arc<dyn Api>, address: SocketAddr, clock: Arc<dyn Clock>) -> Self {
        let host = address.ip().to_string().replace(':', "-");
        Self {
            api,
            clock,
            address,
            name: format!("server-{host}-{}", address.port()),
        }
    }

    fn path(&self) -> ResourcePath<'_> {
        ResourcePath::object(&LEASES, NAMESPACE, &self.name)
    }

    /// Renews the Lease of this server.
    pub(super) async fn renew(&self) -> Result<(), Error> {
        let options = WriteOptions::default();
        let now = rfc3339_micros(self.clock.now());
        let spec = json!({"holderIdentity": self.address.to_string(), "renewTime": now,
            "leaseDurationSeconds": LEASE_SECONDS});
        let patch = Patch::Merge(json!({"spec": spec}));
        match self.api.patch(self.path(), patch, &options).await {
            Err(error) if error.is_not_found() => {}
            renewed => return renewed.map(drop),
        }
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": self.name, "namespace": NAMESPACE, "labels": {LABEL: "true"}},
            "spec": spec});
        let collection = ResourcePath::collection(&LEASES, NAMESPACE);
        self.api
            .create(collection, Value::into(lease), &options)
            .await
            .map(drop)
    }

    /// Ends the Lease of this server.
    pub(super) async fn release(&self) -> Result<(), Error> {
        let deleted = self
            .api
            .delete(self.path(), &DeleteOptions::default())
            .await;
        ignore_not_found(deleted).map(drop)
    }

    /// The addresses of the servers whose Leases have not expired. Deletes the others.
    pub(super) async fn live_addresses(&self) -> Result<BTreeSet<SocketAddr>, Error> {
        let all = ResourcePath::collection(&LEASES, NAMESPACE);
        let options = ListOptions {
            label_selector: LABEL.to_owned(),
            ..ListOptions::default()
        };
        let now = self.clock.now();
        let mut live = BTreeSet::new();
        for lease in self.api.list(all, &options).await?.items {
            match lease.decode::<LeaseFields>()?.spec.live_address(now) {
                Some(address) => drop(live.insert(address)),
                None => self.delete_expired(&lease).await?,
            }
        }
        Ok(live)
    }

    async fn delete_expired(&self, lease: &Object) -> Result<(), Error> {
        let options = DeleteOptions {
            uid: Some(lease.uid().to_owned()),
            resource_version: Some(lease.revision().to_string()),
            ..DeleteOptions::default()
        };
        let at = ResourcePath::of_object(&LEASES, lease);
        match self.api.delete(at, &options).await {
            // It was renewed, or another server deleted it.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            deleted => deleted.map(drop),
        }
    }
}

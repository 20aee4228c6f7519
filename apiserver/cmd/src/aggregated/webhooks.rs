//! The host's admission webhooks: followed, and called.
//!
//! Enters: webhook configurations by list and watch; reviews. Leaves: HTTPS calls
//! to where the configurations say, a Service of the host by its address there.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use admission::webhooks::{Caller, Client, Namespaces, ServiceRef, Webhooks};
use async_trait::async_trait;
use bytes::Bytes;
use client::remote::Config;
use client::{Api, At, Informers, Remote, Select, Tasks};
use machinery::Gvr;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::Instant;

const GROUP: &str = "admissionregistration.k8s.io";
static MUTATING: Gvr = Gvr::constant(GROUP, "v1", "mutatingwebhookconfigurations");
static VALIDATING: Gvr = Gvr::constant(GROUP, "v1", "validatingwebhookconfigurations");
static SERVICES: Gvr = Gvr::constant("", "v1", "services");
/// How long the address of a Service is believed.
const ADDRESS: Duration = Duration::from_secs(5);
/// Clients kept at most; those of hooks that are gone go with the rest.
const CLIENTS: usize = 256;

/// The hooks of a host, in step with its configurations.
pub(super) fn follow(
    host: &Arc<dyn Api>,
    informers: &Informers,
    namespaces: Arc<dyn Namespaces>,
    connections: &Tasks,
) -> Arc<Webhooks> {
    let caller = Arc::new(Calls {
        host: Arc::clone(host),
        connections: connections.child(),
        clients: Mutex::default(),
        addresses: Mutex::default(),
    });
    let hooks = Webhooks::new(caller, namespaces, registry::apply_patch);
    for (resource, mutating) in [(&MUTATING, true), (&VALIDATING, false)] {
        let informer = informers.get(host, &Select::all(resource));
        let (copy, hooks) = (informer.clone(), Arc::clone(&hooks));
        informer.on_change(move |_| {
            let all = copy.list();
            match mutating {
                true => hooks.set_mutating(&all),
                false => hooks.set_validating(&all),
            }
        });
    }
    hooks
}

/// Where a hook is: server, name in its certificate, authority.
type Place = (String, Option<String>, Vec<u8>);

struct Calls {
    host: Arc<dyn Api>,
    connections: Tasks,
    clients: Mutex<HashMap<Place, Arc<Remote>>>,
    addresses: Mutex<HashMap<ServiceRef, (Instant, String)>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    r#type: String,
    #[serde(rename = "clusterIP")]
    cluster_ip: String,
    external_name: String,
}

#[derive(Deserialize)]
struct Service {
    #[serde(default)]
    spec: Spec,
}

#[async_trait]
impl Caller for Calls {
    async fn call(&self, hook: &Client, body: Bytes, patience: Duration) -> Result<Bytes, String> {
        let place = match (&hook.server, &hook.service) {
            (Some(server), _) => (server.clone(), None, hook.ca.clone()),
            (None, Some(service)) => {
                let server = self.address(service).await?;
                let name = format!("{}.{}.svc", service.name, service.namespace);
                (server, Some(name), hook.ca.clone())
            }
            (None, None) => return Err("it is nowhere".into()),
        };
        let remote = self.client(place)?;
        let path = format!(
            "{}{}timeout={}s",
            hook.path,
            if hook.path.contains('?') { '&' } else { '?' },
            patience.as_secs()
        );
        remote.post(&path, body).await.map_err(|e| e.to_string())
    }
}

impl Calls {
    fn client(&self, place: Place) -> Result<Arc<Remote>, String> {
        let mut clients = self.clients.lock();
        if let Some(remote) = clients.get(&place) {
            return Ok(Arc::clone(remote));
        }
        if clients.len() >= CLIENTS {
            clients.clear();
        }
        let (server, name, ca) = &place;
        let mut config = Config::new(server).map_err(|e| e.to_string())?;
        config.tls_server_name.clone_from(name);
        config.ca = Some(ca.clone()).filter(|ca| !ca.is_empty());
        let remote = Remote::new(config, &self.connections).map_err(|e| e.to_string())?;
        let remote = Arc::new(remote);
        clients.insert(place, Arc::clone(&remote));
        Ok(remote)
    }

    /// Where a Service of the host is reached. There is no proxy of its addresses
    /// here but the one of the machine we run on.
    async fn address(&self, service: &ServiceRef) -> Result<String, String> {
        let known = self.addresses.lock().get(service).cloned();
        if let Some((at, address)) = known
            && at.elapsed() < ADDRESS
        {
            return Ok(address);
        }
        let place = At::one(&SERVICES, &service.namespace, &service.name);
        let found = self.host.get(place).await.map_err(|e| e.to_string())?;
        let Service { spec } = serde_json::from_slice(found.bytes()).map_err(|e| e.to_string())?;
        let host = match (spec.r#type.as_str(), spec.cluster_ip.as_str()) {
            ("ExternalName", _) => spec.external_name,
            (_, "" | "None") => {
                return Err(format!(
                    "Service {}/{} has no address of its own",
                    service.namespace, service.name
                ));
            }
            (_, ip) if ip.contains(':') => format!("[{ip}]"),
            (_, ip) => ip.to_owned(),
        };
        let address = format!("https://{host}:{}", service.port);
        let mut addresses = self.addresses.lock();
        if addresses.len() >= CLIENTS {
            addresses.clear();
        }
        addresses.insert(service.clone(), (Instant::now(), address.clone()));
        Ok(address)
    }
}

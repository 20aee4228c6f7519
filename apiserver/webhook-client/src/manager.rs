//! The HTTPS client for webhooks of admission, of conversion and of the interpreter. It
//! reaches a Service by the address that the API server has for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use client::remote::RestConfig;
use client::webhook::{ServiceReference, WebhookClient, WebhookClientConfig, WebhookEndpoint};
use client::{Api, RemoteApi, ResourcePath, TaskGroup};
use machinery::Gvr;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::Instant;

use crate::service_endpoints;

static SERVICES: Gvr = Gvr::from_static("", "v1", "services");
/// How long the address of a Service is cached.
const ADDRESS_TTL: Duration = Duration::from_secs(1);
/// The most clients and addresses in the caches, which are emptied when they are full.
const MAX_CLIENTS: usize = 256;
/// The largest response in bytes: a patch of the largest accepted object, in base64.
const MAX_RESPONSE_BYTES: usize = 8 << 20;

/// How the Services of webhooks are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceRouting {
    /// By their cluster IPs, which the network of this process routes.
    ClusterIp,
    /// By their cluster IPs, or by their DNS names if the API server does not show them.
    ClusterIpOrDns,
    /// By the addresses in their EndpointSlices or Endpoints: nothing routes cluster IPs.
    Endpoints,
}

/// A webhook server: its address, the name in its certificate and its CA.
type WebhookServerKey = (String, Option<String>, Vec<u8>);

pub struct WebhookClientManager {
    services: Arc<dyn Api>,
    routing: ServiceRouting,
    connection_tasks: TaskGroup,
    clients: Mutex<HashMap<WebhookServerKey, Arc<RemoteApi>>>,
    addresses: Mutex<HashMap<ServiceReference, (Instant, String)>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WebhookServiceSpec {
    r#type: String,
    #[serde(rename = "clusterIP")]
    cluster_ip: String,
    external_name: String,
    ports: Vec<WebhookServicePort>,
}

#[derive(Deserialize)]
struct WebhookServicePort {
    #[serde(default)]
    name: String,
    port: u16,
}

#[derive(Deserialize)]
struct WebhookServiceFields {
    #[serde(default)]
    spec: WebhookServiceSpec,
}

#[async_trait]
impl WebhookClient for WebhookClientManager {
    async fn call(
        &self,
        client_config: &WebhookClientConfig,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, String> {
        let server = match &client_config.endpoint {
            WebhookEndpoint::Url(address) => (address.clone(), None, client_config.ca.clone()),
            WebhookEndpoint::Service(service) => {
                let address = self.resolve_service(service).await?;
                let name = format!("{}.{}.svc", service.name, service.namespace);
                (address, Some(name), client_config.ca.clone())
            }
        };
        let remote = self.client(server)?;
        let path = format!(
            "{}{}timeout={}s",
            client_config.path,
            if client_config.path.contains('?') {
                '&'
            } else {
                '?'
            },
            timeout.as_secs()
        );
        let response = remote.post(&path, body, MAX_RESPONSE_BYTES).await;
        response.map_err(|e| e.to_string())
    }
}

impl WebhookClientManager {
    /// `services` is the API that has the Services of the webhooks.
    pub fn new(
        services: &Arc<dyn Api>,
        routing: ServiceRouting,
        connections: &TaskGroup,
    ) -> Arc<Self> {
        Arc::new(Self {
            services: Arc::clone(services),
            routing,
            connection_tasks: connections.child(),
            clients: Mutex::default(),
            addresses: Mutex::default(),
        })
    }

    fn client(&self, server: WebhookServerKey) -> Result<Arc<RemoteApi>, String> {
        let mut clients = self.clients.lock();
        if let Some(remote) = clients.get(&server) {
            return Ok(Arc::clone(remote));
        }
        if clients.len() >= MAX_CLIENTS {
            clients.clear();
        }
        let (address, name, ca) = &server;
        let mut config = RestConfig::new(address).map_err(|e| e.to_string())?;
        config.tls_server_name.clone_from(name);
        config.ca = Some(ca.clone()).filter(|ca| !ca.is_empty());
        let remote = RemoteApi::new(config, &self.connection_tasks).map_err(|e| e.to_string())?;
        let remote = Arc::new(remote);
        clients.insert(server, Arc::clone(&remote));
        Ok(remote)
    }

    async fn resolve_service(&self, service: &ServiceReference) -> Result<String, String> {
        let cached = self.addresses.lock().get(service).cloned();
        if let Some((at, address)) = cached
            && at.elapsed() < ADDRESS_TTL
        {
            return Ok(address);
        }
        let at = ResourcePath::object(&SERVICES, &service.namespace, &service.name);
        let spec = match self.services.get(at).await {
            Ok(service_object) => {
                let service_object =
                    machinery::json::from_slice::<WebhookServiceFields>(&service_object.bytes());
                Some(service_object.map_err(|e| e.to_string())?.spec)
            }
            // An agent has no right to read Services.
            Err(e)
                if (e.is_not_found() || e.is_forbidden())
                    && self.routing == ServiceRouting::ClusterIpOrDns =>
            {
                None
            }
            Err(e) => return Err(e.to_string()),
        };
        let address = match (self.routing, spec) {
            (ServiceRouting::Endpoints, Some(spec)) if spec.r#type != "ExternalName" => {
                let port = service_port(service, &spec)?;
                service_endpoints::resolve(&*self.services, service, &port.name).await?
            }
            (_, spec) => service_url(service, spec)?,
        };
        let mut addresses = self.addresses.lock();
        if addresses.len() >= MAX_CLIENTS {
            addresses.clear();
        }
        addresses.insert(service.clone(), (Instant::now(), address.clone()));
        Ok(address)
    }
}

fn service_port<'a>(
    service: &ServiceReference,
    spec: &'a WebhookServiceSpec,
) -> Result<&'a WebhookServicePort, String> {
    let ServiceReference { name, port, .. } = service;
    let declared_port = spec.ports.iter().find(|p| p.port == *port);
    declared_port.ok_or_else(|| format!("no service port {port} found for service {name:?}"))
}

/// The URL of a Service, with its cluster IP, which the network of this machine must
/// route. Source: `serviceresolvers.go` of Karmada and `pkg/util/proxy` of kube-apiserver.
fn service_url(
    service: &ServiceReference,
    spec: Option<WebhookServiceSpec>,
) -> Result<String, String> {
    let ServiceReference {
        namespace,
        name,
        port,
    } = service;
    let Some(mut spec) = spec else {
        return Ok(format!("https://{name}.{namespace}.svc:{port}"));
    };
    let host = match (spec.r#type.as_str(), std::mem::take(&mut spec.cluster_ip)) {
        ("ExternalName", _) => return Ok(format!("https://{}:{port}", spec.external_name)),
        ("" | "ClusterIP" | "NodePort" | "LoadBalancer", ip) => ip,
        (other, _) => return Err(format!("unsupported service type {other:?}")),
    };
    let host = match host.as_str() {
        "None" => return Err("cannot route to service with ClusterIP \"None\"".into()),
        "" => return Err(format!("service \"{namespace}/{name}\" has no ClusterIP")),
        ip if ip.contains(':') => format!("[{ip}]"),
        ip => ip.to_owned(),
    };
    service_port(service, &spec)?;
    Ok(format!("https://{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    // proves: WEB-service
    #[test]
    fn services_are_resolved() {
        let service = ServiceReference {
            namespace: "n".into(),
            name: "s".into(),
            port: 8443,
        };
        let check = |spec: Option<Value>, expected: Result<&str, &str>| {
            let parsed = spec.clone().map(|s| serde_json::from_value(s).unwrap());
            let actual = service_url(&service, parsed);
            let actual = actual.as_deref().map_err(String::as_str);
            assert_eq!(actual, expected, "{spec:?}");
        };
        let spec = |kind: &str, ip: &str| {
            Some(
                json!({"type": kind, "clusterIP": ip, "externalName": "a.b", "ports": [{"port": 1}, {"port": 8443}]}),
            )
        };
        check(None, Ok("https://s.n.svc:8443"));
        check(spec("ClusterIP", "10.0.0.1"), Ok("https://10.0.0.1:8443"));
        check(spec("NodePort", "fd00::1"), Ok("https://[fd00::1]:8443"));
        check(
            spec("LoadBalancer", "10.0.0.1"),
            Ok("https://10.0.0.1:8443"),
        );
        check(spec("ExternalName", ""), Ok("https://a.b:8443"));
        check(
            spec("ClusterIP", "None"),
            Err("cannot route to service with ClusterIP \"None\""),
        );
        check(
            spec("ClusterIP", ""),
            Err("service \"n/s\" has no ClusterIP"),
        );
        check(spec("Other", ""), Err("unsupported service type \"Other\""));
        check(
            Some(json!({"clusterIP": "10.0.0.1", "ports": [{"port": 443}]})),
            Err("no service port 8443 found for service \"s\""),
        );
    }
}

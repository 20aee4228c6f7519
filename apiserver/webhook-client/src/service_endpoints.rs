//! Resolves a Service to the address of one of its endpoints, where no kube-proxy routes
//! cluster IPs. Sources: `pkg/util/proxy` of kube-apiserver's `ResolveEndpoint`.

use client::webhook::ServiceReference;
use client::{Api, ListOptions, ResourcePath};
use machinery::{Gvr, Object};
use rand::seq::IndexedRandom;
use serde::Deserialize;

static SLICES: Gvr = Gvr::from_static("discovery.k8s.io", "v1", "endpointslices");
static ENDPOINTS: Gvr = Gvr::from_static("", "v1", "endpoints");
const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

#[derive(Deserialize, Default)]
struct EndpointPort {
    #[serde(default)]
    name: Option<String>,
    port: Option<u16>,
}

#[derive(Deserialize)]
struct EndpointSliceFields {
    #[serde(default)]
    endpoints: Option<Vec<SliceEndpoint>>,
    #[serde(default)]
    ports: Option<Vec<EndpointPort>>,
}

#[derive(Deserialize)]
struct SliceEndpoint {
    #[serde(default)]
    addresses: Vec<String>,
    #[serde(default)]
    conditions: SliceEndpointConditions,
}

#[derive(Deserialize, Default)]
struct SliceEndpointConditions {
    ready: Option<bool>,
}

#[derive(Deserialize)]
struct EndpointsFields {
    #[serde(default)]
    subsets: Option<Vec<EndpointSubset>>,
}

#[derive(Deserialize)]
struct EndpointSubset {
    #[serde(default)]
    addresses: Option<Vec<EndpointAddress>>,
    #[serde(default)]
    ports: Option<Vec<EndpointPort>>,
}

#[derive(Deserialize)]
struct EndpointAddress {
    ip: String,
}

/// The URL of one ready endpoint of the Service, with its port of this name.
pub(crate) async fn resolve(
    api: &dyn Api,
    service: &ServiceReference,
    port_name: &str,
) -> Result<String, String> {
    let ServiceReference {
        namespace, name, ..
    } = service;
    let options = ListOptions {
        label_selector: format!("{SERVICE_NAME_LABEL}={name}"),
        ..ListOptions::default()
    };
    let slices = api
        .list(ResourcePath::collection(&SLICES, namespace), &options)
        .await
        .map_err(|e| e.to_string())?;
    let mut addresses = Vec::new();
    for slice in &slices.items {
        addresses.extend(slice_addresses(slice, port_name));
    }
    if addresses.is_empty() {
        let at = ResourcePath::object(&ENDPOINTS, namespace, name);
        match api.get(at).await {
            Ok(endpoints) => addresses = endpoints_addresses(&endpoints, port_name),
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e.to_string()),
        }
    }
    match addresses.choose(&mut rand::rng()) {
        Some(address) => Ok(format!("https://{address}")),
        None => Err(format!(
            "no endpoints available for service \"{namespace}/{name}\": cluster IPs are not routed here, so the service needs an EndpointSlice with a ready address that this server reaches, or the webhook a url"
        )),
    }
}

/// The ports of that name; a Service with one port may leave it unnamed.
fn ports_named<'a>(ports: &'a [EndpointPort], name: &str) -> impl Iterator<Item = u16> + 'a {
    let name = name.to_owned();
    let named = ports
        .iter()
        .filter(move |p| p.name.as_deref().unwrap_or_default() == name);
    named.filter_map(|p| p.port)
}

fn host_and_port(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

fn slice_addresses(slice: &Object, port_name: &str) -> Vec<String> {
    let Ok(fields) = machinery::json::from_slice::<EndpointSliceFields>(&slice.bytes()) else {
        return Vec::new();
    };
    let endpoints = fields.endpoints.unwrap_or_default();
    let ready = endpoints
        .iter()
        .filter(|e| e.conditions.ready != Some(false));
    // All addresses of an endpoint are the same pod.
    let hosts: Vec<&String> = ready.filter_map(|e| e.addresses.first()).collect();
    let ports = fields.ports.unwrap_or_default();
    let addresses = ports_named(&ports, port_name)
        .flat_map(|port| hosts.iter().map(move |host| host_and_port(host, port)));
    addresses.collect()
}

fn endpoints_addresses(endpoints: &Object, port_name: &str) -> Vec<String> {
    let Ok(fields) = machinery::json::from_slice::<EndpointsFields>(&endpoints.bytes()) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for subset in fields.subsets.unwrap_or_default() {
        let hosts = subset.addresses.unwrap_or_default();
        for port in ports_named(&subset.ports.unwrap_or_default(), port_name) {
            all.extend(hosts.iter().map(|host| host_and_port(&host.ip, port)));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(kind: &str, fields: Value) -> Object {
        let mut body = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "s"}});
        for (key, value) in fields.as_object().unwrap() {
            body[key] = value.clone();
        }
        Object::from_value(&body).unwrap()
    }

    #[test]
    fn addresses_have_the_port_of_the_name() {
        let ports = json!([{"name": "a", "port": 8443}, {"name": "b", "port": 80}]);
        let slice = json!({"ports": ports, "endpoints": [
            {"addresses": ["10.0.0.1", "10.0.0.9"], "conditions": {"ready": true}},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
            {"addresses": ["fd00::1"]}]});
        assert_eq!(
            slice_addresses(&object("EndpointSlice", slice), "a"),
            ["10.0.0.1:8443", "[fd00::1]:8443"]
        );
        let endpoints = json!({"subsets": [{"ports": ports, "addresses": [{"ip": "10.0.0.1"}]},
            {"ports": [{"port": 1}], "addresses": [{"ip": "10.0.0.2"}]}]});
        let endpoints = object("Endpoints", endpoints);
        assert_eq!(endpoints_addresses(&endpoints, "b"), ["10.0.0.1:80"]);
        assert_eq!(endpoints_addresses(&endpoints, ""), ["10.0.0.2:1"]);
    }
}

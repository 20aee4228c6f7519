//! The objects of the Service `default/kubernetes`, and what of them is maintained. Pure.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};

pub(super) const NAMESPACE: &str = "default";
pub(super) const NAME: &str = "kubernetes";
const PORT_NAME: &str = "https";
const SERVICE_PORT: u16 = 443;

/// The Service; a new one gets the first address of the range, as in Kubernetes.
pub(super) fn service(port: u16) -> Value {
    json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": NAME, "namespace": NAMESPACE,
            "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.1", "sessionAffinity": "None",
            "ports": [service_port(port)]}})
}

fn service_port(port: u16) -> Value {
    json!({"name": PORT_NAME, "port": SERVICE_PORT, "protocol": "TCP", "targetPort": port})
}

/// The merge patch that makes a Service lead to the port; `None` if it does.
pub(super) fn service_patch(service: &Value, port: u16) -> Option<Value> {
    let ports = json!([service_port(port)]);
    (service["spec"]["ports"] != ports).then(|| json!({"spec": {"ports": ports}}))
}

/// The addresses of one family and port at which servers are reached: those of the first server,
/// since an EndpointSlice has one family, and Endpoints lead every address to every port.
pub(super) struct ServerEndpoints {
    addresses: Vec<IpAddr>,
    port: u16,
}

impl ServerEndpoints {
    /// The endpoints of the servers that are reached at these addresses; `None` without any.
    pub(super) fn new(servers: &BTreeSet<SocketAddr>) -> Option<Self> {
        let first = servers.first()?;
        let fits = |other: &&SocketAddr| {
            other.is_ipv4() == first.is_ipv4() && other.port() == first.port()
        };
        Some(Self {
            addresses: servers.iter().filter(fits).map(SocketAddr::ip).collect(),
            port: first.port(),
        })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    fn ports(&self) -> Value {
        json!([{"name": PORT_NAME, "port": self.port, "protocol": "TCP"}])
    }

    /// The Endpoints, which nothing mirrors to an EndpointSlice.
    pub(super) fn endpoints(&self) -> Value {
        let addresses: Vec<Value> = self.addresses.iter().map(|ip| json!({"ip": ip})).collect();
        json!({"apiVersion": "v1", "kind": "Endpoints",
            "metadata": {"name": NAME, "namespace": NAMESPACE,
                "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
            "subsets": [{"addresses": addresses, "ports": self.ports()}]})
    }

    /// The EndpointSlice.
    pub(super) fn slice(&self) -> Value {
        let ready = json!({"ready": true});
        let endpoints = self.addresses.iter();
        let endpoints: Vec<Value> = endpoints
            .map(|ip| json!({"addresses": [ip], "conditions": ready}))
            .collect();
        let family = match self.addresses.first() {
            Some(IpAddr::V6(_)) => "IPv6",
            _ => "IPv4",
        };
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": NAME, "namespace": NAMESPACE,
                "labels": {"kubernetes.io/service-name": NAME}},
            "addressType": family, "endpoints": endpoints, "ports": self.ports()})
    }
}

/// The fields that an update of an object must contain besides those that it has; `None` if it has all.
pub(super) fn missing_fields(existing: &Value, desired: &Value, fields: &[&str]) -> Option<Value> {
    let mut patch = json!({});
    for field in fields {
        if existing[*field] != desired[*field] {
            patch[*field] = desired[*field].clone();
        }
    }
    let (labels, present) = (
        &desired["metadata"]["labels"],
        &existing["metadata"]["labels"],
    );
    let has_labels = labels.as_object().into_iter().flatten();
    if has_labels
        .into_iter()
        .any(|(key, value)| present[key] != *value)
    {
        patch["metadata"]["labels"] = labels.clone();
    }
    patch
        .as_object()
        .is_some_and(|patch| !patch.is_empty())
        .then_some(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_those_of_the_family_and_port_of_the_first_server() {
        let servers = [
            "10.0.0.2:6443",
            "10.0.0.1:6443",
            "10.0.0.3:7443",
            "[fd00::1]:6443",
        ];
        let servers = servers.iter().map(|text| text.parse().unwrap()).collect();
        let endpoints = ServerEndpoints::new(&servers).unwrap();
        assert_eq!(
            endpoints.endpoints()["subsets"],
            json!([{"addresses": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}],
                "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}]}])
        );
        let slice = endpoints.slice();
        assert_eq!(slice["addressType"], "IPv4");
        assert_eq!(slice["endpoints"][1]["addresses"], json!(["10.0.0.2"]));
        assert!(ServerEndpoints::new(&BTreeSet::new()).is_none());
    }

    #[test]
    fn only_what_differs_is_written() {
        let servers = BTreeSet::from(["10.0.0.1:6443".parse().unwrap()]);
        let slice = ServerEndpoints::new(&servers).unwrap().slice();
        let fields = ["endpoints", "ports"];
        let mut existing = slice.clone();
        existing["metadata"]["labels"]["more"] = json!("kept");
        assert_eq!(missing_fields(&existing, &slice, &fields), None);
        existing["ports"] = json!([]);
        let patch = missing_fields(&existing, &slice, &fields);
        assert_eq!(patch, Some(json!({"ports": slice["ports"]})));
        existing = slice.clone();
        existing["metadata"]["labels"] = Value::Null;
        let patch = missing_fields(&existing, &slice, &fields).unwrap();
        assert_eq!(patch["metadata"]["labels"], slice["metadata"]["labels"]);
        let service = service(6443);
        assert_eq!(service_patch(&service, 6443), None);
        assert!(service_patch(&service, 7443).is_some());
    }
}

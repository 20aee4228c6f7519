//! Rebuilds the EndpointSlice that a member reported, field by field. Pure.
//!
//! A member is not trusted: what it reports becomes an object of the control plane and of other
//! members. Only the address type, the endpoints and the ports are taken, within the limits of
//! Kubernetes, and no address that means the reader itself or its link.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use machinery::names::{validate_dns1123_label, validate_dns1123_subdomain};
use serde::{Deserialize, Serialize};
use serde_json::Value;

const MAX_ENDPOINTS: usize = 1000;
const MAX_ADDRESSES: usize = 100;
const MAX_PORTS: usize = 20_000;
const MAX_ZONE_HINTS: usize = 8;
const MAX_TOPOLOGY_LABELS: usize = 16;
/// The length of names of nodes, zones and protocols, and of references.
const MAX_NAME_LENGTH: usize = 253;

/// A slice with what was taken of the reported one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RebuiltSlice {
    /// The name in the member that has it.
    pub(crate) name: String,
    pub(crate) content: SliceContent,
}

/// The fields of a slice besides its metadata.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SliceContent {
    address_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    endpoints: Option<Vec<Endpoint>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ports: Option<Vec<EndpointPort>>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
    addresses: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    conditions: Option<EndpointConditions>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hostname: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target_ref: Option<EndpointTarget>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deprecated_topology: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hints: Option<EndpointHints>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
struct EndpointConditions {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ready: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    serving: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    terminating: Option<bool>,
}

/// The object that an endpoint stands for, an ObjectReference.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct EndpointTarget {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    api_version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resource_version: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct EndpointHints {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    for_zones: Option<Vec<NamedHint>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    for_nodes: Option<Vec<NamedHint>>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
struct NamedHint {
    name: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct EndpointPort {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    protocol: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    app_protocol: Option<String>,
}

/// Takes the slice of a Service in `namespace` out of a manifest; the error says why it is refused.
pub(crate) fn rebuild_slice(manifest: &Value, namespace: &str) -> Result<RebuiltSlice, String> {
    let is_slice =
        manifest["apiVersion"] == "discovery.k8s.io/v1" && manifest["kind"] == "EndpointSlice";
    if !is_slice {
        return Err("the manifest is not an EndpointSlice of discovery.k8s.io/v1".into());
    }
    let metadata = &manifest["metadata"];
    if metadata["namespace"] != namespace {
        return Err("metadata.namespace: is not that of the Service".into());
    }
    let name = metadata["name"].as_str().unwrap_or_default();
    validate_dns1123_subdomain(name).map_err(|_| "metadata.name: is invalid")?;
    let content = SliceContent::deserialize(manifest).map_err(|_| "a field has another type")?;
    content.validate()?;
    Ok(RebuiltSlice {
        name: name.to_owned(),
        content,
    })
}

impl SliceContent {
    fn validate(&self) -> Result<(), String> {
        if !matches!(self.address_type.as_str(), "IPv4" | "IPv6") {
            return Err("addressType: only IPv4 and IPv6 reach other clusters".into());
        }
        let endpoints = self.endpoints.as_deref().unwrap_or_default();
        check_count("endpoints", endpoints.len(), MAX_ENDPOINTS)?;
        for (i, endpoint) in endpoints.iter().enumerate() {
            let of_endpoint = |reason| format!("endpoints[{i}].{reason}");
            endpoint.validate(&self.address_type).map_err(of_endpoint)?;
        }
        let ports = self.ports.as_deref().unwrap_or_default();
        check_count("ports", ports.len(), MAX_PORTS)?;
        for (i, port) in ports.iter().enumerate() {
            port.validate()
                .map_err(|reason| format!("ports[{i}].{reason}"))?;
        }
        Ok(())
    }
}

impl Endpoint {
    fn validate(&self, address_type: &str) -> Result<(), String> {
        if self.addresses.is_empty() {
            return Err("addresses: must have one".into());
        }
        check_count("addresses", self.addresses.len(), MAX_ADDRESSES)?;
        for (i, address) in self.addresses.iter().enumerate() {
            let of_address = |reason| format!("addresses[{i}]: {reason}");
            check_address(address_type, address).map_err(of_address)?;
        }
        if let Some(hostname) = &self.hostname {
            validate_dns1123_label(hostname).map_err(|_| "hostname: is invalid")?;
        }
        for (field, text) in [("nodeName", &self.node_name), ("zone", &self.zone)] {
            check_length(field, text.as_deref())?;
        }
        self.validate_topology()?;
        let Some(target) = &self.target_ref else {
            return Ok(());
        };
        let texts = [
            &target.api_version,
            &target.kind,
            &target.namespace,
            &target.name,
            &target.uid,
            &target.resource_version,
        ];
        texts
            .into_iter()
            .try_for_each(|text| check_length("targetRef", text.as_deref()))
    }

    fn validate_topology(&self) -> Result<(), String> {
        let topology = self.deprecated_topology.iter().flatten();
        let mut labels = 0;
        for (key, value) in topology {
            labels += 1;
            check_length("deprecatedTopology", Some(key))?;
            check_length("deprecatedTopology", Some(value))?;
        }
        check_count("deprecatedTopology", labels, MAX_TOPOLOGY_LABELS)?;
        let Some(hints) = &self.hints else {
            return Ok(());
        };
        for list in [&hints.for_zones, &hints.for_nodes].into_iter().flatten() {
            check_count("hints", list.len(), MAX_ZONE_HINTS)?;
            for hint in list {
                check_length("hints", Some(&hint.name))?;
            }
        }
        Ok(())
    }
}

impl EndpointPort {
    fn validate(&self) -> Result<(), String> {
        if let Some(name) = self.name.as_deref().filter(|name| !name.is_empty()) {
            validate_dns1123_label(name).map_err(|_| "name: is invalid")?;
        }
        match self.protocol.as_deref() {
            None | Some("TCP" | "UDP" | "SCTP") => {}
            Some(_) => return Err("protocol: must be TCP, UDP or SCTP".into()),
        }
        check_length("appProtocol", self.app_protocol.as_deref())
    }
}

fn check_count(field: &str, count: usize, most: usize) -> Result<(), String> {
    match count > most {
        true => Err(format!("{field}: must have at most {most} items")),
        false => Ok(()),
    }
}

fn check_length(field: &str, text: Option<&str>) -> Result<(), String> {
    match text.is_some_and(|text| text.len() > MAX_NAME_LENGTH) {
        true => Err(format!(
            "{field}: must be no more than {MAX_NAME_LENGTH} bytes"
        )),
        false => Ok(()),
    }
}

/// Kubernetes' rules for addresses of endpoints, and no other multicast, broadcast or mapped address.
fn check_address(address_type: &str, text: &str) -> Result<(), &'static str> {
    let address: IpAddr = text.parse().map_err(|_| "is not an IP address")?;
    match address {
        IpAddr::V4(_) if address_type != "IPv4" => return Err("is not an IPv6 address"),
        IpAddr::V6(_) if address_type != "IPv6" => return Err("is not an IPv4 address"),
        IpAddr::V6(v6) if v6.to_ipv4().is_some() && !v6.is_loopback() && !v6.is_unspecified() => {
            return Err("may not be an embedded IPv4 address");
        }
        _ => {}
    }
    let is_link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if address.is_unspecified() {
        Err("may not be unspecified")
    } else if address.is_loopback() {
        Err("may not be in the loopback range")
    } else if is_link_local {
        Err("may not be in the link-local range")
    } else if address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST) {
        Err("may not be a multicast or broadcast address")
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn manifest() -> Value {
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"namespace": "n", "name": "web-x", "labels": {"app": "web"},
                "ownerReferences": [{"kind": "Service"}], "finalizers": ["a/b"]},
            "addressType": "IPv4", "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}, "zone": "a",
                "targetRef": {"kind": "Pod", "namespace": "n", "name": "web-1"}}]})
    }

    fn with(pointer: &str, value: Value) -> Value {
        let mut changed = manifest();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        changed.pointer_mut(parent).unwrap()[field] = value;
        changed
    }

    #[test]
    fn only_the_fields_of_a_slice_are_taken() {
        let mut reported = with("/spec", json!({"template": {}}));
        reported["endpoints"][0]["rules"] = json!([{"verbs": ["*"]}]);
        let rebuilt = rebuild_slice(&reported, "n").unwrap();
        assert_eq!(rebuilt.name, "web-x");
        let expected = manifest();
        assert_eq!(
            json!(rebuilt.content),
            json!({"addressType": "IPv4", "ports": expected["ports"], "endpoints": expected["endpoints"]})
        );
        let empty = with("/endpoints", Value::Null);
        assert!(rebuild_slice(&empty, "n").is_ok());
    }

    // proves: SVC-untrusted
    #[test]
    fn what_is_no_slice_of_the_service_is_refused() {
        let endpoint = |address: &str| json!([{"addresses": [address]}]);
        let many = |count: usize, item: Value| Value::Array(vec![item; count]);
        let long = "x".repeat(MAX_NAME_LENGTH + 1);
        for (pointer, value) in [
            ("/kind", json!("ClusterRoleBinding")),
            ("/apiVersion", json!("v1")),
            ("/metadata/namespace", json!("kube-system")),
            ("/metadata/name", json!("../x")),
            ("/metadata/name", Value::Null),
            ("/addressType", json!("FQDN")),
            ("/addressType", json!("IPv6")),
            ("/endpoints", json!({})),
            ("/endpoints", json!([{"addresses": []}])),
            ("/endpoints", endpoint("127.0.0.1")),
            ("/endpoints", endpoint("127.1.2.3")),
            ("/endpoints", endpoint("169.254.169.254")),
            ("/endpoints", endpoint("0.0.0.0")),
            ("/endpoints", endpoint("224.0.0.1")),
            ("/endpoints", endpoint("255.255.255.255")),
            ("/endpoints", endpoint("010.0.0.1")),
            ("/endpoints", endpoint("localhost")),
            ("/endpoints", endpoint("::1")),
            (
                "/endpoints",
                many(MAX_ENDPOINTS + 1, json!({"addresses": ["10.0.0.1"]})),
            ),
            (
                "/endpoints/0/addresses",
                many(MAX_ADDRESSES + 1, json!("10.0.0.1")),
            ),
            ("/endpoints/0/nodeName", json!(long)),
            ("/endpoints/0/targetRef/name", json!(long)),
            ("/endpoints/0/hostname", json!("a.b")),
            ("/ports", json!([{"port": 65536}])),
            ("/ports", json!([{"port": 80, "protocol": "ICMP"}])),
            ("/ports", json!([{"port": 80, "appProtocol": long}])),
        ] {
            let reported = with(pointer, value);
            let rejection = rebuild_slice(&reported, "n").unwrap_err();
            assert!(rejection.len() < 200, "{rejection}");
        }
    }

    #[test]
    fn addresses_that_mean_the_reader_are_refused_in_both_families() {
        for address in [
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::7f00:1",
            "10.0.0.1",
        ] {
            assert!(check_address("IPv6", address).is_err(), "{address}");
        }
        assert_eq!(check_address("IPv6", "fd00::1"), Ok(()));
        assert_eq!(check_address("IPv4", "10.0.0.1"), Ok(()));
    }
}

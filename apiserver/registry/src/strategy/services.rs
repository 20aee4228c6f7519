//! The strategy of Services, and the allocator of cluster IPs and node ports
//! (`pkg/registry/core/service/{storage,ipallocator,portallocator}`).
//!
//! The allocator is in memory and rebuilt from the stored Services. It allocates an address
//! once, and frees it when its Service is deleted. `service_address_claims` coordinates
//! several processes.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use machinery::{FieldError, Object};
use parking_lot::Mutex;
use rand::Rng;
use serde_json::{Value, json};

use super::{DEFAULT_STRATEGY, RestStrategy};

/// The range 10.96.0.0/12 without its first address, which belongs to `default/kubernetes`.
const FIRST_CLUSTER_IP: u32 = u32::from_be_bytes([10, 96, 0, 2]);
const LAST_CLUSTER_IP: u32 = u32::from_be_bytes([10, 111, 255, 254]);
/// 10.96.0.1, which only the Service `default/kubernetes` requests.
const KUBERNETES_SERVICE_IP: u32 = FIRST_CLUSTER_IP - 1;
const NODE_PORT_RANGE: std::ops::RangeInclusive<u16> = 30000..=32767;
const MAX_RANDOM_ATTEMPTS: usize = 64;

pub(super) static STRATEGY: RestStrategy = RestStrategy {
    create: |new| new["status"] = json!({"loadBalancer": {}}),
    update: patch_allocated_values,
    ..DEFAULT_STRATEGY
};

#[derive(Default)]
struct ServiceAllocationMap {
    ips: HashSet<u32>,
    ports: HashSet<u16>,
    /// The addresses of each stored Service, with its revision.
    by_service: HashMap<String, (u64, ServiceAllocation)>,
}

/// Allocates addresses; `None` until the stored Services were listed.
#[derive(Default)]
pub(crate) struct ServiceAllocator(Mutex<Option<ServiceAllocationMap>>);

/// The addresses allocated for one write, which are freed if the write fails.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceAllocation {
    pub(crate) ips: Vec<u32>,
    pub(crate) ports: Vec<u16>,
    /// Keys and revisions of the claims on them, if the store is shared.
    pub(crate) claims: Vec<(Arc<str>, u64)>,
}

impl ServiceAllocation {
    fn from_service(service: &Value) -> Self {
        Self {
            ips: cluster_ip(service).into_iter().collect(),
            ports: node_ports(service).collect(),
            claims: Vec::new(),
        }
    }
}

fn service_type(service: &Value) -> &str {
    service["spec"]["type"].as_str().unwrap_or("ClusterIP")
}

fn needs_cluster_ip(service: &Value) -> bool {
    service_type(service) != "ExternalName"
}

fn needs_node_ports(service: &Value) -> bool {
    match service_type(service) {
        "NodePort" => true,
        "LoadBalancer" => service["spec"]["allocateLoadBalancerNodePorts"] != false,
        _ => false,
    }
}

fn cluster_ip(service: &Value) -> Option<u32> {
    let text = service["spec"]["clusterIP"].as_str()?;
    text.parse::<Ipv4Addr>().ok().map(u32::from)
}

fn node_ports(service: &Value) -> impl Iterator<Item = u16> {
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    ports.filter_map(|p| {
        u16::try_from(p["nodePort"].as_u64()?)
            .ok()
            .filter(|p| *p > 0)
    })
}

fn is_load_balancer(service: &Value) -> bool {
    service_type(service) == "LoadBalancer"
}

fn is_reachable_from_outside(service: &Value) -> bool {
    let addresses = service["spec"]["externalIPs"].as_array();
    matches!(service_type(service), "NodePort" | "LoadBalancer")
        || service_type(service) == "ClusterIP" && addresses.is_some_and(|all| !all.is_empty())
}

fn needs_health_check_port(service: &Value) -> bool {
    is_load_balancer(service) && service["spec"]["externalTrafficPolicy"] == "Local"
}

type ServicePredicate = fn(&Value) -> bool;

/// The fields that only some types of Services have, and whether a Service is of such a type.
const TYPE_DEPENDENT_FIELDS: [(&str, ServicePredicate); 4] = [
    ("healthCheckNodePort", needs_health_check_port),
    ("allocateLoadBalancerNodePorts", is_load_balancer),
    ("loadBalancerClass", is_load_balancer),
    ("externalTrafficPolicy", is_reachable_from_outside),
];

/// Removes fields that the new type does not have and that the update leaves as they were
/// (`dropTypeDependentFields`).
fn drop_type_dependent_fields(new: &mut Value, old: &Value) {
    let dropped = TYPE_DEPENDENT_FIELDS.iter().filter(|(field, needs)| {
        needs(old) && !needs(new) && new["spec"][field] == old["spec"][field]
    });
    let dropped: Vec<&str> = dropped.map(|(field, _)| *field).collect();
    if let Some(spec) = new["spec"].as_object_mut() {
        spec.retain(|field, _| !dropped.contains(&field.as_str()));
    }
}

/// Copies allocated addresses that an update omits (`patchAllocatedValues`), and removes addresses
/// that a change of the type makes invalid.
fn patch_allocated_values(new: &mut Value, old: &Value) {
    drop_type_dependent_fields(new, old);
    if needs_cluster_ip(new) && needs_cluster_ip(old) {
        for field in ["clusterIP", "clusterIPs"] {
            let empty = match &new["spec"][field] {
                Value::String(s) => s.is_empty(),
                Value::Array(a) => a.is_empty(),
                other => other.is_null(),
            };
            if empty && !old["spec"][field].is_null() {
                new["spec"][field] = old["spec"][field].clone();
            }
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if new["spec"][field].is_null() && !old["spec"][field].is_null() {
                new["spec"][field] = old["spec"][field].clone();
            }
        }
    } else if !needs_cluster_ip(new)
        && let Some(spec) = new["spec"].as_object_mut()
    {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            spec.remove(field);
        }
    }
    let by_port = |p: &Value| {
        (
            p["protocol"].as_str().unwrap_or("TCP").to_owned(),
            p["port"].as_u64(),
        )
    };
    let old_ports: HashMap<_, _> = old["spec"]["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|p| (by_port(p), p["nodePort"].clone()))
        .collect();
    let keep_ports = needs_node_ports(new) && needs_node_ports(old);
    let drop_ports = !needs_node_ports(new) && service_type(new) != "LoadBalancer";
    let ports = new.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten() {
        let unset = port["nodePort"].as_u64().is_none_or(|p| p == 0);
        let before = old_ports
            .get(&by_port(port))
            .filter(|v| v.as_u64().is_some_and(|p| p > 0));
        if keep_ports
            && unset
            && let Some(before) = before
        {
            port["nodePort"] = before.clone();
        }
        if let Some(map) = port.as_object_mut()
            && (map.get("nodePort").is_some_and(Value::is_null)
                || drop_ports && map.get("nodePort") == before)
        {
            map.remove("nodePort");
        }
    }
}

impl ServiceAllocator {
    /// Whether the stored Services were listed.
    pub(crate) fn is_ready(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Rebuilds the allocated addresses from the stored Services. Without other processes on
    /// the store (not `shared`) this happens only once.
    pub(crate) fn refresh(&self, services: &[Object], shared: bool) {
        let mut slot = self.0.lock();
        if slot.is_some() && !shared {
            return;
        }
        let mut allocations = slot.take().unwrap_or_default().by_service;
        let mut used = ServiceAllocationMap::default();
        for service in services {
            let (key, revision) = (service.meta().key(), service.revision());
            let allocation = match allocations.remove(&key) {
                Some((at, allocation)) if at == revision => allocation,
                _ => service
                    .value()
                    .map(|s| ServiceAllocation::from_service(&s))
                    .unwrap_or_default(),
            };
            used.ips.extend(&allocation.ips);
            used.ports.extend(&allocation.ports);
            used.by_service.insert(key, (revision, allocation));
        }
        *slot = Some(used);
    }

    /// Marks addresses as allocated by another process.
    pub(crate) fn mark_allocated(&self, allocation: &ServiceAllocation) {
        let mut slot = self.0.lock();
        let used = slot.get_or_insert_default();
        used.ips.extend(&allocation.ips);
        used.ports.extend(&allocation.ports);
    }

    /// Allocates the addresses that a Service needs and does not have; those of `old` are its
    /// own. With `dry_run` nothing stays allocated.
    pub(crate) fn allocate(
        &self,
        new: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<ServiceAllocation, Vec<FieldError>> {
        let mut slot = self.0.lock();
        let used = slot.get_or_insert_default();
        let mut allocation = ServiceAllocation::default();
        let result = allocate_cluster_ip(used, new, old, &mut allocation)
            .and_then(|()| allocate_node_ports(used, new, old, &mut allocation));
        if dry_run || result.is_err() {
            free_addresses(used, &allocation);
            allocation = ServiceAllocation::default();
        }
        result.map(|()| allocation).map_err(|e| vec![e])
    }

    /// Frees the addresses that were allocated for a failed write.
    pub(crate) fn undo(&self, allocation: &ServiceAllocation) {
        if let Some(used) = self.0.lock().as_mut() {
            free_addresses(used, allocation);
        }
    }

    /// Frees and returns the addresses of `old` that `new` (`None`: deleted) does not have.
    pub(crate) fn release(&self, old: &Value, new: Option<&Value>) -> ServiceAllocation {
        let remaining: HashSet<u16> = new.map(|n| node_ports(n).collect()).unwrap_or_default();
        let released = ServiceAllocation {
            ips: cluster_ip(old)
                .filter(|i| new.and_then(cluster_ip) != Some(*i))
                .into_iter()
                .collect(),
            ports: node_ports(old).filter(|p| !remaining.contains(p)).collect(),
            claims: Vec::new(),
        };
        if let Some(used) = self.0.lock().as_mut() {
            free_addresses(used, &released);
        }
        released
    }
}

fn free_addresses(used: &mut ServiceAllocationMap, allocation: &ServiceAllocation) {
    for ip in &allocation.ips {
        used.ips.remove(ip);
    }
    for port in &allocation.ports {
        used.ports.remove(port);
    }
}

fn allocate_cluster_ip(
    used: &mut ServiceAllocationMap,
    new: &mut Value,
    old: Option<&Value>,
    allocation: &mut ServiceAllocation,
) -> Result<(), FieldError> {
    if !needs_cluster_ip(new) {
        return Ok(());
    }
    let requested = new["spec"]["clusterIP"].as_str().unwrap_or("").to_owned();
    if requested == "None" {
        new["spec"]["clusterIPs"] = json!(["None"]);
    } else if requested.is_empty() {
        let allocated = find_free_cluster_ip(used).ok_or_else(|| {
            FieldError::invalid(
                "spec.clusterIPs",
                &json!([""]),
                "failed to allocate a serviceIP: range is full",
            )
        })?;
        used.ips.insert(allocated);
        allocation.ips.push(allocated);
        let text = Ipv4Addr::from(allocated).to_string();
        new["spec"]["clusterIPs"] = json!([text]);
        new["spec"]["clusterIP"] = text.into();
    } else {
        let address = cluster_ip(new).filter(|i| (KUBERNETES_SERVICE_IP..=LAST_CLUSTER_IP).contains(i)).ok_or_else(|| {
            let message = "failed to allocate IP: the provided IP is not in the valid range. The range of valid IPs is 10.96.0.0/12";
            FieldError::invalid("spec.clusterIPs", &json!([requested]), message)
        })?;
        let is_held = old.and_then(cluster_ip) == Some(address);
        if !is_held {
            if !used.ips.insert(address) {
                let message =
                    format!("failed to allocate IP {requested}: provided IP is already allocated");
                return Err(FieldError::invalid(
                    "spec.clusterIPs",
                    &json!([requested]),
                    message,
                ));
            }
            allocation.ips.push(address);
        }
        new["spec"]["clusterIPs"] = json!([requested]);
    }
    if new["spec"]["ipFamilies"].is_null() {
        new["spec"]["ipFamilies"] = json!(["IPv4"]);
    }
    if new["spec"]["ipFamilyPolicy"].is_null() {
        new["spec"]["ipFamilyPolicy"] = "SingleStack".into();
    }
    Ok(())
}

fn find_free_cluster_ip(used: &ServiceAllocationMap) -> Option<u32> {
    let mut rng = rand::rng();
    let random =
        (0..MAX_RANDOM_ATTEMPTS).map(|_| rng.random_range(FIRST_CLUSTER_IP..=LAST_CLUSTER_IP));
    random
        .chain(FIRST_CLUSTER_IP..=LAST_CLUSTER_IP)
        .find(|i| !used.ips.contains(i))
}

fn allocate_node_ports(
    used: &mut ServiceAllocationMap,
    new: &mut Value,
    old: Option<&Value>,
    allocation: &mut ServiceAllocation,
) -> Result<(), FieldError> {
    if !needs_node_ports(new) {
        return Ok(());
    }
    let held_ports: HashSet<u16> = old.map(|o| node_ports(o).collect()).unwrap_or_default();
    // Requested ports are allocated first, so that random ones do not conflict with them.
    // TCP and UDP of one port may have the same node port.
    let requested: HashSet<u16> = node_ports(new).collect();
    for port in requested {
        if held_ports.contains(&port) {
            continue;
        }
        if !NODE_PORT_RANGE.contains(&port) {
            let message = format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                NODE_PORT_RANGE.start(),
                NODE_PORT_RANGE.end()
            );
            return Err(FieldError::invalid(
                "spec.ports[0].nodePort",
                &json!(port),
                message,
            ));
        }
        if !used.ports.insert(port) {
            return Err(FieldError::invalid(
                "spec.ports[0].nodePort",
                &json!(port),
                "provided port is already allocated",
            ));
        }
        allocation.ports.push(port);
    }
    for (i, port) in new["spec"]["ports"]
        .as_array_mut()
        .into_iter()
        .flatten()
        .enumerate()
    {
        if port["nodePort"].as_u64().is_some_and(|p| p > 0) {
            continue;
        }
        let mut rng = rand::rng();
        let free_port = (0..MAX_RANDOM_ATTEMPTS)
            .map(|_| rng.random_range(NODE_PORT_RANGE))
            .chain(NODE_PORT_RANGE)
            .find(|p| !used.ports.contains(p));
        let Some(free_port) = free_port else {
            let message = "failed to allocate a nodePort: range is full";
            return Err(FieldError::invalid(
                format!("spec.ports[{i}].nodePort"),
                &json!(0),
                message,
            ));
        };
        used.ports.insert(free_port);
        allocation.ports.push(free_port);
        port["nodePort"] = free_port.into();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(spec: Value) -> Value {
        json!({"metadata": {}, "spec": spec})
    }

    #[test]
    fn addresses_are_allocated_once_and_freed() {
        let allocator = ServiceAllocator::default();
        let existing = service(json!({"clusterIP": "10.96.0.9"}));
        let stored = Object::from_value(&existing).unwrap();
        allocator.refresh(std::slice::from_ref(&stored), false);
        let mut clash = existing.clone();
        assert!(allocator.allocate(&mut clash, None, false).is_err());
        assert_eq!(
            allocator
                .allocate(&mut clash, Some(&existing), false)
                .unwrap(),
            ServiceAllocation::default()
        );
        allocator.release(&existing, None);
        assert!(allocator.allocate(&mut clash, None, true).is_ok());
        assert!(allocator.allocate(&mut clash, None, false).is_ok());

        let mut first_service = service(
            json!({"type": "NodePort", "ports": [{"port": 80}, {"port": 81, "nodePort": 30001}]}),
        );
        let allocation = allocator.allocate(&mut first_service, None, false).unwrap();
        assert_eq!(
            first_service["spec"]["clusterIPs"][0],
            first_service["spec"]["clusterIP"]
        );
        let port = first_service["spec"]["ports"][0]["nodePort"]
            .as_u64()
            .unwrap();
        assert!((30000..=32767).contains(&port) && port != 30001);
        let mut second_service =
            service(json!({"type": "NodePort", "ports": [{"port": 1, "nodePort": 30001}]}));
        assert!(
            allocator
                .allocate(&mut second_service, None, false)
                .is_err()
        );
        allocator.undo(&allocation);
        assert!(allocator.allocate(&mut second_service, None, false).is_ok());
    }

    #[test]
    fn headless_and_external_services_allocate_nothing() {
        let allocator = ServiceAllocator::default();
        for spec in [
            json!({"clusterIP": "None"}),
            json!({"type": "ExternalName"}),
        ] {
            let mut s = service(spec);
            assert_eq!(
                allocator.allocate(&mut s, None, false).unwrap(),
                ServiceAllocation::default()
            );
        }
        let mut out_of_range = service(json!({"clusterIP": "192.168.0.1"}));
        assert!(allocator.allocate(&mut out_of_range, None, false).is_err());
    }

    #[test]
    fn an_update_keeps_addresses_that_it_omits() {
        let old = service(
            json!({"type": "NodePort", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"],
            "ports": [{"port": 80, "nodePort": 30001}]}),
        );
        let mut new = service(json!({"type": "NodePort", "ports": [{"port": 80}]}));
        patch_allocated_values(&mut new, &old);
        assert_eq!(
            (&new["spec"]["clusterIP"], &new["spec"]["ports"]),
            (&old["spec"]["clusterIP"], &old["spec"]["ports"])
        );
        let mut cluster_ip_service =
            service(json!({"type": "ClusterIP", "ports": [{"port": 80, "nodePort": 30001}]}));
        patch_allocated_values(&mut cluster_ip_service, &old);
        assert_eq!(cluster_ip_service["spec"]["ports"], json!([{"port": 80}]));
    }

    #[test]
    fn a_change_of_the_type_drops_the_fields_of_the_old_one() {
        let balanced = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": true,
            "externalTrafficPolicy": "Local", "healthCheckNodePort": 30001, "loadBalancerClass": "a/b"});
        let old = service(balanced.clone());
        let mut new = service(balanced);
        new["spec"]["type"] = "ClusterIP".into();
        patch_allocated_values(&mut new, &old);
        assert_eq!(new["spec"], json!({"type": "ClusterIP"}));
        let mut changed = old.clone();
        changed["spec"]["type"] = "ClusterIP".into();
        changed["spec"]["externalTrafficPolicy"] = "Cluster".into();
        patch_allocated_values(&mut changed, &old);
        assert_eq!(
            changed["spec"],
            json!({"type": "ClusterIP", "externalTrafficPolicy": "Cluster"})
        );
    }
}

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

use super::{PLAIN, Strategy};

/// The range 10.96.0.0/12 without its first address, which belongs to `default/kubernetes`.
const FIRST_IP: u32 = u32::from_be_bytes([10, 96, 0, 2]);
const LAST_IP: u32 = u32::from_be_bytes([10, 111, 255, 254]);
/// 10.96.0.1, which only the Service `default/kubernetes` requests.
const LOWEST_IP: u32 = FIRST_IP - 1;
const PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;
const DRAWS: usize = 64;

pub(super) static STRATEGY: Strategy = Strategy {
    create: |new| new["status"] = json!({"loadBalancer": {}}),
    update: retain,
    status_takes_metadata: true,
    ..PLAIN
};

#[derive(Default)]
struct Used {
    ips: HashSet<u32>,
    ports: HashSet<u16>,
    /// The addresses of each stored Service, with its revision.
    held: HashMap<String, (u64, Drawn)>,
}

/// Allocates addresses; `None` until the stored Services were listed.
#[derive(Default)]
pub(crate) struct Allocator(Mutex<Option<Used>>);

/// The addresses allocated for one write, which are freed if the write fails.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Drawn {
    pub(crate) ips: Vec<u32>,
    pub(crate) ports: Vec<u16>,
    /// Keys and revisions of the claims on them, if the store is shared.
    pub(crate) claims: Vec<(Arc<str>, u64)>,
}

impl Drawn {
    fn held_by(service: &Value) -> Self {
        Self {
            ips: ip(service).into_iter().collect(),
            ports: node_ports(service).collect(),
            claims: Vec::new(),
        }
    }
}

fn kind(service: &Value) -> &str {
    service["spec"]["type"].as_str().unwrap_or("ClusterIP")
}

fn wants_ip(service: &Value) -> bool {
    kind(service) != "ExternalName"
}

fn wants_ports(service: &Value) -> bool {
    match kind(service) {
        "NodePort" => true,
        "LoadBalancer" => service["spec"]["allocateLoadBalancerNodePorts"] != false,
        _ => false,
    }
}

fn ip(service: &Value) -> Option<u32> {
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

/// Copies allocated addresses that an update omits (`patchAllocatedValues`), and removes
/// those that a change of the type makes invalid.
fn retain(new: &mut Value, old: &Value) {
    if wants_ip(new) && wants_ip(old) {
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
    } else if !wants_ip(new)
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
    let keep_ports = wants_ports(new) && wants_ports(old);
    let drop_ports = !wants_ports(new) && kind(new) != "LoadBalancer";
    for port in new["spec"]["ports"].as_array_mut().into_iter().flatten() {
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

impl Allocator {
    /// Whether the stored Services were listed.
    pub(crate) fn ready(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Rebuilds the allocated addresses from the stored Services. Without other processes on
    /// the store (not `shared`) this happens only once.
    pub(crate) fn refresh(&self, services: &[Object], shared: bool) {
        let mut slot = self.0.lock();
        if slot.is_some() && !shared {
            return;
        }
        let mut known = slot.take().unwrap_or_default().held;
        let mut used = Used::default();
        for service in services {
            let (key, revision) = (service.head().key(), service.revision());
            let allocation = match known.remove(&key) {
                Some((at, allocation)) if at == revision => allocation,
                _ => service
                    .value()
                    .map(|s| Drawn::held_by(&s))
                    .unwrap_or_default(),
            };
            used.ips.extend(&allocation.ips);
            used.ports.extend(&allocation.ports);
            used.held.insert(key, (revision, allocation));
        }
        *slot = Some(used);
    }

    /// Marks addresses as allocated by another process.
    pub(crate) fn take(&self, allocation: &Drawn) {
        let mut slot = self.0.lock();
        let used = slot.get_or_insert_default();
        used.ips.extend(&allocation.ips);
        used.ports.extend(&allocation.ports);
    }

    /// Allocates the addresses that a Service needs and does not have; those of `old` are its
    /// own. With `dry_run` nothing stays allocated.
    pub(crate) fn draw(
        &self,
        new: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<Drawn, Vec<FieldError>> {
        let mut slot = self.0.lock();
        let used = slot.get_or_insert_default();
        let mut allocation = Drawn::default();
        let result = draw_ip(used, new, old, &mut allocation)
            .and_then(|()| draw_ports(used, new, old, &mut allocation));
        if dry_run || result.is_err() {
            give_back(used, &allocation);
            allocation = Drawn::default();
        }
        result.map(|()| allocation).map_err(|e| vec![e])
    }

    /// Frees the addresses that were allocated for a failed write.
    pub(crate) fn undo(&self, allocation: &Drawn) {
        if let Some(used) = self.0.lock().as_mut() {
            give_back(used, allocation);
        }
    }

    /// Frees and returns the addresses of `old` that `new` (`None`: deleted) does not have.
    pub(crate) fn release(&self, old: &Value, new: Option<&Value>) -> Drawn {
        let remaining: HashSet<u16> = new.map(|n| node_ports(n).collect()).unwrap_or_default();
        let released = Drawn {
            ips: ip(old)
                .filter(|i| new.and_then(ip) != Some(*i))
                .into_iter()
                .collect(),
            ports: node_ports(old).filter(|p| !remaining.contains(p)).collect(),
            claims: Vec::new(),
        };
        if let Some(used) = self.0.lock().as_mut() {
            give_back(used, &released);
        }
        released
    }
}

fn give_back(used: &mut Used, allocation: &Drawn) {
    for ip in &allocation.ips {
        used.ips.remove(ip);
    }
    for port in &allocation.ports {
        used.ports.remove(port);
    }
}

fn draw_ip(
    used: &mut Used,
    new: &mut Value,
    old: Option<&Value>,
    allocation: &mut Drawn,
) -> Result<(), FieldError> {
    if !wants_ip(new) {
        return Ok(());
    }
    let requested = new["spec"]["clusterIP"].as_str().unwrap_or("").to_owned();
    if requested == "None" {
        new["spec"]["clusterIPs"] = json!(["None"]);
    } else if requested.is_empty() {
        let allocated = free_ip(used).ok_or_else(|| {
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
        let address = ip(new).filter(|i| (LOWEST_IP..=LAST_IP).contains(i)).ok_or_else(|| {
            let why = "failed to allocate IP: the provided IP is not in the valid range. The range of valid IPs is 10.96.0.0/12";
            FieldError::invalid("spec.clusterIPs", &json!([requested]), why)
        })?;
        let own = old.and_then(ip) == Some(address);
        if !own {
            if !used.ips.insert(address) {
                let why =
                    format!("failed to allocate IP {requested}: provided IP is already allocated");
                return Err(FieldError::invalid(
                    "spec.clusterIPs",
                    &json!([requested]),
                    why,
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

fn free_ip(used: &Used) -> Option<u32> {
    let mut rng = rand::rng();
    let random = (0..DRAWS).map(|_| rng.random_range(FIRST_IP..=LAST_IP));
    random
        .chain(FIRST_IP..=LAST_IP)
        .find(|i| !used.ips.contains(i))
}

fn draw_ports(
    used: &mut Used,
    new: &mut Value,
    old: Option<&Value>,
    allocation: &mut Drawn,
) -> Result<(), FieldError> {
    if !wants_ports(new) {
        return Ok(());
    }
    let own: HashSet<u16> = old.map(|o| node_ports(o).collect()).unwrap_or_default();
    // Requested ports are allocated first, so that random ones do not conflict with them.
    // TCP and UDP of one port may have the same node port.
    let requested: HashSet<u16> = node_ports(new).collect();
    for port in requested {
        if own.contains(&port) {
            continue;
        }
        if !PORTS.contains(&port) {
            let why = format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                PORTS.start(),
                PORTS.end()
            );
            return Err(FieldError::invalid(
                "spec.ports[0].nodePort",
                &json!(port),
                why,
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
        let found = (0..DRAWS)
            .map(|_| rng.random_range(PORTS))
            .chain(PORTS)
            .find(|p| !used.ports.contains(p));
        let Some(found) = found else {
            let why = "failed to allocate a nodePort: range is full";
            return Err(FieldError::invalid(
                format!("spec.ports[{i}].nodePort"),
                &json!(0),
                why,
            ));
        };
        used.ports.insert(found);
        allocation.ports.push(found);
        port["nodePort"] = found.into();
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
        let allocator = Allocator::default();
        let existing = service(json!({"clusterIP": "10.96.0.9"}));
        let stored = Object::from_value(&existing).unwrap();
        allocator.refresh(std::slice::from_ref(&stored), false);
        let mut clash = existing.clone();
        assert!(allocator.draw(&mut clash, None, false).is_err());
        assert_eq!(
            allocator.draw(&mut clash, Some(&existing), false).unwrap(),
            Drawn::default()
        );
        allocator.release(&existing, None);
        assert!(allocator.draw(&mut clash, None, true).is_ok());
        assert!(allocator.draw(&mut clash, None, false).is_ok());

        let mut free = service(
            json!({"type": "NodePort", "ports": [{"port": 80}, {"port": 81, "nodePort": 30001}]}),
        );
        let allocation = allocator.draw(&mut free, None, false).unwrap();
        assert_eq!(free["spec"]["clusterIPs"][0], free["spec"]["clusterIP"]);
        let port = free["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
        assert!((30000..=32767).contains(&port) && port != 30001);
        let mut again =
            service(json!({"type": "NodePort", "ports": [{"port": 1, "nodePort": 30001}]}));
        assert!(allocator.draw(&mut again, None, false).is_err());
        allocator.undo(&allocation);
        assert!(allocator.draw(&mut again, None, false).is_ok());
    }

    #[test]
    fn headless_and_external_services_allocate_nothing() {
        let allocator = Allocator::default();
        for spec in [
            json!({"clusterIP": "None"}),
            json!({"type": "ExternalName"}),
        ] {
            let mut s = service(spec);
            assert_eq!(
                allocator.draw(&mut s, None, false).unwrap(),
                Drawn::default()
            );
        }
        let mut outside = service(json!({"clusterIP": "192.168.0.1"}));
        assert!(allocator.draw(&mut outside, None, false).is_err());
    }

    #[test]
    fn an_update_keeps_addresses_that_it_omits() {
        let old = service(
            json!({"type": "NodePort", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"],
            "ports": [{"port": 80, "nodePort": 30001}]}),
        );
        let mut new = service(json!({"type": "NodePort", "ports": [{"port": 80}]}));
        retain(&mut new, &old);
        assert_eq!(
            (&new["spec"]["clusterIP"], &new["spec"]["ports"]),
            (&old["spec"]["clusterIP"], &old["spec"]["ports"])
        );
        let mut plain =
            service(json!({"type": "ClusterIP", "ports": [{"port": 80, "nodePort": 30001}]}));
        retain(&mut plain, &old);
        assert_eq!(plain["spec"]["ports"], json!([{"port": 80}]));
    }
}

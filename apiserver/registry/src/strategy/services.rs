//! Services: cluster addresses and node ports
//! (`pkg/registry/core/service/{storage,ipallocator,portallocator}`).
//!
//! Enters: service trees and the services that exist. Leaves: the same trees with
//! addresses. The allocator is in memory and rebuilt from the stored services;
//! an address is given once, and free again when its service is gone. What other
//! processes give out meanwhile is `claims`' business.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use machinery::{FieldError, Object};
use parking_lot::Mutex;
use rand::Rng;
use serde_json::{Value, json};

use super::{PLAIN, Strategy};

/// 10.96.0.0/12 without its first address, which belongs to `default/kubernetes`.
const FIRST_IP: u32 = u32::from_be_bytes([10, 96, 0, 2]);
const LAST_IP: u32 = u32::from_be_bytes([10, 111, 255, 254]);
/// The one service that gets 10.96.0.1 asks for it by name.
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
    /// What each stored service holds, at which revision.
    held: HashMap<String, (u64, Drawn)>,
}

/// What is given out; `None` until the stored services were read.
#[derive(Default)]
pub(crate) struct Allocator(Mutex<Option<Used>>);

/// What one write drew; given back when the write fails.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Drawn {
    pub(crate) ips: Vec<u32>,
    pub(crate) ports: Vec<u16>,
    /// Keys and revisions of the claims on them, where there are any.
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

/// Keeps what was allocated when an update leaves it out
/// (`patchAllocatedValues`), and drops what a change of type makes void.
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
    let had: HashMap<_, _> = old["spec"]["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|p| (by_port(p), p["nodePort"].clone()))
        .collect();
    let keep = wants_ports(new) && wants_ports(old);
    let drop = !wants_ports(new) && kind(new) != "LoadBalancer";
    for port in new["spec"]["ports"].as_array_mut().into_iter().flatten() {
        let unset = port["nodePort"].as_u64().is_none_or(|p| p == 0);
        let before = had
            .get(&by_port(port))
            .filter(|v| v.as_u64().is_some_and(|p| p > 0));
        if keep
            && unset
            && let Some(before) = before
        {
            port["nodePort"] = before.clone();
        }
        if let Some(map) = port.as_object_mut()
            && (map.get("nodePort").is_some_and(Value::is_null)
                || drop && map.get("nodePort") == before)
        {
            map.remove("nodePort");
        }
    }
}

impl Allocator {
    /// Whether the stored services were read already.
    pub(crate) fn ready(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Takes up what the stored services hold. What is known already stays, or where
    /// others give out addresses too (`shared`), is forgotten.
    pub(crate) fn refresh(&self, services: &[Object], shared: bool) {
        let mut slot = self.0.lock();
        if slot.is_some() && !shared {
            return;
        }
        let mut known = slot.take().unwrap_or_default().held;
        let mut used = Used::default();
        for service in services {
            let (key, revision) = (service.head().key(), service.revision());
            let held = match known.remove(&key) {
                Some((at, held)) if at == revision => held,
                _ => service
                    .value()
                    .map(|s| Drawn::held_by(&s))
                    .unwrap_or_default(),
            };
            used.ips.extend(&held.ips);
            used.ports.extend(&held.ports);
            used.held.insert(key, (revision, held));
        }
        *slot = Some(used);
    }

    /// Another process has given these out.
    pub(crate) fn take(&self, taken: &Drawn) {
        let mut slot = self.0.lock();
        let used = slot.get_or_insert_default();
        used.ips.extend(&taken.ips);
        used.ports.extend(&taken.ports);
    }

    /// Gives a service what it wants and does not have. `old` holds its own
    /// addresses already. With `dry_run` nothing stays taken.
    pub(crate) fn draw(
        &self,
        new: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<Drawn, Vec<FieldError>> {
        let mut slot = self.0.lock();
        let used = slot.get_or_insert_default();
        let mut drawn = Drawn::default();
        let outcome = draw_ip(used, new, old, &mut drawn)
            .and_then(|()| draw_ports(used, new, old, &mut drawn));
        if dry_run || outcome.is_err() {
            give_back(used, &drawn);
            drawn = Drawn::default();
        }
        outcome.map(|()| drawn).map_err(|e| vec![e])
    }

    /// Takes back what a failed write had drawn.
    pub(crate) fn undo(&self, drawn: &Drawn) {
        if let Some(used) = self.0.lock().as_mut() {
            give_back(used, drawn);
        }
    }

    /// Frees what `old` held and `new` (none: it is gone) holds no more; gives it.
    pub(crate) fn release(&self, old: &Value, new: Option<&Value>) -> Drawn {
        let kept: HashSet<u16> = new.map(|n| node_ports(n).collect()).unwrap_or_default();
        let gone = Drawn {
            ips: ip(old)
                .filter(|i| new.and_then(ip) != Some(*i))
                .into_iter()
                .collect(),
            ports: node_ports(old).filter(|p| !kept.contains(p)).collect(),
            claims: Vec::new(),
        };
        if let Some(used) = self.0.lock().as_mut() {
            give_back(used, &gone);
        }
        gone
    }
}

fn give_back(used: &mut Used, drawn: &Drawn) {
    for ip in &drawn.ips {
        used.ips.remove(ip);
    }
    for port in &drawn.ports {
        used.ports.remove(port);
    }
}

fn draw_ip(
    used: &mut Used,
    new: &mut Value,
    old: Option<&Value>,
    drawn: &mut Drawn,
) -> Result<(), FieldError> {
    if !wants_ip(new) {
        return Ok(());
    }
    let asked = new["spec"]["clusterIP"].as_str().unwrap_or("").to_owned();
    if asked == "None" {
        new["spec"]["clusterIPs"] = json!(["None"]);
    } else if asked.is_empty() {
        let taken = free_ip(used).ok_or_else(|| {
            FieldError::invalid(
                "spec.clusterIPs",
                &json!([""]),
                "failed to allocate a serviceIP: range is full",
            )
        })?;
        used.ips.insert(taken);
        drawn.ips.push(taken);
        let text = Ipv4Addr::from(taken).to_string();
        new["spec"]["clusterIPs"] = json!([text]);
        new["spec"]["clusterIP"] = text.into();
    } else {
        let wanted = ip(new).filter(|i| (LOWEST_IP..=LAST_IP).contains(i)).ok_or_else(|| {
            let why = "failed to allocate IP: the provided IP is not in the valid range. The range of valid IPs is 10.96.0.0/12";
            FieldError::invalid("spec.clusterIPs", &json!([asked]), why)
        })?;
        let own = old.and_then(ip) == Some(wanted);
        if !own {
            if !used.ips.insert(wanted) {
                let why =
                    format!("failed to allocate IP {asked}: provided IP is already allocated");
                return Err(FieldError::invalid("spec.clusterIPs", &json!([asked]), why));
            }
            drawn.ips.push(wanted);
        }
        new["spec"]["clusterIPs"] = json!([asked]);
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
    let drawn = (0..DRAWS).map(|_| rng.random_range(FIRST_IP..=LAST_IP));
    drawn
        .chain(FIRST_IP..=LAST_IP)
        .find(|i| !used.ips.contains(i))
}

fn draw_ports(
    used: &mut Used,
    new: &mut Value,
    old: Option<&Value>,
    drawn: &mut Drawn,
) -> Result<(), FieldError> {
    if !wants_ports(new) {
        return Ok(());
    }
    let own: HashSet<u16> = old.map(|o| node_ports(o).collect()).unwrap_or_default();
    // Ports asked for by number go first, so that a free draw cannot take them.
    // TCP and UDP of one port may share a number.
    let asked: HashSet<u16> = node_ports(new).collect();
    for port in asked {
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
        drawn.ports.push(port);
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
        drawn.ports.push(found);
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
    fn addresses_are_given_once_and_come_back() {
        let allocator = Allocator::default();
        let held = service(json!({"clusterIP": "10.96.0.9"}));
        let stored = Object::from_value(&held).unwrap();
        allocator.refresh(std::slice::from_ref(&stored), false);
        let mut clash = held.clone();
        assert!(allocator.draw(&mut clash, None, false).is_err());
        assert_eq!(
            allocator.draw(&mut clash, Some(&held), false).unwrap(),
            Drawn::default()
        );
        allocator.release(&held, None);
        assert!(allocator.draw(&mut clash, None, true).is_ok());
        assert!(allocator.draw(&mut clash, None, false).is_ok());

        let mut free = service(
            json!({"type": "NodePort", "ports": [{"port": 80}, {"port": 81, "nodePort": 30001}]}),
        );
        let drawn = allocator.draw(&mut free, None, false).unwrap();
        assert_eq!(free["spec"]["clusterIPs"][0], free["spec"]["clusterIP"]);
        let port = free["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
        assert!((30000..=32767).contains(&port) && port != 30001);
        let mut again =
            service(json!({"type": "NodePort", "ports": [{"port": 1, "nodePort": 30001}]}));
        assert!(allocator.draw(&mut again, None, false).is_err());
        allocator.undo(&drawn);
        assert!(allocator.draw(&mut again, None, false).is_ok());
    }

    #[test]
    fn headless_and_external_services_take_nothing() {
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
    fn an_update_keeps_what_it_leaves_out() {
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

//! Native rules of Service and Ingress, whose status lists the addresses that the clusters assigned.

use std::collections::BTreeMap;

use jiff::Timestamp;
use machinery::Object;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::native::{
    CollectedStatus, Error, NativeRules, parse_collected_status, parse_object, reflect_whole_status,
};

pub(crate) struct NativeServiceRules;
pub(crate) struct NativeIngressRules;

#[derive(Deserialize)]
struct LoadBalancedObject {
    #[serde(default)]
    spec: ServiceSpecWithType,
    #[serde(default)]
    status: LoadBalancedObjectStatus,
}

#[derive(Default, Deserialize)]
struct ServiceSpecWithType {
    #[serde(default, rename = "type")]
    service_type: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LoadBalancedObjectStatus {
    #[serde(default)]
    load_balancer: LoadBalancerStatus,
}

#[derive(Default, Deserialize)]
struct LoadBalancerStatus {
    #[serde(default)]
    ingress: Vec<Map<String, Value>>,
}

fn string_field<'a>(point: &'a Map<String, Value>, field: &str) -> &'a str {
    point.get(field).and_then(Value::as_str).unwrap_or("")
}

fn has_address(status: &LoadBalancedObjectStatus) -> bool {
    status
        .load_balancer
        .ingress
        .iter()
        .any(|p| !string_field(p, "hostname").is_empty() || !string_field(p, "ip").is_empty())
}

/// Merges the addresses of all clusters: one per host name and IP with the ports of all, host
/// names first.
fn merge_addresses(items: &[CollectedStatus<'_>]) -> Result<Value, Error> {
    // Addresses without a host name sort after those with one.
    let mut points: BTreeMap<(bool, String, String), Map<String, Value>> = BTreeMap::new();
    for item in items {
        let Some(reported) = item.status else {
            continue;
        };
        let status: LoadBalancedObjectStatus = parse_collected_status(item, reported)?;
        for mut point in status.load_balancer.ingress {
            let (host, ip) = (
                string_field(&point, "hostname").to_owned(),
                string_field(&point, "ip").to_owned(),
            );
            let slot = points.entry((host.is_empty(), host, ip)).or_default();
            let ports = point.remove("ports");
            let before = slot.remove("ports");
            *slot = point;
            let mut all: Vec<Value> = [before, ports]
                .into_iter()
                .flatten()
                .filter_map(|p| match p {
                    Value::Array(ports) => Some(ports),
                    _ => None,
                })
                .flatten()
                .collect();
            all.sort_by_cached_key(|p| {
                (
                    p["port"].as_i64(),
                    p["protocol"].as_str().map(str::to_owned),
                    p["error"].as_str().map(str::to_owned),
                )
            });
            all.dedup();
            if !all.is_empty() {
                slot.insert("ports".into(), all.into());
            }
        }
    }
    let points: Vec<Map<String, Value>> = points.into_values().collect();
    Ok(if points.is_empty() {
        json!({"loadBalancer": {}})
    } else {
        json!({"loadBalancer": {"ingress": points}})
    })
}

impl NativeRules for NativeServiceRules {
    fn retain(&self, desired: &mut Value, observed: &Value) -> Result<(), Error> {
        for field in ["clusterIP", "healthCheckNodePort"] {
            let current = &observed["spec"][field];
            let set = current.as_str().is_some_and(|s| !s.is_empty())
                || current.as_i64().is_some_and(|n| n > 0);
            if set && let Some(spec) = desired.get_mut("spec").and_then(Value::as_object_mut) {
                spec.insert(field.into(), current.clone());
            }
        }
        Ok(())
    }

    fn interpret_health(&self, observed: &Object) -> Result<Option<bool>, Error> {
        let service: LoadBalancedObject = parse_object(observed, "health")?;
        Ok(Some(
            service.spec.service_type != "LoadBalancer" || has_address(&service.status),
        ))
    }

    fn reflect_status(&self, observed: &Object) -> Result<Option<Value>, Error> {
        #[derive(Deserialize)]
        struct ObservedService {
            #[serde(default)]
            spec: ServiceSpecWithType,
            status: Option<Map<String, Value>>,
        }
        let service: ObservedService = parse_object(observed, "status")?;
        if service.spec.service_type != "LoadBalancer" {
            return Ok(None);
        }
        Ok(service.status.map(
            |mut s| json!({"loadBalancer": s.remove("loadBalancer").unwrap_or_else(|| json!({}))}),
        ))
    }

    fn aggregate_status(
        &self,
        template: &Object,
        items: &[CollectedStatus<'_>],
        _now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        let service: LoadBalancedObject = parse_object(template, "status")?;
        if service.spec.service_type != "LoadBalancer" {
            return Ok(None);
        }
        merge_addresses(items).map(Some)
    }
}

impl NativeRules for NativeIngressRules {
    fn interpret_health(&self, observed: &Object) -> Result<Option<bool>, Error> {
        let ingress: LoadBalancedObject = parse_object(observed, "health")?;
        Ok(Some(has_address(&ingress.status)))
    }

    fn reflect_status(&self, observed: &Object) -> Result<Option<Value>, Error> {
        reflect_whole_status(observed)
    }

    fn aggregate_status(
        &self,
        _template: &Object,
        items: &[CollectedStatus<'_>],
        _now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        merge_addresses(items).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::fixtures::object;

    // proves: NAT-service
    #[test]
    fn only_load_balancers_have_their_status_collected() {
        let plain = object(
            json!({"metadata": {"name": "s"}, "spec": {"type": "ClusterIP"}, "status": {"loadBalancer": {}}}),
        );
        assert_eq!(NativeServiceRules.reflect_status(&plain).unwrap(), None);
        assert_eq!(
            NativeServiceRules.interpret_health(&plain).unwrap(),
            Some(true)
        );
        assert_eq!(
            NativeServiceRules
                .aggregate_status(&plain, &[], Timestamp::UNIX_EPOCH)
                .unwrap(),
            None
        );
        let balanced = object(
            json!({"metadata": {"name": "s"}, "spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {}, "conditions": []}}),
        );
        assert_eq!(
            NativeServiceRules.reflect_status(&balanced).unwrap(),
            Some(json!({"loadBalancer": {}}))
        );
        assert_eq!(
            NativeServiceRules.interpret_health(&balanced).unwrap(),
            Some(false)
        );
    }

    // proves: NAT-addresses
    #[test]
    fn addresses_are_merged_and_sorted() {
        let a = json!({"loadBalancer": {"ingress": [{"ip": "10.0.0.2"}, {"hostname": "x"}]}});
        let b = json!({"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2", "ports": [{"port": 80, "protocol": "TCP"}]}]}});
        let items = [
            CollectedStatus::new("a", Some(&a)),
            CollectedStatus::new("b", Some(&b)),
            CollectedStatus::new("c", None),
        ];
        let ingress = object(json!({"metadata": {"name": "i"}}));
        let joined = NativeIngressRules
            .aggregate_status(&ingress, &items, Timestamp::UNIX_EPOCH)
            .unwrap()
            .unwrap();
        assert_eq!(
            joined["loadBalancer"]["ingress"],
            json!([{"hostname": "x"}, {"ip": "10.0.0.1"}, {"ip": "10.0.0.2", "ports": [{"port": 80, "protocol": "TCP"}]}])
        );
    }

    // proves: NAT-service-retain
    #[test]
    fn addresses_that_the_member_assigned_are_retained() {
        let mut desired = json!({"spec": {"type": "ClusterIP"}});
        NativeServiceRules
            .retain(
                &mut desired,
                &json!({"spec": {"clusterIP": "10.1.2.3", "healthCheckNodePort": 0}}),
            )
            .unwrap();
        assert_eq!(
            desired,
            json!({"spec": {"type": "ClusterIP", "clusterIP": "10.1.2.3"}})
        );
    }
}

//! Resolves the addresses of a cluster's estimator, in the order in which to try them.
//!
//! Pure. Source of the rules: Karmada's `pkg/estimator/client/service.go`. Karmada
//! rejects Services of the host that are not of type ExternalName, because there they
//! never belong to the cluster it runs in; here they may, and are then tried by DNS name.

use std::fmt;

use machinery::Object;
use serde::Deserialize;
use serde_json::Value;

use crate::options::EstimatorOptions;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EstimatorAddress {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl fmt::Display for EstimatorAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EstimatorService {
    spec: EstimatorServiceSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EstimatorServiceSpec {
    r#type: String,
    external_name: String,
    ports: Option<Vec<EstimatorServicePort>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EstimatorServicePort {
    port: i64,
    target_port: Value,
}

/// The addresses to try, or why the Service has none. Without a Service on the host there
/// may still be one in the cluster that this process runs in.
pub(crate) fn addresses(
    service: Option<&Object>,
    cluster: &str,
    options: &EstimatorOptions,
) -> Result<Vec<EstimatorAddress>, String> {
    let by_name = || {
        let at = format!("{}.{}", options.service_name(cluster), options.namespace);
        let hosts = [format!("{at}.svc.cluster.local"), format!("{at}.svc")];
        let port = options.port;
        hosts.map(|host| EstimatorAddress { host, port }).into()
    };
    let Some(service) = service else {
        return Ok(by_name());
    };
    let name = service.name();
    let spec = service
        .decode::<EstimatorService>()
        .map_err(|e| e.to_string())?;
    let spec = &spec.spec;
    let number = options.port;
    let mut ports = spec.ports.iter().flatten();
    let port = ports.find(|port| port.port == i64::from(number));
    let port =
        port.ok_or_else(|| format!("no service port {number} found for service {name:?}"))?;
    if spec.r#type != "ExternalName" {
        return Ok(by_name());
    }
    let number = port.target_port.as_u64().map(u16::try_from);
    let Some(Ok(port)) = number else {
        return Err(format!(
            "ExternalName service type should have int target port, current target port: {}",
            port.target_port
        ));
    };
    Ok(vec![EstimatorAddress {
        host: spec.external_name.clone(),
        port,
    }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn resolved_addresses(service: Option<Value>) -> Result<Vec<String>, String> {
        let service = service.map(|spec| {
            let text = json!({"metadata": {"name": "s"}, "spec": spec}).to_string();
            Object::from_json(text.into_bytes().into()).unwrap()
        });
        let resolved = addresses(service.as_ref(), "m1", &EstimatorOptions::default())?;
        Ok(resolved.iter().map(ToString::to_string).collect())
    }

    // proves: EST-service, EST-service-dns
    #[test]
    fn addresses_come_from_the_service_or_its_dns_name() {
        let port = |target: Value| json!([{"port": 1}, {"port": 10352, "targetPort": target}]);
        let of = |kind: &str, ports: Value| {
            Some(json!({"type": kind, "externalName": "e", "ports": ports}))
        };
        let at = "karmada-scheduler-estimator-m1.karmada-system.svc";
        let by_name = vec![format!("{at}.cluster.local:10352"), format!("{at}:10352")];
        for (service, expected) in [
            (
                of("ExternalName", port(json!(7))),
                Ok(vec!["e:7".to_owned()]),
            ),
            (
                Some(
                    json!({"type": "ExternalName", "externalName": "::1", "ports": port(json!(7))}),
                ),
                Ok(vec!["[::1]:7".to_owned()]),
            ),
            (None, Ok(by_name.clone())),
            (of("ClusterIP", port(json!(7))), Ok(by_name)),
            (
                of("ClusterIP", json!([{"port": 1}])),
                Err("no service port 10352 found for service \"s\""),
            ),
            (
                of("ExternalName", json!([{"port": 1}])),
                Err("no service port 10352 found for service \"s\""),
            ),
            (
                of("ExternalName", json!(null)),
                Err("no service port 10352 found for service \"s\""),
            ),
            (
                of("ExternalName", port(json!("grpc"))),
                Err(
                    "ExternalName service type should have int target port, current target port: \"grpc\"",
                ),
            ),
        ] {
            let text = format!("{service:?}");
            assert_eq!(
                resolved_addresses(service),
                expected.map_err(str::to_owned),
                "{text}"
            );
        }
    }
}

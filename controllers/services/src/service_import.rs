//! The controller serviceImport: derives from each ServiceImport the Service that importing clusters
//! use.
//!
//! Source: Karmada's `pkg/controllers/mcs/service_import_controller.go`. Karmada deletes any Service
//! with the derived name when the ServiceImport is deleted; here the Service belongs to its
//! ServiceImport by an owner reference, so that one that is deleted while no controller runs takes its
//! Service along, and a Service of somebody else stays.

use std::sync::Arc;

use client::{
    Api, DeleteOptions, Error, Informer, InvolvedObject, Patch, ResourcePath, WriteOptions,
    ignore_not_found,
};
use flotilla_runtime::{
    ControllerContext, EventRecorder, ReconcileAction, StatusWriter, Workqueue, run_workers,
};
use karmada_api::names::derived_service_name;
use machinery::Object;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{SERVICE_IMPORTS, SERVICES};

const WORKERS: usize = 1;
const API_VERSION: &str = "multicluster.x-k8s.io/v1alpha1";
const KIND: &str = "ServiceImport";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ServiceImport {
    spec: ServiceImportSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ServiceImportSpec {
    #[serde(rename = "type")]
    import_type: String,
    ports: Vec<ServiceImportPort>,
    ips: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ServiceImportPort {
    name: String,
    protocol: String,
    app_protocol: Option<String>,
    port: i64,
}

/// The ports of the derived Service, with the defaults that the API server fills in.
fn service_ports(import: &ServiceImportSpec) -> Vec<Value> {
    let ports = import.ports.iter().map(|port| {
        let protocol = match port.protocol.as_str() {
            "" => "TCP",
            other => other,
        };
        let mut service_port =
            json!({"protocol": protocol, "port": port.port, "targetPort": port.port});
        if !port.name.is_empty() {
            service_port["name"] = port.name.as_str().into();
        }
        if let Some(protocol) = &port.app_protocol {
            service_port["appProtocol"] = protocol.as_str().into();
        }
        service_port
    });
    ports.collect()
}

fn owner_reference(import: &Object) -> Value {
    json!({"apiVersion": API_VERSION, "kind": KIND, "name": import.name(), "uid": import.uid()})
}

fn belongs_to(service: &Object, import_name: &str) -> bool {
    let mut owners = service.owner_references().iter();
    owners.any(|o| &*o.kind == KIND && &*o.api_version == API_VERSION && &*o.name == import_name)
}

/// The merge patch that makes an existing Service the derived one; `None` if it is.
fn service_patch(service: &Value, ports: &[Value], owner: &Value) -> Option<Value> {
    let mut existing_ports = service["spec"]["ports"].clone();
    for port in existing_ports.as_array_mut().into_iter().flatten() {
        if let Some(port) = port.as_object_mut() {
            port.remove("nodePort");
        }
    }
    let spec = &service["spec"];
    let no_selector = spec["selector"]
        .as_object()
        .is_none_or(serde_json::Map::is_empty);
    let owners = &service["metadata"]["ownerReferences"];
    let owned = owners.as_array().is_some_and(|all| all.contains(owner));
    let same_ports = existing_ports.as_array().is_some_and(|now| now == ports);
    if spec["type"] == "ClusterIP" && no_selector && owned && same_ports {
        return None;
    }
    Some(json!({
        "metadata": {"resourceVersion": service["metadata"]["resourceVersion"], "ownerReferences": [owner]},
        "spec": {"type": "ClusterIP", "selector": null, "ports": ports},
    }))
}

/// The merge patch of the status with the addresses of the ServiceImport; `None` if it has them.
fn status_fields(service: &Value, ips: &[String]) -> Option<Value> {
    let desired: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip})).collect();
    let existing = service["status"]["loadBalancer"]["ingress"].as_array();
    let existing = existing
        .into_iter()
        .flatten()
        .map(|i| json!({"ip": i["ip"]}));
    (!existing.eq(desired.iter().cloned())).then(|| json!({"loadBalancer": {"ingress": desired}}))
}

/// The controller serviceImport.
pub(crate) struct ServiceImportController {
    api: Arc<dyn Api>,
    imports: Informer,
    recorder: EventRecorder,
}

impl ServiceImportController {
    pub(crate) async fn start(context: &ControllerContext) {
        let controller = Arc::new(Self {
            api: Arc::clone(&context.control_plane),
            imports: context.informer(&SERVICE_IMPORTS),
            recorder: context.recorder.clone(),
        });
        controller.imports.wait_for_cache_sync().await;
        let queue = Workqueue::new();
        let changed = queue.clone();
        controller.imports.add_event_handler(move |change| {
            let object = change.object();
            let key = (object.namespace().to_owned(), object.name().to_owned());
            changed.add_event(key, change);
        });
        run_workers(
            &context.tasks,
            "service-import",
            &queue,
            WORKERS,
            move |(namespace, name): (String, String)| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(&namespace, &name).await }
            },
        );
    }

    async fn reconcile(&self, namespace: &str, name: &str) -> Result<ReconcileAction, Error> {
        let Some(import) = self.imports.get(namespace, name) else {
            self.delete_service(namespace, name).await?;
            return Ok(ReconcileAction::Done);
        };
        let decoded = import.decode::<ServiceImport>()?;
        if import.meta().deleting || decoded.spec.import_type != "ClusterSetIP" {
            return Ok(ReconcileAction::Done);
        }
        let about = InvolvedObject::new(API_VERSION, KIND, &import);
        match self.derive_service(&import, &decoded.spec).await {
            Ok(false) => {}
            Ok(true) => self.recorder.normal(
                &about,
                "SyncDerivedServiceSucceed",
                format!("Sync derived service for serviceImport({name}) succeed."),
            ),
            Err(e) if e.is_conflict() => return Ok(ReconcileAction::AFTER_CONFLICT),
            Err(e) => {
                let reason = "SyncDerivedServiceFailed";
                self.recorder.warning(&about, reason, e.to_string());
                return Err(e);
            }
        }
        Ok(ReconcileAction::Done)
    }

    /// Returns whether something was written.
    async fn derive_service(
        &self,
        import: &Object,
        spec: &ServiceImportSpec,
    ) -> Result<bool, Error> {
        let (namespace, name) = (import.namespace(), derived_service_name(import.name()));
        let at = ResourcePath::object(&SERVICES, namespace, &name);
        let (ports, owner) = (service_ports(spec), owner_reference(import));
        let options = WriteOptions::default();
        let mut written = true;
        let service = match self.api.get(at).await {
            Ok(existing) => match service_patch(&existing.value()?, &ports, &owner) {
                Some(patch) => self.api.patch(at, Patch::Merge(patch), &options).await?,
                None => {
                    written = false;
                    existing
                }
            },
            Err(e) if e.is_not_found() => {
                let service = json!({"apiVersion": "v1", "kind": "Service",
                    "metadata": {"namespace": namespace, "name": name, "ownerReferences": [owner]},
                    "spec": {"type": "ClusterIP", "ports": ports}});
                let at = ResourcePath::collection(&SERVICES, namespace);
                self.api.create(at, service.into(), &options).await?
            }
            Err(e) => return Err(e),
        };
        let fields = status_fields(&service.value()?, &spec.ips);
        let writer = StatusWriter::new(&*self.api, "service-import");
        let patched = writer.patch(&SERVICES, &service, fields).await?;
        Ok(written || patched.is_some())
    }

    async fn delete_service(&self, namespace: &str, import_name: &str) -> Result<(), Error> {
        let name = derived_service_name(import_name);
        let at = ResourcePath::object(&SERVICES, namespace, &name);
        let service = match self.api.get(at).await {
            Err(e) if e.is_not_found() => return Ok(()),
            other => other?,
        };
        if !belongs_to(&service, import_name) {
            return Ok(());
        }
        let options = DeleteOptions {
            uid: Some(service.uid().to_owned()),
            ..DeleteOptions::default()
        };
        match self.api.delete(at, &options).await {
            Err(e) if e.is_conflict() => Ok(()),
            other => ignore_not_found(other).map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn import() -> ServiceImportSpec {
        let value = json!({"type": "ClusterSetIP", "ips": ["42.0.0.1"], "ports": [
            {"name": "http", "port": 80, "appProtocol": "h2c"}, {"name": "dns", "port": 53, "protocol": "UDP"}]});
        ServiceImportSpec::deserialize(value).unwrap()
    }

    // proves: SVC-derived
    #[test]
    fn ports_are_those_of_the_import() {
        assert_eq!(
            service_ports(&import()),
            [
                json!({"name": "http", "port": 80, "targetPort": 80, "protocol": "TCP", "appProtocol": "h2c"}),
                json!({"name": "dns", "port": 53, "targetPort": 53, "protocol": "UDP"}),
            ]
        );
    }

    // proves: SVC-derived, SVC-no-idle-write
    #[test]
    fn a_service_is_patched_only_when_it_differs() {
        let (ports, owner) = (service_ports(&import()), json!({"kind": KIND, "uid": "u"}));
        let mut stored = ports.clone();
        stored[0]["nodePort"] = 30000.into();
        let service = json!({"metadata": {"ownerReferences": [owner]},
            "spec": {"type": "ClusterIP", "clusterIP": "10.0.0.9", "ports": stored}});
        assert_eq!(service_patch(&service, &ports, &owner), None);
        for (path, value) in [
            ("/spec/type", json!("NodePort")),
            ("/spec/ports", json!([])),
            (
                "/spec",
                json!({"type": "ClusterIP", "ports": ports, "selector": {"app": "web"}}),
            ),
            ("/metadata/ownerReferences", Value::Null),
        ] {
            let mut changed = service.clone();
            *changed.pointer_mut(path).unwrap() = value;
            let patch = service_patch(&changed, &ports, &owner).unwrap();
            assert_eq!(patch["spec"]["ports"], Value::from(ports.clone()), "{path}");
            assert_eq!(patch["spec"].get("clusterIP"), None, "{path}");
        }
    }

    // proves: SVC-derived
    #[test]
    fn addresses_become_those_of_the_load_balancer() {
        let ips = import().ips;
        let fields = status_fields(&json!({}), &ips).unwrap();
        assert_eq!(
            fields["loadBalancer"]["ingress"],
            json!([{"ip": "42.0.0.1"}])
        );
        let stored =
            json!({"status": {"loadBalancer": {"ingress": [{"ip": "42.0.0.1", "ipMode": "VIP"}]}}});
        assert_eq!(status_fields(&stored, &ips), None);
        assert_eq!(
            status_fields(&json!({"status": {"loadBalancer": {}}}), &[]),
            None
        );
        assert!(status_fields(&stored, &[]).is_some());
    }
}

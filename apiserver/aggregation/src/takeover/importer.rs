//! One pass over the objects that the host serves for Karmada: each is validated, and stored as it
//! is there; what the host has no more is removed. A pass that is repeated writes only differences.

use std::collections::HashSet;
use std::sync::Arc;

use anyhow::{Context, ensure};
use client::{Api, ListOptions, ResourcePath};
use flotilla_runtime::{RequiredRight, missing_rights};
use futures_util::{StreamExt, stream};
use karmada_api::is_karmada_group;
use machinery::Status;
use registry::{ImportOptions, Registry, ResourceInfo};
use serde_json::Value;

use super::follower::TakeoverFollower;
use super::list::list_resource;
use super::record::{MovedResource, TakeoverPhase, TakeoverRecord, TakeoverReport};

/// The objects that are stored at once: the store commits them together.
const CONCURRENT_IMPORTS: usize = 64;
/// The errors that a report has.
const MAX_ERRORS: usize = 20;

/// The rights in the host that Flotilla needs to lead the APIServices to itself. The switch would fail
/// without them, when Karmada's controllers have stopped.
const SWITCH_RIGHTS: [RequiredRight<'_>; 6] = [
    RequiredRight::new("get", API_REGISTRATION, "apiservices", ""),
    RequiredRight::new("create", API_REGISTRATION, "apiservices", ""),
    RequiredRight::new("patch", API_REGISTRATION, "apiservices", ""),
    RequiredRight::new("get", ADMISSION, OWN_WEBHOOKS, ""),
    RequiredRight::new("create", ADMISSION, OWN_WEBHOOKS, ""),
    RequiredRight::new("patch", ADMISSION, OWN_WEBHOOKS, ""),
];
const API_REGISTRATION: &str = "apiregistration.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";
const OWN_WEBHOOKS: &str = "validatingwebhookconfigurations";

/// Imports the host's objects into the store of this server.
#[derive(Clone)]
pub struct TakeoverImporter {
    follower: TakeoverFollower,
    registry: Arc<Registry>,
    /// The API of the registry.
    own: Arc<dyn Api>,
}

impl TakeoverImporter {
    pub fn new(follower: TakeoverFollower, registry: Arc<Registry>, own: Arc<dyn Api>) -> Self {
        Self {
            follower,
            registry,
            own,
        }
    }

    pub fn follower(&self) -> &TakeoverFollower {
        &self.follower
    }

    /// Does what the phase of the record asks for, and returns the report about it.
    pub async fn act(&self, record: &TakeoverRecord) -> TakeoverReport {
        let mut report = TakeoverReport {
            phase: record.phase,
            pass: record.pass,
            ..TakeoverReport::default()
        };
        if record.phase.imports()
            && let Err(error) = self.run_pass(record, &mut report).await
        {
            report.errors.push(format!("{error:#}"));
        }
        report
    }

    async fn run_pass(
        &self,
        record: &TakeoverRecord,
        report: &mut TakeoverReport,
    ) -> anyhow::Result<()> {
        if record.phase == TakeoverPhase::Check {
            report_missing_rights(&*self.follower.host, report).await;
        }
        for resource in self.registry.importable_resources() {
            let gvr = &resource.kind.gvr;
            if !is_karmada_group(&gvr.group) {
                continue;
            }
            let kind = &resource.kind.gvk.kind;
            let objects = list_resource(&*self.follower.host, gvr, kind).await;
            let objects = objects.with_context(|| format!("the host's {gvr}"))?;
            // A kind that the host does not serve is Flotilla's own.
            let Some(objects) = objects else {
                continue;
            };
            report.resources.push(MovedResource {
                group: gvr.group.to_string(),
                version: gvr.version.to_string(),
                resource: gvr.resource.to_string(),
                kind: kind.to_string(),
                namespaced: resource.kind.namespaced,
                objects: objects.len(),
            });
            self.mirror(record, &resource, objects, report).await?;
        }
        Ok(())
    }

    /// Makes the store's objects of one resource those of the host.
    async fn mirror(
        &self,
        record: &TakeoverRecord,
        resource: &ResourceInfo,
        objects: Vec<Value>,
        report: &mut TakeoverReport,
    ) -> anyhow::Result<()> {
        let options = ImportOptions {
            dry_run: record.phase == TakeoverPhase::Check,
            drops_unknown_fields: record.allow_changes,
        };
        let keys: HashSet<(String, String)> = objects.iter().map(object_key).collect();
        self.remove_others(record, resource, &keys).await?;
        let imports = objects.into_iter().map(|object| async move {
            let key = object_key(&object);
            let imported = self.registry.import_object(resource, object, options).await;
            (key, imported)
        });
        let mut imports = stream::iter(imports).buffer_unordered(CONCURRENT_IMPORTS);
        while let Some(((namespace, name), imported)) = imports.next().await {
            if let Err(status) = imported {
                report_error(report, resource, &namespace, &name, &status);
            }
        }
        Ok(())
    }

    /// Removes objects that the host does not have. Before the first move there must be none: they
    /// would be Flotilla's own.
    async fn remove_others(
        &self,
        record: &TakeoverRecord,
        resource: &ResourceInfo,
        keys: &HashSet<(String, String)>,
    ) -> anyhow::Result<()> {
        let gvr = &resource.kind.gvr;
        let all = ResourcePath::collection(gvr, "");
        let stored = self.own.list(all, &ListOptions::default()).await?;
        for object in stored.items {
            let (namespace, name) = (object.namespace(), object.name());
            if keys.contains(&(namespace.to_owned(), name.to_owned())) {
                continue;
            }
            let key = object.meta().key();
            ensure!(
                record.has_moved,
                "Flotilla has {gvr} {key:?} that the host has not: take over with an empty store"
            );
            if record.phase == TakeoverPhase::Move {
                let removed = self.registry.remove_imported(resource, namespace, name);
                removed.await.with_context(|| format!("{gvr} {key:?}"))?;
            }
        }
        Ok(())
    }
}

async fn report_missing_rights(host: &dyn Api, report: &mut TakeoverReport) {
    let missing = missing_rights(host, &SWITCH_RIGHTS).await.into_iter();
    let errors = missing
        .map(|right| format!("Flotilla may not {right} in the host: give its role this right"));
    report.errors.extend(errors);
}

fn object_key(object: &Value) -> (String, String) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    (text("namespace").to_owned(), text("name").to_owned())
}

/// Adds an object that is refused; the last line counts those beyond the first ones.
fn report_error(
    report: &mut TakeoverReport,
    resource: &ResourceInfo,
    namespace: &str,
    name: &str,
    status: &Status,
) {
    if report.errors.len() < MAX_ERRORS {
        let gvr = &resource.kind.gvr;
        let key = [namespace, name].join("/");
        let key = key.trim_start_matches('/');
        report
            .errors
            .push(format!("{gvr} {key:?}: {}", status.message));
    } else if report.errors.len() == MAX_ERRORS {
        report.errors.push("and more".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use client_fake::FakeApi;
    use machinery::Gvr;
    use serde_json::json;

    use super::*;

    // proves: TKO-rights
    #[tokio::test]
    async fn a_right_that_the_switch_lacks_is_an_error_of_the_check() {
        let fake = FakeApi::new();
        let reviews = Gvr::from_static("authorization.k8s.io", "v1", "selfsubjectaccessreviews");
        fake.respond_to_create(&reviews, |mut review| {
            let access = &review["spec"]["resourceAttributes"];
            let is_allowed = access["resource"] == OWN_WEBHOOKS || access["verb"] == "get";
            review["status"] = json!({"allowed": is_allowed});
            review
        });
        let mut report = TakeoverReport::default();
        report_missing_rights(&*fake, &mut report).await;
        let expected = ["create", "patch"].map(|verb| {
            format!(
                "Flotilla may not {verb} apiservices.apiregistration.k8s.io in the host: give \
                 its role this right"
            )
        });
        assert_eq!(report.errors, expected);
    }
}

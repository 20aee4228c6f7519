//! Tests of the registry over an in-memory store, through its public functions.

mod controller_writes;
mod conversion_webhooks;
mod create;
mod custom_resources;
mod delete;
mod differential;
mod import;
mod karmada;
mod quotas;
mod read;
mod shared_store;
mod strategies;
mod update;

use std::sync::Arc;

use client::{DeleteOptions, ListOptions, Patch, ResourcePath};
use machinery::time::FakeClock;
use machinery::{Gvr, Object, Status};
use serde_json::{Value, json};
use storage::{EmbeddedStore, Store};
use watchcache::{WatchCacheConfig, WatchCaches};

use crate::{
    DeleteResponse, DeleteResult, FieldValidation, GetOptions, ObjectBody, ObjectListPage,
    Registry, RegistryOptions, RegistryWriteOptions, RequestContext, WriteResult,
};

pub(super) static CONFIGMAPS: Gvr = Gvr::from_static("", "v1", "configmaps");
pub(super) static SECRETS: Gvr = Gvr::from_static("", "v1", "secrets");
pub(super) static SERVICES: Gvr = Gvr::from_static("", "v1", "services");
pub(super) static NAMESPACES: Gvr = Gvr::from_static("", "v1", "namespaces");
pub(super) static PODS: Gvr = Gvr::from_static("", "v1", "pods");
pub(super) static DEPLOYMENTS: Gvr = Gvr::from_static("apps", "v1", "deployments");
pub(super) static LEASES: Gvr = Gvr::from_static("coordination.k8s.io", "v1", "leases");
pub(super) static CRDS: Gvr =
    Gvr::from_static("apiextensions.k8s.io", "v1", "customresourcedefinitions");

/// A registry with its bootstrap objects, and shorthands for the verbs.
pub(super) struct RegistryFixture {
    pub(super) registry: Arc<Registry>,
    pub(super) ctx: RequestContext,
}

pub(super) async fn fixture() -> RegistryFixture {
    fixture_with_admission(admission::AdmissionChainOptions::default()).await
}

pub(super) async fn fixture_with_admission(
    admission: admission::AdmissionChainOptions,
) -> RegistryFixture {
    let store =
        Arc::new(EmbeddedStore::in_memory(storage::EmbeddedStoreOptions::default()).unwrap());
    let fixture = fixture_on(store, WatchCacheConfig::default(), admission);
    fixture.registry.bootstrap().await.unwrap();
    fixture
}

/// A registry over a store, which has or gets the bootstrap objects from elsewhere.
pub(super) fn fixture_on(
    store: Arc<dyn Store>,
    caches: WatchCacheConfig,
    admission: admission::AdmissionChainOptions,
) -> RegistryFixture {
    let watch_caches = WatchCaches::new(store.clone(), caches);
    let chain = Arc::new(admission::AdmissionChain::new(admission));
    let now = "2026-01-02T03:04:05Z".parse().unwrap();
    let options = RegistryOptions {
        clock: Arc::new(FakeClock::new(now)),
        ..RegistryOptions::new(chain)
    };
    RegistryFixture {
        registry: Registry::new(store, watch_caches, options),
        ctx: RequestContext::internal(),
    }
}

pub(super) type ResultWithStatusError<T> = Result<T, Status>;

impl RegistryFixture {
    pub(super) async fn create_with(
        &self,
        gvr: &Gvr,
        body: Value,
        options: &RegistryWriteOptions,
    ) -> ResultWithStatusError<WriteResult> {
        let namespace = body["metadata"]["namespace"]
            .as_str()
            .unwrap_or("")
            .to_owned();
        let path = ResourcePath::collection(gvr, &namespace);
        self.registry
            .create(&self.ctx, path, ObjectBody::from(body), options)
            .await
    }

    pub(super) async fn create(&self, gvr: &Gvr, body: Value) -> ResultWithStatusError<Value> {
        let written = self
            .create_with(gvr, body, &RegistryWriteOptions::default())
            .await?;
        Ok(written.object.value().unwrap())
    }

    pub(super) async fn update(
        &self,
        path: ResourcePath<'_>,
        body: Value,
    ) -> ResultWithStatusError<Value> {
        let options = RegistryWriteOptions::default();
        let written = self
            .registry
            .update(&self.ctx, path, ObjectBody::from(body), &options)
            .await?;
        Ok(written.object.value().unwrap())
    }

    pub(super) async fn patch(
        &self,
        path: ResourcePath<'_>,
        patch: Patch,
    ) -> ResultWithStatusError<Value> {
        let options = RegistryWriteOptions::default();
        let written = self
            .registry
            .patch(&self.ctx, path, patch, &options)
            .await?;
        Ok(written.object.value().unwrap())
    }

    pub(super) async fn merge(
        &self,
        path: ResourcePath<'_>,
        patch: Value,
    ) -> ResultWithStatusError<Value> {
        self.patch(path, Patch::Merge(patch)).await
    }

    pub(super) async fn get(&self, path: ResourcePath<'_>) -> ResultWithStatusError<Value> {
        let object = self
            .registry
            .get(&self.ctx, path, &GetOptions::default())
            .await?;
        Ok(object.value().unwrap())
    }

    pub(super) async fn delete(
        &self,
        path: ResourcePath<'_>,
    ) -> ResultWithStatusError<DeleteResult> {
        self.registry
            .delete(&self.ctx, path, &DeleteOptions::default())
            .await
    }

    pub(super) async fn list(
        &self,
        path: ResourcePath<'_>,
        options: &ListOptions,
    ) -> ResultWithStatusError<ObjectListPage> {
        self.registry.list(&self.ctx, path, options).await
    }

    pub(super) async fn revision(&self) -> u64 {
        self.registry.store.revision().await.unwrap()
    }
}

/// `code reason` of an error, or `ok`.
pub(super) fn result_code<T>(reply: &ResultWithStatusError<T>) -> String {
    match reply {
        Ok(_) => "ok".into(),
        Err(status) => format!("{} {}", status.code, status.reason),
    }
}

pub(super) fn strict() -> RegistryWriteOptions {
    RegistryWriteOptions {
        field_validation: FieldValidation::Strict,
        ..RegistryWriteOptions::default()
    }
}

pub(super) fn dry_run() -> RegistryWriteOptions {
    RegistryWriteOptions {
        dry_run: true,
        ..RegistryWriteOptions::default()
    }
}

pub(super) fn configmap(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
           "metadata": {"name": name, "namespace": "default"}, "data": {"a": "1"}})
}

pub(super) fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "nginx"}]}}}})
}

pub(super) fn names(reply: &ObjectListPage) -> Vec<String> {
    reply.items.iter().map(|o| o.name().to_owned()).collect()
}

pub(super) fn deleted_object(deleted: DeleteResult) -> Object {
    match deleted.response {
        DeleteResponse::Object { object, .. } => object,
        DeleteResponse::Status(status) => panic!("gone: {status}"),
    }
}

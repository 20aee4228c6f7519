//! Tests of the registry over an in-memory store, through its public functions.

mod create;
mod custom;
mod delete;
mod differential;
mod karmada;
mod modify;
mod quotas;
mod read;
mod shared;
mod special;

use std::sync::Arc;

use client::{At, DeleteOptions, ListOptions, Patch};
use machinery::time::FakeClock;
use machinery::{Gvr, Object, Status};
use serde_json::{Value, json};
use storage::Embedded;
use watchcache::{Config, Hub};

use crate::{
    Body, Ctx, Deleted, FieldValidation, GetOptions, ListReply, Options, Registry, WriteOptions,
    Written,
};

pub(super) static CONFIGMAPS: Gvr = Gvr::constant("", "v1", "configmaps");
pub(super) static SECRETS: Gvr = Gvr::constant("", "v1", "secrets");
pub(super) static SERVICES: Gvr = Gvr::constant("", "v1", "services");
pub(super) static NAMESPACES: Gvr = Gvr::constant("", "v1", "namespaces");
pub(super) static PODS: Gvr = Gvr::constant("", "v1", "pods");
pub(super) static DEPLOYMENTS: Gvr = Gvr::constant("apps", "v1", "deployments");
pub(super) static LEASES: Gvr = Gvr::constant("coordination.k8s.io", "v1", "leases");
pub(super) static CRDS: Gvr =
    Gvr::constant("apiextensions.k8s.io", "v1", "customresourcedefinitions");

/// A registry with its bootstrap objects, and shorthands for the verbs.
pub(super) struct Lab {
    pub(super) registry: Arc<Registry>,
    pub(super) ctx: Ctx,
}

pub(super) async fn fixture() -> Lab {
    fixture_with_admission(admission::Options::default()).await
}

pub(super) async fn fixture_with_admission(admission: admission::Options) -> Lab {
    let store = Arc::new(Embedded::memory(storage::Options::default()).unwrap());
    let hub = Hub::new(store.clone(), Config::default());
    let chain = Arc::new(admission::Chain::new(admission));
    let now = "2026-01-02T03:04:05Z".parse().unwrap();
    let options = Options {
        clock: Arc::new(FakeClock::new(now)),
        ..Options::new(chain)
    };
    let registry = Registry::new(store, hub, options);
    registry.bootstrap().await.unwrap();
    Lab {
        registry,
        ctx: Ctx::internal(),
    }
}

pub(super) type Reply<T> = Result<T, Status>;

impl Lab {
    pub(super) async fn create_with(
        &self,
        gvr: &Gvr,
        body: Value,
        options: &WriteOptions,
    ) -> Reply<Written> {
        let namespace = body["metadata"]["namespace"]
            .as_str()
            .unwrap_or("")
            .to_owned();
        let at = At::all(gvr, &namespace);
        self.registry
            .create(&self.ctx, at, Body::from(body), options)
            .await
    }

    pub(super) async fn create(&self, gvr: &Gvr, body: Value) -> Reply<Value> {
        let written = self
            .create_with(gvr, body, &WriteOptions::default())
            .await?;
        Ok(written.object.value().unwrap())
    }

    pub(super) async fn update(&self, at: At<'_>, body: Value) -> Reply<Value> {
        let options = WriteOptions::default();
        let written = self
            .registry
            .update(&self.ctx, at, Body::from(body), &options)
            .await?;
        Ok(written.object.value().unwrap())
    }

    pub(super) async fn patch(&self, at: At<'_>, patch: Patch) -> Reply<Value> {
        let options = WriteOptions::default();
        let written = self.registry.patch(&self.ctx, at, patch, &options).await?;
        Ok(written.object.value().unwrap())
    }

    pub(super) async fn merge(&self, at: At<'_>, patch: Value) -> Reply<Value> {
        self.patch(at, Patch::Merge(patch)).await
    }

    pub(super) async fn get(&self, at: At<'_>) -> Reply<Value> {
        let object = self
            .registry
            .get(&self.ctx, at, &GetOptions::default())
            .await?;
        Ok(object.value().unwrap())
    }

    pub(super) async fn delete(&self, at: At<'_>) -> Reply<Deleted> {
        self.registry
            .delete(&self.ctx, at, &DeleteOptions::default())
            .await
    }

    pub(super) async fn list(&self, at: At<'_>, options: &ListOptions) -> Reply<ListReply> {
        self.registry.list(&self.ctx, at, options).await
    }

    pub(super) async fn revision(&self) -> u64 {
        self.list(At::all(&NAMESPACES, ""), &ListOptions::default())
            .await
            .unwrap()
            .revision
    }
}

/// `code reason` of an error, or `ok`.
pub(super) fn result_code<T>(reply: &Reply<T>) -> String {
    match reply {
        Ok(_) => "ok".into(),
        Err(status) => format!("{} {}", status.code, status.reason),
    }
}

pub(super) fn strict() -> WriteOptions {
    WriteOptions {
        field_validation: FieldValidation::Strict,
        ..WriteOptions::default()
    }
}

pub(super) fn dry_run() -> WriteOptions {
    WriteOptions {
        dry_run: true,
        ..WriteOptions::default()
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

pub(super) fn names(reply: &ListReply) -> Vec<String> {
    reply.items.iter().map(|o| o.name().to_owned()).collect()
}

pub(super) fn object(deleted: Deleted) -> Object {
    match deleted {
        Deleted::Object { object, .. } => object,
        Deleted::Gone(status) => panic!("gone: {status}"),
    }
}

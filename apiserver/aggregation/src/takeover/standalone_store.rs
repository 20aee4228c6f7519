//! Makes the store of a standalone Flotilla from the objects of another API server: in memory,
//! while no server uses it, and written as a backup that `flotilla restore` reads.
//!
//! objects ──► [`StandaloneStore::import`] ──► store in memory ──[`StandaloneStore::write`]──► file
//!
//! No controller and no admission runs, and nothing is created that was not imported.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use admission::{AdmissionChain, AdmissionChainOptions};
use anyhow::{Context, ensure};
use client::ResourcePath;
use futures_util::{StreamExt, stream};
use machinery::Gvr;
use machinery::time::SystemClock;
use registry::{
    GetOptions, ImportOptions, Registry, RegistryOptions, RequestContext, ResourceInfo,
};
use serde_json::Value;
use storage::backup::{self, BackupSource, BackupStream};
use storage::{EmbeddedStore, EmbeddedStoreOptions, Store};
use watchcache::{WatchCacheConfig, WatchCaches};

use super::record::MovedResource;

/// The objects that are stored at once: the store commits them together.
const CONCURRENT_IMPORTS: usize = 64;

/// A store in memory with a registry over it.
pub struct StandaloneStore {
    store: Arc<EmbeddedStore>,
    registry: Arc<Registry>,
    options: ImportOptions,
}

impl StandaloneStore {
    /// An empty store. It keeps all of its history: the backup is read at the last revision.
    pub fn new(drops_unknown_fields: bool) -> anyhow::Result<Self> {
        let store = Arc::new(EmbeddedStore::in_memory(EmbeddedStoreOptions {
            history_retention: None,
            ..EmbeddedStoreOptions::default()
        })?);
        let shared: Arc<dyn Store> = Arc::clone(&store) as _;
        let caches = WatchCaches::new(Arc::clone(&shared), WatchCacheConfig::default());
        let chain = Arc::new(AdmissionChain::new(AdmissionChainOptions::default()));
        let registry = Registry::new(shared, caches, RegistryOptions::new(chain));
        Ok(Self {
            store,
            registry,
            options: ImportOptions {
                dry_run: false,
                drops_unknown_fields,
            },
        })
    }

    /// A built-in resource in the version in which it is stored.
    pub fn built_in(&self, group: &str, resource: &str) -> Option<MovedResource> {
        let all = self.registry.importable_resources();
        let mut matching = all.iter().filter(|info| {
            let gvr = &info.kind.gvr;
            *gvr.group == *group && *gvr.resource == *resource
        });
        matching.next().map(|info| moved_resource(info))
    }

    /// A resource that a definition serves in this version.
    pub fn custom(&self, resource: &Gvr) -> Option<MovedResource> {
        let info = self.registry.table().find(resource)?;
        info.custom.then(|| moved_resource(&info))
    }

    /// Serves the custom resources of the definitions that were imported.
    pub async fn serve_definitions(&self) -> anyhow::Result<()> {
        let synced = self.registry.sync_crds().await;
        synced.context("the imported definitions")
    }

    /// Stores objects of a resource as they are. Returns the reasons of those that are refused.
    pub async fn import(
        &self,
        resource: &Gvr,
        objects: impl IntoIterator<Item = Value>,
    ) -> anyhow::Result<Vec<String>> {
        let info = self.registry.table().find(resource);
        let info = &*info.with_context(|| format!("{resource} is not served"))?;
        let imports = objects.into_iter().map(|object| async move {
            let meta = &object["metadata"];
            let text = |field: &str| meta[field].as_str().unwrap_or_default();
            let key = [text("namespace"), text("name")].join("/");
            let key = key.trim_start_matches('/').to_owned();
            let imported = self.registry.import_object(info, object, self.options);
            let refusal = imported.await.err()?;
            Some(format!("{resource} {key:?}: {}", refusal.message))
        });
        let refusals = stream::iter(imports).buffer_unordered(CONCURRENT_IMPORTS);
        let mut refusals: Vec<String> =
            refusals.filter_map(async |refusal| refusal).collect().await;
        refusals.sort();
        Ok(refusals)
    }

    /// A stored object with its managers.
    pub async fn get(&self, resource: &Gvr, namespace: &str, name: &str) -> anyhow::Result<Value> {
        let at = ResourcePath::object(resource, namespace, name);
        let (context, options) = (RequestContext::internal(), GetOptions::default());
        let object = self.registry.get(&context, at, &options).await?;
        Ok(object.served_value()?)
    }

    /// Fails if a store cannot be written to this file, or would replace one that is none.
    pub fn check_target(file: &Path) -> anyhow::Result<()> {
        let name = file.display();
        if file.exists() {
            let verified = backup::verify(file);
            verified.with_context(|| format!("{name} exists and is no store"))?;
        }
        let partial = partial_file(file);
        let created = create_partial(&partial).and_then(|_| fs::remove_file(&partial));
        created.with_context(|| format!("{name} cannot be written"))
    }

    /// Writes the store as a backup for its owner alone, and verifies that it has this number of
    /// objects. After a failure the file is as it was.
    pub async fn write(&self, file: &Path, objects: usize) -> anyhow::Result<()> {
        let partial = partial_file(file);
        let written = match self.write_verified(&partial, objects).await {
            Ok(()) => install(&partial, file).map_err(anyhow::Error::from),
            Err(error) => Err(error),
        };
        if written.is_err() {
            // It has Secrets, and the disk may be full. The first error is the one that counts.
            let _ = remove_if_present(&partial);
        }
        written.with_context(|| format!("the store {}", file.display()))
    }

    async fn write_verified(&self, partial: &Path, objects: usize) -> anyhow::Result<()> {
        self.write_partial(partial).await?;
        let verified = partial.to_owned();
        let summary = tokio::task::spawn_blocking(move || backup::verify(&verified)).await?;
        let keys = summary?.keys;
        ensure!(
            usize::try_from(keys) == Ok(objects),
            "it has {keys} objects instead of {objects}"
        );
        Ok(())
    }

    async fn write_partial(&self, partial: &Path) -> anyhow::Result<()> {
        let mut opened = create_partial(partial)?;
        let source: Arc<dyn BackupSource> = Arc::clone(&self.store) as _;
        let mut stream = BackupStream::begin(source, &SystemClock).await?;
        while let Some(chunk) = stream.next_chunk().await {
            opened.write_all(&chunk)?;
        }
        Ok(opened.sync_all()?)
    }
}

fn moved_resource(info: &ResourceInfo) -> MovedResource {
    let gvr = &info.kind.gvr;
    MovedResource {
        group: gvr.group.to_string(),
        version: gvr.version.to_string(),
        resource: gvr.resource.to_string(),
        kind: info.kind.gvk.kind.to_string(),
        namespaced: info.kind.namespaced,
        objects: 0,
    }
}

/// The file that is written before it gets its name.
fn partial_file(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// Creates the file anew for its owner alone.
fn create_partial(partial: &Path) -> io::Result<File> {
    remove_if_present(partial)?;
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(0o600);
    options.open(partial)
}

fn remove_if_present(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn install(partial: &Path, file: &Path) -> io::Result<()> {
    fs::rename(partial, file)?;
    let directory = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    static DEFINITIONS: Gvr =
        Gvr::from_static("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    static WIDGETS: Gvr = Gvr::from_static("example.com", "v1", "widgets");

    fn identity(name: &str) -> Value {
        json!({"name": name, "uid": format!("uid-of-{name}"), "generation": 3,
            "creationTimestamp": "2020-01-02T03:04:05Z"})
    }

    fn definition() -> Value {
        let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget",
            "listKind": "WidgetList"});
        let version = |name: &str, is_stored: bool| {
            json!({"name": name, "served": true, "storage": is_stored, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
        };
        let condition = |kind: &str| {
            json!({"type": kind, "status": "True", "reason": "r", "message": "m",
                "lastTransitionTime": "2020-01-02T03:04:05Z"})
        };
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": identity("widgets.example.com"),
            "spec": {"group": "example.com", "scope": "Cluster", "names": names,
                "conversion": {"strategy": "None"},
                "versions": [version("v1", true), version("v1beta1", false)]},
            "status": {"acceptedNames": names, "storedVersions": ["v1"],
                "conditions": [condition("NamesAccepted"), condition("Established")]}})
    }

    // proves: TKS-identity, TKS-definitions, TKS-refused
    #[tokio::test]
    async fn a_store_has_the_imported_objects_as_they_are_and_no_others() {
        let store = StandaloneStore::new(false).unwrap();
        assert_eq!(store.built_in("apps", "deployments").unwrap().version, "v1");
        assert!(store.built_in("", "componentstatuses").is_none());
        assert!(store.custom(&WIDGETS).is_none());
        let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget",
            "metadata": identity("w"), "spec": {"size": 1}});
        assert!(store.import(&WIDGETS, [widget.clone()]).await.is_err());
        let refusals = store.import(&DEFINITIONS, [definition()]).await.unwrap();
        assert_eq!(refusals, [""; 0]);
        store.serve_definitions().await.unwrap();
        assert_eq!(store.custom(&WIDGETS).unwrap().kind, "Widget");
        let nameless = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {}});
        let refusals = store.import(&WIDGETS, [widget.clone(), nameless]).await;
        let refusals = refusals.unwrap();
        assert_eq!(refusals.len(), 1);
        assert!(refusals[0].contains("metadata.name"), "{refusals:?}");
        let mut stored = store.get(&WIDGETS, "", "w").await.unwrap();
        stored["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("resourceVersion");
        assert_eq!(stored, widget);

        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("store");
        let error = store.write(&file, 3).await.unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains("2 objects instead of 3"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        store.write(&file, 2).await.unwrap();
        assert_eq!(backup::verify(&file).unwrap().keys, 2);
        StandaloneStore::check_target(&file).unwrap();
        let other = dir.path().join("other");
        fs::write(&other, "text").unwrap();
        for (target, part) in [
            (other, "other exists and is no store"),
            (dir.path().to_owned(), "exists and is no store"),
            (dir.path().join("missing/store"), "cannot be written"),
        ] {
            let error = StandaloneStore::check_target(&target).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}

//! Builds and keeps the OpenAPI v3 documents of all group versions.
//!
//! The index names a digest of each document. For a group version of built-in kinds, which never
//! change, it is the digest of the document's text. Custom resources come and go, so a group
//! version of custom resources has a digest of the digests of its resources: a changed definition
//! costs the reading of one schema, and the document is built when a client requests it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use machinery::Status;
use openapi::publish::{self, PublishedResource};
use registry::{GroupVersionInfo, ResourceInfo, ResourceTable};
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::compressed_document::{CompressedDocument, hex_digest, run_blocking};

/// The documents of one resource table.
pub(crate) struct OpenApiV3Documents {
    index: Value,
    /// By `api/v1` or `apis/GROUP/VERSION`.
    group_versions: BTreeMap<String, Arc<GroupVersionDocument>>,
}

/// The document of one group version.
pub(crate) struct GroupVersionDocument {
    resources: Vec<DigestedResource>,
    etag: String,
    document: OnceCell<CompressedDocument>,
}

#[derive(Clone)]
struct DigestedResource {
    resource: Arc<ResourceInfo>,
    /// The digest of the document that the resource alone would have; empty for built-in kinds.
    digest: String,
}

impl OpenApiV3Documents {
    /// The documents of a table. They share with the documents of an earlier table what did not
    /// change.
    pub(crate) fn new(table: &ResourceTable, before: Option<&Self>) -> Self {
        let mut group_versions = BTreeMap::new();
        for group in table.groups() {
            // Dynamic groups have no schemas.
            let described = group.versions.iter().filter(|v| !v.resources.is_empty());
            for version in described {
                let path = match &*group.name {
                    "" => format!("api/{}", version.version),
                    name => format!("apis/{name}/{}", version.version),
                };
                let existing = before.and_then(|before| before.group_versions.get(&path));
                let document = match existing.filter(|existing| existing.describes(version)) {
                    Some(existing) => Arc::clone(existing),
                    None => Arc::new(GroupVersionDocument::new(version, existing)),
                };
                group_versions.insert(path, document);
            }
        }
        let hashes = group_versions.iter();
        let hashes: Vec<(String, String)> = hashes
            .map(|(path, document)| (path.clone(), document.etag.clone()))
            .collect();
        Self {
            index: publish::v3_index(&hashes),
            group_versions,
        }
    }

    /// The document of `/openapi/v3`.
    pub(crate) fn index(&self) -> &Value {
        &self.index
    }

    /// The document of a group version, by its path.
    pub(crate) fn find(&self, path: &str) -> Option<&Arc<GroupVersionDocument>> {
        self.group_versions.get(path)
    }
}

impl GroupVersionDocument {
    fn new(version: &GroupVersionInfo, before: Option<&Arc<Self>>) -> Self {
        let has_custom = version.resources.iter().any(|r| r.custom);
        if !has_custom {
            let document = CompressedDocument::new(text(&version.resources).as_bytes());
            let resources = version.resources.iter();
            return Self {
                resources: resources
                    .map(|resource| DigestedResource {
                        resource: Arc::clone(resource),
                        digest: String::new(),
                    })
                    .collect(),
                etag: document.etag.clone(),
                document: OnceCell::new_with(Some(document)),
            };
        }
        let existing = before.into_iter().flat_map(|before| &before.resources);
        let existing: HashMap<*const ResourceInfo, &DigestedResource> = existing
            .filter(|existing| !existing.digest.is_empty())
            .map(|existing| (Arc::as_ptr(&existing.resource), existing))
            .collect();
        let digested = |resource: &Arc<ResourceInfo>| match existing.get(&Arc::as_ptr(resource)) {
            Some(existing) => (*existing).clone(),
            None => DigestedResource {
                resource: Arc::clone(resource),
                digest: hex_digest(text(std::slice::from_ref(resource)).as_bytes()),
            },
        };
        let resources: Vec<DigestedResource> = version.resources.iter().map(digested).collect();
        let digests: String = resources.iter().map(|r| r.digest.as_str()).collect();
        Self {
            resources,
            etag: hex_digest(digests.as_bytes()),
            document: OnceCell::new(),
        }
    }

    /// Whether this is the document of the resources of a group version.
    fn describes(&self, version: &GroupVersionInfo) -> bool {
        let documented = self.resources.iter().map(|documented| &documented.resource);
        documented.len() == version.resources.len()
            && documented
                .zip(&version.resources)
                .all(|(documented, other)| Arc::ptr_eq(documented, other))
    }

    /// The document, which is built on the first request.
    pub(crate) async fn compressed(self: &Arc<Self>) -> Result<&CompressedDocument, Status> {
        self.document
            .get_or_try_init(|| {
                let group_version = Arc::clone(self);
                run_blocking(move || {
                    let resources = group_version.resources.iter().map(|r| &r.resource);
                    let resources: Vec<Arc<ResourceInfo>> = resources.cloned().collect();
                    let etag = group_version.etag.clone();
                    CompressedDocument::with_etag(text(&resources).as_bytes(), etag)
                })
            })
            .await
    }
}

/// The text of the document of some resources.
fn text(resources: &[Arc<ResourceInfo>]) -> String {
    let published = resources.iter().map(|resource| PublishedResource {
        kind: &resource.kind,
        schema: &resource.schema,
    });
    let published: Vec<PublishedResource<'_>> = published.collect();
    publish::v3_document(&published).to_string()
}

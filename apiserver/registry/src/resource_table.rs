//! The resource table: one entry for each version of each served kind, from which
//! discovery, routing, storage keys, validation and printing derive.
//!
//! Entries come from the catalog and from CRDs. A [`ResourceTable`] is immutable and
//! replaced when its entries change.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;

use karmada_api::resources::DECISION_SUBRESOURCE;
use kubernetes_cel::RuleValidator;
use machinery::{Gvk, Gvr, Object, Status};
use openapi::{KindInfo, Schema};
use tokio::sync::watch;
use watchcache::{Cacher, WatchCaches};

use crate::conversion::VersionConversion;
use crate::custom_resources::{CustomResourceConverter, VersionedStore};
use crate::metrics::ResourceStoreMetrics;
use crate::selectable_fields::{self, SelectableField};
use crate::strategy::{self, RestStrategy};

/// 500 for an object that cannot be decoded, with its name.
pub fn decode_failure(kind: &KindInfo, object: &Object, message: impl Display) -> Status {
    let (resource, key) = (kind.gvr.group_resource(), object.meta().key());
    Status::internal(format_args!("unable to read {resource} {key:?}: {message}"))
}

/// A subresource of a kind.
#[derive(Clone, Debug)]
pub struct SubresourceInfo {
    pub name: &'static str,
    /// The kind of the response to a GET, or of the body of a POST.
    pub kind: Gvk,
    pub verbs: &'static [&'static str],
}

/// How a kind is stored. The versions of a built-in kind share it; a version of a custom
/// resource has its own, in which nothing above the store converts.
pub(crate) struct ResourceStorage {
    pub(crate) kind: Arc<KindInfo>,
    pub(crate) schema: Schema,
    pub(crate) cache: Arc<Cacher>,
    pub(crate) strategy: &'static RestStrategy,
    pub(crate) metrics: ResourceStoreMetrics,
    /// The store that converts custom resources, if any may be stored in another form.
    pub(crate) versioned_store: Option<Arc<VersionedStore>>,
    /// Converts custom resources between the versions of their definition.
    pub(crate) converter: Option<Arc<CustomResourceConverter>>,
}

/// One served resource in one version.
pub struct ResourceInfo {
    pub kind: Arc<KindInfo>,
    pub schema: Schema,
    /// Whether it comes from a CustomResourceDefinition.
    pub custom: bool,
    pub verbs: Vec<String>,
    pub subresources: Vec<SubresourceInfo>,
    pub(crate) storage: Arc<ResourceStorage>,
    pub(crate) conversion: VersionConversion,
    pub(crate) selectable_fields: Vec<SelectableField>,
    /// The compiled rules (`x-kubernetes-validations`) of a custom resource's schema.
    pub(crate) rules: Option<RuleValidator>,
    /// Closed when the definition of a custom resource changes or is deleted, which ends
    /// the watches of this resource.
    pub(crate) definition_watch: Option<watch::Receiver<()>>,
    /// The warning of every response, if this version of a custom resource is deprecated.
    pub deprecation_warning: Option<String>,
}

const READ_WRITE_VERBS: &[&str] = &["get", "patch", "update"];
const CREATE_VERBS: &[&str] = &["create"];
const JSON_PATCH_TYPE: &str = "application/json-patch+json";
const MERGE_PATCH_TYPE: &str = "application/merge-patch+json";
const STRATEGIC_MERGE_PATCH_TYPE: &str = "application/strategic-merge-patch+json";
const APPLY_PATCH_TYPE: &str = "application/apply-patch+yaml";

impl ResourceInfo {
    /// The number of stored objects; `None` when it is unknown.
    pub fn object_count(&self) -> Option<usize> {
        self.storage.cache.len()
    }

    /// Whether the resource itself supports a verb.
    pub fn supports_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }

    /// A subresource by name.
    pub fn subresource(&self, name: &str) -> Option<&SubresourceInfo> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// The content types that a PATCH may have.
    pub fn patch_types(&self) -> &'static [&'static str] {
        if self.kind.strategic_merge_patch {
            &[
                JSON_PATCH_TYPE,
                MERGE_PATCH_TYPE,
                STRATEGIC_MERGE_PATCH_TYPE,
                APPLY_PATCH_TYPE,
            ]
        } else {
            &[JSON_PATCH_TYPE, MERGE_PATCH_TYPE, APPLY_PATCH_TYPE]
        }
    }

    /// Whether API servers hold the kind as a Go struct. Others are custom resources for
    /// clients, also the kinds that Karmada installs as CRDs.
    pub fn has_go_type(&self) -> bool {
        !self.custom && openapi::defaults::has_go_type(&self.kind)
    }

    /// The Go package in which Kubernetes has the kind, as its errors name it.
    pub fn go_package(&self) -> &str {
        match self.kind.gvk.group.split('.').next() {
            None | Some("" | "events") => "core",
            Some(first) => first,
        }
    }

    /// The kind in the version in which it is stored.
    pub fn storage_kind(&self) -> &Gvk {
        &self.storage.kind.gvk
    }

    /// Whether only a create handler serves it; nothing is stored.
    pub fn is_virtual(&self) -> bool {
        self.verbs.len() == 1 && self.supports_verb("create")
    }

    /// See [`decode_failure`].
    pub(crate) fn decode_failure(&self, object: &Object, message: impl Display) -> Status {
        decode_failure(&self.kind, object, message)
    }

    pub(crate) fn built_in(kind: &Arc<KindInfo>, storage: Arc<ResourceStorage>) -> Self {
        let gvr = &kind.gvr;
        Self {
            conversion: VersionConversion::for_built_in(&kind.gvk, &storage.kind.gvk),
            schema: openapi::catalog().schema(kind),
            custom: false,
            verbs: kind.verbs.clone(),
            subresources: subresources(kind),
            selectable_fields: selectable_fields::built_in_fields(&gvr.group, &gvr.resource),
            rules: None,
            definition_watch: None,
            deprecation_warning: kind.deprecation_warning.clone(),
            kind: Arc::clone(kind),
            storage,
        }
    }
}

impl std::fmt::Debug for ResourceInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ResourceInfo({})", self.kind.gvr)
    }
}

/// The subresources of a kind.
pub(crate) fn subresources(kind: &KindInfo) -> Vec<SubresourceInfo> {
    let subresource = |name, verbs| SubresourceInfo {
        name,
        kind: kind.gvk.clone(),
        verbs,
    };
    let other = |name, kind| SubresourceInfo {
        name,
        kind,
        verbs: CREATE_VERBS,
    };
    let mut all = Vec::new();
    match (&*kind.gvr.group, &*kind.gvr.resource) {
        ("", "namespaces") => all.push(subresource("finalize", &["update"])),
        ("certificates.k8s.io", "certificatesigningrequests") => {
            all.push(subresource("approval", READ_WRITE_VERBS));
        }
        ("", "pods") => {
            all.push(other("binding", Gvk::from_static("", "v1", "Binding")));
            all.push(other(
                "eviction",
                Gvk::from_static("policy", "v1", "Eviction"),
            ));
        }
        ("", "serviceaccounts") => all.push(other(
            "token",
            Gvk::from_static("authentication.k8s.io", "v1", "TokenRequest"),
        )),
        ("cluster.karmada.io", "clusters") => {
            all.push(SubresourceInfo {
                name: "proxy",
                kind: Gvk::from_static("cluster.karmada.io", "v1alpha1", "ClusterProxyOptions"),
                verbs: &["create", "delete", "get", "patch", "update"],
            });
        }
        ("search.karmada.io", "proxying") => {
            all.push(subresource(
                "proxy",
                &["create", "delete", "get", "patch", "update"],
            ));
        }
        ("work.karmada.io", "resourcebindings" | "clusterresourcebindings")
            if &*kind.gvr.version == "v1alpha2" =>
        {
            all.push(SubresourceInfo {
                name: DECISION_SUBRESOURCE,
                kind: Gvk::from_static("work.karmada.io", "v1alpha2", "Decision"),
                verbs: &["get"],
            });
        }
        _ => {}
    }
    if kind.scale.is_some() {
        all.push(SubresourceInfo {
            name: "scale",
            kind: Gvk::from_static("autoscaling", "v1", "Scale"),
            verbs: READ_WRITE_VERBS,
        });
    }
    if kind.status {
        all.push(subresource("status", READ_WRITE_VERBS));
    }
    all
}

/// One group of the discovery documents.
pub struct ApiGroupInfo {
    /// Empty: the core group.
    pub name: String,
    /// The preferred version first.
    pub versions: Vec<GroupVersionInfo>,
}

/// One version of a group.
pub struct GroupVersionInfo {
    pub version: String,
    pub resources: Vec<Arc<ResourceInfo>>,
}

/// A group whose resources are not in the table: they come and go without a definition, as the
/// names of metrics do.
#[derive(Clone, Copy, Debug)]
pub struct DynamicApiGroup {
    pub name: &'static str,
    /// The preferred version first.
    pub versions: &'static [&'static str],
    pub scope: DynamicResourceScope,
}

/// The scope of the resources of a dynamic group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DynamicResourceScope {
    /// All are in namespaces.
    Namespace,
    /// The verbs of the resource of the same name, `RESOURCE` or `RESOURCE.GROUP`, which they describe.
    DescribedResource,
}

impl DynamicApiGroup {
    fn to_group_info(self) -> ApiGroupInfo {
        let version = |version: &&str| GroupVersionInfo {
            version: (*version).to_owned(),
            resources: Vec::new(),
        };
        ApiGroupInfo {
            name: self.name.to_owned(),
            versions: self.versions.iter().map(version).collect(),
        }
    }
}

/// All resources that are served at one time.
pub struct ResourceTable {
    resources: Vec<Arc<ResourceInfo>>,
    groups: Vec<ApiGroupInfo>,
    dynamic_groups: &'static [DynamicApiGroup],
    index: HashMap<Gvr, usize>,
    generation: u64,
}

impl ResourceTable {
    pub(crate) fn new(
        mut resources: Vec<Arc<ResourceInfo>>,
        dynamic_groups: &'static [DynamicApiGroup],
        generation: u64,
    ) -> Self {
        resources.sort_by_cached_key(|r| {
            let gvr = &r.kind.gvr;
            (
                Reverse(group_priority(&gvr.group)),
                gvr.group.to_string(),
                Reverse(version_priority(&gvr.version)),
                gvr.resource.to_string(),
            )
        });
        let mut groups: Vec<ApiGroupInfo> = Vec::new();
        let mut index = HashMap::with_capacity(resources.len());
        for (i, resource) in resources.iter().enumerate() {
            let gvr = &resource.kind.gvr;
            index.insert(gvr.clone(), i);
            if groups.last().is_none_or(|g| *g.name != *gvr.group) {
                groups.push(ApiGroupInfo {
                    name: gvr.group.to_string(),
                    versions: Vec::new(),
                });
            }
            if let Some(group) = groups.last_mut() {
                if group
                    .versions
                    .last()
                    .is_none_or(|v| *v.version != *gvr.version)
                {
                    group.versions.push(GroupVersionInfo {
                        version: gvr.version.to_string(),
                        resources: Vec::new(),
                    });
                }
                if let Some(version) = group.versions.last_mut() {
                    version.resources.push(Arc::clone(resource));
                }
            }
        }
        groups.extend(dynamic_groups.iter().map(|group| group.to_group_info()));
        groups
            .sort_by_cached_key(|group| (Reverse(group_priority(&group.name)), group.name.clone()));
        Self {
            resources,
            groups,
            dynamic_groups,
            index,
            generation,
        }
    }

    /// A resource by group, version and plural name.
    pub fn find_by_name(
        &self,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Option<Arc<ResourceInfo>> {
        self.find(&Gvr::new(group, version, plural))
    }

    /// A resource by GVR.
    pub fn find(&self, gvr: &Gvr) -> Option<Arc<ResourceInfo>> {
        self.index.get(gvr).map(|i| Arc::clone(&self.resources[*i]))
    }

    /// All resources, in the order of discovery.
    pub fn resources(&self) -> &[Arc<ResourceInfo>] {
        &self.resources
    }

    /// The resources by group and version, in the order of discovery. The versions of dynamic
    /// groups have none.
    pub fn groups(&self) -> &[ApiGroupInfo] {
        &self.groups
    }

    /// A group whose resources are not in the table.
    pub fn dynamic_group(&self, name: &str) -> Option<&DynamicApiGroup> {
        self.dynamic_groups.iter().find(|group| group.name == name)
    }

    /// Increases each time the resources change.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

/// The resources of the catalog. Kinds with the same storage prefix share their storage,
/// in the storage version among them.
pub(crate) fn catalog_resources(
    watch_caches: &Arc<WatchCaches>,
    serves: impl Fn(&KindInfo) -> bool,
) -> Vec<Arc<ResourceInfo>> {
    let kinds = openapi::catalog().kinds();
    let kinds = || kinds.iter().filter(|k| serves(k));
    let mut stored: HashMap<&str, Arc<ResourceStorage>> = HashMap::new();
    for kind in kinds().filter(|k| is_storage_version(&k.gvk)) {
        let prefix = kind.storage_prefix.as_str();
        let gvr = &kind.gvr;
        let cache = if gvr.group.is_empty() && gvr.resource == "events" {
            watch_caches.uncached(prefix)
        } else {
            watch_caches.cacher(prefix)
        };
        let entry = Arc::new(ResourceStorage {
            kind: Arc::clone(kind),
            schema: openapi::catalog().schema(kind),
            cache,
            strategy: strategy::built_in_strategy(&gvr.group, &gvr.resource, kind.status),
            metrics: ResourceStoreMetrics::default(),
            versioned_store: None,
            converter: None,
        });
        stored.insert(prefix, entry);
    }
    kinds()
        .filter_map(|kind| {
            let stored = stored.get(kind.storage_prefix.as_str())?;
            Some(Arc::new(ResourceInfo::built_in(kind, Arc::clone(stored))))
        })
        .collect()
}

fn is_storage_version(kind: &Gvk) -> bool {
    !matches!(
        (&*kind.group, &*kind.version, &*kind.kind),
        ("autoscaling", "v1", "HorizontalPodAutoscaler")
            | ("events.k8s.io", _, _)
            | (
                "work.karmada.io",
                "v1alpha1",
                "ResourceBinding" | "ClusterResourceBinding"
            )
    )
}

/// The priority of groups of CRDs.
pub(crate) const DEFAULT_GROUP_PRIORITY: u32 = 1000;

/// Groups with a higher priority come first in discovery
/// (`pkg/controlplane/apiserver/aggregator.go`).
pub(crate) fn group_priority(group: &str) -> u32 {
    match group {
        "apiregistration.k8s.io" => 20000,
        "" => 18000,
        "events.k8s.io" => 17750,
        "authentication.k8s.io" => 17700,
        "authorization.k8s.io" => 17600,
        "autoscaling" => 17500,
        "apps" => 17800,
        "batch" => 17400,
        "certificates.k8s.io" => 17300,
        "networking.k8s.io" => 17200,
        "policy" => 17100,
        "rbac.authorization.k8s.io" => 17000,
        "storage.k8s.io" => 16800,
        "apiextensions.k8s.io" => 16700,
        "admissionregistration.k8s.io" => 16700,
        "scheduling.k8s.io" => 16600,
        "coordination.k8s.io" => 16500,
        "node.k8s.io" => 16300,
        "discovery.k8s.io" => 16200,
        "flowcontrol.apiserver.k8s.io" => 16100,
        // The priorities of the APIServices of metrics-server and metrics adapters; core names the resources
        // pods and nodes too.
        "metrics.k8s.io" | "custom.metrics.k8s.io" | "external.metrics.k8s.io" => 100,
        _ => DEFAULT_GROUP_PRIORITY,
    }
}

/// Versions in Kubernetes' order: v2 > v1 > v1beta2 > v1alpha1 > anything else.
pub fn version_priority(version: &str) -> (u8, u32, u32, Reverse<String>) {
    let other = (0, 0, 0, Reverse(version.to_owned()));
    let Some(rest) = version.strip_prefix('v') else {
        return other;
    };
    let digits = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let Ok(major) = rest[..digits].parse() else {
        return other;
    };
    let tail = &rest[digits..];
    let (stage, minor) = if tail.is_empty() {
        (3, Some(0))
    } else if let Some(minor) = tail.strip_prefix("beta") {
        (2, minor.parse().ok())
    } else if let Some(minor) = tail.strip_prefix("alpha") {
        (1, minor.parse().ok())
    } else {
        (0, None)
    };
    match minor {
        Some(minor) => (stage, major, minor, Reverse(String::new())),
        None => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_in_kubernetes() {
        let mut versions = vec![
            "foo10",
            "v1alpha1",
            "v10",
            "v1beta1",
            "v2",
            "bar",
            "v1",
            "v1beta2",
            "v11alpha2",
        ];
        versions.sort_by_key(|v| Reverse(version_priority(v)));
        assert_eq!(
            versions,
            [
                "v10",
                "v2",
                "v1",
                "v1beta2",
                "v1beta1",
                "v11alpha2",
                "v1alpha1",
                "bar",
                "foo10"
            ]
        );
    }
}

//! Gets, lists and searches over the caches of all members
//! (Karmada: `pkg/search/proxy/store/multi_cluster_cache.go`, `pkg/registry/search/storage`).
//!
//! Everything is answered from the caches. Objects in lists have the resourceVersion of their
//! member, so that lists share their bytes; others have one that names the member.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use machinery::{Gvk, Gvr, Object, Status};
use members::{
    MemberListPage, MemberListRequest, MemberObjectSelection, MemberResourceCache,
    MemberSearchResult, MemberWatchRequest, MemberWatchStream,
};
use watchcache::{CacherList, CacherListRequest, Error, ListRevision, ResourceVersionParams};

use crate::cache_requests::{freshness, member_status, rule_version, selection_predicate};
use crate::continue_token::MultiClusterContinue;
use crate::merged_watch::MergedWatch;
use crate::resource_caches::{MemberCacher, ResourceCaches, SelectedResourceCaches};
use crate::resource_version::{MultiClusterResourceVersion, member_resource_version};

/// Where the caches of a resource are.
pub(crate) enum CacheSource {
    /// The caches that ResourceRegistries select.
    Selected(Arc<SelectedResourceCaches>),
    /// The caches of one resource, whatever the request says.
    Fixed(Arc<ResourceCaches>),
}

/// The caches of the members as one.
pub(crate) struct MultiClusterCache {
    pub(crate) source: CacheSource,
}

/// Where a list begins, and in which versions.
struct ListPosition {
    version: MultiClusterResourceVersion,
    /// Whether the versions are exact.
    exact: bool,
    /// The member of the first item and its continue token.
    start: Option<(String, String)>,
}

impl ListPosition {
    fn parse(request: &MemberListRequest) -> Result<Self, Status> {
        ResourceVersionParams {
            resource_version: rule_version(&request.resource_version),
            resource_version_match: &request.resource_version_match,
            limit: request.limit,
            continue_token: &request.continue_token,
            send_initial_events: None,
        }
        .for_list()?;
        if request.continue_token.is_empty() {
            let exact = match request.resource_version_match.as_str() {
                "Exact" => true,
                "" => request.limit > 0,
                _ => false,
            };
            return Ok(Self {
                version: MultiClusterResourceVersion::parse(&request.resource_version)?,
                exact,
                start: None,
            });
        }
        let token = MultiClusterContinue::decode(&request.continue_token)?;
        Ok(Self {
            version: MultiClusterResourceVersion::parse(&token.resource_version)?,
            exact: false,
            start: Some((token.cluster, token.member_token)),
        })
    }

    fn revision(&self, cluster: &str) -> ListRevision {
        match (&self.start, self.version.revision(cluster)) {
            (Some((start, token)), _) if start == cluster && !token.is_empty() => {
                ListRevision::Continue(token.clone())
            }
            (_, None | Some(0)) => ListRevision::Any,
            (_, Some(revision)) if self.exact => ListRevision::Exact(revision),
            (_, Some(revision)) => ListRevision::AtLeast(revision),
        }
    }

    /// The members from the beginning of the page on. 410 if that member is not cached any more.
    fn members<'a>(
        &self,
        caches: &'a ResourceCaches,
    ) -> Result<Vec<(&'a String, &'a Arc<MemberCacher>)>, Status> {
        let Some((start, _)) = &self.start else {
            return Ok(caches.members.iter().collect());
        };
        if !caches.members.contains_key(start) {
            return Err(Status::expired(format!(
                "The provided continue parameter is too old: cluster {start:?} is not cached any more."
            )));
        }
        Ok(caches.members.range(start.clone()..).collect())
    }
}

/// The result of a list of one member, with a cluster's token replaced by one of all clusters.
async fn list_member(
    cluster: &str,
    member: &MemberCacher,
    request: CacherListRequest,
    version: &MultiClusterResourceVersion,
) -> Result<CacherList, Status> {
    member.cacher.list(request).await.map_err(|error| {
        let mut status = member_status(cluster, &error);
        if let Error::Expired {
            next: Some(next), ..
        } = &error
        {
            let token = MultiClusterContinue {
                resource_version: version.encode(),
                cluster: cluster.to_owned(),
                member_token: next.clone(),
            };
            status.continue_token = Some(token.encode().into());
        }
        status
    })
}

impl MultiClusterCache {
    fn find_caches(&self, resource: &Gvr) -> Option<Arc<ResourceCaches>> {
        match &self.source {
            CacheSource::Selected(caches) => caches.find(resource),
            CacheSource::Fixed(caches) => Some(Arc::clone(caches)),
        }
    }

    fn find(&self, resource: &Gvr) -> Result<Arc<ResourceCaches>, Status> {
        self.find_caches(resource).ok_or_else(|| {
            let resource = resource.group_resource();
            let text = format!("no ResourceRegistry selects {resource}");
            Status::failure(404, "NotFound", text)
        })
    }

    /// The only object of a name, and its member.
    async fn get_with_cluster(
        &self,
        resource: &Gvr,
        namespace: &str,
        name: &str,
        version: &MultiClusterResourceVersion,
    ) -> Result<(String, Object), Status> {
        let caches = self.find(resource)?;
        let key = match namespace {
            "" => name.to_owned(),
            namespace => format!("{namespace}/{name}"),
        };
        let mut matches: Vec<(&str, Object)> = Vec::new();
        for (cluster, member) in &caches.members {
            let object = member.cacher.get(&key, freshness(version, cluster)).await;
            let object = object.map_err(|error| member_status(cluster, &error))?;
            matches.extend(object.map(|object| (cluster.as_str(), object)));
        }
        match matches.as_slice() {
            [] => Err(Status::not_found(resource, name).with_warnings(caches.warnings())),
            [(cluster, object)] => Ok(((*cluster).to_owned(), object.clone())),
            several => {
                let clusters: Vec<&str> = several.iter().map(|(cluster, _)| *cluster).collect();
                let message = format!("ambiguous objects in clusters [{}]", clusters.join(", "));
                Err(Status::conflict(resource, name, message))
            }
        }
    }
}

#[async_trait]
impl MemberResourceCache for MultiClusterCache {
    fn cached_kind(&self, resource: &Gvr) -> Option<Gvk> {
        Some(self.find_caches(resource)?.kind.clone())
    }

    async fn get(
        &self,
        resource: &Gvr,
        namespace: &str,
        name: &str,
        resource_version: &str,
    ) -> Result<Object, Status> {
        let version = MultiClusterResourceVersion::parse(resource_version)?;
        let result = self.get_with_cluster(resource, namespace, name, &version);
        let (cluster, object) = result.await?;
        let version = MultiClusterResourceVersion::of_cluster(&cluster, object.revision());
        let object = object.with_resource_version(&version.encode());
        object.map_err(Status::internal)
    }

    async fn find_cluster(
        &self,
        resource: &Gvr,
        namespace: &str,
        name: &str,
    ) -> Result<String, Status> {
        let any = MultiClusterResourceVersion::Any;
        let result = self.get_with_cluster(resource, namespace, name, &any);
        Ok(result.await?.0)
    }

    async fn list(
        &self,
        resource: &Gvr,
        request: MemberListRequest,
    ) -> Result<MemberListPage, Status> {
        let caches = self.find(resource)?;
        let position = ListPosition::parse(&request)?;
        let filter = selection_predicate(&request.selection);
        let mut version = match position.start {
            Some(_) => position.version.clone(),
            None => MultiClusterResourceVersion::Unset,
        };
        let mut page = MemberListPage {
            warnings: caches.warnings(),
            ..MemberListPage::default()
        };
        // Where the next page begins; the rest of the members are only asked for revisions.
        let mut next: Option<(String, String)> = None;
        for (cluster, member) in position.members(&caches)? {
            let left = request.limit.saturating_sub(page.items.len());
            let is_full = next.is_some() || (request.limit > 0 && left == 0);
            if is_full && next.is_none() {
                next = Some((cluster.clone(), String::new()));
            }
            if is_full && version.revision(cluster).is_some() {
                continue;
            }
            let list = CacherListRequest {
                filter: filter.clone(),
                revision: position.revision(cluster),
                limit: if is_full { 1 } else { left },
            };
            let list = list_member(cluster, member, list, &version).await?;
            version.set(cluster, list.revision);
            if !is_full {
                page.items.extend(list.items);
                next = list.continue_token.map(|token| (cluster.clone(), token));
            }
        }
        page.resource_version = version.encode();
        page.continue_token = next.map(|(cluster, member_token)| {
            let token = MultiClusterContinue {
                resource_version: page.resource_version.clone(),
                cluster,
                member_token,
            };
            token.encode()
        });
        Ok(page)
    }

    async fn watch(
        &self,
        resource: &Gvr,
        request: MemberWatchRequest,
    ) -> Result<MemberWatchStream, Status> {
        let caches = self.find(resource)?;
        Ok(MergedWatch::start(caches, request).await?.into_stream())
    }

    async fn search(
        &self,
        resource: &Gvr,
        selection: MemberObjectSelection,
    ) -> Result<MemberSearchResult, Status> {
        let caches = self.find(resource)?;
        let mut missing: BTreeMap<&str, String> = BTreeMap::new();
        let mut items = Vec::new();
        for (cluster, member) in &caches.members {
            if !member.cacher.ready() {
                missing.insert(cluster, "its objects are not cached yet".to_owned());
                continue;
            }
            let list = CacherListRequest {
                filter: selection_predicate(&selection),
                revision: ListRevision::Any,
                limit: 0,
            };
            match member.cacher.list(list).await {
                Ok(list) => items.extend(list.items),
                Err(error) => {
                    missing.insert(cluster, error.to_string());
                }
            }
        }
        let missing = missing.into_iter();
        let mut warnings = caches.warnings();
        warnings.extend(missing.map(|(cluster, reason)| format!("cluster({cluster}): {reason}")));
        Ok(MemberSearchResult { items, warnings })
    }

    fn member_resource_version(&self, cluster: &str, text: &str) -> Option<String> {
        member_resource_version(cluster, text)
    }
}

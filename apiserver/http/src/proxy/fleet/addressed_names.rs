//! The names and owners of the fleet tree: an object of a member is `NAME@CLUSTER`, which is the address that
//! requests have, and one of the control plane has its name. So tools that keep objects by kind, namespace and
//! name keep all of them. Whatever has no owner in its member has the Cluster for one, so that no tool takes
//! it for one of those that it has created itself, whose marks it may bear.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use karmada_api::resources::CLUSTERS;
use karmada_api::well_known_keys::{CACHED_FROM_CLUSTER, MANAGED, MANAGED_VALUE, TEMPLATE_UID};
use machinery::{Gvk, Gvr, Object, Status};
use members::{
    MemberListPage, MemberListRequest, MemberObjectSelection, MemberResourceCache,
    MemberSearchResult, MemberWatchEvent, MemberWatchRequest, MemberWatchStream,
};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

/// Objects of a list that are renamed before others have a turn.
const OBJECTS_PER_YIELD: usize = 256;

const CLUSTER_KIND: &str = "Cluster";

type RawFields<'a> = BTreeMap<String, &'a RawValue>;

/// A cache of the fleet view whose objects are shown under the names of the tree.
pub(super) struct AddressedNames {
    pub(super) cache: Arc<dyn MemberResourceCache>,
    pub(super) cluster_uids: Arc<BTreeMap<String, String>>,
}

#[async_trait]
impl MemberResourceCache for AddressedNames {
    fn cached_kind(&self, resource: &Gvr) -> Option<Gvk> {
        self.cache.cached_kind(resource)
    }

    async fn get(
        &self,
        resource: &Gvr,
        namespace: &str,
        name: &str,
        resource_version: &str,
    ) -> Result<Object, Status> {
        let object = self.cache.get(resource, namespace, name, resource_version);
        addressed(&object.await?, &self.cluster_uids)
    }

    async fn find_cluster(
        &self,
        resource: &Gvr,
        namespace: &str,
        name: &str,
    ) -> Result<String, Status> {
        self.cache.find_cluster(resource, namespace, name).await
    }

    async fn list(
        &self,
        resource: &Gvr,
        request: MemberListRequest,
    ) -> Result<MemberListPage, Status> {
        let mut page = self.cache.list(resource, request).await?;
        rename_all(&mut page.items, &self.cluster_uids).await?;
        Ok(page)
    }

    async fn watch(
        &self,
        resource: &Gvr,
        request: MemberWatchRequest,
    ) -> Result<MemberWatchStream, Status> {
        let events = self.cache.watch(resource, request).await?;
        let cluster_uids = Arc::clone(&self.cluster_uids);
        let renamed = events.map(move |event| match event? {
            MemberWatchEvent::Object { event_type, object } => Ok(MemberWatchEvent::Object {
                event_type,
                object: addressed(&object, &cluster_uids)?,
            }),
            bookmark @ MemberWatchEvent::Bookmark { .. } => Ok(bookmark),
        });
        Ok(Box::pin(renamed))
    }

    async fn search(
        &self,
        resource: &Gvr,
        selection: MemberObjectSelection,
    ) -> Result<MemberSearchResult, Status> {
        let mut result = self.cache.search(resource, selection).await?;
        rename_all(&mut result.items, &self.cluster_uids).await?;
        Ok(result)
    }

    fn member_resource_version(&self, cluster: &str, text: &str) -> Option<String> {
        self.cache.member_resource_version(cluster, text)
    }
}

async fn rename_all(
    objects: &mut [Object],
    cluster_uids: &BTreeMap<String, String>,
) -> Result<(), Status> {
    for chunk in objects.chunks_mut(OBJECTS_PER_YIELD) {
        for object in chunk {
            *object = addressed(object, cluster_uids)?;
        }
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// An object under its name in the tree, and with the names of its owners there.
fn addressed(object: &Object, cluster_uids: &BTreeMap<String, String>) -> Result<Object, Status> {
    let Some(cluster) = object.meta().label(CACHED_FROM_CLUSTER) else {
        return Ok(object.clone());
    };
    let uid = cluster_uids.get(cluster).map_or("", String::as_str);
    let bytes = rename(object, cluster, uid).map_err(Status::internal)?;
    Object::from_json(bytes).map_err(Status::internal)
}

fn rename(object: &Object, cluster: &str, cluster_uid: &str) -> Result<Bytes, serde_json::Error> {
    let bytes = object.bytes();
    let mut fields: RawFields<'_> = machinery::json::from_slice(&bytes)?;
    let metadata = fields.get("metadata").map_or("{}", |raw| raw.get());
    let mut metadata: RawFields<'_> = machinery::json::from_str(metadata)?;
    let name = to_raw_value(&format!("{}@{cluster}", object.name()))?;
    let owners = addressed_owners(object, cluster, &metadata)?;
    let owners = match owners {
        Some(owners) => owners,
        None => to_raw_value(&[cluster_owner(cluster, cluster_uid)])?,
    };
    metadata.insert("name".to_owned(), &name);
    metadata.insert("ownerReferences".to_owned(), &owners);
    let metadata = to_raw_value(&metadata)?;
    fields.insert("metadata".to_owned(), &metadata);
    Ok(serde_json::to_vec(&fields)?.into())
}

fn cluster_owner(cluster: &str, uid: &str) -> Value {
    json!({"apiVersion": CLUSTERS.api_version(), "kind": CLUSTER_KIND, "name": cluster, "uid": uid})
}

/// Whether an owner is the Cluster that the tree shows as owner of what has none.
pub(super) fn is_cluster_owner(owner: &Value, cluster: &str) -> bool {
    owner["apiVersion"] == CLUSTERS.api_version()
        && owner["kind"] == CLUSTER_KIND
        && owner["name"] == cluster
}

/// The owners, which are in the same cluster; only the template of a copy, its last owner, is in the
/// control plane. `None` if there are none.
fn addressed_owners(
    object: &Object,
    cluster: &str,
    metadata: &RawFields<'_>,
) -> Result<Option<Box<RawValue>>, serde_json::Error> {
    let Some(owners) = metadata.get("ownerReferences") else {
        return Ok(None);
    };
    let owners: Option<Vec<BTreeMap<String, Box<RawValue>>>> =
        machinery::json::from_str(owners.get())?;
    let mut owners = owners.unwrap_or_default();
    if owners.is_empty() {
        return Ok(None);
    }
    let is_copy = object.meta().label(MANAGED) == Some(MANAGED_VALUE);
    let annotations = metadata.get("annotations").map_or("{}", |raw| raw.get());
    let annotations: RawFields<'_> = machinery::json::from_str(annotations)?;
    let template = annotations.get(TEMPLATE_UID).filter(|_| is_copy);
    let last = owners.last().and_then(|owner| owner.get("uid"));
    let ends_with_template =
        last.is_some_and(|uid| template.is_some_and(|template| template.get() == uid.get()));
    let count = owners.len() - usize::from(ends_with_template);
    for owner in owners.iter_mut().take(count) {
        let Some(name) = owner.get("name") else {
            continue;
        };
        let name: String = machinery::json::from_str(name.get())?;
        owner.insert(
            "name".to_owned(),
            to_raw_value(&format!("{name}@{cluster}"))?,
        );
    }
    to_raw_value(&owners).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(mut value: Value) -> Value {
        let stored = serde_json::to_vec(&value).unwrap();
        let object = Object::from_stored(&stored, 7).unwrap();
        let composite = object.with_resource_version("composite").unwrap();
        let uids = BTreeMap::from([("m1".to_owned(), "uid-of-m1".to_owned())]);
        let renamed = addressed(&composite, &uids).unwrap();
        let mut shown = renamed.value().unwrap();
        assert_eq!(shown["metadata"]["resourceVersion"], "composite");
        // Nothing but names changes.
        for object in [&mut shown, &mut value] {
            object["metadata"]
                .as_object_mut()
                .unwrap()
                .remove("resourceVersion");
        }
        let metadata = shown["metadata"].clone();
        for key in ["name", "ownerReferences"] {
            for object in [&mut shown, &mut value] {
                object["metadata"].as_object_mut().unwrap().remove(key);
            }
        }
        assert_eq!(shown, value);
        metadata
    }

    fn owner(name: &str, uid: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Owner", "name": name, "uid": uid, "controller": true})
    }

    // proves: FLT-names, FLT-owned
    #[test]
    fn objects_of_members_and_their_owners_have_the_names_of_their_cluster() {
        let long = "a".repeat(253);
        for name in ["web", "system:x", &long] {
            let metadata = shown(json!({"spec": {"a": [1, 2.50]}, "metadata": {"name": name,
                "labels": {CACHED_FROM_CLUSTER: "m1"}, "ownerReferences": [owner("o", "u")]}}));
            assert_eq!(metadata["name"], format!("{name}@m1"));
            assert_eq!(metadata["ownerReferences"], json!([owner("o@m1", "u")]));
        }
        let cluster = cluster_owner("m1", "uid-of-m1");
        assert!(is_cluster_owner(&cluster, "m1") && !is_cluster_owner(&cluster, "m2"));
        for owners in [json!(null), json!([])] {
            let metadata = shown(json!({"metadata": {"name": "a",
                "labels": {CACHED_FROM_CLUSTER: "m1"}, "ownerReferences": owners}}));
            assert_eq!(metadata["name"], "a@m1");
            assert_eq!(metadata["ownerReferences"], json!([cluster]));
        }
    }

    // proves: FLT-names
    #[test]
    fn objects_of_the_control_plane_have_their_names() {
        let metadata = shown(
            json!({"metadata": {"name": "web", "ownerReferences": [owner("o", "u")],
            "annotations": {CACHED_FROM_CLUSTER: "m1"}}}),
        );
        assert_eq!(metadata["name"], "web");
        assert_eq!(metadata["ownerReferences"], json!([owner("o", "u")]));
    }

    // proves: FLT-names
    #[test]
    fn the_template_of_a_copy_has_no_cluster() {
        let owners = |managed: &str, template: &str, owners: Value| {
            let metadata = shown(
                json!({"metadata": {"name": "web", "ownerReferences": owners,
                "labels": {CACHED_FROM_CLUSTER: "m1", MANAGED: managed},
                "annotations": {TEMPLATE_UID: template}}}),
            );
            let owners = metadata["ownerReferences"].as_array().unwrap().iter();
            let names = owners.map(|owner| owner["name"].as_str().unwrap().to_owned());
            names.collect::<Vec<_>>().join(" ")
        };
        let both = json!([owner("o", "u"), owner("web", "t")]);
        for (managed, template, expected) in [
            ("true", "t", "o@m1 web"),
            ("false", "t", "o@m1 web@m1"),
            ("true", "u", "o@m1 web@m1"),
        ] {
            let names = owners(managed, template, both.clone());
            assert_eq!(names, expected, "{managed} {template}");
        }
        assert_eq!(owners("true", "t", json!([])), "m1");
    }
}

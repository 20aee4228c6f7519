//! [`GroupSplitApi`] presents two servers as one: it routes each call by the resource's
//! API group.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use machinery::{Object, Status};

use crate::api::{
    Api, DeleteOptions, ListOptions, ObjectList, Patch, ResourcePath, Result, ServerResources,
    WatchOptions, WatchStream, WriteOptions,
};
use crate::event::{CoreEvent, EVENTS};
use crate::write_body::WriteBody;

/// Routes calls for our own API groups to `own` and all others to `host`. What the host's
/// discovery reports for the own groups is ignored and not requested: the host would
/// proxy the request back to us.
pub struct GroupSplitApi {
    own: Arc<dyn Api>,
    host: Arc<dyn Api>,
    is_own_group: fn(&str) -> bool,
}

impl GroupSplitApi {
    /// `is_own` reports whether the group of this name belongs to `own`.
    pub fn new(own: Arc<dyn Api>, host: Arc<dyn Api>, is_own: fn(&str) -> bool) -> Arc<Self> {
        Arc::new(Self {
            own,
            host,
            is_own_group: is_own,
        })
    }

    fn api_for(&self, at: ResourcePath<'_>) -> &dyn Api {
        if (self.is_own_group)(&at.resource.group) {
            &*self.own
        } else {
            &*self.host
        }
    }
}

#[async_trait]
impl Api for GroupSplitApi {
    async fn get(&self, at: ResourcePath<'_>) -> Result<Object> {
        if (self.is_own_group)(&at.resource.group) || !at.subresource.is_empty() {
            self.api_for(at).get(at).await
        } else {
            get_by_list(&*self.host, at).await
        }
    }

    async fn list(&self, at: ResourcePath<'_>, options: &ListOptions) -> Result<ObjectList> {
        self.api_for(at).list(at, options).await
    }

    async fn watch(&self, at: ResourcePath<'_>, options: &WatchOptions) -> Result<WatchStream> {
        self.api_for(at).watch(at, options).await
    }

    async fn create(
        &self,
        at: ResourcePath<'_>,
        body: WriteBody,
        options: &WriteOptions,
    ) -> Result<Object> {
        self.api_for(at).create(at, body, options).await
    }

    async fn create_events(&self, events: Vec<CoreEvent>) -> Vec<Result<()>> {
        self.api_for(ResourcePath::collection(&EVENTS, ""))
            .create_events(events)
            .await
    }

    async fn update(
        &self,
        at: ResourcePath<'_>,
        body: WriteBody,
        options: &WriteOptions,
    ) -> Result<Object> {
        self.api_for(at).update(at, body, options).await
    }

    async fn patch(
        &self,
        at: ResourcePath<'_>,
        patch: Patch,
        options: &WriteOptions,
    ) -> Result<Object> {
        self.api_for(at).patch(at, patch, options).await
    }

    async fn delete(
        &self,
        at: ResourcePath<'_>,
        options: &DeleteOptions,
    ) -> Result<Option<Object>> {
        self.api_for(at).delete(at, options).await
    }

    async fn delete_collection(
        &self,
        at: ResourcePath<'_>,
        options: &DeleteOptions,
        select: &ListOptions,
    ) -> Result<()> {
        self.api_for(at)
            .delete_collection(at, options, select)
            .await
    }

    async fn discover(&self) -> Result<ServerResources> {
        let others = |group: &str| !(self.is_own_group)(group);
        let (own, host) = tokio::join!(
            self.own.discover_groups(&self.is_own_group),
            self.host.discover_groups(&others),
        );
        let (mut all, own) = (host?, own?);
        all.resources.extend(own.resources);
        all.failed_group_versions.extend(own.failed_group_versions);
        Ok(all)
    }

    /// Always the host's.
    async fn get_raw(&self, path: &str) -> Result<Bytes> {
        self.host.get_raw(path).await
    }
}

/// Reads one object with a LIST. Where the kind is not known in advance, RBAC can grant
/// `list` on `*` more narrowly than `get`, which would include `nodes/proxy` and
/// `pods/exec`.
async fn get_by_list(host: &dyn Api, at: ResourcePath<'_>) -> Result<Object> {
    let options = ListOptions {
        field_selector: format!("metadata.name={}", at.name),
        ..ListOptions::default()
    };
    let list = host.list(
        ResourcePath::collection(at.resource, at.namespace),
        &options,
    );
    let mut found = list.await?.items.into_iter();
    let found = found.find(|o| o.name() == at.name && o.namespace() == at.namespace);
    found.ok_or_else(|| Status::not_found(at.resource, at.name).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ApiResource;
    use crate::fake::FakeApi;
    use crate::{InformerFactory, ListWatchSelector, ShutdownToken, TaskGroup};
    use machinery::Gvr;
    use serde_json::json;

    static MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");
    static WORKS: Gvr = Gvr::from_static("work.karmada.io", "v1alpha1", "works");
    static FOREIGN: Gvr = Gvr::from_static("operator.karmada.io", "v1alpha1", "karmadas");

    fn serve(api: &FakeApi, resource: &Gvr, kind: &str) {
        api.add_resource(ApiResource {
            resource: resource.clone(),
            kind: kind.into(),
            namespaced: true,
            verbs: vec!["list".into()],
            subresources: vec![],
            categories: vec![],
            short_names: vec![],
        });
    }

    fn split() -> (Arc<FakeApi>, Arc<FakeApi>, Arc<dyn Api>) {
        let (own, host) = (FakeApi::new(), FakeApi::new());
        let both = GroupSplitApi::new(own.clone(), host.clone(), |g| g == "work.karmada.io");
        (own, host, both)
    }

    #[tokio::test]
    async fn calls_go_where_their_group_is_served() {
        let (own, host, both) = split();
        let options = WriteOptions::default();
        for (resource, kind) in [
            (&MAPS, "ConfigMap"),
            (&WORKS, "Work"),
            (&FOREIGN, "Karmada"),
        ] {
            let body = json!({"apiVersion": resource.api_version(), "kind": kind,
                "metadata": {"name": "a", "namespace": "n"}});
            both.create(
                ResourcePath::collection(resource, "n"),
                body.into(),
                &options,
            )
            .await
            .unwrap();
            let at = ResourcePath::object(resource, "n", "a");
            let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
            both.patch(at, patch, &options).await.unwrap();
            let found = both.get(at).await.unwrap();
            assert_eq!(found.meta().label("a"), Some("b"));
            let options = ListOptions::default();
            let all = both
                .list(ResourcePath::collection(resource, ""), &options)
                .await
                .unwrap();
            assert_eq!(all.items.len(), 1);
        }
        let names = |api: &FakeApi| -> Vec<String> {
            let writes = api.writes();
            writes.iter().map(|w| w.resource.group_resource()).collect()
        };
        assert_eq!(names(&own), ["works.work.karmada.io"; 2]);
        assert_eq!(
            names(&host),
            [
                "configmaps",
                "configmaps",
                "karmadas.operator.karmada.io",
                "karmadas.operator.karmada.io"
            ]
        );
    }

    #[tokio::test]
    async fn objects_of_the_host_are_read_without_the_right_to_get() {
        let (_, host, both) = split();
        for (namespace, name) in [("n", "a"), ("n", "b"), ("m", "a")] {
            let map = json!({"metadata": {"name": name, "namespace": namespace}, "data": {"n": namespace}});
            host.seed(&MAPS, map);
        }
        host.on_call(|call| {
            let refused = Status::failure(403, "Forbidden", "no get");
            (call.verb == "get").then(|| refused.into())
        });
        let found = both
            .get(ResourcePath::object(&MAPS, "m", "a"))
            .await
            .unwrap();
        assert_eq!(found.value().unwrap()["data"]["n"], "m");
        let missing = both
            .get(ResourcePath::object(&MAPS, "m", "b"))
            .await
            .err()
            .unwrap();
        assert!(missing.is_not_found(), "{missing}");
    }

    #[tokio::test]
    async fn the_own_groups_are_not_taken_from_the_host() {
        let (own, host, both) = split();
        serve(&own, &WORKS, "Work");
        // Resources outside the own groups come from the host, even if the loopback
        // serves them.
        serve(&own, &MAPS, "Mine");
        serve(&host, &WORKS, "Loop");
        serve(&host, &MAPS, "ConfigMap");
        let found = both.discover().await.unwrap();
        let kinds: Vec<&str> = found.resources.iter().map(|r| &*r.kind).collect();
        assert_eq!(kinds, ["ConfigMap", "Work"]);
        host.on_call(|call| {
            (call.verb == "resources").then(|| Status::unavailable("later").into())
        });
        assert!(
            both.discover().await.is_err(),
            "a partial result is an error"
        );
    }

    #[tokio::test]
    async fn informers_follow_both_servers_by_their_own_revisions() {
        let (own, host, both) = split();
        let tasks = TaskGroup::new(ShutdownToken::new());
        let informers = InformerFactory::new(&tasks);
        for n in 0..9 {
            host.seed(
                &MAPS,
                json!({"metadata": {"name": format!("m{n}"), "namespace": "n"}}),
            );
        }
        own.seed(&WORKS, json!({"metadata": {"name": "w", "namespace": "n"}}));
        let maps = informers.get(&both, &ListWatchSelector::all(&MAPS));
        let works = informers.get(&both, &ListWatchSelector::all(&WORKS));
        informers.wait_for_cache_sync().await;
        assert_eq!((maps.len(), works.len()), (9, 1));
        assert!(works.get("n", "w").unwrap().revision() < maps.get("n", "m8").unwrap().revision());
        tasks.stop().await;
    }
}

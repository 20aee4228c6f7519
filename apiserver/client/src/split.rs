//! [`GroupSplitApi`] presents two servers as one: it routes each call by the resource's
//! API group.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use machinery::{Object, Status};
use serde_json::Value;

use crate::api::{
    Api, At, DeleteOptions, Discovered, List, ListOptions, Patch, Result, WatchOptions,
    WatchStream, WriteOptions,
};
use crate::encoded::EncodedBody;
use crate::event::{EVENTS, Event};

/// Routes calls for our own API groups to `own` and all others to `host`. What the host's
/// discovery reports for the own groups is ignored and not requested: the host would
/// proxy the request back to us.
pub struct Split {
    own: Arc<dyn Api>,
    host: Arc<dyn Api>,
    is_own: fn(&str) -> bool,
}

impl Split {
    /// `is_own` reports whether the group of this name belongs to `own`.
    pub fn new(own: Arc<dyn Api>, host: Arc<dyn Api>, is_own: fn(&str) -> bool) -> Arc<Self> {
        Arc::new(Self { own, host, is_own })
    }

    fn to(&self, at: At<'_>) -> &dyn Api {
        if (self.is_own)(&at.resource.group) {
            &*self.own
        } else {
            &*self.host
        }
    }
}

#[async_trait]
impl Api for Split {
    async fn get(&self, at: At<'_>) -> Result<Object> {
        if (self.is_own)(&at.resource.group) || !at.subresource.is_empty() {
            self.to(at).get(at).await
        } else {
            get_by_list(&*self.host, at).await
        }
    }

    async fn list(&self, at: At<'_>, options: &ListOptions) -> Result<List> {
        self.to(at).list(at, options).await
    }

    async fn watch(&self, at: At<'_>, options: &WatchOptions) -> Result<WatchStream> {
        self.to(at).watch(at, options).await
    }

    async fn create(&self, at: At<'_>, body: Value, options: &WriteOptions) -> Result<Object> {
        self.to(at).create(at, body, options).await
    }

    async fn create_encoded(
        &self,
        at: At<'_>,
        body: EncodedBody,
        options: &WriteOptions,
    ) -> Result<Object> {
        self.to(at).create_encoded(at, body, options).await
    }

    async fn record(&self, events: Vec<Event>) -> Vec<Result<()>> {
        self.to(At::all(&EVENTS, "")).record(events).await
    }

    async fn update(&self, at: At<'_>, body: Value, options: &WriteOptions) -> Result<Object> {
        self.to(at).update(at, body, options).await
    }

    async fn update_encoded(
        &self,
        at: At<'_>,
        body: EncodedBody,
        options: &WriteOptions,
    ) -> Result<Object> {
        self.to(at).update_encoded(at, body, options).await
    }

    async fn patch(&self, at: At<'_>, patch: Patch, options: &WriteOptions) -> Result<Object> {
        self.to(at).patch(at, patch, options).await
    }

    async fn delete(&self, at: At<'_>, options: &DeleteOptions) -> Result<Option<Object>> {
        self.to(at).delete(at, options).await
    }

    async fn delete_collection(
        &self,
        at: At<'_>,
        options: &DeleteOptions,
        select: &ListOptions,
    ) -> Result<()> {
        self.to(at).delete_collection(at, options, select).await
    }

    async fn resources(&self) -> Result<Discovered> {
        let others = |group: &str| !(self.is_own)(group);
        let (own, host) = tokio::join!(
            self.own.resources_of(&self.is_own),
            self.host.resources_of(&others),
        );
        let (mut all, own) = (host?, own?);
        all.resources.extend(own.resources);
        all.failed.extend(own.failed);
        Ok(all)
    }

    /// Always the host's.
    async fn raw(&self, path: &str) -> Result<Bytes> {
        self.host.raw(path).await
    }
}

/// Reads one object with a LIST. Where the kind is not known in advance, RBAC can grant
/// `list` on `*` more narrowly than `get`, which would include `nodes/proxy` and
/// `pods/exec`.
async fn get_by_list(host: &dyn Api, at: At<'_>) -> Result<Object> {
    let options = ListOptions {
        field_selector: format!("metadata.name={}", at.name),
        ..ListOptions::default()
    };
    let list = host.list(At::all(at.resource, at.namespace), &options);
    let mut found = list.await?.items.into_iter();
    let found = found.find(|o| o.name() == at.name && o.namespace() == at.namespace);
    found.ok_or_else(|| Status::not_found(at.resource, at.name).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ApiResource;
    use crate::fake::FakeApi;
    use crate::{Informers, Select, Shutdown, Tasks};
    use machinery::Gvr;
    use serde_json::json;

    static MAPS: Gvr = Gvr::constant("", "v1", "configmaps");
    static WORKS: Gvr = Gvr::constant("work.karmada.io", "v1alpha1", "works");
    static FOREIGN: Gvr = Gvr::constant("operator.karmada.io", "v1alpha1", "karmadas");

    fn serve(api: &FakeApi, resource: &Gvr, kind: &str) {
        api.serve(ApiResource {
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
        let both = Split::new(own.clone(), host.clone(), |g| g == "work.karmada.io");
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
            both.create(At::all(resource, "n"), body, &options)
                .await
                .unwrap();
            let at = At::one(resource, "n", "a");
            let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
            both.patch(at, patch, &options).await.unwrap();
            let found = both.get(at).await.unwrap();
            assert_eq!(found.head().label("a"), Some("b"));
            let options = ListOptions::default();
            let all = both.list(At::all(resource, ""), &options).await.unwrap();
            assert_eq!(all.items.len(), 1);
        }
        let names = |api: &FakeApi| -> Vec<String> {
            let writes = api.writes();
            writes.iter().map(|w| w.resource.qualified()).collect()
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
        let found = both.get(At::one(&MAPS, "m", "a")).await.unwrap();
        assert_eq!(found.value().unwrap()["data"]["n"], "m");
        let missing = both.get(At::one(&MAPS, "m", "b")).await.err().unwrap();
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
        let found = both.resources().await.unwrap();
        let kinds: Vec<&str> = found.resources.iter().map(|r| &*r.kind).collect();
        assert_eq!(kinds, ["ConfigMap", "Work"]);
        host.on_call(|call| {
            (call.verb == "resources").then(|| Status::unavailable("later").into())
        });
        assert!(both.resources().await.is_err(), "a partial result is an error");
    }

    #[tokio::test]
    async fn informers_follow_both_servers_by_their_own_revisions() {
        let (own, host, both) = split();
        let tasks = Tasks::new(Shutdown::new());
        let informers = Informers::new(&tasks);
        for n in 0..9 {
            host.seed(
                &MAPS,
                json!({"metadata": {"name": format!("m{n}"), "namespace": "n"}}),
            );
        }
        own.seed(&WORKS, json!({"metadata": {"name": "w", "namespace": "n"}}));
        let maps = informers.get(&both, &Select::all(&MAPS));
        let works = informers.get(&both, &Select::all(&WORKS));
        informers.wait_synced().await;
        assert_eq!((maps.len(), works.len()), (9, 1));
        assert!(works.get("n", "w").unwrap().revision() < maps.get("n", "m8").unwrap().revision());
        tasks.stop().await;
    }
}

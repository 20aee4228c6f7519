//! A differential test of `client::fake::FakeApi` against the registry: the same random calls
//! must have the same results, objects and watch events, since tests of controllers rely on
//! the fake.
//!
//! Not compared, since the fake does not have them: schemas, defaults, admission, garbage
//! collection. Updates carry a resourceVersion, because the server requires it for custom
//! resources, which the fake does not distinguish. Of errors, code and reason are compared,
//! not the text.

use std::collections::HashMap;

use client::fake::FakeApi;
use client::{Api, Error, Propagation, WatchEvent, WatchOptions, WriteOptions};
use futures_util::StreamExt;
use machinery::UserInfo;
use proptest::prelude::*;
use proptest::test_runner::{Config as Settings, TestRunner};

use super::custom::{THINGS, establish};
use super::{CONFIGMAPS, fixture};
use crate::Loopback;
use client::{At, DeleteOptions, ListOptions, Patch};
use machinery::{Gvr, Object};
use serde_json::{Value, json};

const NAMESPACE: &str = "default";
/// A placeholder in patches for the field with the content of an object.
const CONTENT: &str = "CONTENT";
/// The name of the object whose event ends every watch.
const LAST: &str = "last";

/// The resourceVersion or uid that a write requires.
#[derive(Clone, Copy, Debug)]
enum Precondition {
    None,
    Current,
    Stale,
    OtherUid,
}

#[derive(Clone, Debug)]
enum Call {
    Create {
        name: usize,
        value: u8,
        more: Value,
    },
    Get {
        name: usize,
    },
    List {
        selector: &'static str,
        limit: u64,
    },
    Update {
        name: usize,
        value: u8,
        more: Value,
        precondition: Precondition,
    },
    Status {
        name: usize,
        value: u8,
        precondition: Precondition,
    },
    Merge {
        name: usize,
        patch: Value,
    },
    Json {
        name: usize,
        steps: Value,
    },
    Delete {
        name: usize,
        precondition: Precondition,
        propagation: Option<Propagation>,
    },
    DeleteAll {
        selector: &'static str,
    },
    Watch {
        selector: &'static str,
    },
}

/// A call and whether it is a dry run.
type Step = (Call, bool);

fn precondition() -> impl Strategy<Value = Precondition> {
    use Precondition::{Current, None, OtherUid, Stale};
    prop_oneof![Just(None), Just(Current), Just(Stale), Just(OtherUid)]
}

fn selector() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just(""), Just("tier=x"), Just("tier!=x"), Just("tier")]
}

/// Metadata for a body.
fn more() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({})),
        Just(json!({"labels": {"tier": "x"}})),
        Just(json!({"labels": {"tier": "y"}, "annotations": {"a": "b"}})),
        Just(json!({"finalizers": ["example.com/hold"]})),
        Just(json!({"generation": 9, "uid": "mine", "creationTimestamp": "2020-01-01T00:00:00Z"})),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    let name = 0..3_usize;
    let value = 1..4_u8;
    let patch = prop_oneof![
        Just(json!({"metadata": {"labels": {"tier": "x"}}})),
        Just(json!({"metadata": {"labels": null, "finalizers": null}})),
        Just(json!({CONTENT: {"size": "7"}, "status": {"ignored": true}})),
        Just(json!({"metadata": {"name": "other"}})),
        Just(json!({"metadata": {"resourceVersion": "1"}, CONTENT: {"size": "8"}})),
        Just(json!({"metadata": {"uid": "other"}})),
    ];
    let steps = prop_oneof![
        Just(json!([{"op": "add", "path": "/metadata/annotations", "value": {"by": "json"}}])),
        Just(json!([{"op": "test", "path": "/metadata/name", "value": "nobody"}])),
        Just(json!([{"op": "remove", "path": "/metadata/labels/tier"}])),
        Just(json!([{"op": "replace", "path": "/CONTENT/size", "value": "5"}])),
    ];
    let propagation = prop_oneof![
        Just(None),
        Just(Some(Propagation::Background)),
        Just(Some(Propagation::Foreground)),
        Just(Some(Propagation::Orphan)),
    ];
    prop_oneof![
        4 => (name.clone(), value.clone(), more())
            .prop_map(|(name, value, more)| Call::Create { name, value, more }),
        1 => name.clone().prop_map(|name| Call::Get { name }),
        1 => (selector(), 0..3_u64).prop_map(|(selector, limit)| Call::List { selector, limit }),
        3 => (name.clone(), value.clone(), more(), precondition()).prop_map(
            |(name, value, more, precondition)| Call::Update { name, value, more, precondition }
        ),
        2 => (name.clone(), value, precondition())
            .prop_map(|(name, value, precondition)| Call::Status { name, value, precondition }),
        2 => (name.clone(), patch).prop_map(|(name, patch)| Call::Merge { name, patch }),
        1 => (name.clone(), steps).prop_map(|(name, steps)| Call::Json { name, steps }),
        2 => (name, precondition(), propagation).prop_map(|(name, precondition, propagation)| {
            Call::Delete { name, precondition, propagation }
        }),
        1 => selector().prop_map(|selector| Call::DeleteAll { selector }),
        1 => selector().prop_map(|selector| Call::Watch { selector }),
    ]
}

/// One of the two APIs, with the normalized names of its uids and resourceVersions.
struct Side {
    api: std::sync::Arc<dyn Api>,
    resource: &'static Gvr,
    names: HashMap<String, String>,
    watches: Vec<(&'static str, u64)>,
}

const NAMES: [&str; 3] = ["a", "b", "c"];

impl Side {
    fn new(api: std::sync::Arc<dyn Api>, resource: &'static Gvr) -> Self {
        Self {
            api,
            resource,
            names: HashMap::new(),
            watches: Vec::new(),
        }
    }

    fn at(&self, name: usize) -> At<'static> {
        At::one(self.resource, NAMESPACE, NAMES[name])
    }

    /// The object with its uid and resourceVersion numbered in order of appearance.
    fn plain(&mut self, object: &Object) -> Value {
        let mut value = object.value().unwrap();
        for field in ["uid", "resourceVersion"] {
            let own = &mut value["metadata"][field];
            let key = format!("{field}:{own}");
            let count = self.names.len();
            let name = self
                .names
                .entry(key)
                .or_insert_with(|| format!("{field}{count}"));
            *own = name.clone().into();
        }
        value
    }

    fn answer(&mut self, answer: Result<Object, Error>) -> Value {
        match answer {
            Ok(object) => self.plain(&object),
            Err(error) => refusal(&error),
        }
    }

    fn body(&self, name: usize, value: u8, more: &Value) -> Value {
        let mut body = match self.resource == &CONFIGMAPS {
            true => {
                json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"size": value.to_string()}})
            }
            false => json!({"apiVersion": "example.com/v1", "kind": "Thing",
                "spec": {"size": value, "color": "red"}, "status": {"seen": value}}),
        };
        body["metadata"] = more.clone();
        body["metadata"]["name"] = NAMES[name].into();
        body["metadata"]["namespace"] = NAMESPACE.into();
        body
    }

    fn has_spec(&self) -> bool {
        self.resource != &CONFIGMAPS
    }

    /// A patch for this resource: integers in a spec, strings in data.
    fn content(&self, patch: &Value) -> Value {
        let mut text = patch.to_string();
        if self.has_spec() {
            text = text.replace(CONTENT, "spec");
            for digit in ["5", "7", "8"] {
                text = text.replace(&format!("\"{digit}\""), digit);
            }
        } else {
            text = text.replace(CONTENT, "data");
        }
        serde_json::from_str(&text).unwrap()
    }

    async fn present(&self, name: usize) -> Option<Object> {
        self.api.get(self.at(name)).await.ok()
    }

    /// Sets the resourceVersion and uid of a precondition in a body.
    async fn demand(&self, body: &mut Value, name: usize, precondition: Precondition) {
        let present = self.present(name).await;
        let revision = present.as_ref().map_or(7, |o| o.revision());
        let revision = match precondition {
            Precondition::Stale => revision - 1,
            _ => revision,
        };
        body["metadata"]["resourceVersion"] = revision.to_string().into();
        if matches!(precondition, Precondition::OtherUid) {
            body["metadata"]["uid"] = "someone-else".into();
        } else if let Some(fields) = body["metadata"].as_object_mut() {
            fields.remove("uid");
        }
    }

    async fn take(&mut self, (call, dry_run): &Step) -> Value {
        let options = WriteOptions {
            dry_run: *dry_run,
            ..WriteOptions::default()
        };
        let api = std::sync::Arc::clone(&self.api);
        let all = At::all(self.resource, NAMESPACE);
        match call {
            Call::Create { name, value, more } => {
                let body = self.body(*name, *value, more);
                let created = api.create(all, body, &options).await;
                self.written(created, *dry_run)
            }
            Call::Get { name } => {
                let found = api.get(self.at(*name)).await;
                self.answer(found)
            }
            Call::List { selector, limit } => self.list(selector, *limit).await,
            Call::Update {
                name,
                value,
                more,
                precondition,
            } => {
                let mut body = self.body(*name, *value, more);
                self.demand(&mut body, *name, *precondition).await;
                let done = api.update(self.at(*name), body, &options).await;
                self.written(done, *dry_run)
            }
            // The fake has a status subresource for every resource.
            Call::Status { .. } if !self.has_spec() => Value::Null,
            Call::Status {
                name,
                value,
                precondition,
            } => {
                let mut body = self.body(*name, 9, &json!({"labels": {"of": "status"}}));
                body["status"] = json!({"seen": value});
                self.demand(&mut body, *name, *precondition).await;
                let at = self.at(*name).sub("status");
                let done = api.update(at, body, &options).await;
                self.written(done, *dry_run)
            }
            Call::Merge { name, patch } => {
                let patch = Patch::Merge(self.content(patch));
                let done = api.patch(self.at(*name), patch, &options).await;
                self.written(done, *dry_run)
            }
            Call::Json { name, steps } => {
                let patch = Patch::Json(self.content(steps));
                let result = api.patch(self.at(*name), patch, &options).await;
                self.written(result, *dry_run)
            }
            Call::Delete {
                name,
                precondition,
                propagation,
            } => {
                self.delete(*name, *precondition, *propagation, *dry_run)
                    .await
            }
            Call::DeleteAll { selector } => {
                let options = DeleteOptions {
                    dry_run: *dry_run,
                    ..DeleteOptions::default()
                };
                let select = ListOptions {
                    label_selector: (*selector).into(),
                    ..ListOptions::default()
                };
                match api.delete_collection(all, &options, &select).await {
                    Ok(()) => Value::Null,
                    Err(error) => refusal(&error),
                }
            }
            Call::Watch { selector } => {
                let list = api.list(all, &ListOptions::default()).await.unwrap();
                self.watches.push((selector, list.revision));
                Value::Null
            }
        }
    }

    /// The resourceVersion and uid in the result of a dry run are never seen again.
    fn written(&mut self, result: Result<Object, Error>, dry_run: bool) -> Value {
        match result {
            Ok(object) if dry_run => {
                let mut value = object.value().unwrap();
                let fields = value["metadata"].as_object_mut().unwrap();
                fields.remove("uid");
                fields.remove("resourceVersion");
                value
            }
            result => self.answer(result),
        }
    }

    async fn list(&mut self, selector: &str, limit: u64) -> Value {
        let mut options = ListOptions {
            label_selector: selector.into(),
            limit,
            ..ListOptions::default()
        };
        let mut pages = Vec::new();
        loop {
            let all = At::all(self.resource, NAMESPACE);
            let page = self.api.list(all, &options).await.unwrap();
            // The server has its own objects in this namespace, too.
            let objects = page.items.iter().filter(|o| NAMES.contains(&o.name()));
            let objects: Vec<Value> = objects.map(|o| self.plain(o)).collect();
            pages.extend(objects);
            if page.continue_token.is_empty() {
                return pages.into();
            }
            options.continue_token = page.continue_token;
        }
    }

    async fn delete(
        &mut self,
        name: usize,
        precondition: Precondition,
        propagation: Option<Propagation>,
        dry_run: bool,
    ) -> Value {
        let revision = self.present(name).await.map_or(7, |o| o.revision());
        let mut options = DeleteOptions {
            propagation,
            dry_run,
            ..DeleteOptions::default()
        };
        match precondition {
            Precondition::None => {}
            Precondition::Current => options.resource_version = Some(revision.to_string()),
            Precondition::Stale => options.resource_version = Some((revision - 1).to_string()),
            Precondition::OtherUid => options.uid = Some("someone-else".into()),
        }
        match self.api.delete(self.at(name), &options).await {
            Ok(None) => Value::Null,
            Ok(Some(left)) => self.written(Ok(left), dry_run),
            Err(error) => refusal(&error),
        }
    }

    /// The events of all watches, up to the last object.
    async fn events(&mut self) -> Value {
        let mut body = self.body(0, 1, &json!({"labels": {"tier": "x"}}));
        body["metadata"]["name"] = LAST.into();
        let mut all = Vec::new();
        let at = At::all(self.resource, NAMESPACE);
        let created = self.api.create(at, body, &WriteOptions::default()).await;
        created.unwrap();
        for (selector, revision) in self.watches.clone() {
            let options = WatchOptions {
                label_selector: selector.into(),
                resource_version: revision.to_string(),
                ..WatchOptions::default()
            };
            let mut events = Vec::new();
            if selector != "tier!=x" {
                let mut stream = self.api.watch(at, &options).await.unwrap();
                while let Some(event) = stream.next().await {
                    let (what, object) = match event.unwrap() {
                        WatchEvent::Added(object) => ("ADDED", object),
                        WatchEvent::Modified(object) => ("MODIFIED", object),
                        WatchEvent::Deleted(object) => ("DELETED", object),
                        WatchEvent::Bookmark { .. } => continue,
                    };
                    if object.name() == LAST {
                        break;
                    }
                    events.push(json!([what, self.plain(&object)]));
                }
            }
            all.push(Value::from(events));
        }
        all.into()
    }
}

fn refusal(error: &Error) -> Value {
    let status = error.status().unwrap();
    json!({"code": status.code, "reason": status.reason})
}

async fn compare(resource: &'static Gvr, steps: &[Step]) -> Result<(), String> {
    let fixture = fixture().await;
    establish(&fixture).await;
    let fake = FakeApi::new();
    fake.set_now("2026-01-02T03:04:05Z".parse().unwrap());
    let mut real = Side::new(
        Loopback::new(fixture.registry, UserInfo::internal()),
        resource,
    );
    let mut fake = Side::new(fake, resource);
    for (n, step) in steps.iter().enumerate() {
        let (expected, actual) = (real.take(step).await, fake.take(step).await);
        if expected != actual {
            return Err(format!(
                "step {n} {step:?}\n server: {expected}\n fake:   {actual}"
            ));
        }
    }
    let (expected, actual) = (real.events().await, fake.events().await);
    match expected == actual {
        true => Ok(()),
        false => Err(format!("watches\n server: {expected}\n fake:   {actual}")),
    }
}

fn differential(resource: &'static Gvr) {
    let settings = Settings {
        cases: 96,
        failure_persistence: None,
        ..Settings::default()
    };
    let step = (call(), prop::bool::weighted(0.15));
    let inputs = prop::collection::vec(step, 1..40);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let compared = TestRunner::new(settings).run(&inputs, |steps| {
        let done = runtime.block_on(compare(resource, &steps));
        done.map_err(TestCaseError::fail)
    });
    compared.unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn the_fake_equals_the_server_for_objects_with_a_status() {
    differential(&THINGS);
}

#[test]
fn the_fake_equals_the_server_for_objects_without_a_spec() {
    differential(&CONFIGMAPS);
}

//! A differential test of `client_fake::FakeApi` against the registry: the same random calls
//! must have the same results, objects and watch events, since tests of controllers rely on
//! the fake.
//!
//! Not compared, since the fake does not have them: schemas, defaults, admission, garbage
//! collection. Updates carry a resourceVersion, because the server requires it for custom
//! resources, which the fake does not distinguish. Of errors, code and reason are compared,
//! not the text.

use std::collections::HashMap;

use client::{Api, DeletionPropagation, Error, WatchEvent, WatchOptions, WriteOptions};
use client_fake::FakeApi;
use futures_util::StreamExt;
use machinery::UserInfo;
use proptest::prelude::*;
use proptest::test_runner::{Config as Settings, TestRunner};

use super::custom_resources::{THINGS, establish};
use super::{CONFIGMAPS, fixture};
use crate::LoopbackApi;
use client::{DeleteOptions, ListOptions, Patch, ResourcePath};
use machinery::{Gvr, Object};
use serde_json::{Value, json};

const NAMESPACE: &str = "default";
/// A placeholder in patches for the field with the content of an object.
const CONTENT_PLACEHOLDER: &str = "CONTENT";
/// The name of the object whose event ends every watch.
const LAST_OBJECT_NAME: &str = "last";

/// The resourceVersion or uid that a write requires.
#[derive(Clone, Copy, Debug)]
enum WritePrecondition {
    None,
    Current,
    Stale,
    OtherUid,
}

#[derive(Clone, Debug)]
enum RandomApiCall {
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
        precondition: WritePrecondition,
    },
    Status {
        name: usize,
        value: u8,
        precondition: WritePrecondition,
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
        precondition: WritePrecondition,
        propagation: Option<DeletionPropagation>,
    },
    DeleteAll {
        selector: &'static str,
    },
    Watch {
        selector: &'static str,
    },
}

/// A call and whether it is a dry run.
type RandomRequest = (RandomApiCall, bool);

fn precondition() -> impl Strategy<Value = WritePrecondition> {
    use WritePrecondition::{Current, None, OtherUid, Stale};
    prop_oneof![Just(None), Just(Current), Just(Stale), Just(OtherUid)]
}

fn selector() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just(""), Just("tier=x"), Just("tier!=x"), Just("tier")]
}

/// Metadata for a body.
fn extra_metadata() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({})),
        Just(json!({"labels": {"tier": "x"}})),
        Just(json!({"labels": {"tier": "y"}, "annotations": {"a": "b"}})),
        Just(json!({"finalizers": ["example.com/hold"]})),
        Just(json!({"generation": 9, "uid": "mine", "creationTimestamp": "2020-01-01T00:00:00Z"})),
    ]
}

fn random_call() -> impl Strategy<Value = RandomApiCall> {
    let name = 0..3_usize;
    let value = 1..4_u8;
    let patch = prop_oneof![
        Just(json!({"metadata": {"labels": {"tier": "x"}}})),
        Just(json!({"metadata": {"labels": null, "finalizers": null}})),
        Just(json!({CONTENT_PLACEHOLDER: {"size": "7"}, "status": {"ignored": true}})),
        Just(json!({"metadata": {"name": "other"}})),
        Just(json!({"metadata": {"resourceVersion": "1"}, CONTENT_PLACEHOLDER: {"size": "8"}})),
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
        Just(Some(DeletionPropagation::Background)),
        Just(Some(DeletionPropagation::Foreground)),
        Just(Some(DeletionPropagation::Orphan)),
    ];
    prop_oneof![
        4 => (name.clone(), value.clone(), extra_metadata())
            .prop_map(|(name, value, more)| RandomApiCall::Create { name, value, more }),
        1 => name.clone().prop_map(|name| RandomApiCall::Get { name }),
        1 => (selector(), 0..3_u64).prop_map(|(selector, limit)| RandomApiCall::List { selector, limit }),
        3 => (name.clone(), value.clone(), extra_metadata(), precondition()).prop_map(
            |(name, value, more, precondition)| RandomApiCall::Update { name, value, more, precondition }
        ),
        2 => (name.clone(), value, precondition())
            .prop_map(|(name, value, precondition)| RandomApiCall::Status { name, value, precondition }),
        2 => (name.clone(), patch).prop_map(|(name, patch)| RandomApiCall::Merge { name, patch }),
        1 => (name.clone(), steps).prop_map(|(name, steps)| RandomApiCall::Json { name, steps }),
        2 => (name, precondition(), propagation).prop_map(|(name, precondition, propagation)| {
            RandomApiCall::Delete { name, precondition, propagation }
        }),
        1 => selector().prop_map(|selector| RandomApiCall::DeleteAll { selector }),
        1 => selector().prop_map(|selector| RandomApiCall::Watch { selector }),
    ]
}

/// One of the two APIs, with the normalized names of its uids and resourceVersions.
struct ApiUnderTest {
    api: std::sync::Arc<dyn Api>,
    resource: &'static Gvr,
    normalized_names: HashMap<String, String>,
    watches: Vec<(&'static str, u64)>,
}

const OBJECT_NAMES: [&str; 3] = ["a", "b", "c"];

impl ApiUnderTest {
    fn new(api: std::sync::Arc<dyn Api>, resource: &'static Gvr) -> Self {
        Self {
            api,
            resource,
            normalized_names: HashMap::new(),
            watches: Vec::new(),
        }
    }

    fn object_path(&self, name: usize) -> ResourcePath<'static> {
        ResourcePath::object(self.resource, NAMESPACE, OBJECT_NAMES[name])
    }

    /// The object with its uid and resourceVersion numbered in order of appearance.
    fn normalize(&mut self, object: &Object) -> Value {
        let mut value = object.value().unwrap();
        for field in ["uid", "resourceVersion"] {
            let field_value = &mut value["metadata"][field];
            let key = format!("{field}:{field_value}");
            let count = self.normalized_names.len();
            let name = self
                .normalized_names
                .entry(key)
                .or_insert_with(|| format!("{field}{count}"));
            *field_value = name.clone().into();
        }
        value
    }

    fn normalize_result(&mut self, result: Result<Object, Error>) -> Value {
        match result {
            Ok(object) => self.normalize(&object),
            Err(error) => error_summary(&error),
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
        body["metadata"]["name"] = OBJECT_NAMES[name].into();
        body["metadata"]["namespace"] = NAMESPACE.into();
        body
    }

    fn has_spec(&self) -> bool {
        self.resource != &CONFIGMAPS
    }

    /// A patch for this resource: integers in a spec, strings in data.
    fn resolve_placeholder(&self, patch: &Value) -> Value {
        let mut text = patch.to_string();
        if self.has_spec() {
            text = text.replace(CONTENT_PLACEHOLDER, "spec");
            for digit in ["5", "7", "8"] {
                text = text.replace(&format!("\"{digit}\""), digit);
            }
        } else {
            text = text.replace(CONTENT_PLACEHOLDER, "data");
        }
        machinery::json::from_str(&text).unwrap()
    }

    async fn current_object(&self, name: usize) -> Option<Object> {
        self.api.get(self.object_path(name)).await.ok()
    }

    /// Sets the resourceVersion and uid of a precondition in a body.
    async fn set_precondition(
        &self,
        body: &mut Value,
        name: usize,
        precondition: WritePrecondition,
    ) {
        let present = self.current_object(name).await;
        let revision = present.as_ref().map_or(7, |o| o.revision());
        let revision = match precondition {
            WritePrecondition::Stale => revision - 1,
            _ => revision,
        };
        body["metadata"]["resourceVersion"] = revision.to_string().into();
        if matches!(precondition, WritePrecondition::OtherUid) {
            body["metadata"]["uid"] = "someone-else".into();
        } else if let Some(fields) = body["metadata"].as_object_mut() {
            fields.remove("uid");
        }
    }

    async fn perform(&mut self, (call, dry_run): &RandomRequest) -> Value {
        let options = WriteOptions {
            dry_run: *dry_run,
            ..WriteOptions::default()
        };
        let api = std::sync::Arc::clone(&self.api);
        let all = ResourcePath::collection(self.resource, NAMESPACE);
        match call {
            RandomApiCall::Create { name, value, more } => {
                let body = self.body(*name, *value, more);
                let created = api.create(all, body.into(), &options).await;
                self.normalize_write(created, *dry_run)
            }
            RandomApiCall::Get { name } => {
                let read = api.get(self.object_path(*name)).await;
                self.normalize_result(read)
            }
            RandomApiCall::List { selector, limit } => self.list(selector, *limit).await,
            RandomApiCall::Update {
                name,
                value,
                more,
                precondition,
            } => {
                let mut body = self.body(*name, *value, more);
                self.set_precondition(&mut body, *name, *precondition).await;
                let done = api
                    .update(self.object_path(*name), body.into(), &options)
                    .await;
                self.normalize_write(done, *dry_run)
            }
            // The fake has a status subresource for every resource.
            RandomApiCall::Status { .. } if !self.has_spec() => Value::Null,
            RandomApiCall::Status {
                name,
                value,
                precondition,
            } => {
                let mut body = self.body(*name, 9, &json!({"labels": {"of": "status"}}));
                body["status"] = json!({"seen": value});
                self.set_precondition(&mut body, *name, *precondition).await;
                let path = self.object_path(*name).subresource("status");
                let done = api.update(path, body.into(), &options).await;
                self.normalize_write(done, *dry_run)
            }
            RandomApiCall::Merge { name, patch } => {
                let patch = Patch::Merge(self.resolve_placeholder(patch));
                let done = api.patch(self.object_path(*name), patch, &options).await;
                self.normalize_write(done, *dry_run)
            }
            RandomApiCall::Json { name, steps } => {
                let patch = Patch::Json(self.resolve_placeholder(steps));
                let result = api.patch(self.object_path(*name), patch, &options).await;
                self.normalize_write(result, *dry_run)
            }
            RandomApiCall::Delete {
                name,
                precondition,
                propagation,
            } => {
                self.delete(*name, *precondition, *propagation, *dry_run)
                    .await
            }
            RandomApiCall::DeleteAll { selector } => {
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
                    Err(error) => error_summary(&error),
                }
            }
            RandomApiCall::Watch { selector } => {
                let list = api.list(all, &ListOptions::default()).await.unwrap();
                self.watches.push((selector, list.revision));
                Value::Null
            }
        }
    }

    /// The resourceVersion and uid in the result of a dry run are never seen again.
    fn normalize_write(&mut self, result: Result<Object, Error>, dry_run: bool) -> Value {
        match result {
            Ok(object) if dry_run => {
                let mut value = object.value().unwrap();
                let fields = value["metadata"].as_object_mut().unwrap();
                fields.remove("uid");
                fields.remove("resourceVersion");
                value
            }
            result => self.normalize_result(result),
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
            let all = ResourcePath::collection(self.resource, NAMESPACE);
            let page = self.api.list(all, &options).await.unwrap();
            // The server has its own objects in this namespace, too.
            let objects = page
                .items
                .iter()
                .filter(|o| OBJECT_NAMES.contains(&o.name()));
            let objects: Vec<Value> = objects.map(|o| self.normalize(o)).collect();
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
        precondition: WritePrecondition,
        propagation: Option<DeletionPropagation>,
        dry_run: bool,
    ) -> Value {
        let revision = self.current_object(name).await.map_or(7, |o| o.revision());
        let mut options = DeleteOptions {
            propagation,
            dry_run,
            ..DeleteOptions::default()
        };
        match precondition {
            WritePrecondition::None => {}
            WritePrecondition::Current => options.resource_version = Some(revision.to_string()),
            WritePrecondition::Stale => options.resource_version = Some((revision - 1).to_string()),
            WritePrecondition::OtherUid => options.uid = Some("someone-else".into()),
        }
        match self.api.delete(self.object_path(name), &options).await {
            Ok(None) => Value::Null,
            Ok(Some(left)) => self.normalize_write(Ok(left), dry_run),
            Err(error) => error_summary(&error),
        }
    }

    /// The events of all watches, up to the last object.
    async fn events(&mut self) -> Value {
        let mut body = self.body(0, 1, &json!({"labels": {"tier": "x"}}));
        body["metadata"]["name"] = LAST_OBJECT_NAME.into();
        let mut all = Vec::new();
        let path = ResourcePath::collection(self.resource, NAMESPACE);
        let created = self
            .api
            .create(path, body.into(), &WriteOptions::default())
            .await;
        created.unwrap();
        for (selector, revision) in self.watches.clone() {
            let options = WatchOptions {
                label_selector: selector.into(),
                resource_version: revision.to_string(),
                ..WatchOptions::default()
            };
            let mut events = Vec::new();
            if selector != "tier!=x" {
                let mut stream = self.api.watch(path, &options).await.unwrap();
                while let Some(event) = stream.next().await {
                    let (event_type, object) = match event.unwrap() {
                        WatchEvent::Added(object) => ("ADDED", object),
                        WatchEvent::Modified(object) => ("MODIFIED", object),
                        WatchEvent::Deleted(object) => ("DELETED", object),
                        WatchEvent::Bookmark { .. } => continue,
                    };
                    if object.name() == LAST_OBJECT_NAME {
                        break;
                    }
                    events.push(json!([event_type, self.normalize(&object)]));
                }
            }
            all.push(Value::from(events));
        }
        all.into()
    }
}

fn error_summary(error: &Error) -> Value {
    let status = error.status().unwrap();
    json!({"code": status.code, "reason": status.reason})
}

async fn compare(resource: &'static Gvr, steps: &[RandomRequest]) -> Result<(), String> {
    let fixture = fixture().await;
    establish(&fixture).await;
    let fake = FakeApi::new();
    fake.set_now("2026-01-02T03:04:05Z".parse().unwrap());
    let mut real = ApiUnderTest::new(
        LoopbackApi::new(fixture.registry, UserInfo::internal()),
        resource,
    );
    let mut fake = ApiUnderTest::new(fake, resource);
    for (n, step) in steps.iter().enumerate() {
        let (expected, actual) = (real.perform(step).await, fake.perform(step).await);
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
    let step = (random_call(), prop::bool::weighted(0.15));
    let inputs = prop::collection::vec(step, 1..40);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let compared = TestRunner::new(settings).run(&inputs, |steps| {
        let done = runtime.block_on(compare(resource, &steps));
        done.map_err(TestCaseError::fail)
    });
    compared.unwrap_or_else(|message| panic!("{message}"));
}

#[test]
fn the_fake_equals_the_server_for_objects_with_a_status() {
    differential(&THINGS);
}

#[test]
fn the_fake_equals_the_server_for_objects_without_a_spec() {
    differential(&CONFIGMAPS);
}

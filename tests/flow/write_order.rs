//! The order of the writes from a template to the members' objects, and of their status
//! back to the template.

use std::collections::BTreeMap;
use std::time::Duration;

use client::{ListOptions, ResourcePath, WatchEvent, WatchOptions};
use futures_util::{FutureExt, StreamExt, stream};
use machinery::{Gvr, Object};
use serde_json::{Value, json};

use crate::flow::fleet::{ApiServerClient, FleetFixture, find_condition};
use crate::flow::objects::{
    BINDINGS, CONFIG_MAPS, DEPLOYMENTS, WORKS, config_map, deployment, execution_space, policy,
};

const TRANSITION_TIMEOUT: Duration = Duration::from_secs(90);

/// One version of one object; the state `None` is its deletion.
struct ObservedObjectVersion {
    revision: u64,
    resource: &'static Gvr,
    namespace: String,
    name: String,
    state: Option<Value>,
}

/// Every version of the objects of some resources from now on. All of them share the
/// store's revisions, which give the order.
struct ObjectVersionRecorder {
    versions: Vec<ObservedObjectVersion>,
    watches: stream::SelectAll<stream::BoxStream<'static, ObservedObjectVersion>>,
}

impl ObjectVersionRecorder {
    async fn watch(control: &ApiServerClient, places: &[(&'static Gvr, &str)]) -> Self {
        let mut rest = stream::SelectAll::new();
        for (resource, namespace) in places {
            let at = ResourcePath::collection(resource, namespace);
            let list = control.api.list(at, &ListOptions::default()).await;
            let options = WatchOptions {
                resource_version: list.unwrap().revision.to_string(),
                ..WatchOptions::default()
            };
            let watch = control.api.watch(at, &options);
            let resource: &'static Gvr = resource;
            let step = move |object: Object, there: bool| ObservedObjectVersion {
                revision: object.revision(),
                resource,
                namespace: object.namespace().to_owned(),
                name: object.name().to_owned(),
                state: there.then(|| object.value().unwrap()),
            };
            let steps = watch.await.unwrap().filter_map(move |event| {
                let transition = match event.unwrap() {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                        Some(step(object, true))
                    }
                    WatchEvent::Deleted(object) => Some(step(object, false)),
                    WatchEvent::Bookmark { .. } => None,
                };
                std::future::ready(transition)
            });
            rest.push(steps.boxed());
        }
        Self {
            versions: Vec::new(),
            watches: rest,
        }
    }

    /// Waits for the first transition that matches and returns its revision.
    async fn wait_for_first(
        &mut self,
        description: &str,
        so: impl Fn(&ObservedObjectVersion) -> bool,
    ) -> u64 {
        let first_write = async {
            loop {
                if let Some(step) = self.versions.iter().find(|step| so(step)) {
                    return step.revision;
                }
                let next = self.watches.next().await.unwrap();
                self.versions.push(next);
            }
        };
        let first_write = tokio::time::timeout(TRANSITION_TIMEOUT, first_write).await;
        assert!(first_write.is_ok(), "never: {description}");
        first_write.unwrap()
    }

    /// All transitions up to now, in the order of revisions.
    fn drain_versions(&mut self) -> &[ObservedObjectVersion] {
        while let Some(Some(next)) = self.watches.next().now_or_never() {
            self.versions.push(next);
        }
        self.versions.sort_by_key(|step| step.revision);
        &self.versions
    }
}

fn is_version_of(step: &ObservedObjectVersion, resource: &Gvr, name: &str) -> bool {
    step.resource == resource && step.name == name
}

fn object_state(step: &ObservedObjectVersion) -> &Value {
    step.state.as_ref().unwrap_or(&Value::Null)
}

fn has_label(value: &Value, key: &str) -> bool {
    value["metadata"]["labels"][key].is_string()
}

fn assert_order(all: &[(&str, u64)]) {
    for pair in all.windows(2) {
        assert!(
            pair[0].1 < pair[1].1,
            "{} and then {}",
            pair[0].0,
            pair[1].0
        );
    }
}

// proves: ORD-claim, ORD-placed, ORD-ids, ORD-works, ORD-applied, ORD-back, ORD-no-finalizer
#[tokio::test]
async fn writes_go_from_the_template_to_members_and_back() {
    let ns = "order";
    let fleet = FleetFixture::shared(ns).await;
    crate::flow::fleet::wait_for_namespace(&fleet, ns).await;
    let control = &fleet.control;
    let spaces = ["member1", "member2"].map(execution_space);
    let mut history = ObjectVersionRecorder::watch(
        control,
        &[
            (&DEPLOYMENTS, ns),
            (&BINDINGS, ns),
            (&WORKS, &spaces[0]),
            (&WORKS, &spaces[1]),
        ],
    )
    .await;
    let web = deployment(ns, "web", 1);
    let work = karmada_api::names::work_name("Deployment", "web", ns);
    control
        .create(policy(ns, "p", &web, &["member1", "member2"]))
        .await;
    control.create(web).await;

    let binding = "web-deployment";
    let of_binding = |step: &ObservedObjectVersion| is_version_of(step, &BINDINGS, binding);
    let of_template = |step: &ObservedObjectVersion| is_version_of(step, &DEPLOYMENTS, "web");
    let claimed = history
        .wait_for_first("a claim", |s| {
            of_template(s)
                && has_label(object_state(s), "propagationpolicy.karmada.io/permanent-id")
        })
        .await;
    let bound = history.wait_for_first("a binding", of_binding).await;
    let placed = history
        .wait_for_first("a placement", |s| {
            of_binding(s)
                && object_state(s)["spec"]["clusters"]
                    .as_array()
                    .is_some_and(|c| c.len() == 2)
        })
        .await;
    let scheduled = history
        .wait_for_first("the condition Scheduled", |s| {
            of_binding(s) && find_condition(object_state(s), "Scheduled")["status"] == "True"
        })
        .await;
    let mut works = BTreeMap::new();
    for space in &spaces {
        let of_work =
            |s: &ObservedObjectVersion| is_version_of(s, &WORKS, &work) && s.namespace == *space;
        let created = history.wait_for_first("a work", of_work).await;
        let dispatching = history
            .wait_for_first("dispatching", |s| {
                of_work(s) && find_condition(object_state(s), "Dispatching")["status"] == "True"
            })
            .await;
        let applied = history
            .wait_for_first("applied", |s| {
                of_work(s) && find_condition(object_state(s), "Applied")["status"] == "True"
            })
            .await;
        let reported = history
            .wait_for_first("a report", |s| {
                of_work(s)
                    && object_state(s)["status"]["manifestStatuses"][0]["health"] == "Healthy"
            })
            .await;
        assert!(dispatching <= applied);
        works.insert(space.clone(), [created, applied, reported]);
    }
    let reported = history
        .wait_for_first("all reports on the binding", |s| {
            let all = object_state(s)["status"]["aggregatedStatus"].as_array();
            of_binding(s)
                && all.is_some_and(|all| {
                    all.len() == 2 && all.iter().all(|i| i["health"] == "Healthy")
                })
        })
        .await;
    let fully = history
        .wait_for_first("fully applied", |s| {
            of_binding(s) && find_condition(object_state(s), "FullyApplied")["status"] == "True"
        })
        .await;
    let summed = history
        .wait_for_first("the aggregated status", |s| {
            of_template(s) && object_state(s)["status"]["readyReplicas"] == 2
        })
        .await;
    assert_order(&[("the claim", claimed), ("the binding", bound)]);
    assert!(bound <= placed && placed <= scheduled);
    for [created, applied, reflected] in works.values() {
        assert_order(&[
            ("the placement", placed),
            ("a work", *created),
            ("its object", *applied),
        ]);
        assert_order(&[("its object", *applied), ("its report", *reflected)]);
        assert_order(&[
            ("a report", *reflected),
            ("all reports on the binding", reported),
        ]);
        assert_order(&[("a report", *reflected), ("the aggregated status", summed)]);
        assert_order(&[("its object", *applied), ("all applied", fully)]);
    }
    for step in history.drain_versions() {
        let value = object_state(step);
        let id = match step.resource {
            r if *r == BINDINGS => "resourcebinding.karmada.io/permanent-id",
            r if *r == WORKS && step.name == work => "work.karmada.io/permanent-id",
            r if *r == DEPLOYMENTS => {
                assert!(value["metadata"]["finalizers"].is_null(), "{value:#}");
                continue;
            }
            _ => continue,
        };
        assert!(has_label(value, id), "no {id}: {value:#}");
    }
}

// proves: ORD-deletion
#[tokio::test]
async fn deletion_goes_from_the_template_to_the_members() {
    let ns = "order-end";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let space = execution_space("member1");
    let mut history = ObjectVersionRecorder::watch(
        control,
        &[(&CONFIG_MAPS, ns), (&BINDINGS, ns), (&WORKS, &space)],
    )
    .await;
    let map = config_map(ns, "c", "v");
    let work = karmada_api::names::work_name("ConfigMap", "c", ns);
    control.create(policy(ns, "p", &map, &["member1"])).await;
    control.create(map).await;
    let one = fleet.member("member1");
    one.wait_until_exists(&CONFIG_MAPS, ns, "c").await;
    // A finalizer keeps the object in the member.
    let with_finalizer = json!({"metadata": {"finalizers": ["example.org/hold"]}});
    one.merge_patch(&CONFIG_MAPS, ns, "c", with_finalizer).await;
    control.delete(&CONFIG_MAPS, ns, "c").await;
    let gone = |resource: &'static Gvr, name: &str| {
        let name = name.to_owned();
        move |s: &ObservedObjectVersion| is_version_of(s, resource, &name) && s.state.is_none()
    };
    let template = history
        .wait_for_first("its end", gone(&CONFIG_MAPS, "c"))
        .await;
    let leaving = history
        .wait_for_first("the work's deletion", |s| {
            is_version_of(s, &WORKS, &work)
                && object_state(s)["metadata"]["deletionTimestamp"].is_string()
        })
        .await;
    let binding = history
        .wait_for_first("the binding's end", gone(&BINDINGS, "c-configmap"))
        .await;
    let ended = history
        .wait_for_first("the work's end", gone(&WORKS, &work))
        .await;
    assert_order(&[
        ("the template", template),
        ("the work's deletion", leaving),
        ("the binding", binding),
    ]);
    assert_order(&[("the work's deletion", leaving), ("its end", ended)]);
    let going = one.get(&CONFIG_MAPS, ns, "c").await.unwrap();
    assert!(going["metadata"]["deletionTimestamp"].is_string());
    let no_finalizers = json!({"metadata": {"finalizers": null}});
    one.merge_patch(&CONFIG_MAPS, ns, "c", no_finalizers).await;
    one.wait_until_deleted(&CONFIG_MAPS, ns, "c").await;
}

// proves: ORD-dependencies
#[tokio::test]
async fn dependencies_are_annotated_before_they_are_bound() {
    let ns = "order-dependencies";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let mut history = ObjectVersionRecorder::watch(control, &[(&BINDINGS, ns)]).await;
    let mut web = deployment(ns, "web", 1);
    web["spec"]["template"]["spec"]["containers"][0]["envFrom"] =
        json!([{"configMapRef": {"name": "c"}}]);
    let mut with_deps = policy(ns, "p", &web, &["member1"]);
    with_deps["spec"]["propagateDeps"] = true.into();
    control.create(with_deps).await;
    control.create(config_map(ns, "c", "v")).await;
    control.create(web).await;
    let placed = history
        .wait_for_first("a placement", |s| {
            is_version_of(s, &BINDINGS, "web-deployment")
                && object_state(s)["spec"]["clusters"].is_array()
        })
        .await;
    let noted = history
        .wait_for_first("the annotation of dependencies", |s| {
            let metadata = &object_state(s)["metadata"];
            let finalizers = metadata["finalizers"].as_array();
            is_version_of(s, &BINDINGS, "web-deployment")
                && metadata["annotations"]["resourcebinding.karmada.io/dependencies"].is_string()
                && finalizers.is_some_and(|f| {
                    f.iter()
                        .any(|f| f == "karmada.io/binding-dependencies-distributor")
                })
        })
        .await;
    let attached = history
        .wait_for_first("the attached binding", |s| {
            is_version_of(s, &BINDINGS, "c-configmap")
        })
        .await;
    assert_order(&[
        ("the placement", placed),
        ("the annotation of dependencies", noted),
        ("the attached binding", attached),
    ]);
}

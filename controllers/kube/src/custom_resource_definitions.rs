//! The controller of CustomResourceDefinitions: accepts their names, sets their conditions
//! and deletes their instances with them.

use std::sync::Arc;
use std::time::Duration;

use client::{Api, DeleteOptions, Error, ListOptions, ResourcePath, WriteOptions};
use flotilla_runtime::{
    Informer, InformerFactory, ListWatchSelector, ReconcileAction, TaskGroup, Workqueue,
    remove_finalizers, run_workers,
};
use machinery::conditions::set_json_condition;
use machinery::time::{Clock, rfc3339_seconds};
use machinery::{Gvr, Object};
use openapi::{
    ApiApproval, NameConflict, ResourceNames, is_protected_community_group, shadows_built_in,
};
use serde_json::{Map, Value, json};

use crate::shutdown_waits::wait_for_cache_sync;

pub(crate) static DEFINITIONS: Gvr =
    Gvr::from_static("apiextensions.k8s.io", "v1", "customresourcedefinitions");
const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
const API_APPROVAL_CONDITION: &str = "KubernetesAPIApprovalPolicyConformant";
const CONTENT_RECHECK_INTERVAL: Duration = Duration::from_millis(200);

/// The groups of built-in kinds that this server serves.
#[derive(Clone, Copy)]
pub(crate) struct ServedBuiltInGroups {
    pub(crate) serves: fn(&str) -> bool,
}

impl ServedBuiltInGroups {
    /// The names of the built-in kinds of a group.
    fn names_in(self, group: &str) -> Vec<ResourceNames> {
        match (self.serves)(group) {
            true => openapi::catalog().names_in_group(group),
            false => Vec::new(),
        }
    }

    /// Whether a resource is a built-in one.
    pub(crate) fn contains(self, resource: &Gvr) -> bool {
        let all = self.names_in(&resource.group);
        all.iter().any(|names| *names.plural == *resource.resource)
    }
}

struct CustomResourceDefinitionController {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    built_in: ServedBuiltInGroups,
    informer: Informer,
}

pub(crate) fn start(
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    built_in: ServedBuiltInGroups,
    informers: &InformerFactory,
    tasks: &TaskGroup,
) {
    let informer = informers.get(&api, &ListWatchSelector::all(&DEFINITIONS));
    let queue: Workqueue<String> = Workqueue::new();
    let (wake, all) = (queue.clone(), informer.clone());
    informer.add_event_handler(move |change| {
        if change.new.is_some() {
            wake.add_to_lane(change.key(), change.in_initial_list);
        }
        // A change may have freed names.
        if !change.in_initial_list {
            for other in all.list_where(has_name_conflict) {
                wake.add(other.meta().key());
            }
        }
    });
    let it = Arc::new(CustomResourceDefinitionController {
        api,
        clock,
        built_in,
        informer,
    });
    let workers = tasks.clone();
    tasks.spawn(async move {
        if !wait_for_cache_sync(&workers, [&it.informer]).await {
            return;
        }
        run_workers(&workers, "definitions", &queue, 1, move |key: String| {
            let it = Arc::clone(&it);
            async move { it.reconcile(&key).await }
        });
    });
}

impl CustomResourceDefinitionController {
    async fn reconcile(&self, name: &str) -> Result<ReconcileAction, Error> {
        let Some(object) = self.informer.get("", name) else {
            return Ok(ReconcileAction::Done);
        };
        if object.meta().deleting {
            return self.finalize(&object).await;
        }
        let mut value = object.value()?;
        let desired = |all: Vec<Object>| {
            let others: Result<Vec<Value>, _> = all
                .iter()
                .filter(|o| o.name() != name)
                .map(Object::value)
                .collect();
            let group = value["spec"]["group"].as_str().unwrap_or_default();
            let built_in = self.built_in.names_in(group);
            let now = rfc3339_seconds(self.clock.now());
            others.map(|others| desired_status(&value, &others, &built_in, &now))
        };
        if value["status"] != desired(self.informer.list())? {
            // The informer may not show a name yet that was accepted a moment ago.
            let all = ResourcePath::collection(&DEFINITIONS, "");
            let fresh = self.api.list(all, &ListOptions::default()).await?;
            let status = desired(fresh.items)?;
            value["status"] = status;
            let at = ResourcePath::object(&DEFINITIONS, "", name);
            self.api
                .update(
                    at.subresource("status"),
                    value.into(),
                    &WriteOptions::default(),
                )
                .await?;
        }
        Ok(ReconcileAction::Done)
    }

    /// Deletes the instances of a definition before the definition itself. A definition that
    /// was never established has none, and objects stored under the name of a built-in kind
    /// are not its instances.
    async fn finalize(&self, object: &Object) -> Result<ReconcileAction, Error> {
        let value = object.value()?;
        let group = value["spec"]["group"].as_str().unwrap_or_default();
        let shadows = shadows_built_in(&value, &self.built_in.names_in(group));
        let resource = (is_established(&value) && !shadows).then(|| served_resource(&value));
        if let Some(resource) = resource.flatten() {
            let all = ResourcePath::collection(&resource, "");
            let options = DeleteOptions::default();
            let first = ListOptions {
                limit: 1,
                ..ListOptions::default()
            };
            let everything = ListOptions::default();
            let deleted = self.api.delete_collection(all, &options, &everything);
            match deleted.await {
                Err(e) if !e.is_not_found() => return Err(e),
                Err(_) => {}
                Ok(()) => {
                    if !self.api.list(all, &first).await?.items.is_empty() {
                        return Ok(ReconcileAction::RequeueAfter(CONTENT_RECHECK_INTERVAL));
                    }
                }
            }
        }
        remove_finalizers(&*self.api, &DEFINITIONS, object, &[FINALIZER]).await?;
        Ok(ReconcileAction::Done)
    }
}

fn has_condition(definition: &Value, kind: &str, status: &str) -> bool {
    let all = definition["status"]["conditions"].as_array();
    all.is_some_and(|all| {
        all.iter()
            .any(|c| c["type"] == kind && c["status"] == status)
    })
}

fn is_established(definition: &Value) -> bool {
    has_condition(definition, "Established", "True")
}

fn has_name_conflict(definition: &Object) -> bool {
    let value = definition.value();
    value.is_ok_and(|d| has_condition(&d, "NamesAccepted", "False"))
}

/// Group and plural name of an established definition.
pub(crate) fn established_resource(definition: &Object) -> Option<(String, String)> {
    let value = definition.value().ok()?;
    let text = |v: &Value| v.as_str().map(str::to_owned);
    let spec = &value["spec"];
    is_established(&value).then_some(())?;
    Some((text(&spec["group"])?, text(&spec["names"]["plural"])?))
}

/// The resource by which the instances of a definition are accessed: in the storage
/// version, or in another one if that is not served.
fn served_resource(definition: &Value) -> Option<Gvr> {
    let spec = &definition["spec"];
    let versions = spec["versions"].as_array()?;
    let mut served = versions.iter().filter(|v| v["served"] == true);
    let stored = served.clone().find(|v| v["storage"] == true);
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    Some(Gvr::new(
        text(&spec["group"]),
        text(&stored.or_else(|| served.next())?["name"]),
        text(&spec["names"]["plural"]),
    ))
}

/// Which names of a definition are accepted.
struct NameAcceptance {
    /// `status.acceptedNames`
    accepted: Value,
    /// Reason and message of `NamesAccepted=False`.
    conflict: Option<(&'static str, String)>,
}

/// Accepts each name that is free in the group; an accepted name stays accepted. The names
/// of built-in kinds are never accepted, even if they were before.
fn accept_names(
    definition: &Value,
    others: &[Value],
    built_in: &[ResourceNames],
) -> NameAcceptance {
    let (spec, before) = (&definition["spec"], &definition["status"]["acceptedNames"]);
    let requested = ResourceNames::from(&spec["names"]);
    let same_group = others
        .iter()
        .filter(|o| o["spec"]["group"] == spec["group"]);
    let taken: Vec<ResourceNames> = same_group
        .map(|o| ResourceNames::from(&o["status"]["acceptedNames"]))
        .collect();
    let reserved = requested.conflicts(built_in);
    let granted = |c: &NameConflict| {
        let (had, wants) = (&before[c.field], &spec["names"][c.field]);
        let among = had
            .as_array()
            .is_some_and(|all| all.contains(&json!(c.name)));
        among || had == wants
    };
    let mut in_use = requested.conflicts(&taken);
    in_use.retain(|conflict| !granted(conflict));

    let mut accepted = match before.as_object() {
        Some(names) if !shadows_built_in(definition, built_in) => names.clone(),
        _ => Map::from_iter([("plural".into(), "".into()), ("kind".into(), "".into())]),
    };
    for field in [
        "plural",
        "singular",
        "shortNames",
        "kind",
        "listKind",
        "categories",
    ] {
        if reserved.iter().chain(&in_use).any(|c| c.field == field) {
            continue;
        }
        match &spec["names"][field] {
            Value::Null => accepted.remove(field),
            name => accepted.insert(field.into(), name.clone()),
        };
    }
    let own = reserved.first().map(|c| {
        let message = format!(
            "{:?} is already in use by a built-in kind of this server, which no definition replaces",
            c.name
        );
        (c.reason, message)
    });
    let theirs = in_use.last();
    let theirs = theirs.map(|c| (c.reason, format!("{:?} is already in use", c.name)));
    NameAcceptance {
        accepted: accepted.into(),
        conflict: own.or(theirs),
    }
}

/// The desired status of a definition.
fn desired_status(
    definition: &Value,
    others: &[Value],
    built_in: &[ResourceNames],
    now: &str,
) -> Value {
    let before = &definition["status"];
    let NameAcceptance { accepted, conflict } = accept_names(definition, others, built_in);
    let was = is_established(definition) && !shadows_built_in(definition, built_in);
    let mut status = before.as_object().cloned().unwrap_or_default();
    status.insert("acceptedNames".into(), accepted);
    status.insert("storedVersions".into(), stored_versions(definition));
    let served = if conflict.is_none() || was {
        (
            "Established",
            true,
            "InitialNamesAccepted",
            "the initial names have been accepted".to_owned(),
        )
    } else {
        (
            "Established",
            false,
            "NotAccepted",
            "not all names are accepted".to_owned(),
        )
    };
    let names = match conflict {
        None => (
            "NamesAccepted",
            true,
            "NoConflicts",
            "no conflicts found".to_owned(),
        ),
        Some((reason, message)) => ("NamesAccepted", false, reason, message),
    };
    let conditions = status.entry("conditions").or_insert(Value::Null);
    for (kind, yes, reason, message) in [names, served] {
        let value = if yes { "True" } else { "False" };
        let condition = json!({"type": kind, "status": value, "lastTransitionTime": now,
            "reason": reason, "message": message});
        set_json_condition(conditions, condition);
    }
    if is_protected_community_group(definition["spec"]["group"].as_str().unwrap_or_default()) {
        let approval = ApiApproval::of(definition);
        let (conforms, reason) = approval.condition();
        let condition = json!({"type": API_APPROVAL_CONDITION,
            "status": if conforms { "True" } else { "False" }, "lastTransitionTime": now,
            "reason": reason, "message": approval.message(definition)});
        set_json_condition(conditions, condition);
    }
    Value::Object(status)
}

/// Every version in which instances have been stored so far.
fn stored_versions(definition: &Value) -> Value {
    let known = definition["status"]["storedVersions"].as_array();
    let mut stored = known.cloned().unwrap_or_default();
    let versions = definition["spec"]["versions"].as_array();
    for version in versions.into_iter().flatten() {
        if version["storage"] == true && !stored.contains(&version["name"]) {
            stored.push(version["name"].clone());
        }
    }
    stored.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(plural: &str, kind: &str) -> Value {
        json!({"spec": {"group": "g.io", "names": {"plural": plural, "singular": plural.trim_end_matches('s'), "kind": kind, "listKind": format!("{kind}List")},
                        "versions": [{"name": "v1", "served": true, "storage": true}]}})
    }

    fn accepted(mut definition: Value, others: &[Value]) -> Value {
        definition["status"] = desired_status(&definition, others, &[], "t1");
        definition
    }

    #[test]
    fn free_names_are_accepted_and_served() {
        let one = accepted(definition("things", "Thing"), &[]);
        assert!(is_established(&one));
        assert_eq!(one["status"]["storedVersions"], json!(["v1"]));
        assert_eq!(
            desired_status(&one, &[], &[], "t2"),
            one["status"],
            "nothing changes with time alone"
        );
    }

    #[test]
    fn definitions_of_the_project_have_a_condition_about_their_approval() {
        for (annotation, status, reason) in [
            ("https://a.b/c", "True", "ApprovedAnnotation"),
            ("unapproved", "False", "UnapprovedAnnotation"),
            ("", "False", "MissingAnnotation"),
            ("yes", "False", "InvalidAnnotation"),
        ] {
            let mut one = definition("things", "Thing");
            one["spec"]["group"] = json!("x.k8s.io");
            one["metadata"]["annotations"]["api-approved.kubernetes.io"] = json!(annotation);
            let one = accepted(one, &[]);
            assert!(is_established(&one));
            let condition = &one["status"]["conditions"][2];
            assert_eq!(
                (&condition["status"], &condition["reason"]),
                (&json!(status), &json!(reason))
            );
        }
    }

    #[test]
    fn the_first_definition_keeps_a_name() {
        let one = accepted(definition("things", "Thing"), &[]);
        for (second, reason) in [
            (definition("things", "Other"), "SingularConflict"),
            (definition("others", "Thing"), "ListKindConflict"),
        ] {
            let second = accepted(second, std::slice::from_ref(&one));
            assert!(!is_established(&second), "{second}");
            assert_eq!(second["status"]["conditions"][0]["reason"], reason);
        }
    }

    #[test]
    fn accepted_names_stay_and_free_names_are_accepted() {
        let one = accepted(definition("things", "Thing"), &[]);
        let mut other = accepted(definition("others", "Other"), std::slice::from_ref(&one));
        other["spec"]["names"]["shortNames"] = json!(["thing"]);
        other["spec"]["names"]["categories"] = json!(["all"]);
        let other = accepted(other, &[one]);
        assert!(is_established(&other));
        let status = &other["status"];
        assert_eq!(status["conditions"][0]["reason"], "ShortNamesConflict");
        assert_eq!(
            status["acceptedNames"],
            json!({"plural": "others", "singular": "other", "kind": "Other",
                   "listKind": "OtherList", "categories": ["all"]})
        );
    }

    #[test]
    fn names_of_built_in_kinds_are_never_accepted() {
        let built_in = [ResourceNames::from(
            &definition("things", "Thing")["spec"]["names"],
        )];
        let served_before = accepted(definition("things", "Thing"), &[]);
        let fresh = |plural: &str, kind: &str| definition(plural, kind);
        for (refused, reason) in [
            (fresh("things", "Other"), "PluralConflict"),
            (fresh("thing", "Other"), "PluralConflict"),
            (fresh("others", "Thing"), "KindConflict"),
            (served_before, "PluralConflict"),
        ] {
            let status = desired_status(&refused, &[], &built_in, "t2");
            assert_eq!(status["conditions"][0]["status"], "False", "{status}");
            assert_eq!(status["conditions"][0]["reason"], reason);
            assert_eq!(status["conditions"][1]["status"], "False", "{status}");
            let again = json!({"spec": refused["spec"], "status": status});
            assert_eq!(desired_status(&again, &[], &built_in, "t3"), status);
        }
    }

    #[test]
    fn instances_are_accessed_in_a_served_version() {
        let mut one = definition("things", "Thing");
        let version = |d: &Value| served_resource(d).map(|r| r.version.to_string());
        assert_eq!(version(&one).as_deref(), Some("v1"));
        one["spec"]["versions"][0]["served"] = json!(false);
        assert_eq!(version(&one), None);
        let second = json!({"name": "v2", "served": true, "storage": false});
        one["spec"]["versions"].as_array_mut().unwrap().push(second);
        assert_eq!(version(&one).as_deref(), Some("v2"));
    }
}

//! Custom resource definitions: whether their names are free, when they are
//! served, and the removal of their instances (contract F5.1, F5.2, F5.12).

use std::sync::Arc;
use std::time::Duration;

use client::{Api, At, DeleteOptions, Error, ListOptions, WriteOptions};
use machinery::time::{Clock, rfc3339_seconds};
use machinery::{Gvr, Object};
use runtime::{Action, Informer, Informers, Queue, Select, Tasks, run_workers};
use serde_json::{Value, json};

use crate::start::synced;

pub(crate) static DEFINITIONS: Gvr =
    Gvr::constant("apiextensions.k8s.io", "v1", "customresourcedefinitions");
const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
const LOOK_AGAIN: Duration = Duration::from_millis(200);

struct Definitions {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    informer: Informer,
}

pub(crate) fn start(
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    informers: &Informers,
    tasks: &Tasks,
) {
    let informer = informers.get(&api, &Select::all(&DEFINITIONS));
    let queue: Queue<String> = Queue::new();
    let (wake, all) = (queue.clone(), informer.clone());
    informer.on_change(move |change| {
        if change.new.is_some() {
            wake.add_lane(change.key(), change.initial);
        }
        // Names may have become free.
        if !change.initial {
            for other in all.list_where(refused) {
                wake.add(other.head().key());
            }
        }
    });
    let it = Arc::new(Definitions {
        api,
        clock,
        informer,
    });
    let workers = tasks.clone();
    tasks.spawn(async move {
        if !synced(&workers, [&it.informer]).await {
            return;
        }
        run_workers(&workers, "definitions", &queue, 1, move |key: String| {
            let it = Arc::clone(&it);
            async move { it.reconcile(&key).await }
        });
    });
}

impl Definitions {
    async fn reconcile(&self, name: &str) -> Result<Action, Error> {
        let Some(object) = self.informer.get("", name) else {
            return Ok(Action::Done);
        };
        let mut value = object.value()?;
        let at = At::one(&DEFINITIONS, "", name);
        if object.head().deleting {
            return self.clean_up(at, &value).await;
        }
        let finalizers = value["metadata"]["finalizers"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        if !finalizers.iter().any(|f| f == FINALIZER) {
            let mut all = finalizers;
            all.push(FINALIZER.into());
            value["metadata"]["finalizers"] = all.into();
            value = self
                .api
                .update(at, value, &WriteOptions::default())
                .await?
                .value()?;
        }
        let judge = |all: Vec<Object>| {
            let others: Result<Vec<Value>, _> = all
                .iter()
                .filter(|o| o.name() != name)
                .map(Object::value)
                .collect();
            others.map(|others| judge(&value, &others, &rfc3339_seconds(self.clock.now())))
        };
        if value["status"] != judge(self.informer.list())? {
            // A name given away a moment ago may not have come back to us yet.
            let all = At::all(&DEFINITIONS, "");
            let fresh = self.api.list(all, &ListOptions::default()).await?;
            let status = judge(fresh.items)?;
            value["status"] = status;
            self.api
                .update(at.sub("status"), value, &WriteOptions::default())
                .await?;
        }
        Ok(Action::Done)
    }

    async fn clean_up(&self, at: At<'_>, value: &Value) -> Result<Action, Error> {
        let spec = &value["spec"];
        let text = |v: &Value| v.as_str().unwrap_or("").to_owned();
        let stored = spec["versions"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|v| v["storage"] == true);
        if let Some(version) = stored {
            let resource = Gvr::new(
                text(&spec["group"]),
                text(&version["name"]),
                text(&spec["names"]["plural"]),
            );
            let all = At::all(&resource, "");
            let options = DeleteOptions::default();
            match self
                .api
                .delete_collection(all, &options, &ListOptions::default())
                .await
            {
                Err(e) if !e.is_not_found() => return Err(e),
                Err(_) => {}
                Ok(())
                    if self
                        .api
                        .list(
                            all,
                            &ListOptions {
                                limit: 1,
                                ..ListOptions::default()
                            },
                        )
                        .await?
                        .items
                        .is_empty() => {}
                Ok(()) => return Ok(Action::After(LOOK_AGAIN)),
            }
        }
        let mut value = value.clone();
        let kept: Vec<Value> = value["metadata"]["finalizers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|f| *f != FINALIZER)
            .cloned()
            .collect();
        value["metadata"]["finalizers"] = kept.into();
        match self.api.update(at, value, &WriteOptions::default()).await {
            Err(e) if !e.is_not_found() => Err(e),
            _ => Ok(Action::Done),
        }
    }
}

fn condition(definition: &Value, kind: &str, verdict: &str) -> bool {
    let all = definition["status"]["conditions"].as_array();
    all.is_some_and(|all| {
        all.iter()
            .any(|c| c["type"] == kind && c["status"] == verdict)
    })
}

fn established(definition: &Value) -> bool {
    condition(definition, "Established", "True")
}

fn refused(definition: &Object) -> bool {
    let value = definition.value();
    value.is_ok_and(|d| condition(&d, "NamesAccepted", "False"))
}

/// Group and plural name of a definition whose instances are served.
pub(crate) fn served(definition: &Object) -> Option<(String, String)> {
    let value = definition.value().ok()?;
    let text = |v: &Value| v.as_str().map(str::to_owned);
    let spec = &value["spec"];
    established(&value).then_some(())?;
    Some((text(&spec["group"])?, text(&spec["names"]["plural"])?))
}

/// A name that another definition of the group holds already; first come, first
/// served.
fn taken(names: &Value, others: &[&Value]) -> Option<String> {
    for other in others {
        let accepted = &other["status"]["acceptedNames"];
        let resource_names = |n: &Value| -> Vec<String> {
            let short = n["shortNames"].as_array().into_iter().flatten();
            [&n["plural"], &n["singular"]]
                .into_iter()
                .chain(short)
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect()
        };
        let held = resource_names(accepted);
        if let Some(name) = resource_names(names)
            .into_iter()
            .find(|n| !n.is_empty() && held.contains(n))
        {
            return Some(format!("{name:?} is already in use"));
        }
        let held = [&accepted["kind"], &accepted["listKind"]];
        if let Some(kind) = [&names["kind"], &names["listKind"]]
            .into_iter()
            .find(|k| k.is_string() && held.contains(k))
        {
            return Some(format!("{kind} is already in use"));
        }
    }
    None
}

/// The status that is true now.
fn judge(definition: &Value, others: &[Value], now: &str) -> Value {
    let spec = &definition["spec"];
    let before = &definition["status"];
    let same_group: Vec<&Value> = others
        .iter()
        .filter(|o| o["spec"]["group"] == spec["group"])
        .collect();
    let conflict = taken(&spec["names"], &same_group);
    let mut status = before.as_object().cloned().unwrap_or_default();
    let (accepted, was) = (conflict.is_none(), established(definition));
    if accepted {
        status.insert("acceptedNames".into(), spec["names"].clone());
    } else if !status.contains_key("acceptedNames") {
        status.insert("acceptedNames".into(), json!({"plural": "", "kind": ""}));
    }
    let mut stored = status
        .get("storedVersions")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    for version in spec["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|v| v["storage"] == true)
    {
        if !stored.contains(&version["name"]) {
            stored.push(version["name"].clone());
        }
    }
    status.insert("storedVersions".into(), stored.into());
    let names = match &conflict {
        None => (
            "NamesAccepted",
            true,
            "NoConflicts",
            "no conflicts found".to_owned(),
        ),
        Some(text) => ("NamesAccepted", false, "NameConflict", text.clone()),
    };
    let served = if accepted || was {
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
    let conditions: Vec<Value> = [names, served]
        .into_iter()
        .map(|(kind, yes, reason, message)| {
            let verdict = if yes { "True" } else { "False" };
            let old = before["conditions"].as_array().and_then(|all| all.iter().find(|c| c["type"] == kind && c["status"] == verdict));
            let since = old.map_or_else(|| now.into(), |o| o["lastTransitionTime"].clone());
            json!({"type": kind, "status": verdict, "lastTransitionTime": since, "reason": reason, "message": message})
        })
        .collect();
    status.insert("conditions".into(), conditions.into());
    Value::Object(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(plural: &str, kind: &str) -> Value {
        json!({"spec": {"group": "g.io", "names": {"plural": plural, "singular": plural.trim_end_matches('s'), "kind": kind, "listKind": format!("{kind}List")},
                        "versions": [{"name": "v1", "served": true, "storage": true}]}})
    }

    fn accepted(mut definition: Value, others: &[Value]) -> Value {
        definition["status"] = judge(&definition, others, "t1");
        definition
    }

    #[test]
    fn free_names_are_accepted_and_served() {
        let one = accepted(definition("things", "Thing"), &[]);
        assert!(established(&one));
        assert_eq!(one["status"]["storedVersions"], json!(["v1"]));
        assert_eq!(
            judge(&one, &[], "t2"),
            one["status"],
            "nothing changes with time alone"
        );
    }

    #[test]
    fn the_first_keeps_a_name() {
        let one = accepted(definition("things", "Thing"), &[]);
        for second in [definition("things", "Other"), definition("others", "Thing")] {
            let second = accepted(second, std::slice::from_ref(&one));
            assert!(!established(&second), "{second}");
            assert_eq!(second["status"]["conditions"][0]["reason"], "NameConflict");
        }
    }
}

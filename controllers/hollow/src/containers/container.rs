//! Finds the container of a request among the containers of a hollow pod.

use client::{Api, ResourcePath};
use jiff::Timestamp;
use machinery::Status;
use serde_json::Value;

use crate::controller::PODS;

/// A container that has been started.
#[derive(Clone, Debug)]
pub struct StartedContainer {
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) uid: String,
    pub(super) name: String,
    pub(super) started: Timestamp,
    pub(super) finished: Option<Timestamp>,
}

impl StartedContainer {
    /// Finds a container of a pod; without a name, its only one.
    pub async fn find(
        api: &dyn Api,
        namespace: &str,
        pod: &str,
        requested: Option<&str>,
    ) -> Result<Self, Status> {
        let stored = api.get(ResourcePath::object(&PODS, namespace, pod)).await;
        let stored = stored.map_err(|e| match e.status() {
            Some(status) => status.clone(),
            None => Status::internal(e),
        })?;
        let stored = stored.value().map_err(Status::internal)?;
        select_container(&stored, namespace, pod, requested)
    }
}

/// Selects the container of a request, with the errors of kube-apiserver and kubelet
/// (`registry/core/pod/strategy.go`, `kubelet_pods.go`).
pub(super) fn select_container(
    pod: &Value,
    namespace: &str,
    name: &str,
    requested: Option<&str>,
) -> Result<StartedContainer, Status> {
    let container = requested_name(pod, name, requested)?;
    let states =
        ["containerStatuses", "initContainerStatuses"].map(|f| pod["status"][f].as_array());
    let mut states = states.into_iter().flatten().flatten();
    let state = states
        .find(|s| s["name"] == *container)
        .map(|s| &s["state"]);
    let Some((started, finished)) = state.and_then(run_times) else {
        let reason = state.and_then(|s| s["waiting"]["reason"].as_str());
        let text = format!(
            "container {container:?} in pod {name:?} is waiting to start: {}",
            reason.unwrap_or("ContainerCreating")
        );
        return Err(Status::bad_request(text));
    };
    Ok(StartedContainer {
        namespace: namespace.to_owned(),
        pod: name.to_owned(),
        uid: pod["metadata"]["uid"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        name: container,
        started,
        finished,
    })
}

/// The name of the requested container, or of the only one.
fn requested_name(pod: &Value, name: &str, requested: Option<&str>) -> Result<String, Status> {
    let names = |of: &str| -> Vec<String> {
        let all = pod["spec"][of].as_array();
        let names = all.into_iter().flatten().filter_map(|c| c["name"].as_str());
        names.map(str::to_owned).collect()
    };
    let (main, initial) = (names("containers"), names("initContainers"));
    match (requested.filter(|r| !r.is_empty()), main.as_slice()) {
        (Some(requested), _) if main.iter().chain(&initial).any(|n| n == requested) => {
            Ok(requested.to_owned())
        }
        (Some(requested), _) => {
            let text = format!("container {requested} is not valid for pod {name}");
            Err(Status::bad_request(text))
        }
        (None, [one]) => Ok(one.clone()),
        (None, many) => {
            let text = format!(
                "a container name must be specified for pod {name}, choose one of: [{}]",
                many.join(" ")
            );
            Err(Status::bad_request(text))
        }
    }
}

/// When a container has started and, unless it runs, finished; `None` if it waits.
fn run_times(state: &Value) -> Option<(Timestamp, Option<Timestamp>)> {
    let time = |of: &str, field: &str| state[of][field].as_str()?.parse().ok();
    if let Some(started) = time("running", "startedAt") {
        return Some((started, None));
    }
    let finished: Timestamp = time("terminated", "finishedAt")?;
    Some((time("terminated", "startedAt")?, Some(finished)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn containers_are_selected_or_rejected() {
        let state = |name: &str, state: Value| json!({"name": name, "state": state});
        let time = "2026-01-01T00:00:00Z";
        let pod = |containers: &[&str], states: Value| {
            let containers: Vec<Value> = containers.iter().map(|c| json!({"name": c})).collect();
            json!({"metadata": {"uid": "u"}, "spec": {"containers": containers}, "status": {"containerStatuses": states}})
        };
        let running = json!({"running": {"startedAt": time}});
        let two = pod(
            &["a", "b"],
            json!([
                state("a", running),
                state("b", json!({"waiting": {"reason": "ErrImagePull"}}))
            ]),
        );
        let one = pod(
            &["a"],
            json!([state(
                "a",
                json!({"terminated": {"startedAt": time, "finishedAt": time}})
            )]),
        );
        let table = [
            (&two, Some("a"), Ok(("a", false))),
            (&one, None, Ok(("a", true))),
            (
                &two,
                None,
                Err("a container name must be specified for pod p, choose one of: [a b]"),
            ),
            (&two, Some("c"), Err("container c is not valid for pod p")),
            (
                &two,
                Some("b"),
                Err("container \"b\" in pod \"p\" is waiting to start: ErrImagePull"),
            ),
        ];
        for (pod, requested, expected) in table {
            let got = select_container(pod, "n", "p", requested);
            let got = got
                .as_ref()
                .map(|c| (c.name.as_str(), c.finished.is_some()));
            assert_eq!(got.map_err(|s| s.message.as_str()), expected);
        }
    }
}

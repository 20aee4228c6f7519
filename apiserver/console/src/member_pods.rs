//! The pods of a workload in a member and their logs, read through the cluster proxy with the user's
//! rights there.

use anyhow::{Context, ensure};
use karmada_api::affinity::ApiLabelSelector;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::clipped_text::clipped;
use crate::console::Console;
use crate::query::QueryParameters;

/// Pods of a cluster that are listed, and the bytes that the list may have.
const MAX_PODS: usize = 100;
const MAX_LIST_BYTES: usize = 8 << 20;
/// Containers of a pod that are named.
const MAX_CONTAINERS: usize = 20;
/// The end of a log that is shown first.
const TAIL_LINES: usize = 200;
const MAX_TAIL_BYTES: usize = 256 << 10;
/// The longest name of an object.
const MAX_NAME_BYTES: usize = 253;

/// The log of a container of a pod in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodLog {
    pub(crate) cluster: String,
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) container: String,
}

impl PodLog {
    pub(crate) fn parse(cluster: &str, namespace: &str, query: &QueryParameters) -> Self {
        Self {
            cluster: cluster.to_owned(),
            namespace: namespace.to_owned(),
            pod: query.get("pod").to_owned(),
            container: query.get("container").to_owned(),
        }
    }

    /// The path of the last lines, and with `follow` of all that comes after them.
    pub(crate) fn path(&self, follow: bool) -> anyhow::Result<String> {
        let pods = pods_path(&self.cluster, &self.namespace)?;
        let (pod, container) = (checked_name(&self.pod)?, checked_name(&self.container)?);
        let log = format!("{pods}/{pod}/log?container={container}&tailLines={TAIL_LINES}");
        Ok(match follow {
            true => format!("{log}&follow=true"),
            false => format!("{log}&limitBytes={MAX_TAIL_BYTES}"),
        })
    }

    /// The last lines.
    pub(crate) async fn read_tail(&self, console: &Console) -> anyhow::Result<String> {
        let path = self.path(false)?;
        let body = console.api.get_raw_within(&path, MAX_TAIL_BYTES).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }
}

/// A pod as it is shown. The member has chosen every text of it.
#[derive(Debug)]
pub(crate) struct MemberPod {
    pub(crate) name: String,
    pub(crate) phase: String,
    pub(crate) node: String,
    pub(crate) restarts: i64,
    pub(crate) ready_containers: usize,
    pub(crate) all_containers: usize,
    /// The first containers, and then those that run before them.
    pub(crate) container_names: Vec<String>,
}

impl MemberPod {
    fn new(pod: &Value) -> Self {
        let text = |value: &Value| clipped(value.as_str().unwrap_or_default());
        let (spec, status) = (&pod["spec"], &pod["status"]);
        let names = |list: &'static str| {
            let containers = spec[list].as_array().into_iter().flatten();
            containers.map(move |container| text(&container["name"]))
        };
        let statuses = || status["containerStatuses"].as_array().into_iter().flatten();
        let restarts = statuses().filter_map(|container| container["restartCount"].as_i64());
        let container_names = names("containers").chain(names("initContainers"));
        Self {
            name: text(&pod["metadata"]["name"]),
            phase: text(&status["phase"]),
            node: text(&spec["nodeName"]),
            restarts: restarts.fold(0, i64::saturating_add),
            ready_containers: statuses().filter(|c| c["ready"] == true).count(),
            all_containers: names("containers").count(),
            container_names: container_names.take(MAX_CONTAINERS).collect(),
        }
    }
}

/// The pods of a workload in a cluster.
pub(crate) struct PodList {
    pub(crate) pods: Vec<MemberPod>,
    pub(crate) has_more: bool,
}

impl PodList {
    pub(crate) async fn read(
        console: &Console,
        (cluster, namespace): (&str, &str),
        selector: &PodSelector,
    ) -> anyhow::Result<Self> {
        let pods = pods_path(cluster, namespace)?;
        let (parameter, text) = match selector {
            PodSelector::Name(name) => ("fieldSelector", format!("metadata.name={name}")),
            PodSelector::Labels(labels) => ("labelSelector", labels.clone()),
        };
        let text = utf8_percent_encode(&text, NON_ALPHANUMERIC);
        let path = format!("{pods}?limit={MAX_PODS}&{parameter}={text}");
        let body = console.api.get_raw_within(&path, MAX_LIST_BYTES).await?;
        let list: Value =
            machinery::json::from_slice(&body).context("the list of pods is malformed")?;
        let items = list["items"].as_array().into_iter().flatten();
        let next = list["metadata"]["continue"].as_str();
        Ok(Self {
            pods: items.take(MAX_PODS).map(MemberPod::new).collect(),
            has_more: next.is_some_and(|token| !token.is_empty()),
        })
    }
}

fn pods_path(cluster: &str, namespace: &str) -> anyhow::Result<String> {
    let (cluster, namespace) = (checked_name(cluster)?, checked_name(namespace)?);
    Ok(format!(
        "/apis/cluster.karmada.io/v1alpha1/clusters/{cluster}/proxy/api/v1/namespaces/{namespace}/pods"
    ))
}

/// A name that is one segment of a path.
fn checked_name(name: &str) -> anyhow::Result<&str> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let is_name = (1..=MAX_NAME_BYTES).contains(&name.len())
        && name.chars().all(is_allowed)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric());
    ensure!(is_name, "{:?} is no name", clipped(name));
    Ok(name)
}

/// How the pods of a workload are found in a member.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PodSelector {
    Name(String),
    /// In the syntax of a label selector; never all pods.
    Labels(String),
}

impl PodSelector {
    /// `None`: the template has no pods, or no selector tells them.
    pub(crate) fn of_template(kind: &str, template: &Value) -> Option<Self> {
        let name = template["metadata"]["name"].as_str()?;
        match kind {
            "Pod" => return Some(Self::Name(name.to_owned())),
            // The member itself chooses the selector of a Job.
            "Job" => return Some(Self::Labels(format!("job-name={name}"))),
            _ => {}
        }
        let has_pods = template["spec"]["template"]["spec"].is_object();
        let selector = has_pods.then(|| template["spec"]["selector"].clone())?;
        let selector: ApiLabelSelector = serde_json::from_value(selector).ok()?;
        let labels = selector.match_labels.iter();
        let labels = labels.map(|(key, value)| Some(format!("{key}={value}")));
        let expressions = selector.match_expressions.iter().map(|requirement| {
            let (key, values) = (&requirement.key, requirement.values.join(","));
            Some(match &*requirement.operator {
                "In" => format!("{key} in ({values})"),
                "NotIn" => format!("{key} notin ({values})"),
                "Exists" => key.clone(),
                "DoesNotExist" => format!("!{key}"),
                _ => return None,
            })
        });
        let requirements: Option<Vec<String>> = labels.chain(expressions).collect();
        let text = requirements?.join(",");
        (!text.is_empty()).then_some(Self::Labels(text))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // proves: CON-pods
    #[test]
    fn pods_are_selected_as_their_workload_does() {
        let template = |selector: Value| json!({"metadata": {"name": "web"}, "spec": {"selector": selector, "template": {"spec": {}}}});
        let labels = |text: &str| Some(PodSelector::Labels(text.to_owned()));
        let expressions = json!({"matchLabels": {"app": "web"}, "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["a", "b"]},
            {"key": "old", "operator": "DoesNotExist"}]});
        let unknown = json!({"matchExpressions": [{"key": "tier", "operator": "Near"}]});
        let service = json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}});
        for (kind, template, expected) in [
            (
                "Deployment",
                template(expressions),
                labels("app=web,tier in (a,b),!old"),
            ),
            ("Deployment", template(json!({})), None),
            ("Deployment", template(unknown), None),
            ("Job", template(json!({})), labels("job-name=web")),
            (
                "Pod",
                template(json!({})),
                Some(PodSelector::Name("web".to_owned())),
            ),
            // A Service selects pods of others.
            ("Service", service, None),
        ] {
            let selector = PodSelector::of_template(kind, &template);
            assert_eq!(selector, expected, "{kind}");
        }
    }

    // proves: CON-logs
    #[test]
    fn names_do_not_leave_their_segment() {
        let log = |pod: &str, container: &str| PodLog {
            cluster: "east".to_owned(),
            namespace: "shop".to_owned(),
            pod: pod.to_owned(),
            container: container.to_owned(),
        };
        let path = log("web-1", "app").path(true).unwrap();
        let expected = "/apis/cluster.karmada.io/v1alpha1/clusters/east/proxy/api/v1/namespaces/shop/pods/web-1/log?container=app&tailLines=200&follow=true";
        assert_eq!(path, expected);
        for name in ["", ".", "..", "a/b", "a%2Fb", "a?b", "a&b=c", "a b", "ä"] {
            assert!(log(name, "app").path(true).is_err(), "{name}");
            assert!(log("web-1", name).path(false).is_err(), "{name}");
        }
        assert!(log(&"a".repeat(254), "app").path(true).is_err());
    }
}

//! Asks the servers of a command line for names, with a deadline: clusters, namespaces,
//! resource types, and objects of a type.

use std::collections::BTreeSet;
use std::time::Duration;

use client::remote::{RemoteApi, RestConfig};
use client::{Api, ApiResource, ResourcePath, ShutdownToken, TaskGroup};
use karmada_api::resources::CLUSTERS;
use machinery::Gvr;

use super::argument_names::ArgumentNames;
use super::invocation::Invocation;
use crate::addons::addon_names;
use crate::get::list_names;
use crate::resource_args::find_resource;

static NAMESPACES: Gvr = Gvr::from_static("", "v1", "namespaces");
static NODES: Gvr = Gvr::from_static("", "v1", "nodes");
static PODS: Gvr = Gvr::from_static("", "v1", "pods");
/// How long a shell waits for names, at most.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(2);

/// The names that the current word can become; none if they cannot be read in time.
pub(super) fn complete(
    names: ArgumentNames,
    invocation: &Invocation,
    current: &str,
) -> Vec<String> {
    let candidates = match names {
        ArgumentNames::Contexts => invocation.contexts(false),
        ArgumentNames::ClusterContexts => invocation.contexts(true),
        ArgumentNames::Addons => {
            let names = addon_names().map(str::to_owned).collect();
            without(names, &invocation.arguments)
        }
        _ => ask_servers(names, invocation, current).unwrap_or_default(),
    };
    let is_completion = |name: &String| name.starts_with(current);
    candidates.into_iter().filter(is_completion).collect()
}

fn ask_servers(
    names: ArgumentNames,
    invocation: &Invocation,
    current: &str,
) -> anyhow::Result<Vec<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(async {
        let tasks = TaskGroup::new(ShutdownToken::new());
        let query = find_names(names, invocation, current, &tasks);
        tokio::time::timeout(COMPLETION_TIMEOUT, query).await
    });
    // A name server may still not have answered; the process ends without it.
    runtime.shutdown_background();
    result?
}

async fn find_names(
    names: ArgumentNames,
    invocation: &Invocation,
    current: &str,
    tasks: &TaskGroup,
) -> anyhow::Result<Vec<String>> {
    let arguments = &invocation.arguments;
    match names {
        ArgumentNames::Clusters => {
            let (config, _) = invocation.control_plane()?;
            Ok(without(
                list(config, &CLUSTERS, "", tasks).await?,
                arguments,
            ))
        }
        ArgumentNames::TaintedClusters if arguments.is_empty() => Ok(vec!["clusters".to_owned()]),
        ArgumentNames::TaintedClusters => {
            let (config, _) = invocation.control_plane()?;
            Ok(without(
                list(config, &CLUSTERS, "", tasks).await?,
                arguments,
            ))
        }
        ArgumentNames::Namespaces => {
            let (config, _) = invocation.object_server()?;
            list(config, &NAMESPACES, "", tasks).await
        }
        ArgumentNames::Pods if invocation.names_one_member() => {
            let (config, namespace) = invocation.object_server()?;
            list(config, &PODS, &namespace, tasks).await
        }
        ArgumentNames::Nodes if invocation.names_one_member() => {
            let (config, _) = invocation.object_server()?;
            list(config, &NODES, "", tasks).await
        }
        ArgumentNames::PodOrResource if arguments.is_empty() && !current.contains('/') => {
            let (config, namespace) = invocation.object_server()?;
            list(config, &PODS, &namespace, tasks).await
        }
        ArgumentNames::PodOrResource if !arguments.is_empty() => Ok(Vec::new()),
        ArgumentNames::Resources
        | ArgumentNames::ResourcePaths
        | ArgumentNames::Types
        | ArgumentNames::PodOrResource => {
            let (config, namespace) = invocation.object_server()?;
            let api = RemoteApi::new(config, tasks)?;
            let served = api.discover().await?.resources;
            complete_resources(names, arguments, current, &served, &api, &namespace).await
        }
        // Of which member is not said.
        ArgumentNames::Pods | ArgumentNames::Nodes => Ok(Vec::new()),
        // They are asked of no server.
        ArgumentNames::Contexts | ArgumentNames::ClusterContexts | ArgumentNames::Addons => {
            Ok(Vec::new())
        }
    }
}

async fn complete_resources(
    names: ArgumentNames,
    arguments: &[String],
    current: &str,
    served: &[ApiResource],
    api: &RemoteApi,
    namespace: &str,
) -> anyhow::Result<Vec<String>> {
    let objects = async |typed: &str| {
        let resource = find_resource(served, typed)?;
        let namespace = if resource.namespaced { namespace } else { "" };
        list_names(api, ResourcePath::collection(&resource.resource, namespace)).await
    };
    if names == ArgumentNames::Types {
        return Ok(type_names(served));
    }
    if let Some((typed, _)) = current.split_once('/') {
        let resource = objects(typed).await?;
        let paths = resource.iter().map(|name| format!("{typed}/{name}"));
        return Ok(without(paths.collect(), arguments));
    }
    let suffixed = |suffix: &str| type_names(served).into_iter().map(|t| t + suffix).collect();
    match arguments.first() {
        _ if names == ArgumentNames::ResourcePaths => Ok(suffixed("/")),
        Some(first) if first.contains('/') => Ok(suffixed("/")),
        Some(types) => {
            let first = types.split(',').next().unwrap_or_default();
            Ok(without(objects(first).await?, arguments))
        }
        None => Ok(match current.rsplit_once(',') {
            Some((before, _)) => {
                let types = type_names(served).into_iter();
                types.map(|t| format!("{before},{t}")).collect()
            }
            None => type_names(served),
        }),
    }
}

/// Plurals and short names of what can be read. A plural that several groups have is
/// followed by the group, but for the first, which the plural alone means.
fn type_names(served: &[ApiResource]) -> Vec<String> {
    let mut names = BTreeSet::new();
    for resource in served.iter().filter(|r| r.allows("get")) {
        let of = &resource.resource;
        if !names.insert(of.resource.to_string()) && !of.group.is_empty() {
            names.insert(format!("{}.{}", of.resource, of.group));
        }
        names.extend(resource.short_names.iter().cloned());
    }
    names.into_iter().collect()
}

async fn list(
    config: RestConfig,
    resource: &Gvr,
    namespace: &str,
    tasks: &TaskGroup,
) -> anyhow::Result<Vec<String>> {
    let api = RemoteApi::new(config, tasks)?;
    list_names(&api, ResourcePath::collection(resource, namespace)).await
}

/// The names that are not given yet.
fn without(names: Vec<String>, arguments: &[String]) -> Vec<String> {
    let is_new = |name: &String| !arguments.contains(name);
    names.into_iter().filter(is_new).collect()
}

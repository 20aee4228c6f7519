//! The command `flotilla apply`, which applies objects to the control plane with kubectl and,
//! if clusters are named, a policy for each object that propagates it there.
//!
//! arguments ──kubectl, client-side dry run──► objects ──► policies ──► kubectl apply of both

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use client::{ShutdownToken, TaskGroup};
use karmada_api::names;
use machinery::names::split_api_version;
use serde_json::{Value, json};

use crate::kubectl::{ControlPlaneArgs, kubectl_command, replace_process, start_error};
use crate::kubectl_commands::{CommandScope, split_flag};
use crate::manifest_files::parse_file;
use crate::member_clusters::list_cluster_names;

/// Apply a configuration to the control plane and propagate it to members.
///
/// Without --all-clusters and --cluster this is kubectl apply. With one of them a
/// PropagationPolicy, or for cluster-scoped objects a ClusterPropagationPolicy, is applied
/// for each object.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla apply -f manifest.yaml\n  flotilla apply -f manifest.yaml --cluster member1,member2\n  flotilla apply -f manifest.yaml --all-clusters"
)]
pub struct ApplyArgs {
    /// Arguments and flags of kubectl apply, with --kubeconfig, --karmada-context,
    /// --all-clusters and -C/--cluster NAME,...
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENTS"
    )]
    arguments: Vec<String>,
}

/// karmadactl's flags, and the arguments of kubectl.
#[derive(Debug, Default, PartialEq, Eq)]
struct ApplyFlags {
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
    all_clusters: bool,
    clusters: Vec<String>,
    others: Vec<String>,
}

impl ApplyFlags {
    fn parse(arguments: Vec<String>) -> anyhow::Result<Self> {
        let mut flags = Self::default();
        let mut rest = arguments.into_iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--all-clusters" | "--all-clusters=true" => flags.all_clusters = true,
                "--all-clusters=false" => flags.all_clusters = false,
                _ => match split_flag(&argument, CommandScope::ControlPlaneOrMember) {
                    None => flags.others.push(argument),
                    Some((name, value)) => {
                        let value = match value {
                            Some(value) => Some(value.to_owned()),
                            None => rest.next(),
                        };
                        let value =
                            value.with_context(|| format!("flag needs an argument: {name}"))?;
                        flags.set(name, value)?;
                    }
                },
            }
        }
        ensure!(
            !flags.all_clusters || flags.clusters.is_empty(),
            "--all-clusters and --cluster cannot be used together"
        );
        Ok(flags)
    }

    fn set(&mut self, name: &str, value: String) -> anyhow::Result<()> {
        match name {
            "--kubeconfig" => self.kubeconfig = Some(value.into()),
            "--karmada-context" => self.context = Some(value),
            "--operation-scope" => bail!("apply always works on the control plane; leave out -s"),
            _ => self.clusters.extend(
                value
                    .split(',')
                    .filter(|c| !c.is_empty())
                    .map(str::to_owned),
            ),
        }
        Ok(())
    }

    fn reads_standard_input(&self) -> bool {
        let is_dash = |a: &String| a == "-" || a == "-f-" || a.ends_with("=-");
        self.others.iter().any(is_dash)
    }
}

pub async fn run(arguments: ApplyArgs) -> anyhow::Result<()> {
    let flags = ApplyFlags::parse(arguments.arguments)?;
    let control = ControlPlaneArgs::new(flags.kubeconfig.clone(), flags.context.clone());
    let mut apply = kubectl_command(&control, None)?;
    apply.arg("apply").args(&flags.others);
    if !flags.all_clusters && flags.clusters.is_empty() {
        return Err(replace_process(apply));
    }
    verify(&control, &flags.clusters).await?;
    let mut input = Vec::new();
    if flags.reads_standard_input() {
        std::io::stdin().read_to_end(&mut input)?;
    }
    let mut preview = kubectl_command(&control, None)?;
    preview.arg("apply").args(&flags.others);
    preview.args(["--dry-run=client", "--output=json"]);
    let objects = run_with_input(preview, &input, Stdio::piped())?;
    let objects = parse_file(&String::from_utf8(objects)?)?;
    let policies: Result<Vec<Value>, _> = objects
        .iter()
        .map(|object| policy_for(object, &flags.clusters))
        .collect();
    let policies = json!({"apiVersion": "v1", "kind": "List", "items": policies?});
    run_with_input(apply, &input, Stdio::inherit())?;
    let mut apply_policies = kubectl_command(&control, None)?;
    apply_policies.args(["apply", "-f", "-"]);
    apply_policies.args(flags.others.iter().filter(|a| a.starts_with("--dry-run")));
    run_with_input(
        apply_policies,
        policies.to_string().as_bytes(),
        Stdio::inherit(),
    )?;
    Ok(())
}

/// Refuses names of clusters that are not registered.
async fn verify(control: &ControlPlaneArgs, clusters: &[String]) -> anyhow::Result<()> {
    let tasks = TaskGroup::new(ShutdownToken::new());
    let api = control.connect(&tasks)?;
    let registered = list_cluster_names(&*api).await;
    tasks.stop().await;
    let registered = registered?;
    let unknown = clusters.iter().filter(|name| !registered.contains(name));
    let errors: Vec<String> = unknown
        .map(|name| format!("cluster {name} does not exist"))
        .collect();
    match errors.as_slice() {
        [] => Ok(()),
        [one] => Err(anyhow!("{one}")),
        many => Err(anyhow!("[{}]", many.join(", "))),
    }
}

/// Runs kubectl with this input; an exit code other than 0 is an error, after kubectl has
/// said why.
fn run_with_input(mut command: Command, input: &[u8], output: Stdio) -> anyhow::Result<Vec<u8>> {
    let started = command.stdin(Stdio::piped()).stdout(output).spawn();
    let mut child = started.map_err(|error| start_error(&error))?;
    let pipe = child.stdin.take();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // kubectl that fails early does not read all of it.
            pipe.map(|mut pipe| pipe.write_all(input))
        });
        let out = child.wait_with_output()?;
        ensure!(out.status.success(), "kubectl apply has failed");
        Ok(out.stdout)
    })
}

/// The policy that propagates one object; all clusters if none is named.
fn policy_for(object: &Value, clusters: &[String]) -> anyhow::Result<Value> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let api_version = text("/apiVersion").context("an object has no apiVersion")?;
    let kind = text("/kind").context("an object has no kind")?;
    let name = text("/metadata/name").context("an object has no name")?;
    let namespace = text("/metadata/namespace").unwrap_or_default();
    let (group, version) = split_api_version(api_version);
    let gvk = format!("{group}/{version}, Kind={kind}");
    let mut policy = json!({
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "ClusterPropagationPolicy",
        "metadata": {"name": names::policy_name(namespace, name, &gvk)},
        "spec": {
            "resourceSelectors": [{"apiVersion": api_version, "kind": kind, "name": name}],
            "placement": {"clusterAffinity": {}},
        },
    });
    if !namespace.is_empty() {
        policy["kind"] = json!("PropagationPolicy");
        policy["metadata"]["namespace"] = json!(namespace);
        policy["spec"]["resourceSelectors"][0]["namespace"] = json!(namespace);
    }
    if !clusters.is_empty() {
        policy["spec"]["placement"]["clusterAffinity"]["clusterNames"] = json!(clusters);
    }
    Ok(policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<ApplyFlags, String> {
        let arguments = line.split_whitespace().map(str::to_owned).collect();
        ApplyFlags::parse(arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn clusters_are_taken_out_of_the_arguments() {
        let flags = parse("-f x -C a,b --cluster=c --server-side").unwrap();
        assert_eq!(flags.clusters, ["a", "b", "c"]);
        assert_eq!(flags.others, ["-f", "x", "--server-side"]);
        assert!(!flags.reads_standard_input());
        assert!(parse("-f - --all-clusters").unwrap().reads_standard_input());
        assert_eq!(
            parse("-f x -C a --all-clusters").unwrap_err(),
            "--all-clusters and --cluster cannot be used together"
        );
        assert!(
            parse("-s members -f x")
                .unwrap_err()
                .contains("leave out -s")
        );
    }

    #[test]
    fn a_policy_selects_one_object() {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "m", "namespace": "n"}});
        let policy = policy_for(&map, &["a".to_owned()]).unwrap();
        assert_eq!(policy["kind"], "PropagationPolicy");
        assert_eq!(
            policy["metadata"]["name"],
            names::policy_name("n", "m", "/v1, Kind=ConfigMap")
        );
        assert_eq!(
            policy["spec"]["placement"],
            json!({"clusterAffinity": {"clusterNames": ["a"]}})
        );
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "r"}});
        let policy = policy_for(&role, &[]).unwrap();
        assert_eq!(policy["kind"], "ClusterPropagationPolicy");
        assert_eq!(policy["spec"]["placement"], json!({"clusterAffinity": {}}));
        assert!(policy_for(&json!({}), &[]).is_err());
    }
}

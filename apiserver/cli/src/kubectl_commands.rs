//! The commands that kubectl does: on the control plane, or on one member through the
//! cluster proxy. karmadactl's own flags are taken out of the arguments, the others are
//! kubectl's.

use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use client::{Api, ListOptions, ResourcePath, ShutdownToken, TaskGroup};
use machinery::Gvr;

use crate::kubectl::{ControlPlaneArgs, kubectl_command, replace_process};
use crate::member_clusters::verify_clusters_exist;
use crate::operation_scope::OperationScope;

static NODES: Gvr = Gvr::from_static("", "v1", "nodes");

/// The arguments of kubectl's command of the same name, and, before `--`:
/// `--kubeconfig FILE`, `--karmada-context CONTEXT`; where a member can be meant,
/// `-C`/`--cluster NAME` and `-s`/`--operation-scope karmada|members`.
#[derive(Args)]
pub struct KubectlArgs {
    /// Arguments and flags of kubectl, with --kubeconfig and --karmada-context; for commands
    /// on members also -C/--cluster NAME and -s/--operation-scope karmada|members.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENTS"
    )]
    arguments: Vec<String>,
}

#[derive(Subcommand)]
pub enum KubectlCommand {
    /// Show details of a resource in the control plane or in a member.
    #[command(
        after_help = "Examples:\n  flotilla describe deployment web\n  flotilla describe pods -l app=web -C member1"
    )]
    Describe(KubectlArgs),
    /// Print the logs of a container in a member.
    #[command(after_help = "Example:\n  flotilla logs deployment/web -C member1")]
    Logs(KubectlArgs),
    /// Execute a command in a container of a member.
    #[command(after_help = "Example:\n  flotilla exec deployment/web -C member1 -- echo ready")]
    Exec(KubectlArgs),
    /// Attach to a running container of a member.
    #[command(after_help = "Example:\n  flotilla attach deployment/web -C member1")]
    Attach(KubectlArgs),
    /// Forward local ports to a pod of a member.
    #[command(after_help = "Example:\n  flotilla port-forward deployment/web 8080:80 -C member1")]
    PortForward(KubectlArgs),
    /// Show the fields of a resource, as the control plane or a member documents them.
    #[command(
        after_help = "Examples:\n  flotilla explain propagationpolicies.spec\n  flotilla explain pods.spec.nodeName -C member1"
    )]
    Explain(KubectlArgs),
    /// Print the resources that the control plane or a member serves.
    #[command(
        after_help = "Examples:\n  flotilla api-resources --api-group=policy.karmada.io\n  flotilla api-resources --namespaced=false -C member1"
    )]
    ApiResources(KubectlArgs),
    /// Print the API versions that the control plane or a member serves.
    #[command(
        after_help = "Examples:\n  flotilla api-versions\n  flotilla api-versions -C member1"
    )]
    ApiVersions(KubectlArgs),
    /// Create resources in the control plane.
    #[command(
        after_help = "Example:\n  flotilla create configmap settings --from-literal=mode=fast"
    )]
    Create(KubectlArgs),
    /// Edit a resource of the control plane in an editor.
    #[command(after_help = "Example:\n  flotilla edit deployment web")]
    Edit(KubectlArgs),
    /// Change fields of a resource in the control plane.
    #[command(
        after_help = "Example:\n  flotilla patch deployment web -p '{\"spec\":{\"replicas\":2}}'"
    )]
    Patch(KubectlArgs),
    /// Update the labels of a resource in the control plane.
    #[command(after_help = "Example:\n  flotilla label deployment web tier=front")]
    Label(KubectlArgs),
    /// Update the annotations of a resource in the control plane.
    #[command(after_help = "Example:\n  flotilla annotate deployment web owner=teams")]
    Annotate(KubectlArgs),
    /// Delete resources of the control plane.
    #[command(after_help = "Example:\n  flotilla delete configmap settings")]
    Delete(KubectlArgs),
}

/// Which servers a command accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandScope {
    ControlPlane,
    ControlPlaneOrMember,
    Member,
}

impl KubectlCommand {
    fn split(self) -> (&'static str, CommandScope, Vec<String>) {
        use CommandScope::{ControlPlane, ControlPlaneOrMember, Member};
        let (name, scope, arguments) = match self {
            Self::Describe(a) => ("describe", ControlPlaneOrMember, a),
            Self::Logs(a) => ("logs", Member, a),
            Self::Exec(a) => ("exec", ControlPlaneOrMember, a),
            Self::Attach(a) => ("attach", ControlPlaneOrMember, a),
            Self::PortForward(a) => ("port-forward", Member, a),
            Self::Explain(a) => ("explain", ControlPlaneOrMember, a),
            Self::ApiResources(a) => ("api-resources", ControlPlaneOrMember, a),
            Self::ApiVersions(a) => ("api-versions", ControlPlaneOrMember, a),
            Self::Create(a) => ("create", ControlPlane, a),
            Self::Edit(a) => ("edit", ControlPlane, a),
            Self::Patch(a) => ("patch", ControlPlane, a),
            Self::Label(a) => ("label", ControlPlane, a),
            Self::Annotate(a) => ("annotate", ControlPlane, a),
            Self::Delete(a) => ("delete", ControlPlane, a),
        };
        (name, scope, arguments.arguments)
    }
}

/// Becomes kubectl; returns only if that fails.
pub async fn run(command: KubectlCommand) -> anyhow::Result<()> {
    let (name, scope, arguments) = command.split();
    let flags = KarmadactlFlags::take_from(arguments, scope)?;
    let member = flags.member(scope)?;
    let control = ControlPlaneArgs::new(flags.kubeconfig, flags.context);
    if let Some(member) = &member {
        let tasks = TaskGroup::new(ShutdownToken::new());
        let api = control.connect(&tasks)?;
        let verified = verify_clusters_exist(&*api, std::slice::from_ref(member)).await;
        tasks.stop().await;
        verified?;
    }
    if member.is_none() && matches!(name, "exec" | "attach") {
        let tasks = TaskGroup::new(ShutdownToken::new());
        let api = control.connect(&tasks)?;
        let verified = verify_pods_can_run(&*api, name).await;
        tasks.stop().await;
        verified?;
    }
    let mut kubectl = kubectl_command(&control, member.as_deref())?;
    kubectl.arg(name).args(flags.others);
    Err(replace_process(kubectl))
}

/// Fails if the control plane has no nodes: kubectl would wait a minute for a running pod of a
/// workload. What the server does not answer is left to kubectl.
async fn verify_pods_can_run(api: &dyn Api, command: &str) -> anyhow::Result<()> {
    let options = ListOptions {
        limit: 1,
        ..ListOptions::default()
    };
    let nodes = api.list(ResourcePath::collection(&NODES, ""), &options);
    let has_no_nodes = nodes.await.is_ok_and(|nodes| nodes.items.is_empty());
    ensure!(
        !has_no_nodes,
        "the control plane has no nodes, so no pod runs there; name the member for {command} with -C NAME"
    );
    Ok(())
}

/// karmadactl's flags among the arguments of a command, and the others in their order.
#[derive(Debug, Default, PartialEq, Eq)]
struct KarmadactlFlags {
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
    cluster: Option<String>,
    scope: Option<OperationScope>,
    others: Vec<String>,
}

impl KarmadactlFlags {
    fn take_from(arguments: Vec<String>, scope: CommandScope) -> anyhow::Result<Self> {
        let mut flags = Self::default();
        let mut rest = arguments.into_iter();
        while let Some(argument) = rest.next() {
            if argument == "--" {
                flags.others.push(argument);
                flags.others.extend(rest);
                break;
            }
            let Some((name, value)) = split_flag(&argument, scope) else {
                flags.others.push(argument);
                continue;
            };
            let value = match value {
                Some(value) => value.to_owned(),
                None => rest
                    .next()
                    .with_context(|| format!("flag needs an argument: {name}"))?,
            };
            match name {
                "--kubeconfig" => flags.kubeconfig = Some(value.into()),
                "--karmada-context" => flags.context = Some(value),
                "--operation-scope" => flags.scope = Some(OperationScope::parse(&value)?),
                _ => flags.cluster = Some(value),
            }
        }
        Ok(flags)
    }

    /// The member that the flags name; `None` is the control plane.
    fn member(&self, scope: CommandScope) -> anyhow::Result<Option<String>> {
        if scope == CommandScope::ControlPlane {
            return Ok(None);
        }
        let operation_scope = match (self.scope, scope) {
            (None, CommandScope::Member) => OperationScope::Members,
            (operation_scope, _) => {
                OperationScope::resolve(operation_scope, self.cluster.is_some())?
            }
        };
        match operation_scope {
            OperationScope::Karmada if scope == CommandScope::Member => {
                bail!("not support operation scope: karmada")
            }
            OperationScope::Karmada => Ok(None),
            OperationScope::All => bail!("not support operation scope: all"),
            OperationScope::Members => {
                let cluster = self.cluster.clone().filter(|name| !name.is_empty());
                let cluster = cluster.context("must specify a cluster; use -C NAME")?;
                ensure!(
                    !cluster.contains(','),
                    "only one cluster can be given, not {cluster:?}"
                );
                Ok(Some(cluster))
            }
        }
    }
}

/// The long name of one of karmadactl's flags, and the value if it is in the same argument.
pub(crate) fn split_flag(
    argument: &str,
    scope: CommandScope,
) -> Option<(&'static str, Option<&str>)> {
    const EVERYWHERE: [(&str, &str); 2] = [("--kubeconfig", ""), ("--karmada-context", "")];
    const OF_SCOPE: [(&str, &str); 3] = [
        ("--operation-scope", "-s"),
        ("--cluster", "-C"),
        ("--clusters", ""),
    ];
    let of_scope: &[_] = match scope {
        CommandScope::ControlPlane => &[],
        CommandScope::ControlPlaneOrMember | CommandScope::Member => &OF_SCOPE,
    };
    for (long, short) in EVERYWHERE.iter().chain(of_scope) {
        if argument == *long || (argument == *short && !short.is_empty()) {
            return Some((long, None));
        }
        let value = argument
            .strip_prefix(long)
            .and_then(|v| v.strip_prefix('='));
        let attached = || {
            let value = argument.strip_prefix(short).filter(|_| !short.is_empty())?;
            Some(value.strip_prefix('=').unwrap_or(value))
        };
        if let Some(value) = value.or_else(attached) {
            return Some((long, Some(value)));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member_of(line: &str, scope: CommandScope) -> (String, Vec<String>) {
        let arguments = line.split_whitespace().map(str::to_owned).collect();
        let flags = match KarmadactlFlags::take_from(arguments, scope) {
            Ok(flags) => flags,
            Err(error) => return (error.to_string(), Vec::new()),
        };
        let member = match flags.member(scope) {
            Ok(member) => member.unwrap_or_default(),
            Err(error) => error.to_string(),
        };
        (member, flags.others)
    }

    #[test]
    fn the_member_is_taken_out_of_the_arguments() {
        use CommandScope::{ControlPlane, ControlPlaneOrMember, Member};
        let table: &[(&str, CommandScope, &str, &[&str])] = &[
            ("pod web", ControlPlaneOrMember, "", &["pod", "web"]),
            (
                "pod web -C m1 -n x",
                ControlPlaneOrMember,
                "m1",
                &["pod", "web", "-n", "x"],
            ),
            ("pod -Cm1", ControlPlaneOrMember, "m1", &["pod"]),
            ("pod -C=m1", ControlPlaneOrMember, "m1", &["pod"]),
            (
                "-s members --cluster m1 pod",
                ControlPlaneOrMember,
                "m1",
                &["pod"],
            ),
            (
                "--operation-scope=members --clusters=m1",
                ControlPlaneOrMember,
                "m1",
                &[],
            ),
            (
                "web -C m1 -- sh -C x",
                Member,
                "m1",
                &["web", "--", "sh", "-C", "x"],
            ),
            (
                "web",
                Member,
                "must specify a cluster; use -C NAME",
                &["web"],
            ),
            (
                "-s all pod",
                ControlPlaneOrMember,
                "not support operation scope: all",
                &["pod"],
            ),
            (
                "-s karmada pod",
                Member,
                "not support operation scope: karmada",
                &["pod"],
            ),
            (
                "-s moon pod",
                Member,
                "not support OperationScope: moon",
                &[],
            ),
            ("pod -C", Member, "flag needs an argument: --cluster", &[]),
            (
                "pod -C a,b",
                Member,
                "only one cluster can be given, not \"a,b\"",
                &["pod"],
            ),
            // kubectl's own short flag.
            (
                "pod -s https://x",
                ControlPlane,
                "",
                &["pod", "-s", "https://x"],
            ),
        ];
        for (line, scope, member, others) in table {
            let (actual, rest) = member_of(line, *scope);
            assert_eq!(actual, *member, "{line}");
            assert_eq!(rest, *others, "{line}");
        }
    }

    #[test]
    fn the_kubeconfig_is_taken_out_of_the_arguments() {
        let arguments = ["--kubeconfig", "f", "--karmada-context=c", "pod"].map(str::to_owned);
        let flags = KarmadactlFlags::take_from(arguments.into(), CommandScope::ControlPlane);
        let expected = KarmadactlFlags {
            kubeconfig: Some("f".into()),
            context: Some("c".into()),
            others: vec!["pod".into()],
            ..KarmadactlFlags::default()
        };
        assert_eq!(flags.unwrap(), expected);
    }
}

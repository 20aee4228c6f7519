//! The command `flotilla get`, which prints resources of the control plane and of members.
//!
//! arguments ──[`selection`]──► one [`query`] per server, in parallel ──► [`tables`] or [`documents`] ──► text
//! with `-w`: one [`watch`] per server ──► rows as they come ──► [`watch_output`]

mod documents;
mod names;
mod query;
mod selection;
mod server_table;
mod sort;
mod tables;
mod watch;
mod watch_output;

use std::time::Duration;

use anyhow::{anyhow, bail, ensure};
use clap::Args;
use client::remote::{RemoteApi, RestConfig};
use client::{ShutdownToken, TaskGroup};
use machinery::duration;
use serde_json::Value;

use crate::kubeconfig_flags::context_namespace;
use crate::kubectl::{ControlPlaneArgs, kubectl_command, replace_process};
use crate::member_clusters::connect_members;
use crate::operation_scope::OperationScope;
use crate::output;
pub(crate) use names::list_names;
use query::{QueriedServer, Query, ServerAnswer};
use selection::ResourceSelection;
use sort::SortField;

/// The name of the control plane in the column CLUSTER.
const CONTROL_PLANE: &str = "Karmada";

/// Display one or many resources in the control plane and in member clusters.
///
/// Members are asked in parallel through the cluster proxy. A member that does not answer
/// in time is one line of warning. Templates (jsonpath, go-template, custom-columns) and
/// objects in a watch are printed by kubectl, and are for one server.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla get deployments\n  flotilla get pods -C member1,member2 -o wide\n  flotilla get deployment web --operation-scope all\n  flotilla get pods -C member1,member2 --sort-by .metadata.creationTimestamp\n  flotilla get deployments -A -s all -l app=web -o yaml\n  flotilla get deployment/web -C member1 -o jsonpath={.spec.replicas}"
)]
pub struct GetArgs {
    /// TYPE[,TYPE] [NAME ...] or TYPE/NAME ..., as for kubectl get.
    #[arg(value_name = "TYPE")]
    resources: Vec<String>,
    /// Where to look; by default the control plane, or members if --clusters names some.
    #[arg(short = 's', long, value_enum, value_name = "SCOPE")]
    operation_scope: Option<OperationScope>,
    /// Members to ask; all registered ones by default.
    #[arg(short = 'C', long, value_name = "NAME,...", value_delimiter = ',')]
    clusters: Vec<String>,
    /// The namespace; by default that of the kubeconfig's context.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// List the objects of all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Label selector, such as app=web,tier!=back.
    #[arg(
        short = 'l',
        long = "labels",
        alias = "selector",
        value_name = "SELECTOR",
        default_value = ""
    )]
    label_selector: String,
    /// Field selector, such as metadata.name=web.
    #[arg(long, value_name = "SELECTOR", default_value = "")]
    field_selector: String,
    /// After listing, watch for changes; on a terminal the table is drawn anew with each.
    #[arg(short, long)]
    watch: bool,
    /// Watch for changes without listing first.
    #[arg(long)]
    watch_only: bool,
    /// Print the type of each event of a watch.
    #[arg(long)]
    output_watch_events: bool,
    /// Exit with code 0 if a named object does not exist.
    #[arg(long)]
    ignore_not_found: bool,
    /// Output format: json, yaml, name or wide; for one server also jsonpath=..., go-template=...,
    /// custom-columns=... and the other formats of kubectl.
    #[arg(short, long, value_name = "FORMAT", default_value = "")]
    output: String,
    /// Do not print headers.
    #[arg(long)]
    no_headers: bool,
    /// Sort by this field, a JSONPath such as {.metadata.creationTimestamp}; the rows of all
    /// clusters are sorted together.
    #[arg(long, value_name = "FIELD")]
    sort_by: Option<String>,
    /// Keep the managedFields of objects in JSON and YAML.
    #[arg(long)]
    show_managed_fields: bool,
    /// Print the type before each name.
    #[arg(long)]
    show_kind: bool,
    /// Print all labels in the last column.
    #[arg(long)]
    show_labels: bool,
    /// Print these labels as columns.
    #[arg(
        short = 'L',
        long = "label-columns",
        value_name = "LABEL,...",
        value_delimiter = ','
    )]
    label_columns: Vec<String>,
    /// How long a server may take to answer; a member that takes longer is left out.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    request_timeout: Duration,
    #[command(flatten)]
    control: ControlPlaneArgs,
}

/// How the result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Table {
        wide: bool,
    },
    Json,
    Yaml,
    Name,
    /// A format that kubectl prints.
    Kubectl,
}

impl GetArgs {
    fn format(&self) -> Format {
        let watches = self.watch || self.watch_only;
        match self.output.as_str() {
            "" => Format::Table { wide: false },
            "wide" => Format::Table { wide: true },
            "json" | "yaml" | "name" if watches => Format::Kubectl,
            "json" => Format::Json,
            "yaml" => Format::Yaml,
            "name" => Format::Name,
            _ => Format::Kubectl,
        }
    }

    fn validate(&self) -> anyhow::Result<()> {
        ensure!(
            !self.output_watch_events || self.watch || self.watch_only,
            "--output-watch-events option can only be used with --watch or --watch-only"
        );
        ensure!(
            !self.show_labels || matches!(self.format(), Format::Table { .. }),
            "--show-labels option cannot be used with {} printer",
            self.output
        );
        Ok(())
    }

    /// The question to the servers.
    fn selection(&self) -> anyhow::Result<ResourceSelection> {
        let has_selector = !self.label_selector.is_empty() || !self.field_selector.is_empty();
        let selection = ResourceSelection::parse(&self.resources)?;
        selection.validate(self.all_namespaces, has_selector)?;
        Ok(selection)
    }

    /// The field to sort by; a watch is not sorted.
    fn sort_field(&self) -> anyhow::Result<Option<SortField>> {
        let Some(expression) = &self.sort_by else {
            return Ok(None);
        };
        let field = SortField::parse(expression)?;
        if self.watch || self.watch_only {
            output::print_progress(
                "warning: --watch or --watch-only requested, --sort-by will be ignored",
            );
            return Ok(None);
        }
        Ok(Some(field))
    }

    fn query(
        &self,
        config: &RestConfig,
        selection: ResourceSelection,
        sort_by: Option<SortField>,
    ) -> Query {
        let namespace = match &self.namespace {
            _ if self.all_namespaces => String::new(),
            Some(namespace) => namespace.clone(),
            None => context_namespace(config),
        };
        Query {
            selection,
            namespace,
            label_selector: self.label_selector.clone(),
            field_selector: self.field_selector.clone(),
            as_tables: matches!(self.format(), Format::Table { .. }),
            ignore_not_found: self.ignore_not_found,
            sort_by,
            show_managed_fields: self.show_managed_fields,
            limit: None,
        }
    }

    fn columns(&self, wide: bool) -> tables::ColumnOptions {
        tables::ColumnOptions {
            wide,
            with_namespace: self.all_namespaces,
            show_kind: self.show_kind,
            show_labels: self.show_labels,
            label_columns: self.label_columns.clone(),
            no_headers: self.no_headers,
            with_event: self.output_watch_events,
        }
    }
}

pub async fn run(arguments: GetArgs) -> anyhow::Result<()> {
    arguments.validate()?;
    let selection = arguments.selection()?;
    let config = arguments.control.load_config()?;
    let tasks = TaskGroup::new(ShutdownToken::new());
    let done = Box::pin(get(&arguments, &config, selection, &tasks)).await;
    tasks.stop().await;
    done
}

async fn get(
    arguments: &GetArgs,
    config: &RestConfig,
    selection: ResourceSelection,
    tasks: &TaskGroup,
) -> anyhow::Result<()> {
    let servers = servers(arguments, config, tasks).await?;
    let sort_by = arguments.sort_field()?;
    let query = arguments.query(config, selection, sort_by);
    let format = arguments.format();
    if format == Format::Kubectl {
        return Err(run_kubectl(arguments, &servers)?);
    }
    if arguments.watch || arguments.watch_only {
        let wide = format == Format::Table { wide: true };
        let options = watch::WatchedOutput {
            columns: arguments.columns(wide),
            skip_initial: arguments.watch_only,
            list_timeout: arguments.request_timeout,
        };
        return watch::watch(servers, &query, options).await;
    }
    let answers = query::query_all(&servers, &query, arguments.request_timeout).await;
    let answered = report_unreachable(&answers);
    if let Some(field) = &query.sort_by {
        documents::ensure_sortable(&answers, field)?;
    }
    let answers_are_empty_tables = matches!(format, Format::Table { .. });
    let printed = format_answers(arguments, &query, answers)?;
    let failures = printed.failures;
    if !printed.text.is_empty() {
        output::print_line(printed.text.trim_end_matches('\n'));
    } else if answers_are_empty_tables && failures.is_empty() && !arguments.ignore_not_found {
        output::print_progress(nothing_found(&query));
    }
    if failures.is_empty() && answered > 0 {
        return Ok(());
    }
    match failures.as_slice() {
        [] => bail!("no cluster has answered; see the warnings above"),
        [one] => bail!("{one}"),
        many => bail!("[{}]", many.join(", ")),
    }
}

/// The servers to ask: the control plane first, then members by name.
async fn servers(
    arguments: &GetArgs,
    config: &RestConfig,
    tasks: &TaskGroup,
) -> anyhow::Result<Vec<QueriedServer>> {
    let scope = OperationScope::resolve(arguments.operation_scope, !arguments.clusters.is_empty())?;
    let control = RemoteApi::new(config.clone(), tasks)?;
    let mut members = Vec::new();
    if scope.has_members() {
        let connected = connect_members(&control, config, &arguments.clusters, tasks).await?;
        members.extend(connected.into_iter().map(|member| QueriedServer {
            name: member.name,
            is_control_plane: false,
            api: member.api,
        }));
    }
    let mut servers = Vec::new();
    if scope.has_control_plane() {
        servers.push(QueriedServer {
            name: CONTROL_PLANE.to_owned(),
            is_control_plane: true,
            api: control,
        });
    }
    servers.extend(members);
    ensure!(
        !servers.is_empty(),
        "no member cluster is registered; `flotilla join` registers one"
    );
    Ok(servers)
}

/// A line for each member that has not answered.
fn unreachable_warnings(answers: &[ServerAnswer]) -> Vec<String> {
    let unreachable = answers.iter().filter_map(|answer| {
        let failure = answer.unreachable.as_ref()?;
        Some(failure.warning(&answer.cluster))
    });
    unreachable.collect()
}

/// Warns of each member that has not answered; returns how many servers have.
fn report_unreachable(answers: &[ServerAnswer]) -> usize {
    let warnings = unreachable_warnings(answers);
    for warning in &warnings {
        output::print_progress(warning);
    }
    answers.len() - warnings.len()
}

/// The answers of servers, as text.
pub(crate) struct PrintedObjects {
    pub(crate) text: String,
    /// A line for each member that has not answered.
    pub(crate) warnings: Vec<String>,
    pub(crate) failures: Vec<String>,
    /// Whether a list has more than was read.
    pub(crate) has_more: bool,
}

/// Reads the beginnings of lists. `redact` changes each object, given its kind, before it is printed.
pub(crate) async fn read_first_page(
    arguments: &GetArgs,
    limit: u64,
    redact: impl Fn(&str, &mut Value),
    tasks: &TaskGroup,
) -> anyhow::Result<PrintedObjects> {
    let selection = arguments.selection()?;
    let config = arguments.control.load_config()?;
    let servers = servers(arguments, &config, tasks).await?;
    let query = Query {
        limit: Some(limit),
        ..arguments.query(&config, selection, None)
    };
    let mut answers = query::query_all(&servers, &query, arguments.request_timeout).await;
    for answered in answers.iter_mut().flat_map(|answer| &mut answer.resources) {
        let kind = &answered.resource.kind;
        answered.objects.iter_mut().for_each(|o| redact(kind, o));
    }
    let mut printed = format_answers(arguments, &query, answers)?;
    if printed.text.is_empty() && printed.failures.is_empty() {
        printed.text = nothing_found(&query);
    }
    Ok(printed)
}

fn format_answers(
    arguments: &GetArgs,
    query: &Query,
    answers: Vec<ServerAnswer>,
) -> anyhow::Result<PrintedObjects> {
    let resources = answers.iter().flat_map(|answer| &answer.resources);
    let has_more = resources.into_iter().any(|answered| answered.has_more);
    let warnings = unreachable_warnings(&answers);
    let failures = answers.iter().flat_map(|answer| {
        let named = |error: &String| format!("cluster({}): {error}", answer.cluster);
        answer.errors.iter().map(named)
    });
    let failures: Vec<String> = failures.collect();
    let text = match arguments.format() {
        Format::Table { wide } => tables::format_answers(answers, &arguments.columns(wide)),
        Format::Name => documents::names(&answers, query.sort_by.as_ref()),
        Format::Yaml => documents::merge(answers, query)
            .map(|document| serde_saphyr::to_string(&document))
            .transpose()?
            .unwrap_or_default(),
        Format::Json => documents::merge(answers, query)
            .map(|document| serde_json::to_string_pretty(&document))
            .transpose()?
            .unwrap_or_default(),
        Format::Kubectl => return Err(anyhow!("kubectl prints this format")),
    };
    Ok(PrintedObjects {
        text,
        warnings,
        failures,
        has_more,
    })
}

fn nothing_found(query: &Query) -> String {
    match query.namespace.as_str() {
        "" => "No resources found".to_owned(),
        namespace => format!("No resources found in {namespace} namespace."),
    }
}

/// Becomes kubectl for formats that it alone prints; returns only if that fails.
fn run_kubectl(arguments: &GetArgs, servers: &[QueriedServer]) -> anyhow::Result<anyhow::Error> {
    let [server] = servers else {
        bail!(
            "-o {} is printed by kubectl, which asks one server at a time; choose one with -C NAME, or use -o json or yaml",
            arguments.output
        );
    };
    let member = (!server.is_control_plane).then_some(server.name.as_str());
    let mut kubectl = kubectl_command(&arguments.control, member)?;
    kubectl.arg("get").args(&arguments.resources);
    if let Some(namespace) = &arguments.namespace {
        kubectl.args(["--namespace", namespace]);
    }
    let sort_by = arguments.sort_by.clone().unwrap_or_default();
    let texts = [
        ("--selector", &arguments.label_selector),
        ("--field-selector", &arguments.field_selector),
        ("--output", &arguments.output),
        ("--sort-by", &sort_by),
    ];
    for (flag, value) in texts.into_iter().filter(|(_, value)| !value.is_empty()) {
        kubectl.arg(format!("{flag}={value}"));
    }
    let switches = [
        ("--all-namespaces", arguments.all_namespaces),
        ("--watch", arguments.watch),
        ("--watch-only", arguments.watch_only),
        ("--output-watch-events", arguments.output_watch_events),
        ("--ignore-not-found", arguments.ignore_not_found),
        ("--no-headers", arguments.no_headers),
        ("--show-managed-fields", arguments.show_managed_fields),
        ("--show-kind", arguments.show_kind),
    ];
    kubectl.args(switches.iter().filter(|(_, on)| *on).map(|(flag, _)| flag));
    Ok(replace_process(kubectl))
}

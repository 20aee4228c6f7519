//! The command `flotilla interpret`, which validates and tests interpreter customizations
//! from files, without a server.
//!
//! Source: Karmada's `pkg/karmadactl/interpret`.

mod check;
mod execute;
mod operations;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use machinery::Object;
use serde_json::Value;

use crate::{manifest_files, output};
use operations::{operation_docs, operation_name, parse_operation};

/// Validate and test interpreter customizations before applying them to the control plane.
/// No server is contacted.
///
/// Without a customization, the built-in rules are executed.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla interpret -f customization.yaml --check\n  flotilla interpret -f customization.yaml --operation interpretReplica --desired-file desired.yaml\n  flotilla interpret --operation aggregateStatus --desired-file deployment.yaml --status-file status.yaml"
)]
pub struct InterpretArgs {
    /// Filename or directory containing the customizations in YAML or JSON; - is standard
    /// input; may be repeated.
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<PathBuf>,
    /// Process the directory used in -f, --filename recursively.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// The interpret operation to use: Retain, InterpretReplica, InterpretComponent,
    /// ReviseReplica,
    /// InterpretStatus, AggregateStatus, InterpretHealth or InterpretDependency.
    #[arg(long, value_name = "OPERATION")]
    operation: Option<String>,
    /// Validates the given ResourceInterpreterCustomization configuration(s): scripts must
    /// compile and define their functions.
    #[arg(long, requires = "filename", conflicts_with = "operation")]
    check: bool,
    /// Show the function that a script defines for each operation.
    #[arg(long, conflicts_with_all = ["operation", "check"])]
    show_doc: bool,
    /// The file with the desired object.
    #[arg(long, value_name = "FILE")]
    desired_file: Option<PathBuf>,
    /// The file with the object as observed in a member cluster.
    #[arg(long, value_name = "FILE")]
    observed_file: Option<PathBuf>,
    /// The file with the status items: a document per cluster, with clusterName and status.
    #[arg(long, value_name = "FILE")]
    status_file: Option<PathBuf>,
    /// The desired replicas for the operation ReviseReplica.
    #[arg(long, value_name = "N", default_value_t = 0)]
    desired_replica: i32,
}

pub async fn run(arguments: InterpretArgs) -> anyhow::Result<ExitCode> {
    if arguments.show_doc {
        output::print_line(operation_docs());
        return Ok(ExitCode::SUCCESS);
    }
    let operation = arguments.operation.as_deref().map(parse_operation);
    let operation = operation.transpose().map_err(anyhow::Error::msg)?;
    let documents = read_customizations(&arguments)?;
    if arguments.check {
        let (text, sound) = check::check_customizations(&documents);
        output::print_line(text);
        return Ok(if sound {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        });
    }
    let Some(operation) = operation else {
        bail!("operation is not set for executing");
    };
    for document in &documents {
        let checked = check::check_customization_kind(&document.value()?);
        checked.map_err(|reason| anyhow!("fail to get customization object: {reason}"))?;
    }
    let inputs = execute::InterpreterOperationInputs {
        desired: read_object(arguments.desired_file.as_deref(), "desired")?,
        observed: read_object(arguments.observed_file.as_deref(), "observed")?,
        items: arguments
            .status_file
            .as_deref()
            .map(read_status_items)
            .transpose()?,
        replicas: arguments.desired_replica.into(),
    };
    match execute::execute(&documents, operation, &inputs).await {
        Ok(results) => {
            output::print_line(execute::encode_results(&results)?);
            Ok(ExitCode::SUCCESS)
        }
        Err(reason) => {
            output::print_progress(format!(
                "Execute {} error: {reason}",
                operation_name(operation)
            ));
            Ok(ExitCode::FAILURE)
        }
    }
}

/// The objects of the files.
fn read_customizations(arguments: &InterpretArgs) -> anyhow::Result<Vec<Object>> {
    let mut paths = Vec::new();
    for path in &arguments.filename {
        if path.is_dir() {
            find_manifest_files(path, arguments.recursive, &mut paths)?;
        } else {
            paths.push(path.clone());
        }
    }
    let mut objects = Vec::new();
    for path in paths {
        for document in manifest_files::read_documents(&path)? {
            objects
                .push(Object::from_value(&document).with_context(|| path.display().to_string())?);
        }
    }
    Ok(objects)
}

/// Finds the YAML and JSON files of a directory, in order.
fn find_manifest_files(
    directory: &Path,
    deep: bool,
    files: &mut Vec<PathBuf>,
) -> anyhow::Result<()> {
    let entries = std::fs::read_dir(directory);
    let entries = entries.with_context(|| format!("cannot read {}", directory.display()))?;
    let paths: Result<Vec<PathBuf>, _> = entries
        .map(|entry| Ok::<_, std::io::Error>(entry?.path()))
        .collect();
    let mut paths = paths?;
    paths.sort();
    for path in paths {
        let extensions = ["json", "yaml", "yml"];
        if path.is_dir() {
            if deep {
                find_manifest_files(&path, deep, files)?;
            }
        } else if path
            .extension()
            .is_some_and(|e| extensions.iter().any(|k| e == *k))
        {
            files.push(path);
        }
    }
    Ok(())
}

fn read_object(file: Option<&Path>, what: &str) -> anyhow::Result<Option<Value>> {
    let Some(file) = file else { return Ok(None) };
    let mut documents = manifest_files::read_documents(file)?;
    if documents.len() > 1 {
        bail!(
            "fail to get {what} object: get {} objects, expect one at most",
            documents.len()
        );
    }
    match documents.pop() {
        Some(object) => Ok(Some(object)),
        None => bail!("{}: the file has no object", file.display()),
    }
}

fn read_status_items(
    file: &Path,
) -> anyhow::Result<Vec<karmada_api::binding::AggregatedStatusItem>> {
    let documents = manifest_files::read_documents(file)?.into_iter();
    let items: Result<Vec<_>, _> = documents.map(serde_json::from_value).collect();
    items.with_context(|| format!("{}: fail to get status items", file.display()))
}

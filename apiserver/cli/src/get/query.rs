//! Asks several servers for resources, in parallel and with a deadline for each.

use std::time::Duration;

use client::remote::RemoteApi;
use client::{Api, ApiResource, ListOptions, ResourcePath};
use futures_util::future::join_all;
use serde_json::Value;

use super::selection::{ResourceSelection, find_resources};
use super::server_table::Table;
use super::sort::SortField;
use crate::member_clusters::{MemberFailure, ask_with_deadline, is_unreachable};

/// Objects in a page of a list, as kubectl asks for them.
const LIST_CHUNK_SIZE: u64 = 500;

/// The request that each server gets.
pub(super) struct Query {
    pub(super) selection: ResourceSelection,
    /// Empty for all namespaces.
    pub(super) namespace: String,
    pub(super) label_selector: String,
    pub(super) field_selector: String,
    pub(super) as_tables: bool,
    pub(super) ignore_not_found: bool,
    pub(super) sort_by: Option<SortField>,
    /// In documents; they are left out otherwise.
    pub(super) show_managed_fields: bool,
    /// The most objects of a list that are read; all if absent.
    pub(super) limit: Option<u64>,
}

pub(super) struct QueriedServer {
    pub(super) name: String,
    pub(super) is_control_plane: bool,
    pub(super) api: RemoteApi,
}

/// The answer of a server.
#[derive(Default)]
pub(super) struct ServerAnswer {
    pub(super) cluster: String,
    pub(super) is_control_plane: bool,
    pub(super) resources: Vec<AnsweredResource>,
    pub(super) errors: Vec<String>,
    /// Why the server has not answered.
    pub(super) unreachable: Option<MemberFailure>,
}

pub(super) struct AnsweredResource {
    pub(super) resource: ApiResource,
    pub(super) tables: Vec<Table>,
    pub(super) objects: Vec<Value>,
    /// Whether a list has more than the limit.
    pub(super) has_more: bool,
}

/// The answers in the order of the servers.
pub(super) async fn query_all(
    servers: &[QueriedServer],
    query: &Query,
    timeout: Duration,
) -> Vec<ServerAnswer> {
    let queries = servers.iter().map(|server| async move {
        let mut answer = ServerAnswer {
            cluster: server.name.clone(),
            is_control_plane: server.is_control_plane,
            ..ServerAnswer::default()
        };
        let queries = ask_with_deadline(timeout, query_server(server, query, &mut answer)).await;
        if let Err(failure) = queries {
            answer.fail(failure);
        }
        answer
    });
    join_all(queries).await
}

impl ServerAnswer {
    /// Records a failure: a member that does not answer is unreachable, every other failure
    /// is an error.
    fn fail(&mut self, failure: MemberFailure) {
        match failure {
            MemberFailure::Unreachable(_) if !self.is_control_plane => {
                self.unreachable = Some(failure);
            }
            failure => self.errors.push(failure.to_string()),
        }
    }
}

async fn query_server(
    server: &QueriedServer,
    query: &Query,
    answer: &mut ServerAnswer,
) -> anyhow::Result<()> {
    let served = server.api.discover().await?.resources;
    for typed in &query.selection.types {
        let resources = match find_resources(&served, typed) {
            Ok(resources) => resources,
            Err(error) => {
                answer.errors.push(error.to_string());
                continue;
            }
        };
        for resource in resources {
            let mut answered = AnsweredResource {
                resource: resource.clone(),
                tables: Vec::new(),
                objects: Vec::new(),
                has_more: false,
            };
            if typed.objects.is_empty() {
                read_list(&server.api, query, &mut answered).await?;
            }
            for name in &typed.objects {
                let read = read_object(&server.api, query, &mut answered, name).await;
                match read {
                    Ok(()) => {}
                    Err(error) if error.is_not_found() && query.ignore_not_found => {}
                    Err(error) if is_unreachable(&error) => return Err(error.into()),
                    Err(error) => answer.errors.push(error.to_string()),
                }
            }
            answer.resources.push(answered);
        }
    }
    Ok(())
}

impl Query {
    /// The namespace of a resource in a request.
    pub(super) fn namespace_of(&self, resource: &ApiResource) -> &str {
        if resource.namespaced {
            &self.namespace
        } else {
            ""
        }
    }

    fn list_options(&self) -> ListOptions {
        ListOptions {
            label_selector: self.label_selector.clone(),
            field_selector: self.field_selector.clone(),
            limit: self.limit.unwrap_or(LIST_CHUNK_SIZE),
            ..ListOptions::default()
        }
    }
}

async fn read_list(
    api: &RemoteApi,
    query: &Query,
    answered: &mut AnsweredResource,
) -> anyhow::Result<()> {
    let resource = answered.resource.clone();
    let at = ResourcePath::collection(&resource.resource, query.namespace_of(&resource));
    let mut options = query.list_options();
    loop {
        options.continue_token = if query.as_tables {
            let table = read_table(api, query, at, &options).await?;
            let next = table.metadata.continue_token.clone();
            answered.tables.push(table);
            next
        } else {
            let page = api.list(at, &options).await?;
            for object in &page.items {
                answered.objects.push(object.value()?);
            }
            page.continue_token
        };
        if options.continue_token.is_empty() || query.limit.is_some() {
            answered.has_more = !options.continue_token.is_empty();
            return Ok(());
        }
    }
}

/// All rows of a list as one Table, with the version of the list.
pub(super) async fn list_table(
    api: &RemoteApi,
    query: &Query,
    resource: &ApiResource,
    name: &str,
) -> client::Result<Table> {
    let mut options = query.list_options();
    if !name.is_empty() {
        let comma = if options.field_selector.is_empty() {
            ""
        } else {
            ","
        };
        options.field_selector = format!("metadata.name={name}{comma}{}", options.field_selector);
    }
    let at = ResourcePath::collection(&resource.resource, query.namespace_of(resource));
    let mut table = read_table(api, query, at, &options).await?;
    while !table.metadata.continue_token.is_empty() {
        options.continue_token = std::mem::take(&mut table.metadata.continue_token);
        let page = read_table(api, query, at, &options).await?;
        table.rows.extend(page.rows);
        table.metadata = page.metadata;
    }
    Ok(table)
}

async fn read_object(
    api: &RemoteApi,
    query: &Query,
    answered: &mut AnsweredResource,
    name: &str,
) -> client::Result<()> {
    let namespace = query.namespace_of(&answered.resource);
    let at = ResourcePath::object(&answered.resource.resource, namespace, name);
    if query.as_tables {
        let table = read_table(api, query, at, &ListOptions::default()).await?;
        answered.tables.push(table);
    } else {
        answered.objects.push(api.get(at).await?.value()?);
    }
    Ok(())
}

async fn read_table(
    api: &RemoteApi,
    query: &Query,
    at: ResourcePath<'_>,
    options: &ListOptions,
) -> client::Result<Table> {
    let sort_by = query.sort_by.as_ref();
    let body = api.get_table(at, options, sort_by.is_some()).await?;
    let table = Table::decode(&body, sort_by);
    let table = table.map_err(|e| client::Error::Protocol(e.to_string()))?;
    if table.kind != "Table" {
        return Err(client::Error::Protocol(format!(
            "{} has no tables; use -o json, yaml or name",
            at.resource.resource
        )));
    }
    Ok(table)
}

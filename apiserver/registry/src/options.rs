//! Parses query parameters and `DeleteOptions` bodies into validated options.
//!
//! Rules of `apimachinery/pkg/apis/meta/{v1,internalversion}/validation`; errors are the
//! 400 or 422 of Kubernetes.

use std::time::Duration;

use admission::RequestedWriteOptions;
use client::{DeleteOptions, DeletionPropagation, ListOptions, ResourceVersionMatch};
use machinery::{FieldError, Gvk, Status};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use watchcache::ResourceVersionParams;

use crate::request::{FieldValidation, GetOptions, RegistryWatchOptions, RegistryWriteOptions};

/// Looks up the decoded value of the first query parameter with a name.
pub type QueryParamGetter<'a> = &'a (dyn Fn(&str) -> Option<String> + Sync);

const MAX_FIELD_MANAGER_LENGTH: usize = 128;
const META_GROUP: &str = "meta.k8s.io";

fn invalid_options(kind: &'static str, errors: &[FieldError]) -> Status {
    Status::invalid(&Gvk::from_static(META_GROUP, "v1", kind), "", errors)
}

/// A boolean as Kubernetes converts it: true if present and neither `0` nor `false`.
fn bool_parameter(query: QueryParamGetter<'_>, name: &str) -> Option<bool> {
    query(name).map(|v| !(v == "0" || v.eq_ignore_ascii_case("false")))
}

fn string_parameter(query: QueryParamGetter<'_>, name: &str) -> String {
    query(name).unwrap_or_default()
}

fn int_parameter(query: QueryParamGetter<'_>, name: &str) -> Result<i64, Status> {
    match query(name).as_deref() {
        None | Some("") => Ok(0),
        Some(v) => v.parse().map_err(|_| {
            Status::bad_request(format!("strconv.ParseInt: parsing {v:?}: invalid syntax"))
        }),
    }
}

/// Whether a GET of a collection is a watch.
pub fn is_watch(query: QueryParamGetter<'_>) -> bool {
    bool_parameter(query, "watch").unwrap_or(false)
}

/// Options of GET.
pub fn parse_get_options(query: QueryParamGetter<'_>) -> GetOptions {
    GetOptions {
        resource_version: string_parameter(query, "resourceVersion"),
    }
}

/// The parameters that select a revision, as they are in the query.
struct RevisionQuery {
    resource_version: String,
    resource_version_match: String,
    continue_token: String,
    send_initial_events: Option<bool>,
    limit: u64,
}

impl RevisionQuery {
    fn parse(query: QueryParamGetter<'_>) -> Result<Self, Status> {
        Ok(Self {
            resource_version: string_parameter(query, "resourceVersion"),
            resource_version_match: string_parameter(query, "resourceVersionMatch"),
            continue_token: string_parameter(query, "continue"),
            send_initial_events: bool_parameter(query, "sendInitialEvents"),
            limit: u64::try_from(int_parameter(query, "limit")?).unwrap_or(0),
        })
    }

    fn params(&self) -> ResourceVersionParams<'_> {
        ResourceVersionParams {
            resource_version: &self.resource_version,
            resource_version_match: &self.resource_version_match,
            limit: usize::try_from(self.limit).unwrap_or(usize::MAX),
            continue_token: &self.continue_token,
            send_initial_events: self.send_initial_events,
        }
    }

    /// The match, which the validation of [`Self::params`] has found to be a known one.
    fn known_match(&self) -> ResourceVersionMatch {
        match self.resource_version_match.as_str() {
            "Exact" => ResourceVersionMatch::Exact,
            "NotOlderThan" => ResourceVersionMatch::NotOlderThan,
            _ => ResourceVersionMatch::Unset,
        }
    }
}

fn resource_version_match_text(m: ResourceVersionMatch) -> &'static str {
    match m {
        ResourceVersionMatch::Unset => "",
        ResourceVersionMatch::Exact => "Exact",
        ResourceVersionMatch::NotOlderThan => "NotOlderThan",
    }
}

/// The parameters of a list that the watch cache validates.
pub(crate) fn list_params(options: &ListOptions) -> ResourceVersionParams<'_> {
    ResourceVersionParams {
        resource_version: &options.resource_version,
        resource_version_match: resource_version_match_text(options.resource_version_match),
        limit: usize::try_from(options.limit).unwrap_or(usize::MAX),
        continue_token: &options.continue_token,
        send_initial_events: None,
    }
}

/// The parameters of a watch that the watch cache validates.
pub(crate) fn watch_params(options: &RegistryWatchOptions) -> ResourceVersionParams<'_> {
    ResourceVersionParams {
        resource_version: &options.resource_version,
        resource_version_match: resource_version_match_text(options.resource_version_match),
        limit: 0,
        continue_token: "",
        send_initial_events: options.send_initial_events,
    }
}

/// Options of a list (B9.3, B9.4, B9.12).
pub fn parse_list_options(query: QueryParamGetter<'_>) -> Result<ListOptions, Status> {
    let revision = RevisionQuery::parse(query)?;
    int_parameter(query, "timeoutSeconds")?;
    revision.params().for_list()?;
    Ok(ListOptions {
        label_selector: string_parameter(query, "labelSelector"),
        field_selector: string_parameter(query, "fieldSelector"),
        resource_version_match: revision.known_match(),
        resource_version: revision.resource_version,
        limit: revision.limit,
        continue_token: revision.continue_token,
    })
}

/// Options of a watch (C3.2, C3.3).
pub fn parse_watch_options(query: QueryParamGetter<'_>) -> Result<RegistryWatchOptions, Status> {
    let revision = RevisionQuery::parse(query)?;
    let seconds = int_parameter(query, "timeoutSeconds")?;
    revision.params().for_watch()?;
    Ok(RegistryWatchOptions {
        label_selector: string_parameter(query, "labelSelector"),
        field_selector: string_parameter(query, "fieldSelector"),
        resource_version_match: revision.known_match(),
        resource_version: revision.resource_version,
        send_initial_events: revision.send_initial_events,
        bookmarks: bool_parameter(query, "allowWatchBookmarks").unwrap_or(false),
        timeout: u64::try_from(seconds)
            .ok()
            .filter(|s| *s > 0)
            .map(Duration::from_secs),
    })
}

/// Options of a write. `kind` is `CreateOptions`, `UpdateOptions` or
/// `PatchOptions`: the name under which errors are reported.
pub fn parse_write_options(
    query: QueryParamGetter<'_>,
    kind: &'static str,
) -> Result<RegistryWriteOptions, Status> {
    let mut errors = Vec::new();
    if kind == "PatchOptions" && query("force").is_some() {
        let message = "may not be specified for non-apply patch";
        errors.push(FieldError::forbidden("force", message));
    }
    parse_common_write_options(query, kind, errors)
}

/// Options of a server-side apply, and whether it takes fields away from other managers.
pub fn parse_apply_options(
    query: QueryParamGetter<'_>,
) -> Result<(RegistryWriteOptions, bool), Status> {
    let mut errors = Vec::new();
    if string_parameter(query, "fieldManager").is_empty() {
        let message = "is required for apply patch";
        errors.push(FieldError::required("fieldManager", message));
    }
    let force = bool_parameter(query, "force").unwrap_or(false);
    let options = parse_common_write_options(query, "PatchOptions", errors)?;
    Ok((options, force))
}

/// The manager of a write that names none: the program in its `User-Agent`
/// (`prefixFromUserAgent`).
pub fn field_manager_of_user_agent(user_agent: &str) -> String {
    let program = user_agent.split('/').next().unwrap_or_default();
    let mut manager = String::new();
    for c in program.chars().filter(|c| !c.is_control()) {
        if manager.len() + c.len_utf8() > MAX_FIELD_MANAGER_LENGTH {
            break;
        }
        manager.push(c);
    }
    manager
}

fn parse_common_write_options(
    query: QueryParamGetter<'_>,
    kind: &'static str,
    mut errors: Vec<FieldError>,
) -> Result<RegistryWriteOptions, Status> {
    let dry_run = match query("dryRun").as_deref() {
        None => false,
        Some("All") => true,
        Some(other) => {
            errors.push(FieldError::not_supported(
                "dryRun",
                &json!([other]),
                &["All"],
            ));
            false
        }
    };
    let manager = string_parameter(query, "fieldManager");
    if manager.len() > MAX_FIELD_MANAGER_LENGTH {
        errors.push(FieldError::too_long(
            "fieldManager",
            MAX_FIELD_MANAGER_LENGTH,
        ));
    }
    for (position, character) in manager.char_indices() {
        if character.is_control() || (character.is_whitespace() && character != ' ') {
            let code = u32::from(character);
            let message = format!("invalid character U+{code:04X} (at position {position})");
            errors.push(FieldError::invalid(
                "fieldManager",
                &json!(manager),
                message,
            ));
        }
    }
    let requested = RequestedWriteOptions {
        field_manager: manager.clone(),
        field_validation: string_parameter(query, "fieldValidation"),
    };
    let field_validation = match requested.field_validation.as_str() {
        "" | "Warn" => FieldValidation::Warn,
        "Ignore" => FieldValidation::Ignore,
        "Strict" => FieldValidation::Strict,
        other => {
            errors.push(FieldError::not_supported(
                "fieldValidation",
                &json!(other),
                &["", "Ignore", "Strict", "Warn"],
            ));
            FieldValidation::Warn
        }
    };
    if !errors.is_empty() {
        return Err(invalid_options(kind, &errors));
    }
    Ok(RegistryWriteOptions {
        dry_run,
        field_manager: manager,
        requested,
        creates_without_managers: false,
        field_validation,
        patch_errors: Vec::new(),
    })
}

/// Options of a deletion: from the body if there is one, otherwise from the query
/// (B8.1).
pub fn parse_delete_options(
    query: QueryParamGetter<'_>,
    body: Option<&Value>,
) -> Result<DeleteOptions, Status> {
    match body {
        Some(body) if !body.is_null() => parse_delete_options_body(body),
        _ => {
            let grace = match query("gracePeriodSeconds") {
                Some(_) => Some(int_parameter(query, "gracePeriodSeconds")?),
                None => None,
            };
            let dry: Vec<String> = query("dryRun").into_iter().collect();
            validate_delete_options(
                bool_parameter(query, "orphanDependents"),
                query("propagationPolicy").as_deref(),
                grace,
                &dry,
            )
        }
    }
}

/// `DeleteOptions` of `meta.k8s.io/v1`. A field of a wrong type is an error: the client
/// does not want a deletion without a precondition that cannot be parsed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeleteOptionsBody {
    api_version: Option<String>,
    kind: Option<String>,
    dry_run: Option<Vec<String>>,
    orphan_dependents: Option<bool>,
    propagation_policy: Option<String>,
    grace_period_seconds: Option<i64>,
    preconditions: Option<Map<String, Value>>,
}

fn parse_delete_options_body(body: &Value) -> Result<DeleteOptions, Status> {
    let unreadable = |message: &dyn std::fmt::Display| {
        Status::bad_request(format!("unable to decode DeleteOptions: {message}"))
    };
    let body = DeleteOptionsBody::deserialize(body).map_err(|e| unreadable(&e))?;
    if let Some(kind) = body.kind
        && !matches!(kind.as_str(), "" | "DeleteOptions")
    {
        return Err(Status::bad_request(format!(
            "no kind {kind:?} is registered for version {:?} in scheme \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\"",
            body.api_version.unwrap_or_default()
        )));
    }
    let mut options = validate_delete_options(
        body.orphan_dependents,
        body.propagation_policy.as_deref(),
        body.grace_period_seconds,
        &body.dry_run.unwrap_or_default(),
    )?;
    let preconditions = body.preconditions.unwrap_or_default();
    let precondition = |name: &str| match preconditions.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(unreadable(&format!(
            "preconditions.{name} must be a string"
        ))),
    };
    options.uid = precondition("uid")?;
    options.resource_version = precondition("resourceVersion")?;
    Ok(options)
}

fn validate_delete_options(
    orphan: Option<bool>,
    policy: Option<&str>,
    grace: Option<i64>,
    dry_run: &[String],
) -> Result<DeleteOptions, Status> {
    let mut errors = Vec::new();
    let propagation = match policy {
        None => orphan.map(|o| {
            if o {
                DeletionPropagation::Orphan
            } else {
                DeletionPropagation::Background
            }
        }),
        Some("Background") => Some(DeletionPropagation::Background),
        Some("Foreground") => Some(DeletionPropagation::Foreground),
        Some("Orphan") => Some(DeletionPropagation::Orphan),
        Some(other) => {
            errors.push(FieldError::not_supported(
                "propagationPolicy",
                &json!(other),
                &["Foreground", "Background", "Orphan", "nil"],
            ));
            None
        }
    };
    if orphan.is_some() && policy.is_some() {
        errors.push(FieldError::invalid(
            "propagationPolicy",
            &json!(policy),
            "orphanDependents and deletionPropagation cannot be both set",
        ));
    }
    if dry_run.iter().any(|v| v != "All") {
        errors.push(FieldError::not_supported(
            "dryRun",
            &json!(dry_run),
            &["All"],
        ));
    }
    if !errors.is_empty() {
        return Err(invalid_options("DeleteOptions", &errors));
    }
    Ok(DeleteOptions {
        propagation,
        grace_period_seconds: grace,
        dry_run: !dry_run.is_empty(),
        ..DeleteOptions::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_query<R>(text: &str, f: impl FnOnce(QueryParamGetter<'_>) -> R) -> R {
        let pairs: Vec<(String, String)> = text
            .split('&')
            .filter_map(|p| p.split_once('='))
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect();
        f(&|name: &str| {
            pairs
                .iter()
                .find(|(k, _)| k == name)
                .map(|(_, v)| v.clone())
        })
    }

    fn status_code<T>(result: Result<T, Status>) -> u16 {
        result.err().map_or(200, |s| s.code)
    }

    #[test]
    fn list_options_follow_the_resource_version_table() {
        let table = [
            ("", 200),
            ("resourceVersion=0", 200),
            ("resourceVersion=5&limit=2", 200),
            ("resourceVersion=5&resourceVersionMatch=Exact", 200),
            ("resourceVersion=0&resourceVersionMatch=NotOlderThan", 200),
            ("resourceVersion=0&resourceVersionMatch=Exact", 422),
            ("resourceVersionMatch=Exact", 422),
            ("resourceVersion=5&resourceVersionMatch=Newest", 422),
            (
                "continue=x&resourceVersionMatch=Exact&resourceVersion=4",
                422,
            ),
            ("continue=x&resourceVersion=5", 400),
            ("resourceVersion=abc", 400),
            ("sendInitialEvents=true", 422),
            ("limit=x", 400),
            ("unknown=1", 200),
        ];
        for (query, expected) in table {
            assert_eq!(
                with_query(query, |q| status_code(parse_list_options(q))),
                expected,
                "{query}"
            );
        }
    }

    #[test]
    fn unsupported_watch_options_are_rejected() {
        let table = [
            ("", 200),
            ("resourceVersionMatch=NotOlderThan", 422),
            ("sendInitialEvents=true", 422),
            ("sendInitialEvents=true&resourceVersionMatch=Exact", 422),
            (
                "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
                200,
            ),
            (
                "sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
                200,
            ),
            ("continue=a", 422),
            ("continue=a&resourceVersion=5", 200),
            ("limit=x", 400),
        ];
        for (query, expected) in table {
            assert_eq!(
                with_query(query, |q| status_code(parse_watch_options(q))),
                expected,
                "{query}"
            );
        }
    }

    #[test]
    fn write_and_delete_options_are_validated() {
        let long_manager = format!("fieldManager={}", "a".repeat(129));
        let table = [
            ("dryRun=All", 200),
            ("dryRun=Some", 422),
            ("fieldValidation=Strict", 200),
            ("fieldValidation=strict", 422),
            ("fieldManager=a%", 200),
            (long_manager.as_str(), 422),
            ("force=true", 422),
        ];
        for (query, expected) in table {
            assert_eq!(
                with_query(query, |q| status_code(parse_write_options(
                    q,
                    "PatchOptions"
                ))),
                expected,
                "{query}"
            );
        }
        let bodies = [
            (json!({"propagationPolicy": "Foreground"}), 200),
            (json!({"propagationPolicy": "Sideways"}), 422),
            (
                json!({"propagationPolicy": "Orphan", "orphanDependents": true}),
                422,
            ),
            (json!({"dryRun": ["Some"]}), 422),
            (json!({"kind": "Pod"}), 400),
            (json!([]), 400),
        ];
        for (body, expected) in bodies {
            assert_eq!(
                with_query("", |q| status_code(parse_delete_options(q, Some(&body)))),
                expected,
                "{body}"
            );
        }
        let options = with_query("propagationPolicy=Orphan&gracePeriodSeconds=0", |q| {
            parse_delete_options(q, None).unwrap()
        });
        assert_eq!(
            (options.propagation, options.grace_period_seconds),
            (Some(DeletionPropagation::Orphan), Some(0))
        );
    }
}

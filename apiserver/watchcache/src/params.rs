//! Validates the query parameters of gets, lists and watches and converts them to
//! revisions. Source: `apimachinery/pkg/apis/meta/internalversion/validation`.

use std::num::IntErrorKind;

use machinery::{FieldError, Gvk, Status};
use serde_json::json;

use crate::cache_watcher::WatchStart;
use crate::cacher::ReadFreshness;
use crate::list::ListRevision;

/// The query parameters of a get, list or watch that select a revision. An empty string
/// is an absent parameter.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResourceVersionParams<'a> {
    pub resource_version: &'a str,
    pub resource_version_match: &'a str,
    /// 0: none.
    pub limit: usize,
    pub continue_token: &'a str,
    pub send_initial_events: Option<bool>,
}

const MATCH_EXACT: &str = "Exact";
const MATCH_NOT_OLDER_THAN: &str = "NotOlderThan";
const MATCH_FIELD: &str = "resourceVersionMatch";

impl ResourceVersionParams<'_> {
    /// For a get, which uses only `resource_version`.
    pub fn for_get(&self) -> Result<ReadFreshness, Status> {
        Ok(match self.parse_revision().map_err(unparsed_revision)? {
            None => ReadFreshness::Newest,
            Some(0) => ReadFreshness::Any,
            Some(n) => ReadFreshness::AtLeast(n),
        })
    }

    /// For a list.
    pub fn for_list(&self) -> Result<ListRevision, Status> {
        let mut errors = Vec::new();
        let matching = self.resource_version_match;
        if !matching.is_empty() {
            if self.resource_version.is_empty() {
                errors.push(FieldError::forbidden(
                    MATCH_FIELD,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if !self.continue_token.is_empty() {
                errors.push(FieldError::forbidden(
                    MATCH_FIELD,
                    "resourceVersionMatch is forbidden when continue is provided",
                ));
            }
            if matching != MATCH_EXACT && matching != MATCH_NOT_OLDER_THAN {
                errors.push(FieldError::not_supported(
                    MATCH_FIELD,
                    &json!(matching),
                    &[MATCH_EXACT, MATCH_NOT_OLDER_THAN, ""],
                ));
            }
            if matching == MATCH_EXACT && self.resource_version == "0" {
                errors.push(FieldError::forbidden(
                    MATCH_FIELD,
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
            }
        }
        if self.send_initial_events.is_some() {
            errors.push(FieldError::forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            ));
        }
        invalid_list_options(&errors)?;
        let revision = self
            .parse_revision()
            .map_err(|e| Status::bad_request(format!("invalid resource version: {e}")))?;
        if !self.continue_token.is_empty() {
            // "0" is allowed for old clients, as in Kubernetes.
            if revision.is_some_and(|n| n > 0) {
                return Err(Status::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            return Ok(ListRevision::Continue(self.continue_token.to_owned()));
        }
        Ok(match (revision, matching) {
            (None, _) => ListRevision::Newest,
            (Some(0), _) => ListRevision::Any,
            (Some(n), MATCH_EXACT) => ListRevision::Exact(n),
            (Some(n), "") if self.limit > 0 => ListRevision::Exact(n),
            (Some(n), _) => ListRevision::AtLeast(n),
        })
    }

    /// For a watch.
    pub fn for_watch(&self) -> Result<WatchStart, Status> {
        invalid_list_options(&self.watch_errors())?;
        let revision = self.parse_revision().map_err(unparsed_revision)?;
        let fresh = match revision {
            None => ReadFreshness::Newest,
            Some(0) => ReadFreshness::Any,
            Some(n) => ReadFreshness::AtLeast(n),
        };
        Ok(match (self.send_initial_events, revision) {
            (Some(true), _) | (None, None | Some(0)) => WatchStart::Initial(fresh),
            (_, Some(n)) if n > 0 => WatchStart::After(n),
            _ => WatchStart::Now(fresh),
        })
    }

    fn watch_errors(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        // Without other wishes, a watch from the present state asks for initial events.
        let from_present = self.send_initial_events.is_none()
            && self.resource_version_match.is_empty()
            && matches!(self.resource_version, "" | "0");
        let (matching, initial) = match from_present {
            true => (MATCH_NOT_OLDER_THAN, Some(true)),
            false => (self.resource_version_match, self.send_initial_events),
        };
        let forbidden = |message| FieldError::forbidden(MATCH_FIELD, message);
        if initial.is_some() && matching != MATCH_NOT_OLDER_THAN {
            errors.push(forbidden(
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        }
        if matching.is_empty() {
            return errors;
        }
        if initial.is_none() {
            errors.push(forbidden(
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        if matching != MATCH_NOT_OLDER_THAN {
            errors.push(FieldError::not_supported(
                MATCH_FIELD,
                &json!(matching),
                &[MATCH_NOT_OLDER_THAN],
            ));
        }
        if !self.continue_token.is_empty() {
            errors.push(forbidden(
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        errors
    }

    /// The error is Kubernetes' text.
    fn parse_revision(&self) -> Result<Option<u64>, String> {
        let text = self.resource_version;
        if text.is_empty() {
            return Ok(None);
        }
        let message = match text.parse::<u64>() {
            // Go's parser takes no sign.
            Ok(revision) if !text.starts_with('+') => return Ok(Some(revision)),
            Err(e) if *e.kind() == IntErrorKind::PosOverflow => "value out of range",
            _ => "invalid syntax",
        };
        Err(format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: {message}"
        ))
    }
}

/// Kubernetes' handlers of gets and watches do not convert this error, so that it is a 500
/// without a reason.
fn unparsed_revision(message: String) -> Status {
    Status::failure(500, "", message)
}

fn invalid_list_options(errors: &[FieldError]) -> Result<(), Status> {
    if errors.is_empty() {
        return Ok(());
    }
    let kind = Gvk {
        group: "meta.k8s.io".into(),
        version: "v1".into(),
        kind: "ListOptions".into(),
    };
    Err(Status::invalid(&kind, "", errors))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params<'a>(
        rv: &'a str,
        matching: &'a str,
        limit: usize,
        token: &'a str,
    ) -> ResourceVersionParams<'a> {
        ResourceVersionParams {
            resource_version: rv,
            resource_version_match: matching,
            limit,
            continue_token: token,
            send_initial_events: None,
        }
    }

    fn show<T: std::fmt::Debug>(result: Result<T, Status>) -> String {
        match result {
            Ok(value) => format!("{value:?}"),
            Err(status) => status.code.to_string(),
        }
    }

    #[test]
    fn list_parameters() {
        let table = [
            (params("", "", 0, ""), "Newest"),
            (params("", "", 5, ""), "Newest"),
            (params("0", "", 0, ""), "Any"),
            (params("0", "", 5, ""), "Any"),
            (params("0", MATCH_NOT_OLDER_THAN, 0, ""), "Any"),
            (params("7", "", 0, ""), "AtLeast(7)"),
            (params("7", "", 5, ""), "Exact(7)"),
            (params("7", MATCH_NOT_OLDER_THAN, 5, ""), "AtLeast(7)"),
            (params("7", MATCH_EXACT, 0, ""), "Exact(7)"),
            (params("0", MATCH_EXACT, 0, ""), "422"),
            (params("", MATCH_EXACT, 0, ""), "422"),
            (params("", MATCH_NOT_OLDER_THAN, 0, ""), "422"),
            (params("7", "Nearly", 0, ""), "422"),
            (params("7", MATCH_EXACT, 0, "t"), "422"),
            (params("x", "", 0, ""), "400"),
            (params("-1", "", 0, ""), "400"),
            (params("7", "", 0, "t"), "400"),
            (params("", "", 5, "t"), "Continue(\"t\")"),
            (params("0", "", 5, "t"), "Continue(\"t\")"),
        ];
        for (params, expected) in table {
            assert_eq!(show(params.for_list()), expected, "{params:?}");
        }
        let watch_only = ResourceVersionParams {
            send_initial_events: Some(true),
            ..ResourceVersionParams::default()
        };
        assert_eq!(show(watch_only.for_list()), "422");
    }

    #[test]
    fn watch_parameters() {
        let table = [
            ("", "", None, "Initial(Newest)"),
            ("0", "", None, "Initial(Any)"),
            ("7", "", None, "After(7)"),
            ("", MATCH_NOT_OLDER_THAN, Some(true), "Initial(Newest)"),
            ("0", MATCH_NOT_OLDER_THAN, Some(true), "Initial(Any)"),
            ("7", MATCH_NOT_OLDER_THAN, Some(true), "Initial(AtLeast(7))"),
            ("", MATCH_NOT_OLDER_THAN, Some(false), "Now(Newest)"),
            ("0", MATCH_NOT_OLDER_THAN, Some(false), "Now(Any)"),
            ("7", MATCH_NOT_OLDER_THAN, Some(false), "After(7)"),
            ("", "", Some(true), "422"),
            ("7", "", Some(false), "422"),
            ("7", MATCH_EXACT, Some(true), "422"),
            ("7", MATCH_NOT_OLDER_THAN, None, "422"),
            ("x", "", None, "500"),
        ];
        for (rv, matching, initial, expected) in table {
            let params = ResourceVersionParams {
                send_initial_events: initial,
                ..params(rv, matching, 0, "")
            };
            assert_eq!(show(params.for_watch()), expected, "{params:?}");
        }
    }
}

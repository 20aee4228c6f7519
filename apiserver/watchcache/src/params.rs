//! Validates the query parameters of gets, lists and watches and converts them to
//! revisions. Source: `apimachinery/pkg/apis/meta/internalversion/validation`.

use machinery::{FieldError, Gvk, Status};
use serde_json::json;

use crate::cache::Freshness;
use crate::list::At;
use crate::watcher::Start;

/// The query parameters of a get, list or watch that select a revision. An empty string
/// is an absent parameter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Params<'a> {
    pub resource_version: &'a str,
    pub resource_version_match: &'a str,
    /// 0: none.
    pub limit: usize,
    pub continue_token: &'a str,
    pub send_initial_events: Option<bool>,
}

const EXACT: &str = "Exact";
const NOT_OLDER: &str = "NotOlderThan";
const MATCH: &str = "resourceVersionMatch";

impl Params<'_> {
    /// For a get, which uses only `resource_version`.
    pub fn get(&self) -> Result<Freshness, Status> {
        Ok(match self.revision()? {
            None => Freshness::Newest,
            Some(0) => Freshness::Any,
            Some(n) => Freshness::AtLeast(n),
        })
    }

    /// For a list.
    pub fn list(&self) -> Result<At, Status> {
        let mut errors = Vec::new();
        let matching = self.resource_version_match;
        if !matching.is_empty() {
            if self.resource_version.is_empty() {
                errors.push(FieldError::forbidden(
                    MATCH,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if !self.continue_token.is_empty() {
                errors.push(FieldError::forbidden(
                    MATCH,
                    "resourceVersionMatch is forbidden when continue is provided",
                ));
            }
            if matching != EXACT && matching != NOT_OLDER {
                errors.push(FieldError::not_supported(
                    MATCH,
                    &json!(matching),
                    &[EXACT, NOT_OLDER, ""],
                ));
            }
            if matching == EXACT && self.resource_version == "0" {
                errors.push(FieldError::forbidden(
                    MATCH,
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
        refuse(&errors)?;
        let revision = self.revision()?;
        if !self.continue_token.is_empty() {
            // "0" is allowed for old clients, as in Kubernetes.
            if revision.is_some_and(|n| n > 0) {
                return Err(Status::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            return Ok(At::Continue(self.continue_token.to_owned()));
        }
        Ok(match (revision, matching) {
            (None, _) => At::Newest,
            (Some(0), _) => At::Any,
            (Some(n), EXACT) => At::Exact(n),
            (Some(n), "") if self.limit > 0 => At::Exact(n),
            (Some(n), _) => At::AtLeast(n),
        })
    }

    /// For a watch.
    pub fn watch(&self) -> Result<Start, Status> {
        let mut errors = Vec::new();
        let matching = self.resource_version_match;
        match self.send_initial_events {
            None if !matching.is_empty() => errors.push(FieldError::forbidden(
                MATCH,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )),
            Some(_) if matching.is_empty() => errors.push(FieldError::forbidden(
                MATCH,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )),
            Some(_) if matching != NOT_OLDER => errors.push(FieldError::not_supported(
                MATCH,
                &json!(matching),
                &[NOT_OLDER],
            )),
            _ => {}
        }
        refuse(&errors)?;
        let revision = self.revision()?;
        let fresh = match revision {
            None => Freshness::Newest,
            Some(0) => Freshness::Any,
            Some(n) => Freshness::AtLeast(n),
        };
        Ok(match (self.send_initial_events, revision) {
            (Some(true), _) | (None, None | Some(0)) => Start::Initial(fresh),
            (_, Some(n)) if n > 0 => Start::After(n),
            _ => Start::Now(fresh),
        })
    }

    fn revision(&self) -> Result<Option<u64>, Status> {
        let text = self.resource_version;
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| {
            Status::bad_request(format!(
                "Invalid value: {text:?}: resourceVersion is no number"
            ))
        })
    }
}

fn refuse(errors: &[FieldError]) -> Result<(), Status> {
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

    fn params<'a>(rv: &'a str, matching: &'a str, limit: usize, token: &'a str) -> Params<'a> {
        Params {
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
            (params("0", NOT_OLDER, 0, ""), "Any"),
            (params("7", "", 0, ""), "AtLeast(7)"),
            (params("7", "", 5, ""), "Exact(7)"),
            (params("7", NOT_OLDER, 5, ""), "AtLeast(7)"),
            (params("7", EXACT, 0, ""), "Exact(7)"),
            (params("0", EXACT, 0, ""), "422"),
            (params("", EXACT, 0, ""), "422"),
            (params("", NOT_OLDER, 0, ""), "422"),
            (params("7", "Nearly", 0, ""), "422"),
            (params("7", EXACT, 0, "t"), "422"),
            (params("x", "", 0, ""), "400"),
            (params("-1", "", 0, ""), "400"),
            (params("7", "", 0, "t"), "400"),
            (params("", "", 5, "t"), "Continue(\"t\")"),
            (params("0", "", 5, "t"), "Continue(\"t\")"),
        ];
        for (params, expected) in table {
            assert_eq!(show(params.list()), expected, "{params:?}");
        }
        let watch_only = Params {
            send_initial_events: Some(true),
            ..Params::default()
        };
        assert_eq!(show(watch_only.list()), "422");
    }

    #[test]
    fn watch_parameters() {
        let table = [
            ("", "", None, "Initial(Newest)"),
            ("0", "", None, "Initial(Any)"),
            ("7", "", None, "After(7)"),
            ("", NOT_OLDER, Some(true), "Initial(Newest)"),
            ("0", NOT_OLDER, Some(true), "Initial(Any)"),
            ("7", NOT_OLDER, Some(true), "Initial(AtLeast(7))"),
            ("", NOT_OLDER, Some(false), "Now(Newest)"),
            ("0", NOT_OLDER, Some(false), "Now(Any)"),
            ("7", NOT_OLDER, Some(false), "After(7)"),
            ("", "", Some(true), "422"),
            ("7", "", Some(false), "422"),
            ("7", EXACT, Some(true), "422"),
            ("7", NOT_OLDER, None, "422"),
            ("x", "", None, "400"),
        ];
        for (rv, matching, initial, expected) in table {
            let params = Params {
                send_initial_events: initial,
                ..params(rv, matching, 0, "")
            };
            assert_eq!(show(params.watch()), expected, "{params:?}");
        }
    }
}

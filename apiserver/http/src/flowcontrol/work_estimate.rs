//! Estimates how many seats a request occupies (kube-apiserver's `WorkEstimator`).
//!
//! A write occupies one seat: its watch event is encoded once, however many watchers it
//! has, so nothing is added for them as kube-apiserver does.

use crate::requestinfo::{QueryParams, RequestInfo, RequestedResource};

const OBJECTS_PER_SEAT: usize = 100;
const MAX_LIST_SEATS: usize = 10;

/// Returns the number of stored objects of a resource, when it is known.
pub(super) type ObjectCountFn<'a> = &'a dyn Fn(&RequestedResource) -> Option<usize>;

/// The seats of a request, at most `max_seats`.
pub(super) fn estimate_seats(
    info: &RequestInfo,
    query: &QueryParams,
    max_seats: usize,
    object_count: ObjectCountFn<'_>,
) -> usize {
    let Some(requested) = &info.resource else {
        return 1;
    };
    let is_listed = match info.verb {
        "list" => requested.subresource.is_empty(),
        "watch" => sends_initial_events(query),
        _ => false,
    };
    // A list of one name is a get.
    if !is_listed || !requested.name.is_empty() {
        return 1;
    }
    let stored = object_count(requested).unwrap_or_default();
    let limit = query.get("limit").and_then(|limit| limit.parse().ok());
    let limit = limit.filter(|limit| *limit > 0).unwrap_or(usize::MAX);
    let has_selector = ["labelSelector", "fieldSelector"]
        .iter()
        .any(|key| query.get(key).is_some_and(|selector| !selector.is_empty()));
    // Objects that no selector accepts are processed as well.
    let processed = if has_selector {
        stored
    } else {
        stored.min(limit)
    };
    let max = max_seats.clamp(1, MAX_LIST_SEATS);
    processed.div_ceil(OBJECTS_PER_SEAT).clamp(1, max)
}

/// Whether a watch begins with the objects that exist.
fn sends_initial_events(query: &QueryParams) -> bool {
    let revision = query.get("resourceVersion").unwrap_or_default();
    match query.get("sendInitialEvents") {
        Some(value) => matches!(value, "true" | "1"),
        None => matches!(revision, "" | "0"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requestinfo::parse_request;
    use http::Method;

    #[test]
    fn lists_and_initial_events_are_wide() {
        for (method, url, stored, expected) in [
            (Method::GET, "/version", 5000, 1),
            (Method::GET, "/api/v1/pods", 50, 1),
            (Method::GET, "/api/v1/pods", 450, 5),
            (Method::GET, "/api/v1/pods", 5000, 7),
            (Method::GET, "/api/v1/pods?limit=200", 5000, 2),
            (
                Method::GET,
                "/api/v1/pods?limit=200&labelSelector=a",
                500,
                5,
            ),
            (
                Method::GET,
                "/api/v1/pods?fieldSelector=metadata.name%3Da",
                500,
                1,
            ),
            (Method::GET, "/api/v1/pods?watch=1", 450, 5),
            (
                Method::GET,
                "/api/v1/pods?watch=1&resourceVersion=7",
                450,
                1,
            ),
            (
                Method::GET,
                "/api/v1/pods?watch=1&resourceVersion=7&sendInitialEvents=true",
                450,
                5,
            ),
            (Method::POST, "/api/v1/namespaces/a/pods", 450, 1),
        ] {
            let (path, query) = url.split_once('?').unwrap_or((url, ""));
            let query = QueryParams::parse(Some(query));
            let info = parse_request(&method, path, &query).unwrap();
            let count = |_: &RequestedResource| Some(stored);
            assert_eq!(estimate_seats(&info, &query, 7, &count), expected, "{url}");
        }
    }
}

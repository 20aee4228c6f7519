//! Serves `/debug/pprof`: CPU profiles of this process, at Go's paths
//! (`server/routes/profiling.go`, `net/http/pprof/pprof.go`).

use std::sync::mpsc;
use std::time::Duration;

use flotilla_profiling::ProfileError;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Response};
use machinery::Status;

use crate::requestinfo::QueryParams;
use crate::response_body::ServerResponseBody;
use crate::response_writers;

/// The path of the index; profiles are below it.
pub(crate) const INDEX_PATH: &str = "/debug/pprof";
const PROFILE_PATH: &str = "/debug/pprof/profile";
const DEFAULT_SECONDS: u64 = 30;
/// The longest profile; stacks beyond those of some minutes are few.
const MAX_SECONDS: u64 = 600;
const INDEX: &str = "\
Profiles of this process:

profile?seconds=N  CPU time of all threads during N seconds (30 by default), for `go tool pprof`
";

/// Whether a path has a profile, which takes as long as its client wants.
pub(crate) fn is_profile(path: &str) -> bool {
    path == PROFILE_PATH
}

/// Serves a path from [`INDEX_PATH`] on. A profile ends when its client goes away.
pub(crate) async fn serve(
    path: &str,
    query: &QueryParams,
) -> Result<Response<ServerResponseBody>, Status> {
    match path {
        INDEX_PATH => Ok(response_writers::write_text(200, INDEX.into())),
        PROFILE_PATH => take_profile(seconds(query)?).await,
        _ => Err(Status::page_not_found()),
    }
}

/// Nothing, zero and what is no number mean the default, as in Go.
fn seconds(query: &QueryParams) -> Result<u64, Status> {
    let requested = query.get("seconds").and_then(|text| text.parse().ok());
    match requested.filter(|seconds| *seconds > 0) {
        None => Ok(DEFAULT_SECONDS),
        Some(seconds) if seconds <= MAX_SECONDS => Ok(seconds),
        Some(_) => Err(Status::bad_request(format!(
            "seconds: must be at most {MAX_SECONDS}"
        ))),
    }
}

async fn take_profile(seconds: u64) -> Result<Response<ServerResponseBody>, Status> {
    // The profile ends when this future is dropped, and the sender with it.
    let (_taking, stop) = mpsc::channel();
    let duration = Duration::from_secs(seconds);
    let result =
        tokio::task::spawn_blocking(move || flotilla_profiling::cpu_profile(duration, &stop));
    match result.await {
        Ok(Ok(profile)) => {
            let mut response = Response::new(ServerResponseBody::full(profile));
            set_headers(response.headers_mut());
            Ok(response)
        }
        Ok(Err(ProfileError::InUse)) => Err(Status::internal(
            "Could not enable CPU profiling: cpu profiling already in use",
        )),
        Ok(Err(ProfileError::Kernel(e))) => Err(Status::internal(format!(
            "Could not enable CPU profiling: perf_event_open: {e}; give the container \
             the capability PERFMON, or set the sysctl kernel.perf_event_paranoid to 2 or less"
        ))),
        Err(ended) => Err(Status::internal(ended)),
    }
}

fn set_headers(headers: &mut HeaderMap) {
    let format = HeaderValue::from_static("application/octet-stream");
    headers.insert(CONTENT_TYPE, format);
    let file = HeaderValue::from_static("attachment; filename=\"profile\"");
    headers.insert(CONTENT_DISPOSITION, file);
}

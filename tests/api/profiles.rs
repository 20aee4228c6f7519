//! CPU profiles of the server at Go's paths.

use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::read::GzDecoder;
use harness::raw_http::{RawHttpRequest, RawHttpResponse};

use crate::api::test_server::ApiTestServer;

fn get(server: &ApiTestServer, path: &str) -> RawHttpResponse {
    RawHttpRequest::new(&server.address, &server.admin, "GET", path).send()
}

/// A profile of a second in which the server is busy.
fn profile_of_busy_server(server: &ApiTestServer) -> RawHttpResponse {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert_eq!(get(server, "/openapi/v2").code, 200);
            }
        });
        let profile = get(server, "/debug/pprof/profile?seconds=1");
        done.store(true, Ordering::Relaxed);
        profile
    })
}

#[test]
fn profiles_of_the_cpu_name_functions_of_the_server() {
    let server = ApiTestServer::start();
    let index = get(&server, "/debug/pprof/");
    assert_eq!(index.code, 200);
    assert!(index.text().contains("profile?seconds="));
    assert_eq!(get(&server, "/debug/pprof/heap").code, 404);
    let long = get(&server, "/debug/pprof/profile?seconds=601");
    assert_eq!(long.code, 400);
    assert!(long.text().contains("seconds: must be at most 600"));
    let path = "/debug/pprof/";
    let stranger = RawHttpRequest::new(&server.address, &server.anonymous, "GET", path);
    assert_eq!(stranger.send().code, 403);

    let profile = profile_of_busy_server(&server);
    match profile.code {
        200 => assert_functions(&profile),
        // Containers and hardened kernels forbid samples; then the answer says so.
        code => {
            let message = profile.text();
            assert_eq!(code, 500, "{message}");
            assert!(message.contains("kernel.perf_event_paranoid"), "{message}");
        }
    }
}

fn assert_functions(profile: &RawHttpResponse) {
    assert_eq!(profile.header("content-type"), "application/octet-stream");
    let mut decoded = Vec::new();
    let mut reader = GzDecoder::new(profile.body.as_slice());
    reader.read_to_end(&mut decoded).unwrap();
    let text = String::from_utf8_lossy(&decoded);
    for name in ["nanoseconds", "tokio::runtime", "flotilla_http::"] {
        assert!(text.contains(name), "{name} is not in the profile");
    }
}

#[test]
fn one_profile_is_taken_at_a_time() {
    let server = ApiTestServer::start();
    let path = "/debug/pprof/profile?seconds=2";
    let both = std::thread::scope(|scope| {
        let first = scope.spawn(|| get(&server, path));
        let second = scope.spawn(|| get(&server, path));
        [first.join().unwrap(), second.join().unwrap()]
    });
    let failures: Vec<_> = both.iter().filter(|r| r.code == 500).collect();
    match failures.as_slice() {
        [one] => assert!(one.text().contains("cpu profiling already in use")),
        [_, other] => assert!(other.text().contains("kernel.perf_event_paranoid")),
        _ => panic!("two profiles at a time"),
    }
}

#[test]
fn profiles_are_turned_off_by_a_flag() {
    let server = ApiTestServer::start_with(&["--profiling=false"]);
    assert_eq!(get(&server, "/debug/pprof/").code, 404);
    assert_eq!(get(&server, "/debug/pprof/profile?seconds=1").code, 404);
}

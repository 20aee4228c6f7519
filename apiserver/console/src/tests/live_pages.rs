//! Pages are kept up to date by server-sent events.

use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE, COOKIE};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use karmada_api::resources::CLUSTERS;

use super::fixture::{ConsoleFixture, cluster, fleet, request};
use crate::response::ConsoleResponse;

const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn live(path: &str, cookie: &str) -> Request<Full<bytes::Bytes>> {
    let mut request = request(Method::GET, path);
    let headers = request.headers_mut();
    headers.insert(COOKIE, cookie.parse().unwrap());
    headers.insert(ACCEPT, "text/event-stream".parse().unwrap());
    request
}

/// The next event that is not a comment.
pub(super) async fn next_event(response: &mut ConsoleResponse) -> String {
    let read = async {
        loop {
            let frame = response.body_mut().frame().await.unwrap().unwrap();
            let text = String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap();
            if !text.starts_with(':') {
                return text;
            }
        }
    };
    tokio::time::timeout(TIMEOUT, read).await.unwrap()
}

// proves: CON-live
#[tokio::test]
async fn a_change_arrives_as_an_event() {
    let fixture = ConsoleFixture::start(fleet()).await;
    let cookie = fixture.login().await;
    let mut response = fixture.respond(live("/", &cookie)).await;
    assert_eq!(response.headers()[CONTENT_TYPE], "text/event-stream");
    let first = next_event(&mut response).await;
    assert!(
        first.starts_with("event: fragment\ndata: <div id=\"live\""),
        "{first}"
    );
    assert!(first.contains("2 clusters"), "{first}");
    let message = "a\r\n\r\nevent: fragment\ndata: forged";
    fixture
        .api
        .seed(&CLUSTERS, cluster("north", "False", message));
    let second = next_event(&mut response).await;
    assert!(second.contains("3 clusters"), "{second}");
    assert_eq!(second.matches('\n').count(), 3, "{second}");
}

// proves: CON-live-bounded
#[tokio::test]
async fn live_pages_are_bounded_and_end_with_their_connection() {
    let fixture = ConsoleFixture::start(fleet()).await;
    let cookie = fixture.login().await;
    let mut open = Vec::new();
    for _ in 0..32 {
        open.push(fixture.respond(live("/workloads", &cookie)).await);
    }
    let further = fixture.respond(live("/workloads", &cookie)).await;
    assert_eq!(further.status(), StatusCode::TOO_MANY_REQUESTS);
    open.pop();
    let further = fixture.respond(live("/workloads", &cookie)).await;
    assert_eq!(further.status(), StatusCode::OK);
    let without_session = fixture.respond(live("/", "")).await;
    assert_eq!(without_session.status(), StatusCode::UNAUTHORIZED);
    fixture.tasks.stop().await;
}

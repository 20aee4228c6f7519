//! The events on the page of a workload.

use client::Error;
use machinery::{Gvr, Status};
use serde_json::json;

use super::fixture::{ConsoleFixture, fleet};

const WEB: &str = "/workloads/shop/web%2Ddeployment";
static EVENTS: Gvr = Gvr::from_static("", "v1", "events");

// proves: CON-events, CON-escape, CON-clipped
#[tokio::test]
async fn events_are_shown_the_newest_first_and_as_text() {
    let api = fleet();
    let event = |name: &str, uid: &str, time: &str, message: &str| {
        json!({"metadata": {"name": name, "namespace": "shop"}, "type": "Warning", "reason": "Tested",
            "involvedObject": {"uid": uid}, "lastTimestamp": time, "count": 3, "message": message})
    };
    let long = format!("<script>{}", "y".repeat(5000));
    api.seed(
        &EVENTS,
        event("a", "uid-web", "2026-01-01T00:00:00Z", "the older one"),
    );
    api.seed(
        &EVENTS,
        event("b", "uid-web", "2026-01-02T00:00:00Z", &long),
    );
    api.seed(
        &EVENTS,
        event(
            "c",
            "uid-other",
            "2026-01-02T00:00:00Z",
            "of another object",
        ),
    );
    let fixture = ConsoleFixture::start(api).await;
    let page = fixture.page(WEB).await;
    let newer = page.text.find("&lt;script&gt;yyy").unwrap();
    let older = page.text.find("the older one").unwrap();
    assert!(newer < older, "{}", page.text);
    assert!(page.text.contains("× 3"), "{}", page.text);
    assert!(!page.text.contains("of another object"), "{}", page.text);
    assert!(!page.text.contains(&"y".repeat(1001)), "{}", page.text);
    assert!(!page.text.contains("<script>y"), "{}", page.text);
}

// proves: CON-events, CON-rights
#[tokio::test]
async fn events_that_may_not_be_listed_are_named() {
    let api = fleet();
    api.on_call(|call| {
        let is_event = call.resource == Some(&EVENTS);
        is_event.then(|| Error::from(Status::failure(403, "Forbidden", "no <events>")))
    });
    let fixture = ConsoleFixture::start(api).await;
    let page = fixture.page(WEB).await;
    let text = "Not all events can be read</strong><p>no &lt;events&gt;";
    assert!(page.text.contains(text), "{}", page.text);
    assert!(page.text.contains("Where it is"), "{}", page.text);
}

// proves: CON-events
#[tokio::test]
async fn of_many_events_the_newest_are_shown_and_all_are_counted() {
    let api = fleet();
    for number in 0..60 {
        // By name the newest is the last one. Clients write the times in several fields and precisions.
        let time = match number % 3 {
            0 => json!({"lastTimestamp": format!("2026-01-01T00:00:{number:02}Z")}),
            1 => {
                json!({"lastTimestamp": null, "eventTime": format!("2026-01-01T00:00:{number:02}.500000Z")})
            }
            _ => json!({"eventTime": "2026-01-01T00:00:00.000000Z",
                "series": {"count": 7, "lastObservedTime": format!("2026-01-01T00:00:{number:02}.000000Z")}}),
        };
        let mut event = json!({"metadata": {"name": format!("web.{number:02}"), "namespace": "shop"},
            "involvedObject": {"uid": "uid-web"}, "message": format!("message {number:02}")});
        let time = time.as_object().unwrap().clone();
        event.as_object_mut().unwrap().extend(time);
        api.seed(&EVENTS, event);
    }
    let fixture = ConsoleFixture::start(api).await;
    let page = fixture.page(WEB).await;
    assert!(
        page.text.contains("The newest 25 of 60 events"),
        "{}",
        page.text
    );
    let mut messages = page.text.split("message ").skip(1);
    let shown: Vec<&str> = messages.by_ref().map(|text| &text[..2]).collect();
    let newest: Vec<String> = (35..60).rev().map(|number| number.to_string()).collect();
    assert_eq!(shown, newest, "{}", page.text);
    assert!(page.text.contains("× 7"), "{}", page.text);
}

//! Logins to a console for many users: what is accepted, what is kept, and for how long.

use std::time::Duration;

use futures_util::future::join_all;
use http::header::{CONTENT_SECURITY_POLICY, COOKIE, HOST, ORIGIN, SET_COOKIE};
use http::{Method, StatusCode};
use http_body_util::Full;
use tokio::time::Instant;

use super::live_pages::next_event;
use super::users::{
    EXTERNAL_ORIGIN, HOST_NAME, UsersFixture, external_form, external_request, with_header,
};

// proves: CON-login, CON-token-redacted
#[tokio::test(start_paused = true)]
async fn a_token_is_exchanged_for_a_cookie_by_the_form_only() {
    let fixture = UsersFixture::start();
    fixture.add_user("token-a", "alice", "alpha");
    let start = fixture.get("/", "").await;
    assert_eq!(start.status, StatusCode::UNAUTHORIZED);
    assert!(
        start.text.contains("name=\"bearer-token\""),
        "{}",
        start.text
    );
    assert!(start.headers.contains_key(CONTENT_SECURITY_POLICY));
    let in_url = fixture
        .get("/login?bearer-token=token-a&token=token-a", "")
        .await;
    assert_eq!(in_url.status, StatusCode::OK);
    assert!(!in_url.headers.contains_key(SET_COOKIE) && !in_url.text.contains("token-a"));
    let opened = fixture.submit_token("token-a").await;
    let cookie = opened.headers[SET_COOKIE].to_str().unwrap();
    assert!(cookie.starts_with("__Host-flotilla-console="), "{cookie}");
    assert!(
        cookie.ends_with("; Path=/; Secure; HttpOnly; SameSite=Strict"),
        "{cookie}"
    );
    assert!(!cookie.contains("token-a") && !opened.text.contains("token-a"));
    let kept = fixture.connections();
    for token in ["wrong-token", "", "a%20b", "%ff"] {
        let page = fixture.submit_token(token).await;
        assert_eq!(page.status, StatusCode::UNAUTHORIZED, "{token}");
        assert!(
            page.text.contains("The token is not accepted"),
            "{}",
            page.text
        );
        assert!(!page.text.contains("wrong-token") && !page.headers.contains_key(SET_COOKIE));
    }
    // It is not remembered, either.
    fixture.submit_token("wrong-token").await;
    assert_eq!(fixture.connections(), kept + 2);
    for (name, value) in [
        ("sec-fetch-site", "cross-site"),
        ("origin", "https://evil.example"),
    ] {
        let request = external_form("/login", "", "bearer-token=token-a");
        let page = fixture.send(with_header(request, name, value)).await;
        assert_eq!(page.status, StatusCode::FORBIDDEN, "{name}");
    }
    let mut without_origin = external_form("/login", "", "bearer-token=token-a");
    without_origin.headers_mut().remove(ORIGIN);
    assert_eq!(
        fixture.send(without_origin).await.status,
        StatusCode::FORBIDDEN
    );
    let mut large = external_form("/login", "", "");
    *large.body_mut() = Full::from(vec![b'a'; 33 << 10]);
    assert_eq!(
        fixture.send(large).await.status,
        StatusCode::PAYLOAD_TOO_LARGE
    );
    for cookie in [
        "__Host-flotilla-console=",
        "__Host-flotilla-console=token-a",
        "other=x",
    ] {
        let page = fixture.get("/workloads", cookie).await;
        assert_eq!(page.status, StatusCode::UNAUTHORIZED, "{cookie}");
    }
    fixture.tasks.stop().await;
}

// proves: CON-logout
#[tokio::test(start_paused = true)]
async fn a_logout_ends_every_session_of_the_token() {
    let fixture = UsersFixture::start();
    fixture.add_user("token-a", "alice", "alpha");
    fixture.add_user("token-b", "bob", "bravo");
    let (first, second) = (
        fixture.login("token-a").await,
        fixture.login("token-a").await,
    );
    let bob = fixture.login("token-b").await;
    let page = fixture.get("/", &first).await;
    assert!(page.text.contains("action=\"/logout\""), "{}", page.text);
    let mut live = fixture.follow("/", &second).await;
    next_event(&mut live).await;
    let forged = fixture
        .send(external_form("/logout", &first, "token=x"))
        .await;
    assert_eq!(forged.status, StatusCode::FORBIDDEN);
    let form = format!("token={}", page.field("token"));
    let done = fixture.send(external_form("/logout", &first, &form)).await;
    assert_eq!(
        (done.status, done.location()),
        (StatusCode::SEE_OTHER, "/login")
    );
    let cookie = done.headers[SET_COOKIE].to_str().unwrap();
    assert!(cookie.starts_with("__Host-flotilla-console=;") && cookie.ends_with("Max-Age=0"));
    let last = next_event(&mut live).await;
    assert!(last.starts_with("event: session-end\n"), "{last}");
    for cookie in [&first, &second] {
        assert_eq!(
            fixture.get("/", cookie).await.status,
            StatusCode::UNAUTHORIZED
        );
    }
    assert_eq!(fixture.get("/", &bob).await.status, StatusCode::OK);
    assert_eq!(fixture.login("token-a").await.len(), first.len());
    fixture.tasks.stop().await;
}

// proves: CON-users-bounded
#[tokio::test(start_paused = true)]
async fn the_console_of_a_user_ends_when_it_is_not_used_or_others_need_it() {
    let fixture = UsersFixture::start();
    let mut cookies = Vec::new();
    for number in 0..34 {
        let token = format!("token-{number}");
        fixture.add_user(&token, &format!("user-{number}"), "alpha");
    }
    for number in 0..32 {
        cookies.push(fixture.login(&format!("token-{number}")).await);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut open = vec![fixture.follow("/", &cookies[0]).await];
    // The first one has a page open, and the second one was used last.
    assert_eq!(fixture.get("/", &cookies[1]).await.status, StatusCode::OK);
    let next = fixture.login("token-32").await;
    for (cookie, status) in [
        (&cookies[0], StatusCode::OK),
        (&cookies[1], StatusCode::OK),
        (&cookies[2], StatusCode::UNAUTHORIZED),
        (&cookies[3], StatusCode::OK),
        (&next, StatusCode::OK),
    ] {
        assert_eq!(fixture.get("/", cookie).await.status, status);
    }
    for cookie in cookies.iter().skip(1).chain([&next]) {
        open.push(fixture.follow("/", cookie).await);
    }
    let full = fixture.submit_token("token-33").await;
    assert_eq!(
        full.status,
        StatusCode::SERVICE_UNAVAILABLE,
        "{}",
        full.text
    );
    // One that nobody looks at ends, and one with an open page does not.
    drop(open.split_off(1));
    tokio::time::sleep(Duration::from_secs(31 * 60)).await;
    assert_eq!(fixture.get("/", &cookies[0]).await.status, StatusCode::OK);
    assert_eq!(
        fixture.get("/", &next).await.status,
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(
        fixture.submit_token("token-33").await.status,
        StatusCode::SEE_OTHER
    );
    fixture.tasks.stop().await;
}

// proves: CON-users-bounded
#[tokio::test(start_paused = true)]
async fn the_open_pages_of_a_user_leave_room_for_others() {
    let fixture = UsersFixture::start();
    fixture.add_user("token-a", "alice", "alpha");
    fixture.add_user("token-b", "bob", "bravo");
    let (alice, bob) = (
        fixture.login("token-a").await,
        fixture.login("token-b").await,
    );
    let mut open = Vec::new();
    for _ in 0..32 {
        open.push(fixture.follow("/", &alice).await);
    }
    let further = fixture.follow("/", &alice).await;
    assert_eq!(further.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(fixture.follow("/", &bob).await.status(), StatusCode::OK);
    fixture.tasks.stop().await;
}

// proves: CON-users-bounded
#[tokio::test(start_paused = true)]
async fn a_user_with_many_tokens_takes_no_console_of_another() {
    let fixture = UsersFixture::start();
    fixture.add_user("token-b", "bob", "bravo");
    let bob = fixture.login("token-b").await;
    let mut cookies = Vec::new();
    for number in 0..40 {
        let token = format!("token-{number}");
        fixture.add_user(&token, "alice", "alpha");
        cookies.push(fixture.login(&token).await);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(fixture.get("/", &bob).await.status, StatusCode::OK);
    let ended = fixture.get("/", &cookies[35]).await;
    assert_eq!(ended.status, StatusCode::UNAUTHORIZED);
    let mut open = Vec::new();
    for cookie in &cookies[36..] {
        open.push(fixture.follow("/", cookie).await);
        assert_eq!(open.last().unwrap().status(), StatusCode::OK);
    }
    let further = fixture.submit_token("token-0").await;
    assert_eq!(further.status, StatusCode::TOO_MANY_REQUESTS);
    fixture.tasks.stop().await;
}

// proves: CON-logins-bounded
#[tokio::test(start_paused = true)]
async fn refused_tokens_are_answered_late_and_keep_nobody_waiting() {
    let fixture = UsersFixture::start();
    fixture.add_user("token-a", "alice", "alpha");
    let began = Instant::now();
    let tokens: Vec<String> = (0..24).map(|number| format!("wrong-{number}")).collect();
    let attempts = tokens.iter().map(|token| fixture.submit_token(token));
    let login = async {
        let cookie = fixture.login("token-a").await;
        (cookie, began.elapsed().as_secs())
    };
    let (pages, (cookie, login_seconds)) = tokio::join!(join_all(attempts), login);
    assert!(
        pages
            .iter()
            .all(|page| page.status == StatusCode::UNAUTHORIZED)
    );
    assert_eq!((login_seconds, began.elapsed().as_secs()), (0, 1));
    assert_eq!(fixture.get("/", &cookie).await.status, StatusCode::OK);
    fixture.tasks.stop().await;
}

// proves: CON-external-url, CON-rebinding, CON-cross-site
#[tokio::test(start_paused = true)]
async fn only_the_external_url_is_served() {
    let fixture = UsersFixture::start();
    fixture.add_user("token-a", "alice", "alpha");
    let cookie = fixture.login("token-a").await;
    fixture.page_with("/", &cookie, "alpha").await;
    for (name, value, status) in [
        (HOST.as_str(), HOST_NAME, StatusCode::OK),
        (
            HOST.as_str(),
            "evil.example",
            StatusCode::MISDIRECTED_REQUEST,
        ),
        (
            HOST.as_str(),
            "console.example.com:8443",
            StatusCode::MISDIRECTED_REQUEST,
        ),
        (HOST.as_str(), "localhost", StatusCode::MISDIRECTED_REQUEST),
        (HOST.as_str(), "", StatusCode::MISDIRECTED_REQUEST),
        (ORIGIN.as_str(), EXTERNAL_ORIGIN, StatusCode::OK),
        (
            ORIGIN.as_str(),
            "http://console.example.com",
            StatusCode::FORBIDDEN,
        ),
        (
            ORIGIN.as_str(),
            "https://evil.example",
            StatusCode::FORBIDDEN,
        ),
        (ORIGIN.as_str(), "null", StatusCode::FORBIDDEN),
        ("sec-fetch-site", "cross-site", StatusCode::FORBIDDEN),
        ("sec-fetch-site", "same-site", StatusCode::FORBIDDEN),
        ("x-forwarded-host", "evil.example", StatusCode::OK),
    ] {
        let request = with_header(external_request(Method::GET, "/"), COOKIE.as_str(), &cookie);
        let page = fixture.send(with_header(request, name, value)).await;
        assert_eq!(page.status, status, "{name}: {value}");
    }
    for (target, status) in [
        ("https://console.example.com/", StatusCode::OK),
        ("https://evil.example/", StatusCode::MISDIRECTED_REQUEST),
    ] {
        let request = with_header(
            external_request(Method::GET, target),
            COOKIE.as_str(),
            &cookie,
        );
        assert_eq!(fixture.send(request).await.status, status, "{target}");
    }
    // An identity provider leads the browser back: to the first page, whatever page it names.
    let led = |method: Method, path: &str| {
        let request = with_header(external_request(method, path), COOKIE.as_str(), &cookie);
        let request = with_header(request, "sec-fetch-site", "cross-site");
        let request = with_header(request, "sec-fetch-mode", "navigate");
        with_header(request, "sec-fetch-dest", "document")
    };
    let page = fixture
        .send(led(Method::GET, "/clusters/alpha/drain"))
        .await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(
        page.text.contains("content=\"0; url=/\"") && !page.text.contains("alpha"),
        "{}",
        page.text
    );
    let posted = fixture
        .send(led(Method::POST, "/clusters/alpha/drain"))
        .await;
    assert_eq!(posted.status, StatusCode::FORBIDDEN);
    let framed = with_header(led(Method::GET, "/"), "sec-fetch-dest", "iframe");
    assert_eq!(fixture.send(framed).await.status, StatusCode::FORBIDDEN);
    for path in ["/livez", "/readyz"] {
        let probe = with_header(
            external_request(Method::GET, path),
            HOST.as_str(),
            "10.0.0.7:8443",
        );
        let answer = fixture.send(probe).await;
        assert_eq!((answer.status, &*answer.text), (StatusCode::OK, "ok"));
    }
    fixture.tasks.stop().await;
}

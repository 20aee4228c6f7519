//! Requests that are no requests of the user: of other sites, other names, other sessions.

use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, HOST, ORIGIN, REFERRER_POLICY, SET_COOKIE,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderName, Method, StatusCode};
use http_body_util::Full;

use super::fixture::{ADDRESS, ConsoleFixture, OWN_ORIGIN, fleet, form_request, request};

const PAUSE: &str = "/workloads/shop/web%2Ddeployment/pause";

// proves: CON-rebinding, CON-cross-site
#[tokio::test]
async fn other_names_and_other_sites_are_refused() {
    let fixture = ConsoleFixture::start(fleet()).await;
    let cookie = fixture.login().await;
    for (name, value, status) in [
        (HOST, "127.0.0.1:8001", StatusCode::OK),
        (HOST, "localhost:8001", StatusCode::OK),
        (HOST, "evil.example:8001", StatusCode::MISDIRECTED_REQUEST),
        (HOST, "127.0.0.1:8002", StatusCode::MISDIRECTED_REQUEST),
        (HOST, "127.0.0.1", StatusCode::MISDIRECTED_REQUEST),
        (HOST, "", StatusCode::MISDIRECTED_REQUEST),
        (ORIGIN, OWN_ORIGIN, StatusCode::OK),
        (ORIGIN, "http://evil.example", StatusCode::FORBIDDEN),
        (ORIGIN, "https://127.0.0.1:8001", StatusCode::FORBIDDEN),
        (ORIGIN, "http://localhost:8001", StatusCode::FORBIDDEN),
        (ORIGIN, "null", StatusCode::FORBIDDEN),
    ] {
        let mut request = request(Method::GET, "/");
        request
            .headers_mut()
            .insert(COOKIE, cookie.parse().unwrap());
        request.headers_mut().insert(&name, value.parse().unwrap());
        assert_eq!(
            fixture.send(request).await.status,
            status,
            "{name}: {value}"
        );
    }
    for (site, status) in [
        ("same-origin", StatusCode::OK),
        ("none", StatusCode::OK),
        ("same-site", StatusCode::FORBIDDEN),
        ("cross-site", StatusCode::FORBIDDEN),
    ] {
        for path in ["/", "/login?token=x", "/assets/console.js"] {
            let mut request = request(Method::GET, path);
            let headers = request.headers_mut();
            headers.insert(COOKIE, cookie.parse().unwrap());
            headers.insert("sec-fetch-site", site.parse().unwrap());
            let page = fixture.send(request).await;
            let is_refused = page.status == StatusCode::FORBIDDEN;
            assert_eq!(is_refused, status == StatusCode::FORBIDDEN, "{site} {path}");
        }
    }
    let mut twice = request(Method::GET, "/");
    twice.headers_mut().append(HOST, ADDRESS.parse().unwrap());
    assert_eq!(fixture.send(twice).await.status, StatusCode::BAD_REQUEST);
}

// proves: CON-session
#[tokio::test]
async fn a_link_opens_one_browser() {
    let fixture = ConsoleFixture::start(fleet()).await;
    let link = fixture.links.lock()[0].clone();
    let path = link.strip_prefix(OWN_ORIGIN).unwrap();
    let guess = "/login?token=0000000000000000000000000000000000000000000000000000000000000000";
    for path in [guess, "/login", "/login?token="] {
        let page = fixture.send(request(Method::GET, path)).await;
        assert_eq!(page.status, StatusCode::UNAUTHORIZED, "{path}");
    }
    let opened = fixture.send(request(Method::GET, path)).await;
    assert_eq!(
        (opened.status, opened.location()),
        (StatusCode::SEE_OTHER, "/")
    );
    let cookie = opened.headers[SET_COOKIE].to_str().unwrap();
    assert!(cookie.starts_with("flotilla-console-8001="), "{cookie}");
    assert!(
        cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"),
        "{cookie}"
    );
    let token = path.strip_prefix("/login?token=").unwrap();
    assert!(!cookie.contains(token));
    let again = fixture.send(request(Method::GET, path)).await;
    assert_eq!(again.status, StatusCode::UNAUTHORIZED);
    let links = fixture.links.lock().clone();
    assert_eq!(links.len(), 2);
    assert_ne!(links[0], links[1]);
    for cookie in ["", "flotilla-console-8001=x", "flotilla-console-8001="] {
        for path in ["/", "/workloads", "/health", PAUSE] {
            let page = fixture.get(path, cookie).await;
            assert_eq!(page.status, StatusCode::UNAUTHORIZED, "{cookie} {path}");
            assert!(
                !page.text.contains("east") && !page.text.contains("plane"),
                "{}",
                page.text
            );
        }
    }
    let text = fixture.page("/").await.text;
    assert!(!text.contains(token), "{text}");
}

// proves: CON-sessions-bounded
#[tokio::test]
async fn the_oldest_session_ends_when_there_are_too_many() {
    let fixture = ConsoleFixture::start(fleet()).await;
    let first = fixture.login().await;
    for _ in 0..8 {
        assert_eq!(fixture.page("/").await.status, StatusCode::OK);
    }
    assert_eq!(
        fixture.get("/", &first).await.status,
        StatusCode::UNAUTHORIZED
    );
}

// proves: CON-csrf
#[tokio::test]
async fn forms_of_other_sites_and_sessions_write_nothing() {
    let fixture = ConsoleFixture::start(fleet()).await;
    let (cookie, other) = (fixture.login().await, fixture.login().await);
    let plan = fixture.get(PAUSE, &cookie).await;
    assert_eq!(plan.status, StatusCode::OK, "{}", plan.text);
    let version = plan.field("version");
    let form = |token: &str| format!("token={token}&version={version}");
    let of_other = fixture.get(PAUSE, &other).await.field("token");
    for token in ["", "x", &of_other] {
        let page = fixture.post(PAUSE, &cookie, &form(token)).await;
        assert_eq!(page.status, StatusCode::FORBIDDEN, "{token}");
    }
    let good = form(&plan.field("token"));
    for (header, value) in [
        (ORIGIN, Some("http://evil.example")),
        (ORIGIN, Some("null")),
        (ORIGIN, None),
        (
            HeaderName::from_static("sec-fetch-site"),
            Some("cross-site"),
        ),
        (HeaderName::from_static("sec-fetch-site"), Some("same-site")),
    ] {
        let mut request = form_request(PAUSE, &cookie, &good);
        match value {
            Some(value) => request
                .headers_mut()
                .insert(&header, value.parse().unwrap()),
            None => request.headers_mut().remove(&header),
        };
        let page = fixture.send(request).await;
        assert_eq!(page.status, StatusCode::FORBIDDEN, "{header} {value:?}");
    }
    let no_session = fixture.post(PAUSE, "a=b", &good).await;
    assert_eq!(no_session.status, StatusCode::UNAUTHORIZED);
    // A plan that a GET names is shown, and not executed.
    fixture.get(&format!("{PAUSE}?{good}"), &cookie).await;
    assert_eq!(fixture.api.writes(), []);
    let done = fixture.post(PAUSE, &cookie, &good).await;
    assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.text);
    assert_eq!(fixture.api.writes().len(), 1);
}

// proves: CON-bounds
#[tokio::test]
async fn requests_are_bounded() {
    let fixture = ConsoleFixture::start(fleet()).await;
    let cookie = fixture.login().await;
    let mut large = form_request(PAUSE, &cookie, "");
    *large.body_mut() = Full::from(vec![b'a'; 9 << 10]);
    assert_eq!(
        fixture.send(large).await.status,
        StatusCode::PAYLOAD_TOO_LARGE
    );
    let mut delete = request(Method::DELETE, "/");
    delete.headers_mut().insert(COOKIE, cookie.parse().unwrap());
    assert_eq!(
        fixture.send(delete).await.status,
        StatusCode::METHOD_NOT_ALLOWED
    );
    for (path, status) in [
        ("/nothing", StatusCode::NOT_FOUND),
        ("/workloads/a/b/c/d", StatusCode::NOT_FOUND),
        (
            "/workloads/shop/web%2Ddeployment/delete",
            StatusCode::NOT_FOUND,
        ),
        ("/assets/../Cargo.toml", StatusCode::NOT_FOUND),
        ("/%ff", StatusCode::BAD_REQUEST),
        ("/workloads?page=18446744073709551615", StatusCode::OK),
        ("/workloads?page=-1&q=%ff&health=x", StatusCode::OK),
    ] {
        let page = fixture.get(path, &cookie).await;
        assert_eq!(page.status, status, "{path}");
    }
    let long = format!("/workloads?q={}", "a".repeat(4096));
    let page = fixture.get(&long, &cookie).await;
    assert!(!page.text.contains(&"a".repeat(600)), "{}", page.text);
}

// proves: CON-headers
#[tokio::test]
async fn every_response_has_the_headers_of_protection() {
    let fixture = ConsoleFixture::start(fleet()).await;
    let cookie = fixture.login().await;
    let without = "text/plain; charset=utf-8";
    for (path, cookie, content_type) in [
        ("/", &*cookie, "text/html; charset=utf-8"),
        ("/workloads", &cookie, "text/html; charset=utf-8"),
        ("/nothing", &cookie, "text/html; charset=utf-8"),
        ("/", "", "text/html; charset=utf-8"),
        ("/assets/console.css", "", "text/css; charset=utf-8"),
        ("/assets/console.js", "", "text/javascript; charset=utf-8"),
        ("/assets/icon.svg", "", "image/svg+xml"),
        ("/%ff", &cookie, without),
    ] {
        let page = fixture.get(path, cookie).await;
        let header = |name: HeaderName| page.headers[name].to_str().unwrap().to_owned();
        let policy = header(CONTENT_SECURITY_POLICY);
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"));
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"));
        assert_eq!(header(X_CONTENT_TYPE_OPTIONS), "nosniff");
        assert_eq!(header(X_FRAME_OPTIONS), "DENY");
        assert_eq!(header(REFERRER_POLICY), "same-origin");
        assert_eq!(header(CACHE_CONTROL), "no-store");
        assert_eq!(header(http::header::CONTENT_TYPE), content_type, "{path}");
        assert!(
            !page.text.contains("style=") && !page.text.contains("onclick"),
            "{path}"
        );
    }
}

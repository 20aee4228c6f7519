//! API requests as values: path, query, headers and body.

use std::fmt::Write;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT};
use http::{HeaderMap, Method, Request, Uri};
use serde_json::json;

use super::config::Impersonate;
use crate::api::{
    At, DeleteOptions, ListOptions, Match, Patch, Propagation, WatchOptions, WriteOptions,
};
use crate::encoded::EncodedBody;

const AGENT: &str = concat!("flotilla/", env!("CARGO_PKG_VERSION"));

/// A request to the API. Each attempt builds an HTTP [`Request`] from it, with fresh
/// credentials.
pub(super) struct Ask {
    pub(super) method: Method,
    /// Path and query.
    target: String,
    queried: bool,
    pub(super) accept: &'static str,
    content_type: Option<&'static str>,
    body: EncodedBody,
}

impl Ask {
    pub(super) fn new(method: Method, path: String) -> Self {
        Self {
            method,
            queried: path.contains('?'),
            target: path,
            accept: "application/json",
            content_type: None,
            body: EncodedBody::default(),
        }
    }

    /// A POST of JSON to a path.
    pub(super) fn post(path: String, body: Bytes) -> Self {
        Self {
            content_type: Some("application/json"),
            body: body.into(),
            ..Self::new(Method::POST, path)
        }
    }

    pub(super) fn get(at: At<'_>) -> Self {
        Self::new(Method::GET, path(at))
    }

    pub(super) fn list(at: At<'_>, options: &ListOptions) -> Self {
        let mut ask = Self::get(at);
        ask.select(options);
        ask
    }

    pub(super) fn watch(at: At<'_>, options: &WatchOptions) -> Self {
        // A watch of one object is a watch of its collection with a field selector.
        let mut ask = Self::get(At { name: "", ..at });
        ask.query("watch", "1");
        ask.query("labelSelector", &options.label_selector);
        let mut fields = options.field_selector.clone();
        if !at.name.is_empty() {
            let comma = if fields.is_empty() { "" } else { "," };
            fields = format!("metadata.name={}{comma}{fields}", at.name);
        }
        ask.query("fieldSelector", &fields);
        ask.query("resourceVersion", &options.resource_version);
        if options.bookmarks {
            ask.query("allowWatchBookmarks", "true");
        }
        if options.send_initial_events {
            ask.query("sendInitialEvents", "true");
            ask.query("resourceVersionMatch", "NotOlderThan");
        }
        if options.timeout_seconds > 0 {
            ask.query("timeoutSeconds", &options.timeout_seconds.to_string());
        }
        ask
    }

    pub(super) fn create(at: At<'_>, body: EncodedBody, options: &WriteOptions) -> Self {
        Self::new(Method::POST, path(at)).written(body, "application/json", options)
    }

    pub(super) fn update(at: At<'_>, body: EncodedBody, options: &WriteOptions) -> Self {
        Self::new(Method::PUT, path(at)).written(body, "application/json", options)
    }

    pub(super) fn patch(at: At<'_>, patch: Patch, options: &WriteOptions) -> Self {
        let (body, content_type) = match patch {
            Patch::Json(body) => (body, "application/json-patch+json"),
            Patch::Merge(body) => (body, "application/merge-patch+json"),
            Patch::Strategic(body) => (body, "application/strategic-merge-patch+json"),
        };
        Self::new(Method::PATCH, path(at)).written(body.into(), content_type, options)
    }

    pub(super) fn delete(at: At<'_>, options: &DeleteOptions) -> Self {
        let mut body = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        if let Some(uid) = &options.uid {
            body["preconditions"]["uid"] = json!(uid);
        }
        if let Some(revision) = &options.resource_version {
            body["preconditions"]["resourceVersion"] = json!(revision);
        }
        if let Some(propagation) = options.propagation {
            body["propagationPolicy"] = json!(match propagation {
                Propagation::Background => "Background",
                Propagation::Foreground => "Foreground",
                Propagation::Orphan => "Orphan",
            });
        }
        if let Some(seconds) = options.grace_period_seconds {
            body["gracePeriodSeconds"] = json!(seconds);
        }
        if options.dry_run {
            body["dryRun"] = json!(["All"]);
        }
        let mut ask = Self::new(Method::DELETE, path(at));
        ask.content_type = Some("application/json");
        ask.body = body.into();
        ask
    }

    pub(super) fn delete_collection(
        at: At<'_>,
        options: &DeleteOptions,
        select: &ListOptions,
    ) -> Self {
        let mut ask = Self::delete(At { name: "", ..at }, options);
        ask.select(select);
        ask
    }

    fn written(
        mut self,
        body: EncodedBody,
        content_type: &'static str,
        options: &WriteOptions,
    ) -> Self {
        self.content_type = Some(content_type);
        self.body = body;
        self.query("fieldManager", &options.field_manager);
        if options.dry_run {
            self.query("dryRun", "All");
        }
        self
    }

    fn select(&mut self, options: &ListOptions) {
        self.query("labelSelector", &options.label_selector);
        self.query("fieldSelector", &options.field_selector);
        self.query("resourceVersion", &options.resource_version);
        match options.resource_version_match {
            Match::Unset => {}
            Match::Exact => self.query("resourceVersionMatch", "Exact"),
            Match::NotOlderThan => self.query("resourceVersionMatch", "NotOlderThan"),
        }
        if options.limit > 0 {
            self.query("limit", &options.limit.to_string());
        }
        self.query("continue", &options.continue_token);
    }

    /// Adds a query parameter unless the value is empty.
    fn query(&mut self, name: &str, value: &str) {
        if value.is_empty() {
            return;
        }
        self.target.push(if self.queried { '&' } else { '?' });
        self.queried = true;
        self.target.push_str(name);
        self.target.push('=');
        encode(&mut self.target, value);
    }

    /// The HTTP request to `server`, with the given credentials and impersonation
    /// headers.
    pub(super) fn request(
        &self,
        server: &Uri,
        authorization: Option<HeaderValue>,
        as_user: &HeaderMap,
    ) -> Result<Request<EncodedBody>, String> {
        let authority = server.authority().map_or("", http::uri::Authority::as_str);
        let uri = format!(
            "{}://{authority}{}{}",
            server.scheme_str().unwrap_or("https"),
            server.path().trim_end_matches('/'),
            self.target
        );
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(&uri)
            .body(self.body.clone())
            .map_err(|e| format!("{uri}: {e}"))?;
        let headers = request.headers_mut();
        headers.extend(as_user.clone());
        headers.insert(ACCEPT, HeaderValue::from_static(self.accept));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        if let Some(content_type) = self.content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        if let Some(value) = authorization {
            headers.insert(http::header::AUTHORIZATION, value);
        }
        Ok(request)
    }
}

/// The impersonation headers of a user (client-go's `transport` package).
pub(super) fn as_user(who: Option<&Impersonate>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let Some(who) = who else {
        return Ok(headers);
    };
    let mut add = |name: &str, value: &str| {
        let parsed = HeaderName::try_from(name)
            .ok()
            .zip(HeaderValue::from_bytes(value.as_bytes()).ok());
        let (name, value) =
            parsed.ok_or_else(|| format!("impersonation: {name} cannot be sent"))?;
        headers.append(name, value);
        Ok::<(), String>(())
    };
    add("impersonate-user", &who.user)?;
    if !who.uid.is_empty() {
        add("impersonate-uid", &who.uid)?;
    }
    for group in &who.groups {
        add("impersonate-group", group)?;
    }
    for (key, values) in &who.extra {
        let mut name = "impersonate-extra-".to_owned();
        encode(&mut name, key);
        for value in values {
            add(&name.to_lowercase(), value)?;
        }
    }
    Ok(headers)
}

fn path(at: At<'_>) -> String {
    let resource = at.resource;
    let mut path = if resource.group.is_empty() {
        "/api/".to_owned()
    } else {
        let mut start = "/apis/".to_owned();
        encode(&mut start, &resource.group);
        start.push('/');
        start
    };
    encode(&mut path, &resource.version);
    if !at.namespace.is_empty() {
        path.push_str("/namespaces/");
        encode(&mut path, at.namespace);
    }
    for part in [&*resource.resource, at.name] {
        if !part.is_empty() {
            path.push('/');
            encode(&mut path, part);
        }
    }
    // A subresource may have a path below it, such as `proxy/…`.
    if !at.subresource.is_empty() {
        for part in at.subresource.split('/') {
            path.push('/');
            encode(&mut path, part);
        }
    }
    path
}

/// Percent-encodes all but RFC 3986's unreserved characters.
fn encode(into: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            into.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(into, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::Gvr;

    #[test]
    fn paths_and_queries_are_those_of_the_api() {
        let pods = Gvr::constant("", "v1", "pods");
        let works = Gvr::constant("work.karmada.io", "v1alpha1", "works");
        let write = WriteOptions {
            dry_run: true,
            field_manager: "a b".into(),
        };
        let list = ListOptions {
            label_selector: "a in (b,c)".into(),
            limit: 5,
            resource_version_match: Match::Exact,
            ..ListOptions::default()
        };
        let watch = WatchOptions {
            resource_version: "7".into(),
            bookmarks: true,
            timeout_seconds: 9,
            ..WatchOptions::default()
        };
        let table = [
            (
                Ask::get(At::one(&pods, "ns", "a/b").sub("proxy/x")),
                "/api/v1/namespaces/ns/pods/a%2Fb/proxy/x",
            ),
            (
                Ask::create(At::all(&works, "ns"), json!({}).into(), &write),
                "/apis/work.karmada.io/v1alpha1/namespaces/ns/works?fieldManager=a%20b&dryRun=All",
            ),
            (
                Ask::list(At::all(&works, ""), &list),
                "/apis/work.karmada.io/v1alpha1/works?labelSelector=a%20in%20%28b%2Cc%29&resourceVersionMatch=Exact&limit=5",
            ),
            (
                Ask::watch(At::one(&pods, "ns", "a"), &watch),
                "/api/v1/namespaces/ns/pods?watch=1&fieldSelector=metadata.name%3Da&resourceVersion=7&allowWatchBookmarks=true&timeoutSeconds=9",
            ),
            (
                Ask::delete_collection(At::all(&pods, "ns"), &DeleteOptions::default(), &list),
                "/api/v1/namespaces/ns/pods?labelSelector=a%20in%20%28b%2Cc%29&resourceVersionMatch=Exact&limit=5",
            ),
        ];
        for (ask, expected) in table {
            assert_eq!(ask.target, expected);
        }
    }

    #[test]
    fn impersonation_is_sent_in_headers() {
        let who = Impersonate {
            user: "u".into(),
            uid: "1".into(),
            groups: vec!["g".into(), "h".into()],
            extra: [("a/B".to_owned(), vec!["v".to_owned()])].into(),
        };
        let headers = as_user(Some(&who)).unwrap();
        let groups: Vec<_> = headers.get_all("impersonate-group").iter().collect();
        assert_eq!(groups, ["g", "h"]);
        assert_eq!(
            (
                &headers["impersonate-user"],
                &headers["impersonate-extra-a%2fb"]
            ),
            (
                &HeaderValue::from_static("u"),
                &HeaderValue::from_static("v")
            )
        );
        let server: Uri = "https://h:6443/prefix/".parse().unwrap();
        let request = Ask::new(Method::GET, "/version".into())
            .request(&server, None, &headers)
            .unwrap();
        assert_eq!(request.uri(), "https://h:6443/prefix/version");
        assert_eq!(request.headers()["impersonate-uid"], "1");
        let jurgen = Impersonate {
            user: "jürgen".into(),
            ..who.clone()
        };
        let headers = as_user(Some(&jurgen)).unwrap();
        assert_eq!(headers["impersonate-user"].as_bytes(), "jürgen".as_bytes());
        assert!(
            as_user(Some(&Impersonate {
                user: "a\nb".into(),
                ..who
            }))
            .is_err()
        );
    }
}

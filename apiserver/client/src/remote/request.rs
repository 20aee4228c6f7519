//! API requests as values: path, query, headers and body.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT};
use http::{HeaderMap, Method, Request, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use super::config::ImpersonationConfig;
use crate::api::{
    DeleteOptions, ListOptions, Patch, ResourcePath, ResourceVersionMatch, WatchOptions,
    WriteOptions,
};
use crate::write_body::EncodedObjectBody;

/// All but RFC 3986's unreserved characters.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
pub(super) const IMPERSONATE_USER: &str = "impersonate-user";
const FLOTILLA_USER_AGENT: &str = concat!("flotilla/", env!("CARGO_PKG_VERSION"));

/// A request to the API. Each attempt builds an HTTP [`Request`] from it, with fresh
/// credentials.
pub(super) struct ApiRequest {
    pub(super) method: Method,
    /// Path and query.
    path_and_query: String,
    has_query: bool,
    pub(super) accept: &'static str,
    content_type: Option<&'static str>,
    body: EncodedObjectBody,
}

impl ApiRequest {
    pub(super) fn new(method: Method, path: String) -> Self {
        Self {
            method,
            has_query: path.contains('?'),
            path_and_query: path,
            accept: "application/json",
            content_type: None,
            body: EncodedObjectBody::default(),
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

    pub(super) fn get(at: ResourcePath<'_>) -> Self {
        Self::new(Method::GET, resource_url_path(at))
    }

    pub(super) fn list(at: ResourcePath<'_>, options: &ListOptions) -> Self {
        let mut ask = Self::get(at);
        ask.add_list_options(options);
        ask
    }

    pub(super) fn watch(at: ResourcePath<'_>, options: &WatchOptions) -> Self {
        // A watch of one object is a watch of its collection with a field selector.
        let mut ask = Self::get(ResourcePath { name: "", ..at });
        ask.add_query("watch", "1");
        ask.add_query("labelSelector", &options.label_selector);
        let mut fields = options.field_selector.clone();
        if !at.name.is_empty() {
            let comma = if fields.is_empty() { "" } else { "," };
            fields = format!("metadata.name={}{comma}{fields}", at.name);
        }
        ask.add_query("fieldSelector", &fields);
        ask.add_query("resourceVersion", &options.resource_version);
        if options.bookmarks {
            ask.add_query("allowWatchBookmarks", "true");
        }
        if options.send_initial_events {
            ask.add_query("sendInitialEvents", "true");
            ask.add_query("resourceVersionMatch", "NotOlderThan");
        }
        if options.timeout_seconds > 0 {
            ask.add_query("timeoutSeconds", &options.timeout_seconds.to_string());
        }
        ask
    }

    pub(super) fn create(
        at: ResourcePath<'_>,
        body: EncodedObjectBody,
        options: &WriteOptions,
    ) -> Self {
        Self::new(Method::POST, resource_url_path(at)).with_body(body, "application/json", options)
    }

    pub(super) fn update(
        at: ResourcePath<'_>,
        body: EncodedObjectBody,
        options: &WriteOptions,
    ) -> Self {
        Self::new(Method::PUT, resource_url_path(at)).with_body(body, "application/json", options)
    }

    pub(super) fn patch(at: ResourcePath<'_>, patch: Patch, options: &WriteOptions) -> Self {
        let (body, content_type) = match patch {
            Patch::Json(body) => (body, "application/json-patch+json"),
            Patch::Merge(body) => (body, "application/merge-patch+json"),
            Patch::Strategic(body) => (body, "application/strategic-merge-patch+json"),
        };
        Self::new(Method::PATCH, resource_url_path(at)).with_body(
            body.into(),
            content_type,
            options,
        )
    }

    pub(super) fn delete(at: ResourcePath<'_>, options: &DeleteOptions) -> Self {
        let mut body = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        if let Some(uid) = &options.uid {
            body["preconditions"]["uid"] = json!(uid);
        }
        if let Some(revision) = &options.resource_version {
            body["preconditions"]["resourceVersion"] = json!(revision);
        }
        if let Some(propagation) = options.propagation {
            body["propagationPolicy"] = json!(propagation.as_str());
        }
        if let Some(seconds) = options.grace_period_seconds {
            body["gracePeriodSeconds"] = json!(seconds);
        }
        if options.dry_run {
            body["dryRun"] = json!(["All"]);
        }
        let mut ask = Self::new(Method::DELETE, resource_url_path(at));
        ask.content_type = Some("application/json");
        ask.body = body.into();
        ask
    }

    pub(super) fn delete_collection(
        at: ResourcePath<'_>,
        options: &DeleteOptions,
        select: &ListOptions,
    ) -> Self {
        let mut ask = Self::delete(ResourcePath { name: "", ..at }, options);
        ask.add_list_options(select);
        ask
    }

    fn with_body(
        mut self,
        body: EncodedObjectBody,
        content_type: &'static str,
        options: &WriteOptions,
    ) -> Self {
        self.content_type = Some(content_type);
        self.body = body;
        self.add_query("fieldManager", &options.field_manager);
        if options.strict {
            self.add_query("fieldValidation", "Strict");
        }
        if options.dry_run {
            self.add_query("dryRun", "All");
        }
        self
    }

    fn add_list_options(&mut self, options: &ListOptions) {
        self.add_query("labelSelector", &options.label_selector);
        self.add_query("fieldSelector", &options.field_selector);
        self.add_query("resourceVersion", &options.resource_version);
        match options.resource_version_match {
            ResourceVersionMatch::Unset => {}
            ResourceVersionMatch::Exact => self.add_query("resourceVersionMatch", "Exact"),
            ResourceVersionMatch::NotOlderThan => {
                self.add_query("resourceVersionMatch", "NotOlderThan")
            }
        }
        if options.limit > 0 {
            self.add_query("limit", &options.limit.to_string());
        }
        self.add_query("continue", &options.continue_token);
    }

    /// Adds a query parameter unless the value is empty.
    pub(super) fn add_query(&mut self, name: &str, value: &str) {
        if value.is_empty() {
            return;
        }
        self.path_and_query
            .push(if self.has_query { '&' } else { '?' });
        self.has_query = true;
        self.path_and_query.push_str(name);
        self.path_and_query.push('=');
        percent_encode(&mut self.path_and_query, value);
    }

    /// The HTTP request to `server`, with the given credentials and impersonation
    /// headers.
    pub(super) fn to_http_request(
        &self,
        server: &Uri,
        authorization: Option<HeaderValue>,
        as_user: &HeaderMap,
    ) -> Result<Request<EncodedObjectBody>, String> {
        let authority = server.authority().map_or("", http::uri::Authority::as_str);
        let uri = format!(
            "{}://{authority}{}{}",
            server.scheme_str().unwrap_or("https"),
            server.path().trim_end_matches('/'),
            self.path_and_query
        );
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(&uri)
            .body(self.body.clone())
            .map_err(|e| format!("{uri}: {e}"))?;
        let headers = request.headers_mut();
        headers.extend(as_user.clone());
        headers.insert(ACCEPT, HeaderValue::from_static(self.accept));
        headers.insert(USER_AGENT, HeaderValue::from_static(FLOTILLA_USER_AGENT));
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
pub(super) fn impersonation_headers(
    who: Option<&ImpersonationConfig>,
) -> Result<HeaderMap, String> {
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
    add(IMPERSONATE_USER, &who.user)?;
    if !who.uid.is_empty() {
        add("impersonate-uid", &who.uid)?;
    }
    for group in &who.groups {
        add("impersonate-group", group)?;
    }
    for (key, values) in &who.extra {
        let mut name = "impersonate-extra-".to_owned();
        percent_encode(&mut name, key);
        for value in values {
            add(&name.to_lowercase(), value)?;
        }
    }
    Ok(headers)
}

fn resource_url_path(at: ResourcePath<'_>) -> String {
    let resource = at.resource;
    let mut path = if resource.group.is_empty() {
        "/api/".to_owned()
    } else {
        let mut start = "/apis/".to_owned();
        percent_encode(&mut start, &resource.group);
        start.push('/');
        start
    };
    percent_encode(&mut path, &resource.version);
    if !at.namespace.is_empty() {
        path.push_str("/namespaces/");
        percent_encode(&mut path, at.namespace);
    }
    for part in [&*resource.resource, at.name] {
        if !part.is_empty() {
            path.push('/');
            percent_encode(&mut path, part);
        }
    }
    // A subresource may have a path below it, such as `proxy/…`.
    if !at.subresource.is_empty() {
        for part in at.subresource.split('/') {
            path.push('/');
            percent_encode(&mut path, part);
        }
    }
    path
}

/// Percent-encodes all but RFC 3986's unreserved characters.
fn percent_encode(into: &mut String, text: &str) {
    into.extend(utf8_percent_encode(text, ESCAPED));
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::Gvr;

    #[test]
    fn paths_and_queries_are_those_of_the_api() {
        let pods = Gvr::from_static("", "v1", "pods");
        let works = Gvr::from_static("work.karmada.io", "v1alpha1", "works");
        let write = WriteOptions {
            dry_run: true,
            field_manager: "a b".into(),
            strict: true,
        };
        let list = ListOptions {
            label_selector: "a in (b,c)".into(),
            limit: 5,
            resource_version_match: ResourceVersionMatch::Exact,
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
                ApiRequest::get(ResourcePath::object(&pods, "ns", "a/b").subresource("proxy/x")),
                "/api/v1/namespaces/ns/pods/a%2Fb/proxy/x",
            ),
            (
                ApiRequest::create(
                    ResourcePath::collection(&works, "ns"),
                    json!({}).into(),
                    &write,
                ),
                "/apis/work.karmada.io/v1alpha1/namespaces/ns/works?fieldManager=a%20b&fieldValidation=Strict&dryRun=All",
            ),
            (
                ApiRequest::list(ResourcePath::collection(&works, ""), &list),
                "/apis/work.karmada.io/v1alpha1/works?labelSelector=a%20in%20%28b%2Cc%29&resourceVersionMatch=Exact&limit=5",
            ),
            (
                ApiRequest::watch(ResourcePath::object(&pods, "ns", "a"), &watch),
                "/api/v1/namespaces/ns/pods?watch=1&fieldSelector=metadata.name%3Da&resourceVersion=7&allowWatchBookmarks=true&timeoutSeconds=9",
            ),
            (
                ApiRequest::delete_collection(
                    ResourcePath::collection(&pods, "ns"),
                    &DeleteOptions::default(),
                    &list,
                ),
                "/api/v1/namespaces/ns/pods?labelSelector=a%20in%20%28b%2Cc%29&resourceVersionMatch=Exact&limit=5",
            ),
        ];
        for (ask, expected) in table {
            assert_eq!(ask.path_and_query, expected);
        }
    }

    #[test]
    fn impersonation_is_sent_in_headers() {
        let who = ImpersonationConfig {
            user: "u".into(),
            uid: "1".into(),
            groups: vec!["g".into(), "h".into()],
            extra: [("a/B".to_owned(), vec!["v".to_owned()])].into(),
        };
        let headers = impersonation_headers(Some(&who)).unwrap();
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
        let request = ApiRequest::new(Method::GET, "/version".into())
            .to_http_request(&server, None, &headers)
            .unwrap();
        assert_eq!(request.uri(), "https://h:6443/prefix/version");
        assert_eq!(request.headers()["impersonate-uid"], "1");
        let jurgen = ImpersonationConfig {
            user: "jürgen".into(),
            ..who.clone()
        };
        let headers = impersonation_headers(Some(&jurgen)).unwrap();
        assert_eq!(headers["impersonate-user"].as_bytes(), "jürgen".as_bytes());
        assert!(
            impersonation_headers(Some(&ImpersonationConfig {
                user: "a\nb".into(),
                ..who
            }))
            .is_err()
        );
    }
}

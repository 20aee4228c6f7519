//! Derives verb, resource and names from method, path and query, exactly as
//! kube-apiserver does (`endpoints/request/requestinfo.go`), because authorization
//! depends on it. Does no I/O.

use std::borrow::Cow;

use auth::rbac::{AuthorizationSelectors, AuthorizationTarget, always_allowed};
use http::Method;
use machinery::Status;
use machinery::names::validate_path_segment_name;
use machinery::selector::FieldSelector;
use percent_encoding::percent_decode_str;

/// Bound on path segments; no route is longer.
const MAX_SEGMENTS: usize = 64;

/// The first segment of the paths of the fleet view, an alias of a global proxy of this name.
pub(crate) const FLEET_VIEW: &str = "fleet";
/// The same of the fleet tree, which is the fleet view with the objects of the control plane.
pub(crate) const FLEET_TREE: &str = "fleet-tree";
/// The path that the paths of the fleet view and the fleet tree are authorized as.
const FLEET_VIEW_PATH: &str = "/fleet";

/// The attributes of a request (kube-apiserver's `RequestInfo`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestInfo {
    /// `get`, `list`, `create`, ...; for a non-resource path the method in lower case.
    pub(crate) verb: &'static str,
    /// `None` for a non-resource path.
    pub(crate) resource: Option<RequestedResource>,
    /// The path as received for a resource; otherwise decoded and without empty segments.
    pub(crate) path: String,
    /// Whether the path is that of the fleet view or the fleet tree. The right to it is one to a path, which gives
    /// nothing else: the rights in the members decide what is read.
    pub(crate) is_fleet_view: bool,
}

/// The resource part of a request. Empty strings mean "none".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestedResource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    /// The object's name; for list, watch and deletecollection the one that the field
    /// selector requires.
    pub(crate) name: String,
    /// The selectors of a list, watch or deletecollection, for authorization.
    pub(crate) field_selector: String,
    pub(crate) label_selector: String,
    /// Whether the path names one object.
    pub(crate) has_name: bool,
    /// Whether the path is that of a Namespace (`namespaces/NAME`) and does not lead into it;
    /// `namespace` is its name all the same.
    pub(crate) is_namespace_path: bool,
    /// The undecoded path after the subresource, with its leading slash.
    pub(crate) subpath: String,
}

impl RequestInfo {
    /// Whether the path is one of the probes, which are served without credentials,
    /// above the limits and during shutdown.
    pub(crate) fn is_probe(&self) -> bool {
        self.resource.is_none() && always_allowed(&self.path)
    }

    pub(crate) fn is_mutating(&self) -> bool {
        !matches!(self.verb, "get" | "list" | "watch" | "head" | "options")
    }

    pub(crate) fn authorization_attributes(&self) -> AuthorizationTarget<'_> {
        match &self.resource {
            Some(_) if self.is_fleet_view => AuthorizationTarget::NonResource(FLEET_VIEW_PATH),
            Some(resource) => resource.authorization_attributes(),
            None => AuthorizationTarget::NonResource(&self.path),
        }
    }
}

impl RequestedResource {
    pub(crate) fn authorization_attributes(&self) -> AuthorizationTarget<'_> {
        AuthorizationTarget::Resource {
            group: &self.group,
            version: &self.version,
            resource: &self.resource,
            subresource: &self.subresource,
            namespace: &self.namespace,
            name: &self.name,
            selectors: AuthorizationSelectors {
                fields: &self.field_selector,
                labels: &self.label_selector,
            },
        }
    }
}

fn decode_segment(segment: &str) -> Result<String, Status> {
    let decoded = percent_decode(segment)
        .ok_or_else(|| Status::bad_request(format!("malformed path segment {segment:?}")))?;
    if decoded.contains('/') || decoded == "." || decoded == ".." {
        let text = format!("invalid path segment {decoded:?}: may not contain '/'");
        return Err(Status::bad_request(text));
    }
    Ok(decoded)
}

/// Decodes `%XX`. `None` when malformed or not UTF-8.
pub(crate) fn percent_decode(text: &str) -> Option<String> {
    let is_escape = |rest: &str| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    if !text.split('%').skip(1).all(is_escape) {
        return None;
    }
    let decoded = percent_decode_str(text).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

/// Decodes a key or value of a query, where `+` is a space.
fn decode_query(text: &str) -> Option<String> {
    match text.contains('+') {
        true => percent_decode(&text.replace('+', " ")),
        false => percent_decode(text),
    }
}

/// Query parameters in their order.
pub(crate) struct QueryParams {
    pairs: Vec<(String, String)>,
    /// The first parameter that cannot be decoded, as received.
    malformed: Option<String>,
}

impl QueryParams {
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let mut parsed = Self {
            pairs: Vec::new(),
            malformed: None,
        };
        let query = query.unwrap_or_default().split('&');
        for pair in query.filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            match decode_query(key).zip(decode_query(value)) {
                Some(pair) => parsed.pairs.push(pair),
                None => _ = parsed.malformed.get_or_insert_with(|| pair.to_owned()),
            }
        }
        parsed
    }

    /// Fails with 400 when a parameter cannot be decoded: it could be the `dryRun` that
    /// keeps a request from writing.
    pub(crate) fn validate(&self) -> Result<(), Status> {
        match &self.malformed {
            None => Ok(()),
            Some(pair) => {
                let text = format!("malformed query parameter {pair:?}");
                Err(Status::bad_request(text))
            }
        }
    }

    /// The first value of a parameter.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.all(key).next()
    }

    /// All values of a parameter.
    pub(crate) fn all<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a str> {
        self.pairs
            .iter()
            .filter(move |(k, _)| k == key)
            .map(|(_, v)| v.as_str())
    }

    /// Adds a requirement to the field selector.
    pub(crate) fn add_field_requirement(&mut self, requirement: &str) {
        let key = "fieldSelector";
        let selector = match self.get(key) {
            None | Some("") => requirement.to_owned(),
            Some(selector) => format!("{selector},{requirement}"),
        };
        self.pairs.retain(|(name, _)| name != key);
        self.pairs.push((key.to_owned(), selector));
    }

    /// Replaces the value of a parameter.
    pub(crate) fn replace(&mut self, key: &str, value: &str) {
        self.pairs.retain(|(name, _)| name != key);
        self.pairs.push((key.to_owned(), value.to_owned()));
    }

    /// A boolean parameter by Kubernetes' rules: present and neither `0` nor `false`.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.get(key)
            .is_some_and(|v| v != "0" && !v.eq_ignore_ascii_case("false"))
    }
}

pub(crate) fn resource_verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::GET | Method::HEAD => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

fn non_resource_verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "post",
        Method::GET => "get",
        Method::HEAD => "head",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "",
    }
}

/// Parses a request. Fails with 400 on malformed escapes and on segments that contain a
/// slash or are `.` or `..`.
pub(crate) fn parse_request(
    method: &Method,
    path: &str,
    query: &QueryParams,
) -> Result<RequestInfo, Status> {
    let raw: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
    if raw.len() > MAX_SEGMENTS && !is_resource_prefix(&raw) {
        return Err(Status::path_not_found());
    }
    match parse_resource(method, path, &raw, query)? {
        Some((verb, resource)) => Ok(RequestInfo {
            verb,
            resource: Some(resource),
            path: path.to_owned(),
            is_fleet_view: fleet_view_name(&raw).is_some(),
        }),
        None => {
            let mut decoded = String::with_capacity(path.len());
            for segment in &raw {
                decoded.push('/');
                decoded.push_str(&decode_segment(segment)?);
            }
            if decoded.is_empty() {
                decoded.push('/');
            }
            Ok(RequestInfo {
                verb: non_resource_verb(method),
                resource: None,
                path: decoded,
                is_fleet_view: false,
            })
        }
    }
}

fn is_resource_prefix(raw: &[&str]) -> bool {
    matches!(
        raw.first(),
        Some(&("api" | "apis" | FLEET_VIEW | FLEET_TREE))
    )
}

/// The name of the global proxy for which a path stands.
fn fleet_view_name(raw: &[&str]) -> Option<&'static str> {
    let names = [FLEET_VIEW, FLEET_TREE];
    names.into_iter().find(|name| raw.first() == Some(name))
}

/// The request of the global proxy of a name for which a path stands.
fn fleet_view_request(
    method: &Method,
    path: &str,
    name: &str,
) -> (&'static str, RequestedResource) {
    let requested = RequestedResource {
        group: "search.karmada.io".to_owned(),
        version: "v1alpha1".to_owned(),
        resource: "proxying".to_owned(),
        subresource: "proxy".to_owned(),
        name: name.to_owned(),
        has_name: true,
        subpath: path_after(path, 1),
        ..RequestedResource::default()
    };
    (resource_verb(method), requested)
}

fn parse_resource(
    method: &Method,
    path: &str,
    raw: &[&str],
    query: &QueryParams,
) -> Result<Option<(&'static str, RequestedResource)>, Status> {
    if let Some(name) = fleet_view_name(raw) {
        return Ok(Some(fleet_view_request(method, path, name)));
    }
    // Number of path segments before the version.
    let skip = match raw.first() {
        Some(&"api") if raw.len() >= 3 => 1,
        Some(&"apis") if raw.len() >= 4 => 2,
        _ => return Ok(None),
    };
    let mut requested = RequestedResource {
        version: decode_segment(raw[skip])?,
        ..RequestedResource::default()
    };
    if skip == 2 {
        requested.group = decode_segment(raw[1])?;
    }
    let mut index = skip + 1;
    let mut verb = resource_verb(method);
    let verb_in_path = raw[index] == "watch" && matches!(*method, Method::GET);
    if verb_in_path {
        if raw.len() == index + 1 {
            return Err(Status::bad_request(
                "unable to determine kind and namespace from url",
            ));
        }
        verb = "watch";
        index += 1;
    }
    if raw[index] == "namespaces" && raw.len() > index + 1 {
        requested.namespace = decode_segment(raw[index + 1])?;
        match raw.get(index + 2) {
            None | Some(&("status" | "finalize")) => requested.is_namespace_path = true,
            Some(_) => index += 2,
        }
    }
    requested.resource = decode_segment(raw[index])?;
    if let Some(name) = raw.get(index + 1) {
        requested.name = decode_segment(name)?;
        requested.has_name = true;
        validate_path_segment_name(&requested.name).map_err(|e| {
            Status::bad_request(format!("invalid resource name {:?}: {e}", requested.name))
        })?;
    }
    if let Some(sub) = raw.get(index + 2) {
        requested.subresource = decode_segment(sub)?;
        requested.subpath = path_after(path, index + 3);
    }
    if !requested.has_name {
        verb = collection_verb(verb, query);
        if matches!(verb, "list" | "watch" | "deletecollection") {
            requested.name = selected_name(query).unwrap_or_default().into_owned();
            if !verb_in_path {
                let selector = |name: &str| query.get(name).unwrap_or_default().to_owned();
                requested.field_selector = selector("fieldSelector");
                requested.label_selector = selector("labelSelector");
            }
        }
    }
    Ok(Some((verb, requested)))
}

/// The verb of a request without a name.
fn collection_verb(verb: &'static str, query: &QueryParams) -> &'static str {
    match verb {
        "get" if query.flag("watch") => "watch",
        "get" => "list",
        "delete" => "deletecollection",
        other => other,
    }
}

/// The name that a field selector requires, so that RBAC rules with resourceNames apply
/// to lists and watches.
pub(crate) fn selected_name(query: &QueryParams) -> Option<Cow<'static, str>> {
    let selector = FieldSelector::parse(query.get("fieldSelector")?).ok()?;
    let name = selector.exact_match("metadata.name")?;
    validate_path_segment_name(name).ok()?;
    Some(Cow::Owned(name.to_owned()))
}

/// The undecoded path after the first `count` segments.
fn path_after(path: &str, count: usize) -> String {
    let mut segments = 0;
    let mut in_segment = false;
    for (index, byte) in path.bytes().enumerate() {
        if byte == b'/' {
            if in_segment && segments == count {
                return path[index..].to_owned();
            }
            in_segment = false;
        } else if !in_segment {
            in_segment = true;
            segments += 1;
        }
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn show(method: Method, url: &str) -> String {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        match parse_request(&method, path, &QueryParams::parse(Some(query))) {
            Err(e) => format!("{}", e.code),
            Ok(info) => match info.resource {
                None => format!("{} {}", info.verb, info.path),
                Some(r) => format!(
                    "{} {}/{}/{}/{} ns={} name={}{}",
                    info.verb,
                    r.group,
                    r.version,
                    r.resource,
                    r.subresource,
                    r.namespace,
                    r.name,
                    r.subpath
                ),
            },
        }
    }

    // proves: FLV-paths, FLT-paths
    #[test]
    fn paths_of_the_fleet_view_are_those_of_a_global_proxy() {
        for (url, expected) in [
            (
                "/fleet/api/v1/pods?watch=1",
                "get search.karmada.io/v1alpha1/proxying/proxy ns= name=fleet/api/v1/pods",
            ),
            (
                "//fleet/",
                "get search.karmada.io/v1alpha1/proxying/proxy ns= name=fleet/",
            ),
            (
                "/fleet-tree/api",
                "get search.karmada.io/v1alpha1/proxying/proxy ns= name=fleet-tree/api",
            ),
            ("/fleets/api/v1/pods", "get /fleets/api/v1/pods"),
        ] {
            assert_eq!(show(Method::GET, url), expected, "{url}");
        }
        for path in ["/fleet/api", "/fleet-tree/api"] {
            let info = parse_request(&Method::GET, path, &QueryParams::parse(None)).unwrap();
            let target = info.authorization_attributes();
            assert_eq!(target, AuthorizationTarget::NonResource("/fleet"));
        }
    }

    #[test]
    fn request_info_matches_kubernetes() {
        let get = Method::GET;
        let table: &[(&Method, &str, &str)] = &[
            (&get, "/", "get /"),
            (&get, "/api", "get /api"),
            (&get, "/api/v1", "get /api/v1"),
            (&get, "/apis/apps/v1/", "get /apis/apps/v1"),
            (&Method::POST, "/healthz//x", "post /healthz/x"),
            (&get, "/api/v1/pods", "list /v1/pods/ ns= name="),
            (&get, "/api/v1/pods?watch=1", "watch /v1/pods/ ns= name="),
            (&get, "/api/v1/pods?watch=false", "list /v1/pods/ ns= name="),
            (
                &get,
                "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dx",
                "list /v1/pods/ ns=a name=x",
            ),
            (&get, "/api/v1/namespaces", "list /v1/namespaces/ ns= name="),
            (
                &get,
                "/api/v1/namespaces/a",
                "get /v1/namespaces/ ns=a name=a",
            ),
            (
                &Method::PUT,
                "/api/v1/namespaces/a/finalize",
                "update /v1/namespaces/finalize ns=a name=a",
            ),
            (
                &get,
                "/api/v1/namespaces/a/status/",
                "get /v1/namespaces/status ns=a name=a/",
            ),
            (
                &Method::PATCH,
                "/apis/apps/v1/namespaces/a/deployments/d/scale",
                "patch apps/v1/deployments/scale ns=a name=d",
            ),
            (
                &Method::DELETE,
                "/apis/apps/v1/namespaces/a/deployments",
                "deletecollection apps/v1/deployments/ ns=a name=",
            ),
            (
                &get,
                "/apis/cluster.karmada.io/v1alpha1/clusters/m/proxy/api/v1/x%2Fy",
                "get cluster.karmada.io/v1alpha1/clusters/proxy ns= name=m/api/v1/x%2Fy",
            ),
            (
                &get,
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Aadmin",
                "get rbac.authorization.k8s.io/v1/clusterroles/ ns= name=system:admin",
            ),
            (&get, "/api/v1/watch/pods", "watch /v1/pods/ ns= name="),
            (&get, "/api/v1/namespaces/a/pods/x%2Fy", "400"),
            (&get, "/api/v1/namespaces/a/pods/..", "400"),
            (&get, "/api/v1/namespaces/a/pods/x%25", "400"),
            (&get, "/api/v1/namespaces/%zz/pods", "400"),
        ];
        for (method, url, expect) in table {
            assert_eq!(show((*method).clone(), url), *expect, "{url}");
        }
    }

    #[test]
    fn malformed_escapes_are_refused() {
        for (text, expect) in [
            ("a%2Fb", Some("a/b")),
            ("%c3%bc", Some("ü")),
            ("a+b", Some("a+b")),
            ("%", None),
            ("%2", None),
            ("%zz", None),
            ("%+f", None),
            ("%ff", None),
        ] {
            assert_eq!(percent_decode(text).as_deref(), expect, "{text}");
        }
        let query = QueryParams::parse(Some("a+b=c%2Bd+e"));
        assert_eq!(query.get("a b"), Some("c+d e"));
    }

    #[test]
    fn probes_are_whole_segments() {
        for (path, probe) in [
            ("/healthz", true),
            ("/livez/", true),
            ("/readyz/ping", true),
            ("/healthzfoo", false),
            ("/readyz-x/ping", false),
            ("/api/v1/pods", false),
        ] {
            let info = parse_request(&Method::GET, path, &QueryParams::parse(None)).unwrap();
            assert_eq!(info.is_probe(), probe, "{path}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(path in "(/[a-z.%/0-9]{0,8}){0,12}", query in ".{0,40}") {
            let _ = parse_request(&Method::GET, &path, &QueryParams::parse(Some(&query)));
        }
    }

    proptest! {
        #[test]
        fn no_path_passes_a_slash_in_a_name(
            path in "/(api|apis)?(/(v1|apps|namespaces|watch|pods|%2F|%2e%2E|%00|[a-z%2.]{0,6})){0,9}",
            query in "(watch=1|&|fieldSelector=metadata.name%3D[a-z/%2]{0,4}|[a-z%=&]{0,6}){0,4}",
        ) {
            let query = QueryParams::parse(Some(&query));
            for method in [Method::GET, Method::POST, Method::DELETE, Method::OPTIONS] {
                let Ok(info) = parse_request(&method, &path, &query) else {
                    continue;
                };
                let Some(resource) = &info.resource else {
                    continue;
                };
                let RequestedResource { group, version, resource, subresource, namespace, name, .. } = resource;
                for part in [group, version, resource, subresource, namespace, name] {
                    prop_assert!(!part.contains('/') && part != ".." && part != ".", "{part:?}");
                }
            }
        }
    }
}

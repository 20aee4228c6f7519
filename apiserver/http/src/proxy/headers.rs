//! Rewrites request headers for a member cluster and response headers for the client.
//! Does no I/O.

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, HeaderValue, LOCATION,
    SEC_WEBSOCKET_PROTOCOL, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, Request, StatusCode, Version};
use karmada_api::ImpersonatedIdentity;
use machinery::{Status, UserInfo};
use members::ImpersonationScope;

/// WebSocket subprotocol by which browsers pass a bearer token; it is never forwarded.
const BEARER_TOKEN_SUBPROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// The protocol that a request asks to upgrade to.
pub(super) fn requested_upgrade<B>(request: &Request<B>) -> Option<HeaderValue> {
    let protocol = request.headers().get(UPGRADE)?;
    let has_option =
        connection_options(request.headers()).any(|name| name.eq_ignore_ascii_case("upgrade"));
    (request.version() == Version::HTTP_11 && has_option).then(|| protocol.clone())
}

/// The connection options (RFC 9110) that the `Connection` headers list.
fn connection_options(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(CONNECTION).into_iter();
    values
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .map(str::trim)
}

/// Whether the header is hop-by-hop.
fn is_hop_by_hop(name: &HeaderName) -> bool {
    [CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE].contains(name)
        || name.as_str() == "keep-alive"
        || name.as_str().starts_with("proxy-")
}

/// Whether the header is meant for the control plane and must not reach a member.
fn is_control_plane_header(name: &HeaderName) -> bool {
    [AUTHORIZATION, HOST, EXPECT].contains(name)
        || name.as_str().starts_with("impersonate-")
        || name.as_str().starts_with("x-remote-")
}

/// The headers of a proxied request. It impersonates the user with those of his groups that
/// can be impersonated, except for `system:authenticated` and `system:unauthenticated`, and with
/// the uid and extras that the role of the impersonator allows: another one would refuse the
/// request as a whole.
pub(super) fn build_request_headers(
    headers: &HeaderMap,
    user: &UserInfo,
    scope: &ImpersonationScope,
    upgrade: Option<&HeaderValue>,
) -> Result<HeaderMap, Status> {
    let connection_headers: Vec<String> = connection_options(headers)
        .map(str::to_ascii_lowercase)
        .collect();
    let mut out = HeaderMap::with_capacity(headers.len() + 4);
    for (name, value) in headers {
        let dropped = is_hop_by_hop(name)
            || is_control_plane_header(name)
            || connection_headers.iter().any(|n| n == name.as_str());
        if dropped || (upgrade.is_some() && name == CONTENT_LENGTH) {
            continue;
        }
        if name == SEC_WEBSOCKET_PROTOCOL {
            if let Some(value) = remove_token_subprotocol(value)? {
                out.append(name, value);
            }
            continue;
        }
        out.append(name, value.clone());
    }
    let value = |text: &str| {
        HeaderValue::from_bytes(text.as_bytes()).map_err(|_| {
            Status::bad_request(format!(
                "{text:?} cannot be sent as an impersonation header"
            ))
        })
    };
    out.insert("impersonate-user", value(&user.name)?);
    for group in scope.groups.of_user(&user.name, &user.groups) {
        out.append("impersonate-group", value(group)?);
    }
    append_identity(&mut out, user, &scope.identity);
    if let Some(protocol) = upgrade {
        out.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        out.insert(UPGRADE, protocol.clone());
    }
    Ok(out)
}

/// Appends the uid and extras of a user. What cannot be in a header is left out.
fn append_identity(out: &mut HeaderMap, user: &UserInfo, allowed: &ImpersonatedIdentity) {
    let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).ok();
    if allowed.uid
        && !user.uid.is_empty()
        && let Some(uid) = value(&user.uid)
    {
        out.insert("impersonate-uid", uid);
    }
    for (key, values) in &user.extra {
        let header = format!("impersonate-extra-{}", escape_extra_key(key));
        let header = HeaderName::from_bytes(header.as_bytes()).ok();
        if let Some(header) = header.filter(|_| allowed.extra_keys.contains(key)) {
            for value in values.iter().filter_map(|text| value(text)) {
                out.append(&header, value);
            }
        }
    }
}

/// Percent-encodes what a header name cannot have, and the percent sign (client-go
/// `transport/round_trippers.go`).
fn escape_extra_key(key: &str) -> String {
    let mut escaped = String::with_capacity(key.len());
    for byte in key.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => escaped.push(char::from(byte)),
            b'!' | b'#' | b'$' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`'
            | b'|' | b'~' => escaped.push(char::from(byte)),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// Removes the token subprotocol. Fails with 400 when the header is not ASCII, because
/// it may hide a token.
fn remove_token_subprotocol(value: &HeaderValue) -> Result<Option<HeaderValue>, Status> {
    let unreadable =
        || Status::bad_request(format!("header \"{SEC_WEBSOCKET_PROTOCOL}\" is not ASCII"));
    let text = value.to_str().map_err(|_| unreadable())?;
    let remaining: Vec<&str> = text
        .split(',')
        .map(str::trim)
        .filter(|p| !p.starts_with(BEARER_TOKEN_SUBPROTOCOL))
        .collect();
    let remaining = HeaderValue::from_str(&remaining.join(", ")).map_err(|_| unreadable())?;
    Ok(Some(remaining).filter(|v| !v.is_empty()))
}

/// Removes hop-by-hop headers from a member's response; `rewrite_location` rewrites the target of
/// a redirect.
pub(super) fn rewrite_response_headers(
    code: StatusCode,
    headers: &mut HeaderMap,
    rewrite_location: &dyn Fn(&str) -> Option<String>,
) {
    let switching = code == StatusCode::SWITCHING_PROTOCOLS;
    let connection_headers: Vec<String> = connection_options(headers)
        .map(str::to_ascii_lowercase)
        .collect();
    let dropped: Vec<HeaderName> = headers
        .keys()
        .filter(|name| is_hop_by_hop(name) || connection_headers.iter().any(|n| n == name.as_str()))
        .filter(|name| !(switching && [CONNECTION, UPGRADE].contains(name)))
        .cloned()
        .collect();
    for name in dropped {
        headers.remove(name);
    }
    let location = headers.get(LOCATION).and_then(|l| l.to_str().ok());
    if let Some(rewritten) = location.and_then(rewrite_location)
        && let Ok(rewritten) = HeaderValue::from_str(&rewritten)
    {
        headers.insert(LOCATION, rewritten);
    }
}

#[cfg(test)]
mod tests {
    use machinery::user::ALL_AUTHENTICATED;

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            let name: HeaderName = name.parse().unwrap();
            map.append(name, value.parse().unwrap());
        }
        map
    }

    fn show(map: &HeaderMap) -> Vec<String> {
        let mut all: Vec<String> = map
            .iter()
            .map(|(n, v)| format!("{n}={}", String::from_utf8_lossy(v.as_bytes())))
            .collect();
        all.sort();
        all
    }

    #[test]
    fn user_is_impersonated_and_forged_headers_are_removed() {
        let user = UserInfo {
            name: "ann".into(),
            uid: "7".into(),
            groups: vec!["dev".into(), "ops".into(), ALL_AUTHENTICATED.into()],
            extra: [("k".to_owned(), vec!["v".to_owned()])].into(),
        };
        let headers = map(&[
            ("host", "here"),
            ("authorization", "Bearer mine"),
            ("impersonate-group", "system:masters"),
            ("impersonate-extra-x", "y"),
            ("x-remote-user", "root"),
            ("connection", "x-hop, keep-alive"),
            ("x-hop", "1"),
            ("keep-alive", "3"),
            ("te", "trailers"),
            ("expect", "100-continue"),
            ("accept", "a"),
            ("accept", "b"),
            ("content-length", "3"),
        ]);
        let out =
            build_request_headers(&headers, &user, &ImpersonationScope::default(), None).unwrap();
        assert_eq!(
            show(&out),
            [
                "accept=a",
                "accept=b",
                "content-length=3",
                "impersonate-group=dev",
                "impersonate-group=ops",
                "impersonate-user=ann",
            ]
        );
        let jurgen = UserInfo {
            name: "jürgen".into(),
            ..UserInfo::default()
        };
        let out = build_request_headers(
            &HeaderMap::new(),
            &jurgen,
            &ImpersonationScope::default(),
            None,
        )
        .unwrap();
        assert_eq!(show(&out), ["impersonate-user=jürgen"]);
        let special = UserInfo {
            name: "a\r\nb".into(),
            ..user
        };
        assert_eq!(
            build_request_headers(&headers, &special, &ImpersonationScope::default(), None)
                .unwrap_err()
                .code,
            400
        );
        let mut unreadable = HeaderMap::new();
        let value = HeaderValue::from_bytes(b"v5.channel.k8s.io\xff").unwrap();
        unreadable.insert(SEC_WEBSOCKET_PROTOCOL, value);
        assert_eq!(
            build_request_headers(&unreadable, &jurgen, &ImpersonationScope::default(), None)
                .unwrap_err()
                .code,
            400
        );
    }

    // proves: IMP-identity-headers
    #[test]
    fn uid_and_extras_are_sent_as_the_cluster_allows() {
        let extra = [
            ("example.org/a%b", vec!["x", "ü"]),
            ("scopes", vec!["view"]),
            ("other", vec!["o"]),
            ("bad", vec!["a\r\nb"]),
        ];
        let extra = extra.map(|(key, values)| {
            let values = values.into_iter().map(str::to_owned).collect();
            (key.to_owned(), values)
        });
        let user = UserInfo {
            name: "ann".into(),
            uid: "7".into(),
            groups: Vec::new(),
            extra: extra.into(),
        };
        let forged = map(&[
            ("impersonate-uid", "0"),
            ("impersonate-extra-scopes", "all"),
        ]);
        let sent_headers = |uid, keys: &[&str]| {
            let identity = ImpersonatedIdentity {
                uid,
                extra_keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            };
            let scope = ImpersonationScope {
                identity,
                ..ImpersonationScope::default()
            };
            show(&build_request_headers(&forged, &user, &scope, None).unwrap())
        };
        let ann = "impersonate-user=ann";
        assert_eq!(sent_headers(false, &[]), [ann]);
        assert_eq!(sent_headers(true, &["absent"]), ["impersonate-uid=7", ann]);
        let scopes = "impersonate-extra-scopes=view";
        assert_eq!(sent_headers(false, &["scopes", "bad"]), [scopes, ann]);
        let escaped = "impersonate-extra-example.org%2fa%25b";
        assert_eq!(
            sent_headers(false, &["example.org/a%b"]),
            [&format!("{escaped}=x"), &format!("{escaped}=ü"), ann]
        );
    }

    #[test]
    fn upgrade_headers_omit_the_bearer_token() {
        let requested = |pairs: &[(&str, &str)], version| {
            let mut request = Request::new(());
            *request.headers_mut() = map(pairs);
            *request.version_mut() = version;
            requested_upgrade(&request)
        };
        let pairs = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "SPDY/3.1"),
        ];
        assert_eq!(requested(&pairs, Version::HTTP_11).unwrap(), "SPDY/3.1");
        assert_eq!(requested(&pairs, Version::HTTP_2), None);
        assert_eq!(requested(&pairs[1..], Version::HTTP_11), None);
        let secret = format!("v5.channel.k8s.io, {BEARER_TOKEN_SUBPROTOCOL}c2VjcmV0");
        let headers = map(&[
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-protocol", &secret),
            (
                "sec-websocket-protocol",
                &format!("{BEARER_TOKEN_SUBPROTOCOL}c2VjcmV0"),
            ),
            ("content-length", "0"),
        ]);
        let out = build_request_headers(
            &headers,
            &UserInfo::default(),
            &ImpersonationScope::default(),
            Some(&HeaderValue::from_static("websocket")),
        );
        assert_eq!(
            show(&out.unwrap()),
            [
                "connection=Upgrade",
                "impersonate-user=",
                "sec-websocket-protocol=v5.channel.k8s.io",
                "upgrade=websocket",
            ]
        );
    }

    #[test]
    fn hop_by_hop_response_headers_are_removed() {
        let pairs = [
            ("connection", "Upgrade, X-Hop"),
            ("upgrade", "SPDY/3.1"),
            ("x-hop", "1"),
            ("transfer-encoding", "chunked"),
            ("location", "/x"),
            ("warning", "299 - w"),
        ];
        let rewrite = |l: &str| Some(format!("/p{l}"));
        let mut usual = map(&pairs);
        rewrite_response_headers(StatusCode::OK, &mut usual, &rewrite);
        assert_eq!(show(&usual), ["location=/p/x", "warning=299 - w"]);
        let mut switching = map(&pairs[..2]);
        rewrite_response_headers(StatusCode::SWITCHING_PROTOCOLS, &mut switching, &rewrite);
        assert_eq!(switching.len(), 2);
    }
}

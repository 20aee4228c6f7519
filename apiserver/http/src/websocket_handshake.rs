//! The handshake of a WebSocket (RFC 6455), and the subprotocols that a client offers.

use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use machinery::Status;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::response_body::ServerResponseBody;

const SUPPORTED_VERSION: &str = "13";

/// Whether a request asks for the WebSocket protocol.
pub fn is_websocket_request(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let upgrades = text(CONNECTION).is_some_and(|value| {
        let mut options = value.split(',');
        options.any(|option| option.trim().eq_ignore_ascii_case("upgrade"))
    });
    upgrades && text(UPGRADE).is_some_and(|value| value.eq_ignore_ascii_case("websocket"))
}

/// Accepts a WebSocket whose client offers at most one subprotocol. Its name does not change what
/// is sent.
pub(crate) fn accept_websocket_of_one_protocol(
    headers: &HeaderMap,
) -> Result<Response<ServerResponseBody>, Status> {
    match offered_subprotocols(headers)[..] {
        [] => accept_handshake(headers, None),
        [only] => accept_handshake(headers, Some(only)),
        _ => Err(bad_subprotocol()),
    }
}

/// Accepts a WebSocket with the first subprotocol that the client offers and the server supports;
/// returns it with the 101.
pub fn accept_websocket(
    headers: &HeaderMap,
    supported: &[&'static str],
) -> Result<(Response<ServerResponseBody>, &'static str), Status> {
    let mut offered = offered_subprotocols(headers).into_iter();
    let chosen = offered.find_map(|name| supported.iter().find(|protocol| **protocol == name));
    let chosen = *chosen.ok_or_else(bad_subprotocol)?;
    Ok((accept_handshake(headers, Some(chosen))?, chosen))
}

fn bad_subprotocol() -> Status {
    Status::bad_request("missing or bad WebSocket-Protocol")
}

fn offered_subprotocols(headers: &HeaderMap) -> Vec<&str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .collect()
}

/// The 101 for a handshake.
fn accept_handshake(
    headers: &HeaderMap,
    subprotocol: Option<&str>,
) -> Result<Response<ServerResponseBody>, Status> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    if text(SEC_WEBSOCKET_VERSION) != Some(SUPPORTED_VERSION) {
        return Err(Status::bad_request("missing or bad WebSocket Version"));
    }
    let Some(key) = text(SEC_WEBSOCKET_KEY).filter(|key| !key.is_empty()) else {
        return Err(Status::bad_request("mismatch challenge/response"));
    };
    let mut response = Response::new(ServerResponseBody::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let fields = response.headers_mut();
    fields.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    fields.insert(UPGRADE, HeaderValue::from_static("websocket"));
    let accept = derive_accept_key(key.as_bytes());
    let accept = HeaderValue::try_from(accept).map_err(Status::internal)?;
    fields.insert(SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(subprotocol) = subprotocol {
        let subprotocol = HeaderValue::from_str(subprotocol).map_err(Status::internal)?;
        fields.insert(SEC_WEBSOCKET_PROTOCOL, subprotocol);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handshake_is_answered() {
        let headers = |pairs: &[(&'static str, &'static str)]| {
            let pairs = pairs.iter().map(|(name, value)| {
                (
                    http::HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            });
            pairs.collect::<HeaderMap>()
        };
        let upgrade = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
        ];
        assert!(is_websocket_request(&headers(&upgrade)));
        assert!(!is_websocket_request(&headers(&upgrade[..1])));
        assert!(!is_websocket_request(&headers(&upgrade[1..])));
        // The example of RFC 6455.
        let key = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        let version = ("sec-websocket-version", "13");
        let protocol = ("sec-websocket-protocol", "binary.k8s.io");
        let response =
            accept_websocket_of_one_protocol(&headers(&[key, version, protocol])).unwrap();
        let fields = response.headers();
        assert_eq!(
            fields["sec-websocket-accept"],
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
        assert_eq!(fields["sec-websocket-protocol"], "binary.k8s.io");
        let two_protocols = ("sec-websocket-protocol", "a, b");
        for invalid in [vec![key], vec![version], vec![key, version, two_protocols]] {
            assert_eq!(
                accept_websocket_of_one_protocol(&headers(&invalid))
                    .err()
                    .unwrap()
                    .code,
                400
            );
        }
    }

    #[test]
    fn the_first_offered_subprotocol_that_is_supported_is_chosen() {
        let offer = |protocols: &'static str| {
            HeaderMap::from_iter([
                (SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13")),
                (SEC_WEBSOCKET_KEY, HeaderValue::from_static("a2V5")),
                (SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocols)),
            ])
        };
        let supported = ["v5", "v4"];
        for (offered, chosen) in [("v5", Some("v5")), ("v6, v4, v5", Some("v4")), ("v3", None)] {
            let accepted = accept_websocket(&offer(offered), &supported);
            assert_eq!(accepted.ok().map(|(_, chosen)| chosen), chosen, "{offered}");
        }
    }
}

//! Watches over WebSocket, which browsers use: one message per event
//! (kube-apiserver's `endpoints/handlers/watch.go`). Messages of the client are ignored; its
//! close ends the watch.

use bytes::{Buf, Bytes};
use futures_util::{SinkExt, StreamExt};
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use machinery::Status;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

use crate::negotiation::ResponseSerialization;
use crate::response_body::{BodyChunkStream, ServerResponseBody};

/// Bound on a message of the client, which is not looked at.
const MAX_RECEIVED_BYTES: usize = 64 << 10;
const SUPPORTED_VERSION: &str = "13";
/// The length before each event in protobuf; a message needs none.
const LENGTH_PREFIX_BYTES: usize = 4;

/// Whether a request asks for the WebSocket protocol.
pub(crate) fn is_websocket_request(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let upgrades = text(CONNECTION).is_some_and(|value| {
        let mut options = value.split(',');
        options.any(|option| option.trim().eq_ignore_ascii_case("upgrade"))
    });
    upgrades && text(UPGRADE).is_some_and(|value| value.eq_ignore_ascii_case("websocket"))
}

/// The 101 for a handshake. A subprotocol is accepted if it is the only one; its name does not
/// change what is sent.
pub(crate) fn switch_protocols(
    headers: &HeaderMap,
) -> Result<Response<ServerResponseBody>, Status> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let refuse = |why: &str| Err(Status::bad_request(why));
    if text(SEC_WEBSOCKET_VERSION) != Some(SUPPORTED_VERSION) {
        return refuse("missing or bad WebSocket Version");
    }
    let Some(key) = text(SEC_WEBSOCKET_KEY).filter(|key| !key.is_empty()) else {
        return refuse("mismatch challenge/response");
    };
    let protocols: Vec<&str> = headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .collect();
    let mut response = Response::new(ServerResponseBody::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let fields = response.headers_mut();
    fields.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    fields.insert(UPGRADE, HeaderValue::from_static("websocket"));
    let accept = derive_accept_key(key.as_bytes());
    let accept = HeaderValue::try_from(accept).map_err(Status::internal)?;
    fields.insert(SEC_WEBSOCKET_ACCEPT, accept);
    match protocols[..] {
        [] => {}
        [only] => {
            let only = HeaderValue::from_str(only).map_err(Status::internal)?;
            fields.insert(SEC_WEBSOCKET_PROTOCOL, only);
        }
        _ => return refuse("missing or bad WebSocket-Protocol"),
    }
    Ok(response)
}

/// Sends the events until they end or the client closes.
pub(crate) async fn send_events(
    upgrade: OnUpgrade,
    events: BodyChunkStream,
    encoding: ResponseSerialization,
) {
    let sent = async {
        let stream = TokioIo::new(upgrade.await.map_err(|e| e.to_string())?);
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_RECEIVED_BYTES))
            .max_frame_size(Some(MAX_RECEIVED_BYTES));
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config));
        let sent = send_messages(socket.await, events, encoding).await;
        sent.map_err(|e| e.to_string())
    };
    if let Err(error) = sent.await {
        tracing::debug!(%error, "watch over WebSocket failed");
    }
}

async fn send_messages<S>(
    mut socket: WebSocketStream<S>,
    mut events: BodyChunkStream,
    encoding: ResponseSerialization,
) -> Result<(), Error>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    loop {
        tokio::select! {
            chunk = events.next() => {
                let Some(mut chunk) = chunk else {
                    return socket.close(None).await;
                };
                while let Some(message) = next_message(&mut chunk, encoding)? {
                    socket.feed(message).await?;
                }
                socket.flush().await?;
            }
            received = socket.next() => match received {
                Some(Ok(message)) if !message.is_close() => {}
                Some(Err(error)) => return Err(error),
                _ => return Ok(()),
            },
        }
    }
}

/// Takes the next event out of a chunk of whole events.
fn next_message(
    chunk: &mut Bytes,
    encoding: ResponseSerialization,
) -> Result<Option<Message>, Error> {
    if chunk.is_empty() {
        return Ok(None);
    }
    if encoding == ResponseSerialization::Protobuf {
        let length = match chunk.len() {
            0..LENGTH_PREFIX_BYTES => 0,
            _ => chunk.get_u32() as usize,
        };
        let event = chunk.split_to(length.min(chunk.len()));
        return Ok(Some(Message::Binary(event)));
    }
    let end = chunk.iter().position(|byte| *byte == b'\n');
    let line = chunk.split_to(end.map_or(chunk.len(), |end| end + 1));
    let text = Utf8Bytes::try_from(line).map_err(|e| Error::Utf8(e.to_string()))?;
    Ok(Some(Message::Text(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(chunk: &'static [u8], encoding: ResponseSerialization) -> Vec<Message> {
        let mut chunk = Bytes::from_static(chunk);
        std::iter::from_fn(|| next_message(&mut chunk, encoding).unwrap()).collect()
    }

    #[test]
    fn every_event_is_one_message() {
        assert_eq!(
            messages(b"{\"a\":1}\n{}\n", ResponseSerialization::Json),
            [Message::text("{\"a\":1}\n"), Message::text("{}\n")]
        );
        assert_eq!(
            messages(b"\0\0\0\x02ab\0\0\0\x01c", ResponseSerialization::Protobuf),
            [Message::binary(&b"ab"[..]), Message::binary(&b"c"[..])]
        );
    }

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
        let response = switch_protocols(&headers(&[key, version, protocol])).unwrap();
        let fields = response.headers();
        assert_eq!(
            fields["sec-websocket-accept"],
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
        assert_eq!(fields["sec-websocket-protocol"], "binary.k8s.io");
        let two = ("sec-websocket-protocol", "a, b");
        for refused in [vec![key], vec![version], vec![key, version, two]] {
            assert_eq!(
                switch_protocols(&headers(&refused)).err().unwrap().code,
                400
            );
        }
    }
}

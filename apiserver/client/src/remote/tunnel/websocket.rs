//! Tunnels framed as WebSockets (RFC 6455), for proxies that pass on no other upgrade.

use std::future::ready;
use std::io;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt, TryStreamExt};
use http::header::{
    HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, Method, Request};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
pub use tokio_tungstenite::tungstenite::protocol::Role as WebSocketRole;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_util::io::{CopyToBytes, SinkWriter, StreamReader};

/// The subprotocol of a WebSocket whose binary messages are the bytes of a tunnel.
pub const TUNNEL_WEBSOCKET_SUBPROTOCOL: &str = "tunnel.flotilla.io";

/// A sender writes at most a few frames of HTTP/2 at once; a proxy may join messages.
const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// The bytes of the binary messages of a WebSocket whose handshake is over.
pub async fn websocket_byte_stream<S>(
    stream: S,
    role: WebSocketRole,
) -> impl AsyncRead + AsyncWrite + Send + Unpin + 'static
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    let socket = WebSocketStream::from_raw_socket(stream, role, Some(config)).await;
    let (sink, stream) = socket.split();
    let received = stream
        .map_err(io::Error::other)
        .try_filter_map(|message| ready(binary_message(message)));
    let sent = sink.with(|bytes: Bytes| ready(Ok::<_, Error>(Message::Binary(bytes))));
    let writer = SinkWriter::new(CopyToBytes::new(sent.sink_map_err(io::Error::other)));
    tokio::io::join(StreamReader::new(received), writer)
}

/// Pings are answered by the WebSocket itself.
fn binary_message(message: Message) -> io::Result<Option<Bytes>> {
    match message {
        Message::Binary(bytes) => Ok(Some(bytes)),
        Message::Text(_) => Err(io::Error::other("a tunnel has binary messages only")),
        _ => Ok(None),
    }
}

/// Makes a request for an upgrade one for a WebSocket.
pub(super) fn request_websocket<B>(request: &mut Request<B>) -> Result<(), String> {
    *request.method_mut() = Method::GET;
    let key = HeaderValue::try_from(generate_key()).map_err(|e| e.to_string())?;
    let headers = request.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    let subprotocol = HeaderValue::from_static(TUNNEL_WEBSOCKET_SUBPROTOCOL);
    headers.insert(SEC_WEBSOCKET_PROTOCOL, subprotocol);
    headers.insert(SEC_WEBSOCKET_KEY, key);
    Ok(())
}

/// Whether a response accepts the WebSocket that was requested with these headers.
pub(super) fn is_accepted(requested: &HeaderMap, response: &HeaderMap) -> bool {
    let key = requested.get(SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes);
    let accepted = response.get(SEC_WEBSOCKET_ACCEPT);
    let subprotocol = response.get(SEC_WEBSOCKET_PROTOCOL);
    key.zip(accepted)
        .is_some_and(|(key, accepted)| *accepted == *derive_accept_key(key))
        && subprotocol.is_some_and(|name| name == TUNNEL_WEBSOCKET_SUBPROTOCOL)
}

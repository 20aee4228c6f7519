//! Watches over WebSocket, which browsers use: one message per event
//! (kube-apiserver's `endpoints/handlers/watch.go`). Messages of the client are ignored; its
//! close ends the watch.

use bytes::{Buf, Bytes};
use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

use crate::negotiation::ResponseSerialization;
use crate::response_body::BodyChunkStream;

/// Bound on a message of the client, which is not looked at.
const MAX_RECEIVED_BYTES: usize = 64 << 10;
/// The length before each event in protobuf; a message needs none.
const LENGTH_PREFIX_BYTES: usize = 4;

/// Sends the events until they end or the client closes.
pub(crate) async fn send_events(
    upgrade: OnUpgrade,
    events: BodyChunkStream,
    encoding: ResponseSerialization,
) {
    let sending = async {
        let stream = TokioIo::new(upgrade.await.map_err(|e| e.to_string())?);
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_RECEIVED_BYTES))
            .max_frame_size(Some(MAX_RECEIVED_BYTES));
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config));
        let sending = send_messages(socket.await, events, encoding).await;
        sending.map_err(|e| e.to_string())
    };
    if let Err(error) = sending.await {
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
}

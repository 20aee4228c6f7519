//! Sessions with hollow containers over WebSocket: the first byte of each message is the number of
//! its stream (`v4.channel.k8s.io`, and `v5.channel.k8s.io`, which can also close a stream).

use std::io;

use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::exec::{PodExecOptions, exit_status};

const CHANNELS_V5: &str = "v5.channel.k8s.io";
const CHANNELS_V4: &str = "v4.channel.k8s.io";
/// The subprotocols of `exec` and `attach`.
pub const EXEC_SUBPROTOCOLS: [&str; 2] = [CHANNELS_V5, CHANNELS_V4];
/// The subprotocol of `portforward` that has two streams for each requested port.
pub const PORT_FORWARD_CHANNELS: &str = CHANNELS_V4;
/// The subprotocol of `portforward` whose messages are the bytes of a SPDY connection.
pub const PORT_FORWARD_TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
/// A message of this stream closes the stream whose number follows.
const CLOSE: u8 = 255;
/// Bound on a message of the client.
const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// Streams have numbers of one byte.
const MAX_FORWARDED_PORTS: usize = 64;

/// A WebSocket whose messages belong to streams.
struct ChannelSocket<S> {
    socket: WebSocketStream<S>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ChannelSocket<S> {
    async fn new(stream: S) -> Self {
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE_BYTES))
            .max_frame_size(Some(MAX_MESSAGE_BYTES));
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config));
        Self {
            socket: socket.await,
        }
    }

    async fn send(&mut self, channel: u8, data: &[u8]) -> io::Result<()> {
        let message = Message::binary([&[channel], data].concat());
        self.socket.send(message).await.map_err(io::Error::other)
    }

    /// The next stream and data; `None` when the client has closed the WebSocket.
    async fn next(&mut self) -> io::Result<Option<(u8, Vec<u8>)>> {
        while let Some(message) = self.socket.next().await {
            // Reading on after a close answers it.
            let message = message.map_err(io::Error::other)?;
            if (message.is_binary() || message.is_text())
                && let [channel, data @ ..] = &*message.into_data()
            {
                return Ok(Some((*channel, data.to_vec())));
            }
        }
        Ok(None)
    }

    /// Closes the WebSocket, and waits until the client has, too.
    async fn close(mut self) -> io::Result<()> {
        let frame = CloseFrame {
            code: CloseCode::Normal,
            reason: "".into(),
        };
        let closed = self.socket.close(Some(frame)).await;
        closed.map_err(io::Error::other)?;
        while self.next().await?.is_some() {}
        Ok(())
    }
}

/// Runs `exec` or `attach` on an upgraded connection until the command or the client ends it.
pub async fn run_websocket_session(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    command: PodExecOptions,
    subprotocol: &str,
) -> io::Result<()> {
    let mut socket = ChannelSocket::new(stream).await;
    // An empty message tells the client that the session has begun.
    let first_output = match () {
        () if command.has_stdout() => STDOUT,
        () if command.has_stderr() => STDERR,
        () => ERROR,
    };
    socket.send(first_output, &[]).await?;
    let code = match command.echoes() {
        true => echo_stdin(&mut socket, &command, subprotocol == CHANNELS_V5).await?,
        false => {
            let outcome = command.run();
            if command.has_stdout() && !outcome.output.is_empty() {
                socket.send(STDOUT, outcome.output.as_bytes()).await?;
            }
            Some(outcome.code)
        }
    };
    let Some(code) = code else {
        return Ok(());
    };
    let status = exit_status(code).to_string();
    socket.send(ERROR, status.as_bytes()).await?;
    socket.close().await
}

/// Echoes standard input until the client closes the stream, or the WebSocket (`None`).
async fn echo_stdin<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut ChannelSocket<S>,
    command: &PodExecOptions,
    can_close_streams: bool,
) -> io::Result<Option<u8>> {
    while let Some((channel, data)) = socket.next().await? {
        match channel {
            STDIN if command.has_stdout() && !data.is_empty() => {
                socket.send(STDOUT, &data).await?;
            }
            CLOSE if can_close_streams && data == [STDIN] => return Ok(Some(0)),
            _ => {}
        }
    }
    Ok(None)
}

/// Reads the requested ports; the error says what is wrong with them.
pub fn parse_forwarded_ports(texts: &[String]) -> Result<Vec<u16>, String> {
    let texts = texts.iter().flat_map(|text| text.split(','));
    let ports = texts.map(|text| match text.trim().parse() {
        Ok(0) | Err(_) => Err(format!("unable to parse {text:?} as a port")),
        Ok(port) => Ok(port),
    });
    let ports = ports.collect::<Result<Vec<u16>, String>>()?;
    match ports.len() {
        0 => Err("query parameter \"ports\" is required".to_owned()),
        1..=MAX_FORWARDED_PORTS => Ok(ports),
        count => Err(format!(
            "at most {MAX_FORWARDED_PORTS} ports can be forwarded, not {count}"
        )),
    }
}

/// Forwards ports until the client closes the WebSocket: what comes in for a port is echoed. Each
/// port has a stream for data and one for errors, both of which begin with its number.
pub async fn run_websocket_port_forward(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    ports: &[u16],
) -> io::Result<()> {
    let mut socket = ChannelSocket::new(stream).await;
    let channels: Vec<u8> = (0u8..).step_by(2).take(ports.len()).collect();
    for (data, port) in channels.iter().zip(ports) {
        for channel in [*data, data + 1] {
            socket.send(channel, &port.to_le_bytes()).await?;
        }
    }
    while let Some((channel, data)) = socket.next().await? {
        if channels.contains(&channel) && !data.is_empty() {
            socket.send(channel, &data).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn client(stream: tokio::io::DuplexStream) -> ChannelSocket<tokio::io::DuplexStream> {
        let socket = WebSocketStream::from_raw_socket(stream, Role::Client, None);
        ChannelSocket {
            socket: socket.await,
        }
    }

    async fn received(client: &mut ChannelSocket<tokio::io::DuplexStream>) -> (u8, String) {
        let (channel, data) = client.next().await.unwrap().unwrap();
        (channel, String::from_utf8(data).unwrap())
    }

    fn command(args: &[&str], stdin: bool) -> PodExecOptions {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let flag = |name: &str| name == "stdout" || stdin && name == "stdin";
        PodExecOptions::parse(args, flag, stdin).unwrap()
    }

    #[tokio::test]
    async fn a_command_prints_its_words_and_ends_with_its_code() {
        for (args, output, status) in [
            (["echo", "hi"], Some("echo hi\n"), "Success"),
            (["exit", "3"], None, "Failure"),
        ] {
            let (near, far) = tokio::io::duplex(1 << 16);
            let run = run_websocket_session(far, command(&args, false), CHANNELS_V4);
            let check = async {
                let mut client = client(near).await;
                assert_eq!(received(&mut client).await, (STDOUT, String::new()));
                if let Some(output) = output {
                    assert_eq!(received(&mut client).await, (STDOUT, output.to_owned()));
                }
                let (channel, text) = received(&mut client).await;
                let outcome: serde_json::Value = machinery::json::from_str(&text).unwrap();
                assert_eq!((channel, &outcome["status"]), (ERROR, &status.into()));
                assert_eq!(client.next().await.unwrap(), None);
            };
            let (ran, ()) = tokio::join!(run, check);
            ran.unwrap();
        }
    }

    #[tokio::test]
    async fn standard_input_is_echoed_until_its_stream_is_closed() {
        let (near, far) = tokio::io::duplex(1 << 16);
        let run = run_websocket_session(far, command(&[], true), CHANNELS_V5);
        let check = async {
            let mut client = client(near).await;
            assert_eq!(received(&mut client).await.0, STDOUT);
            client.send(STDIN, b"hello").await.unwrap();
            assert_eq!(received(&mut client).await, (STDOUT, "hello".to_owned()));
            client.send(CLOSE, &[STDIN]).await.unwrap();
            let (channel, text) = received(&mut client).await;
            assert!(channel == ERROR && text.contains("Success"), "{text}");
        };
        let (ran, ()) = tokio::join!(run, check);
        // The client leaves before it answers the close.
        assert!(ran.is_err());
    }

    #[tokio::test]
    async fn ports_have_two_streams_each() {
        let (near, far) = tokio::io::duplex(1 << 16);
        let run = run_websocket_port_forward(far, &[80, 0x1234]);
        let check = async {
            let mut client = client(near).await;
            for (channel, port) in [
                (0, [80, 0]),
                (1, [80, 0]),
                (2, [0x34, 0x12]),
                (3, [0x34, 0x12]),
            ] {
                let first = client.next().await.unwrap().unwrap();
                assert_eq!(first, (channel, port.to_vec()));
            }
            client.send(2, b"ping").await.unwrap();
            assert_eq!(received(&mut client).await, (2, "ping".to_owned()));
            client.close().await.unwrap();
        };
        let (ran, ()) = tokio::join!(run, check);
        ran.unwrap();
    }

    #[test]
    fn ports_are_read_from_the_query() {
        let parse = |text: &str| parse_forwarded_ports(&[text.to_owned()]);
        assert_eq!(parse("80,8080"), Ok(vec![80, 8080]));
        assert!(parse("0").is_err() && parse("x").is_err() && parse("65536").is_err());
        assert!(parse_forwarded_ports(&[]).is_err());
    }
}

//! Proxies inside a test: CONNECT over HTTP and HTTPS, and SOCKS5.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::https_server::self_signed_acceptor;

/// A running proxy. Dropping it stops it.
pub struct FakeProxy {
    pub address: SocketAddr,
    /// The CA bundle (PEM) of an HTTPS proxy.
    pub ca_pem: String,
    requests: ProxyRequests,
    task: JoinHandle<()>,
}

type ProxyRequests = Arc<Mutex<Vec<String>>>;

impl Drop for FakeProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
enum ProxyProtocol {
    Http,
    Https(TlsAcceptor),
    /// Clients have to give this user and password, if there is one.
    Socks5(Option<&'static str>),
}

impl FakeProxy {
    pub async fn http() -> Self {
        Self::start("127.0.0.1:0", ProxyProtocol::Http, String::new()).await
    }

    pub async fn https() -> Self {
        let (acceptor, ca) = self_signed_acceptor(&["localhost", "127.0.0.1"]);
        Self::start("127.0.0.1:0", ProxyProtocol::Https(acceptor), ca).await
    }

    /// A SOCKS5 proxy at this address, which asks for `user:password` if there is one.
    pub async fn socks5(listen: &str, credentials: Option<&'static str>) -> Self {
        Self::start(listen, ProxyProtocol::Socks5(credentials), String::new()).await
    }

    /// The heads of CONNECT requests, and the targets of SOCKS requests, so far.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }

    async fn start(listen: &str, protocol: ProxyProtocol, ca_pem: String) -> Self {
        let listener = TcpListener::bind(listen).await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = ProxyRequests::default();
        let recorded = Arc::clone(&requests);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (protocol, recorded) = (protocol.clone(), Arc::clone(&recorded));
                tokio::spawn(async move { serve(client, protocol, &recorded).await });
            }
        });
        Self {
            address,
            ca_pem,
            requests,
            task,
        }
    }
}

/// A client that breaks the protocol is left alone.
async fn serve(client: TcpStream, protocol: ProxyProtocol, requests: &ProxyRequests) {
    let _ = match protocol {
        ProxyProtocol::Http => serve_connect(client, requests).await,
        ProxyProtocol::Https(acceptor) => match acceptor.accept(client).await {
            Ok(stream) => serve_connect(stream, requests).await,
            Err(error) => Err(error),
        },
        ProxyProtocol::Socks5(credentials) => serve_socks5(client, credentials, requests).await,
    };
}

async fn serve_connect(
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    requests: &ProxyRequests,
) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    let head = String::from_utf8(head).unwrap();
    let to = head.split(' ').nth(1).unwrap().to_owned();
    requests.lock().push(head);
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    client.flush().await?;
    let mut server = TcpStream::connect(to).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

/// RFC 1928, and RFC 1929 for user and password.
async fn serve_socks5(
    mut client: TcpStream,
    credentials: Option<&str>,
    requests: &ProxyRequests,
) -> io::Result<()> {
    assert_eq!(client.read_u8().await?, 5);
    let methods = client.read_u8().await?;
    read_bytes(&mut client, methods).await?;
    match credentials {
        None => client.write_all(&[5, 0]).await?,
        Some(expected) => {
            client.write_all(&[5, 2]).await?;
            assert_eq!(client.read_u8().await?, 1);
            let user = read_text(&mut client).await?;
            let password = read_text(&mut client).await?;
            let is_refused = u8::from(format!("{user}:{password}") != expected);
            client.write_all(&[1, is_refused]).await?;
            if is_refused != 0 {
                return Ok(());
            }
        }
    }
    assert_eq!(read_bytes(&mut client, 3).await?, [5, 1, 0]);
    let host = match client.read_u8().await? {
        1 => Ipv4Addr::from(client.read_u32().await?).to_string(),
        3 => read_text(&mut client).await?,
        _ => format!("[{}]", Ipv6Addr::from(client.read_u128().await?)),
    };
    let to = format!("{host}:{}", client.read_u16().await?);
    requests.lock().push(to.clone());
    let mut server = TcpStream::connect(to).await?;
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

async fn read_bytes(client: &mut TcpStream, count: u8) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; count.into()];
    client.read_exact(&mut bytes).await?;
    Ok(bytes)
}

async fn read_text(client: &mut TcpStream) -> io::Result<String> {
    let length = client.read_u8().await?;
    let bytes = read_bytes(client, length).await?;
    Ok(String::from_utf8(bytes).unwrap())
}

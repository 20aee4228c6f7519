//! Binds listening addresses, and stores a chosen port where it must stay the same.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anyhow::{Context, bail};
use tokio::net::TcpListener;

const PORT_FILE: &str = "listen";

/// Binds `address`. The error for an address in use says what to do.
pub(crate) async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Ok(listener) => Ok(listener),
        Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => {
            bail!(
                "{address} is in use by another process; stop it, or choose another address with --listen (port 0 picks a free one)"
            )
        }
        Err(e) => Err(e).with_context(|| format!("cannot listen on {address}")),
    }
}

/// Binds the port of the earlier run if the port is 0, so that clients with the address
/// still reach the server.
pub(crate) async fn bind_same_port(dir: &Path, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let file = dir.join(PORT_FILE);
    if address.port() == 0
        && let Ok(text) = std::fs::read_to_string(&file)
        && let Ok(port) = text.trim().parse::<u16>()
    {
        return bind(SocketAddr::new(address.ip(), port))
            .await
            .with_context(|| {
                format!(
                    "port {} was used before (remove {} to choose another)",
                    port,
                    file.display()
                )
            });
    }
    let listener = bind(address).await?;
    let port = listener.local_addr().context("no local address")?.port();
    std::fs::write(&file, port.to_string())
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(listener)
}

/// The URL by which clients on this machine reach a listener.
pub(crate) fn url(address: SocketAddr) -> String {
    let host = match address.ip() {
        ip if ip.is_unspecified() => {
            if ip.is_ipv4() {
                "127.0.0.1".to_owned()
            } else {
                "[::1]".to_owned()
            }
        }
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    format!("https://{host}:{}", address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_reachable_from_this_machine() {
        for (address, expected) in [
            ("127.0.0.1:1", "https://127.0.0.1:1"),
            ("0.0.0.0:2", "https://127.0.0.1:2"),
            ("[::]:3", "https://[::1]:3"),
            ("[::1]:4", "https://[::1]:4"),
        ] {
            assert_eq!(url(address.parse().unwrap()), expected);
        }
    }
}

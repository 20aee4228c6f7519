//! Binds listening addresses, and stores a chosen port where it must stay the same.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;

use anyhow::{Context, bail};
use tokio::net::TcpListener;

const PORT_FILE: &str = "listen";
/// Addresses outside of every local network (RFC 5737, RFC 3849).
const DOCUMENTATION_IPV4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const DOCUMENTATION_IPV6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

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

/// Host and port at which other machines reach a listener: one that listens at every address
/// is reached at that of the default route.
pub(crate) fn external_address(mut address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        let loopback = || match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        address.set_ip(default_route_address(address.ip()).unwrap_or_else(loopback));
    }
    address.to_string()
}

/// The address at which clients inside a cluster reach a listener, which Endpoints can have: a
/// loopback address only if there is no other.
pub(crate) fn endpoint_address(names: &[String], address: SocketAddr) -> SocketAddr {
    let usable = |ip: &IpAddr| !ip.is_unspecified() && !ip.is_loopback();
    let named = names
        .iter()
        .filter_map(|name| name.parse().ok())
        .find(usable);
    let listened = Some(address.ip()).filter(usable);
    let unspecified: IpAddr = match address.is_ipv4() {
        true => Ipv4Addr::UNSPECIFIED.into(),
        false => Ipv6Addr::UNSPECIFIED.into(),
    };
    let routed = || default_route_address(unspecified);
    let ip = named.or(listened).or_else(routed);
    SocketAddr::new(ip.unwrap_or(address.ip()), address.port())
}

/// The local address of packets to other networks. Connecting a UDP socket sends none.
fn default_route_address(unspecified: IpAddr) -> Option<IpAddr> {
    let elsewhere: IpAddr = match unspecified {
        IpAddr::V4(_) => DOCUMENTATION_IPV4.into(),
        IpAddr::V6(_) => DOCUMENTATION_IPV6.into(),
    };
    let socket = UdpSocket::bind((unspecified, 0)).ok()?;
    socket.connect((elsewhere, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// The URL by which other machines reach a listener: with the first of the further names in
/// its certificate, if it has one.
pub(crate) fn advertised_url(names: &[String], address: SocketAddr) -> String {
    match names.iter().find(|name| !name.contains('*')) {
        Some(name) => match name.parse() {
            Ok(ip) => url(SocketAddr::new(ip, address.port())),
            Err(_) => format!("https://{name}:{}", address.port()),
        },
        None => format!("https://{}", external_address(address)),
    }
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

    #[test]
    fn external_addresses_are_no_wildcards() {
        assert_eq!(
            external_address("10.0.0.1:6443".parse().unwrap()),
            "10.0.0.1:6443"
        );
        for address in ["0.0.0.0:6443", "[::]:6443"] {
            let external = external_address(address.parse().unwrap());
            let external: SocketAddr = external.parse().unwrap();
            assert!(!external.ip().is_unspecified(), "{external}");
            assert_eq!(external.port(), 6443);
        }
    }

    #[test]
    fn endpoints_have_a_name_or_an_address_that_other_machines_reach() {
        let check = |names: &[&str], address: &str, expected: &str| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            let actual = endpoint_address(&names, address.parse().unwrap());
            assert_eq!(actual, expected.parse().unwrap(), "{names:?} {address}");
        };
        check(&[], "10.0.0.1:6443", "10.0.0.1:6443");
        check(&["a.example", "10.0.0.9"], "0.0.0.0:6443", "10.0.0.9:6443");
        check(
            &["127.0.0.1", "10.0.0.9"],
            "127.0.0.1:6443",
            "10.0.0.9:6443",
        );
        let local = endpoint_address(&[], "127.0.0.1:6443".parse().unwrap());
        assert!(!local.ip().is_unspecified(), "{local}");
    }

    #[test]
    fn the_first_name_of_the_certificate_is_advertised() {
        let address = "127.0.0.1:2".parse().unwrap();
        for (names, expected) in [
            (&[] as &[&str], "https://127.0.0.1:2"),
            (&["*.a.b", "plane.a.b", "c"], "https://plane.a.b:2"),
            (&["fd00::1"], "https://[fd00::1]:2"),
        ] {
            let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
            assert_eq!(advertised_url(&names, address), expected);
        }
    }
}

//! Chooses free loopback ports for programs that cannot report the port they bound.
//!
//! The ports are below the kernel's range for outgoing connections, so that a port stays
//! free while its program restarts.

use std::net::{IpAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

const FIRST_PORT: u16 = 20_000;
const LAST_PORT: u16 = 32_700;

/// Returns a port without a listener, each port once per process. Other processes start
/// their search at another port.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let span = LAST_PORT - FIRST_PORT;
    let begin = (std::process::id().wrapping_mul(97) % u32::from(span)) as u16;
    for _ in 0..span {
        let offset = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST_PORT + (begin + offset % span) % span;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port between {FIRST_PORT} and {LAST_PORT}");
}

/// An address of this machine that Endpoints may have, which a loopback address is not. Connecting
/// a UDP socket sends nothing.
pub fn endpoint_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("203.0.113.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip())
}

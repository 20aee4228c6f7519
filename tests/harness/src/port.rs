//! Ports on loopback for programs that cannot say which one they got.
//!
//! They lie below the range from which the kernel takes ports of outgoing
//! connections, so that a port stays free while its program is restarted.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

const FIRST: u16 = 20_000;
const LAST: u16 = 32_700;

/// A port nobody listens on, told once in this process. Other processes begin to
/// look elsewhere.
pub fn free() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let span = LAST - FIRST;
    let begin = (std::process::id().wrapping_mul(97) % u32::from(span)) as u16;
    for _ in 0..span {
        let offset = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (begin + offset % span) % span;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port between {FIRST} and {LAST}");
}

//! A TCP relay between clients and one or more servers that simulates network faults:
//! partitions, delays and resets.
//!
//! It forwards bytes unchanged and keeps half-closed connections half-closed.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::NetworkNamespace;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Default)]
struct RelayState {
    servers: Vec<SocketAddr>,
    /// No bytes pass in either direction.
    partitioned: bool,
    delay: Duration,
    connections: Vec<RelayedConnection>,
}

struct RelayedConnection {
    id: usize,
    server: SocketAddr,
    sockets: [TcpStream; 2],
}

#[derive(Default)]
struct RelayCore {
    state: Mutex<RelayState>,
    healed: Condvar,
    stopped: AtomicBool,
    next_server: AtomicUsize,
    next_id: AtomicUsize,
    /// The network namespace of the servers; the one of this process by default.
    namespace: Option<File>,
}

/// Listens on loopback until it is dropped, which resets all its connections.
///
/// ```ignore
/// let relay = TcpRelay::start(&[first, second]); // round robin, skips dead servers
/// relay.partition(); // bytes wait, connections stay open
/// relay.heal();
/// relay.set_servers(&[second]); // closes connections to other servers
/// ```
pub struct TcpRelay {
    address: SocketAddr,
    core: Arc<RelayCore>,
}

impl TcpRelay {
    /// Distributes connections round robin and skips servers that refuse connections.
    pub fn start(servers: &[SocketAddr]) -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), servers)
    }

    /// The same, listening on a given address.
    pub fn start_at(address: SocketAddr, servers: &[SocketAddr]) -> Self {
        Self::listen(address, servers, RelayCore::default())
    }

    /// Listens outside a network namespace and connects to a server inside it, which may listen
    /// at the loopback address of the namespace.
    pub fn start_into(namespace: &NetworkNamespace, server: SocketAddr) -> Self {
        let core = RelayCore {
            namespace: Some(namespace.open()),
            ..RelayCore::default()
        };
        Self::listen(SocketAddr::from(([127, 0, 0, 1], 0)), &[server], core)
    }

    fn listen(address: SocketAddr, servers: &[SocketAddr], core: RelayCore) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(core);
        shared.state.lock().servers = servers.to_vec();
        let relay = Self {
            address,
            core: Arc::clone(&shared),
        };
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.stopped.load(Ordering::Relaxed) {
                    return;
                }
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || relay_connection(&shared, client));
            }
        });
        relay
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the servers; connections to removed servers are closed.
    pub fn set_servers(&self, servers: &[SocketAddr]) {
        let mut state = self.core.state.lock();
        state.servers = servers.to_vec();
        for open in &state.connections {
            if !servers.contains(&open.server) {
                close(open);
            }
        }
    }

    /// Simulates an unplugged cable: bytes are held back, no side gets an error, new
    /// connections hang.
    pub fn partition(&self) {
        self.core.state.lock().partitioned = true;
    }

    /// Ends the partition; the bytes held back are delivered.
    pub fn heal(&self) {
        self.core.state.lock().partitioned = false;
        self.core.healed.notify_all();
    }

    /// Delays each chunk of data by this time, in each direction.
    pub fn set_delay(&self, by: Duration) {
        self.core.state.lock().delay = by;
    }

    /// Closes every connection; new ones are accepted.
    pub fn reset_connections(&self) {
        self.core.state.lock().connections.iter().for_each(close);
    }

    /// The number of open connections.
    pub fn connection_count(&self) -> usize {
        self.core.state.lock().connections.len()
    }
}

impl Drop for TcpRelay {
    fn drop(&mut self) {
        self.core.stopped.store(true, Ordering::Relaxed);
        self.heal();
        self.reset_connections();
        // A connection wakes the listener's thread, which then ends.
        let _ = TcpStream::connect_timeout(&self.address, CONNECT_TIMEOUT);
    }
}

fn close(open: &RelayedConnection) {
    for end in &open.sockets {
        let _ = end.shutdown(Shutdown::Both);
    }
}

impl RelayCore {
    /// Waits for the end of a partition, then for the delay.
    fn wait_to_pass(&self) {
        let mut state = self.state.lock();
        while state.partitioned {
            self.healed.wait(&mut state);
        }
        let delay = state.delay;
        drop(state);
        if !delay.is_zero() {
            crate::sleep_blocking(delay);
        }
    }

    /// Connects in turn. The calling thread stays in the namespace of the servers.
    fn connect(&self) -> Option<(SocketAddr, TcpStream)> {
        if let Some(namespace) = &self.namespace {
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), network).unwrap();
        }
        let servers = self.state.lock().servers.clone();
        let turn = self.next_server.fetch_add(1, Ordering::Relaxed);
        let in_turn = servers.iter().cycle().skip(turn % servers.len().max(1));
        in_turn.take(servers.len()).find_map(|server| {
            let stream = TcpStream::connect_timeout(server, CONNECT_TIMEOUT).ok()?;
            Some((*server, stream))
        })
    }
}

fn relay_connection(shared: &Arc<RelayCore>, client: TcpStream) {
    shared.wait_to_pass();
    let Some((server, stream)) = shared.connect() else {
        return;
    };
    let id = shared.next_id.fetch_add(1, Ordering::Relaxed);
    for end in [&client, &stream] {
        let _ = end.set_nodelay(true);
    }
    let copy = |end: &TcpStream| end.try_clone().unwrap();
    shared.state.lock().connections.push(RelayedConnection {
        id,
        server,
        sockets: [copy(&client), copy(&stream)],
    });
    let (back_from, back_to) = (copy(&stream), copy(&client));
    let back = {
        let shared = Arc::clone(shared);
        std::thread::spawn(move || copy_bytes(&shared, back_from, back_to))
    };
    copy_bytes(shared, client, stream);
    let _ = back.join();
    shared.state.lock().connections.retain(|o| o.id != id);
}

fn copy_bytes(shared: &RelayCore, mut from: TcpStream, mut to: TcpStream) {
    let mut piece = [0; 64 << 10];
    loop {
        let read = from.read(&mut piece);
        shared.wait_to_pass();
        match read {
            Ok(n) if n > 0 && to.write_all(&piece[..n]).is_ok() => {}
            Ok(0) => {
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
            _ => {
                let _ = to.shutdown(Shutdown::Both);
                let _ = from.shutdown(Shutdown::Both);
                return;
            }
        }
    }
}

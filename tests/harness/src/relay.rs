//! A TCP relay between clients and one or more servers that simulates network faults:
//! partitions, delays and resets.
//!
//! It forwards bytes unchanged and keeps half-closed connections half-closed.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

const CONNECT: Duration = Duration::from_secs(2);

#[derive(Default)]
struct State {
    servers: Vec<SocketAddr>,
    /// No bytes pass in either direction.
    cut: bool,
    delay: Duration,
    open: Vec<Open>,
}

struct Open {
    id: usize,
    server: SocketAddr,
    ends: [TcpStream; 2],
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    mended: Condvar,
    ended: AtomicBool,
    turn: AtomicUsize,
    ids: AtomicUsize,
}

/// Listens on loopback until it is dropped, which resets all its connections.
///
/// ```ignore
/// let relay = TcpRelay::start(&[first, second]); // round robin, skips dead servers
/// relay.partition(); // bytes wait, connections stay open
/// relay.heal();
/// relay.set_servers(&[second]); // closes connections to other servers
/// ```
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Relay {
    /// Distributes connections round robin and skips servers that refuse connections.
    pub fn start(servers: &[SocketAddr]) -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), servers)
    }

    /// The same, listening on a given address.
    pub fn start_at(address: SocketAddr, servers: &[SocketAddr]) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        shared.state.lock().servers = servers.to_vec();
        let relay = Self {
            address,
            shared: Arc::clone(&shared),
        };
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.ended.load(Ordering::Relaxed) {
                    return;
                }
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || carry(&shared, client));
            }
        });
        relay
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the servers; connections to removed servers are closed.
    pub fn servers(&self, servers: &[SocketAddr]) {
        let mut state = self.shared.state.lock();
        state.servers = servers.to_vec();
        for open in &state.open {
            if !servers.contains(&open.server) {
                close(open);
            }
        }
    }

    /// Simulates an unplugged cable: bytes are held back, no side gets an error, new
    /// connections hang.
    pub fn cut(&self) {
        self.shared.state.lock().cut = true;
    }

    /// Ends the partition; the bytes held back are delivered.
    pub fn mend(&self) {
        self.shared.state.lock().cut = false;
        self.shared.mended.notify_all();
    }

    /// Delays each chunk of data by this time, in each direction.
    pub fn delay(&self, by: Duration) {
        self.shared.state.lock().delay = by;
    }

    /// Closes every connection; new ones are accepted.
    pub fn reset(&self) {
        self.shared.state.lock().open.iter().for_each(close);
    }

    /// The number of open connections.
    pub fn connections(&self) -> usize {
        self.shared.state.lock().open.len()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        self.mend();
        self.reset();
        // A connection wakes the listener's thread, which then ends.
        let _ = TcpStream::connect_timeout(&self.address, CONNECT);
    }
}

fn close(open: &Open) {
    for end in &open.ends {
        let _ = end.shutdown(Shutdown::Both);
    }
}

impl Shared {
    /// Waits for the end of a partition, then for the delay.
    fn pass(&self) {
        let mut state = self.state.lock();
        while state.cut {
            self.mended.wait(&mut state);
        }
        let delay = state.delay;
        drop(state);
        if !delay.is_zero() {
            crate::pause(delay);
        }
    }

    fn connect(&self) -> Option<(SocketAddr, TcpStream)> {
        let servers = self.state.lock().servers.clone();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let in_turn = servers.iter().cycle().skip(turn % servers.len().max(1));
        in_turn.take(servers.len()).find_map(|server| {
            let stream = TcpStream::connect_timeout(server, CONNECT).ok()?;
            Some((*server, stream))
        })
    }
}

fn carry(shared: &Arc<Shared>, client: TcpStream) {
    shared.pass();
    let Some((server, stream)) = shared.connect() else {
        return;
    };
    let id = shared.ids.fetch_add(1, Ordering::Relaxed);
    for end in [&client, &stream] {
        let _ = end.set_nodelay(true);
    }
    let copy = |end: &TcpStream| end.try_clone().unwrap();
    shared.state.lock().open.push(Open {
        id,
        server,
        ends: [copy(&client), copy(&stream)],
    });
    let (back_from, back_to) = (copy(&stream), copy(&client));
    let back = {
        let shared = Arc::clone(shared);
        std::thread::spawn(move || pump(&shared, back_from, back_to))
    };
    pump(shared, client, stream);
    let _ = back.join();
    shared.state.lock().open.retain(|o| o.id != id);
}

fn pump(shared: &Shared, mut from: TcpStream, mut to: TcpStream) {
    let mut piece = [0; 64 << 10];
    loop {
        let read = from.read(&mut piece);
        shared.pass();
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

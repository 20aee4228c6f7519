//! A network namespace that is linked to this machine by a pair of virtual interfaces.
//!
//! Programs in it reach this machine at [`NetworkNamespace::host_address`]. What they listen on
//! at their own loopback address, nothing outside reaches, but a
//! [`TcpRelay::start_into`](crate::TcpRelay::start_into). The kernel removes the namespace and
//! its link when its last process ends.

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::daemon::{parent_bound_command, spawn_bound};
use crate::tools::{skip, skip_part};

const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;
const START_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// 198.18.0.0/15, which is reserved for tests of networks, has this many networks of four
/// addresses.
const SUBNETS: u32 = 1 << 15;

/// A namespace, held by a process that sleeps in it.
pub struct NetworkNamespace {
    holder: Child,
    /// The interface on this machine.
    link: String,
    host_address: Ipv4Addr,
    address: Ipv4Addr,
}

impl NetworkNamespace {
    /// `None` if this process may not create one: that part of the test is then recorded as
    /// skipped. Root without the capabilities fails with `CI=true`.
    pub fn create() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !has_capabilities() {
            return None;
        }
        let mut command = parent_bound_command(Path::new("unshare"));
        command.args(["--net", "sleep", "infinity"]);
        let holder = spawn_bound(command).unwrap();
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let first = u32::from(Ipv4Addr::new(198, 18, 0, 0));
        let subnet = std::process::id().wrapping_mul(8).wrapping_add(n) % SUBNETS;
        let namespace = Self {
            link: format!("fl{}n{n}", std::process::id()),
            host_address: Ipv4Addr::from(first + 4 * subnet + 1),
            address: Ipv4Addr::from(first + 4 * subnet + 2),
            holder,
        };
        namespace.wait_until_separate();
        namespace.connect();
        Some(namespace)
    }

    /// Until the holder has left the namespace of this process.
    fn wait_until_separate(&self) {
        let own_namespace = std::fs::read_link("/proc/self/ns/net").unwrap();
        let end = Instant::now() + START_TIMEOUT;
        while std::fs::read_link(self.path()).is_ok_and(|namespace| namespace == own_namespace) {
            assert!(Instant::now() < end, "no network namespace");
            crate::sleep_blocking(POLL_INTERVAL);
        }
    }

    fn connect(&self) {
        let (link, holder) = (&self.link, self.holder.id());
        run(&format!(
            "ip link add {link} type veth peer name eth0 netns {holder}"
        ));
        run(&format!("ip addr add {}/30 dev {link}", self.host_address));
        let inside = format!("nsenter --net={}", self.path());
        run(&format!("{inside} ip link set lo up"));
        run(&format!(
            "{inside} ip addr add {}/30 dev eth0",
            self.address
        ));
        run(&format!("{inside} ip link set eth0 up"));
        self.restore_link();
    }

    fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.holder.id())
    }

    /// The namespace itself, to be entered by a thread.
    pub(crate) fn open(&self) -> File {
        File::open(self.path()).unwrap()
    }

    /// The words before a command that run it in the namespace.
    pub fn enter(&self) -> [String; 2] {
        ["nsenter".to_owned(), format!("--net={}", self.path())]
    }

    /// The address of this machine on the link.
    pub fn host_address(&self) -> Ipv4Addr {
        self.host_address
    }

    /// The address of the namespace on the link.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Takes the link down: packets are lost in both directions.
    pub fn cut_link(&self) {
        run(&format!("ip link set {} down", self.link));
    }

    pub fn restore_link(&self) {
        run(&format!("ip link set {} up", self.link));
    }
}

impl Drop for NetworkNamespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Whether this process may create namespaces and interfaces.
fn has_capabilities() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim().to_owned()
    };
    let effective = u64::from_str_radix(&field("CapEff:"), 16).unwrap_or_default();
    let needed = [CAP_NET_ADMIN, CAP_SYS_ADMIN];
    if needed.iter().all(|bit| effective & (1 << bit) != 0) {
        return true;
    }
    let need = "CAP_NET_ADMIN and CAP_SYS_ADMIN for network namespaces";
    match field("Uid:").split_whitespace().nth(1) {
        Some("0") => skip(need),
        _ => skip_part(need),
    }
    false
}

fn run(line: &str) {
    let mut words = line.split(' ');
    let program = words.next().unwrap_or_default();
    let out = Command::new(program).args(words).output().unwrap();
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{line}: {errors}");
}

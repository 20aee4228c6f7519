//! Measures the CPU, the disk and the bytes on the wire that server, load and members have used.

use harness::process_stat::own_threads_cpu_seconds;

use crate::members::{MEMBER_THREADS, SimulatedFleet};
use crate::report::{FleetGoal, FleetReport};
use crate::server::ServerUnderTest;

/// The name of the load's threads.
pub(crate) const LOAD_THREADS: &str = "load";

/// Sums since the start.
pub(crate) struct ResourceUsage {
    server_cpu: f64,
    load_cpu: f64,
    members_cpu: f64,
    written_bytes: f64,
    sent_to_members: f64,
    received_from_members: f64,
}

impl ResourceUsage {
    pub(crate) fn read(server: &ServerUnderTest, fleet: &SimulatedFleet) -> anyhow::Result<Self> {
        let (received, sent) = fleet.progress.body_bytes();
        Ok(Self {
            server_cpu: server.cpu_seconds()?,
            load_cpu: own_threads_cpu_seconds(LOAD_THREADS)?,
            members_cpu: own_threads_cpu_seconds(MEMBER_THREADS)?,
            written_bytes: server.written_bytes()?,
            sent_to_members: received as f64,
            received_from_members: sent as f64,
        })
    }

    /// The usage since `earlier`.
    pub(crate) fn minus(&self, earlier: &Self) -> Self {
        Self {
            server_cpu: self.server_cpu - earlier.server_cpu,
            load_cpu: self.load_cpu - earlier.load_cpu,
            members_cpu: self.members_cpu - earlier.members_cpu,
            written_bytes: self.written_bytes - earlier.written_bytes,
            sent_to_members: self.sent_to_members - earlier.sent_to_members,
            received_from_members: self.received_from_members - earlier.received_from_members,
        }
    }

    /// Prints each sum divided by the number of objects in members.
    pub(crate) fn record(&self, report: &mut FleetReport, objects: f64, cpu_goal: FleetGoal) {
        let server_cpu = self.server_cpu * 1e6 / objects;
        report.record("server_cpu_per_object", server_cpu, "us", cpu_goal);
        for (name, total, unit) in [
            ("load_cpu_per_object", self.load_cpu * 1e6, "us"),
            ("members_cpu_per_object", self.members_cpu * 1e6, "us"),
            ("written_per_object", self.written_bytes, "B"),
            ("sent_to_members_per_object", self.sent_to_members, "B"),
            (
                "received_from_members_per_object",
                self.received_from_members,
                "B",
            ),
        ] {
            report.record(name, total / objects, unit, FleetGoal::None);
        }
    }
}

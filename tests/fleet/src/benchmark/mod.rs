//! A run of the benchmark: registers the clusters, rolls the load out, changes single templates,
//! restarts the server, and compares the members with the load.

mod staged_rollouts;

use std::time::{Duration, Instant};

use anyhow::ensure;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use harness::process_stat;
use tempfile::TempDir;
use tokio::runtime::Builder;

use crate::arguments::FleetArguments;
use crate::load::objects::{LOAD_ROUND, group_policy, registration, template_with_companions};
use crate::load::{LoadClient, TemplateStatuses, create_load_user};
use crate::members::SimulatedFleet;
use crate::reference_loop::measure_reference_loop;
use crate::report::{FleetGoal, FleetReport};
use crate::resource_usage::{LOAD_THREADS, ResourceUsage};
use crate::server::ServerUnderTest;
use crate::single_changes::SingleChanges;
use crate::sizes::FleetSize;
use crate::verification::FleetContents;

const MIB: f64 = 1024.0 * 1024.0;
const READY_TIMEOUT: Duration = Duration::from_secs(900);
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The token of the members, which accept any.
const MEMBER_TOKEN: &str = "benchmark";

/// How long the server may take until it is idle, how long it is observed then, how many single
/// changes are made, and how long clusters of each stage soak; less in a smoke run.
struct RunLimits {
    idle: Duration,
    observation: Duration,
    changes: usize,
    placements: usize,
    soak_seconds: u64,
}

impl RunLimits {
    fn new(size: &FleetSize) -> Self {
        match size.is_smoke {
            true => Self {
                idle: Duration::from_secs(1),
                observation: Duration::from_millis(500),
                changes: 3,
                placements: 1,
                soak_seconds: 1,
            },
            false => Self {
                idle: Duration::from_secs(180),
                observation: Duration::from_secs(20),
                changes: 100,
                placements: 10,
                soak_seconds: 2,
            },
        }
    }
}

/// The processes and threads of a run; they end in this order.
struct FleetRun {
    size: &'static FleetSize,
    limits: RunLimits,
    report: FleetReport,
    client: LoadClient,
    server: ServerUnderTest,
    fleet: SimulatedFleet,
    _directory: TempDir,
}

/// Measures a size and prints the figures; the report says what was lost.
pub fn run(arguments: &FleetArguments) -> anyhow::Result<FleetReport> {
    // On a thread with the name of the load's threads, because it does a part of their work.
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(LOAD_THREADS.to_owned());
        let running = thread.spawn_scoped(scope, || run_here(arguments))?;
        let result = running.join();
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn run_here(arguments: &FleetArguments) -> anyhow::Result<FleetReport> {
    let size = arguments.size;
    let threads = Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name(LOAD_THREADS)
        .enable_all()
        .build()?;
    let fleet = SimulatedFleet::start(size)?;
    let directory = tempfile::tempdir()?;
    let data = directory.path().join("data");
    let server = ServerUnderTest::start(&arguments.server, &arguments.flags, &data)?;
    let client = threads.block_on(async {
        let user = create_load_user(&server.kubeconfig()).await?;
        LoadClient::connect(&user)
    })?;
    let mut run = FleetRun {
        size,
        limits: RunLimits::new(size),
        report: FleetReport::new(size, measure_reference_loop(size)?),
        client,
        server,
        fleet,
        _directory: directory,
    };
    threads.block_on(run.all_phases(arguments.kill))?;
    Ok(run.report)
}

impl FleetRun {
    async fn all_phases(&mut self, kill: bool) -> anyhow::Result<()> {
        self.register_clusters().await?;
        if self.size.is_staged {
            return self.stage_changes().await;
        }
        self.roll_out(kill).await?;
        self.record_settled_state().await?;
        self.change_single_templates().await?;
        self.restart().await?;
        self.compare_members()
    }

    /// The goal of a figure at one size.
    fn goal_at(&self, size: &str, most: f64) -> FleetGoal {
        match self.size.name == size {
            true => FleetGoal::AtMost(most),
            false => FleetGoal::None,
        }
    }

    async fn register_clusters(&mut self) -> anyhow::Result<()> {
        let (size, fleet) = (self.size, &self.fleet);
        let began = Instant::now();
        let ca = STANDARD.encode(fleet.ca_pem());
        let token = STANDARD.encode(MEMBER_TOKEN);
        let register = |cluster| {
            let endpoint = fleet.endpoint(&size.cluster_name(cluster));
            registration(size, cluster, &endpoint, &ca, &token)
        };
        self.client.create_all(size.clusters, register).await?;
        self.wait_for_clusters().await?;
        let seconds = began.elapsed().as_secs_f64();
        self.server
            .wait_until_idle(size.clusters, self.limits.idle)
            .await?;
        let cores = self.server.measure_cores(self.limits.observation).await?;
        let report = &mut self.report;
        report.record("clusters_ready", seconds, "s", FleetGoal::None);
        let goal = match size.clusters {
            1_000 => FleetGoal::AtMost(0.15),
            _ => FleetGoal::None,
        };
        report.record("heartbeats_cpu", cores, "cores", goal);
        let resident = self.server.resident_bytes()? / MIB;
        report.record("memory_before", resident, "MiB", FleetGoal::None);
        Ok(())
    }

    async fn wait_for_clusters(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            let ready = self.client.count_ready_clusters().await?;
            if ready == self.size.clusters {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "{ready} of {} clusters are ready within {READY_TIMEOUT:?}",
                self.size.clusters
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn roll_out(&mut self, kill: bool) -> anyhow::Result<()> {
        let (size, client) = (self.size, &self.client);
        let progress = &*self.fleet.progress;
        let objects = size.member_objects();
        let timeout = size.rollout_timeout();
        let changes = SingleChanges::new(size, client, progress, "meanwhile");
        changes.create_changed_template().await?;
        if !size.has_own_policies {
            client
                .create_all(size.groups, |group| vec![group_policy(group)])
                .await?;
        }
        let statuses = TemplateStatuses::watch(client, size.clusters_per_group());
        let before = ResourceUsage::read(&self.server, &self.fleet)?;
        let began = Instant::now();
        let accepted = async {
            let create = |template| template_with_companions(size, template);
            client.create_all(size.templates, create).await?;
            Ok(began.elapsed().as_secs_f64())
        };
        let present = progress.wait_for_objects(LOAD_ROUND, objects, timeout);
        let changed = changes.measure_changes(|_| progress.objects(LOAD_ROUND) >= objects);
        let server = &mut self.server;
        let killed = async {
            if kill {
                let half = progress.wait_for_objects(LOAD_ROUND, objects / 2, timeout);
                half.await?;
                server.kill_and_restart()?;
            }
            Ok(())
        };
        let (accepted, present, changed, ()) =
            tokio::try_join!(accepted, present, changed, killed)?;
        let is_back = statuses.wait_for_ready(size.templates, timeout).await?;
        self.server
            .wait_until_idle(size.clusters, self.limits.idle)
            .await?;
        let used = ResourceUsage::read(&self.server, &self.fleet)?.minus(&before);
        let present = present.duration_since(began).as_secs_f64();
        let status = is_back.duration_since(began).as_secs_f64();
        let goal = self.goal_at("1000x100", 180.0);
        let cpu_goal = size
            .cpu_ratio_goal
            .map_or(FleetGoal::None, FleetGoal::RatioAtMost);
        let report = &mut self.report;
        report.record("objects", objects as f64, "", FleetGoal::None);
        report.record("accepted", accepted, "s", FleetGoal::None);
        report.record("present_everywhere", present, "s", goal);
        report.record("status_back", status, "s", FleetGoal::None);
        report.record_latencies("change_meanwhile", changed, FleetGoal::None);
        used.record(report, objects as f64, cpu_goal);
        Ok(())
    }

    async fn record_settled_state(&mut self) -> anyhow::Result<()> {
        let cores = self.server.measure_cores(self.limits.observation).await?;
        let resident = self.server.resident_bytes()? / MIB;
        let peak = self.server.peak_resident_bytes()? / MIB;
        let own = process_stat::resident_bytes(std::process::id())? / MIB;
        let disk = self.server.disk_bytes()?;
        let per_object = disk / self.size.member_objects() as f64;
        let peak_goal = self.goal_at("1000x100", 3.0 * 1024.0);
        let disk_goal = match self.size.name {
            "100000x2" | "1000x100" => FleetGoal::AtMost(2048.0),
            _ => FleetGoal::None,
        };
        let report = &mut self.report;
        report.record("settled_cpu", cores, "cores", FleetGoal::None);
        report.record("memory_settled", resident, "MiB", FleetGoal::None);
        report.record("memory_peak", peak, "MiB", peak_goal);
        report.record("memory_benchmark", own, "MiB", FleetGoal::None);
        report.record("disk", disk / MIB, "MiB", FleetGoal::None);
        report.record("disk_per_object", per_object, "B", disk_goal);
        Ok(())
    }

    async fn change_single_templates(&mut self) -> anyhow::Result<()> {
        let changes =
            SingleChanges::new(self.size, &self.client, &self.fleet.progress, "afterwards");
        let limits = &self.limits;
        let placed = changes.measure_placements(limits.placements).await?;
        let changed = changes.measure_changes(|n| n >= limits.changes).await?;
        let goal = self.goal_at("1000x100", 2_000.0);
        self.report.record_latencies("placement", placed, goal);
        self.report
            .record_latencies("change_afterwards", changed, FleetGoal::None);
        Ok(())
    }

    /// Restarts the server with nothing to do: it may write to no member.
    async fn restart(&mut self) -> anyhow::Result<()> {
        let (clusters, limits) = (self.size.clusters, &self.limits);
        self.server.wait_until_idle(clusters, limits.idle).await?;
        let writes = self.fleet.progress.writes();
        let cpu_before = self.server.cpu_seconds()?;
        let ready = self.server.restart()?;
        let began = Instant::now();
        self.wait_for_clusters().await?;
        self.server.wait_until_idle(clusters, limits.idle).await?;
        let idle = began.elapsed().as_secs_f64();
        let cpu = self.server.cpu_seconds()? - cpu_before;
        tokio::time::sleep(limits.observation).await;
        let written = self.fleet.progress.writes() - writes;
        let resident = self.server.resident_bytes()? / MIB;
        let report = &mut self.report;
        report.record("restart_ready", ready, "s", FleetGoal::AtMost(10.0));
        report.record("restart_idle", idle, "s", FleetGoal::None);
        report.record("restart_cpu", cpu, "s", FleetGoal::None);
        report.record("restart_memory", resident, "MiB", FleetGoal::None);
        report.record_violations("restart_member_writes", written);
        Ok(())
    }

    fn compare_members(&mut self) -> anyhow::Result<()> {
        let contents = FleetContents::read(self.size, &self.fleet)?;
        let rejected = self.fleet.progress.rejected_writes() as f64;
        let report = &mut self.report;
        report.record("rejected_member_writes", rejected, "", FleetGoal::None);
        report.record_violations("missing_objects", contents.missing);
        report.record_violations("unexpected_objects", contents.unexpected);
        report.record_text("members_checksum", &contents.checksum);
        Ok(())
    }
}

//! The cases of Kubernetes' `replica_calculator_test.go` that are not in `calculator_tests`, as tables of
//! text. Its metrics of type External are read here as those of an object, which are computed alike.

use jiff::SignedDuration;

use super::calculator::{MINUTE, input, key, metrics, now, pods, utilization};
use crate::federated_hpa::pod_groups::{
    PodGroups, PodKey, PodMetric, PodMetrics, PodPhase, PodStartPeriods, ReadyCondition, ScaledPod,
    group_pods,
};
use crate::federated_hpa::replica_calculator::PodTarget;

/// The lines of a table: a name, and the columns behind the colon.
fn lines(table: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
    let lines = table.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| {
        let (name, columns) = line.split_once(':').unwrap();
        (name.trim(), columns.split_whitespace().collect())
    })
}

fn number(text: &str) -> i64 {
    text.parse().unwrap()
}

fn numbers(text: &str) -> Vec<i64> {
    text.split(',').map(number).collect()
}

fn count(text: &str) -> i32 {
    text.parse().unwrap()
}

/// Replicas, pods (a letter each, as in `calculator_tests`), their requests, their metrics, the target
/// in percent; the expected replicas, utilization and mean.
const UTILIZATION: &str = "
two unready pods, no change:        3 ruu     1000,1000,1000                400,500,700         30  3 40 400
two hot pods, no change:            3 rhh     1000,1000,1000                400,500,700         30  3 40 400
down, pending pods left out:        5 rpppp   1000,1000,1000,1000,1000      100                 50  1 10 100
down, hot pods left out:            5 rrrhh   1000,1000,1000,1000,1000      100,300,500,250,250 50  2 30 300
down, failed pods left out:         5 rrrrrff 1000,1000,1000,1000,1000,1,1  100,300,500,250,250 50  3 28 280
down, deleted pods left out:        5 rrrrrdd 1000,1000,1000,1000,1000,1,1  100,300,500,250,250 50  3 28 280
unequal requests within tolerance:  3 rrr     900,1000,1100                 1010,1030,1020      100 3 102 1020
one hot, one missing, up:           3 hrr     1000,1000,1000                100,2000            50  4 200 2000
a surplus pod of a rolling update:  2 rrr     1000,1000,1000                100,100             50  2 10 100
";

/// Ten pods that use half of what they request, unequally: the target that is just too far away, and
/// the one that is just near enough.
const TOLERANCE: &str = "
just outside: 56 9
just within:  55 10
";

// proves: FHP-utilization, FHP-unready, FHP-missing
#[test]
fn utilization_is_that_of_kubernetes() {
    for (name, columns) in lines(UTILIZATION) {
        let [
            current,
            states,
            requests,
            values,
            percent,
            replicas,
            utilized,
            usage,
        ] = columns[..]
        else {
            panic!("{name}");
        };
        let mut pods = pods(states, 0);
        for (pod, request) in pods.iter_mut().zip(numbers(requests)) {
            pod.containers[0].requests = [("cpu".to_owned(), request)].into();
        }
        let proposal = input(count(current), &pods)
            .by_pods(utilization(count(percent)), metrics(&numbers(values)));
        let proposal = proposal.unwrap();
        assert_eq!(
            (proposal.replicas, proposal.utilization, proposal.usage),
            (count(replicas), Some(count(utilized)), number(usage)),
            "{name}"
        );
    }
    let requests = [400, 200, 310, 290, 302, 298, 301, 299, 300, 300];
    for (name, columns) in lines(TOLERANCE) {
        let mut pods = pods("rrrrrrrrrr", 0);
        for (pod, request) in pods.iter_mut().zip(requests) {
            pod.containers[0].requests = [("cpu".to_owned(), request)].into();
        }
        let proposal =
            input(10, &pods).by_pods(utilization(count(columns[0])), metrics(&[150; 10]));
        assert_eq!(proposal.unwrap().replicas, count(columns[1]), "{name}");
    }
}

// proves: FHP-average
#[test]
fn an_average_counts_pods_that_start() {
    let pods = pods("huh", 1000);
    let target = PodTarget::Average {
        milli: 15_000,
        resource: "",
    };
    let proposal = input(3, &pods).by_pods(target, metrics(&[50_000, 15_000, 30_000]));
    let proposal = proposal.unwrap();
    assert_eq!((proposal.replicas, proposal.usage), (7, 31_666));
}

/// Replicas, pods, the target and the value; the expected replicas.
const OBJECT_VALUES: &str = "
unready pods do not count, up: 3 uru   10000 50000 5
up:                            1 r     4400  8600  2
unready pods, down:            3 uru   4400  8600  2
down:                          5 rrrrr 20000 12000 3
down, rounded up:              5 rrrrr 14334 8600  3
tolerance above:               3 rrr   20000 20666 3
tolerance below:               3 rrr   8888  8600  3
";

/// Replicas, the target by pod and the value; the expected replicas and the value by pod.
const OBJECT_AVERAGES: &str = "
up:               3 5000 20000 4 6667
up, one more:     3 2150 8600  4 2867
down:             5 2000 6000  3 1200
down, rounded up: 5 2867 8600  3 1720
tolerance above:  4 5000 20166 4 5042
tolerance below:  3 2900 8600  3 2867
";

// proves: FHP-object
#[test]
fn metrics_of_objects_are_those_of_kubernetes() {
    for (name, columns) in lines(OBJECT_VALUES) {
        let pods = pods(columns[1], 1000);
        let proposal = input(count(columns[0]), &pods)
            .by_object_value(number(columns[2]), number(columns[3]))
            .unwrap();
        let expected = (count(columns[4]), number(columns[3]));
        assert_eq!((proposal.replicas, proposal.usage), expected, "{name}");
    }
    for (name, columns) in lines(OBJECT_AVERAGES) {
        let proposal =
            input(count(columns[0]), &[]).by_object_average(number(columns[1]), number(columns[2]));
        let expected = (count(columns[3]), number(columns[4]));
        assert_eq!((proposal.replicas, proposal.usage), expected, "{name}");
    }
}

/// The resource; seconds since the start, readiness and seconds since its change; seconds since the
/// metric and its window; the expected group. `-`: it has none.
const GROUPS: &str = "
memory of any pod:                             memory -   - -   0 60    ready
cpu, without a condition:                      cpu    0   - -   9999 0  unready
cpu, measured since it is ready:               cpu    60  T 30  0 30    ready
cpu, measured from before it was ready:        cpu    60  T 30  0 60    unready
cpu, never ready:                              cpu    600 F 594 9999 0  unready
cpu, ready, an old metric, after the start:    cpu    180 T 180 120 60  ready
cpu, no longer ready, after the start:         cpu    600 F 540 9999 0  ready
cpu, unready since the end of the first delay: cpu    600 F 590 9999 0  ready
without a metric:                              cpu    180 - -   - -     missing
";

fn seconds_ago(text: &str) -> jiff::Timestamp {
    now() - SignedDuration::from_secs(number(text))
}

// proves: FHP-unready, FHP-missing
#[test]
fn pods_are_grouped_by_what_their_metrics_are_worth() {
    let periods = PodStartPeriods {
        cpu_initialization: MINUTE * 2,
        initial_readiness_delay: SignedDuration::from_secs(10),
    };
    let mut all = (Vec::new(), PodMetrics::new());
    for (i, (name, columns)) in lines(GROUPS).enumerate() {
        let [
            resource,
            started,
            ready,
            changed,
            measured,
            window,
            expected,
        ] = columns[..]
        else {
            panic!("{name}");
        };
        let pod = ScaledPod {
            phase: PodPhase::Other,
            start_time: (started != "-").then(|| seconds_ago(started)),
            ready: (ready != "-").then(|| ReadyCondition {
                is_true: ready == "T",
                is_false: ready == "F",
                last_transition: seconds_ago(changed),
            }),
            ..pods("r", 1000).remove(0)
        };
        let pod = ScaledPod { key: key(i), ..pod };
        let metric = (measured != "-").then(|| PodMetric {
            value: 1,
            timestamp: seconds_ago(measured),
            window: SignedDuration::from_secs(number(window)),
        });
        let metrics: PodMetrics = metric.map(|metric| (key(i), metric)).into_iter().collect();
        let is_cpu = resource == "cpu";
        let groups = group_pods(std::slice::from_ref(&pod), &metrics, is_cpu, periods, now());
        assert_eq!(groups, group_of(expected, key(i)), "{name}");
        if is_cpu {
            all.0.push(pod);
            all.1.extend(metrics);
        }
    }
    assert_eq!(
        group_pods(&[], &all.1, true, periods, now()),
        PodGroups::default()
    );
    let together = group_pods(&all.0, &all.1, true, periods, now());
    let sizes = (
        together.ready,
        together.unready.len(),
        together.missing.len(),
    );
    assert_eq!(sizes, (4, 3, 1));
    let pending = pods("p", 1000);
    let groups = group_pods(&pending, &PodMetrics::new(), true, periods, now());
    assert_eq!(groups, group_of("unready", key(0)));
}

fn group_of(group: &str, key: PodKey) -> PodGroups {
    let mut groups = PodGroups::default();
    match group {
        "ready" => groups.ready = 1,
        "unready" => groups.unready.push(key),
        _ => groups.missing.push(key),
    }
    groups
}

//! The flags of Karmada's components, as their Deployments have them, and the flags of Flotilla
//! that say the same.

use machinery::bounded_text::truncated;
use serde_json::Value;

/// The flags of a component that are compared; a Deployment is input of others.
const MAX_FLAGS: usize = 200;
/// The bytes of a value that are shown.
const MAX_SHOWN_BYTES: usize = 200;
/// The start of the names of Karmada's programs.
const PROGRAM_PREFIX: &str = "karmada-";

/// The flags that `flotilla serve` has with the same name and meaning, and its default.
pub const SAME_FLAGS: [(&str, &str); 42] = [
    ("allow-no-execute-taint-policy", "false"),
    ("cluster-api-context", ""),
    ("cluster-api-kubeconfig", ""),
    ("cluster-failure-threshold", "30s"),
    ("cluster-monitor-grace-period", "40s"),
    ("cluster-monitor-period", "5s"),
    ("cluster-startup-grace-period", "60s"),
    ("cluster-status-update-frequency", "10s"),
    ("cluster-success-threshold", "30s"),
    ("controllers", "*"),
    ("descheduling-interval", "2m"),
    ("disable-scheduler-estimator-in-pull-mode", "false"),
    ("enable-empty-workload-propagation", "false"),
    ("enable-no-execute-taint-eviction", "false"),
    ("enable-scheduler-estimator", "false"),
    ("enable-taint-manager", "true"),
    ("feature-gates", ""),
    ("federated-resource-quota-sync-period", "5m"),
    ("graceful-eviction-timeout", "10m"),
    ("horizontal-pod-autoscaler-cpu-initialization-period", "5m"),
    ("horizontal-pod-autoscaler-downscale-stabilization", "5m"),
    ("horizontal-pod-autoscaler-initial-readiness-delay", "30s"),
    ("horizontal-pod-autoscaler-sync-period", "15s"),
    ("horizontal-pod-autoscaler-tolerance", "0.1"),
    ("insecure-skip-estimator-verify", "false"),
    ("no-execute-taint-eviction-purge-mode", "Gracefully"),
    ("plugins", "*"),
    ("resource-eviction-rate", "0.5"),
    ("scheduler-estimator-ca-file", ""),
    ("scheduler-estimator-cert-file", ""),
    ("scheduler-estimator-key-file", ""),
    ("scheduler-estimator-port", "10352"),
    ("scheduler-estimator-service-namespace", "karmada-system"),
    (
        "scheduler-estimator-service-prefix",
        "karmada-scheduler-estimator",
    ),
    ("scheduler-estimator-timeout", "3s"),
    ("scheduler-name", "default-scheduler"),
    ("skipped-propagating-apis", ""),
    ("skipped-propagating-namespaces", "kube-.*"),
    ("unschedulable-threshold", "5m"),
    ("audit-policy-file", ""),
    ("audit-webhook-config-file", ""),
    ("tracing-config-file", ""),
];

/// The starts of names of flags by which a process finds its peers, listens, logs and paces itself:
/// they say nothing of what it decides.
const PROCESS_FLAGS: [&str; 33] = [
    "audit-log-",
    "authentication-",
    "authorization-",
    "bind-address",
    "cert-dir",
    "client-ca-file",
    "cluster-api-burst",
    "cluster-api-qps",
    "cluster-cache-sync-timeout",
    "concurrent-",
    "enable-pprof",
    "etcd-",
    "health-probe-bind-address",
    "kube-api-burst",
    "kube-api-qps",
    "kubeconfig",
    "leader-elect",
    "log-",
    "logging-format",
    "master",
    "metrics-bind-address",
    "permit-",
    "private-key-file-name",
    "profiling",
    "rate-limiter-",
    "requestheader-",
    "resync-period",
    "secure-port",
    "tls-",
    "v",
    "vmodule",
    "webhook-",
    "worker-",
];

/// One program of Karmada in a Deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KarmadaProgram {
    pub(super) name: String,
    /// The values by the names of flags, in their order.
    flags: Vec<(String, String)>,
}

impl KarmadaProgram {
    /// The programs that the containers of a Deployment run.
    pub(super) fn of_deployment(deployment: &Value) -> Vec<Self> {
        let containers = deployment["spec"]["template"]["spec"]["containers"].as_array();
        let containers = containers.into_iter().flatten();
        containers.filter_map(Self::of_container).collect()
    }

    fn of_container(container: &Value) -> Option<Self> {
        let strings = |field: &str| {
            let words = container[field].as_array().into_iter().flatten();
            words.filter_map(|word| word.as_str().map(str::to_owned))
        };
        let words: Vec<String> = strings("command").chain(strings("args")).collect();
        let is_program = |word: &&String| !word.starts_with('-');
        let program = words.iter().find(is_program);
        let name = match program {
            Some(program) => program.rsplit('/').next()?.to_owned(),
            // The image decides, whose name is that of the program.
            None => container["name"].as_str()?.to_owned(),
        };
        let name = name.starts_with(PROGRAM_PREFIX).then_some(name)?;
        let mut flags = Vec::new();
        let mut rest = words.iter().peekable();
        while let Some(word) = rest.next() {
            let Some(flag) = word.strip_prefix("--") else {
                continue;
            };
            let (flag, value) = match flag.split_once('=') {
                Some((flag, value)) => (flag, value.to_owned()),
                None => match rest.next_if(|next| !next.starts_with('-')) {
                    Some(value) => (flag, value.clone()),
                    None => (flag, "true".to_owned()),
                },
            };
            flags.push((flag.to_owned(), value));
        }
        flags.truncate(MAX_FLAGS);
        Some(Self { name, flags })
    }

    /// What Flotilla is to be started with, one line for each flag that is not as Flotilla has it
    /// by default.
    pub(super) fn differences(&self) -> Vec<String> {
        let lines = self.flags.iter().filter_map(|(flag, value)| {
            let shown = truncated(value, MAX_SHOWN_BYTES);
            let setting = format!("{} runs with --{flag}={shown}", self.name);
            match SAME_FLAGS.iter().find(|(same, _)| same == flag) {
                Some((_, default)) if is_same_value(value, default) => None,
                Some(_) => Some(format!("{setting}; start Flotilla with --{flag}={shown}")),
                None if is_process_flag(flag) => None,
                None => Some(format!("{setting}, of which Flotilla has no equal")),
            }
        });
        lines.collect()
    }
}

fn is_process_flag(flag: &str) -> bool {
    PROCESS_FLAGS.iter().any(|name| match name.ends_with('-') {
        true => flag.starts_with(name),
        false => flag == *name || (*name == "leader-elect" && flag.starts_with(name)),
    })
}

/// Whether two values of a flag are the same; durations may be written in several ways.
fn is_same_value(value: &str, default: &str) -> bool {
    use machinery::duration::parse;
    value == default
        || matches!((parse(value), parse(default)), (Ok(one), Ok(other)) if one == other)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // proves: TKO-flags
    #[test]
    fn flags_that_differ_are_named_with_their_equals() {
        let container = |command: Value, arguments: Value| {
            json!({"spec": {"template": {"spec": {"containers": [
                {"name": "c", "command": command, "args": arguments}]}}}})
        };
        let command = json!([
            "/bin/karmada-controller-manager",
            "--kubeconfig=/etc/karmada.config",
            "--cluster-status-update-frequency=10s",
            "--cluster-startup-grace-period=1m0s",
            "--feature-gates=MultiClusterService=true",
            "--skipped-propagating-namespaces",
            "kube-.*,lab-.*",
            "--enable-no-execute-taint-eviction",
            "--leader-elect-lease-duration=30s",
            "--v=4",
            "--enable-cluster-resource-modeling=false"
        ]);
        let deployment = container(command, json!(["--controllers=*,hpaScaleTargetMarker"]));
        let programs = KarmadaProgram::of_deployment(&deployment);
        let lines: Vec<String> = programs.iter().flat_map(|p| p.differences()).collect();
        let same = |flag: &str| {
            format!("karmada-controller-manager runs with {flag}; start Flotilla with {flag}")
        };
        assert_eq!(
            lines,
            [
                same("--feature-gates=MultiClusterService=true"),
                same("--skipped-propagating-namespaces=kube-.*,lab-.*"),
                same("--enable-no-execute-taint-eviction=true"),
                "karmada-controller-manager runs with --enable-cluster-resource-modeling=false, of \
                 which Flotilla has no equal"
                    .to_owned(),
                same("--controllers=*,hpaScaleTargetMarker"),
            ]
        );
        let other = container(json!(["/bin/etcd", "--name=a"]), Value::Null);
        assert_eq!(KarmadaProgram::of_deployment(&other), []);
    }
}

//! The order of the crates, their names, the features of shared dependencies, and what
//! lies at the top of the repository.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use crate::root;
use crate::source::read_all;

/// Crates that everybody in this field knows; a crate of ours with such a name would be
/// taken for them.
const WELL_KNOWN_CRATES: [&str; 24] = [
    "api", "async", "axum", "bytes", "cluster", "config", "cron", "etcd", "futures", "http",
    "json", "kube", "kubelet", "log", "metrics", "runtime", "schema", "semver", "server", "status",
    "store", "time", "tracing", "url",
];

/// Crates that no crate is built on but in its tests.
const TEST_SUPPORT: [&str; 4] = [
    "client-fake",
    "controller-testing",
    "fleet-benchmark",
    "harness",
];

#[expect(clippy::disallowed_methods, reason = "what cargo writes is flat")]
fn metadata() -> Value {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    serde_json::from_slice(&out.stdout).unwrap()
}

/// The direct dependencies that each crate may have; the crates below an arrow are included.
fn allowed_dependencies() -> BTreeMap<&'static str, &'static [&'static str]> {
    let controllers: &[&str] = &["client", "quota", "flotilla-runtime"];
    let pipeline: &[&str] = &["members", "interpreter"];
    let propagation: &[&str] = &["controller-context"];
    BTreeMap::from([
        ("machinery", &[] as &[&str]),
        ("openapi", &["machinery"]),
        ("karmada-api", &["openapi"]),
        ("table-printers", &["openapi"]),
        ("quota", &["karmada-api"]),
        ("kubernetes-cel", &["machinery"]),
        ("flotilla-metrics", &[]),
        ("flotilla-tracing", &[]),
        ("flotilla-profiling", &[]),
        ("storage", &["machinery", "flotilla-metrics"]),
        (
            "client",
            &["machinery", "flotilla-metrics", "flotilla-tracing"],
        ),
        // An API server in memory, for tests.
        ("client-fake", &["client"]),
        ("watchcache", &["storage"]),
        ("patch", &["openapi"]),
        ("managed-fields", &["openapi"]),
        ("auth", &["client", "kubernetes-cel"]),
        ("members", &["client", "quota"]),
        ("admission", &["client", "quota", "kubernetes-cel"]),
        (
            "registry",
            &["patch", "managed-fields", "watchcache", "admission", "auth"],
        ),
        (
            "flotilla-http",
            &[
                "registry",
                "members",
                "flotilla-profiling",
                "table-printers",
            ],
        ),
        ("flotilla-runtime", &["client", "karmada-api"]),
        ("interpreter", controllers),
        ("scheduler", controllers),
        ("estimator", &["members", "scheduler"]),
        ("flotilla-kube", controllers),
        ("hollow", controllers),
        ("autoscale", &["flotilla-runtime", "members"]),
        ("services", propagation),
        ("cluster-inventory", &["flotilla-runtime"]),
        // The one controller with a watch cache: of the objects of members.
        ("search", &["watchcache", "members", "flotilla-runtime"]),
        ("controller-context", pipeline),
        // A control plane and members in memory, for tests.
        ("controller-testing", &["controller-context", "client-fake"]),
        // Each beside the others, none above.
        ("detector", &["controller-context", "scheduler"]),
        ("overrides", controllers),
        ("rollout", &["controller-context", "overrides"]),
        ("history", propagation),
        ("binding", &["rollout", "scheduler"]),
        ("execution", propagation),
        ("dependencies", propagation),
        ("policies", &["controller-context", "overrides"]),
        // The context that starts them all.
        (
            "propagation",
            &[
                "detector",
                "binding",
                "execution",
                "dependencies",
                "policies",
                "history",
            ],
        ),
        ("simulation", &["detector", "scheduler", "interpreter"]),
        ("flotilla-status", propagation),
        ("clusters", pipeline),
        // What a server is made of besides the API: the binary wires it.
        ("webhook-client", &["client"]),
        ("server-certificates", &["auth", "storage"]),
        (
            "encryption-configuration",
            &["server-certificates", "karmada-api"],
        ),
        ("admission-configuration", &["registry"]),
        (
            "addons",
            &[
                "flotilla-http",
                "estimator",
                "autoscale",
                "services",
                "cluster-inventory",
            ],
        ),
        ("metrics-adapter", &["addons"]),
        ("simulated-member", &["hollow", "metrics-adapter"]),
        (
            "aggregation",
            &[
                "admission-configuration",
                "webhook-client",
                "server-certificates",
                "metrics-adapter",
            ],
        ),
        ("subresources", &["addons", "search"]),
        // The commands show what the server's own decisions would be, and join members.
        (
            "flotilla-cli",
            &[
                "simulation",
                "overrides",
                "binding",
                "rollout",
                "clusters",
                "table-printers",
                // The record of a takeover, which the server follows.
                "aggregation",
            ],
        ),
        // The pages of a browser about what the commands print.
        ("flotilla-console", &["flotilla-cli"]),
        // Tests alone stand on it.
        ("harness", &["auth", "harness-macros"]),
        ("harness-macros", &[]),
        ("fleet-benchmark", &["harness"]),
        ("structure-tests", &[]),
        ("workspace-tests", &[]),
    ])
}

fn closure<'a>(of: &'a str, arrows: &BTreeMap<&'a str, &'a [&'a str]>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![of];
    while let Some(next) = open.pop() {
        for below in arrows.get(next).copied().unwrap_or_default() {
            if reached.insert(*below) {
                open.push(below);
            }
        }
    }
    reached
}

#[test]
fn crates_know_only_what_lies_below_them() {
    let arrows = allowed_dependencies();
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let own_crates: BTreeSet<&str> = packages
        .iter()
        .filter(|p| p["source"].is_null())
        .map(|p| p["name"].as_str().unwrap())
        .collect();
    let mut wrong = Vec::new();
    for package in packages.iter().filter(|p| p["source"].is_null()) {
        let name = package["name"].as_str().unwrap();
        // The binary stands on all but what tests stand on.
        let allowed = if name == "flotilla" {
            &own_crates - &TEST_SUPPORT.into()
        } else {
            assert!(
                arrows.contains_key(name),
                "the order of the crates does not list {name}"
            );
            closure(name, &arrows)
        };
        for dependency in package["dependencies"].as_array().unwrap() {
            let on = dependency["name"].as_str().unwrap();
            // Tests may reach for a crate's fake; what is built may not.
            if dependency["kind"].is_null() && own_crates.contains(on) && !allowed.contains(on) {
                wrong.push(format!("{name} -> {on}"));
            }
        }
    }
    assert!(wrong.is_empty(), "against the arrows: {wrong:?}");
}

/// An item of a crate has one path: no other crate exports it again. `harness` alone does, for the
/// attribute that its tests bear.
#[test]
fn a_crate_exports_nothing_of_another_crate() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let own_crates: BTreeSet<String> = packages
        .iter()
        .filter(|p| p["source"].is_null())
        .map(|p| p["name"].as_str().unwrap().replace('-', "_"))
        .collect();
    let mut wrong = Vec::new();
    for file in read_all() {
        for import in file.imports.iter().filter(|import| import.is_reexport) {
            let first = &import.path[0];
            let is_module = file.modules.contains_key(first) || file.items.contains(first);
            let is_attribute = first == "harness_macros";
            let in_crate = file.path.contains("/src/");
            if in_crate && !is_module && !is_attribute && own_crates.contains(first) {
                wrong.push(format!("{}: {}", file.path, import.path.join("::")));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Features hold for every crate in the graph at once: one of them is needed, two change the
/// meaning of JSON.
#[test]
fn serde_json_keeps_its_meaning() {
    let metadata = metadata();
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap();
    let json = nodes
        .iter()
        .find(|n| n["id"].as_str().unwrap().contains("#serde_json@"))
        .unwrap();
    let features = json["features"].as_array().unwrap();
    assert!(
        features.iter().any(|feature| feature == "float_roundtrip"),
        "doubles change on the way"
    );
    for feature in features {
        assert!(
            !["preserve_order", "arbitrary_precision"].contains(&feature.as_str().unwrap()),
            "serde_json is built with {feature}"
        );
    }
}

#[test]
fn crates_do_not_bear_names_of_well_known_crates() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let (own_packages, foreign_names): (Vec<&Value>, Vec<&Value>) =
        packages.iter().partition(|p| p["source"].is_null());
    let foreign_names: BTreeSet<&str> = foreign_names
        .iter()
        .filter_map(|p| p["name"].as_str())
        .collect();
    let wrong: Vec<&str> = own_packages
        .iter()
        .filter_map(|p| p["name"].as_str())
        .filter(|n| foreign_names.contains(n) || WELL_KNOWN_CRATES.contains(n))
        .collect();
    assert!(wrong.is_empty(), "names of well-known crates: {wrong:?}");
}

#[test]
fn nothing_else_lies_at_the_top() {
    let out = Command::new("git")
        .arg("ls-files")
        .current_dir(root())
        .output()
        .unwrap();
    let listed = String::from_utf8(out.stdout).unwrap();
    let top: BTreeSet<&str> = listed.lines().filter_map(|l| l.split('/').next()).collect();
    let allowed = [
        "Cargo.toml",
        "Cargo.lock",
        "LICENSE",
        "README.md",
        "apiserver",
        "controllers",
        "manifests",
        "openapi",
        "tests",
    ];
    let stray: Vec<&&str> = top
        .iter()
        .filter(|t| !t.starts_with('.') && !allowed.contains(t))
        .collect();
    assert!(stray.is_empty(), "at the top: {stray:?}");
}

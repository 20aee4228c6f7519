//! `console`: the address that it prints opens its pages, and a real browser shows them, follows
//! changes and approves a stage by clicks.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use harness::browser::Viewport;
use harness::objects::{deployment, policy, resource_selector};
use harness::process::{RunningCommand, lines_of};
use harness::{Browser, tools};
use serde_json::json;

use crate::cli::fixture::{CliFixture, TIMEOUT};

/// The whole reply of a server that closes the connection.
fn get(host: &str, path: &str, cookie: &str) -> String {
    let mut stream = TcpStream::connect(host).unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncookie: {cookie}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

// proves: CON-command, CLI-examples
#[test]
fn the_printed_address_opens_the_pages() {
    let fixture = CliFixture::shared();
    let examples = fixture.examples("console");
    let arguments: Vec<&str> = examples[0].split_whitespace().collect();
    let mut command = fixture.spawn(&arguments);
    let lines = lines_of(&mut command.child);
    let link = lines.recv_timeout(TIMEOUT).unwrap();
    let address = link.strip_prefix("http://").unwrap();
    let (host, token) = address.split_once("/login").unwrap();
    let login = get(host, &format!("/login{token}"), "");
    assert!(login.starts_with("HTTP/1.1 303 "), "{login}");
    let (_, cookie) = login.split_once("set-cookie: ").unwrap();
    let cookie = cookie.split(';').next().unwrap();
    let next = lines.recv_timeout(TIMEOUT).unwrap();
    assert_ne!(next, link);
    let page = get(host, "/workloads", cookie);
    assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
    assert!(get(host, "/workloads", "").starts_with("HTTP/1.1 401 "));
    fixture
        .run("console --listen 0.0.0.0:0")
        .failed_with("the console serves on loopback only");
}

/// A running console, and the address of its pages.
struct RunningConsole {
    _command: RunningCommand,
    origin: String,
    link: String,
}

impl RunningConsole {
    fn start(fixture: &CliFixture, example: &str) -> Self {
        let arguments: Vec<&str> = example.split_whitespace().collect();
        let mut command = fixture.spawn(&arguments);
        let lines = lines_of(&mut command.child);
        let link = lines.recv_timeout(TIMEOUT).unwrap();
        let (origin, _) = link.split_once("/login?token=").unwrap();
        Self {
            origin: origin.to_owned(),
            link: link.clone(),
            _command: command,
        }
    }
}

/// Nothing went wrong in the pages, and nothing else than the console was asked.
fn assert_sound(browser: &Browser, console: &RunningConsole) {
    assert_eq!(browser.errors(), [""; 0]);
    let urls = browser.requested_urls();
    assert!(urls.len() > 5, "{urls:?}");
    let foreign = urls.iter().filter(|url| !url.starts_with(&console.origin));
    let foreign: Vec<&String> = foreign.filter(|url| *url != "about:blank").collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

/// A Deployment in both members, whose second stage needs an approval.
fn create_staged_deployment(fixture: &CliFixture, name: &str) {
    let staged = deployment("default", name, 2);
    let stages = json!([
        {"name": "first", "clusterAffinity": {"clusterNames": ["member1"]}},
        {"name": "everywhere", "gates": {"approval": true}},
    ]);
    fixture.create(
        json!({"apiVersion": "rollout.flotilla.io/v1alpha1", "kind": "RolloutPolicy",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"resourceSelectors": [resource_selector(&staged)], "stages": stages}}),
    );
    fixture.create(staged.clone());
    fixture.create(policy("default", name, &staged, &["member1", "member2"]));
    let status = format!("rollout status deploy/{name}");
    fixture.wait_for_output(&status, |out| out.contains("Completed, 2/2 clusters done"));
    let mut changed = staged;
    changed["spec"]["template"]["metadata"]["annotations"] = json!({"v": "2"});
    let file = format!("{name}.json");
    fixture.write(&file, changed.to_string());
    fixture.run(&format!("apply -f {file}")).succeeded();
    fixture.wait_for_output(&status, |out| out.contains("AwaitingApproval"));
}

// Slow: the browser with its libraries takes 700 MB of disk.
// proves: CON-browser, CON-rollback
#[harness::slow]
#[test]
fn a_browser_shows_the_fleet_and_approves_a_stage() {
    let Some([chromium]) = tools(["chromium"]) else {
        return;
    };
    let fixture = CliFixture::shared();
    create_staged_deployment(&fixture, "shown");
    let examples = fixture.examples("console");
    let console = RunningConsole::start(&fixture, &examples[0]);
    let mut browser = Browser::start(&chromium);
    browser.navigate(&console.link);
    browser.wait_for_text("member1");
    assert_eq!(browser.evaluate("location.pathname + location.search"), "/");
    browser.click("a[href='/?view=table']");
    browser.wait_for("document.querySelectorAll('table.clusters tbody tr').length >= 2");
    browser.click("nav a[href='/workloads']");
    browser.wait_for_text("shown");
    fixture.propagate_deployment("arriving");
    browser.wait_for_text("in arriving");
    browser.click("input[type=search]");
    browser.type_text("default/shown");
    browser.wait_for("document.querySelectorAll('table.workloads tbody tr').length === 1");
    assert_eq!(browser.evaluate("location.search"), "?q=default%2Fshown");
    browser.click("table.workloads a.name");
    browser.wait_for_text("Where it is");
    browser.wait_for_text("Why it is there");
    browser.click("a[href*='/approve?stage=everywhere']");
    browser.wait_for_text("What will happen");
    browser.click("#confirm");
    browser.wait_for_text("The stage is approved.");
    browser.wait_for_text("Completed");
    browser.click("a[href$='/rollback']");
    browser.wait_for("document.querySelector('select[name=revision]') !== null");
    browser.click("form.again button");
    browser.wait_for_text("and keeps its replicas");
    browser.click("#confirm");
    browser.wait_for_text("The template has the content of the revision.");
    browser.wait_for_text("AwaitingApproval");
    browser.click("nav a[href='/health']");
    browser.wait_for_text("api-server");
    assert_sound(&browser, &console);
}

// proves: CON-browser, CON-move, CON-policy-change
#[harness::slow]
#[test]
fn a_browser_moves_a_workload_and_changes_its_policy() {
    let Some([chromium]) = tools(["chromium"]) else {
        return;
    };
    let fixture = CliFixture::shared();
    fixture.propagate_deployment("moving");
    let console = RunningConsole::start(&fixture, "console --listen 127.0.0.1:0");
    let mut browser = Browser::start(&chromium);
    browser.navigate(&console.link);
    browser.click("nav a[href='/workloads']");
    browser.wait_for_text("in moving");
    browser.click("a[href='/workloads/moving/web%2Ddeployment']");
    browser.wait_for_text("Where it is");
    browser.click("a[href$='/move']");
    browser.wait_for("document.querySelector('#plan-move') !== null");
    for (name, cluster) in [("from", "member1"), ("to", "member2")] {
        let select = format!("document.querySelector('select[name={name}]').value = '{cluster}'");
        assert_eq!(browser.evaluate(&select), cluster);
    }
    browser.click("#plan-move");
    browser.wait_for_text("of 1 template would move");
    browser.click("#confirm");
    browser.wait_for_text("The policy is changed");
    browser.wait_for("!document.querySelector('.tree').textContent.includes('member1')");
    browser.click("a[href='/policies/moving/web']");
    browser.wait_for_text("What it has claimed");
    browser.click("a[href$='/change']");
    browser.wait_for("document.querySelector('#manifest') !== null");
    let changed = browser.evaluate(
        "const field = document.querySelector('#manifest'); field.value = field.value.replaceAll('member2', 'member1'); field.value.includes('member1')",
    );
    assert_eq!(changed, true);
    browser.click("#plan-change");
    browser.wait_for_text("of 1 template would move");
    browser.click("#confirm");
    browser.wait_for_text("The policy is applied.");
    browser.wait_for("document.querySelector('table.workloads').textContent.includes('member1')");
    assert_sound(&browser, &console);
}

// proves: CON-browser, CON-pods, CON-logs
#[harness::slow]
#[test]
fn a_browser_follows_the_log_of_a_pod() {
    let Some([chromium]) = tools(["chromium"]) else {
        return;
    };
    let fixture = CliFixture::shared();
    fixture.propagate_deployment("logged");
    let console = RunningConsole::start(&fixture, "console --listen 127.0.0.1:0");
    let mut browser = Browser::start(&chromium);
    browser.navigate(&console.link);
    browser.navigate(&format!(
        "{}/workloads/logged/web%2Ddeployment",
        console.origin
    ));
    browser.click("a[href$='/pods/member1']");
    browser.wait_for_text("Running");
    browser.click("a[href*='/logs/member1?']");
    browser.wait_for("document.querySelector('#log') !== null");
    // The page begins with the end of the log, which the followed log replaces and continues.
    browser.wait_for("document.querySelector('#log').dataset.size > 0");
    let lines = browser.evaluate("document.querySelector('#log').textContent.split('\\n').length");
    browser.wait_for(&format!(
        "document.querySelector('#log').textContent.split('\\n').length > {lines} + 1"
    ));
    browser.click("p.back a");
    browser.wait_for_text("Read again");
    assert_sound(&browser, &console);
}

/// The pages, by the names of their files. The last one shows what has been sampled meanwhile.
const PAGES: [(&str, &str); 25] = [
    ("fleet", "/"),
    ("fleet-table", "/?view=table"),
    ("fleet-map", "/?view=map"),
    ("workloads", "/workloads"),
    ("workload", "/workloads/default/pictured%2Ddeployment"),
    (
        "approve",
        "/workloads/default/pictured%2Ddeployment/approve?stage=everywhere",
    ),
    (
        "scale",
        "/workloads/default/pictured%2Ddeployment/scale?replicas=7",
    ),
    (
        "move",
        "/workloads/default/pictured%2Ddeployment/move?from=member1&to=member2",
    ),
    (
        "rollback",
        "/workloads/default/pictured%2Ddeployment/rollback?revision=1",
    ),
    ("policies", "/policies"),
    ("policy", "/policies/default/pictured"),
    ("policy-change", "/policies/default/pictured/change"),
    (
        "policy-plan",
        "/policies/default/pictured/change?manifest={apiVersion:+policy.karmada.io/v1alpha1,+kind:+PropagationPolicy,+metadata:+{name:+pictured,+namespace:+default},+spec:+{resourceSelectors:+[{apiVersion:+apps/v1,+kind:+Deployment,+name:+pictured}],+placement:+{clusterAffinity:+{clusterNames:+[member2]}}}}",
    ),
    ("override-policies", "/overridepolicies"),
    ("override-policy", "/overridepolicies/default/pictured"),
    ("rollout-policies", "/rolloutpolicies"),
    ("rollout-policy", "/rolloutpolicies/default/pictured"),
    (
        "pods",
        "/workloads/default/pictured%2Ddeployment/pods/member1",
    ),
    ("cluster", "/clusters/member1"),
    ("drain", "/clusters/member1/drain"),
    ("services", "/services"),
    ("autoscalers", "/autoscalers"),
    ("quotas", "/quotas"),
    ("health", "/health"),
    (ACTIVITY, "/activity"),
];
const ACTIVITY: &str = "activity";

/// One object for each list that has none otherwise, without an effect on other tests.
fn create_listed_objects(fixture: &CliFixture) {
    let named = json!({"name": "pictured", "namespace": "default"});
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "none"});
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": 80}}});
    for object in [
        json!({"apiVersion": "networking.karmada.io/v1alpha1", "kind": "MultiClusterService",
            "metadata": named, "spec": {"types": ["CrossCluster"], "providerClusters": [{"name": "member1"}]}}),
        json!({"apiVersion": "autoscaling.karmada.io/v1alpha1", "kind": "FederatedHPA", "metadata": named,
            "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 9, "metrics": [cpu]}}),
        json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy", "metadata": named,
            "spec": {"resourceSelectors": [target], "overrideRules": [
                {"targetCluster": {"clusterNames": ["member1"]}, "overriders": {
                    "imageOverrider": [{"component": "Tag", "operator": "replace", "value": "1.28"}],
                    "plaintext": [{"path": "/spec/replicas", "operator": "replace", "value": 1}]}}]}}),
        json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "FederatedResourceQuota", "metadata": named,
            "spec": {"overall": {"cpu": "1000", "memory": "1Ti"}}}),
    ] {
        fixture.create(object);
    }
}

/// The path of the log of the first pod in the first member.
fn log_of_a_pod(browser: &mut Browser, console: &RunningConsole) -> String {
    let pods = "/workloads/default/pictured%2Ddeployment/pods/member1";
    browser.navigate(&format!("{}{pods}", console.origin));
    let link = "document.querySelector('td a[href*=\"/logs/\"]')";
    browser.wait_for(&format!("{link} !== null"));
    let path = browser.evaluate(&format!("{link}.getAttribute('href')"));
    path.as_str().unwrap().to_owned()
}

// proves: CON-pictures
#[harness::slow]
#[test]
fn every_page_is_pictured_light_and_dark_wide_and_narrow() {
    let Some([chromium]) = tools(["chromium"]) else {
        return;
    };
    let fixture = CliFixture::shared();
    create_staged_deployment(&fixture, "pictured");
    create_listed_objects(&fixture);
    let console = RunningConsole::start(&fixture, "console --listen 127.0.0.1:0");
    let mut browser = Browser::start(&chromium);
    browser.navigate(&console.link);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("console");
    std::fs::create_dir_all(&folder).unwrap();
    let log = log_of_a_pod(&mut browser, &console);
    let pages = PAGES.into_iter().chain([("log", log.as_str())]);
    for width in [1280, 390] {
        for is_dark in [false, true] {
            browser.set_viewport(Viewport { width, is_dark });
            for (name, path) in pages.clone() {
                browser.navigate(&format!("{}{path}", console.origin));
                browser.wait_for("document.querySelector('h1') !== null");
                if name == ACTIVITY {
                    browser.wait_for("document.querySelectorAll('polyline').length >= 3");
                }
                let scheme = if is_dark { "dark" } else { "light" };
                browser.screenshot(&folder.join(format!("{name}-{width}-{scheme}.png")));
                let overflow =
                    browser.evaluate("document.documentElement.scrollWidth - innerWidth");
                assert_eq!(overflow, 0, "{name} is wider than {width}");
            }
        }
    }
    assert_sound(&browser, &console);
}

//! `console --external-url`: one console serves users with different rights, over TLS, and has no
//! rights itself.

use auth::pki::Pki;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use harness::objects::SECRETS;
use harness::process::{RunningCommand, lines_of};
use harness::raw_http::{RawHttpRequest, RawHttpResponse, TestTlsClientConfig};
use harness::{Browser, tools};
use serde_json::json;

use crate::cli::fixture::{CliFixture, TIMEOUT};

const HOST: &str = "console.example.com";
const ORIGIN: &str = "https://console.example.com";

/// A console for many users in front of the shared control plane.
struct UsersConsole {
    address: String,
    client: TestTlsClientConfig,
    _command: RunningCommand,
    _dir: tempfile::TempDir,
}

impl UsersConsole {
    /// Starts the example of the help, with the addresses of this test.
    fn start(fixture: &CliFixture) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let now = jiff::Timestamp::now();
        let pki = Pki::open(&dir.path().join("pki"), &[HOST.to_owned()], now).unwrap();
        let kubeconfig = std::fs::read_to_string(fixture.dir().join("kubeconfig")).unwrap();
        let kubeconfig = machinery::yaml::from_str(&kubeconfig).unwrap();
        let cluster = &kubeconfig["clusters"][0]["cluster"];
        let authority = cluster["certificate-authority-data"].as_str().unwrap();
        let authority = String::from_utf8(STANDARD.decode(authority).unwrap()).unwrap();
        for (file, content) in [
            ("ca.crt", &authority),
            ("tls.crt", &pki.serving.certificate_pem),
            ("tls.key", &pki.serving.key_pem),
        ] {
            std::fs::write(dir.path().join(file), content).unwrap();
        }
        let examples = fixture.examples("console");
        let example = examples.iter().find(|line| line.contains(ORIGIN)).unwrap();
        let example = example.replace("0.0.0.0:8443", "127.0.0.1:0");
        let server = cluster["server"].as_str().unwrap();
        let example = example.replace("https://plane.example.com:6443", server);
        let arguments: Vec<&str> = example.split_whitespace().collect();
        let mut command = fixture.command(&arguments);
        command.current_dir(dir.path());
        let mut command = RunningCommand::start(&command);
        let ready = lines_of(&mut command.child).recv_timeout(TIMEOUT).unwrap();
        let address = ready.strip_prefix("ready https://").unwrap();
        let (address, rest) = address.split_once(' ').unwrap();
        assert_eq!(rest, "external-url=https://console.example.com");
        Self {
            address: address.to_owned(),
            client: TestTlsClientConfig::new(&pki.ca_pem, None),
            _command: command,
            _dir: dir,
        }
    }

    fn request(&self, method: &'static str, path: &str) -> RawHttpRequest<'_> {
        RawHttpRequest::new(&self.address, &self.client, method, path)
            .server_name(HOST)
            .host(HOST)
    }

    fn get(&self, path: &str, header: (&str, &str)) -> RawHttpResponse {
        self.request("GET", path).header(header.0, header.1).send()
    }

    fn login(&self, token: &str) -> RawHttpResponse {
        let form = "application/x-www-form-urlencoded";
        self.request("POST", "/login")
            .header("Origin", ORIGIN)
            .body(form, format!("bearer-token={token}"))
            .send()
    }

    /// The cookie of a new session.
    fn cookie(&self, token: &str) -> String {
        let response = self.login(token);
        assert_eq!(response.code, 303, "{}", response.text());
        let cookie = response.header("set-cookie");
        cookie.split(';').next().unwrap().to_owned()
    }

    /// Loads a page until a text is on it, or until it has another status.
    fn wait_for(&self, path: &str, header: (&str, &str), status: u16, text: &str) -> String {
        let end = std::time::Instant::now() + TIMEOUT;
        loop {
            let page = self.get(path, header);
            if page.code == status && page.text().contains(text) {
                return page.text();
            }
            let in_time = std::time::Instant::now() < end;
            assert!(
                in_time,
                "no {text} on {path}: {} {}",
                page.code,
                page.text()
            );
            harness::sleep_blocking(std::time::Duration::from_millis(50));
        }
    }
}

/// An account of the namespace `default` that may list and watch one resource, in all namespaces or in
/// its own by the kind of the binding, and its token.
fn create_reader(
    fixture: &CliFixture,
    name: &str,
    (group, resource): (&str, &str),
    binding: &str,
) -> String {
    let mut of_binding = json!({"name": name});
    if binding == "RoleBinding" {
        of_binding["namespace"] = "default".into();
    }
    let metadata = json!({"namespace": "default", "name": name});
    let mut of_secret = metadata.clone();
    of_secret["annotations"] = json!({"kubernetes.io/service-account.name": name});
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token", "metadata": of_secret}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
            "rules": [{"verbs": ["list", "watch"], "apiGroups": [group], "resources": [resource]}]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": binding, "metadata": of_binding,
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}}),
    ] {
        fixture.create(object);
    }
    let secret = format!("get secret {name} -n default");
    fixture.wait_for_output(&format!("{secret} -o json"), |out| {
        out.contains("\"token\"")
    });
    let secret = fixture.json(&secret);
    let token = secret["data"]["token"].as_str().unwrap();
    String::from_utf8(STANDARD.decode(token).unwrap()).unwrap()
}

// proves: CON-users, CON-bearer-header, CON-login, CON-token-ends, CON-external-url, CON-server-tls, CON-namespace, CLI-examples
#[test]
fn users_with_different_rights_share_a_console() {
    let fixture = CliFixture::shared();
    let reader = |name, resource, binding| create_reader(&fixture, name, resource, binding);
    let bindings = ("work.karmada.io", "resourcebindings");
    let own = reader("console-own", bindings, "RoleBinding");
    let bindings = reader("console-bindings", bindings, "ClusterRoleBinding");
    let clusters = ("cluster.karmada.io", "clusters");
    let clusters = reader("console-clusters", clusters, "ClusterRoleBinding");
    let console = UsersConsole::start(&fixture);
    assert_eq!(console.get("/", ("Accept", "*/*")).code, 401);
    assert_eq!(console.login("e30.e30.e30").code, 401);
    let cookie = console.cookie(&clusters);
    let session = ("Cookie", cookie.as_str());
    let bearer = format!("Bearer {bindings}");
    let header = ("Authorization", bearer.as_str());
    let fleet = console.wait_for("/", session, 200, "member1");
    assert!(fleet.contains("system:serviceaccount:default:console-clusters"));
    let workloads = console.wait_for("/workloads", header, 200, "default/web");
    assert!(workloads.contains("system:serviceaccount:default:console-bindings"));
    let limit = "only resourcebindings of the namespace default are shown";
    assert!(!workloads.contains(limit));
    let own = format!("Bearer {own}");
    let limited = console.wait_for("/workloads", ("Authorization", &own), 200, limit);
    assert!(limited.contains("default/web"), "{limited}");
    let refusal = "clusters cannot be listed";
    let foreign = console.wait_for("/", header, 200, refusal);
    assert!(!foreign.contains("member1"), "{foreign}");
    let refusal = "resourcebindings cannot be listed";
    let foreign = console.wait_for("/workloads", session, 200, refusal);
    assert!(!foreign.contains("default/web"), "{foreign}");
    for page in [&fleet, &workloads, &foreign] {
        assert!(!page.contains(&clusters) && !page.contains(&bindings));
    }
    // Nobody is impersonated because a browser says so.
    let request = console.request("GET", "/").header(header.0, header.1);
    let request = request.header("Impersonate-User", "system:admin");
    let request = request.header("Impersonate-Group", "system:masters");
    let page = request.header("X-Remote-User", "system:admin").send();
    assert!(
        page.code == 200 && !page.text().contains("member1"),
        "{}",
        page.text()
    );
    let elsewhere = console.request("GET", "/").host("evil.example");
    assert_eq!(elsewhere.header("Cookie", &cookie).send().code, 421);
    // With its Secret the token is revoked.
    fixture.delete(&SECRETS, "default", "console-clusters");
    let page = console.wait_for("/", session, 401, "The session has ended");
    assert!(!page.contains("member1"), "{page}");
    assert_eq!(console.login(&clusters).code, 401);
    assert_eq!(console.get("/workloads", header).code, 200);
}

// proves: CON-server-tls
#[test]
fn tokens_are_not_sent_in_the_clear_unless_told() {
    let fixture = CliFixture::shared();
    let users = "console --external-url https://console.example.com --server";
    for (flags, error) in [
        (
            "https://plane:6443",
            "requires --tls-cert-file and --tls-private-key-file, or --insecure-http",
        ),
        (
            "http://plane:8080 --insecure-http",
            "--server must be https://",
        ),
        (
            "https://plane:6443 --insecure-http --certificate-authority none.crt",
            "none.crt",
        ),
        (
            "https://plane:6443 --tls-cert-file none.crt --tls-private-key-file none.key",
            "none.crt",
        ),
        (
            "https://plane:6443 --insecure-http --kubeconfig kubeconfig",
            "cannot be used with",
        ),
        (
            "https://plane:6443 --external-url http://console.example.com",
            "cannot be used multiple times",
        ),
    ] {
        fixture.run(&format!("{users} {flags}")).failed_with(error);
    }
    let own_user = "console --external-url http://console.example.com --server https://plane:6443";
    fixture
        .run(own_user)
        .failed_with("expected https://HOST or https://HOST:PORT");
    let alone = fixture.run("console --insecure-http");
    alone.failed_with("--external-url");
    let command = format!("{users} https://plane:6443 --insecure-http");
    let arguments: Vec<&str> = command.split_whitespace().collect();
    let mut console = fixture.spawn(&arguments);
    let ready = lines_of(&mut console.child).recv_timeout(TIMEOUT).unwrap();
    assert!(ready.starts_with("ready http://127.0.0.1:"), "{ready}");
}

/// Logs in by the form.
fn log_in(browser: &mut Browser, token: &str) {
    browser.wait_for("document.querySelector('#bearer-token') !== null");
    browser.click("#bearer-token");
    browser.type_text(token);
    browser.click("form.login button");
    browser.wait_for_text("member1");
}

// Slow: the browser with its libraries takes 700 MB of disk.
// proves: CON-browser, CON-login, CON-logout, CON-token-ends, CON-external-url
#[harness::slow]
#[test]
fn a_browser_logs_in_and_out_and_is_led_in_from_elsewhere() {
    let Some([chromium]) = tools(["chromium"]) else {
        return;
    };
    let fixture = CliFixture::shared();
    let clusters = ("cluster.karmada.io", "clusters");
    let token = create_reader(&fixture, "console-browser", clusters, "ClusterRoleBinding");
    let console = UsersConsole::start(&fixture);
    let mut browser = Browser::start_at(&chromium, &console.address);
    browser.navigate(ORIGIN);
    log_in(&mut browser, &token);
    assert_eq!(browser.evaluate("location.pathname + location.search"), "/");
    // A page of another site, which is none of the console's, has a link to a page of the console.
    browser.navigate("https://elsewhere.example/");
    browser.wait_for_text("this name is not one of the console");
    browser.evaluate(&format!("location.href = '{ORIGIN}/clusters/member1'"));
    browser.wait_for_text("member1");
    assert_eq!(browser.evaluate("location.href"), format!("{ORIGIN}/"));
    browser.click(".logout button");
    log_in(&mut browser, &token);
    browser.wait_for_text("Live");
    // The open page says by itself that the token was revoked.
    fixture.delete(&SECRETS, "default", "console-browser");
    browser.wait_for_text("The session has ended");
    assert_eq!(
        browser.evaluate("document.body.textContent.includes('member1')"),
        false
    );
    let urls = browser.requested_urls();
    assert!(urls.iter().all(|url| !url.contains(&token)), "{urls:?}");
}

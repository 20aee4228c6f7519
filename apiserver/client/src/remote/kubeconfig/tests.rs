//! Tests of loading kubeconfig files.

use super::*;

const KUBECONFIG: &str = r#"
apiVersion: v1
kind: Config
current-context: a
clusters:
- {name: c, cluster: {server: "https://h:6443/prefix", certificate-authority-data: Y2E=, tls-server-name: n, proxy-url: "http://u:pw@p:3128"}}
- {name: skip, cluster: {server: h, insecure-skip-tls-verify: true}}
- {name: both, cluster: {server: h, insecure-skip-tls-verify: true, certificate-authority-data: Y2E=}}
- {name: socks, cluster: {server: h, proxy-url: "ftp://u:hidden@p:1"}}
- {name: empty, cluster: {}}
users:
- {name: cert, user: {client-certificate: cert.pem, client-key-data: a2V5}}
- {name: token, user: {token: sesame, tokenFile: t, as: boss, as-groups: [g], as-user-extra: {k: [v]}}}
- {name: basic, user: {username: u, password: sesame}}
- {name: half, user: {client-key-data: a2V5}}
- {name: lost, user: {client-certificate: none.pem, client-key-data: a2V5}}
- {name: garbled, user: {client-certificate-data: "!", client-key-data: a2V5}}
- {name: old, user: {auth-provider: {name: gcp, config: {access-token: sesame}}}}
- name: exec
  user:
    exec: {apiVersion: client.authentication.k8s.io/v1, command: ./bin/get, args: [x], env: [{name: K, value: sesame}], installHint: get it, provideClusterInfo: true, interactiveMode: Never}
- {name: alpha, user: {exec: {apiVersion: client.authentication.k8s.io/v1alpha1, command: x}}}
- {name: asonly, user: {as-groups: [g]}}
contexts:
- {name: a, context: {cluster: c, user: cert, namespace: ns}}
- {name: token, context: {cluster: skip, user: token}}
- {name: basic, context: {cluster: c, user: basic}}
- {name: exec, context: {cluster: c, user: exec}}
- {name: anonymous, context: {cluster: c, user: ""}}
- {name: both, context: {cluster: both, user: token}}
- {name: socks, context: {cluster: socks, user: token}}
- {name: empty, context: {cluster: empty, user: token}}
- {name: nocluster, context: {cluster: x, user: token}}
- {name: nouser, context: {cluster: c, user: x}}
- {name: half, context: {cluster: c, user: half}}
- {name: lost, context: {cluster: c, user: lost}}
- {name: garbled, context: {cluster: c, user: garbled}}
- {name: old, context: {cluster: c, user: old}}
- {name: alpha, context: {cluster: c, user: alpha}}
- {name: asonly, context: {cluster: c, user: asonly}}
"#;

struct KubeconfigDir(tempfile::TempDir);

impl KubeconfigDir {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        files.put("config", KUBECONFIG);
        files.put("cert.pem", "cert");
        files
    }

    fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn load(&self, context: &str) -> Result<RestConfig, RestConfigError> {
        let mut source = KubeconfigLoadingRules::from_file(self.0.path().join("config"));
        source.context = Some(context.to_owned()).filter(|c| !c.is_empty());
        source.load()
    }
}

#[test]
fn credentials_of_every_kind_are_read() {
    let files = KubeconfigDir::new();
    let a = files.load("").unwrap();
    assert_eq!(a.server.to_string(), "https://h:6443/prefix");
    assert_eq!(
        (
            a.ca.as_deref(),
            a.namespace.as_str(),
            a.tls_server_name.as_deref()
        ),
        (Some(&b"ca"[..]), "ns", Some("n"))
    );
    let identity = a.auth.client_certificate.unwrap();
    assert_eq!(
        (identity.certificate.as_slice(), identity.key.0.as_slice()),
        (&b"cert"[..], &b"key"[..])
    );

    let token = files.load("token").unwrap();
    assert!(token.insecure_skip_tls_verify && token.server.scheme_str() == Some("https"));
    assert_eq!(token.auth.token, Some(Redacted("sesame".to_owned())));
    assert_eq!(token.auth.token_file, Some(files.0.path().join("t")));
    let boss = token.impersonate.unwrap();
    assert_eq!(
        (boss.user.as_str(), boss.groups.as_slice()),
        ("boss", &["g".to_owned()][..])
    );
    assert_eq!(boss.extra["k"], ["v"]);

    assert_eq!(
        files.load("basic").unwrap().auth.basic,
        Some(("u".into(), Redacted("sesame".into())))
    );
    let exec = files.load("exec").unwrap().auth.exec.unwrap();
    assert_eq!(exec.command, files.0.path().join("./bin/get"));
    assert_eq!(exec.env.0, [("K".to_owned(), "sesame".to_owned())]);
    assert!(exec.provide_cluster_info && exec.install_hint == "get it");
    let anonymous = files.load("anonymous").unwrap();
    assert!(anonymous.auth.token.is_none() && anonymous.namespace == "default");
    for context in ["token", "basic", "exec"] {
        let shown = format!("{:?}", files.load(context).unwrap().auth);
        assert!(!shown.contains("sesame"), "{shown}");
    }
}

#[test]
fn errors_name_the_file_and_the_entry_and_no_secret() {
    let files = KubeconfigDir::new();
    let table = [
        (
            "nope",
            "context \"nope\" not found (have a, alpha, anonymous, asonly, basic, both, empty, exec, garbled, half, …)",
        ),
        (
            "nocluster",
            "context \"nocluster\": cluster \"x\" not found (have both, c, empty, skip, socks)",
        ),
        (
            "nouser",
            "context \"nouser\": user \"x\" not found (have alpha, asonly, basic, cert, exec, garbled, half, lost, old, token)",
        ),
        (
            "both",
            "cluster \"both\": specifying a root certificates file with the insecure flag is not allowed",
        ),
        (
            "socks",
            "cluster \"socks\": proxy-url has the scheme \"ftp\"; http, https and socks5 are supported",
        ),
        ("empty", "cluster \"empty\": no server"),
        (
            "half",
            "user \"half\": client-key without client-certificate",
        ),
        (
            "garbled",
            "user \"garbled\": client-certificate-data is not base64",
        ),
        (
            "old",
            "user \"old\": auth-provider \"gcp\" is no longer supported by Kubernetes; use an exec plugin",
        ),
        (
            "alpha",
            "user \"alpha\": exec: apiVersion \"client.authentication.k8s.io/v1alpha1\" is not client.authentication.k8s.io/v1 or v1beta1",
        ),
        (
            "asonly",
            "user \"asonly\": requesting uid, groups or user-extra without impersonating a user",
        ),
    ];
    let path = files.0.path().join("config");
    for (context, expected) in table {
        let error = files.load(context).unwrap_err().to_string();
        assert_eq!(error, format!("kubeconfig {}: {expected}", path.display()));
    }
    let lost = files.load("lost").unwrap_err().to_string();
    assert!(lost.contains("none.pem: No such file"), "{lost}");
    for broken in [
        "users: [{name: a, user: {token: [sesame]}}]",
        "{token: sesame",
        "- sesame",
    ] {
        files.put("config", broken);
        let error = files.load("").unwrap_err().to_string();
        assert!(
            error.contains("not a kubeconfig") && !error.contains("sesame"),
            "{error}"
        );
    }
    files.put("config", "");
    let error = files.load("").unwrap_err().to_string();
    assert!(
        error.ends_with("no current-context; name one of none"),
        "{error}"
    );
}

#[test]
fn json_is_read_as_yaml() {
    let password = "a\"b\\c\n#: '\u{7}\u{1f600}";
    let config = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "c", "cluster": {"server": "https://h"}}],
        "users": [{"name": "u", "user": {"username": "u", "password": password}}],
        "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
    });
    let indented = serde_json::to_string_pretty(&config).unwrap();
    for text in [config.to_string(), indented.replace("  ", "\t"), indented] {
        let read = KubeconfigLoadingRules::parse(&text).unwrap();
        let basic = Some(("u".into(), Redacted(password.to_owned())));
        assert_eq!(read.auth.basic, basic, "{text}");
    }
}

#[test]
fn the_first_of_several_files_wins() {
    let files = KubeconfigDir::new();
    let first = files.put("first", "contexts: [{name: m, context: {cluster: c, user: token}}]\ncurrent-context: m\nclusters: [{name: c, cluster: {server: first}}]\n");
    let list = std::env::join_paths([
        first.as_path(),
        Path::new("/nowhere/at/all"),
        &files.0.path().join("config"),
    ])
    .unwrap();
    let mut source = KubeconfigLoadingRules {
        kubeconfig_variable: Some(list.into_string().unwrap()),
        ..KubeconfigLoadingRules::default()
    };
    let config = source.load().unwrap();
    assert_eq!(
        (config.server.host(), config.auth.token.is_some()),
        (Some("first"), true)
    );
    source.kubeconfig_variable = Some("/nowhere/at/all".into());
    assert_eq!(
        source.load().unwrap_err().to_string(),
        "kubeconfig not found at /nowhere/at/all"
    );
    let missing = KubeconfigLoadingRules::from_file("/nowhere/at/all")
        .load()
        .unwrap_err()
        .to_string();
    assert_eq!(missing, "kubeconfig /nowhere/at/all: no such file");
    assert_eq!(
        KubeconfigLoadingRules::default()
            .load()
            .unwrap_err()
            .to_string(),
        "no kubeconfig specified"
    );
}

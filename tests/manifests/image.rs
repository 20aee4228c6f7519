//! The image and the archive of a release, built from the binary under test: equal bytes from equal
//! input, complete, and the image runs as its unprivileged user on a read-only file system.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::objects::NAMESPACES;
use harness::process::{run_build, run_to_exit};
use harness::{ApiServerClient, ServerProcess, tools};
use serde_json::{Value, json};

use crate::manifests::install::run_command;
use crate::manifests::{BINARY, root};

/// What the release may take on a node.
const IMAGE_LIMIT_BYTES: u64 = 90_000_000;
/// All but the binary: C library, authorities, time zones.
const BASE_LIMIT_BYTES: u64 = 10_000_000;
/// Runs a program of the image in the file system ROOT, which is read-only but for DATA, as the user
/// and in the environment of its configuration.
const RUN_IN_IMAGE: &str = r#"
set -e
root=$1 data=$2 user=$3
shift 3
mount --bind "$root" "$root"
mkdir -p "$root/proc" "$root/dev"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind "$data" "$root/var/lib/flotilla"
mount -o remount,bind,ro "$root"
exec env -i PATH="$PATH" chroot --userspec="$user" --groups= "$root" "$@"
"#;

/// The files that the script has written for a binary.
struct Artifacts {
    dir: tempfile::TempDir,
    umoci: PathBuf,
}

impl Artifacts {
    /// Builds them from the binary under test, without its symbols.
    async fn build() -> Option<Self> {
        let [umoci, jq] = tools(["umoci", "jq"])?;
        let dir = tempfile::tempdir().unwrap();
        let binary = dir.path().join("flotilla");
        let mut strip = Command::new("strip");
        strip.arg("-o").arg(&binary).arg(BINARY);
        run_command(strip, String::new()).await;
        let artifacts = Self { dir, umoci };
        let mut build = artifacts.build_command(&jq, "out");
        build.arg("--binary").arg(&binary);
        run_command(build, String::new()).await;
        Some(artifacts)
    }

    fn build_command(&self, jq: &Path, output: &str) -> Command {
        build_command(&root(), jq, &self.path(output))
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// The file in the output whose name ends so.
    fn output(&self, ending: &str) -> PathBuf {
        let files = std::fs::read_dir(self.path("out")).unwrap();
        let mut paths = files.map(|file| file.unwrap().path());
        let path = paths.find(|path| path.to_str().unwrap().ends_with(ending));
        path.unwrap()
    }

    fn json(&self, ending: &str) -> Value {
        let text = std::fs::read_to_string(self.output(ending)).unwrap();
        machinery::json::from_str(&text).unwrap()
    }

    async fn unpack_archive(&self) -> PathBuf {
        let dir = self.path("archive");
        unpack(&self.output(".tar.gz"), &dir).await;
        dir
    }

    /// Unpacks the image with umoci into a file system and the configuration of a container.
    async fn unpack_image(&self) -> (PathBuf, Value) {
        unpack(&self.output(".oci.tar"), &self.path("layout")).await;
        let mut command = Command::new(&self.umoci);
        command.args(["unpack", "--image"]);
        let version = env!("CARGO_PKG_VERSION");
        command.arg(format!("{}:{version}", self.path("layout").display()));
        if !is_root() {
            command.arg("--rootless");
        }
        command.arg(self.path("bundle"));
        run_command(command, String::new()).await;
        let config = std::fs::read_to_string(self.path("bundle/config.json")).unwrap();
        let config = machinery::json::from_str(&config).unwrap();
        (self.path("bundle/rootfs"), config)
    }
}

/// The command that builds a checkout.
fn build_command(checkout: &Path, jq: &Path, output: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "PATH=\"$1:$PATH\"; shift; exec \"$@\"", "sh"]);
    command.arg(jq.parent().unwrap());
    command.arg(checkout.join("manifests/image/build"));
    command.arg("--output").arg(output);
    command
}

async fn unpack(archive: &Path, dir: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    let mut command = Command::new("tar");
    command.arg("-xf").arg(archive).arg("-C").arg(dir);
    run_command(command, String::new()).await;
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let user = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    user.is_some_and(|ids| ids.split_whitespace().nth(1) == Some("0"))
}

/// The number of bytes of all files below a directory.
fn size_of(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).unwrap();
    let sizes = entries.map(|entry| {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => size_of(&entry.path()),
            false => entry.metadata().unwrap().len(),
        }
    });
    sizes.sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_binaries_make_equal_artifacts_and_an_image_that_runs_unprivileged() {
    let Some(artifacts) = Artifacts::build().await else {
        return;
    };
    let Some([jq]) = tools(["jq"]) else {
        return;
    };
    let mut second_build = artifacts.build_command(&jq, "again");
    second_build.arg("--binary").arg(artifacts.path("flotilla"));
    run_command(second_build, String::new()).await;
    let sums = std::fs::read_to_string(artifacts.output("SHA256SUMS")).unwrap();
    let second = std::fs::read_to_string(artifacts.path("again/SHA256SUMS")).unwrap();
    assert_eq!(sums, second);
    check_sbom(&artifacts.json(".cdx.json"));
    check_image_names(&artifacts).await;
    check_archive(&artifacts, &sums).await;
    check_image(&artifacts).await;
}

/// The image has what the binary needs, and an unprivileged user.
async fn check_image(artifacts: &Artifacts) {
    let (files, config) = artifacts.unpack_image().await;
    let process = &config["process"];
    assert_eq!(process["user"], json!({"uid": 65532, "gid": 65532}));
    assert_eq!(process["args"], json!(["/usr/bin/flotilla"]));
    let binary = std::fs::metadata(files.join("usr/bin/flotilla"))
        .unwrap()
        .len();
    let base = size_of(&files) - binary;
    assert!(base < BASE_LIMIT_BYTES, "{base}");
    for file in [
        "etc/ssl/certs/ca-certificates.crt",
        "usr/share/zoneinfo/Europe/Berlin",
        "usr/share/doc/flotilla/sbom.cdx.json",
        "usr/share/doc/libc6/copyright",
    ] {
        assert!(files.join(file).exists(), "{file}");
    }
    run_image(artifacts, &files).await;
}

/// Runs the image as its user in a file system of its own, which is read-only.
async fn run_image(artifacts: &Artifacts, files: &Path) {
    if !is_root() {
        return tools::skip_part("root, to run the image in a file system of its own");
    }
    let data = artifacts.path("data");
    std::fs::create_dir(&data).unwrap();
    // The volume of the pod is as open.
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o777)).unwrap();
    let (files, volume) = (files.display().to_string(), data.display().to_string());
    let start = ["--mount", "--propagation", "private", "sh", "-c"];
    let entry = [RUN_IN_IMAGE, "sh", &files, &volume, "65532:65532"];
    let program = ["/usr/bin/flotilla"];
    let command = |arguments: &[&'static str]| -> Vec<String> {
        let words = [&start[..], &entry, &program, arguments].concat();
        words.into_iter().map(str::to_owned).collect()
    };
    let write = command(&["man", "--output-dir", "/man"]);
    let words: Vec<&str> = write.iter().map(String::as_str).collect();
    let (code, output) = run_to_exit("unshare", &words).await;
    assert!(
        output.contains("Read-only file system"),
        "{code:?} {output}"
    );
    let serve = command(&[
        "serve",
        "--data-dir=/var/lib/flotilla/data",
        "--listen=127.0.0.1:0",
    ]);
    let log = artifacts.path("log");
    let started = tokio::task::spawn_blocking(move || {
        let words: Vec<&str> = serve.iter().map(String::as_str).collect();
        ServerProcess::start("unshare", &words, &log).0
    });
    let server = started.await.unwrap();
    let client = ApiServerClient::connect("image", &data.join("data/kubeconfig"));
    assert!(client.get(&NAMESPACES, "", "default").await.is_some());
    tokio::task::spawn_blocking(|| server.stop()).await.unwrap();
}

/// The bill has what the binary is built of, with the hashes of the lock file, and nothing that only
/// tests need.
fn check_sbom(sbom: &Value) {
    assert_eq!(sbom["bomFormat"], "CycloneDX");
    let components = sbom["components"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let by_name: BTreeMap<String, &Value> =
        components.iter().map(|c| (text(&c["name"]), c)).collect();
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let tokio = by_name["tokio"];
    let hash = tokio["hashes"][0]["content"].as_str().unwrap();
    let version = tokio["version"].as_str().unwrap();
    let entry = format!("name = \"tokio\"\nversion = \"{version}\"\n");
    let locked = lock.split("[[package]]\n").find(|p| p.starts_with(&entry));
    assert!(locked.unwrap().contains(hash), "{hash}");
    assert_eq!(tokio["purl"], format!("pkg:cargo/tokio@{version}"));
    for name in ["machinery", "scheduler", "libc6", "ca-certificates"] {
        assert!(by_name.contains_key(name), "{name}");
    }
    for name in ["proptest", "kube", "harness"] {
        assert!(!by_name.contains_key(name), "{name}");
    }
    let references: BTreeSet<String> = components.iter().map(|c| text(&c["bom-ref"])).collect();
    assert_eq!(references.len(), components.len());
    for dependency in sbom["dependencies"].as_array().unwrap() {
        for reference in dependency["dependsOn"].as_array().unwrap() {
            assert!(
                references.contains(reference.as_str().unwrap()),
                "{reference}"
            );
        }
    }
}

/// The names by which containerd and Docker load the image, and its labels.
async fn check_image_names(artifacts: &Artifacts) {
    let layout = artifacts.path("names");
    unpack(&artifacts.output(".oci.tar"), &layout).await;
    let read = |path: &str| -> Value {
        let text = std::fs::read_to_string(layout.join(path)).unwrap();
        machinery::json::from_str(&text).unwrap()
    };
    let version = env!("CARGO_PKG_VERSION");
    let index = read("index.json");
    let annotations = &index["manifests"][0]["annotations"];
    let name = format!("docker.io/library/flotilla:{version}");
    assert_eq!(annotations["io.containerd.image.name"], name);
    let docker = read("manifest.json");
    assert_eq!(
        docker[0]["RepoTags"],
        json!([format!("flotilla:{version}")])
    );
    let config = read(docker[0]["Config"].as_str().unwrap());
    let labels = &config["config"]["Labels"];
    assert_eq!(labels["org.opencontainers.image.version"], version);
    assert!(labels["org.opencontainers.image.revision"].is_string());
}

/// The archive has a manual page for each command, and krew's manifest its hash.
async fn check_archive(artifacts: &Artifacts, sums: &str) {
    let archive = artifacts.unpack_archive().await;
    let name = std::fs::read_dir(&archive).unwrap().next().unwrap();
    let contents = name.unwrap().path();
    for file in [
        "flotilla",
        "LICENSE",
        "completions/flotilla.bash",
        "completions/_flotilla",
        "completions/flotilla.fish",
        "man/man1/flotilla.1",
        "man/man1/flotilla-serve.1",
        "man/man1/flotilla-token-create.1",
    ] {
        assert!(contents.join(file).exists(), "{file}");
    }
    let krew = std::fs::read_to_string(artifacts.output("flotilla.yaml")).unwrap();
    let krew: Value = serde_saphyr::from_str(&krew).unwrap();
    let platform = &krew["spec"]["platforms"][0];
    let (hash, file) = (platform["sha256"].as_str(), platform["uri"].as_str());
    let line = format!("{}  {}\n", hash.unwrap(), file.unwrap());
    assert!(sums.contains(&line), "{line} in {sums}");
    let program = platform["files"][0]["from"].as_str().unwrap();
    assert!(archive.join(program).exists(), "{program}");
}

/// The release, built in a clone: it is small, names its commit, and has no path of the machine, so
/// that another clone makes the same bytes.
#[harness::slow]
#[tokio::test(flavor = "multi_thread")]
async fn the_release_names_its_commit_and_no_path_of_the_machine() {
    let Some([umoci, jq]) = tools(["umoci", "jq"]) else {
        return;
    };
    let artifacts = Artifacts {
        dir: tempfile::tempdir().unwrap(),
        umoci,
    };
    let clone = artifacts.path("clone");
    let mut git = Command::new("git");
    git.args(["clone", "--quiet"]).arg(root()).arg(&clone);
    run_command(git, String::new()).await;
    let mut build = build_command(&clone, &jq, &artifacts.path("out"));
    build.env("CARGO_TARGET_DIR", artifacts.path("target"));
    build.env_remove("CARGO_BUILD_BUILD_DIR");
    let built = tokio::task::spawn_blocking(move || run_build(&build));
    let built = built.await.unwrap();
    let errors = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{errors}");
    let (files, _) = artifacts.unpack_image().await;
    let size = size_of(&files);
    assert!(size < IMAGE_LIMIT_BYTES, "{size}");
    let binary = files.join("usr/bin/flotilla");
    let mut version = Command::new(artifacts.path("target/release/flotilla"));
    version.arg("--version");
    let version = run_command(version, String::new()).await;
    let mut head = Command::new("git");
    head.arg("-C").arg(&clone).args(["rev-parse", "HEAD"]);
    let head = run_command(head, String::new()).await;
    assert!(version.contains(head.trim()), "{version}");
    let bytes = std::fs::read(binary).unwrap();
    let registry = "/.cargo/registry".to_owned();
    let paths = [artifacts.dir.path().display().to_string(), registry];
    for path in paths {
        let mut windows = bytes.windows(path.len());
        assert!(!windows.any(|bytes| bytes == path.as_bytes()), "{path}");
    }
}

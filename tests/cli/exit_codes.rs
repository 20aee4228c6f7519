//! Exit codes and the beginnings of errors, which are those of kubectl.

use crate::cli::fixture::CliFixture;

// proves: CLI-exit-codes
#[test]
fn failures_have_the_exit_codes_and_words_of_kubectl() {
    let fixture = CliFixture::shared();
    let table = [
        (
            "",
            1,
            "A multi-cluster Kubernetes control plane in one process\n",
        ),
        ("fly", 1, "error: unrecognized subcommand 'fly'"),
        ("get --fly", 1, "error: unexpected argument '--fly' found"),
        ("cordon", 1, "error: cluster name is required"),
        (
            "drain",
            1,
            "error: the following required arguments were not provided:",
        ),
        ("get pods -s nowhere", 1, "error: invalid value 'nowhere'"),
        ("plan --fly", 2, "error: unexpected argument '--fly' found"),
        (
            "cordon nowhere",
            1,
            "Error from server (NotFound): clusters.cluster.karmada.io \"nowhere\" not found",
        ),
        (
            "drain nowhere --dry-run",
            1,
            "Error from server (NotFound): clusters.cluster.karmada.io \"nowhere\" not found",
        ),
        ("get deployments --kubeconfig nothing", 1, "error: "),
        ("get deployment nothing", 1, "error: cluster(Karmada): "),
    ];
    for (line, code, errors) in table {
        let done = fixture.run(line);
        assert_eq!(done.code, code, "{line}: {done:?}");
        assert!(done.errors.starts_with(errors), "{line}: {done:?}");
        assert_eq!(done.out, "", "{line}");
    }
    for line in ["--help", "get --help", "--version", "help drain"] {
        let done = fixture.run(line);
        assert_eq!(done.errors, "", "{line}");
        assert!(!done.succeeded().is_empty(), "{line}");
    }
}

//! The requirements of a control plane's signers on a certificate request
//! (`pkg/apis/certificates/helpers.go`, `pkg/controller/certificates/signer`).

use machinery::certificate_request::CertificateRequest;

pub(super) const API_SERVER_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
pub(super) const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub(super) const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";

const NODES_GROUP: &str = "system:nodes";
const NODE_USER_PREFIX: &str = "system:node:";
const DIGITAL_SIGNATURE: &str = "digital signature";
const KEY_ENCIPHERMENT: &str = "key encipherment";
const CLIENT_AUTH: &str = "client auth";
const SERVER_AUTH: &str = "server auth";

/// Why the signer does not sign the request; `None` for signers that are not this server's.
pub(super) fn check_request(
    signer: &str,
    request: &CertificateRequest,
    usages: &[String],
) -> Option<Result<(), String>> {
    match signer {
        API_SERVER_CLIENT => Some(check_client_usages(usages)),
        KUBELET_CLIENT => Some(check_kubelet_client(request, usages)),
        KUBELET_SERVING => Some(check_kubelet_serving(request, usages)),
        _ => None,
    }
}

fn check_client_usages(usages: &[String]) -> Result<(), String> {
    for usage in usages {
        if ![DIGITAL_SIGNATURE, KEY_ENCIPHERMENT, CLIENT_AUTH].contains(&usage.as_str()) {
            return Err(format!("invalid usage for client certificate: {usage}"));
        }
    }
    match usages.iter().any(|usage| usage == CLIENT_AUTH) {
        true => Ok(()),
        false => Err(format!(
            "missing required usage for client certificate: {CLIENT_AUTH}"
        )),
    }
}

pub(super) fn check_kubelet_client(
    request: &CertificateRequest,
    usages: &[String],
) -> Result<(), String> {
    check_node_organization(request)?;
    let names = [
        (!request.dns_names.is_empty(), "DNS"),
        (!request.email_addresses.is_empty(), "Email"),
        (!request.ip_addresses.is_empty(), "IP"),
        (!request.uris.is_empty(), "URI"),
    ];
    for (present, kind) in names {
        if present {
            return Err(format!("{kind} subjectAltNames are not allowed"));
        }
    }
    check_kubelet_usages(usages, CLIENT_AUTH)?;
    check_node_name(request)
}

fn check_kubelet_serving(request: &CertificateRequest, usages: &[String]) -> Result<(), String> {
    check_node_organization(request)?;
    if request.dns_names.is_empty() && request.ip_addresses.is_empty() {
        return Err("DNS or IP subjectAltName is required".into());
    }
    for (present, kind) in [
        (!request.email_addresses.is_empty(), "Email"),
        (!request.uris.is_empty(), "URI"),
    ] {
        if present {
            return Err(format!("{kind} subjectAltNames are not allowed"));
        }
    }
    check_kubelet_usages(usages, SERVER_AUTH)?;
    check_node_name(request)
}

fn check_node_organization(request: &CertificateRequest) -> Result<(), String> {
    match request.organizations == [NODES_GROUP] {
        true => Ok(()),
        false => Err(format!("subject organization is not {NODES_GROUP}")),
    }
}

fn check_node_name(request: &CertificateRequest) -> Result<(), String> {
    match request.common_name.starts_with(NODE_USER_PREFIX) {
        true => Ok(()),
        false => Err(format!(
            "subject common name does not begin with {NODE_USER_PREFIX}"
        )),
    }
}

/// The usages are the digital signature and `required`, with or without key encipherment.
fn check_kubelet_usages(usages: &[String], required: &str) -> Result<(), String> {
    let has = |usage: &str| usages.iter().any(|u| u == usage);
    let expected = [DIGITAL_SIGNATURE, required];
    let is_allowed =
        |usage: &String| usage == KEY_ENCIPHERMENT || expected.contains(&usage.as_str());
    if expected.iter().all(|usage| has(usage)) && usages.iter().all(is_allowed) {
        return Ok(());
    }
    Err(format!(
        "usages did not match [{DIGITAL_SIGNATURE} {KEY_ENCIPHERMENT} {required}]"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(list: &[&str]) -> Vec<String> {
        list.iter().map(|s| (*s).to_owned()).collect()
    }

    fn node() -> CertificateRequest {
        CertificateRequest {
            common_name: "system:node:a".into(),
            organizations: strings(&["system:nodes"]),
            ..CertificateRequest::default()
        }
    }

    fn serving() -> CertificateRequest {
        CertificateRequest {
            dns_names: strings(&["a"]),
            ..node()
        }
    }

    #[test]
    fn each_signer_has_its_rules() {
        let client = [DIGITAL_SIGNATURE, CLIENT_AUTH];
        let server = [DIGITAL_SIGNATURE, SERVER_AUTH, KEY_ENCIPHERMENT];
        let anybody = CertificateRequest::default();
        let other = |change: fn(&mut CertificateRequest)| {
            let mut request = node();
            change(&mut request);
            request
        };
        let table = [
            (API_SERVER_CLIENT, anybody.clone(), &client[..], ""),
            (API_SERVER_CLIENT, anybody.clone(), &[CLIENT_AUTH], ""),
            (API_SERVER_CLIENT, anybody.clone(), &server, "invalid usage"),
            (
                API_SERVER_CLIENT,
                anybody.clone(),
                &[DIGITAL_SIGNATURE],
                "missing required",
            ),
            (KUBELET_CLIENT, node(), &client, ""),
            (
                KUBELET_CLIENT,
                node(),
                &[CLIENT_AUTH],
                "usages did not match",
            ),
            (KUBELET_CLIENT, node(), &server, "usages did not match"),
            (KUBELET_CLIENT, anybody.clone(), &client, "organization"),
            (KUBELET_CLIENT, serving(), &client, "DNS"),
            (
                KUBELET_CLIENT,
                other(|r| r.organizations.push("system:masters".into())),
                &client,
                "organization",
            ),
            (
                KUBELET_CLIENT,
                other(|r| r.common_name = "admin".into()),
                &client,
                "common name",
            ),
            (
                KUBELET_CLIENT,
                other(|r| r.uris = strings(&["a:b"])),
                &client,
                "URI",
            ),
            (KUBELET_SERVING, serving(), &server, ""),
            (KUBELET_SERVING, node(), &server, "DNS or IP"),
            (KUBELET_SERVING, serving(), &client, "usages did not match"),
            (KUBELET_SERVING, anybody, &server, "organization"),
        ];
        for (signer, request, usages, reason) in table {
            let checked = check_request(signer, &request, &strings(usages)).unwrap();
            match (&checked, reason) {
                (Ok(()), "") => {}
                (Err(error), reason) if !reason.is_empty() && error.contains(reason) => {}
                _ => panic!("{signer} {request:?} {usages:?}: {checked:?}"),
            }
        }
        assert!(check_request("example.com/own", &node(), &[]).is_none());
    }
}

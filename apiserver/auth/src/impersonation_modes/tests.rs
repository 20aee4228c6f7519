//! Tests of the modes of impersonation over the answers of an authorizer.

use super::*;
use crate::impersonation::parse_impersonation_headers;

/// Allows what is listed as `VERB [GROUP/]RESOURCE[/SUBRESOURCE] [NAMESPACE/]NAME`, and keeps
/// what it was asked.
#[derive(Default)]
struct FakeAuthorizer {
    allowed: Vec<String>,
    checked: Mutex<Vec<String>>,
    extras: Mutex<Vec<BTreeMap<String, Vec<String>>>>,
}

fn describe(verb: &str, target: AuthorizationTarget<'_>) -> String {
    let AuthorizationTarget::Resource {
        group,
        resource,
        subresource,
        namespace,
        name,
        ..
    } = target
    else {
        return format!("{verb} path");
    };
    let slash = |parts: &[&str]| {
        let parts: Vec<_> = parts.iter().copied().filter(|p| !p.is_empty()).collect();
        parts.join("/")
    };
    let group = group.strip_suffix(".k8s.io").unwrap_or(group);
    let resource = slash(&[group, resource, subresource]);
    format!("{verb} {resource} {}", slash(&[namespace, name]))
}

impl ImpersonationAuthorizer for FakeAuthorizer {
    async fn check(
        &self,
        user: &UserInfo,
        verb: &str,
        target: AuthorizationTarget<'_>,
    ) -> Result<(), Status> {
        let access = describe(verb, target);
        self.extras.lock().push(user.extra.clone());
        let is_allowed = self.allowed.contains(&access);
        self.checked.lock().push(access);
        match is_allowed {
            true => Ok(()),
            false => Err(RbacAuthorizer::forbidden(user, verb, target)),
        }
    }
}

fn impersonated_user(headers: &str) -> ImpersonatedUser {
    let headers = headers.split(' ').map(|header| {
        let (name, value) = header.split_once('=').unwrap();
        (name, value.as_bytes())
    });
    let headers: Vec<_> = headers
        .map(|(name, value)| (format!("impersonate-{name}"), value))
        .collect();
    let headers = headers.iter().map(|(name, value)| (name.as_str(), *value));
    parse_impersonation_headers(headers).unwrap().unwrap()
}

fn requester() -> UserInfo {
    UserInfo {
        name: "system:serviceaccount:ns:agent".into(),
        extra: BTreeMap::from([
            (NODE_NAME_EXTRA.to_owned(), vec!["n1".to_owned()]),
            ("z".to_owned(), vec!["1".to_owned()]),
        ]),
        ..UserInfo::default()
    }
}

const PODS: AuthorizationTarget<'static> = AuthorizationTarget::Resource {
    group: "",
    version: "v1",
    resource: "pods",
    subresource: "",
    namespace: "ns",
    name: "p",
    selectors: AuthorizationSelectors {
        fields: "",
        labels: "",
    },
};

/// The constraint and the groups, or the message of the refusal.
async fn impersonate(
    modes: &ImpersonationModes,
    allowed: &[&str],
    headers: &str,
) -> (
    Result<(Option<&'static str>, Vec<String>), String>,
    FakeAuthorizer,
) {
    let authorizer = FakeAuthorizer {
        allowed: allowed.iter().map(|line| (*line).to_owned()).collect(),
        ..FakeAuthorizer::default()
    };
    let result = modes
        .authorize_with(
            &authorizer,
            &requester(),
            &impersonated_user(headers),
            "get",
            PODS,
        )
        .await;
    let result = result
        .map(|allowed| (allowed.constraint, allowed.user.groups))
        .map_err(|status| status.message);
    (result, authorizer)
}

// proves: IMP-modes
#[tokio::test]
async fn the_first_mode_that_passes_wins() {
    let impersonate_on = |mode: &str| format!("impersonate-on:{mode}:get pods ns/p");
    let (associated, arbitrary) = (
        impersonate_on("associated-node"),
        impersonate_on("arbitrary-node"),
    );
    let (account, user) = (
        impersonate_on("serviceaccount"),
        impersonate_on("user-info"),
    );
    let authenticated = "system:authenticated";
    for (allowed, headers, constraint, groups) in [
        (
            &[
                &*associated,
                "impersonate:associated-node authentication/nodes *",
            ][..],
            "user=system:node:n1",
            Some("impersonate:associated-node"),
            &["system:nodes", authenticated][..],
        ),
        (
            &[
                &*arbitrary,
                "impersonate:arbitrary-node authentication/nodes n1",
            ],
            "user=system:node:n1",
            Some("impersonate:arbitrary-node"),
            &["system:nodes", authenticated],
        ),
        (
            &[
                &*account,
                "impersonate:serviceaccount authentication/serviceaccounts a/b",
            ],
            "user=system:serviceaccount:a:b",
            Some("impersonate:serviceaccount"),
            &[
                "system:serviceaccounts",
                "system:serviceaccounts:a",
                authenticated,
            ],
        ),
        (
            &[
                &*user,
                "impersonate:user-info authentication/users ann",
                "impersonate:user-info authentication/groups g",
                "impersonate:user-info authentication/uids 7",
                "impersonate:user-info authentication/userextras/a.io/k v",
            ],
            "user=ann group=g uid=7 extra-a.io%2fk=v",
            Some("impersonate:user-info"),
            &["g", authenticated],
        ),
        (
            &["impersonate users ann", "impersonate groups g"],
            "user=ann group=g",
            None,
            &["g", authenticated],
        ),
        (
            &["impersonate serviceaccounts a/b", "impersonate groups g"],
            "user=system:serviceaccount:a:b group=g",
            None,
            &["g", authenticated],
        ),
        (
            &["impersonate users system:node:n1"],
            "user=system:node:n1",
            None,
            &[authenticated],
        ),
        (
            &["impersonate users ann", "impersonate groups system:masters"],
            "user=ann group=system:masters",
            None,
            &["system:masters", authenticated],
        ),
    ] {
        let modes = ImpersonationModes::default();
        let (result, _) = impersonate(&modes, allowed, headers).await;
        let groups = groups.iter().map(|g| (*g).to_owned()).collect();
        assert_eq!(result, Ok((constraint, groups)), "{headers}");
    }
}

// proves: IMP-modes
#[tokio::test]
async fn a_constrained_mode_needs_both_permissions_and_refuses_what_is_privileged() {
    let impersonate_on = "impersonate-on:user-info:get pods ns/p";
    let ann = "impersonate:user-info authentication/users ann";
    for (allowed, headers, refusal) in [
        (
            &[ann][..],
            "user=ann",
            "cannot impersonate-on:user-info:get resource \"pods\" in API group \"\" in the namespace \"ns\"",
        ),
        (
            &[impersonate_on],
            "user=ann",
            "cannot impersonate:user-info resource \"users\" in API group \"authentication.k8s.io\" at the cluster scope",
        ),
        (
            &[
                impersonate_on,
                ann,
                "impersonate:user-info authentication/groups system:masters",
            ],
            "user=ann group=system:masters",
            "impersonating the system:masters group is not allowed",
        ),
        (
            &[impersonate_on, ann],
            "user=ann group=",
            "impersonating the empty string group is not allowed",
        ),
        (
            &[impersonate_on, ann],
            "user=ann extra-k=v",
            "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: \"k\": must be a domain-prefixed path (such as \"acme.io/foo\")",
        ),
        (
            &[impersonate_on, ann],
            "user=ann extra-a.io%2F%4b=v",
            "impersonating a non-lowercase key in extra is not allowed: \"a.io/K\"",
        ),
        (
            &[impersonate_on, ann],
            "user=ann extra-a.io%2fk=",
            "impersonating the empty string value in extra is not allowed",
        ),
        (
            &[
                impersonate_on,
                "impersonate:user-info authentication/users system:node:n1",
            ],
            "user=system:node:n1 group=g",
            "cannot impersonate resource \"users\" in API group \"\" at the cluster scope",
        ),
    ] {
        let modes = ImpersonationModes::default();
        let (result, _) = impersonate(&modes, allowed, headers).await;
        let message = result.unwrap_err();
        assert!(message.ends_with(refusal), "{headers}: {message}");
    }
}

// proves: IMP-last-mode
#[tokio::test]
async fn the_mode_that_passed_last_is_tried_first() {
    let modes = ImpersonationModes::default();
    let allowed = ["impersonate users ann"];
    let (_, authorizer) = impersonate(&modes, &allowed, "user=ann").await;
    let first = authorizer.checked.into_inner();
    assert_eq!(
        first,
        [
            "impersonate-on:user-info:get pods ns/p",
            "impersonate users ann"
        ]
    );
    let (_, authorizer) = impersonate(&modes, &allowed, "user=ann").await;
    assert_eq!(authorizer.checked.into_inner(), allowed);
    let (result, _) = impersonate(&modes, &[], "user=ann").await;
    let message = result.unwrap_err();
    assert!(
        message.contains("cannot impersonate resource \"users\""),
        "{message}"
    );
    for requester in 0..MAX_REMEMBERED_REQUESTERS as u64 + 5 {
        modes.remember(requester, ImpersonationMode::Legacy);
    }
    assert!(modes.last.lock().len() <= MAX_REMEMBERED_REQUESTERS);
}

#[tokio::test]
async fn many_values_are_first_checked_at_once() {
    let modes = ImpersonationModes::default();
    let allowed = [
        "impersonate-on:user-info:get pods ns/p",
        "impersonate:user-info authentication/users ann",
        "impersonate:user-info authentication/groups *",
        "impersonate:user-info authentication/userextras/* *",
    ];
    let headers = "user=ann group=a group=b group=c group=d extra-a.io%2fk=1 \
                   extra-a.io%2fk=2 extra-a.io%2fk=3 extra-a.io%2fk=4";
    let (result, authorizer) = impersonate(&modes, &allowed, headers).await;
    assert!(result.is_ok());
    assert_eq!(authorizer.checked.into_inner(), allowed);
}

#[tokio::test]
async fn authorizers_see_no_node_when_an_agent_acts_as_its_own() {
    let modes = ImpersonationModes::default();
    let allowed = [
        "impersonate-on:associated-node:get pods ns/p",
        "impersonate:associated-node authentication/nodes *",
    ];
    let (result, authorizer) = impersonate(&modes, &allowed, "user=system:node:n1").await;
    assert!(result.is_ok());
    let keys = vec![NODE_NAME_EXTRA.to_owned(), "z".to_owned()];
    let expected = BTreeMap::from([(ASSOCIATED_NODE_KEYS_EXTRA.to_owned(), keys)]);
    for extra in authorizer.extras.into_inner() {
        assert_eq!(extra, expected);
    }
    let (other, authorizer) = impersonate(&modes, &allowed, "user=system:node:n2").await;
    assert!(other.is_err());
    let checked = authorizer.checked.into_inner();
    assert!(
        !checked.iter().any(|line| line.contains("associated")),
        "{checked:?}"
    );
}

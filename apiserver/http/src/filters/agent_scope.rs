//! Keeps the agents of clusters in pull mode to their own objects before their rights are looked at,
//! which may be wider: Karmada's agent lists all Clusters, and is shown its own.

use std::sync::Arc;

use auth::RequestAuthorizer;
use karmada_api::agents::{AgentAccess, AgentScope, agent_scope};
use karmada_api::resources::CLUSTERS;
use machinery::agent_user::cluster_of_agent_user;
use machinery::{Gvr, Status, UserInfo};

use super::request::ResolvedRequest;
use crate::requestinfo::{RequestInfo, RequestedResource, selected_name};

/// Restricts a request of an agent: a list or watch of everything selects what is its own, and what
/// names another's is 403.
pub(super) fn restrict_agent_request<B>(
    user: &Arc<UserInfo>,
    request: &mut ResolvedRequest<B>,
) -> Result<(), Status> {
    let Some(cluster) = cluster_of_agent_user(user) else {
        return Ok(());
    };
    let Some(resource) = &mut request.info.resource else {
        return Ok(());
    };
    let access = AgentAccess {
        verb: request.info.verb,
        group: &resource.group,
        resource: &resource.resource,
        namespace: &resource.namespace,
        name: &resource.name,
    };
    match agent_scope(cluster, &access) {
        AgentScope::All => Ok(()),
        AgentScope::Forbidden(message) => Err(forbidden(resource, message)),
        AgentScope::Selected(requirement) => {
            request.query.add_field_requirement(&requirement);
            let name = selected_name(&request.query).unwrap_or_default();
            resource.name = name.into_owned();
            let selector = request.query.get("fieldSelector").unwrap_or_default();
            selector.clone_into(&mut resource.field_selector);
            Ok(())
        }
    }
}

/// The refusal of a request of an agent. Its rights have ended with its Cluster: whoever unregisters
/// it with the credentials of the agent waits until that is 404.
pub(super) fn agent_refusal(
    authorizer: &RequestAuthorizer,
    user: &UserInfo,
    info: &RequestInfo,
    rejection: Status,
) -> Status {
    let (Some(cluster), Some(resource)) = (cluster_of_agent_user(user), &info.resource) else {
        return rejection;
    };
    let RequestedResource {
        group,
        version,
        resource,
        subresource,
        name,
        ..
    } = resource;
    let gvr = Gvr::new(&**group, &**version, &**resource);
    let is_own_cluster =
        info.verb == "get" && gvr == CLUSTERS && name == cluster && subresource.is_empty();
    match is_own_cluster && rejection.code == 403 && !authorizer.is_former_agent(user) {
        true => Status::not_found(&gvr, name),
        false => rejection,
    }
}

fn forbidden(resource: &RequestedResource, message: String) -> Status {
    let gvr = Gvr::new(&*resource.group, &*resource.version, &*resource.resource);
    Status::forbidden(&gvr, &resource.name, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::testing::resolved_request;
    use machinery::agent_user::AGENTS_GROUP;

    // proves: AGT-reads
    #[test]
    fn what_an_agent_reads_is_its_own() {
        let user = Arc::new(UserInfo {
            name: "system:karmada:agent:edge".into(),
            groups: vec![AGENTS_GROUP.into()],
            ..UserInfo::default()
        });
        let clusters = "/apis/cluster.karmada.io/v1alpha1/clusters";
        let own_cluster = "metadata.name=edge";
        for (query, expected) in [
            ("", Some(own_cluster)),
            ("?watch=1", Some(own_cluster)),
            ("?fieldSelector=metadata.name%3Dedge", Some(own_cluster)),
            ("?fieldSelector=", Some(own_cluster)),
            (
                "?fieldSelector=&fieldSelector=metadata.name%3Dother",
                Some(own_cluster),
            ),
            (
                "?fieldSelector=metadata.name!%3Dx",
                Some("metadata.name!=x,metadata.name=edge"),
            ),
            ("?fieldSelector=metadata.name%3Dother", None),
            (
                "?fieldSelector=metadata.name%3Dother&fieldSelector=metadata.name%3Dedge",
                None,
            ),
            ("/other", None),
            ("/other/status", None),
            ("/*/proxy/api", None),
        ] {
            let mut request = resolved_request("GET", &format!("{clusters}{query}"));
            let restricted = restrict_agent_request(&user, &mut request);
            let Some(expected) = expected else {
                assert_eq!(restricted.unwrap_err().code, 403, "{query}");
                continue;
            };
            restricted.unwrap();
            let selectors: Vec<&str> = request.query.all("fieldSelector").collect();
            assert_eq!(selectors, [expected], "{query}");
            assert_eq!(request.info.resource.unwrap().name, "edge", "{query}");
        }
    }
}

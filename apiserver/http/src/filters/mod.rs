//! The filters around every request, one tower layer per file, as kube-apiserver has
//! them in `server/filters` and `endpoints/filters`.
//!
//! connection ──► [`build_handler_chain`] ──► handler
//!
//! A filter sees a request as the type of [`request`] that has what it needs. The layers
//! are tower's and the services are hyper's: those are called by reference and are
//! always ready, so that no request clones the chain. Every filter names its inner
//! service once, in its service and in its future, so that the type of the chain grows
//! by one name per filter.

mod admission_reviews;
mod agent_scope;
mod assumed_user;
mod async_check;
mod attach_guard;
mod audit;
mod audit_id;
mod authentication;
mod authorization;
mod deadline;
mod drain;
mod error_responses;
mod handler_chain;
mod impersonation;
mod in_flight;
mod inner_service;
mod map_result;
mod max_in_flight;
mod observation;
mod panic_recovery;
mod priority_and_fairness;
mod request;
mod request_body;
mod request_info;
mod response_headers;
#[cfg(test)]
mod testing;
mod tracing;

pub(crate) use assumed_user::AssumedUser;
pub(crate) use handler_chain::{HandlerChainConfig, build_handler_chain, build_passed_on_chain};
pub(crate) use inner_service::{InnerService, ServerResponse};
pub(crate) use max_in_flight::InFlightLimits;
pub(crate) use request::{AuthenticatedRequest, ReceivedRequest};

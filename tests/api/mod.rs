//! Tests of the served API: a server in a process of its own, called by two versions of kubectl
//! that are twelve releases apart, and by plain HTTP for requests that kubectl does not send.
//!
//! Commands are tables: a command line, its exit code, and the expected output. Tests share one
//! server and use namespaces of their own.

/// A server process: `flotilla serve` or `flotilla member`.
mod test_server;

/// Two versions of kubectl, and tables of commands.
mod kubectl;

/// Plain HTTP/1.1 over TLS.
mod http_requests;

/// kubectl: objects are created with generators and from files.
mod create;

/// kubectl: objects are updated by `apply`, `patch`, `edit` and imperative commands.
mod update;

/// HTTP: objects that are nested up to the limit and beyond it.
mod deep_objects;

/// HTTP and kubectl: server-side apply and `managedFields`.
mod server_side_apply;

/// kubectl: `get`, `describe`, `explain`, `events` and watches.
mod printing;

/// kubectl: deletion of objects, dependents and namespaces.
mod delete;

/// Metrics of nodes and pods in simulated clusters, by HTTP and kubectl.
mod resource_metrics;

/// HTTP: objects that are being deleted, and their owners and dependents.
mod owners;

/// kubectl: custom resources, Karmada's CRDs and policies.
mod custom_resources;

/// HTTP: spans of requests, webhook calls and reconciliations at a collector.
mod traces;

/// HTTP: custom resources whose versions a webhook converts.
mod controller_writes;
mod conversion_webhooks;

/// kubectl against a simulated cluster: workloads become ready.
mod member_workloads;

/// HTTP: rules and warnings of built-in kinds.
mod builtin_rules;
mod group_rules;

/// HTTP: access through the rights of the server.
mod access;

/// HTTP: what the writers of roles and bindings may grant.
mod role_escalation;

/// HTTP: the rights in a namespace reach nothing outside of it.
mod scope;

/// HTTP: roles and bindings that exist from the start, and aggregated roles.
mod bootstrap_roles;

/// HTTP and kubectl: certificates are requested, approved and signed.
mod certificates;

/// kubectl: who one is, and what one may do.
mod identity;

/// kubectl: what a service account may do as others by constrained impersonation.
mod impersonation;

/// HTTP: client authorities, static tokens, and issuers of OpenID Connect.
mod authentication;

/// HTTP: webhooks that authenticate and authorize, and modes of authorization.
mod authorization_webhooks;

/// HTTP: serving certificates, authorities and token keys of files.
mod key_files;

/// HTTP: error responses.
mod errors;

/// Built-in kinds are decoded as Kubernetes' types decode them, with those types as judge.
mod typed_decoding;

/// HTTP: admission of Karmada's kinds.
mod admission;

/// HTTP: what discovery, Tables and OpenAPI show of Karmada's kinds.
mod karmada_kinds;

/// HTTP: kinds of flow control, storage and nodes.
mod cluster_kinds;

/// HTTP: quotas and limits of namespaces.
mod quota;

/// HTTP: pods are deleted after their grace period, and evicted as their budgets allow.
mod pods;
/// HTTP: admission policies.
mod policies;

/// A webhook server of the tests, and a server that calls it.
mod webhook_fixture;

/// HTTP: admission webhooks that are registered with the server.
mod webhooks;

/// HTTP: options in reviews, audit annotations, and the order of policies and webhooks.
mod admission_requests;

/// HTTP: content negotiation, discovery, OpenAPI documents, protobuf.
mod negotiation;

/// HTTP: validation rules of custom resources (CEL).
mod cel;

/// The values of expressions, with cel-go as judge.
mod cel_expressions;

/// HTTP: paged lists and watches.
mod large_requests;
mod lists_and_watches;

/// HTTP: what informers and browsers rely on, for every kind.
mod watch_clients;

/// HTTP: priority and fairness.
mod flow_control;

/// HTTP: promises of Kubernetes' own end-to-end specs.
mod conformance_specs;

/// HTTP: the example of the manual.
mod example;

/// HTTP: the audit log.
mod audit;

/// Bootstrap tokens, and what is obtained with them.
mod bootstrap_tokens;

/// Agents of clusters in pull mode: what they and the holders of tokens may do.
mod agents;

/// The process: its CPU profiles.
mod profiles;

/// The process: its log.
mod logs;

/// The process: errors at startup.
mod startup_errors;

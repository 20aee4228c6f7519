//! Approves the certificate requests of agents of clusters in pull mode (Karmada's
//! `agentcsrapproving` controller), and creates the roles of the agents. The signer of the API server
//! signs them.

mod approval;
mod controller;

pub(crate) use controller::start;

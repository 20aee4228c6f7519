//! Estimates the available replicas of clusters: by the cluster's own estimator if it has
//! one, else by its nodes. All clusters are estimated concurrently.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use client::Api;
use futures_util::future::join_all;
use members::Members;
use parking_lot::Mutex;
use flotilla_runtime::{Informers, Tasks};
use scheduler::core::{Answer, Source};
use scheduler::{Candidate, Estimators, Question};

use crate::links::{Link, Links};
use crate::options::Options;
use crate::remote::Silence;
use crate::{figures, own};

/// Estimates all clusters accurately.
pub struct Estimator {
    links: Arc<Links>,
    members: Members,
    quotas: bool,
    /// Clusters whose estimator failed in the last call.
    failing: Mutex<HashSet<String>>,
}

impl Estimator {
    /// Starts to discover estimators through their Services in `api`. `members` must track
    /// individual nodes, and quotas if the options use them.
    pub fn start(
        api: &Arc<dyn Api>,
        informers: &Informers,
        members: &Members,
        options: Options,
        tasks: &Tasks,
    ) -> Arc<dyn Estimators> {
        figures::show();
        let it = Arc::new(Self {
            quotas: options.quotas,
            links: Links::start(api, informers, options, tasks),
            members: members.clone(),
            failing: Mutex::default(),
        });
        // Members start to track nodes and quotas before the first estimate.
        let counting = Arc::downgrade(&it);
        members.on_connect(move |cluster, connected| {
            if let Some(it) = counting.upgrade()
                && connected
                && let Ok(member) = it.members.get(cluster)
            {
                member.nodes(|_| ());
                member.quotas("");
            }
        });
        it
    }

    async fn answer(&self, question: &Question<'_>, candidate: &Candidate) -> Answer {
        let Candidate { cluster, assumed } = candidate;
        let link = match self.links.get(cluster) {
            Some(link) => link,
            None => {
                // Many clusters may be estimated locally in a row.
                tokio::task::yield_now().await;
                let member = self.members.get(cluster);
                return member.map_or(Answer::Unknown, |member| {
                    own::answer(&member, question, assumed, self.quotas)
                });
            }
        };
        let began = Instant::now();
        let result = match link {
            Link::To(remote) => remote.ask(cluster, question, assumed).await,
            Link::Broken(text) => Err(Silence { text, lost: false }),
        };
        figures::asked(began.elapsed(), result.is_ok());
        self.note(cluster, result.as_ref().err());
        match result {
            Ok(room @ 0..) => Answer::Room(room, Source::Estimator),
            Ok(_) => Answer::Unknown,
            Err(_) => Answer::Failed,
        }
    }

    /// Logs when an estimator starts to fail and when it recovers.
    fn note(&self, cluster: &str, silence: Option<&Silence>) {
        let mut failing = self.failing.lock();
        match silence {
            Some(Silence { text, lost }) => {
                if *lost {
                    self.links.doubt(cluster);
                }
                if failing.insert(cluster.to_owned()) {
                    tracing::warn!(cluster, text, "the estimator of the cluster is failing");
                }
            }
            None => {
                if failing.remove(cluster) {
                    tracing::info!(cluster, "the estimator of the cluster responds again");
                }
            }
        }
    }
}

#[async_trait]
impl Estimators for Estimator {
    async fn ready(&self) {
        self.links.ready().await;
    }

    async fn ask(&self, question: &Question<'_>, clusters: &[Candidate]) -> Vec<Answer> {
        let answers = clusters.iter().map(|c| self.answer(question, c));
        join_all(answers).await
    }
}

impl fmt::Debug for Estimator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Estimator")
    }
}

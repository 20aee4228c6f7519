//! Who answers for which cluster.
//!
//! Enters: questions. Leaves: answers: of the cluster's own estimator where it has one,
//! else of its nodes. Clusters are asked at the same time.

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

/// The estimators of all clusters.
pub struct Estimator {
    links: Arc<Links>,
    members: Members,
    quotas: bool,
    /// Clusters whose estimator failed when it was asked last.
    failing: Mutex<HashSet<String>>,
}

impl Estimator {
    /// Starts to look for estimators, whose Services `api` tells. `members` have to tell
    /// their nodes one by one, and their quotas if those count.
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
        // Members are counted before somebody asks.
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
                // Many clusters may be counted in a row.
                tokio::task::yield_now().await;
                let member = self.members.get(cluster);
                return member.map_or(Answer::Unknown, |member| {
                    own::answer(&member, question, assumed, self.quotas)
                });
            }
        };
        let began = Instant::now();
        let told = match link {
            Link::To(remote) => remote.ask(cluster, question, assumed).await,
            Link::Broken(text) => Err(Silence { text, lost: false }),
        };
        figures::asked(began.elapsed(), told.is_ok());
        self.note(cluster, told.as_ref().err());
        match told {
            Ok(room @ 0..) => Answer::Room(room, Source::Estimator),
            Ok(_) => Answer::Unknown,
            Err(_) => Answer::Failed,
        }
    }

    /// Says when an estimator begins to fail, and when it has ceased to.
    fn note(&self, cluster: &str, silence: Option<&Silence>) {
        let mut failing = self.failing.lock();
        match silence {
            Some(Silence { text, lost }) => {
                if *lost {
                    self.links.doubt(cluster);
                }
                if failing.insert(cluster.to_owned()) {
                    tracing::warn!(cluster, text, "the estimator of a cluster fails");
                }
            }
            None => {
                if failing.remove(cluster) {
                    tracing::info!(cluster, "the estimator of a cluster answers again");
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

//! The users of a console in a cluster, each of whom acts with a bearer token of its own.
//!
//! token ──► [`ConsoleUsers`] ──SelfSubjectReview──► [`user_console::UserConsole`] (client, inventory, sessions), by the digest of the token
//!
//! Invariants: a user reaches the console of its own token only, a token is kept only while the control
//! plane accepts it, and nothing is done in the name of the console itself.

mod bearer_token;
mod token_review;
mod user_console;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use client::{Api, TaskGroup};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

pub(crate) use bearer_token::{BearerToken, TOKEN_FIELD};
#[cfg(test)]
pub(crate) use token_review::SELF_SUBJECT_REVIEWS;
pub(crate) use user_console::ConsoleUse;

use crate::console::{Console, ConsoleSubject, StreamOpener, UserConnections};
use crate::session::{Session, TokenDigest};
use token_review::{CheckedConnection, is_unauthorized, user_name};
use user_console::UserConsole;

/// Each has an inventory of its own.
const MAX_CONSOLES: usize = 32;
/// Of one user by several tokens, such as those of a proxy that renews them.
const MAX_CONSOLES_OF_USER: usize = 4;
/// A console that nobody has looked at for so long is dropped.
const IDLE_TIMEOUT: Duration = Duration::from_mins(30);
/// How soon a token that is worth nothing anymore is noticed.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Tokens that are shown to the control plane at once; others wait in their order.
const MAX_LOGINS: usize = 8;
/// How long a token that gets no console waits for its answer, so that a connection tries one in a second.
const FAILURE_DELAY: Duration = Duration::from_secs(1);

/// Connects to the control plane as the user of a token.
#[async_trait]
pub(crate) trait UserConnector: Send + Sync {
    /// The tasks own the connections.
    async fn connect(
        &self,
        token: &BearerToken,
        tasks: &TaskGroup,
    ) -> anyhow::Result<UserConnections>;
}

/// Why a user gets no console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoginFailure {
    /// The control plane does not accept the token.
    Refused,
    TooManyUsers,
    TooManyRequests,
    /// The control plane does not answer.
    Unavailable,
}

pub(crate) struct ConsoleUsers {
    connector: Box<dyn UserConnector>,
    /// The address of the control plane, as it is shown.
    control_plane: String,
    consoles: Mutex<HashMap<TokenDigest, Arc<UserConsole>>>,
    logins: Semaphore,
    tasks: TaskGroup,
}

impl ConsoleUsers {
    pub(crate) fn new(
        connector: Box<dyn UserConnector>,
        control_plane: String,
        tasks: &TaskGroup,
    ) -> Arc<Self> {
        Arc::new(Self {
            connector,
            control_plane,
            consoles: Mutex::default(),
            logins: Semaphore::new(MAX_LOGINS),
            tasks: tasks.child(),
        })
    }

    /// Begins a session of a browser, and returns the value of its cookie.
    pub(crate) async fn login(
        self: &Arc<Self>,
        token: &BearerToken,
    ) -> Result<String, LoginFailure> {
        let usage = self.authenticate(token).await?;
        Ok(usage.user().sessions.begin(Session::new(true)))
    }

    /// The session of a cookie.
    pub(crate) fn session(
        &self,
        cookie: &TokenDigest,
    ) -> Result<Option<(ConsoleUse, Session)>, LoginFailure> {
        let consoles = self.consoles.lock();
        let mut users = consoles.values().filter(|user| !user.has_ended());
        let session = users.find_map(|user| Some((user, user.sessions.find(cookie)?)));
        let Some((user, session)) = session else {
            return Ok(None);
        };
        let usage = ConsoleUse::begin(user).ok_or(LoginFailure::TooManyRequests)?;
        Ok(Some((usage, session)))
    }

    /// The console of a token, which is begun if the control plane accepts the token.
    pub(crate) async fn authenticate(
        self: &Arc<Self>,
        token: &BearerToken,
    ) -> Result<ConsoleUse, LoginFailure> {
        let digest = token.digest();
        if let Some(user) = self.running(&digest) {
            return user;
        }
        let turn = self.logins.acquire().await;
        let turn = turn.map_err(|_| LoginFailure::Unavailable)?;
        // Another request of the same user may have been before this one.
        if let Some(user) = self.running(&digest) {
            return user;
        }
        let usage = self.verify(token).await;
        drop(turn);
        // Not in its turn, for which users with a good token would wait.
        if usage.is_err() {
            tokio::time::sleep(FAILURE_DELAY).await;
        }
        let usage = usage?;
        usage.console().inventory.wait_for_first_lists().await;
        Ok(usage)
    }

    /// Shows a token to the control plane.
    async fn verify(self: &Arc<Self>, token: &BearerToken) -> Result<ConsoleUse, LoginFailure> {
        let tasks = self.tasks.child();
        let connections = self.connector.connect(token, &tasks).await;
        let connections = connections.map_err(|error| {
            tracing::warn!(error = format!("{error:#}"), "a user cannot be connected");
            LoginFailure::Unavailable
        })?;
        match user_name(&*connections.api).await {
            Ok(name) => self.begin(token.digest(), connections, name, tasks),
            Err(error) if is_unauthorized(&error) => Err(LoginFailure::Refused),
            Err(error) => {
                tracing::warn!(%error, "a token cannot be verified");
                Err(LoginFailure::Unavailable)
            }
        }
    }

    fn running(&self, token: &TokenDigest) -> Option<Result<ConsoleUse, LoginFailure>> {
        let consoles = self.consoles.lock();
        let user = consoles.get(token).filter(|user| !user.has_ended())?;
        Some(ConsoleUse::begin(user).ok_or(LoginFailure::TooManyRequests))
    }

    /// Begins the console of a token that was accepted.
    fn begin(
        self: &Arc<Self>,
        token: TokenDigest,
        connections: UserConnections,
        name: Option<String>,
        tasks: TaskGroup,
    ) -> Result<ConsoleUse, LoginFailure> {
        let mut consoles = self.consoles.lock();
        consoles.retain(|_, user| !user.has_ended());
        if let Some(user) = consoles.get(&token) {
            return ConsoleUse::begin(user).ok_or(LoginFailure::TooManyRequests);
        }
        make_room(&mut consoles, name.as_deref())?;
        let api = Arc::clone(&connections.api);
        let connections = checked(connections, &tasks);
        let subject = ConsoleSubject {
            control_plane: self.control_plane.clone(),
            namespace: account_namespace(name.as_deref()).to_owned(),
            user_name: name,
        };
        let console = Console::start(connections, subject, &tasks);
        let user = Arc::new(UserConsole::new(token, console, tasks));
        consoles.insert(token, Arc::clone(&user));
        let usage = ConsoleUse::begin(&user).ok_or(LoginFailure::TooManyRequests)?;
        drop(consoles);
        let this = Arc::clone(self);
        self.tasks
            .spawn(async move { this.supervise(&user, &*api).await });
        Ok(usage)
    }

    /// Drops the console of a user once it has ended, is idle, or the token is refused.
    async fn supervise(&self, user: &UserConsole, api: &dyn Api) {
        let check = async {
            loop {
                tokio::time::sleep(CHECK_INTERVAL).await;
                let name = user_name(api).await;
                if user.is_idle_for(IDLE_TIMEOUT) || name.is_err_and(|e| is_unauthorized(&e)) {
                    return;
                }
            }
        };
        user.shutdown().run_until_triggered(check).await;
        user.shutdown().trigger();
        // The user may have logged in again.
        self.consoles.lock().retain(|_, other| !other.has_ended());
        user.tasks.stop().await;
    }
}

/// The namespace of a service account; empty for another user.
fn account_namespace(name: Option<&str>) -> &str {
    let account = name.and_then(|name| name.strip_prefix("system:serviceaccount:"));
    account
        .and_then(|account| account.split_once(':'))
        .map_or("", |(namespace, _)| namespace)
}

/// Ends the console that is unused for longest, if there are too many: one of the user itself, if it has
/// several.
fn make_room(
    consoles: &mut HashMap<TokenDigest, Arc<UserConsole>>,
    name: Option<&str>,
) -> Result<(), LoginFailure> {
    let is_own =
        |user: &Arc<UserConsole>| name.is_some() && user.console.user_name.as_deref() == name;
    let own = consoles.values().filter(|user| is_own(user)).count();
    let has_too_many = own >= MAX_CONSOLES_OF_USER;
    if !has_too_many && consoles.len() < MAX_CONSOLES {
        return Ok(());
    }
    let users = consoles
        .values()
        .filter(|user| !has_too_many || is_own(user));
    let idle = users.filter_map(|user| Some((user.idle_since()?, user)));
    let (_, oldest) = idle
        .min_by_key(|(since, _)| *since)
        .ok_or(match has_too_many {
            true => LoginFailure::TooManyRequests,
            false => LoginFailure::TooManyUsers,
        })?;
    oldest.shutdown().trigger();
    let token = oldest.token;
    consoles.remove(&token);
    Ok(())
}

/// Connections that end the tasks once the token is refused.
fn checked(connections: UserConnections, tasks: &TaskGroup) -> UserConnections {
    let UserConnections {
        api,
        streams,
        examiner,
    } = connections;
    let user = tasks.shutdown().clone();
    UserConnections {
        api: Arc::new(CheckedConnection {
            inner: Arc::clone(&api),
            api: Arc::clone(&api),
            user: user.clone(),
        }),
        streams: Arc::new(CheckedConnection::<dyn StreamOpener> {
            inner: streams,
            api,
            user,
        }),
        examiner,
    }
}

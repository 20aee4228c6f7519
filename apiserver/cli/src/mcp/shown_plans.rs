//! Remembers the plans that this process has shown: a change is made only as one of them says.

use std::collections::VecDeque;

use anyhow::bail;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// Plans that can be carried out at once; the oldest is forgotten.
const MAX_PLANS: usize = 64;

/// The tokens of the plans that were shown. A token is a keyed hash of a plan's whole content, so
/// that it stands for nothing else, and only for this process.
pub(super) struct ShownPlans {
    key: [u8; 32],
    tokens: Mutex<VecDeque<String>>,
}

impl ShownPlans {
    pub(super) fn new() -> Self {
        Self {
            key: rand::random(),
            tokens: Mutex::default(),
        }
    }

    fn token_of(&self, content: &str) -> String {
        let hash = Sha256::new()
            .chain_update(self.key)
            .chain_update(content)
            .finalize();
        let bytes = hash.iter().take(16);
        bytes.map(|byte| format!("{byte:02x}")).collect()
    }

    /// Remembers that a plan was shown, and returns its token.
    pub(super) fn show(&self, content: &str) -> String {
        let token = self.token_of(content);
        let mut tokens = self.tokens.lock();
        tokens.retain(|other| *other != token);
        if tokens.len() == MAX_PLANS {
            tokens.pop_front();
        }
        tokens.push_back(token.clone());
        token
    }

    /// Takes the token of a plan that is as it was shown. It holds once.
    pub(super) fn take(&self, content: &str, token: &str) -> anyhow::Result<()> {
        let mut tokens = self.tokens.lock();
        let Some(index) = tokens.iter().position(|shown| shown == token) else {
            bail!(
                "no plan with this token was shown in this session, or it was carried out; nothing was changed"
            );
        };
        tokens.remove(index);
        if self.token_of(content) != token {
            bail!(
                "the content, or what it would do, is not as it was shown with this token; nothing was changed, show it again"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: MCP-plan-first
    #[test]
    fn a_token_stands_for_one_plan_once() {
        let plans = ShownPlans::new();
        let token = plans.show("a");
        assert_eq!(token.len(), 32);
        assert!(plans.take("a", "other").is_err());
        plans.take("a", &token).unwrap();
        assert!(plans.take("a", &token).is_err(), "it was carried out");
        let token = plans.show("a");
        assert!(plans.take("b", &token).is_err(), "another plan");
        assert!(plans.take("a", &token).is_err(), "it was used");
        assert_ne!(ShownPlans::new().show("a"), plans.show("a"));
        let first = plans.show("first");
        for number in 0..MAX_PLANS {
            plans.show(&number.to_string());
        }
        assert!(plans.take("first", &first).is_err());
    }
}

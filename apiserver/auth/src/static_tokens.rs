//! Static bearer tokens of a file (`--token-auth-file`): one line for each token, with
//! token, user, uid and optionally groups, separated by commas.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use machinery::UserInfo;
use machinery::user::ALL_AUTHENTICATED;
use sha2::{Digest, Sha256};

/// The users of the tokens, by the digest of the token: lookups take the same time
/// whatever part of a token is right.
pub struct StaticTokens(HashMap<[u8; 32], Arc<UserInfo>>);

impl fmt::Debug for StaticTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StaticTokens({})", self.0.len())
    }
}

impl StaticTokens {
    /// Reads the content of a token file. The error names the line and quotes nothing.
    pub fn parse(file: &str) -> Result<Self, String> {
        let mut users = HashMap::new();
        for (number, line) in (1..).zip(file.lines()) {
            if line.is_empty() {
                continue;
            }
            let malformed = |message: &str| format!("line {number} {message}");
            let fields = csv_fields(line).ok_or_else(|| malformed("has an unclosed quote"))?;
            let [token, name, uid, groups @ ..] = fields.as_slice() else {
                return Err(malformed(
                    "must have at least token, user name and user uid",
                ));
            };
            if token.is_empty() || name.is_empty() {
                return Err(malformed("has an empty token or user name"));
            }
            let mut groups: Vec<String> = match groups.first() {
                Some(groups) if !groups.is_empty() => {
                    groups.split(',').map(str::to_owned).collect()
                }
                _ => Vec::new(),
            };
            if !groups.iter().any(|group| group == ALL_AUTHENTICATED) {
                groups.push(ALL_AUTHENTICATED.into());
            }
            let user = UserInfo {
                name: name.clone(),
                uid: uid.clone(),
                groups,
                ..UserInfo::default()
            };
            let digest: [u8; 32] = Sha256::digest(token).into();
            if users.insert(digest, Arc::new(user)).is_some() {
                return Err(malformed("repeats a token"));
            }
        }
        Ok(Self(users))
    }

    pub(crate) fn user(&self, token: &str) -> Option<Arc<UserInfo>> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        self.0.get(&digest).cloned()
    }
}

/// The fields of a line of comma-separated values (RFC 4180); `None` if a quote is open.
fn csv_fields(line: &str) -> Option<Vec<String>> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        let field = fields.last_mut()?;
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            '"' if quoted || field.is_empty() => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            other => field.push(other),
        }
    }
    (!quoted).then_some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_users_and_groups() {
        let file = "t1,ann,u1\n\nt2,bob,u2,\"a,b\"\nt3,\"x \"\"y\"\"\",u3,c\n";
        let tokens = StaticTokens::parse(file).unwrap();
        let groups = |token: &str| tokens.user(token).unwrap().groups.join(" ");
        assert_eq!(tokens.user("t1").unwrap().name, "ann");
        assert_eq!(groups("t1"), "system:authenticated");
        assert_eq!(groups("t2"), "a b system:authenticated");
        assert_eq!(tokens.user("t3").unwrap().name, "x \"y\"");
        for unknown in ["", "t", "t1 ", "T1", "ann"] {
            assert!(tokens.user(unknown).is_none(), "{unknown}");
        }
    }

    #[test]
    fn malformed_files_are_refused_without_quoting_a_token() {
        for file in [
            "secret",
            "secret,ann",
            "a,b,c\n,ann,u",
            "secret,,u",
            "secret,\"a,u",
            "secret,a,u\nsecret,b,v",
        ] {
            let error = StaticTokens::parse(file).unwrap_err();
            assert!(
                error.starts_with("line ") && !error.contains("secret"),
                "{error}"
            );
        }
    }
}

//! Splits the text of an expression into tokens.

use super::escapes::unescape;
use super::{Position, SyntaxError};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Int(i64),
    /// 2^63, which is only valid after a minus sign.
    MinInt,
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
    Identifier(String),
    /// An identifier in backticks, which may hold dots, dashes and slashes.
    QuotedIdentifier(String),
    Symbol(&'static str),
    End,
}

impl Token {
    /// The token in an error message.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::End => "<EOF>".to_owned(),
            Self::Symbol(text) => (*text).to_owned(),
            Self::Identifier(name) | Self::QuotedIdentifier(name) => name.clone(),
            Self::Int(n) => n.to_string(),
            Self::MinInt => i64::MIN.unsigned_abs().to_string(),
            Self::Uint(n) => format!("{n}u"),
            Self::Double(n) => n.to_string(),
            Self::String(text) => format!("{text:?}"),
            Self::Bytes(_) => "bytes".to_owned(),
        }
    }
}

/// Longer symbols come before those that they begin with.
const SYMBOLS: [&str; 24] = [
    "==", "!=", "<=", ">=", "&&", "||", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":",
    "+", "*", "/", "%", "<", ">",
];

pub(super) fn tokens(source: &str) -> Result<Vec<(Token, Position)>, SyntaxError> {
    let mut lexer = Lexer {
        chars: source.chars().collect(),
        at: 0,
    };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blanks();
        let at = lexer.position();
        let token = lexer.token(at)?;
        let end = token == Token::End;
        tokens.push((token, at));
        if end {
            return Ok(tokens);
        }
    }
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
}

impl Lexer {
    fn position(&self) -> Position {
        Position(u32::try_from(self.at).unwrap_or(u32::MAX))
    }

    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.at + ahead).copied().unwrap_or('\0')
    }

    fn skip_blanks(&mut self) {
        loop {
            match self.peek(0) {
                ' ' | '\t' | '\n' | '\r' | '\x0c' => self.at += 1,
                '/' if self.peek(1) == '/' => {
                    while self.at < self.chars.len() && self.peek(0) != '\n' {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    fn token(&mut self, at: Position) -> Result<Token, SyntaxError> {
        if self.at >= self.chars.len() {
            return Ok(Token::End);
        }
        let c = self.peek(0);
        if let Some((raw, bytes, prefix)) = self.string_prefix() {
            self.at += prefix;
            return self.string(raw, bytes, at);
        }
        if c.is_ascii_digit() || c == '.' && self.peek(1).is_ascii_digit() {
            return self.number(at);
        }
        if c.is_ascii_alphabetic() || c == '_' {
            let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            return Ok(Token::Identifier(self.take_while(word)));
        }
        if c == '`' {
            return self.quoted_identifier(at);
        }
        let symbol = SYMBOLS
            .iter()
            .find(|s| s.chars().enumerate().all(|(i, c)| self.peek(i) == c));
        let Some(symbol) = symbol else {
            let why = format!("Syntax error: token recognition error at: '{c}'");
            return Err(SyntaxError::new(at, why));
        };
        self.at += symbol.len();
        Ok(Token::Symbol(symbol))
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> String {
        let begin = self.at;
        while self.at < self.chars.len() && accept(self.peek(0)) {
            self.at += 1;
        }
        self.chars[begin..self.at].iter().collect()
    }

    fn quoted_identifier(&mut self, at: Position) -> Result<Token, SyntaxError> {
        self.at += 1;
        let inner = |c: char| c.is_ascii_alphanumeric() || "_.-/ ".contains(c);
        let name = self.take_while(inner);
        if name.is_empty() || self.peek(0) != '`' {
            let why = "Syntax error: token recognition error at: '`'";
            return Err(SyntaxError::new(at, why));
        }
        self.at += 1;
        Ok(Token::QuotedIdentifier(name))
    }

    fn number(&mut self, at: Position) -> Result<Token, SyntaxError> {
        let digit = |c: char| c.is_ascii_digit();
        if self.peek(0) == '0' && matches!(self.peek(1), 'x' | 'X') {
            self.at += 2;
            let digits = self.take_while(|c| c.is_ascii_hexdigit());
            return self.integer(&digits, 16, at);
        }
        let mut text = self.take_while(digit);
        let mut whole = true;
        if self.peek(0) == '.' && digit(self.peek(1)) {
            whole = false;
            self.at += 1;
            text = format!("{text}.{}", self.take_while(digit));
        }
        let sign = usize::from(matches!(self.peek(1), '+' | '-'));
        if matches!(self.peek(0), 'e' | 'E') && digit(self.peek(1 + sign)) {
            whole = false;
            let sign = if self.peek(1) == '-' { "-" } else { "" };
            self.at += 1 + usize::from(matches!(self.peek(1), '+' | '-'));
            text = format!("{text}e{sign}{}", self.take_while(digit));
        }
        if whole {
            return self.integer(&text, 10, at);
        }
        match text.parse::<f64>() {
            Ok(n) if n.is_finite() => Ok(Token::Double(n)),
            _ => Err(SyntaxError::new(at, "invalid double literal")),
        }
    }

    fn integer(&mut self, digits: &str, radix: u32, at: Position) -> Result<Token, SyntaxError> {
        let unsigned = matches!(self.peek(0), 'u' | 'U');
        let value = u64::from_str_radix(digits, radix);
        if unsigned {
            self.at += 1;
            let invalid = |_| SyntaxError::new(at, "invalid uint literal");
            return value.map(Token::Uint).map_err(invalid);
        }
        match value {
            Ok(n) if n == i64::MIN.unsigned_abs() => Ok(Token::MinInt),
            Ok(n) => i64::try_from(n)
                .map(Token::Int)
                .map_err(|_| SyntaxError::new(at, "invalid int literal")),
            Err(_) => Err(SyntaxError::new(at, "invalid int literal")),
        }
    }

    /// Whether a string begins here: raw, of bytes, and the length of its prefix.
    fn string_prefix(&self) -> Option<(bool, bool, usize)> {
        let (mut raw, mut bytes) = (false, false);
        for ahead in 0..3 {
            match self.peek(ahead) {
                '"' | '\'' => return Some((raw, bytes, ahead)),
                'r' | 'R' if !raw => raw = true,
                'b' | 'B' if !bytes => bytes = true,
                _ => return None,
            }
        }
        None
    }

    fn string(&mut self, raw: bool, bytes: bool, at: Position) -> Result<Token, SyntaxError> {
        let quote = self.peek(0);
        let triple = self.peek(1) == quote && self.peek(2) == quote;
        let quotes = if triple { 3 } else { 1 };
        self.at += quotes;
        let begin = self.at;
        while !(0..quotes).all(|i| self.peek(i) == quote) {
            let c = self.peek(0);
            if self.at >= self.chars.len() || !triple && matches!(c, '\n' | '\r') {
                let why = format!("Syntax error: token recognition error at: '{quote}'");
                return Err(SyntaxError::new(at, why));
            }
            self.at += if c == '\\' && !raw { 2 } else { 1 };
        }
        let inner = &self.chars[begin..self.at.min(self.chars.len())];
        self.at += quotes;
        if raw {
            let text: String = inner.iter().collect();
            return Ok(if bytes {
                Token::Bytes(text.into_bytes())
            } else {
                Token::String(text)
            });
        }
        let invalid = |why| SyntaxError::new(at, why);
        if bytes {
            return unescape(inner, true).map(Token::Bytes).map_err(invalid);
        }
        let text = unescape(inner, false).map_err(invalid)?;
        let text = String::from_utf8(text).map_err(|_| invalid("invalid string literal"))?;
        Ok(Token::String(text))
    }
}

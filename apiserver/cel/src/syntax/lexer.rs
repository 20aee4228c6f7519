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

/// A longer symbol comes before its own prefixes.
const SYMBOLS: [&str; 24] = [
    "==", "!=", "<=", ">=", "&&", "||", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":",
    "+", "*", "/", "%", "<", ">",
];

pub(super) fn tokens(source: &str) -> Result<Vec<(Token, Position)>, SyntaxError> {
    let mut lexer = Lexer {
        chars: source.chars().collect(),
        offset: 0,
    };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blanks();
        let position = lexer.position();
        let token = lexer.token(position)?;
        let end = token == Token::End;
        tokens.push((token, position));
        if end {
            return Ok(tokens);
        }
    }
}

struct Lexer {
    chars: Vec<char>,
    offset: usize,
}

impl Lexer {
    fn position(&self) -> Position {
        Position(u32::try_from(self.offset).unwrap_or(u32::MAX))
    }

    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.offset + ahead).copied().unwrap_or('\0')
    }

    fn skip_blanks(&mut self) {
        loop {
            match self.peek(0) {
                ' ' | '\t' | '\n' | '\r' | '\x0c' => self.offset += 1,
                '/' if self.peek(1) == '/' => {
                    while self.offset < self.chars.len() && self.peek(0) != '\n' {
                        self.offset += 1;
                    }
                }
                _ => return,
            }
        }
    }

    fn token(&mut self, position: Position) -> Result<Token, SyntaxError> {
        if self.offset >= self.chars.len() {
            return Ok(Token::End);
        }
        let c = self.peek(0);
        if let Some((raw, bytes, prefix)) = self.string_prefix() {
            self.offset += prefix;
            return self.string(raw, bytes, position);
        }
        if c.is_ascii_digit() || c == '.' && self.peek(1).is_ascii_digit() {
            return self.number(position);
        }
        if c.is_ascii_alphabetic() || c == '_' {
            let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            return Ok(Token::Identifier(self.take_while(word)));
        }
        if c == '`' {
            return self.quoted_identifier(position);
        }
        let symbol = SYMBOLS
            .iter()
            .find(|s| s.chars().enumerate().all(|(i, c)| self.peek(i) == c));
        let Some(symbol) = symbol else {
            let message = format!("Syntax error: token recognition error at: '{c}'");
            return Err(SyntaxError::new(position, message));
        };
        self.offset += symbol.len();
        Ok(Token::Symbol(symbol))
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> String {
        let begin = self.offset;
        while self.offset < self.chars.len() && accept(self.peek(0)) {
            self.offset += 1;
        }
        self.chars[begin..self.offset].iter().collect()
    }

    fn quoted_identifier(&mut self, position: Position) -> Result<Token, SyntaxError> {
        self.offset += 1;
        let inner = |c: char| c.is_ascii_alphanumeric() || "_.-/ ".contains(c);
        let name = self.take_while(inner);
        if name.is_empty() || self.peek(0) != '`' {
            let message = "Syntax error: token recognition error at: '`'";
            return Err(SyntaxError::new(position, message));
        }
        self.offset += 1;
        Ok(Token::QuotedIdentifier(name))
    }

    fn number(&mut self, position: Position) -> Result<Token, SyntaxError> {
        let digit = |c: char| c.is_ascii_digit();
        if self.peek(0) == '0' && matches!(self.peek(1), 'x' | 'X') {
            self.offset += 2;
            let digits = self.take_while(|c| c.is_ascii_hexdigit());
            return self.integer(&digits, 16, position);
        }
        let mut text = self.take_while(digit);
        let mut is_integer = true;
        if self.peek(0) == '.' && digit(self.peek(1)) {
            is_integer = false;
            self.offset += 1;
            text = format!("{text}.{}", self.take_while(digit));
        }
        let sign = usize::from(matches!(self.peek(1), '+' | '-'));
        if matches!(self.peek(0), 'e' | 'E') && digit(self.peek(1 + sign)) {
            is_integer = false;
            let sign = if self.peek(1) == '-' { "-" } else { "" };
            self.offset += 1 + usize::from(matches!(self.peek(1), '+' | '-'));
            text = format!("{text}e{sign}{}", self.take_while(digit));
        }
        if is_integer {
            return self.integer(&text, 10, position);
        }
        match text.parse::<f64>() {
            Ok(n) if n.is_finite() => Ok(Token::Double(n)),
            _ => Err(SyntaxError::new(position, "invalid double literal")),
        }
    }

    fn integer(
        &mut self,
        digits: &str,
        radix: u32,
        position: Position,
    ) -> Result<Token, SyntaxError> {
        let unsigned = matches!(self.peek(0), 'u' | 'U');
        let value = u64::from_str_radix(digits, radix);
        if unsigned {
            self.offset += 1;
            let invalid = |_| SyntaxError::new(position, "invalid uint literal");
            return value.map(Token::Uint).map_err(invalid);
        }
        match value {
            Ok(n) if n == i64::MIN.unsigned_abs() => Ok(Token::MinInt),
            Ok(n) => i64::try_from(n)
                .map(Token::Int)
                .map_err(|_| SyntaxError::new(position, "invalid int literal")),
            Err(_) => Err(SyntaxError::new(position, "invalid int literal")),
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

    fn string(&mut self, raw: bool, bytes: bool, position: Position) -> Result<Token, SyntaxError> {
        let quote = self.peek(0);
        let triple = self.peek(1) == quote && self.peek(2) == quote;
        let quotes = if triple { 3 } else { 1 };
        self.offset += quotes;
        let begin = self.offset;
        while !(0..quotes).all(|i| self.peek(i) == quote) {
            let c = self.peek(0);
            if self.offset >= self.chars.len() || !triple && matches!(c, '\n' | '\r') {
                let message = format!("Syntax error: token recognition error at: '{quote}'");
                return Err(SyntaxError::new(position, message));
            }
            self.offset += if c == '\\' && !raw { 2 } else { 1 };
        }
        let inner = &self.chars[begin..self.offset.min(self.chars.len())];
        self.offset += quotes;
        if raw {
            let text: String = inner.iter().collect();
            return Ok(if bytes {
                Token::Bytes(text.into_bytes())
            } else {
                Token::String(text)
            });
        }
        let invalid = |message| SyntaxError::new(position, message);
        if bytes {
            return unescape(inner, true).map(Token::Bytes).map_err(invalid);
        }
        let text = unescape(inner, false).map_err(invalid)?;
        let text = String::from_utf8(text).map_err(|_| invalid("invalid string literal"))?;
        Ok(Token::String(text))
    }
}

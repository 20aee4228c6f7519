//! A recursive-descent parser of CEL's grammar.

use super::ast::{Expr, ExprKind, Literal, MapEntry};
use super::lexer::{Token, tokens};
use super::{MAX_DEPTH, MAX_EXPRESSION_CHARS, Position, SyntaxError, macros};

/// Words that cannot be identifiers.
pub(crate) const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Binary operators by precedence, the weakest first, with the functions that they call.
const COMPARISONS: [(&str, &str); 7] = [
    ("==", "_==_"),
    ("!=", "_!=_"),
    ("<=", "_<=_"),
    (">=", "_>=_"),
    ("<", "_<_"),
    (">", "_>_"),
    ("in", "@in"),
];
const SUMS: [(&str, &str); 2] = [("+", "_+_"), ("-", "_-_")];
const PRODUCTS: [(&str, &str); 3] = [("*", "_*_"), ("/", "_/_"), ("%", "_%_")];

type Parsed = Result<Expr, SyntaxError>;

pub(crate) fn parse(source: &str) -> Parsed {
    if source.chars().nth(MAX_EXPRESSION_CHARS).is_some() {
        let message = format!("expression code point size exceeds limit: {MAX_EXPRESSION_CHARS}");
        return Err(SyntaxError::new(Position(0), message));
    }
    let mut parser = Parser {
        tokens: tokens(source)?,
        next: 0,
        depth: 0,
    };
    let expr = parser.expression()?;
    match parser.peek() {
        Token::End => Ok(expr),
        _ => Err(parser.unexpected("<EOF>")),
    }
}

struct Parser {
    tokens: Vec<(Token, Position)>,
    next: usize,
    /// How many rules of the grammar are nested now.
    depth: u16,
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.next).map_or(&Token::End, |(t, _)| t)
    }

    fn position(&self) -> Position {
        let last = self
            .tokens
            .last()
            .map_or(Position(0), |(_, position)| *position);
        self.tokens
            .get(self.next)
            .map_or(last, |(_, position)| *position)
    }

    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.next += 1;
        token
    }

    /// Takes the symbol if it comes next; returns its position.
    fn accept(&mut self, symbol: &str) -> Option<Position> {
        let position = self.position();
        let matches = match self.peek() {
            Token::Symbol(s) => *s == symbol,
            Token::Identifier(word) => symbol == "in" && word == "in",
            _ => false,
        };
        matches.then(|| {
            self.next += 1;
            position
        })
    }

    fn expect(&mut self, symbol: &str) -> Result<Position, SyntaxError> {
        match self.accept(symbol) {
            Some(at) => Ok(at),
            None => Err(self.unexpected(&format!("'{symbol}'"))),
        }
    }

    fn unexpected(&self, expected: &str) -> SyntaxError {
        let token = self.peek().describe();
        let message = format!("Syntax error: mismatched input '{token}' expecting {expected}");
        SyntaxError::new(self.position(), message)
    }

    /// Runs a rule of the grammar one level deeper.
    fn nested(&mut self, rule: impl FnOnce(&mut Self) -> Parsed) -> Parsed {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let message = format!("expression recursion limit exceeded: {MAX_DEPTH}");
            return Err(SyntaxError::new(self.position(), message));
        }
        let parsed = rule(self);
        self.depth -= 1;
        parsed
    }

    fn expression(&mut self) -> Parsed {
        self.nested(|parser| {
            let condition = parser.disjunction()?;
            let Some(position) = parser.accept("?") else {
                return Ok(condition);
            };
            let if_true = parser.disjunction()?;
            parser.expect(":")?;
            let if_false = parser.expression()?;
            Expr::call(position, "_?_:_", vec![condition, if_true, if_false])
        })
    }

    fn disjunction(&mut self) -> Parsed {
        self.logical("||", "_||_", Self::conjunction)
    }

    fn conjunction(&mut self) -> Parsed {
        self.logical("&&", "_&&_", Self::comparison)
    }

    /// A chain of one logical operator, as a balanced tree: such chains are long.
    fn logical(
        &mut self,
        symbol: &str,
        function: &str,
        operand: impl Fn(&mut Self) -> Parsed,
    ) -> Parsed {
        let mut terms = vec![operand(self)?];
        let mut operators = Vec::new();
        while let Some(position) = self.accept(symbol) {
            operators.push(position);
            terms.push(operand(self)?);
        }
        balance(function, terms, &operators)
    }

    fn comparison(&mut self) -> Parsed {
        self.chain(&COMPARISONS, |parser| {
            parser.chain(&SUMS, |parser| parser.chain(&PRODUCTS, Self::unary))
        })
    }

    fn chain(
        &mut self,
        operators: &[(&str, &str)],
        operand: impl Fn(&mut Self) -> Parsed,
    ) -> Parsed {
        let mut left = operand(self)?;
        'next: loop {
            for (symbol, function) in operators {
                if let Some(position) = self.accept(symbol) {
                    let right = operand(self)?;
                    left = Expr::call(position, function, vec![left, right])?;
                    continue 'next;
                }
            }
            return Ok(left);
        }
    }

    fn unary(&mut self) -> Parsed {
        for (symbol, function) in [("!", "!_"), ("-", "-_")] {
            let Some(position) = self.accept(symbol) else {
                continue;
            };
            if symbol == "-"
                && let Some(literal) = self.negative_literal(position)
            {
                return self.member(literal);
            }
            let mut count = 1;
            while self.accept(symbol).is_some() {
                count += 1;
            }
            let operand = self.primary_with_members()?;
            // An even number of the same operator cancels out.
            return match count % 2 {
                0 => Ok(operand),
                _ => Expr::call(position, function, vec![operand]),
            };
        }
        self.primary_with_members()
    }

    fn negative_literal(&mut self, position: Position) -> Option<Expr> {
        let literal = match *self.peek() {
            Token::Int(n) => Literal::Int(-n),
            Token::MinInt => Literal::Int(i64::MIN),
            Token::Double(n) => Literal::Double(-n),
            _ => return None,
        };
        self.next += 1;
        Some(Expr::literal(position, literal))
    }

    fn primary_with_members(&mut self) -> Parsed {
        let primary = self.primary()?;
        self.member(primary)
    }

    /// Field selections, calls and indexes after an operand.
    fn member(&mut self, mut operand: Expr) -> Parsed {
        loop {
            if let Some(position) = self.accept(".") {
                let optional = self.accept("?").is_some();
                let quoted = matches!(self.peek(), Token::QuotedIdentifier(_));
                let field = self.field_name()?;
                if optional {
                    let name = Expr::literal(position, Literal::String(field));
                    operand = Expr::call(position, "_?._", vec![operand, name])?;
                    continue;
                }
                let open = self.position();
                if !quoted && self.accept("(").is_some() {
                    let arguments = self.arguments()?;
                    operand = macros::receiver_call(open, operand, &field, arguments)?;
                    continue;
                }
                let kind = ExprKind::Select {
                    operand: Box::new(operand),
                    field,
                    test: false,
                };
                operand = Expr::new(position, kind)?;
            } else if let Some(position) = self.accept("[") {
                let optional = self.accept("?").is_some();
                let index = self.expression()?;
                self.expect("]")?;
                let function = if optional { "_[?_]" } else { "_[_]" };
                operand = Expr::call(position, function, vec![operand, index])?;
            } else if matches!(self.peek(), Token::Symbol("{")) {
                let Some(name) = qualified_name(&operand) else {
                    return Ok(operand);
                };
                let position = self.expect("{")?;
                let entries = self.struct_entries()?;
                operand = Expr::new(position, ExprKind::Struct { name, entries })?;
            } else {
                return Ok(operand);
            }
        }
    }

    fn field_name(&mut self) -> Result<String, SyntaxError> {
        match self.peek() {
            Token::Identifier(name) if !matches!(&**name, "true" | "false" | "null" | "in") => {}
            Token::QuotedIdentifier(_) => {}
            _ => return Err(self.unexpected("IDENTIFIER")),
        }
        match self.take() {
            Token::Identifier(name) | Token::QuotedIdentifier(name) => Ok(name),
            _ => Err(self.unexpected("IDENTIFIER")),
        }
    }

    fn arguments(&mut self) -> Result<Vec<Expr>, SyntaxError> {
        let mut arguments = Vec::new();
        while self.accept(")").is_none() {
            if !arguments.is_empty() {
                self.expect(",")?;
            }
            arguments.push(self.expression()?);
        }
        Ok(arguments)
    }

    fn primary(&mut self) -> Parsed {
        let position = self.position();
        let literal = match self.peek().clone() {
            Token::Int(n) => Literal::Int(n),
            Token::Uint(n) => Literal::Uint(n),
            Token::Double(n) => Literal::Double(n),
            Token::String(text) => Literal::String(text),
            Token::Bytes(bytes) => Literal::Bytes(bytes),
            Token::MinInt => return Err(SyntaxError::new(position, "invalid int literal")),
            Token::Identifier(name) => match &*name {
                "true" | "false" => Literal::Bool(name == "true"),
                "null" => Literal::Null,
                _ => return self.identifier(),
            },
            Token::Symbol("(") => {
                self.next += 1;
                let inner = self.expression()?;
                self.expect(")")?;
                return Ok(inner);
            }
            Token::Symbol("[") => return self.list(),
            Token::Symbol("{") => return self.map(),
            // A leading dot names the root of the namespace, which is all that there is.
            Token::Symbol(".") => {
                self.next += 1;
                return self.identifier();
            }
            _ => {
                return Err(self.unexpected("{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"));
            }
        };
        self.next += 1;
        Ok(Expr::literal(position, literal))
    }

    fn identifier(&mut self) -> Parsed {
        let position = self.position();
        let Token::Identifier(name) = self.peek().clone() else {
            return Err(self.unexpected("IDENTIFIER"));
        };
        if name == "in" {
            return Err(self.unexpected("IDENTIFIER"));
        }
        if RESERVED.contains(&&*name) {
            return Err(SyntaxError::new(
                position,
                format!("reserved identifier: {name}"),
            ));
        }
        self.next += 1;
        let open = self.position();
        if self.accept("(").is_none() {
            return Ok(Expr::identifier(position, &name));
        }
        let arguments = self.arguments()?;
        macros::global_call(open, &name, arguments)
    }

    fn list(&mut self) -> Parsed {
        let position = self.expect("[")?;
        let mut elements = Vec::new();
        while self.accept("]").is_none() {
            if !elements.is_empty() {
                self.expect(",")?;
                if self.accept("]").is_some() {
                    break;
                }
            }
            let optional = self.accept("?").is_some();
            elements.push((self.expression()?, optional));
        }
        Expr::new(position, ExprKind::List(elements))
    }

    fn map(&mut self) -> Parsed {
        let position = self.expect("{")?;
        let entries = self.entries(Self::expression)?;
        Expr::new(position, ExprKind::Map(entries))
    }

    fn struct_entries(&mut self) -> Result<Vec<MapEntry>, SyntaxError> {
        self.entries(|parser| {
            let position = parser.position();
            let name = parser.field_name()?;
            Ok(Expr::literal(position, Literal::String(name)))
        })
    }

    fn entries(&mut self, key: impl Fn(&mut Self) -> Parsed) -> Result<Vec<MapEntry>, SyntaxError> {
        let mut entries = Vec::new();
        while self.accept("}").is_none() {
            if !entries.is_empty() {
                self.expect(",")?;
                if self.accept("}").is_some() {
                    break;
                }
            }
            let optional = self.accept("?").is_some();
            let key = key(self)?;
            self.expect(":")?;
            let value = self.expression()?;
            entries.push(MapEntry {
                key,
                value,
                optional,
            });
        }
        Ok(entries)
    }
}

/// The dotted name that an expression spells: `a.b.c`.
pub(super) fn qualified_name(expr: &Expr) -> Option<String> {
    match &expr.kind {
        ExprKind::Identifier(name) => Some(name.clone()),
        ExprKind::Select {
            operand,
            field,
            test: false,
        } => Some(format!("{}.{field}", qualified_name(operand)?)),
        _ => None,
    }
}

fn balance(function: &str, mut terms: Vec<Expr>, operators: &[Position]) -> Parsed {
    let Some(middle) = operators.len().checked_div(2).filter(|_| terms.len() > 1) else {
        let position = operators.first().copied().unwrap_or_default();
        return terms
            .pop()
            .ok_or_else(|| SyntaxError::new(position, "empty"));
    };
    let right = terms.split_off(middle + 1);
    let left = balance(function, terms, &operators[..middle])?;
    let right = balance(function, right, &operators[middle + 1..])?;
    Expr::call(operators[middle], function, vec![left, right])
}

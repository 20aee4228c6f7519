//! Expands macros while an expression is parsed: the macros of CEL's standard library, of optional
//! types, and of comprehensions with two variables (`cel-go/parser/macro.go`,
//! `cel-go/ext/comprehensions.go`).

use super::ast::{Comprehension, Expr, ExprKind, Literal, MapEntry};
use super::{Position, SyntaxError};

/// The accumulator of a macro. No identifier in a text can be spelled so.
const ACCUMULATOR: &str = "@result";
/// The variable of a loop that does not run.
const UNUSED: &str = "#unused";

type Expanded = Result<Expr, SyntaxError>;

pub(super) fn global_call(position: Position, function: &str, arguments: Vec<Expr>) -> Expanded {
    if function == "has" && arguments.len() == 1 {
        return expand_has(position, arguments);
    }
    Expr::call(position, function, arguments)
}

pub(super) fn receiver_call(
    position: Position,
    target: Expr,
    function: &str,
    arguments: Vec<Expr>,
) -> Expanded {
    let expand: Option<fn(&mut Expansion) -> Expanded> = match (function, arguments.len()) {
        ("all", 2 | 3) => Some(Expansion::all),
        ("exists", 2 | 3) => Some(Expansion::exists),
        ("exists_one" | "existsOne", 2 | 3) => Some(Expansion::exists_one),
        ("map", 2 | 3) => Some(Expansion::map),
        ("filter", 2) => Some(Expansion::filter),
        ("transformList", 3 | 4) => Some(Expansion::transform_list),
        ("transformMap", 3 | 4) => Some(Expansion::transform_map),
        ("transformMapEntry", 3 | 4) => Some(Expansion::transform_map_entry),
        ("sortBy", 2) => Some(Expansion::sort_by),
        ("optMap" | "optFlatMap", 2) => {
            return expand_opt_map(position, target, arguments, function == "optFlatMap");
        }
        _ => None,
    };
    let Some(expand) = expand else {
        let kind = ExprKind::Call {
            function: function.to_owned(),
            target: Some(Box::new(target)),
            arguments,
        };
        return Expr::new(position, kind);
    };
    let variables = match function {
        "map" | "filter" | "sortBy" => 1,
        "transformList" | "transformMap" | "transformMapEntry" => 2,
        _ => arguments.len() - 1,
    };
    expand(&mut Expansion::new(position, target, arguments, variables)?)
}

fn expand_has(position: Position, mut arguments: Vec<Expr>) -> Expanded {
    let argument = arguments.pop().map(|a| a.kind);
    let Some(ExprKind::Select {
        operand,
        field,
        test: false,
    }) = argument
    else {
        return Err(SyntaxError::new(
            position,
            "invalid argument to has() macro",
        ));
    };
    let kind = ExprKind::Select {
        operand,
        field,
        test: true,
    };
    Expr::new(position, kind)
}

/// `target.optMap(v, f)`: `f` with `v` bound to the value, if there is one.
fn expand_opt_map(
    position: Position,
    target: Expr,
    mut arguments: Vec<Expr>,
    flat: bool,
) -> Expanded {
    let (Some(body), Some(variable)) = (arguments.pop(), arguments.pop()) else {
        return Err(SyntaxError::new(position, "optMap() takes two arguments"));
    };
    let variable = simple_identifier(
        &variable,
        "optMap() variable name must be a simple identifier",
    )?;
    let member = |target: Expr, function: &str| {
        let kind = ExprKind::Call {
            function: function.to_owned(),
            target: Some(Box::new(target)),
            arguments: Vec::new(),
        };
        Expr::new(position, kind)
    };
    let body = if flat {
        body
    } else {
        Expr::call(position, "optional.of", vec![body])?
    };
    // A loop over nothing binds the variable.
    let bound = ExprKind::Comprehension(Box::new(Comprehension {
        range: Expr::new(position, ExprKind::List(Vec::new()))?,
        variable: UNUSED.to_owned(),
        second_variable: None,
        accumulator: variable.clone(),
        init: member(target.clone(), "value")?,
        condition: Expr::literal(position, Literal::Bool(false)),
        step: Expr::identifier(position, &variable),
        result: body,
    }));
    let optional_none = Expr::call(position, "optional.none", Vec::new())?;
    let has_value = member(target, "hasValue")?;
    Expr::call(
        position,
        "_?_:_",
        vec![has_value, Expr::new(position, bound)?, optional_none],
    )
}

fn simple_identifier(expr: &Expr, message: &str) -> Result<String, SyntaxError> {
    match &expr.kind {
        ExprKind::Identifier(name) if name != ACCUMULATOR => Ok(name.clone()),
        _ => Err(SyntaxError::new(expr.position, message)),
    }
}

/// The parts of a macro that becomes a comprehension.
struct Expansion {
    position: Position,
    range: Expr,
    variable: String,
    second_variable: Option<String>,
    /// The arguments after the variables.
    arguments: Vec<Expr>,
}

impl Expansion {
    fn new(
        position: Position,
        range: Expr,
        mut arguments: Vec<Expr>,
        variables: usize,
    ) -> Result<Self, SyntaxError> {
        let rest = arguments.split_off(variables);
        let mut names = Vec::new();
        for variable in &arguments {
            names.push(simple_identifier(
                variable,
                "argument must be a simple name",
            )?);
        }
        if names.len() == 2 && names[0] == names[1] {
            let message = format!("duplicate variable name: {}", names[0]);
            return Err(SyntaxError::new(position, message));
        }
        let mut names = names.into_iter();
        Ok(Self {
            position,
            range,
            variable: names.next().unwrap_or_default(),
            second_variable: names.next(),
            arguments: rest,
        })
    }

    fn literal(&self, literal: Literal) -> Expr {
        Expr::literal(self.position, literal)
    }

    fn accumulator(&self) -> Expr {
        Expr::identifier(self.position, ACCUMULATOR)
    }

    fn call(&self, function: &str, arguments: Vec<Expr>) -> Expanded {
        Expr::call(self.position, function, arguments)
    }

    fn not_strictly_false(&self, expr: Expr) -> Expanded {
        self.call("@not_strictly_false", vec![expr])
    }

    /// The last argument.
    fn body(&mut self) -> Expanded {
        let missing = || SyntaxError::new(self.position, "missing argument");
        self.arguments.pop().ok_or_else(missing)
    }

    /// A step that leaves the accumulator as it is unless the filter, if there is one, holds.
    fn filtered(&mut self, step: Expr) -> Expanded {
        match self.arguments.pop() {
            None => Ok(step),
            Some(filter) => self.call("_?_:_", vec![filter, step, self.accumulator()]),
        }
    }

    fn finish(&mut self, init: Expr, condition: Expr, step: Expr, result: Expr) -> Expanded {
        let unused = Expr::identifier(self.position, UNUSED);
        let comprehension = Comprehension {
            range: std::mem::replace(&mut self.range, unused),
            variable: std::mem::take(&mut self.variable),
            second_variable: self.second_variable.take(),
            accumulator: ACCUMULATOR.to_owned(),
            init,
            condition,
            step,
            result,
        };
        Expr::new(
            self.position,
            ExprKind::Comprehension(Box::new(comprehension)),
        )
    }

    /// A comprehension that visits every element.
    fn looping(&mut self, init: Expr, step: Expr, result: Expr) -> Expanded {
        let always = self.literal(Literal::Bool(true));
        self.finish(init, always, step, result)
    }

    fn all(&mut self) -> Expanded {
        let body = self.body()?;
        let condition = self.not_strictly_false(self.accumulator())?;
        let step = self.call("_&&_", vec![self.accumulator(), body])?;
        let (init, result) = (self.literal(Literal::Bool(true)), self.accumulator());
        self.finish(init, condition, step, result)
    }

    fn exists(&mut self) -> Expanded {
        let body = self.body()?;
        let not_yet = self.call("!_", vec![self.accumulator()])?;
        let condition = self.not_strictly_false(not_yet)?;
        let step = self.call("_||_", vec![self.accumulator(), body])?;
        let (init, result) = (self.literal(Literal::Bool(false)), self.accumulator());
        self.finish(init, condition, step, result)
    }

    fn exists_one(&mut self) -> Expanded {
        let body = self.body()?;
        let literal_one = self.literal(Literal::Int(1));
        let incremented = self.call("_+_", vec![self.accumulator(), literal_one.clone()])?;
        let step = self.call("_?_:_", vec![body, incremented, self.accumulator()])?;
        let result = self.call("_==_", vec![self.accumulator(), literal_one])?;
        let init = self.literal(Literal::Int(0));
        self.looping(init, step, result)
    }

    fn appending(&mut self, element: Expr) -> Expanded {
        let position = self.position;
        let list = Expr::new(position, ExprKind::List(vec![(element, false)]))?;
        let step = self.call("_+_", vec![self.accumulator(), list])?;
        let step = self.filtered(step)?;
        let init = Expr::new(position, ExprKind::List(Vec::new()))?;
        let result = self.accumulator();
        self.looping(init, step, result)
    }

    fn map(&mut self) -> Expanded {
        let element = self.body()?;
        self.appending(element)
    }

    fn transform_list(&mut self) -> Expanded {
        self.map()
    }

    fn filter(&mut self) -> Expanded {
        let element = Expr::identifier(self.position, &self.variable);
        self.appending(element)
    }

    fn transform_map(&mut self) -> Expanded {
        let value = self.body()?;
        let key = Expr::identifier(self.position, &self.variable);
        self.inserting(vec![self.accumulator(), key, value])
    }

    fn transform_map_entry(&mut self) -> Expanded {
        let entries = self.body()?;
        self.inserting(vec![self.accumulator(), entries])
    }

    fn inserting(&mut self, arguments: Vec<Expr>) -> Expanded {
        let step = self.call("cel.@mapInsert", arguments)?;
        let step = self.filtered(step)?;
        let init = Expr::new(self.position, ExprKind::Map(Vec::<MapEntry>::new()))?;
        let result = self.accumulator();
        self.looping(init, step, result)
    }

    /// `list.sortBy(v, key)`: the list, sorted by the keys of its elements.
    fn sort_by(&mut self) -> Expanded {
        let list = self.range.clone();
        if !matches!(
            list.kind,
            ExprKind::Identifier(_)
                | ExprKind::Select { .. }
                | ExprKind::List(_)
                | ExprKind::Call { .. }
                | ExprKind::Comprehension(_)
        ) {
            let message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            return Err(SyntaxError::new(list.position, message));
        }
        let keys = self.map()?;
        let kind = ExprKind::Call {
            function: "@sortByAssociatedKeys".to_owned(),
            target: Some(Box::new(list)),
            arguments: vec![keys],
        };
        Expr::new(self.position, kind)
    }
}

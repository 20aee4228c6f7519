//! Tests of each limit on scripts. Whatever a script does, the thread goes on.

use super::*;

const DEADLINE_ERROR: &str = "did not end within";
const MEMORY_ERROR: &str = "more memory than it may have";

/// Waits until every thread runs scripts again, each within the deadline of the engine.
async fn wait_for_threads(engine: &LuaEngine, after: &str) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let ask = || reflect_status(engine, "return {1}");
        let answers = tokio::join!(ask(), ask(), ask(), ask());
        let answers = [answers.0, answers.1, answers.2, answers.3];
        if answers.iter().all(|answer| *answer == Ok(Some(json!([1])))) {
            return;
        }
        assert!(Instant::now() < end, "after {after}: {answers:?}");
    }
}

/// Checks that each script fails with its error. Time may end those whose error is any, and those
/// that name the deadline.
async fn assert_stopped(table: &[(&str, &str)]) {
    let (patient, impatient) = (engine(), impatient_engine());
    for (body, reason) in table {
        let engine = match *reason {
            "" | DEADLINE_ERROR => &impatient,
            _ => &patient,
        };
        let began = Instant::now();
        let error = reflect_status(engine, body).await.expect_err(body);
        assert!(error.contains(reason), "{body}: {error}");
        // Generous, since other tests run beside this one.
        assert!(began.elapsed() < Duration::from_secs(20), "{body}");
        wait_for_threads(engine, body).await;
    }
}

// proves: LUA-deadline
#[tokio::test]
async fn loops_end_at_the_deadline() {
    assert_stopped(&[
        ("while true do end", DEADLINE_ERROR),
        ("repeat until false", DEADLINE_ERROR),
        ("for i = 1, 1e18 do end", DEADLINE_ERROR),
        ("for i = 1, math.huge do local t = {i} end", DEADLINE_ERROR),
        ("while true do pcall(error) end", DEADLINE_ERROR),
        (
            "while true do pcall(function() while true do end end) end",
            DEADLINE_ERROR,
        ),
        (
            "while true do xpcall(error, function() while true do end end) end",
            DEADLINE_ERROR,
        ),
        (
            "local function f() pcall(f) pcall(f) end while true do f() end",
            DEADLINE_ERROR,
        ),
        (
            "return pcall(function() while true do end end)",
            DEADLINE_ERROR,
        ),
        (
            "table.sort({3, 2, 1}, function() while true do end end)",
            DEADLINE_ERROR,
        ),
        (
            "return ('x'):gsub('.', function() while true do end end)",
            DEADLINE_ERROR,
        ),
        (
            "while true do local s = ('x'):rep(1000):upper() end",
            DEADLINE_ERROR,
        ),
    ])
    .await;
}

// proves: LUA-deadline
#[tokio::test]
async fn deadline_covers_the_top_level_of_a_script() {
    let engine = impatient_engine();
    let top = "while true do end function ReflectStatus() return {} end";
    let error = call_script(&engine, InterpreterOperation::InterpretStatus, top, vec![]).await;
    assert!(error.unwrap_err().contains(DEADLINE_ERROR));
    wait_for_threads(&engine, top).await;
}

// proves: LUA-deadline
#[tokio::test]
async fn patterns_end_at_the_deadline() {
    assert_stopped(&[
        (
            "return ('a'):rep(30000):find(('.-'):rep(20) .. 'b')",
            DEADLINE_ERROR,
        ),
        (
            "return ('a'):rep(30000):match(('a*'):rep(20) .. 'b')",
            DEADLINE_ERROR,
        ),
        (
            "return ('a'):rep(30000):gsub(('a?'):rep(40) .. ('a'):rep(40) .. 'b', '')",
            DEADLINE_ERROR,
        ),
        ("return ('('):rep(100000):find('%b()%b()')", ""),
        // A single step of these would take minutes.
        (
            "return ('a'):rep(3e6):find(('a'):rep(1e6) .. 'b', 1, true)",
            "too long",
        ),
        (
            "return ('b'):rep(3e6):find('^[' .. ('a'):rep(1e6) .. 'b]*c')",
            "too long",
        ),
        (
            "return ('b'):rep(3e6):match('^[' .. ('a'):rep(1e6) .. 'b]*c')",
            "too long",
        ),
        (
            "return ('b'):rep(3e6):gsub('^[' .. ('a'):rep(1e6) .. 'b]*c', '')",
            "too long",
        ),
    ])
    .await;
}

// proves: LUA-memory
#[tokio::test]
async fn memory_limit_stops_growth() {
    assert_stopped(&[
        ("local s = 'x' while true do s = s .. s end", MEMORY_ERROR),
        ("local s = 'x' while true do s = string.format('%s%s', s, s) end", MEMORY_ERROR),
        ("local s = 'x' while true do s = s:gsub('.', '%0%0') end", MEMORY_ERROR),
        ("local s = 'x' while true do s = s:rep(10) end", MEMORY_ERROR),
        ("local s = 'x' while true do s = table.concat({s, s}) end", MEMORY_ERROR),
        ("return string.rep('x', 1e9)", MEMORY_ERROR),
        ("return ('x'):rep(1000):gsub('', ('y'):rep(1e5))", MEMORY_ERROR),
        ("local t = {} for i = 1, 1000 do t[i] = ('x'):rep(1000) end return table.concat(t, ('y'):rep(1e5))", MEMORY_ERROR),
        ("local t = {} while true do t[#t + 1] = {t} end", MEMORY_ERROR),
        ("local t = {} for i = 1, 1e9 do t['k' .. i] = i end", MEMORY_ERROR),
        ("local all = {} while true do all[#all + 1] = function() return all end end", MEMORY_ERROR),
        ("local s = 'x' pcall(function() while true do s = s .. s end end) while true do s = s .. s end", MEMORY_ERROR),
        // Time or memory, whichever runs out first.
        ("local t = {} while true do t = {t, t} end", ""),
        ("local t = {} while true do table.insert(t, 1, {}) end", ""),
    ])
    .await;
}

// proves: LUA-memory
#[tokio::test]
async fn stack_limit_stops_recursion() {
    let overflow = "stack overflow";
    assert_stopped(&[
        ("local function f(n) return 1 + f(n + 1) end return f(1)", overflow),
        ("local function f() return f() end return f()", overflow),
        ("local function f() f() end f()", overflow),
        ("local function f() return pcall(f) or f() end return f()", ""),
        ("local function f() return ('x'):gsub('.', f) end return f()", ""),
        ("local function f() table.sort({2, 1}, f) end f()", ""),
        ("local function h(e) return xpcall(error, h) end error(tostring(select(2, xpcall(error, h))))", ""),
        ("local p = ('('):rep(150000) return ('x'):find(p)", ""),
        ("return ('x'):rep(100000):find(('x?'):rep(100000))", ""),
        ("return unpack({}, 1, 1e8)", "too many results"),
    ])
    .await;
}

#[tokio::test]
async fn errors_in_handlers_of_errors_are_errors() {
    let engine = engine();
    for (body, expected) in [
        ("local ok = pcall(error) return {ok}", json!([false])),
        (
            "local ok, e = xpcall(function() error('a', 0) end, function(e) return e .. 'b' end) return {ok, e}",
            json!([false, "ab"]),
        ),
        (
            "local ok = xpcall(error, function(e) error(e) end) return {ok}",
            json!([false]),
        ),
        (
            "local ok = xpcall(error, function(e) return nil + 1 end) return {ok}",
            json!([false]),
        ),
        ("local ok = pcall(pcall) return {ok}", json!([false])),
        (
            "local ok, e = pcall(error, {code = 7}) return {ok, e.code}",
            json!([false, 7]),
        ),
        (
            "local ok = pcall(table.sort, {3, 1, 2}, function() error('no') end) return {ok}",
            json!([false]),
        ),
    ] {
        assert_eq!(
            reflect_status(&engine, body).await,
            Ok(Some(expected)),
            "{body}"
        );
    }
    assert_stopped(&[
        (
            "xpcall(error, function() error('twice') end) error('at last', 0)",
            "at last",
        ),
        ("error(nil)", ""),
        ("error({})", ""),
        ("error(setmetatable)", ""),
        ("error(('x'):rep(100000))", "xxx"),
        (
            "table.sort({3, 1, 2}, function() error('in order', 0) end)",
            "in order",
        ),
        ("table.sort({3, 1, 'x'})", "compare"),
        ("table.concat({{}})", "concat"),
        ("return ('%d'):format('x')", "number expected"),
        ("return ('x'):find('[')", "malformed pattern"),
        ("return ('x'):gsub('x', '%2')", "capture index"),
        ("return #nil", "script:2: attempt to get length"),
        ("return {} .. 'x'", "script:2: attempt to concatenate"),
        ("return {} < {}", "script:2: attempt to compare"),
        ("local t = {} t[nil] = 1", "script:2:"),
        ("local t = {} t[0/0] = 1", "script:2:"),
        ("obj.x.y = 1", "script:2: attempt to index nil"),
        ("return next({}, 'x')", "invalid key"),
        ("return pairs(nil)", "script:2:"),
        ("return ('x'):rep(1, 2, {})()", "script:2:"),
    ])
    .await;
}

/// An inconsistent comparator leads to some order or to an error.
#[tokio::test]
async fn hostile_comparators_do_no_harm() {
    let engine = engine();
    for compare in [
        "function() return true end",
        "function() return false end",
        "function(a, b) return a ~= b end",
        "function(a, b) t[a] = nil return a < b end",
        "function(a, b) t[#t + 1] = a return a < b end",
        "function(a, b) table.sort(t) return a < b end",
        "function(a, b) return math.random() < 0.5 end",
    ] {
        let body = format!(
            "local t = {{}} for i = 1, 200 do t[i] = i * 7 % 13 end pcall(table.sort, t, {compare}) return {{1}}"
        );
        assert_eq!(
            reflect_status(&engine, &body).await,
            Ok(Some(json!([1]))),
            "{compare}"
        );
    }
    wait_for_threads(&engine, "sorting").await;
}

/// None of these libraries exists, and no metatable or library can be changed.
// proves: LUA-libraries
#[tokio::test]
async fn there_are_no_threads_files_or_metatables() {
    let engine = engine();
    let names = "coroutine debug io package bit32 utf8 buffer vector loadstring0 os.execute os.getenv os.exit os.clock os.remove os.tmpname string.split string.pack table.create table.clone table.freeze math.noise";
    let absent = names.split(' ').map(|name| format!("({name} == nil)"));
    let body = format!("return {{{}}}", absent.collect::<Vec<_>>().join(", "));
    let results = reflect_status(&engine, &body).await.unwrap().unwrap();
    let none = results.as_array().unwrap().iter().all(|gone| gone == true);
    assert!(none, "{names}: {results}");
    for (body, reason) in [
        (
            "getmetatable('').__index = nil",
            "getmetatable is not supported",
        ),
        (
            "setmetatable({}, {__index = function() while true do end end})",
            "setmetatable is not supported",
        ),
        ("setmetatable(_G, nil)", "setmetatable is not supported"),
        ("rawset(_G, 'x', 1)", "rawset is not supported"),
        ("string.rep = nil", "readonly"),
        ("math.huge = 0", "readonly"),
        ("require('kube').resourceAdd = print", "readonly"),
    ] {
        let error = reflect_status(&engine, body).await.unwrap_err();
        assert!(error.contains(reason), "{body}: {error}");
    }
    wait_for_threads(&engine, "forbidden things").await;
}

/// Garbage that a script produces does not count against its memory limit.
#[tokio::test]
async fn garbage_does_not_exceed_the_memory_limit() {
    let engine = engine();
    for (body, expected) in [
        (
            "local s = '' for i = 1, 3000 do s = s .. 'x' end return {#s}",
            json!([3000]),
        ),
        (
            "local n = 0 for i = 1, 100000 do local t = {i} n = n + #t end return {n}",
            json!([100_000]),
        ),
        (
            "local t = {} for i = 1, 5000 do t[i] = {name = 'n' .. i} end table.sort(t, function(a, b) return a.name < b.name end) return {t[1].name}",
            json!(["n1"]),
        ),
        (
            "return {(('a,b;'):rep(2000):gsub('[,;]', ''))}",
            json!(["ab".repeat(2000)]),
        ),
        (
            "return {('key=value'):match('^(%w+)=(%w+)$')}",
            json!(["key", "value"]),
        ),
        (
            "return {('x'):rep(100000):find('y', 1, true) == nil}",
            json!([true]),
        ),
    ] {
        assert_eq!(
            reflect_status(&engine, body).await,
            Ok(Some(expected)),
            "{body}"
        );
    }
}

/// Errors name the configured limits.
#[tokio::test]
async fn configured_limits_apply() {
    let strict = LuaEngine::new(LuaLimits {
        deadline: Duration::from_millis(20),
        ..LuaLimits::default()
    });
    let error = reflect_status(&strict, "while true do end")
        .await
        .unwrap_err();
    assert!(error.contains("within 20ms"), "{error}");
    let engine_of_a_mebibyte = |memory_per_argument_byte| {
        LuaEngine::new(LuaLimits {
            memory: 1 << 20,
            memory_per_argument_byte,
            ..patient_limits()
        })
    };
    let error = reflect_status(&engine_of_a_mebibyte(0), "return {#('x'):rep(2e6)}")
        .await
        .unwrap_err();
    assert!(error.contains(MEMORY_ERROR), "{error}");
    let roomy = engine_of_a_mebibyte(64);
    let script = "function ReflectStatus(obj) return {#('x'):rep(2e6)} end";
    let args = vec![LuaArg::from_value(&json!({"text": "x".repeat(100_000)}))];
    let all = call_script(&roomy, InterpreterOperation::InterpretStatus, script, args).await;
    assert_eq!(all.unwrap()[0], Some(json!([2_000_000])));
}

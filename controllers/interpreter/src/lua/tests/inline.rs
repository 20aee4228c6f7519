//! Tests of inline calls: trusted scripts run on the calling thread, with the same results.

use super::*;

/// The result of a trusted script, and whether it is still trusted afterwards.
async fn run_trusted(body: &str, arg: &Value) -> (Result<Option<Value>, String>, bool) {
    // Generous on a busy machine, except for the script that never terminates.
    let seconds = if body.contains("while true") { 1 } else { 60 };
    let engine = LuaEngine::new(LuaLimits {
        deadline: Duration::from_secs(seconds),
        ..LuaLimits::default()
    });
    let script =
        format!("function ReflectStatus(obj)\nif obj.easy then return {{1}} end\n{body}\nend");
    let script = Arc::new(LuaScript::new(&script));
    let ask = async |arg: &Value| {
        let args = vec![LuaArg::from_value(arg)];
        let all = engine
            .call(&script, InterpreterOperation::InterpretStatus, args)
            .await;
        all.map(|[first, _]| first).map_err(|e| e.to_string())
    };
    let easy = json!({"easy": true});
    let began = Instant::now();
    while !script.is_trusted() {
        assert_eq!(ask(&easy).await, Ok(Some(json!([1]))));
        assert!(began.elapsed() < Duration::from_secs(60), "never trusted");
    }
    let answer = ask(arg).await;
    let still = script.is_trusted();
    assert_eq!(ask(&easy).await, Ok(Some(json!([1]))), "after {body}");
    (answer, still)
}

// proves: LUA-here
#[tokio::test]
async fn quick_scripts_run_inline() {
    // On a busy machine the script may need several tries to be quick.
    let began = Instant::now();
    loop {
        let (actual, still) = run_trusted("return {a = obj.a, e = {}}", &json!({"a": [1]})).await;
        assert_eq!(actual, Ok(Some(json!({"a": [1]}))));
        if still {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "never quick");
    }
}

// proves: LUA-here
#[tokio::test]
async fn slow_or_failing_scripts_run_on_a_lua_thread() {
    let text = json!({"text": "x".repeat(1 << 10)});
    for (body, expected) in [
        // Runs longer than an inline call may.
        (
            "local n = 0 for i = 1, 3e6 do n = n + i % 2 end return {n = n}",
            Ok(json!({"n": 1_500_000})),
        ),
        ("while true do end", Err("did not end within")),
        ("return {a = obj.none.field}", Err("script:3: attempt to index nil")),
        (
            "local ok = pcall(function() local t = {('x'):rep(2^24)} end) return {ok = ok}",
            Ok(json!({"ok": false})),
        ),
        // Deep recursion, on the small stack of the calling thread.
        (
            "local function f(n) local ok, m = pcall(f, n + 1) return ok and m or n end return {deep = f(1) > 100}",
            Ok(json!({"deep": true})),
        ),
        (
            "local function g(s) return (s:gsub('.', function() return g(s) end)) end return {ok = pcall(g, 'x')}",
            Ok(json!({"ok": false})),
        ),
        // A search that cannot be interrupted, in a script that catches the error.
        (
            "return {found = {pcall(string.find, obj.text:rep(2^12), 'yy')}}",
            Ok(json!({"found": [true]})),
        ),
        // A large result from few Lua values.
        (
            "local t = {1, 2, 3, 4} for _ = 1, 6 do t = {t, t, t, t} end return {n = #t, t = {t ~= nil and #obj.text}, all = t}",
            Err(""),
        ),
        (
            "local kube = require('kube')
             local t = {1, 2, 3, 4} for _ = 1, 6 do t = {t, t, t, t} end
             return {ok = pcall(kube.accuratePodRequirements, {metadata = {t = t}, spec = {containers = {}}})}",
            Ok(json!({"ok": true})),
        ),
    ] {
        let (actual, _) = run_trusted(body, &text).await;
        match expected {
            Ok(expected) => assert_eq!(actual, Ok(Some(expected)), "{body}"),
            Err("") => {
                let all = actual.unwrap().unwrap();
                assert_eq!((&all["n"], &all["t"]), (&json!(4), &json!([1024])));
                assert_eq!(all["all"][3][3][3][3][3][3], json!([1, 2, 3, 4]));
            }
            Err(reason) => {
                let error = actual.unwrap_err();
                assert!(error.contains(reason), "{body}: {error}");
            }
        }
    }
}

//! Tests of scripts: the libraries that they see, what is forbidden, and what stops them.

mod inline;
mod lazy_table;
mod library;
mod limits;
mod waiting;

use machinery::Gvk;
use serde_json::json;
use tokio::time::Instant;

use super::*;
use crate::native::fixtures::object;

/// Scripts have enough time on any machine.
fn patient_limits() -> LuaLimits {
    LuaLimits {
        deadline: Duration::from_secs(60),
        ..LuaLimits::default()
    }
}

fn engine() -> LuaEngine {
    LuaEngine::new(patient_limits())
}

/// For scripts that their deadline ends. How long others take depends on the machine.
fn impatient_engine() -> LuaEngine {
    LuaEngine::new(LuaLimits {
        deadline: Duration::from_millis(300),
        ..LuaLimits::default()
    })
}

async fn call_script(
    engine: &LuaEngine,
    operation: InterpreterOperation,
    script: &str,
    args: Vec<LuaArg>,
) -> Result<[Option<Value>; 2], String> {
    let script = Arc::new(LuaScript::new(script));
    let answer = engine.call(&script, operation, args).await;
    answer.map_err(|error| error.to_string())
}

/// The result of a status script on an empty object.
async fn reflect_status(engine: &LuaEngine, body: &str) -> Result<Option<Value>, String> {
    let script = format!("function ReflectStatus(obj)\n{body}\nend");
    let args = vec![LuaArg::from_value(&json!({}))];
    let all = call_script(engine, InterpreterOperation::InterpretStatus, &script, args).await;
    all.map(|[first, _]| first)
}

fn thing() -> Gvk {
    Gvk::from_static("example.io", "v1", "Thing")
}

// proves: LUA-conversion
#[tokio::test]
async fn json_becomes_lua_and_comes_back() {
    let engine = engine();
    for (input, expected) in [
        (json!({"a": null, "b": [1, null, 2]}), json!({"b": [1, 2]})),
        (
            json!({"n": 1.5, "m": 3.0, "i": -7}),
            json!({"n": 1.5, "m": 3, "i": -7}),
        ),
        (
            json!({"big": 9_007_199_254_740_992_i64, "huge": 1e300}),
            json!({"big": 9_007_199_254_740_992_i64, "huge": 1e300}),
        ),
        (
            json!({"t": "ü\n", "b": [true, false]}),
            json!({"t": "ü\n", "b": [true, false]}),
        ),
        (json!({"e": {}, "l": [], "x": 1}), json!({"x": 1})),
        (json!({}), json!({})),
    ] {
        let script = "function ReflectStatus(obj) return obj end";
        let args = vec![LuaArg::from_value(&input)];
        let all = call_script(&engine, InterpreterOperation::InterpretStatus, script, args).await;
        assert_eq!(all.unwrap()[0], Some(expected), "{input}");
    }
    for (body, reason) in [
        ("return {1, 2, [4] = 3}", "sparse"),
        ("return {1, a = 2}", "mixed"),
        ("return {[true] = 1}", "invalid key"),
        ("local t = {} t.t = t return t", "recursively nested"),
        ("return {f = print}", "function"),
        ("return {n = 0/0}", "number"),
        (
            "local t = {1,2,3,4,5,6,7,8} for i = 1, 30 do t = {t, t, t, t} end return t",
            "too large",
        ),
    ] {
        let error = reflect_status(&engine, body).await.unwrap_err();
        assert!(error.contains(reason), "{body}: {error}");
    }
    // A table that occurs twice is no recursion.
    let shared = reflect_status(&engine, "local t = {1} return {a = t, b = t}").await;
    assert_eq!(shared.unwrap(), Some(json!({"a": [1], "b": [1]})));
}

// proves: LUA-two-results
#[tokio::test]
async fn two_results_are_returned_and_objects_have_their_kind() {
    let engine = engine();
    let script = "function GetReplicas(obj)
        return obj.spec.replicas, {kind = obj.apiVersion .. '/' .. obj.kind}
    end";
    let bare = object(json!({"metadata": {"name": "a"}, "spec": {"replicas": 3}}));
    let args = vec![LuaArg::Object(bare, thing())];
    let all = call_script(
        &engine,
        InterpreterOperation::InterpretReplica,
        script,
        args,
    )
    .await;
    let kind = json!({"kind": "example.io/v1/Thing"});
    assert_eq!(all.unwrap(), [Some(json!(3)), Some(kind)]);
}

// proves: LUA-libraries, LUA-forbidden
#[tokio::test]
async fn scripts_see_the_libraries_of_karmada_only() {
    let engine = engine();
    for (body, expected) in [
        (
            "return {math.mod(7, 4), math.fmod(7, 4), math.floor(2.7), math.max(1, 9)}",
            json!([3, 3, 2, 9]),
        ),
        (
            "return {string.format('%d-%s', 3, 'x'), ('abc'):upper(), #'abc', ('a-b'):gsub('-', '+')}",
            json!(["3-x", "ABC", 3, "a+b", 1]),
        ),
        (
            "local t = {3, 1, 2} table.sort(t) table.insert(t, 4) return {table.concat(t, ','), table.getn(t), unpack(t)}",
            json!(["1,2,3,4", 4, 1, 2, 3, 4]),
        ),
        (
            "return {type(os.time()), type(os.date()), _VERSION}",
            json!(["number", "string", "Lua 5.1"]),
        ),
        (
            "print('x') return {tostring(1e15), tostring(2^53), tostring(12), tonumber('0x10')}",
            json!(["1000000000000000", "9007199254740992", "12", 16]),
        ),
        ("return {pcall(error, 'x')}", json!([false, "x"])),
        (
            "local t = {} for n, u in ('1h20m'):gmatch('(%d+)([hm])') do t[#t + 1] = n .. u end return t",
            json!(["1h", "20m"]),
        ),
        (
            "local t = {} for n in string.gfind('a b', '%a') do t[#t + 1] = n end return t",
            json!(["a", "b"]),
        ),
        // A script may set a function to nil.
        (
            "error = '' error = obj.error type = nil return {error == nil, type == nil, _G.error == nil}",
            json!([true, true, true]),
        ),
        (
            "local n = 0 for _, v in ipairs({1, 2}) do n = n + v end return {n, select('#', 1, 2), next({5})}",
            json!([3, 2, 1, 5]),
        ),
        (
            "return {_G.type == type, string.split == nil, os.getenv == nil, io == nil, coroutine == nil, debug == nil, package == nil, bit32 == nil}",
            json!([true, true, true, true, true, true, true, true]),
        ),
        (
            "return {random = math.random(1, 1000000) == nil}",
            json!({"random": false}),
        ),
    ] {
        let actual = reflect_status(&engine, body).await;
        assert_eq!(actual, Ok(Some(expected)), "{body}");
    }
    for name in [
        "collectgarbage",
        "dofile",
        "getfenv",
        "getmetatable",
        "load",
        "loadfile",
        "loadstring",
        "rawequal",
        "rawget",
        "rawset",
        "setfenv",
        "setmetatable",
        "module",
        "newproxy",
    ] {
        let error = reflect_status(&engine, &format!("return {name}()"))
            .await
            .unwrap_err();
        let text = format!(
            "call function {name} is not supported in karmada customized resourceinterpreter."
        );
        assert!(error.contains(&text), "{error}");
    }
    for (body, reason) in [
        ("return require('os')", "module os not found"),
        ("string.x = 1", "readonly"),
        ("_G.string.rep = nil", "readonly"),
        ("return string.dump(print)", "string.dump is not supported"),
        ("\n\nreturn obj.a.b", "script:4:"),
        ("error('on purpose')", "script:2: on purpose"),
        ("error({code = 1})", ""),
        ("error()", ""),
    ] {
        let error = reflect_status(&engine, body).await.unwrap_err();
        assert!(
            error.contains(reason) && !error.contains("traceback"),
            "{body}: {error}"
        );
    }
}

// proves: LUA-order
#[tokio::test]
async fn pairs_goes_through_fields_as_they_were_set() {
    let engine = engine();
    let collect_pairs = "local seen = {} for k, v in pairs(t) do seen[#seen + 1] = tostring(k) .. tostring(v) end return seen";
    for (body, expected) in [
        (
            "local t = {zeta = 1, alpha = 2, ['m.n'] = 3, beta = 4}",
            json!(["zeta1", "alpha2", "m.n3", "beta4"]),
        ),
        (
            "local t = {} for _, k in ipairs({'Created', 'Succeeded', 'Failed', 'Running'}) do t[k] = #k end",
            json!(["Created7", "Succeeded9", "Failed6", "Running7"]),
        ),
        // Elements come first; a field that is set again keeps its position.
        (
            "local t = {x = 1} table.insert(t, 'a') t.w = 2 t.a = 3 t[2] = 'b' t.x = nil t.x = 4",
            json!(["1a", "2b", "x4", "w2", "a3"]),
        ),
        (
            "local t = {y = obj.none, x = 1} t.y = 2",
            json!(["x1", "y2"]),
        ),
        // A field removed during the iteration is not visited.
        (
            "local t = {c = 1, b = 2, a = 3} for k in pairs(t) do if k ~= 'b' then t[k] = nil end end",
            json!(["b2"]),
        ),
        (
            "local function f(t) return t end local t = f{c = 1, b = 2} t.a = 3",
            json!(["c1", "b2", "a3"]),
        ),
        ("local t = {}", json!({})),
    ] {
        let actual = reflect_status(&engine, &format!("{body} {collect_pairs}")).await;
        assert_eq!(actual, Ok(Some(expected)), "{body}");
    }
    for (body, expected) in [
        (
            "return {next({}) == nil, next({b = 1, a = 2})}",
            json!([true, "b", 1]),
        ),
        (
            "local t = {b = 1, a = 2} return {next(t, 'b')}",
            json!(["a", 2]),
        ),
        (
            "local n = 0 for _ in pairs(obj) do n = n + 1 end return {n, #pairs_of}",
            json!([0, 1]),
        ),
        (
            "return {a = {b = 1, 'x' == 'x' and nil}}",
            json!({"a": {"b": 1}}),
        ),
    ] {
        let body = format!("pairs_of = {{pairs}} {body}");
        let actual = reflect_status(&engine, &body).await;
        assert_eq!(actual, Ok(Some(expected)), "{body}");
    }
    for (body, reason) in [
        (
            "\nfor _ in pairs(nil) do end",
            "script:3: invalid argument #1 to 'pairs'",
        ),
        (
            "\nlocal t = {pairs} t[nil] = 1",
            "script:3: table index is nil",
        ),
        (
            "\nlocal t = {pairs} t[0/0] = 1",
            "script:3: table index is NaN",
        ),
        ("\nreturn next({pairs}, 'x')", "invalid key to 'next'"),
    ] {
        let error = reflect_status(&engine, body).await.unwrap_err();
        assert!(error.contains(reason), "{body}: {error}");
    }
}

// proves: LUA-nothing-stays
#[tokio::test]
async fn calls_do_not_share_state() {
    let engine = LuaEngine::default();
    let script = "calls = (calls or 0) + 1
        local own = 0
        function GetReplicas() own = own + 1 _G.seen = (seen or 0) + 1
            return calls * 100 + own * 10 + seen, {r = math.random(1, 1000000)} end";
    let mut results = Vec::new();
    for _ in 0..6 {
        results.push(
            call_script(
                &engine,
                InterpreterOperation::InterpretReplica,
                script,
                vec![],
            )
            .await
            .unwrap(),
        );
    }
    assert_eq!(results[0][0], Some(json!(111)));
    assert!(
        results.iter().all(|result| *result == results[0]),
        "{results:?}"
    );
    let other = "function GetReplicas() return calls == nil and seen == nil and 1 or 0 end";
    let alone = call_script(
        &engine,
        InterpreterOperation::InterpretReplica,
        other,
        vec![],
    )
    .await;
    assert_eq!(alone.unwrap()[0], Some(json!(1)));
}

#[test]
fn check_finds_invalid_scripts() {
    let replicas = |source: &str| {
        let limits = patient_limits();
        check(InterpreterOperation::InterpretReplica, source, limits)
    };
    for (source, reason) in [
        ("function GetReplicas(obj) return 1 end", ""),
        (
            "local kube = require('kube')\nGetReplicas = function() return 1 end",
            "",
        ),
        ("function GetReplicas(obj)\nreturn 1", "line 2"),
        (
            "function GetReplica(obj) return 1 end",
            "not found function GetReplicas",
        ),
        ("GetReplicas = 1", "GetReplicas is not a function"),
        (
            "function GetReplicas() goto out ::out:: end",
            "goto is not supported",
        ),
        ("x = nil + 1 function GetReplicas() end", "script:1:"),
        (&format!("return {}1", "(".repeat(100_000)), "line 1"),
    ] {
        let error = replicas(source);
        match reason {
            "" => assert_eq!(error, Ok(()), "{source}"),
            reason => {
                let error = error.unwrap_err();
                assert!(error.contains(reason), "{error}");
            }
        }
    }
    let endless = LuaLimits {
        deadline: Duration::from_millis(50),
        ..LuaLimits::default()
    };
    assert!(check(InterpreterOperation::Retain, "while true do end", endless).is_err());
}

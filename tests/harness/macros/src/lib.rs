//! Attributes of tests. The crate `harness` re-exports them.

use std::env::{self, VarError};

use proc_macro::TokenStream;

/// Marks a test that takes too long for every run. The attribute stands above `#[test]`
/// or `#[tokio::test]`.
///
/// The test is built with `#[ignore]` unless `FLOTILLA_SLOW=1` is set for the build, so
/// libtest itself counts it as ignored. Cargo builds the suite again when the variable
/// changes. Any value but `1`, `0` and the empty one fails the build.
#[proc_macro_attribute]
pub fn slow(_arguments: TokenStream, test: TokenStream) -> TokenStream {
    let attribute = match env::var("FLOTILLA_SLOW").as_deref() {
        Ok("1") => "",
        Ok("" | "0") | Err(VarError::NotPresent) => "#[ignore = \"slow: FLOTILLA_SLOW=1 runs it\"]",
        _ => "::core::compile_error!(\"FLOTILLA_SLOW is 1, 0 or unset\");",
    };
    // `option_env!` makes cargo watch the variable.
    let watch = "const _: ::core::option::Option<&str> = ::core::option_env!(\"FLOTILLA_SLOW\");";
    let mut marked = parse(attribute);
    marked.extend(test);
    marked.extend(parse(watch));
    marked
}

#[expect(clippy::expect_used, reason = "the texts are constants of this file")]
fn parse(text: &str) -> TokenStream {
    text.parse().expect("valid Rust")
}

//! All mistakes are reported at once, beside the unchanged item.

use proc_macro2::TokenStream;

use super::tokens;
use crate::attribute::rate_limited;

/// Returns the messages, after a check that the unchanged item precedes them.
fn messages(arguments: &str, item: &str) -> Vec<String> {
    let output = rate_limited(tokens(arguments), tokens(item));
    let mut output = output.into_iter();
    let first: TokenStream = output.by_ref().take(tokens(item).into_iter().count()).collect();
    assert_eq!(first.to_string(), tokens(item).to_string());

    let errors: TokenStream = output.collect();
    let errors: syn::File = syn::parse2(errors).expect("errors are items");
    let message = |item| match item {
        syn::Item::Macro(item) => item.mac.parse_body::<syn::LitStr>().expect("a message").value(),
        _ => panic!("an error is a macro"),
    };
    errors.items.into_iter().map(message).collect()
}

#[test]
fn every_mistake_of_one_attribute_is_reported_once() {
    let arguments = r#"
        key = "user:{}", key = "again", keyy = "user", limit_max = 5, colour = red, window = "0s", max = 0,
        limit = "x/10s", name = "", fallback = |a, b| None, on_error = opne, crate = relative, limiter
    "#;
    let expected = [
        "`key` is given twice: keep one",
        "unknown argument `keyy`, did you mean `key`?",
        "unknown argument `limit_max`, did you mean `max`?",
        "unknown argument `colour`: the arguments are `key`, `name`, `window`, `max`, `limit`, `limits`, `concurrent`, \
         `algorithm`, `burst`, `zone`, `anchor`, `cost`, `when`, `leases`, `block`, `plan`, `wait`, `fallback`, `on_error`, `recover`, `settle`, `permit`, `limiter`, `crate`",
        "`limiter` needs a value: `limiter = …`",
        "a `const fn` may run in the compiler, where nothing is counted: remove `const`, or annotate the functions \
         that call it",
        "`crate` must be an absolute path such as `::my_crate::rate_limited` or `crate::rate_limited`",
        "`name` must be a string that is not empty, such as `\"get-user\"`",
        "`{}` in `key` names nothing: write a value, as in `{user_id}`",
        "`limit` contains both `max` and `window`: write it alone, or the two of them without it",
        "`max` must be a number of permits such as `5`, between 1 and 4294967295",
        "`window` must be a duration such as `\"10s\"`, between 1ms and 366d (this is zero)",
        "`limit` must be permits and a window, such as `\"5/10s\"` or `\"100/min\"`",
        "the closure of `fallback` takes one argument: write `|denied| …`",
        "unknown policy `opne`, did you mean `open`? (a function: `self::opne`)",
    ];
    assert_eq!(messages(arguments, "const fn get(id: u64) -> Option<u64> { None }"), expected);
}

#[test]
fn missing_arguments_are_reported_together() {
    let messages = messages("", "fn get() {}");
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert!(messages[0].starts_with("`key` is missing"));
    assert!(messages[1].starts_with("no limit is given"));
}

#[test]
fn a_block_is_a_text_beside_a_window() {
    const NO_BLOCK: &str =
        "`block` must be a time such as `\"10min\"`, or one that grows such as `\"1min x2 up to 1d\"`";
    let cases = [
        ("block = 10", NO_BLOCK.to_owned()),
        ("block = time", NO_BLOCK.to_owned()),
        ("block = \"10\"", format!("{NO_BLOCK} (`10` of what? write `10s`)")),
        ("block = \"0s\"", format!("{NO_BLOCK} (this is zero)")),
        ("block = \"3660d\"", format!("{NO_BLOCK} (this is longer)")),
        (
            "block = \"1min x0.5 up to 1d\"",
            format!("{NO_BLOCK} (a factor is from 1 to 1000, with at most three decimals)"),
        ),
        ("block = \"1min x2 up to 30s\"", format!("{NO_BLOCK} (the longest block is shorter than the first one)")),
        (
            "block = \"1min x1 up to 1h\"",
            format!("{NO_BLOCK} (blocks that grow have a factor above 1, and a longest time)"),
        ),
        (
            "block = \"1min\", wait = \"1s\"",
            "a call that waits is one that is denied, so it would be blocked: remove `wait` or `block`".to_owned(),
        ),
        (
            "block = \"1min\", leases = true",
            "a lease admits calls without a look at blocks: remove `leases` or `block`".to_owned(),
        ),
        ("lockout = \"1min\"", "unknown argument `lockout`, did you mean `block`?".to_owned()),
    ];
    for (argument, message) in cases {
        let arguments = format!("key = \"k\", limit = \"9/s\", fallback = (), {argument}");
        assert_eq!(messages(&arguments, "fn get() {}"), [message], "{argument}");
    }
    let slots = "key = \"k\", concurrent = 5, fallback = (), block = \"1min\"";
    let message = "a denial by calls at once begins no block: add a limit with a window, or remove `block`";
    assert_eq!(messages(slots, "fn get() {}"), [message]);
}

#[test]
fn leases_are_a_literal_flag() {
    const NO_FLAG: &str = "`leases` must be `true` or `false`: settings by name can change it at run time";
    let cases = [
        ("leases = \"true\"", "a flag is written without quotes: `leases = true`"),
        ("leases = \"false\"", "a flag is written without quotes: `leases = false`"),
        ("leases = \"yes\"", NO_FLAG),
        ("leases = 1", NO_FLAG),
        ("leases = -true", NO_FLAG),
        ("leases = on", NO_FLAG),
        ("leases = user.is_busy()", NO_FLAG),
        ("leases", "`leases` needs a value: `leases = …`"),
        ("leases = true, leases = true", "`leases` is given twice: keep one"),
        ("lease = true", "unknown argument `lease`, did you mean `leases`?"),
    ];
    for (argument, message) in cases {
        let arguments = format!("key = \"k\", limit = \"9/s\", fallback = (), {argument}");
        assert_eq!(messages(&arguments, "fn get() {}"), [message], "{argument}");
    }
}

#[test]
fn each_mistake_about_calendars_names_what_to_write() {
    let limit =
        |problem: &str| format!("`limit` must be permits and a window, such as `\"5/10s\"` or `\"100/min\"`{problem}");
    let no_calendar = |name| {
        format!(
            "`{name}` is for limits of the calendar: add `algorithm = calendar`, or write a limit such as `1000/month`"
        )
    };
    const NO_PERIOD: &str = "`algorithm = calendar` counts in an `hour`, `day`, `week`, `month`, `quarter` or `year`, and \
                             this is none of them";
    const NO_TEXT: &str = "`algorithm = calendar` needs a text such as `\"1000/month\"`: for an expression remove it, and \
                           build the limit by `Limit::calendar`";
    const NO_ZONE: &str = "`zone` must be a name such as `\"Europe/Berlin\"`, or an expression that returns one";
    const ALONE: &str = "a period of the calendar is counted by itself: write `algorithm = calendar`, or remove it";
    const DAY: &str = "`anchor` must be a day from 1 to 31 for a month";
    let cases = [
        ("limit = \"5/month:32\"", limit(" (`32` is no anchor, which must be a day from 1 to 31 for a month)")),
        ("limit = \"5/month@\"", limit(" (the zone has no name: write one such as `Europe/Berlin`)")),
        (
            "limit = \"5/10s@UTC\"",
            limit(" (`10s` is none of the periods `hour`, `day`, `week`, `month`, `quarter` and `year`)"),
        ),
        ("limit = \"30/feb\"", limit("")),
        ("limit = \"5/10s\", zone = \"UTC\"", no_calendar("zone")),
        ("limit = \"5/d\", anchor = 5", no_calendar("anchor")),
        ("limit = \"5/10s\", algorithm = calendar, zone = \"UTC\"", NO_PERIOD.to_owned()),
        ("limit = LIMIT, algorithm = calendar", NO_TEXT.to_owned()),
        ("limit = \"5/month\", algorithm = fixed_window", ALONE.to_owned()),
        ("limit = \"5/month\", algorithm = calendar, anchor = 32", DAY.to_owned()),
        ("limit = \"5/month\", anchor = 0", DAY.to_owned()),
        ("limit = \"5/d\", algorithm = calendar, anchor = 1", "`anchor` must be left out for a day".to_owned()),
        ("limit = \"5/year\", anchor = \"02-30\"", "`anchor` must be a date such as `04-06` for a year".to_owned()),
        (
            "limit = \"5/month\", anchor = first_day()",
            "`anchor` must be a literal such as `5`, `\"sunday\"` or `\"04-06\"`".to_owned(),
        ),
        ("limit = \"5/month:7\", anchor = 5", "the limit has an anchor already: remove one of them".to_owned()),
        ("limit = \"5/month@UTC\", zone = zone()", "the limit has a zone already: remove one of them".to_owned()),
        ("limit = \"5/month\", zone = 5", NO_ZONE.to_owned()),
        ("limit = \"5/month\", zone = \"\"", NO_ZONE.to_owned()),
        ("limit = \"5/month\", timezone = \"UTC\"", "unknown argument `timezone`, did you mean `zone`?".to_owned()),
        (
            "limits = [\"5/month\", \"9/month:5\"]",
            "this period is there already, and both limits would count in it: keep the lower one".to_owned(),
        ),
        (
            "limit = \"5/month\", algorithm = calendar, burst = 7",
            "`burst` is for `token_bucket` and `leaky_bucket`: remove it, or choose one of them".to_owned(),
        ),
        (
            "limit = \"5/month\", cost = 6",
            "a cost of 6 never fits into a `max` of 5: lower it, or raise `max`".to_owned(),
        ),
    ];
    for (argument, message) in cases {
        let arguments = format!("key = \"k\", fallback = (), {argument}");
        assert_eq!(messages(&arguments, "fn get() {}"), [message], "{argument}");
    }
}

#[test]
fn each_mistake_about_calls_at_once_names_what_to_write() {
    const RANGE: &str = "`concurrent` must be a number of calls at once such as `50`, between 1 and 65535";
    const ALONE: &str = "`concurrent` is a limit of its own: write it alone, or all of them as texts, as in \
                         `limits = [\"50 concurrent\", \"100/min\"]`";
    const LIMIT: &str = "`limit` must be permits and a window, such as `\"5/10s\"` or `\"100/min\"`";
    const NO_ALGORITHM: &str = "calls at once are no permits of a window, which an algorithm counts: write \
                                `concurrent = 50` instead of `algorithm` and the limit";
    const SETTLE: &str = "`settle` charges permits of a window, and a slot is free again when the call ends: remove it";
    const COST_0: &str = "a call with a cost of 0 has no slot, so it would limit nothing: remove `cost`";
    let of_windows = |name| format!("`{name}` is for permits in a window, and calls at once have none: remove it");
    let never_fits = |cost, max| {
        format!("a cost of {cost} never fits into a `concurrent` of {max}: lower it, or raise `concurrent`")
    };
    let cases = [
        ("concurrent = 0", RANGE.to_owned()),
        ("concurrent = 65536", RANGE.to_owned()),
        ("concurrent = -1", RANGE.to_owned()),
        ("concurrent = 5.5", RANGE.to_owned()),
        ("concurrent = \"50\"", RANGE.to_owned()),
        ("concurrent = 50, limit = \"5/s\"", ALONE.to_owned()),
        ("limits = [\"5/s\"], concurrent = 50", ALONE.to_owned()),
        ("max = 5, concurrent = 50", ALONE.to_owned()),
        ("concurrent = 50, window = \"10s\"", ALONE.to_owned()),
        ("concurrent = 50, algorithm = token_bucket", of_windows("algorithm")),
        ("concurrent = 50, burst = 5", of_windows("burst")),
        ("limits = [\"5 concurrent\"], burst = 5", of_windows("burst")),
        ("limit = \"5/s\", algorithm = concurrent", NO_ALGORITHM.to_owned()),
        ("limit = \"5/s\", algorithm = \"concurrent\"", NO_ALGORITHM.to_owned()),
        ("concurrent = 50, settle = |_| 1", SETTLE.to_owned()),
        ("limit = \"5 concurrent\", cost = 0, settle = |_| 1", SETTLE.to_owned()),
        ("concurrent = 50, cost = 0, permit = allowed", COST_0.to_owned()),
        ("concurrent = 50, cost = 51", never_fits(51, 50)),
        ("limits = [\"100/s\", \"50 concurrent\"], cost = 51", never_fits(51, 50)),
        ("limits = [\"9/s\", \"50 concurrent\"], algorithm = token_bucket, burst = 60, cost = 51", never_fits(51, 50)),
        ("concurrency = 50", "unknown argument `concurrency`, did you mean `concurrent`?".to_owned()),
        ("slots = n", "unknown argument `slots`, did you mean `concurrent`?".to_owned()),
        (
            "limit = configured, concurrent = 5",
            "`limit = configured` takes the limits and their algorithm from configuration: remove `concurrent`, or write \
             the limit here, such as `limit = \"5/10s\"`"
                .to_owned(),
        ),
        (
            "concurrent = configured",
            "`configured` stands for all limits of the rule: write `limit = configured`, not \
                                     `concurrent`"
                .to_owned(),
        ),
        (
            "limit = \"0 concurrent\"",
            format!(
                "{LIMIT} (0 would let nothing through, ever: write `mode = \"deny\"` in \
                                             its rule for that)"
            ),
        ),
        ("limit = \"65536 concurrent\"", format!("{LIMIT} (at most 65535 calls at once)")),
        ("limit = \"concurrent\"", format!("{LIMIT} (of calls at once it is a whole number: write `50 concurrent`)")),
        (
            "limits = [\"5 concurrent\", \"9/s\", \"7 concurrent\"]",
            "a limit of calls at once is there already: keep the lower one".to_owned(),
        ),
    ];
    for (arguments, message) in cases {
        let arguments = format!("key = \"k\", fallback = (), {arguments}");
        assert_eq!(messages(&arguments, "fn get(n: u32) {}"), [message], "{arguments}");
    }
    for accepted in [
        "concurrent = 65535",
        "concurrent = 1u32",
        "concurrent = n",
        "concurrent = 50, cost = 50, wait = \"1s\"",
        "limits = [\"5 concurrent\", \"9/s\"], algorithm = token_bucket, burst = 5",
        "limits = [\"5 concurrent\", \"9/s\"], settle = |_| 1",
    ] {
        let arguments = format!("key = \"k\", fallback = (), {accepted}");
        let output = rate_limited(tokens(&arguments), tokens("fn get(n: u32) {}")).to_string();
        assert!(!output.contains("compile_error"), "{accepted}: {output}");
    }
}

#[test]
fn a_word_for_a_limit_is_one_mistake() {
    for name in ["rate", "rates", "quota", "qps", "requests", "limts"] {
        let arguments = format!("key = \"k\", {name} = \"5/s\"");
        assert_eq!(messages(&arguments, "fn get() {}"), [format!("unknown argument `{name}`, did you mean `limit`?")]);
    }
    let of_numbers = messages("key = \"k\", quota = 5, per = \"1s\"", "fn get() {}");
    assert_eq!(
        of_numbers,
        ["unknown argument `quota`, did you mean `max`?", "unknown argument `per`, did you mean `window`?"]
    );
    let of_a_list = messages("key = \"k\", rates = [\"5/s\"]", "fn get() {}");
    assert_eq!(of_a_list, ["unknown argument `rates`, did you mean `limits`?"]);
}

#[test]
fn a_number_as_limit_beside_a_window_is_one_mistake() {
    const SPLIT: &str = "write `limit = \"100/min\"`, or `max = 100` and `window = \"min\"`";
    const NO_TEXT: &str = "write `max = 100` beside `window`";
    let cases = [
        ("limit = 100, per = \"min\"", format!("unknown argument `per`: {SPLIT}")),
        ("period = \"min\", limit = 100", format!("unknown argument `period`: {SPLIT}")),
        ("limit = 100, per = ONE_MINUTE", format!("unknown argument `per`: {NO_TEXT}")),
        ("limit = 100, window = \"min\"", format!("`limit` is permits and a window in one text: {SPLIT}")),
        ("window = self.window, limit = 100", format!("`limit` is permits and a window in one text: {NO_TEXT}")),
    ];
    for (arguments, message) in cases {
        let arguments = format!("key = \"k\", fallback = (), {arguments}");
        assert_eq!(messages(&arguments, "fn get(&self) {}"), [message], "{arguments}");
    }
    let two = [
        ("limit = 100, per = \"minn\"", ["unknown argument `per`: write `max = 100`", "`window` must be a duration"]),
        ("limit = -5, per = \"min\"", ["unknown argument `per`, did you mean `window`?", "`limit` contains both"]),
        ("limit = 100, max = 5", ["`limit` contains both", "`limit` must be permits"]),
    ];
    for (arguments, starts) in two {
        let messages = messages(&format!("key = \"k\", fallback = (), {arguments}"), "fn get() {}");
        assert!(starts.iter().all(|start| messages.iter().any(|message| message.starts_with(start))), "{messages:?}");
    }
}

#[test]
fn a_name_has_no_values() {
    for name in ["a:{u}", "{user.id}", "a:{}", "a{b", "a}", "{{a}}"] {
        let messages = messages(&format!("key = \"k\", limit = \"5/s\", name = \"{name}\""), "fn f(u: u8) {}");
        let expected = format!(
            "`name` is the rule's, so it has no `{{` and no `}}`, got `\"{name}\"`: write one such as `\"get-user\"`, and \
             values in `key`"
        );
        assert_eq!(messages, [expected]);
    }
    let by_key = rate_limited(tokens("key = \"a:{u}\", limit = \"5/s\", fallback = ()"), tokens("fn f(u: u8) {}"));
    assert!(!by_key.to_string().contains("compile_error"), "the name is the key as written: {by_key}");
}

#[test]
fn parsing_continues_after_an_invalid_argument() {
    let cases = [
        (r#"limit = "5/s", "getId""#, vec!["expected an argument, such as `key = \"getId\"`"]),
        (r#"5, key = "k", limit = "5/s""#, vec!["expected an argument, such as `key = \"getId\"`"]),
        (r#""getId" fallback = (), wait = """#, vec!["expected `,` before the next argument", "`wait` must be"]),
        (r#"key = "k" limit = "5/s""#, vec!["expected `,` before the next argument"]),
        (r#"key: "k", limit = "5/s""#, vec!["`key` needs a value: `key = …`"]),
        (r#"key("k"), limit = "5/s""#, vec!["`key` needs a value: `key = …`"]),
        (r#"key = , limit = "5/s""#, vec!["`key` needs a value: `key = …`"]),
        (r#"limit = "5/s", key ="#, vec!["`key` needs a value: `key = …`"]),
        (r#"key = f::<u8, u8>::, name = "n", limit = "5""#, vec!["expected identifier", "`limit` must be"]),
        (r#"key = "k", limit = "5/s",, fallback = ()"#, vec!["expected an argument, such as `key = \"getId\"`"]),
    ];
    for (arguments, expected) in cases {
        let messages = messages(arguments, "fn get() {}");
        for expected in &expected {
            assert!(messages.iter().any(|message| message.starts_with(expected)), "{arguments}: {messages:?}");
        }
    }
}

/// The numbers, the algorithm and the burst come from configuration, so none of them is beside `configured`.
#[test]
fn configured_stands_without_limits_of_the_attribute() {
    let cases = [
        ("limit = configured, max = 5", "`limit = configured` takes", "remove `max`"),
        ("window = \"10s\", limit = configured", "`limit = configured` takes", "remove `window`"),
        ("limit = configured, limits = [\"5/s\"]", "`limit = configured` takes", "remove `limits`"),
        ("limit = configured, algorithm = token_bucket", "`limit = configured` takes", "remove `algorithm`"),
        ("limit = configured, burst = 5", "`limit = configured` takes", "remove `burst`"),
        ("limit = \"configured\"", "`configured` is written without quotes", "`limit = configured`"),
        ("limit = configurd", "unknown word `configurd`", "did you mean `limit = configured`?"),
        ("limits = configured", "`configured` stands for all limits of the rule", "not `limits`"),
        ("limits = [\"5/s\", configured]", "`configured` stands for all limits of the rule", "not `limits`"),
        ("max = configured, window = \"1s\"", "`configured` stands for all limits of the rule", "not `max`"),
    ];
    for (arguments, start, remedy) in cases {
        let messages = messages(&format!("key = \"k\", {arguments}"), "fn get() {}");
        assert_eq!(messages.len(), 1, "{arguments}: {messages:?}");
        assert!(messages[0].starts_with(start) && messages[0].contains(remedy), "{arguments}: {messages:?}");
    }
    for arguments in
        ["limit = \"5/s\"", "limit = configured", "max = 5", "limits = []", "algorithm = gcra", "burst = 0"]
    {
        let messages = messages(&format!("\"getId\", {arguments}"), "fn get() {}");
        assert_eq!(messages.len(), 1, "{arguments}: {messages:?}");
        assert!(messages[0].starts_with("`\"getId\"` alone takes its limits"), "{arguments}: {messages:?}");
    }
    let twice = messages("\"getId\", key = \"getId\"", "fn get() {}");
    assert_eq!(twice, ["`key` is given twice: the text before it is the key, so keep one"]);
    let accepted =
        rate_limited(tokens("key = \"k\", limit = configured, fallback = ()"), tokens("fn f(configured: Limit) {}"));
    assert!(accepted.to_string().contains("limit_from"), "an argument of that name is an expression: {accepted}");
}

#[test]
fn a_permit_is_a_new_variable_of_one_body() {
    let cases = [
        ("permit = id", "fn get(id: u64) {}", "`id` is an argument here"),
        ("permit = id", "fn get((id, _): (u64, u64)) {}", "`id` is an argument here"),
        (
            "permit = id",
            "fn get(__arg0: Pair) -> BoxFuture<'static, ()> { Box::pin(async move { let (id, _) = __arg0; () }) }",
            "`id` is an argument here",
        ),
        ("permit = \"allowed\"", "fn get() {}", "a variable is written without quotes: `permit = allowed`"),
        ("permit = \"an allowed\"", "fn get() {}", "`permit` must be the name of a new variable"),
        ("permit = self", "fn get(&self) {}", "`permit` must be the name of a new variable"),
        ("permit = Allowed", "fn get() {}", "`permit` must be the name of a new variable"),
        ("permit = self.allowed", "fn get(&self) {}", "`permit` must be the name of a new variable"),
        ("permit = _", "fn get() {}", "`permit` must be the name of a new variable"),
        ("permit = allowed", "impl S { fn a() {} fn b() {} }", "`permit` is a variable of one body"),
        (
            "permit = allowed",
            "#[rate_limited(key = \"b\", limit = \"5/s\", fallback = (), permit = allowed)] fn get() {}",
            "`permit` is given twice",
        ),
        ("receipt = allowed", "fn get() {}", "unknown argument `receipt`, did you mean `permit`?"),
    ];
    for (argument, item, expected) in cases {
        let arguments = format!("key = \"a\", limit = \"5/s\", fallback = (), {argument}");
        let output = rate_limited(tokens(&arguments), tokens(item)).to_string();
        assert_eq!(output.matches("compile_error").count(), 1, "{argument}, {item}: {output}");
        assert!(output.contains(expected), "{argument}, {item}: {output}");
    }
}

#[test]
fn settle_is_a_function_of_one_argument() {
    const NO_FUNCTION: &str = "`settle` must be a function of what the body returned";
    let cases = [
        ("settle = 5", "fn get() {}", NO_FUNCTION),
        ("settle = \"cost\"", "fn get() {}", NO_FUNCTION),
        ("settle = cost()", "fn get() {}", NO_FUNCTION),
        ("settle = answer.tokens", "fn get(answer: Answer) {}", NO_FUNCTION),
        ("settle = tokens", "fn get(tokens: u32) {}", NO_FUNCTION),
        ("settle = self", "fn get(&self) {}", NO_FUNCTION),
        ("settle = || 5", "fn get() {}", "the closure of `settle` takes one argument: write `|answer| …`"),
        ("settle = |a, b| 5", "fn get() {}", "the closure of `settle` takes one argument: write `|answer| …`"),
        ("settle = async |answer| 5", "async fn get() {}", "`settle` returns a `u32` at once: remove `async`"),
        ("settle = |_| 5, settle = |_| 6", "fn get() {}", "`settle` is given twice: keep one"),
        ("settle", "fn get() {}", "`settle` needs a value: `settle = …`"),
        ("postpaid = true", "fn get() {}", "unknown argument `postpaid`, did you mean `settle`?"),
        ("skip, settle = |_| 5", "fn get() {}", "`skip` stands alone"),
        ("settle = |_| 5", "fn get() -> ! { loop {} }", "a function that never returns has nothing to settle"),
        ("settle = |_| 5, cost = -0", "fn get() {}", "permits such as `2`, between 0 and 4294967295"),
        ("settle = |_| 5, cost = 0u64", "fn get() {}", "permits such as `2`, between 0 and 4294967295"),
        ("settle = |_| 5, cost = 4294967296", "fn get() {}", "permits such as `2`, between 0 and 4294967295"),
        ("permit = allowed, cost = -1", "fn get() {}", "permits such as `2`, between 0 and 4294967295"),
        ("cost = -1", "fn get() {}", "permits such as `2`, between 1 and 4294967295"),
        ("cost = 0", "fn get() {}", "add `settle` or `permit` to charge the call afterwards, or use `when`"),
        (
            "cost = 0",
            "#[rate_limited(key = \"b\", limit = \"5/s\", settle = |_| 5)] fn get() {}",
            "a cost of 0 limits nothing",
        ),
    ];
    for (argument, item, expected) in cases {
        let arguments = format!("key = \"a\", limit = \"5/s\", fallback = (), {argument}");
        let output = rate_limited(tokens(&arguments), tokens(item)).to_string();
        assert!(output.contains("compile_error") && output.contains(expected), "{argument}, {item}: {output}");
    }
    for accepted in ["cost = 0", "cost = 0u32", "cost = size", "wait = \"1s\"", "cost = 0, permit = allowed"] {
        let arguments = format!("key = \"a\", limit = \"5/s\", fallback = (), settle = |_| 5, {accepted}");
        let output = rate_limited(tokens(&arguments), tokens("fn get(size: u32) {}")).to_string();
        assert!(!output.contains("compile_error"), "{accepted}: {output}");
    }
}

/// The permit of a function is that of all its rules, and may settle each of them.
#[test]
fn a_cost_of_0_is_postpaid_beside_a_permit() {
    let other_rule = "#[rate_limited(key = \"b\", limit = \"5/s\", permit = allowed, fallback = ())]";
    let functions = [("permit = allowed", String::new()), ("fallback = ()", other_rule.to_owned())];
    for (argument, attribute) in functions {
        for (cost, is_postpaid) in [("0", true), ("0u32", true), ("size", true), ("2", false)] {
            let arguments = format!("key = \"a\", limit = \"5/s\", cost = {cost}, {argument}");
            let function = format!("{attribute} fn get(size: u32) -> Result<(), Denied> {{ Ok(()) }}");
            let output = rate_limited(tokens(&arguments), tokens(&function)).to_string();
            assert!(!output.contains("compile_error"), "{argument}, {cost}: {output}");
            assert_eq!(output.contains("settled"), is_postpaid, "{argument}, {cost}: {output}");
        }
    }
}

#[test]
fn a_stream_is_settled_by_its_permit() {
    const STREAM: &str = "the answer of a stream is not known yet when the function returns it";
    let streams = [
        "impl Stream<Item = u8>",
        "impl futures::Stream<Item = u8> + Send + use<>",
        "(impl Send + futures::stream::TryStream)",
        "Result<impl Stream<Item = u8>, Busy>",
        "Option<Sse<impl Stream<Item = Result<Event, Infallible>>>>",
        "Pin<Box<dyn Stream<Item = u8> + Send>>",
        "BoxStream<'static, u8>",
        "(u8, [LocalBoxStream<'static, u8>; 2])",
    ];
    let arguments = r#"key = "k", limit = "5/s", fallback = todo!(), settle = |_| 5"#;
    for output in streams {
        let messages = messages(arguments, &format!("async fn get() -> {output} {{ make() }}"));
        assert_eq!(messages.len(), 1, "{output}: {messages:?}");
        assert!(messages[0].starts_with(STREAM) && messages[0].contains("`permit`"), "{output}: {messages:?}");
    }
    let future = "fn get() -> impl Future<Output = impl Stream<Item = u8>> { async move { make() } }";
    assert!(messages(arguments, future)[0].starts_with(STREAM));
    for output in ["impl Iterator<Item = u8>", "Stream", "Result<Vec<Stream>, TryStream>", "impl StreamExt"] {
        let accepted = rate_limited(tokens(arguments), tokens(&format!("fn get() -> {output} {{ make() }}")));
        assert!(!accepted.to_string().contains("compile_error"), "{output}");
    }
}

#[test]
fn other_items_are_rejected_with_a_hint() {
    let cases = [
        ("struct S;", "a struct does not run"),
        ("enum E {}", "an enum does not run"),
        ("static S: u8 = 1;", "a static does not run"),
        ("const C: u8 = 1;", "a constant does not run"),
        ("type T = u8;", "a type alias does not run"),
        ("use std::fmt;", "an import does not run"),
        ("macro_rules! m { () => {} }", "a macro does not run"),
        ("impl S { const C: u8 = 1; }", "this `impl` block has no method to limit"),
        ("extern crate core;", "an import does not run"),
        ("pub trait T { fn f(&self); }", "a trait is not limited as a whole"),
        ("mod m { fn f() {} }", "a module is not limited as a whole"),
        (r#"extern "C" { fn f(); }"#, "a foreign block is not limited as a whole"),
        ("fn f(&self);", "a function without a body has nothing to limit"),
    ];
    for (item, expected) in cases {
        let messages = messages(r#"key = "k", limit = "5/s""#, item);
        assert_eq!(messages.len(), 1, "{item}: {messages:?}");
        assert!(messages[0].starts_with(expected), "{item}: {messages:?}");
    }
}

#[test]
fn only_futures_with_a_visible_block_are_limited() {
    let futures = [
        "impl Future<Output = u8>",
        "impl Send + std::future::Future<Output = u8>",
        "Pin<Box<dyn Future<Output = u8> + Send + '_>>",
        "std::pin::Pin<Box<(dyn Future<Output = u8> + Send)>>",
        "Box<dyn Future<Output = u8> + Unpin>",
        "BoxFuture<'static, u8>",
        "futures::future::LocalBoxFuture<'_, u8>",
    ];
    let arguments = r#"key = "k", limit = "5/s", fallback = todo!()"#;
    for output in futures {
        let messages = messages(arguments, &format!("fn get() -> {output} {{ make() }}"));
        assert_eq!(messages.len(), 1, "{output}: {messages:?}");
        assert!(messages[0].starts_with("this function only makes a future"), "{output}: {messages:?}");
    }
    let bodies = [
        "Box::pin(async move { 1 })",
        "std::boxed::Box::pin(async { 1 })",
        "let id = 1; async move { id }",
        "(async { 1 }).instrument(span).boxed()",
        "Pin::from(Box::new(async move { 1 }))",
    ];
    for body in bodies {
        let item = format!("fn get() -> BoxFuture<'static, u8> {{ {body} }}");
        let accepted = rate_limited(tokens(arguments), tokens(&item)).to_string();
        assert!(!accepted.contains("compile_error"), "{body}: {accepted}");
        assert!(accepted.find("async") < accepted.find("denied"), "{accepted}");
    }
    for body in ["make()", "Box::pin(make())", "async { 1 }.map(double)", "Box::pin(async { 1 });", "let = 1"] {
        let messages = messages(arguments, &format!("fn get() -> BoxFuture<'static, u8> {{ {body} }}"));
        assert!(messages[0].starts_with("this function only makes a future"), "{body}: {messages:?}");
    }
    for output in ["impl Iterator<Item = Pending>", "Pin<Box<u8>>", "Box<dyn Fn() -> u8>", "Future", "(u8, u8)", "!"] {
        let accepted = rate_limited(tokens(arguments), tokens(&format!("fn get() -> {output} {{ make() }}")));
        assert!(!accepted.to_string().contains("compile_error"), "{output}");
    }
}

/// The item is re-emitted without its other attributes of this kind, because they would repeat the error.
#[test]
fn a_mistake_removes_the_other_attributes_of_the_kind() {
    let cases = [
        ("#[rate_limited(key = 1)] #[inline] #[::x::rate_limited] fn f() {}", "#[inline] fn f() {}"),
        (
            "#[rate_limited] impl S { #[rate_limited(skip)] fn a() {} #[rate_limited(key = 1)] fn b() {} }",
            "impl S { fn a() {} #[rate_limited(key = 1)] fn b() {} }",
        ),
        (
            "fn f() -> impl T { #[rate_limited(skip)] fn g() {} }",
            "fn f() -> impl T { #[rate_limited(skip)] fn g() {} }",
        ),
    ];
    for (item, expected) in cases {
        let output = rate_limited(tokens("nonsense"), tokens(item)).to_string();
        let expected = tokens(expected).to_string();
        assert!(output.starts_with(&expected), "{output} should start with {expected}");
    }
}

#[test]
fn methods_do_not_repeat_equal_mistakes() {
    let item = "impl S { fn a(&self, id: u8) {} fn b(&self) {} const fn c(&self) {} const fn d() {} }";
    let output = rate_limited(tokens(r#"key = "{id}", limit = "5", fallback = ()"#), tokens(item)).to_string();
    let count = |text| output.matches(text).count();
    assert_eq!(count("must be permits and a window"), 1);
    assert_eq!(count("is no argument of `fn"), 3, "{output}");
    assert_eq!(count("a `const fn` may run"), 1, "each method would repeat it: {output}");
}

#[test]
fn a_rule_has_at_most_16_limits() {
    let limits = |count: u32| (1..=count).map(|seconds| format!("\"1/{seconds}s\", ")).collect::<String>();
    let arguments = |count| format!("key = \"a\", fallback = (), limits = [{}]", limits(count));
    let expected = ["`limits` has 17 limits, and a rule may have 16: remove the others"];
    assert_eq!(messages(&arguments(17), "fn called() {}"), expected);
}

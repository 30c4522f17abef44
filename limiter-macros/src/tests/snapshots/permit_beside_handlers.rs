// #[rate_limited(key = "a", limit = "5/s", fallback = None, on_error = |error| { report(error); None })]
// #[rate_limited(key = "b", limit = "9/s", fallback = slower, permit = allowed, recover = |_| None)] fn get(id: u64) -> Option<Allowed> { Some(allowed) }

fn get(id: u64) -> Option<Allowed> {
    let mut __held = ::rate_limited::__private::HeldSlots::new();
    match {
        let __decision = ::rate_limited::__private::try_allowed_blocking(
            {
                static SITES: [::rate_limited::__private::RuleSite; 2usize] = [
                    ::rate_limited::__private::RuleSite {
                        name: "a",
                        key: ::core::option::Option::Some("a"),
                        limits: &["5/s"],
                        algorithm: "sliding_window",
                        burst: ::core::option::Option::None,
                        cost: ::core::option::Option::Some(1u32),
                        block: ::core::option::Option::None,
                        function: ::core::concat!(::core::module_path!(), "::", "get"),
                        file: ::core::file!(),
                        line: ::core::line!(),
                    },
                    ::rate_limited::__private::RuleSite {
                        name: "b",
                        key: ::core::option::Option::Some("b"),
                        limits: &["9/s"],
                        algorithm: "sliding_window",
                        burst: ::core::option::Option::None,
                        cost: ::core::option::Option::Some(1u32),
                        block: ::core::option::Option::None,
                        function: ::core::concat!(::core::module_path!(), "::", "get"),
                        file: ::core::file!(),
                        line: ::core::line!(),
                    },
                ];
                static FUNCTION: ::rate_limited::__private::AnnotatedFunction = ::rate_limited::__private::AnnotatedFunction::new(
                    &["a", "b"],
                    &SITES,
                );
                ::rate_limited::__private::register_sites! {
                    & SITES
                }
                &FUNCTION
            },
            ::rate_limited::__private::current(),
            {
                static RULES: [::core::option::Option<
                    ::rate_limited::__private::RuleRequest,
                >; 2usize] = [
                    ::rate_limited::__private::RuleRequest::one_permit_static(
                        {
                            static KEY: ::rate_limited::__private::StaticKey = ::rate_limited::__private::StaticKey::new(
                                "a",
                            );
                            &KEY
                        },
                        5u32,
                        1000u64,
                    ),
                    ::rate_limited::__private::RuleRequest::one_permit_static(
                        {
                            static KEY: ::rate_limited::__private::StaticKey = ::rate_limited::__private::StaticKey::new(
                                "b",
                            );
                            &KEY
                        },
                        9u32,
                        1000u64,
                    ),
                ];
                &RULES
            },
            ::core::time::Duration::ZERO,
            &mut __held,
        );
        __decision
    } {
        ::core::result::Result::Err(::core::result::Result::Ok((__which, __denied))) => {
            match __which {
                0usize => {
                    let denied = __denied;
                    None
                }
                _ => slower(id),
            }
        }
        ::core::result::Result::Err(::core::result::Result::Err(__error)) => {
            ::rate_limited::__private::call(
                |error: ::rate_limited::__private::Error| {
                    report(error);
                    None
                },
                __error,
            )
        }
        ::core::result::Result::Ok(allowed) => {
            let __result = ::rate_limited::__private::run(|| -> Option<Allowed> {
                Some(allowed)
            });
            match ::rate_limited::__private::Fallible::settle(
                ::core::convert::identity(__result),
            ) {
                ::core::result::Result::Ok(__value) => __value,
                ::core::result::Result::Err(__error) => {
                    ::rate_limited::__private::call(|_| None, __error)
                }
            }
        }
    }
}

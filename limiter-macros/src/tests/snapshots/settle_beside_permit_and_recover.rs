// #[rate_limited(key = "k", limit = "5/s", settle = costs::of, permit = budget, recover = |error| Err(error))]
// fn get() -> Result<u64, Failed> { Ok(load(budget)?) }

fn get() -> Result<u64, Failed> {
    let mut __held = ::rate_limited::__private::HeldSlots::new();
    let __function = {
        static SITES: [::rate_limited::__private::RuleSite; 1usize] = [
            ::rate_limited::__private::RuleSite {
                name: "k",
                key: ::core::option::Option::Some("k"),
                limits: &["5/s"],
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
            &["k"],
            &SITES,
        );
        ::rate_limited::__private::register_sites! {
            & SITES
        }
        &FUNCTION
    };
    match {
        let __decision = ::rate_limited::__private::allowed_blocking(
            __function,
            ::rate_limited::__private::current(),
            {
                static RULES: [::core::option::Option<
                    ::rate_limited::__private::RuleRequest,
                >; 1usize] = [
                    ::rate_limited::__private::RuleRequest::one_permit_static(
                        {
                            static KEY: ::rate_limited::__private::StaticKey = ::rate_limited::__private::StaticKey::new(
                                "k",
                            );
                            &KEY
                        },
                        5u32,
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
        ::core::result::Result::Err((_, __denied)) => {
            ::rate_limited::__private::FromDenied::from_denied(__denied)
        }
        ::core::result::Result::Ok(__permit) => {
            let budget = ::core::clone::Clone::clone(&__permit);
            {
                let __result = ::rate_limited::__private::run(|| -> Result<u64, Failed> {
                    Ok(load(budget)?)
                });
                ::rate_limited::__private::settle(
                    __function,
                    &__permit,
                    &[
                        ::core::option::Option::Some({
                            let __actual: fn(_) -> ::core::primitive::u32 = costs::of;
                            __actual(&__result)
                        }),
                    ],
                );
                match ::rate_limited::__private::Fallible::settle(
                    ::core::convert::identity(__result),
                ) {
                    ::core::result::Result::Ok(__value) => __value,
                    ::core::result::Result::Err(__error) => {
                        ::rate_limited::__private::call(|error| Err(error), __error)
                    }
                }
            }
        }
    }
}

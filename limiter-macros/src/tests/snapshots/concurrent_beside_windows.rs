// #[rate_limited(key = "{id}", limits = ["5 concurrent", "100/min"], algorithm = token_bucket, permit = allowed)]
// #[rate_limited(key = "erp", concurrent = max, cost = size)] fn get(id: u64, max: u32, size: u32) -> Result<u64, Busy> { load(id, allowed) }

fn get(id: u64, max: u32, size: u32) -> Result<u64, Busy> {
    let mut __held = ::rate_limited::__private::HeldSlots::new();
    match {
        let __rules = [
            {
                let __key = ::rate_limited::__private::Key::new("").part(&(id));
                ::core::option::Option::Some(
                    ::rate_limited::__private::RuleRequest::with_limits(
                        __key,
                        [
                            ::core::result::Result::Ok(
                                ::rate_limited::__private::concurrent(5u32),
                            ),
                            ::rate_limited::__private::counted_by(
                                ::core::result::Result::Ok(
                                    ::rate_limited::__private::limit(100u32, 60000u64),
                                ),
                                ::rate_limited::__private::Algorithm::TokenBucket,
                                ::core::option::Option::None,
                            ),
                        ],
                        1u32,
                    ),
                )
            },
            ::core::option::Option::map(
                {
                    let __key = {
                        static KEY: ::rate_limited::__private::StaticKey = ::rate_limited::__private::StaticKey::new(
                            "erp",
                        );
                        &KEY
                    };
                    let __limit = ::rate_limited::__private::concurrent_of({
                        let __value: ::core::primitive::u32 = max;
                        __value
                    });
                    let __cost = {
                        let __value: ::core::primitive::u32 = size;
                        __value
                    };
                    ::core::option::Option::Some(
                        ::rate_limited::__private::RuleRequest::with_limit(
                            __key,
                            __limit,
                            __cost,
                        ),
                    )
                },
                ::rate_limited::__private::RuleRequest::settled,
            ),
        ];
        let __decision = ::rate_limited::__private::allowed_blocking(
            {
                static SITES: [::rate_limited::__private::RuleSite; 2usize] = [
                    ::rate_limited::__private::RuleSite {
                        name: "{id}",
                        key: ::core::option::Option::Some("{id}"),
                        limits: &["5 concurrent", "100/min"],
                        algorithm: "token_bucket",
                        burst: ::core::option::Option::None,
                        cost: ::core::option::Option::Some(1u32),
                        block: ::core::option::Option::None,
                        function: ::core::concat!(::core::module_path!(), "::", "get"),
                        file: ::core::file!(),
                        line: ::core::line!(),
                    },
                    ::rate_limited::__private::RuleSite {
                        name: "erp",
                        key: ::core::option::Option::Some("erp"),
                        limits: &["max concurrent"],
                        algorithm: "sliding_window",
                        burst: ::core::option::Option::None,
                        cost: ::core::option::Option::None,
                        block: ::core::option::Option::None,
                        function: ::core::concat!(::core::module_path!(), "::", "get"),
                        file: ::core::file!(),
                        line: ::core::line!(),
                    },
                ];
                static FUNCTION: ::rate_limited::__private::AnnotatedFunction = ::rate_limited::__private::AnnotatedFunction::new(
                    &["{id}", "erp"],
                    &SITES,
                );
                ::rate_limited::__private::register_sites! {
                    & SITES
                }
                &FUNCTION
            },
            ::rate_limited::__private::current(),
            &__rules,
            ::core::time::Duration::ZERO,
            &mut __held,
        );
        __decision
    } {
        ::core::result::Result::Err((_, __denied)) => {
            ::rate_limited::__private::FromDenied::from_denied(__denied)
        }
        ::core::result::Result::Ok(allowed) => load(id, allowed),
    }
}

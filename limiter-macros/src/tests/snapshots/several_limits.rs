// #[rate_limited(key = "{id}", limits = ["5/s", limit], algorithm = token_bucket, burst = 10, cost = size, when = size > 0, wait = "500ms", fallback = None)]
// async fn get(id: u64, limit: Limit, size: u32) -> Option<u64> { Some(id) }

async fn get(id: u64, limit: Limit, size: u32) -> Option<u64> {
    let mut __held = ::rate_limited::__private::HeldSlots::new();
    if let ::core::option::Option::Some((_, denied)) = {
        let __rules = [
            if {
                let __value: ::core::primitive::bool = size > 0;
                __value
            } {
                {
                    let __key = ::rate_limited::__private::Key::new("").part(&(id));
                    let __limit = [
                        ::rate_limited::__private::counted_by(
                            ::core::result::Result::Ok(
                                ::rate_limited::__private::limit(5u32, 1000u64),
                            ),
                            ::rate_limited::__private::Algorithm::TokenBucket,
                            ::core::option::Option::Some(10u32),
                        ),
                        ::rate_limited::__private::counted_by(
                            ::rate_limited::__private::limit_from(&(limit)),
                            ::rate_limited::__private::Algorithm::TokenBucket,
                            ::core::option::Option::Some(10u32),
                        ),
                    ];
                    let __cost = {
                        let __value: ::core::primitive::u32 = size;
                        __value
                    };
                    ::core::option::Option::Some(
                        ::rate_limited::__private::RuleRequest::with_limits(
                            __key,
                            __limit,
                            __cost,
                        ),
                    )
                }
            } else {
                ::core::option::Option::None
            },
        ];
        let __decision = ::rate_limited::__private::denied(
                {
                    static SITES: [::rate_limited::__private::RuleSite; 1usize] = [
                        ::rate_limited::__private::RuleSite {
                            name: "{id}",
                            key: ::core::option::Option::Some("{id}"),
                            limits: &["5/s", "limit"],
                            algorithm: "token_bucket",
                            burst: ::core::option::Option::Some(10u32),
                            cost: ::core::option::Option::None,
                            block: ::core::option::Option::None,
                            function: ::core::concat!(
                                ::core::module_path!(), "::", "get"
                            ),
                            file: ::core::file!(),
                            line: ::core::line!(),
                        },
                    ];
                    static FUNCTION: ::rate_limited::__private::AnnotatedFunction = ::rate_limited::__private::AnnotatedFunction::new(
                        &["{id}"],
                        &SITES,
                    );
                    ::rate_limited::__private::register_sites! {
                        & SITES
                    }
                    &FUNCTION
                },
                ::rate_limited::__private::current(),
                &__rules,
                ::core::time::Duration::from_millis(500u64),
                &mut __held,
            )
            .await;
        __decision
    } {
        None
    } else {
        Some(id)
    }
}

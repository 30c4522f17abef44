// #[rate_limited(key = "k", limit = "5/s", cost = size, settle = |rows| size, when = size > 0)]
// async fn get(size: u32) -> Result<Vec<impl Row>, Busy> { load().await }

async fn get(size: u32) -> Result<Vec<impl Row>, Busy> {
    let mut __held = ::rate_limited::__private::HeldSlots::new();
    let __function = {
        static SITES: [::rate_limited::__private::RuleSite; 1usize] = [
            ::rate_limited::__private::RuleSite {
                name: "k",
                key: ::core::option::Option::Some("k"),
                limits: &["5/s"],
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
            &["k"],
            &SITES,
        );
        ::rate_limited::__private::register_sites! {
            & SITES
        }
        &FUNCTION
    };
    match {
        let __rules = [
            if {
                let __value: ::core::primitive::bool = size > 0;
                __value
            } {
                ::core::option::Option::map(
                    {
                        let __key = {
                            static KEY: ::rate_limited::__private::StaticKey = ::rate_limited::__private::StaticKey::new(
                                "k",
                            );
                            &KEY
                        };
                        let __cost = {
                            let __value: ::core::primitive::u32 = size;
                            __value
                        };
                        ::core::option::Option::Some(
                            ::rate_limited::__private::RuleRequest::with_limit(
                                __key,
                                ::core::result::Result::Ok(
                                    ::rate_limited::__private::limit(5u32, 1000u64),
                                ),
                                __cost,
                            ),
                        )
                    },
                    ::rate_limited::__private::RuleRequest::settled,
                )
            } else {
                ::core::option::Option::None
            },
        ];
        let __decision = ::rate_limited::__private::allowed(
                __function,
                ::rate_limited::__private::current(),
                &__rules,
                ::core::time::Duration::ZERO,
                &mut __held,
            )
            .await;
        __decision
    } {
        ::core::result::Result::Err((_, __denied)) => {
            ::rate_limited::__private::FromDenied::from_denied(__denied)
        }
        ::core::result::Result::Ok(__permit) => {
            let __result = async move {
                if let ::core::option::Option::Some(__value) = ::core::option::Option::None::<
                    Result<Vec<_>, Busy>,
                > {
                    return __value;
                }
                let size = size;
                let _ = &size;
                let __value: Result<Vec<_>, Busy> = { load().await };
                __value
            }
                .await;
            ::rate_limited::__private::settle(
                __function,
                &__permit,
                &[
                    ::core::option::Option::Some({
                        ::rate_limited::__private::actual_cost(&__result, |rows| size)
                    }),
                ],
            );
            __result
        }
    }
}

// #[rate_limited(key = "getId", max = MAX, window = "10s", permit = allowed)]
// async fn get_id() -> Result<u32, Busy> { Ok(allowed.remaining()) }

async fn get_id() -> Result<u32, Busy> {
    let mut __held = ::rate_limited::__private::HeldSlots::new();
    match {
        let __rules = [
            {
                let __key = {
                    static KEY: ::rate_limited::__private::StaticKey = ::rate_limited::__private::StaticKey::new(
                        "getId",
                    );
                    &KEY
                };
                let __limit = ::rate_limited::__private::limit_of(
                    {
                        let __value: ::core::primitive::u32 = MAX;
                        __value
                    },
                    ::core::time::Duration::from_millis(10000u64),
                );
                ::core::option::Option::Some(
                    ::rate_limited::__private::RuleRequest::with_limit(
                        __key,
                        __limit,
                        1u32,
                    ),
                )
            },
        ];
        let __decision = ::rate_limited::__private::allowed(
                {
                    static SITES: [::rate_limited::__private::RuleSite; 1usize] = [
                        ::rate_limited::__private::RuleSite {
                            name: "getId",
                            key: ::core::option::Option::Some("getId"),
                            limits: &["MAX/10s"],
                            algorithm: "sliding_window",
                            burst: ::core::option::Option::None,
                            cost: ::core::option::Option::Some(1u32),
                            block: ::core::option::Option::None,
                            function: ::core::concat!(
                                ::core::module_path!(), "::", "get_id"
                            ),
                            file: ::core::file!(),
                            line: ::core::line!(),
                        },
                    ];
                    static FUNCTION: ::rate_limited::__private::AnnotatedFunction = ::rate_limited::__private::AnnotatedFunction::new(
                        &["getId"],
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
            )
            .await;
        __decision
    } {
        ::core::result::Result::Err((_, __denied)) => {
            ::rate_limited::__private::FromDenied::from_denied(__denied)
        }
        ::core::result::Result::Ok(allowed) => Ok(allowed.remaining()),
    }
}

// #[rate_limited(key = "erp", concurrent = 50, fallback = None)]
// async fn get(id: u64) -> Option<u64> { load(id).await }

async fn get(id: u64) -> Option<u64> {
    let mut __held = ::rate_limited::__private::HeldSlots::new();
    if let ::core::option::Option::Some((_, denied)) = {
        let __rules = [
            {
                let __key = {
                    static KEY: ::rate_limited::__private::StaticKey = ::rate_limited::__private::StaticKey::new(
                        "erp",
                    );
                    &KEY
                };
                ::core::option::Option::Some(
                    ::rate_limited::__private::RuleRequest::with_limit(
                        __key,
                        ::core::result::Result::Ok(
                            ::rate_limited::__private::concurrent(50u32),
                        ),
                        1u32,
                    ),
                )
            },
        ];
        let __decision = ::rate_limited::__private::denied(
                {
                    static SITES: [::rate_limited::__private::RuleSite; 1usize] = [
                        ::rate_limited::__private::RuleSite {
                            name: "erp",
                            key: ::core::option::Option::Some("erp"),
                            limits: &["50 concurrent"],
                            algorithm: "sliding_window",
                            burst: ::core::option::Option::None,
                            cost: ::core::option::Option::Some(1u32),
                            block: ::core::option::Option::None,
                            function: ::core::concat!(
                                ::core::module_path!(), "::", "get"
                            ),
                            file: ::core::file!(),
                            line: ::core::line!(),
                        },
                    ];
                    static FUNCTION: ::rate_limited::__private::AnnotatedFunction = ::rate_limited::__private::AnnotatedFunction::new(
                        &["erp"],
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
        None
    } else {
        load(id).await
    }
}

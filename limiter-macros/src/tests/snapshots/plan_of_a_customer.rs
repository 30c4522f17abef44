// #[rate_limited(key = "{customer.id}", limit = "5/s", when = customer.is_limited, plan = customer.plan())]
// #[rate_limited(key = "all", limit = configured, plan = "free")] async fn get(customer: &Customer) -> Result<u64, Busy> { load(customer).await }

async fn get(customer: &Customer) -> Result<u64, Busy> {
    let mut __held = ::rate_limited::__private::HeldSlots::new();
    if let ::core::option::Option::Some((_, __denied)) = {
        let __rules = [
            if {
                let __value: ::core::primitive::bool = customer.is_limited;
                __value
            } {
                {
                    let __request = {
                        let __key = ::rate_limited::__private::Key::new("")
                            .part(&(customer.id));
                        ::rate_limited::__private::RuleRequest::one_permit(
                            __key,
                            5u32,
                            1000u64,
                        )
                    };
                    let __plan = ::rate_limited::__private::plan(&(customer.plan()));
                    ::rate_limited::__private::RuleRequest::of_plan(__request, __plan)
                }
            } else {
                ::core::option::Option::None
            },
            {
                let __request = {
                    let __key = {
                        static KEY: ::rate_limited::__private::StaticKey = ::rate_limited::__private::StaticKey::new(
                            "all",
                        );
                        &KEY
                    };
                    ::rate_limited::__private::RuleRequest::configured(__key, 1u32)
                };
                let __plan = ::rate_limited::__private::plan(&("free"));
                ::rate_limited::__private::RuleRequest::of_plan(__request, __plan)
            },
        ];
        let __decision = ::rate_limited::__private::denied(
                {
                    static SITES: [::rate_limited::__private::RuleSite; 2usize] = [
                        ::rate_limited::__private::RuleSite {
                            name: "{customer.id}",
                            key: ::core::option::Option::Some("{customer.id}"),
                            limits: &["5/s"],
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
                        ::rate_limited::__private::RuleSite {
                            name: "all",
                            key: ::core::option::Option::Some("all"),
                            limits: &["configured"],
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
                        &["{customer.id}", "all"],
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
        ::rate_limited::__private::FromDenied::from_denied(__denied)
    } else {
        load(customer).await
    }
}

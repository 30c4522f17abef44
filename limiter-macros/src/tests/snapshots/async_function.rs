// #[rate_limited(key = "getId", window = "10s", max = 5, fallback = degrade_fn)]
// pub async fn get_id(user_id: u64) -> String { load(user_id).await }

pub async fn get_id(user_id: u64) -> String {
    let mut __held = ::rate_limited::__private::HeldSlots::new();
    if let ::core::option::Option::Some((_, __denied)) = {
        let __decision = ::rate_limited::__private::denied(
                {
                    static SITES: [::rate_limited::__private::RuleSite; 1usize] = [
                        ::rate_limited::__private::RuleSite {
                            name: "getId",
                            key: ::core::option::Option::Some("getId"),
                            limits: &["5/10s"],
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
                {
                    static RULES: [::core::option::Option<
                        ::rate_limited::__private::RuleRequest,
                    >; 1usize] = [
                        ::rate_limited::__private::RuleRequest::one_permit_static(
                            {
                                static KEY: ::rate_limited::__private::StaticKey = ::rate_limited::__private::StaticKey::new(
                                    "getId",
                                );
                                &KEY
                            },
                            5u32,
                            10000u64,
                        ),
                    ];
                    &RULES
                },
                ::core::time::Duration::ZERO,
                &mut __held,
            )
            .await;
        __decision
    } {
        ::rate_limited::__private::resolve(degrade_fn(user_id)).await
    } else {
        load(user_id).await
    }
}

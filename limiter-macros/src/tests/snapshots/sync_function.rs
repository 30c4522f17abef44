// #[rate_limited(key = "getId", limit = "5/10s")]
// fn get_id() -> Result<u64, Busy> { Ok(7) }

fn get_id() -> Result<u64, Busy> {
    let mut __held = ::rate_limited::__private::HeldSlots::new();
    if let ::core::option::Option::Some((_, __denied)) = {
        let __decision = ::rate_limited::__private::denied_blocking(
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
        );
        __decision
    } {
        ::rate_limited::__private::FromDenied::from_denied(__denied)
    } else {
        Ok(7)
    }
}

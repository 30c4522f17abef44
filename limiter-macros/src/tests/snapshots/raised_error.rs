// #[rate_limited(key = "k", limit = "5/s", on_error = raise)]
// async fn get() -> Result<(), Failed> { #![allow(unused)] let nothing = 1; Ok(()) }

#[allow(unused)]
async fn get() -> Result<(), Failed> {
    let mut __held = ::rate_limited::__private::HeldSlots::new();
    if let ::core::option::Option::Some(__stopped) = {
        let __decision = ::rate_limited::__private::decide(
                {
                    static SITES: [::rate_limited::__private::RuleSite; 1usize] = [
                        ::rate_limited::__private::RuleSite {
                            name: "k",
                            key: ::core::option::Option::Some("k"),
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
                    ];
                    static FUNCTION: ::rate_limited::__private::AnnotatedFunction = ::rate_limited::__private::AnnotatedFunction::new(
                        &["k"],
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
            )
            .await;
        __decision
    } {
        match __stopped {
            ::core::result::Result::Ok((_, __denied)) => {
                ::rate_limited::__private::FromDenied::from_denied(__denied)
            }
            ::core::result::Result::Err(__error) => {
                ::rate_limited::__private::FromFailure::from_failure(__error)
            }
        }
    } else {
        let nothing = 1;
        Ok(())
    }
}

// #[rate_limited(key = "user:{id}", limit = "5/s", cost = 0, settle = |answer| answer.tokens, fallback = Answer::none())]
// #[rate_limited(key = "calls", limit = "9/s", fallback = Answer::none())] async fn get(id: u64, mut name: String) -> Answer { name.push('!'); load(name).await }

async fn get(id: u64, name: String) -> Answer {
    let mut __held = ::rate_limited::__private::HeldSlots::new();
    let __function = {
        static SITES: [::rate_limited::__private::RuleSite; 2usize] = [
            ::rate_limited::__private::RuleSite {
                name: "user:{id}",
                key: ::core::option::Option::Some("user:{id}"),
                limits: &["5/s"],
                algorithm: "sliding_window",
                burst: ::core::option::Option::None,
                cost: ::core::option::Option::Some(0u32),
                block: ::core::option::Option::None,
                function: ::core::concat!(::core::module_path!(), "::", "get"),
                file: ::core::file!(),
                line: ::core::line!(),
            },
            ::rate_limited::__private::RuleSite {
                name: "calls",
                key: ::core::option::Option::Some("calls"),
                limits: &["9/s"],
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
                &["user:{id}", "calls"],
                &SITES,
            )
            .settled(&[true, false]);
        ::rate_limited::__private::register_sites! {
            & SITES
        }
        &FUNCTION
    };
    match {
        let __rules = [
            ::core::option::Option::map(
                {
                    let __key = ::rate_limited::__private::Key::new("user:").part(&(id));
                    ::core::option::Option::Some(
                        ::rate_limited::__private::RuleRequest::with_limit(
                            __key,
                            ::core::result::Result::Ok(
                                ::rate_limited::__private::limit(5u32, 1000u64),
                            ),
                            0u32,
                        ),
                    )
                },
                ::rate_limited::__private::RuleRequest::settled,
            ),
            ::rate_limited::__private::RuleRequest::one_permit_static(
                {
                    static KEY: ::rate_limited::__private::StaticKey = ::rate_limited::__private::StaticKey::new(
                        "calls",
                    );
                    &KEY
                },
                9u32,
                1000u64,
            ),
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
        ::core::result::Result::Err((__which, __denied)) => {
            match __which {
                0usize => {
                    let denied = __denied;
                    Answer::none()
                }
                _ => {
                    let denied = __denied;
                    Answer::none()
                }
            }
        }
        ::core::result::Result::Ok(__permit) => {
            let __result = async move {
                if let ::core::option::Option::Some(__value) = ::core::option::Option::None::<
                    Answer,
                > {
                    return __value;
                }
                let id = id;
                let _ = &id;
                let mut name = name;
                let __value: Answer = {
                    name.push('!');
                    load(name).await
                };
                __value
            }
                .await;
            ::rate_limited::__private::settle(
                __function,
                &__permit,
                &[
                    ::core::option::Option::Some({
                        ::rate_limited::__private::actual_cost(
                            &__result,
                            |answer| answer.tokens,
                        )
                    }),
                    ::core::option::Option::None,
                ],
            );
            __result
        }
    }
}

// #[rate_limited(key = "user:{id}", limit = "5/s", fallback = slower)]
// #[rate_limited(key = "global", limit = "100/s", fallback = busy(denied), on_error = open)] async fn get(id: u64) -> u64 { id }

async fn get(id: u64) -> u64 {
    let mut __held = ::rate_limited::__private::HeldSlots::new();
    if let ::core::option::Option::Some((__which, __denied)) = {
        let __rules = [
            {
                let __key = ::rate_limited::__private::Key::new("user:").part(&(id));
                ::rate_limited::__private::RuleRequest::one_permit(__key, 5u32, 1000u64)
            },
            ::rate_limited::__private::RuleRequest::one_permit_static(
                {
                    static KEY: ::rate_limited::__private::StaticKey = ::rate_limited::__private::StaticKey::new(
                        "global",
                    );
                    &KEY
                },
                100u32,
                1000u64,
            ),
        ];
        let __decision = ::rate_limited::__private::denied(
                {
                    static SITES: [::rate_limited::__private::RuleSite; 2usize] = [
                        ::rate_limited::__private::RuleSite {
                            name: "user:{id}",
                            key: ::core::option::Option::Some("user:{id}"),
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
                            name: "global",
                            key: ::core::option::Option::Some("global"),
                            limits: &["100/s"],
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
                            &["user:{id}", "global"],
                            &SITES,
                        )
                        .on_error(::rate_limited::__private::OnError::Open);
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
        match __which {
            0usize => ::rate_limited::__private::resolve(slower(id)).await,
            _ => {
                let denied = __denied;
                busy(denied)
            }
        }
    } else {
        id
    }
}

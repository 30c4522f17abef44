// #[rate_limited(key = "user:{id}", limit = "5/s", fallback = 0)]
// #[rate_limited(key = "all", limit = "100000/s", leases = true, on_error = closed, fallback = 1)] #[rate_limited("rest", leases = false, fallback = 2)] fn get(id: u64) -> u64 { id }

fn get(id: u64) -> u64 {
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
                        "all",
                    );
                    &KEY
                },
                100000u32,
                1000u64,
            ),
            ::rate_limited::__private::RuleRequest::configured_static({
                static KEY: ::rate_limited::__private::StaticKey = ::rate_limited::__private::StaticKey::new(
                    "rest",
                );
                &KEY
            }),
        ];
        let __decision = ::rate_limited::__private::denied_blocking(
            {
                static SITES: [::rate_limited::__private::RuleSite; 3usize] = [
                    ::rate_limited::__private::RuleSite {
                        name: "user:{id}",
                        key: ::core::option::Option::Some("user:{id}"),
                        limits: &["5/s"],
                        algorithm: "sliding_window",
                        burst: ::core::option::Option::None,
                        cost: ::core::option::Option::Some(1u32),
                        block: ::core::option::Option::None,
                        function: ::core::concat!(::core::module_path!(), "::", "get"),
                        file: ::core::file!(),
                        line: ::core::line!(),
                    },
                    ::rate_limited::__private::RuleSite {
                        name: "all",
                        key: ::core::option::Option::Some("all"),
                        limits: &["100000/s"],
                        algorithm: "sliding_window",
                        burst: ::core::option::Option::None,
                        cost: ::core::option::Option::Some(1u32),
                        block: ::core::option::Option::None,
                        function: ::core::concat!(::core::module_path!(), "::", "get"),
                        file: ::core::file!(),
                        line: ::core::line!(),
                    },
                    ::rate_limited::__private::RuleSite {
                        name: "rest",
                        key: ::core::option::Option::Some("rest"),
                        limits: &["configured"],
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
                        &["user:{id}", "all", "rest"],
                        &SITES,
                    )
                    .on_error(::rate_limited::__private::OnError::Closed)
                    .leases(
                        &[
                            ::core::option::Option::None,
                            ::core::option::Option::Some(true),
                            ::core::option::Option::Some(false),
                        ],
                    );
                ::rate_limited::__private::register_sites! {
                    & SITES
                }
                ::rate_limited::__private::require_leases! {}
                &FUNCTION
            },
            ::rate_limited::__private::current(),
            &__rules,
            ::core::time::Duration::ZERO,
            &mut __held,
        );
        __decision
    } {
        match __which {
            0usize => {
                let denied = __denied;
                0
            }
            1usize => {
                let denied = __denied;
                1
            }
            _ => {
                let denied = __denied;
                2
            }
        }
    } else {
        id
    }
}

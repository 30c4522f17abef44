// #[rate_limited("user:{id}", name = "user", cost = size, when = size > 0, fallback = 0)]
// #[rate_limited(key = KEY.clone(), name = "all", limit = configured, cost = 2, fallback = 1)] fn get(id: u64, size: u32) -> u64 { id }

fn get(id: u64, size: u32) -> u64 {
    let mut __held = ::rate_limited::__private::HeldSlots::new();
    if let ::core::option::Option::Some((__which, __denied)) = {
        let __rules = [
            if {
                let __value: ::core::primitive::bool = size > 0;
                __value
            } {
                {
                    let __key = ::rate_limited::__private::Key::new("user:").part(&(id));
                    let __cost = {
                        let __value: ::core::primitive::u32 = size;
                        __value
                    };
                    ::rate_limited::__private::RuleRequest::configured(__key, __cost)
                }
            } else {
                ::core::option::Option::None
            },
            {
                let __key = ::rate_limited::__private::key("all", &(KEY.clone()));
                ::rate_limited::__private::RuleRequest::configured(__key, 2u32)
            },
        ];
        let __decision = ::rate_limited::__private::denied_blocking(
            {
                static SITES: [::rate_limited::__private::RuleSite; 2usize] = [
                    ::rate_limited::__private::RuleSite {
                        name: "user",
                        key: ::core::option::Option::Some("user:{id}"),
                        limits: &["configured"],
                        algorithm: "sliding_window",
                        burst: ::core::option::Option::None,
                        cost: ::core::option::Option::None,
                        block: ::core::option::Option::None,
                        function: ::core::concat!(::core::module_path!(), "::", "get"),
                        file: ::core::file!(),
                        line: ::core::line!(),
                    },
                    ::rate_limited::__private::RuleSite {
                        name: "all",
                        key: ::core::option::Option::None,
                        limits: &["configured"],
                        algorithm: "sliding_window",
                        burst: ::core::option::Option::None,
                        cost: ::core::option::Option::Some(2u32),
                        block: ::core::option::Option::None,
                        function: ::core::concat!(::core::module_path!(), "::", "get"),
                        file: ::core::file!(),
                        line: ::core::line!(),
                    },
                ];
                static FUNCTION: ::rate_limited::__private::AnnotatedFunction = ::rate_limited::__private::AnnotatedFunction::new(
                    &["user", "all"],
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
        );
        __decision
    } {
        match __which {
            0usize => {
                let denied = __denied;
                0
            }
            _ => {
                let denied = __denied;
                1
            }
        }
    } else {
        id
    }
}

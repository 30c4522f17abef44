// #[rate_limited(key = "{REGION}/{{user}}:{id}!", limit = "5/s", fallback = None)]
// fn get(id: u64) -> Option<u64> { Some(id) }

fn get(id: u64) -> Option<u64> {
    let mut __held = ::rate_limited::__private::HeldSlots::new();
    if let ::core::option::Option::Some((_, denied)) = {
        let __rules = [
            ::rate_limited::__private::RuleRequest::one_permit(
                ::rate_limited::__private::Key::new("")
                    .part(
                        ::rate_limited::__private::captured_value(
                            ::core::format_args!("{REGION}/{{user}}:{id}!", id = ""),
                            0usize,
                            9usize,
                        ),
                    )
                    .text("/{user}:")
                    .part(&(id))
                    .text("!"),
                5u32,
                1000u64,
            ),
        ];
        let __decision = ::rate_limited::__private::denied_blocking(
            {
                static SITES: [::rate_limited::__private::RuleSite; 1usize] = [
                    ::rate_limited::__private::RuleSite {
                        name: "{REGION}/{{user}}:{id}!",
                        key: ::core::option::Option::Some("{REGION}/{{user}}:{id}!"),
                        limits: &["5/s"],
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
                    &["{REGION}/{{user}}:{id}!"],
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
        None
    } else {
        Some(id)
    }
}

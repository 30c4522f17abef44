// #[rate_limited(key = "{id}/{first}", limit = "5/s", fallback = degraded)]
// fn get(Path(id): Path<u64>, (first, ..): (u64, Token), #[cfg(unix)] _: Token, mut last: u64) -> u64 { last += id; last }

fn get(
    Path(id): Path<u64>,
    first: (u64, Token),
    #[cfg(unix)]
    argument2: Token,
    last: u64,
) -> u64 {
    let mut __held = ::rate_limited::__private::HeldSlots::new();
    if let ::core::option::Option::Some((_, __denied)) = {
        let __rules = [
            ::rate_limited::__private::RuleRequest::one_permit(
                {
                    #[allow(unused_variables)]
                    let (first, ..) = &first;
                    ::rate_limited::__private::Key::new("")
                        .part(&(id))
                        .text("/")
                        .part(&(first))
                },
                5u32,
                1000u64,
            ),
        ];
        let __decision = ::rate_limited::__private::denied_blocking(
            {
                static SITES: [::rate_limited::__private::RuleSite; 1usize] = [
                    ::rate_limited::__private::RuleSite {
                        name: "{id}/{first}",
                        key: ::core::option::Option::Some("{id}/{first}"),
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
                    &["{id}/{first}"],
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
        degraded(Path(id), first, #[cfg(unix)] argument2, last)
    } else {
        let first = first;
        let (first, ..) = first;
        let _ = &first;
        #[cfg(unix)]
        let argument2 = argument2;
        #[cfg(unix)]
        let _ = argument2;
        let mut last = last;
        let _ = &last;
        last += id;
        last
    }
}

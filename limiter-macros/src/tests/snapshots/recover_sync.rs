// #[rate_limited(key = "user:{id}", limit = "5/s", recover = |error| Err(error.into()))]
// fn get(id: u64) -> Result<u64, Failed> { Ok(load(id)?) }

fn get(id: u64) -> Result<u64, Failed> {
    let mut __held = ::rate_limited::__private::HeldSlots::new();
    if let ::core::option::Option::Some((_, __denied)) = {
        let __rules = [
            ::rate_limited::__private::RuleRequest::one_permit(
                ::rate_limited::__private::Key::new("user:").part(&(id)),
                5u32,
                1000u64,
            ),
        ];
        let __decision = ::rate_limited::__private::denied_blocking(
            {
                static SITES: [::rate_limited::__private::RuleSite; 1usize] = [
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
                ];
                static FUNCTION: ::rate_limited::__private::AnnotatedFunction = ::rate_limited::__private::AnnotatedFunction::new(
                    &["user:{id}"],
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
        ::rate_limited::__private::FromDenied::from_denied(__denied)
    } else {
        let __result = ::rate_limited::__private::run(|| -> Result<u64, Failed> {
            Ok(load(id)?)
        });
        match ::rate_limited::__private::Fallible::settle(
            ::core::convert::identity(__result),
        ) {
            ::core::result::Result::Ok(__value) => __value,
            ::core::result::Result::Err(__error) => {
                ::rate_limited::__private::call(|error| Err(error.into()), __error)
            }
        }
    }
}

// #[rate_limited(key = "{tenant}/{{{user.id}}}:{hash:08x}", limit = LIMIT, fallback = Reply::Busy(denied), on_error = open)]
// fn get(tenant: &str, user: &User, hash: u32) -> Reply { load(user) }

fn get(tenant: &str, user: &User, hash: u32) -> Reply {
    let mut __held = ::rate_limited::__private::HeldSlots::new();
    if let ::core::option::Option::Some((_, denied)) = {
        let __rules = [
            {
                let __key = ::rate_limited::__private::Key::new("")
                    .part(&(tenant))
                    .text("/{")
                    .part(&(user.id))
                    .text("}:")
                    .part(::core::format_args!("{:08x}", hash));
                let __limit = ::rate_limited::__private::limit_from(&(LIMIT));
                ::core::option::Option::Some(
                    ::rate_limited::__private::RuleRequest::with_limit(
                        __key,
                        __limit,
                        1u32,
                    ),
                )
            },
        ];
        let __decision = ::rate_limited::__private::denied_blocking(
            {
                static SITES: [::rate_limited::__private::RuleSite; 1usize] = [
                    ::rate_limited::__private::RuleSite {
                        name: "{tenant}/{{{user.id}}}:{hash:08x}",
                        key: ::core::option::Option::Some(
                            "{tenant}/{{{user.id}}}:{hash:08x}",
                        ),
                        limits: &["LIMIT"],
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
                        &["{tenant}/{{{user.id}}}:{hash:08x}"],
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
        );
        __decision
    } {
        Reply::Busy(denied)
    } else {
        load(user)
    }
}

// #[rate_limited(key = "{REGION}/{{user}}:{id}!", limit = "5/s", fallback = None)]
// fn get(id: u64) -> Option<u64> { Some(id) }

fn get(id: u64) -> Option<u64> {
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
                static SITE: ::rate_limited::__private::Site = ::rate_limited::__private::Site::new(
                    &["{REGION}/{{user}}:{id}!"],
                );
                &SITE
            },
            ::rate_limited::__private::current(),
            &__rules,
            ::core::time::Duration::ZERO,
        );
        __decision
    } {
        None
    } else {
        Some(id)
    }
}

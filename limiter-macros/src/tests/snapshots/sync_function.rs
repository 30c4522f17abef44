// #[rate_limited(key = "getId", limit = "5/10s")]
// fn get_id() -> Result<u64, Busy> { Ok(7) }

fn get_id() -> Result<u64, Busy> {
    if let ::core::option::Option::Some((_, __denied)) = {
        let __decision = ::rate_limited::__private::denied_blocking(
            {
                static SITE: ::rate_limited::__private::Site = ::rate_limited::__private::Site::new(
                    &["getId"],
                );
                &SITE
            },
            ::rate_limited::__private::current(),
            {
                static ASKS: [::core::option::Option<
                    ::rate_limited::__private::Ask,
                >; 1usize] = [
                    ::rate_limited::__private::fixed(
                        {
                            static KEY: ::rate_limited::__private::Constant = ::rate_limited::__private::Constant::new(
                                "getId",
                            );
                            &KEY
                        },
                        5u32,
                        10000u64,
                    ),
                ];
                &ASKS
            },
            ::core::time::Duration::ZERO,
        );
        __decision
    } {
        ::rate_limited::__private::FromDenied::from_denied(__denied)
    } else {
        Ok(7)
    }
}

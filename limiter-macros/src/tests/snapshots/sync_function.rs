// #[rate_limited(key = "getId", limit = "5/10s")]
// fn get_id() -> Result<u64, Busy> { Ok(7) }

fn get_id() -> Result<u64, Busy> {
    if let ::core::option::Option::Some((_, __denied)) = {
        let __asks = [
            ::rate_limited::__private::one(
                ::rate_limited::__private::constant(const {
                    ::rate_limited::__private::Constant::new("getId")
                }),
                5u32,
                10000u64,
            ),
        ];
        let __decision = ::rate_limited::__private::denied_blocking(
            {
                static SITE: ::rate_limited::__private::Site = ::rate_limited::__private::Site::new(
                    &["getId"],
                );
                &SITE
            },
            ::rate_limited::__private::current(),
            &__asks,
            ::core::time::Duration::ZERO,
        );
        __decision
    } {
        ::rate_limited::__private::FromDenied::from_denied(__denied)
    } else {
        Ok(7)
    }
}

// #[rate_limited(key = "getId", limit = "5/10s")]
// fn get_id() -> Result<u64, Busy> { Ok(7) }

fn get_id() -> Result<u64, Busy> {
    if let ::core::option::Option::Some(__denied) = {
        let __site = {
            static SITE: ::rate_limited::__private::Site = ::rate_limited::__private::Site::new(
                "getId",
            );
            &SITE
        };
        let __key = ::rate_limited::__private::Key::new("getId");
        let __limit = ::core::result::Result::Ok(
            ::rate_limited::__private::limit(5u32, 10000u64),
        );
        let __limiter = ::rate_limited::__private::current();
        ::rate_limited::__private::denied_blocking(__site, __limiter, __key, __limit)
    } {
        ::rate_limited::__private::FromDenied::from_denied(__denied)
    } else {
        Ok(7)
    }
}

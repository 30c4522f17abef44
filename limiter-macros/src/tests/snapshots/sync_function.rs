// #[rate_limited(key = "getId", limit = "5/10s")]
// fn get_id() -> Result<u64, Busy> { Ok(7) }

fn get_id() -> Result<u64, Busy> {
    if let ::core::option::Option::Some(denied) = {
        let site = {
            static SITE: ::rate_limited::__private::Site = ::rate_limited::__private::Site::new(
                "getId",
            );
            &SITE
        };
        let key = ::rate_limited::__private::Key::new("getId");
        let limit = ::core::result::Result::Ok(
            ::rate_limited::__private::limit(5u32, 10000u64),
        );
        let limiter = ::rate_limited::__private::current();
        ::rate_limited::__private::denied_blocking(site, limiter, key, limit)
    } {
        ::rate_limited::__private::FromDenied::from_denied(denied)
    } else {
        Ok(7)
    }
}

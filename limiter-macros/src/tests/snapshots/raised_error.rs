// #[rate_limited(key = "k", limit = "5/s", on_error = raise)]
// async fn get() -> Result<(), Failed> { #![allow(unused)] let nothing = 1; Ok(()) }

#[allow(unused)]
async fn get() -> Result<(), Failed> {
    if let ::core::option::Option::Some(stopped) = ::core::result::Result::transpose({
        let site = {
            static SITE: ::rate_limited::__private::Site = ::rate_limited::__private::Site::new(
                "k",
            );
            &SITE
        };
        let key = ::rate_limited::__private::Key::new("k");
        let limit = ::core::result::Result::Ok(
            ::rate_limited::__private::limit(5u32, 1000u64),
        );
        let limiter = ::rate_limited::__private::current();
        ::rate_limited::__private::decide(site, limiter, key, limit).await
    }) {
        match stopped {
            ::core::result::Result::Ok(denied) => {
                ::rate_limited::__private::FromDenied::from_denied(denied)
            }
            ::core::result::Result::Err(error) => {
                ::rate_limited::__private::FromFailure::from_failure(error)
            }
        }
    } else {
        let nothing = 1;
        Ok(())
    }
}

// #[rate_limited(key = "k", limit = "5/s", on_error = raise)]
// async fn get() -> Result<(), Failed> { #![allow(unused)] let nothing = 1; Ok(()) }

#[allow(unused)]
async fn get() -> Result<(), Failed> {
    if let ::core::option::Option::Some(__stopped) = ::core::result::Result::transpose({
        let __site = {
            static SITE: ::rate_limited::__private::Site = ::rate_limited::__private::Site::new(
                "k",
            );
            &SITE
        };
        let __key = ::rate_limited::__private::Key::new("k");
        let __limit = ::core::result::Result::Ok(
            ::rate_limited::__private::limit(5u32, 1000u64),
        );
        let __limiter = ::rate_limited::__private::current();
        ::rate_limited::__private::decide(__site, __limiter, __key, __limit).await
    }) {
        match __stopped {
            ::core::result::Result::Ok(__denied) => {
                ::rate_limited::__private::FromDenied::from_denied(__denied)
            }
            ::core::result::Result::Err(__error) => {
                ::rate_limited::__private::FromFailure::from_failure(__error)
            }
        }
    } else {
        let nothing = 1;
        Ok(())
    }
}

// #[rate_limited(key = "k", limit = "5/s", fallback = async |denied| later(denied).await, on_error = complain)]
// #[inline] async fn get<'a, T>(id: &'a T) -> &'a str where T: AsRef<str> { id.as_ref() }

#[inline]
async fn get<'a, T>(id: &'a T) -> &'a str
where
    T: AsRef<str>,
{
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
                ::rate_limited::__private::resolve(
                        ::rate_limited::__private::call(
                            async |denied: ::rate_limited::__private::Denied| {
                                later(denied).await
                            },
                            __denied,
                        ),
                    )
                    .await
            }
            ::core::result::Result::Err(__error) => {
                ::rate_limited::__private::resolve(complain(__error)).await
            }
        }
    } else {
        id.as_ref()
    }
}

// #[rate_limited(key = "k", limit = "5/s", fallback = async |denied| later(denied).await, on_error = complain)]
// #[inline] async fn get<'a, T>(id: &'a T) -> &'a str where T: AsRef<str> { id.as_ref() }

#[inline]
async fn get<'a, T>(id: &'a T) -> &'a str
where
    T: AsRef<str>,
{
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
                ::rate_limited::__private::resolve(
                        ::rate_limited::__private::call(
                            async |denied: ::rate_limited::__private::Denied| {
                                later(denied).await
                            },
                            denied,
                        ),
                    )
                    .await
            }
            ::core::result::Result::Err(error) => {
                ::rate_limited::__private::resolve(complain(error)).await
            }
        }
    } else {
        id.as_ref()
    }
}

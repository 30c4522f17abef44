// #[rate_limited(key = "k", limit = "5/s", fallback = async |denied| later(denied).await, on_error = complain)]
// #[inline] async fn get<'a, T>(id: &'a T) -> &'a str where T: AsRef<str> { id.as_ref() }

#[inline]
async fn get<'a, T>(id: &'a T) -> &'a str
where
    T: AsRef<str>,
{
    if let ::core::option::Option::Some(__stopped) = {
        let __decision = ::rate_limited::__private::decide(
                {
                    static SITE: ::rate_limited::__private::Site = ::rate_limited::__private::Site::new(
                        &["k"],
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
                                    "k",
                                );
                                &KEY
                            },
                            5u32,
                            1000u64,
                        ),
                    ];
                    &ASKS
                },
                ::core::time::Duration::ZERO,
            )
            .await;
        __decision
    } {
        match __stopped {
            ::core::result::Result::Ok((_, __denied)) => {
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

// #[rate_limited(key = "k", limit = "5/s", on_error = raise)]
// async fn get() -> Result<(), Failed> { #![allow(unused)] let nothing = 1; Ok(()) }

#[allow(unused)]
async fn get() -> Result<(), Failed> {
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

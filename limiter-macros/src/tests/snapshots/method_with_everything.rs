// #[rate_limited(key = self.key(id), name = "get", max = self.max, window = "1m30s", limiter = self.limiter, fallback = Self::degraded, on_error = |error| error.into(), crate = ::my::facade)]
// async fn get(&self, mut id: u64, _unused: &str) -> Reply { self.load(id).await }

async fn get(&self, mut id: u64, _unused: &str) -> Reply {
    let mut __held = ::my::facade::__private::HeldSlots::new();
    if let ::core::option::Option::Some(__stopped) = {
        let __rules = [
            {
                let __key = ::my::facade::__private::key("get", &(self.key(id)));
                let __limit = ::my::facade::__private::limit_of(
                    {
                        let __value: ::core::primitive::u32 = self.max;
                        __value
                    },
                    ::core::time::Duration::from_millis(90000u64),
                );
                ::core::option::Option::Some(
                    ::my::facade::__private::RuleRequest::with_limit(
                        __key,
                        __limit,
                        1u32,
                    ),
                )
            },
        ];
        let __limiter = ::my::facade::__private::limiter(&(self.limiter));
        let __decision = ::my::facade::__private::decide(
                {
                    static SITES: [::my::facade::__private::RuleSite; 1usize] = [
                        ::my::facade::__private::RuleSite {
                            name: "get",
                            key: ::core::option::Option::None,
                            limits: &["self . max/1m30s"],
                            algorithm: "sliding_window",
                            burst: ::core::option::Option::None,
                            cost: ::core::option::Option::Some(1u32),
                            block: ::core::option::Option::None,
                            function: ::core::concat!(
                                ::core::module_path!(), "::", "get"
                            ),
                            file: ::core::file!(),
                            line: ::core::line!(),
                        },
                    ];
                    static FUNCTION: ::my::facade::__private::AnnotatedFunction = ::my::facade::__private::AnnotatedFunction::new(
                        &["get"],
                        &SITES,
                    );
                    ::my::facade::__private::register_sites! {
                        & SITES
                    }
                    &FUNCTION
                },
                __limiter,
                &__rules,
                ::core::time::Duration::ZERO,
                &mut __held,
            )
            .await;
        __decision
    } {
        match __stopped {
            ::core::result::Result::Ok((_, __denied)) => {
                ::my::facade::__private::resolve(Self::degraded(self, id, _unused)).await
            }
            ::core::result::Result::Err(__error) => {
                ::my::facade::__private::resolve(
                        ::my::facade::__private::call(
                            |error: ::my::facade::__private::Error| error.into(),
                            __error,
                        ),
                    )
                    .await
            }
        }
    } else {
        self.load(id).await
    }
}

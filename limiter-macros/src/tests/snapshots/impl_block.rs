// #[rate_limited(key = "service", limit = "5/s", fallback = None)]
// impl<T> Service<T> { const NONE: u64 = 0; fn get(&self) -> Option<u64> { None } #[rate_limited(skip)] fn new() -> Self { Self } #[rate_limited(key = "own", limit = "1/s")] async fn put(&mut self) -> Result<(), Denied> { Ok(()) } }

impl<T> Service<T> {
    const NONE: u64 = 0;
    fn get(&self) -> Option<u64> {
        let mut __held = ::rate_limited::__private::HeldSlots::new();
        if let ::core::option::Option::Some((_, denied)) = {
            let __decision = ::rate_limited::__private::denied_blocking(
                {
                    static SITES: [::rate_limited::__private::RuleSite; 1usize] = [
                        ::rate_limited::__private::RuleSite {
                            name: "service",
                            key: ::core::option::Option::Some("service"),
                            limits: &["5/s"],
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
                    static FUNCTION: ::rate_limited::__private::AnnotatedFunction = ::rate_limited::__private::AnnotatedFunction::new(
                        &["service"],
                        &SITES,
                    );
                    ::rate_limited::__private::register_sites! {
                        & SITES
                    }
                    &FUNCTION
                },
                ::rate_limited::__private::current(),
                {
                    static RULES: [::core::option::Option<
                        ::rate_limited::__private::RuleRequest,
                    >; 1usize] = [
                        ::rate_limited::__private::RuleRequest::one_permit_static(
                            {
                                static KEY: ::rate_limited::__private::StaticKey = ::rate_limited::__private::StaticKey::new(
                                    "service",
                                );
                                &KEY
                            },
                            5u32,
                            1000u64,
                        ),
                    ];
                    &RULES
                },
                ::core::time::Duration::ZERO,
                &mut __held,
            );
            __decision
        } {
            None
        } else {
            None
        }
    }
    fn new() -> Self {
        Self
    }
    #[rate_limited(key = "own", limit = "1/s")]
    async fn put(&mut self) -> Result<(), Denied> {
        Ok(())
    }
}

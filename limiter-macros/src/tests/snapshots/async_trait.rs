// #[rate_limited(key = "user:{id}", limit = "5/s")]
// fn get<'a, 'async_trait>(&'a self, __arg1: Path<u64>) -> Pin<Box<dyn Future<Output = Result<u64, Busy>> + Send + 'async_trait>> where 'a: 'async_trait { Box::pin(async move { let __self = self; let Path(id) = __arg1; let __ret: Result<u64, Busy> = { Ok(id) }; __ret }) }

fn get<'a, 'async_trait>(
    &'a self,
    __arg1: Path<u64>,
) -> Pin<Box<dyn Future<Output = Result<u64, Busy>> + Send + 'async_trait>>
where
    'a: 'async_trait,
{
    Box::pin(async move {
        if let ::core::option::Option::Some(__value) = ::core::option::Option::None::<
            Result<u64, Busy>,
        > {
            return __value;
        }
        let mut __held = ::rate_limited::__private::HeldSlots::new();
        if let ::core::option::Option::Some((_, __denied)) = {
            let __rules = [
                ::rate_limited::__private::RuleRequest::one_permit(
                    {
                        #[allow(unused_variables)]
                        let Path(id) = &__arg1;
                        ::rate_limited::__private::Key::new("user:")
                            .part(
                                ::rate_limited::__private::captured_value(
                                    ::core::format_args!("user:{id}"),
                                    5usize,
                                    0usize,
                                ),
                            )
                    },
                    5u32,
                    1000u64,
                ),
            ];
            let __decision = ::rate_limited::__private::denied(
                    {
                        static SITES: [::rate_limited::__private::RuleSite; 1usize] = [
                            ::rate_limited::__private::RuleSite {
                                name: "user:{id}",
                                key: ::core::option::Option::Some("user:{id}"),
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
                            &["user:{id}"],
                            &SITES,
                        );
                        ::rate_limited::__private::register_sites! {
                            & SITES
                        }
                        &FUNCTION
                    },
                    ::rate_limited::__private::current(),
                    &__rules,
                    ::core::time::Duration::ZERO,
                    &mut __held,
                )
                .await;
            __decision
        } {
            ::rate_limited::__private::FromDenied::from_denied(__denied)
        } else {
            let __self = self;
            let Path(id) = __arg1;
            let __ret: Result<u64, Busy> = { Ok(id) };
            __ret
        }
    })
}

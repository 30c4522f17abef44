// #[rate_limited(key = "user:{id}", limit = "5/s", recover = from_cache)]
// async fn get(id: u64, mut name: String) -> Result<u64, Failed> { name.push('!'); load(name).await? }

async fn get(id: u64, name: String) -> Result<u64, Failed> {
    let mut __held = ::rate_limited::__private::HeldSlots::new();
    if let ::core::option::Option::Some((_, __denied)) = {
        let __rules = [
            ::rate_limited::__private::RuleRequest::one_permit(
                ::rate_limited::__private::Key::new("user:").part(&(id)),
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
        let __result = async move {
            if let ::core::option::Option::Some(__value) = ::core::option::Option::None::<
                Result<u64, Failed>,
            > {
                return __value;
            }
            let id = id;
            let _ = &id;
            let mut name = name;
            let __value: Result<u64, Failed> = {
                name.push('!');
                load(name).await?
            };
            __value
        }
            .await;
        match ::rate_limited::__private::Fallible::settle(
            ::core::convert::identity(__result),
        ) {
            ::core::result::Result::Ok(__value) => __value,
            ::core::result::Result::Err(__error) => {
                ::rate_limited::__private::resolve(from_cache(__error)).await
            }
        }
    }
}

// #[rate_limited(key = "getId", window = "10s", max = 5, fallback = degrade_fn)]
// pub async fn get_id(user_id: u64) -> String { load(user_id).await }

pub async fn get_id(user_id: u64) -> String {
    if let ::core::option::Option::Some((_, __denied)) = {
        let __decision = ::rate_limited::__private::denied(
                {
                    static SITE: ::rate_limited::__private::Site = ::rate_limited::__private::Site::new(
                        &["getId"],
                    );
                    &SITE
                },
                ::rate_limited::__private::current(),
                {
                    static RULES: [::core::option::Option<
                        ::rate_limited::__private::RuleRequest,
                    >; 1usize] = [
                        ::rate_limited::__private::RuleRequest::one_permit_static(
                            {
                                static KEY: ::rate_limited::__private::StaticKey = ::rate_limited::__private::StaticKey::new(
                                    "getId",
                                );
                                &KEY
                            },
                            5u32,
                            10000u64,
                        ),
                    ];
                    &RULES
                },
                ::core::time::Duration::ZERO,
            )
            .await;
        __decision
    } {
        ::rate_limited::__private::resolve(degrade_fn(user_id)).await
    } else {
        load(user_id).await
    }
}

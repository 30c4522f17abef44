// #[rate_limited(key = "getId", window = "10s", max = 5, fallback = degrade_fn)]
// pub async fn get_id(user_id: u64) -> String { load(user_id).await }

pub async fn get_id(user_id: u64) -> String {
    if let ::core::option::Option::Some((_, __denied)) = {
        let __asks = [
            ::rate_limited::__private::one(
                ::rate_limited::__private::constant(const {
                    ::rate_limited::__private::Constant::new("getId")
                }),
                5u32,
                10000u64,
            ),
        ];
        let __decision = ::rate_limited::__private::denied(
                {
                    static SITE: ::rate_limited::__private::Site = ::rate_limited::__private::Site::new(
                        &["getId"],
                    );
                    &SITE
                },
                ::rate_limited::__private::current(),
                &__asks,
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

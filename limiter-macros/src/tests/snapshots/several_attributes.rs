// #[rate_limited(key = "user:{id}", limit = "5/s", fallback = slower)]
// #[rate_limited(key = "global", limit = "100/s", fallback = busy(denied), on_error = open)] async fn get(id: u64) -> u64 { id }

async fn get(id: u64) -> u64 {
    if let ::core::option::Option::Some((__which, __denied)) = {
        let __rules = [
            {
                let __key = ::rate_limited::__private::Key::new("user:").part(&(id));
                ::rate_limited::__private::RuleRequest::one_permit(__key, 5u32, 1000u64)
            },
            ::rate_limited::__private::RuleRequest::one_permit_static(
                {
                    static KEY: ::rate_limited::__private::StaticKey = ::rate_limited::__private::StaticKey::new(
                        "global",
                    );
                    &KEY
                },
                100u32,
                1000u64,
            ),
        ];
        let __decision = ::rate_limited::__private::denied(
                {
                    static SITE: ::rate_limited::__private::Site = ::rate_limited::__private::Site::new(
                            &["user:{id}", "global"],
                        )
                        .on_error(::rate_limited::__private::OnError::Open);
                    &SITE
                },
                ::rate_limited::__private::current(),
                &__rules,
                ::core::time::Duration::ZERO,
            )
            .await;
        __decision
    } {
        match __which {
            0usize => ::rate_limited::__private::resolve(slower(id)).await,
            _ => {
                let denied = __denied;
                busy(denied)
            }
        }
    } else {
        id
    }
}

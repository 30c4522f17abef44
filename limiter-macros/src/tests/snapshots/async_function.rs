// #[rate_limited(key = "getId", window = "10s", max = 5, fallback = degrade_fn)]
// pub async fn get_id(user_id: u64) -> String { load(user_id).await }

pub async fn get_id(user_id: u64) -> String {
    if let ::core::option::Option::Some(__denied) = {
        let __site = {
            static SITE: ::rate_limited::__private::Site = ::rate_limited::__private::Site::new(
                "getId",
            );
            &SITE
        };
        let __key = ::rate_limited::__private::Key::new("getId");
        let __limit = ::core::result::Result::Ok(
            ::rate_limited::__private::limit(5u32, 10000u64),
        );
        let __limiter = ::rate_limited::__private::current();
        ::rate_limited::__private::denied(__site, __limiter, __key, __limit).await
    } {
        ::rate_limited::__private::resolve(degrade_fn(user_id)).await
    } else {
        load(user_id).await
    }
}
